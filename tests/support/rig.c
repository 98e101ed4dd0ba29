#include "support/rig.h"

#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "store/local/host.h"
#include "support/cmocka_compat.h"
#include "support/fake_store.h"

enum rig_kind rig_fake = RIG_FAKE, rig_push = RIG_PUSH, rig_no_watch = RIG_NO_WATCH,
              rig_file = RIG_FILE, rig_memory = RIG_MEMORY;

void rig_sleep(int64_t ms) {
  struct timespec ts = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};
  nanosleep(&ts, NULL);
}

/* --- stores -------------------------------------------------------------------------------- */

static sqlite3 *open_db(const char *path) {
  sqlite3 *db = NULL;
  assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
  assert_int_equal(sqlite3_exec(db, "PRAGMA synchronous=off", NULL, NULL, NULL), SQLITE_OK);
  return db;
}

static msg_store *open_local(rig *r, char *key) {
  msg_store *store = NULL;
  msg_err err = MSG_ERR_INIT;
  if (r->kind == RIG_FILE) {
    static atomic_int files;
    snprintf(r->path, sizeof r->path, "/tmp/msg-rig-%d-%d.db", (int)getpid(),
             atomic_fetch_add(&files, 1));
    unlink(r->path);
  } else {
    snprintf(r->path, sizeof r->path, ":memory:");
  }
  r->db = open_db(r->path);
  if (r->kind == RIG_FILE)
    assert_int_equal(sqlite3_exec(r->db, "PRAGMA journal_mode=wal", NULL, NULL, NULL), SQLITE_OK);
  msg_host host = {.db = r->db, .schema = "main"};
  if (msg_local_identify(&host, key, &err) != MSG_OK ||
      msg_local_open(&host, &store, &err) != MSG_OK)
    fail_msg("%s", err.text);
  return store;
}

void rig_open(rig *r, enum rig_kind kind) {
  static int number;
  char key[96];
  msg_err err = MSG_ERR_INIT;
  *r = (rig){.kind = kind, .others = fault_store_alive()};
  msg_pattern_set_glob(sqlite3_strglob);
  assert_int_equal(msg_engine_start(&err), MSG_OK);
  snprintf(key, sizeof key, "fake:%d", ++number);
  msg_store *inner =
      kind == RIG_FILE || kind == RIG_MEMORY
          ? open_local(r, key)
          : fake_store_new(kind == RIG_FAKE   ? MSG_CAP_WATCH
                           : kind == RIG_PUSH ? MSG_CAP_WATCH | MSG_CAP_PUSH | MSG_CAP_TEND
                                              : 0);
  msg_store *store = fault_store_new(inner);
  assert_non_null(store);
  assert_int_equal(msg_registry_add(key, store, &r->store, &err), MSG_OK);
  assert_ptr_equal(store, r->store);
}

void rig_open_pair(rig *r, enum rig_kind kind, peer *a, const char *a_id, peer *b,
                   const char *b_id) {
  rig_open(r, kind);
  peer_open(r, a, a_id);
  peer_open(r, b, b_id);
}

void rig_close(rig *r) {
  while (r->peer_count > 0)
    peer_close(r->peers[0]);
  msg_registry_unref(r->store);
  assert_int_equal(fault_store_alive(), r->others);
  if (r->db)
    assert_int_equal(sqlite3_close(r->db), SQLITE_OK);
  if (r->kind == RIG_FILE) {
    char wal[80];
    snprintf(wal, sizeof wal, "%s-wal", r->path);
    assert_int_not_equal(access(wal, F_OK), 0); /* nobody was left with the file open */
    unlink(r->path);
  }
}

/* --- peers --------------------------------------------------------------------------------- */

static bool interrupted(void *arg) {
  return atomic_load(&((peer *)arg)->interrupt);
}

static void lend_host(rig *r, peer *p) {
  p->db = r->kind == RIG_FILE ? open_db(r->path) : r->db;
  msg_host *host = msg_alloc(sizeof *host);
  assert_non_null(host);
  *host = (msg_host){.db = p->db, .schema = "main", .interrupted = interrupted, .arg = p};
  p->host = host;
}

void peer_open_with(rig *r, peer *p, const msg_settings *settings) {
  msg_err err = MSG_ERR_INIT;
  *p = (peer){.rig = r};
  assert_true(r->peer_count < RIG_PEERS);
  r->peers[r->peer_count++] = p;
  if (r->db)
    lend_host(r, p);
  int rc = msg_node_open(r->store, settings, &p->node, &err);
  if (rc == MSG_OK)
    rc = r->store->ops->session_open(r->store, p->host, "msg", settings, &p->session, &err);
  if (rc != MSG_OK)
    fail_msg("%s", err.text);
  p->call = (msg_call){.session = p->session, .interrupted = interrupted, .arg = p};
}

void peer_open(rig *r, peer *p, const char *sender_id) {
  msg_settings s;
  msg_settings_init(&s);
  s.sender_id = msg_strdup(sender_id);
  peer_open_with(r, p, &s);
  msg_settings_clear(&s);
  msg_node_attach(p->node);
}

