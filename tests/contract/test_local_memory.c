/* The contract on the local store in memory: one connection for every session, no other thread,
 * no watch. */
#include "store/local/host.h"
#include "support/contract.h"

struct place {
  sqlite3 *db;
  msg_host host;
};

static void setup(void **place, msg_store **store) {
  msg_err err = MSG_ERR_INIT;
  struct place *p = calloc(1, sizeof *p);
  assert_non_null(p);
  assert_int_equal(sqlite3_open(":memory:", &p->db), SQLITE_OK);
  sqlite3_exec(p->db, "ATTACH ':memory:' AS \"it's \"\"@\"\"\"", NULL, NULL,
               NULL); /* a name that needs care */
  p->host = (msg_host){.db = p->db, .schema = "it's \"@\""};
  contract_ok(msg_local_open(&p->host, store, &err), &err, __FILE__, __LINE__);
  *place = p;
}

static msg_session *session(void *place, msg_store *store, const char *queue,
                            const msg_settings *settings) {
  struct place *p = place;
  msg_err err = MSG_ERR_INIT;
  msg_session *s = NULL;
  contract_ok(store->ops->session_open(store, &p->host, queue, settings, &s, &err), &err, __FILE__,
              __LINE__);
  return s;
}

static void session_end(void *place, msg_session *s) {
  (void)place;
  s->ops->session_close(s);
}

static void teardown(void *place, msg_store *store) {
  struct place *p = place;
  store->ops->store_close(store);
  assert_int_equal(sqlite3_close(p->db), SQLITE_OK);
  free(p);
}

int main(void) {
  static const contract_adapter memory = {.name = "local memory",
                                          .setup = setup,
                                          .session = session,
                                          .session_end = session_end,
                                          .teardown = teardown};
  msg_pattern_set_glob(sqlite3_strglob);
  return contract_run(&memory);
}
