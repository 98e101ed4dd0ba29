/* The contract on the local store in a file: once on lent connections in WAL mode, as hosts have
 * it, and once on connections of the store's own with a rollback journal. */
#include <unistd.h>

#include "store/local/host.h"
#include "support/contract.h"

enum { HOSTS = CONTRACT_SESSIONS };

struct place {
  char path[64];
  sqlite3 *db; /* the connection that shows the file */
  bool lend, wal;
  struct {
    msg_session *session;
    msg_host host;
  } lent[HOSTS];
};

static sqlite3 *open_file(const struct place *p) {
  sqlite3 *db = NULL;
  assert_int_equal(sqlite3_open_v2(p->path, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, NULL),
                   SQLITE_OK);
  sqlite3_exec(db, "PRAGMA synchronous = normal", NULL, NULL, NULL);
  return db;
}

static void setup(void **place, msg_store **store, bool lend, bool wal) {
  msg_err err = MSG_ERR_INIT;
  struct place *p = calloc(1, sizeof *p);
  assert_non_null(p);
  /* in memory where that can be had: the suite is not about how long a disk takes */
  snprintf(p->path, sizeof p->path, "%s/msg-contract-XXXXXX",
           access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
  int fd = mkstemp(p->path);
  assert_true(fd >= 0);
  close(fd);
  p->lend = lend;
  p->wal = wal;
  p->db = open_file(p);
  if (wal)
    sqlite3_exec(p->db, "PRAGMA journal_mode = wal", NULL, NULL, NULL);
  msg_host host = {.db = p->db, .schema = "main"};
  contract_ok(msg_local_open(&host, store, &err), &err, __FILE__, __LINE__);
  *place = p;
}

static void setup_lent(void **place, msg_store **store) {
  setup(place, store, true, true);
}

static void setup_own(void **place, msg_store **store) {
  setup(place, store, false, false);
}

static msg_session *session(void *place, msg_store *store, const char *queue,
                            const msg_settings *settings) {
  struct place *p = place;
  msg_err err = MSG_ERR_INIT;
  msg_session *s = NULL;
  size_t at = 0;
  while (p->lent[at].session)
    at++;
  msg_host *host = NULL;
  if (p->lend) {
    host = &p->lent[at].host;
    *host = (msg_host){.db = open_file(p), .schema = "main"};
  }
  contract_ok(store->ops->session_open(store, host, queue, settings, &s, &err), &err, __FILE__,
              __LINE__);
  p->lent[at].session = s;
  return s;
}

static void session_end(void *place, msg_session *s) {
  struct place *p = place;
  for (size_t i = 0; i < HOSTS; i++) {
    if (p->lent[i].session != s)
      continue;
    s->ops->session_close(s);
    if (p->lend)
      assert_int_equal(sqlite3_close(p->lent[i].host.db), SQLITE_OK); /* nothing was left on it */
    p->lent[i].session = NULL;
  }
}

static void teardown(void *place, msg_store *store) {
  struct place *p = place;
  char name[80];
  store->ops->store_close(store);
  assert_int_equal(sqlite3_close(p->db), SQLITE_OK);
  if (p->wal) { /* the last one out took the -wal away */
    snprintf(name, sizeof name, "%s-wal", p->path);
    assert_int_not_equal(access(name, F_OK), 0);
  }
  unlink(p->path);
  free(p);
}

int main(void) {
  static const contract_adapter lent = {.name = "local file, lent",
                                        .setup = setup_lent,
                                        .session = session,
                                        .session_end = session_end,
                                        .teardown = teardown};
  static const contract_adapter own = {.name = "local file, own",
                                       .setup = setup_own,
                                       .session = session,
                                       .session_end = session_end,
                                       .teardown = teardown};
  msg_pattern_set_glob(sqlite3_strglob);
  return contract_run(&lent) + contract_run(&own);
}