static void forget(rig *r, const peer *p) {
  int at = 0;
  while (at < r->peer_count && r->peers[at] != p)
    at++;
  assert_true(at < r->peer_count);
  memmove(&r->peers[at], &r->peers[at + 1], (size_t)(--r->peer_count - at) * sizeof r->peers[0]);
}

void peer_close(peer *p) {
  forget(p->rig, p);
  p->rig->store->ops->session_close(p->session);
  if (p->node)
    msg_node_detach(p->node);
  msg_node_close(p->node);
  msg_free(p->host);
  if (p->rig->kind == RIG_FILE)
    assert_int_equal(sqlite3_close(p->db), SQLITE_OK);
}

int peer_sql(peer *p, const char *sql) {
  return sqlite3_exec(p->db, sql, NULL, NULL, NULL);
}

static msg_oid send_text(peer *p, const char *topic, const char *text, bool exclusive) {
  msg_err err = MSG_ERR_INIT;
  msg_message m;
  msg_oid id = {{0}};
  msg_message_init(&m);
  m.topic = msg_strdup(topic);
  m.exclusive = exclusive;
  msg_value v = msg_value_text(text);
  assert_int_equal(msg_value_copy(&m.value, &v), MSG_OK);
  int rc = msg_node_fill(p->node, &m, NULL, &err);
  if (rc == MSG_OK)
    rc = msg_node_send(p->node, &p->call, &m, 1, &id, NULL, &err);
  msg_message_clear(&m);
  if (rc != MSG_OK)
    fail_msg("%s", err.text);
  return id;
}

msg_oid peer_send(peer *p, const char *topic, const char *text) {
  return send_text(p, topic, text, false);
}

msg_oid peer_enqueue(peer *p, const char *topic, const char *text) {
  return send_text(p, topic, text, true);
}

int peer_await(peer *p, const char *topic, int64_t timeout_ms, size_t max, msg_list *out) {
  return msg_node_await(p->node, &p->call, topic, timeout_ms, max, out, NULL);
}

int peer_claim(peer *p, const char *topic, int64_t wait_ms, size_t count, msg_list *out) {
  return msg_node_claim(p->node, &p->call, topic, count, 0, wait_ms, out, NULL);
}

/* --- waits --------------------------------------------------------------------------------- */

static void run_wait(void *arg) {
  rig_wait *w = arg;
  int64_t began = msg_clock_mono_ms();
  if (w->claims)
    w->rc = msg_node_claim(w->p->node, &w->p->call, w->topic, w->max, 0, w->timeout_ms, &w->list,
                           &w->err);
  else
    w->rc =
        msg_node_await(w->p->node, &w->p->call, w->topic, w->timeout_ms, w->max, &w->list, &w->err);
  w->took_ms = msg_clock_mono_ms() - began;
  atomic_store(&w->done, true);
}

void rig_wait_start(rig_wait *w) {
  msg_err err = MSG_ERR_INIT;
  if (w->max == 0)
    w->max = 1;
  assert_int_equal(msg_thread_start(&w->thread, "rig-wait", run_wait, w, &err), MSG_OK);
}

void rig_wait_begin(rig_wait *w) {
  rig_wait_start(w);
  rig_until_waiters(w->p->rig, 1);
}

void rig_wait_join(rig_wait *w) {
  msg_thread_join(w->thread);
}

void rig_wait_expect(rig_wait *w, const char *text) {
  rig_wait_join(w);
  if (w->rc != MSG_OK)
    fail_msg("%s: %s", msg_rc_name(w->rc), w->err.text);
  assert_int_equal(w->list.n, 1);
  assert_string_equal(w->list.at[0].value.p, text);
  msg_list_clear(&w->list);
}

typedef struct lookup {
  msg_cursor_info row;
  char *error;
} lookup;

static int take_row(void *arg, const msg_cursor_info *row) {
  lookup *l = arg;
  l->row = *row;
  if (l->error)
    snprintf(l->error, 512, "%s", row->last_error);
  l->row.last_error = l->error;
  return MSG_OK;
}

msg_cursor_info rig_cursor(rig *r, char error[512]) {
  (void)r; /* a test has one store at a time */
  lookup l = {.error = error};
  assert_int_equal(msg_engine_cursors(take_row, &l, NULL), MSG_OK);
  return l.row;
}

void rig_until_waiters(rig *r, int n) {
  for (int i = 0; i < 1000 && rig_cursor(r, NULL).waiters != n; i++)
    rig_sleep(5);
  assert_int_equal(rig_cursor(r, NULL).waiters, n);
}

void rig_until_state(rig *r, const char *state) {
  for (int i = 0; i < 1000 && strcmp(rig_cursor(r, NULL).state, state) != 0; i++)
    rig_sleep(5);
  assert_string_equal(rig_cursor(r, NULL).state, state);
}
