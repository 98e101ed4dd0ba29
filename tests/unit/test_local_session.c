/* session.c, write.c, fail.c: whose transaction, waiting for locks, what errors mean. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"
#include "store/local/local.h"
#include "support/cmocka_compat.h"
#include "support/local_rig.h"

static char path[64];
static local_rig a, b;
static bool wal;

static void setup_with(const char *journal_mode) {
  char sql[64];
  wal = strcmp(journal_mode, "wal") == 0;
  local_path_new(path);
  local_rig_open(&a, path, "a");
  snprintf(sql, sizeof sql, "PRAGMA journal_mode = %s", journal_mode);
  local_sql(&a, sql);
  local_sql(&a, "CREATE TABLE mine(x)");
  local_rig_open(&b, path, "b");
}

static int setup(void **state) {
  (void)state;
  setup_with("wal");
  return 0;
}

static int setup_delete(void **state) {
  (void)state;
  setup_with("delete");
  return 0;
}

static int teardown(void **state) {
  (void)state;
  local_rig_close(&a);
  local_rig_close(&b);
  local_path_remove(path);
  return 0;
}

static int check(local_rig *r) {
  bool gone;
  return msg_local_check(&r->host, r->store, &gone, &r->err);
}

static int send_rc(local_rig *r, bool many) {
  msg_message m = local_message("t", "x");
  msg_oid id;
  if (many)
    m.key = msg_strdup("key");
  int rc = local_put_rc(r, &m, &id);
  msg_message_clear(&m);
  return rc;
}

static int64_t messages(local_rig *r) {
  return local_number(r, "SELECT count(*) FROM msg_store_message");
}

static void set_patience(local_rig *r, int64_t ms) {
  ((msg_local_session *)r->session)->busy_timeout_ms = ms;
}

/* ---- locks ---- */

static void locked_store_is_busy_and_then_works(void **state) {
  (void)state;
  local_send(&a, "t", "x");
  for (int many = 0; many < 2; many++) {
    local_sql(&b, "BEGIN IMMEDIATE");
    assert_int_equal(send_rc(&a, many), MSG_BUSY);
    assert_true(a.err.retry);
    assert_int_equal(a.err.native & 0xff, SQLITE_BUSY);
    assert_non_null(strstr(a.err.text, "send: "));
    assert_non_null(strstr(a.err.text, "busy_timeout_ms"));
    assert_int_equal(sqlite3_get_autocommit(a.db), 1);
    local_sql(&b, "COMMIT");
    assert_int_equal(send_rc(&a, many), MSG_OK);
  }
  assert_int_equal(messages(&a), 3);
}

struct holder {
  local_rig *r;
  const char *begin;
};

static void hold_100_ms(void *arg) {
  struct holder *h = arg;
  sqlite3_sleep(100);
  sqlite3_busy_timeout(h->r->db, 1000); /* with a rollback journal it may meet the other's look */
  sqlite3_exec(h->r->db, "COMMIT", NULL, NULL, NULL);
  sqlite3_busy_timeout(h->r->db, 0);
}

/* Another thread ends the transaction of b while a waits. */
static void wait_out(const char *begin, bool many) {
  struct holder h = {.r = &b, .begin = begin};
  msg_thread *thread = NULL;
  set_patience(&a, 5000);
  local_sql(&b, begin);
  assert_int_equal(msg_thread_start(&thread, "holder", hold_100_ms, &h, NULL), MSG_OK);
  int64_t start = msg_clock_mono_ms();
  int rc = send_rc(&a, many);
  int64_t took = msg_clock_mono_ms() - start;
  msg_thread_join(thread);
  assert_int_equal(rc, MSG_OK);
  assert_in_range(took, 50, 2000);
}

static void waits_for_a_writer(void **state) {
  (void)state;
  local_send(&a, "t", "x");
  wait_out("BEGIN IMMEDIATE", false);
  wait_out("BEGIN IMMEDIATE", true);
  assert_int_equal(messages(&a), 3);
}

/* In a rollback journal the commit waits for readers. */
static void waits_for_a_reader_at_commit(void **state) {
  (void)state;
  local_send(&a, "t", "x");
  wait_out("BEGIN; SELECT * FROM mine", false);
  wait_out("BEGIN; SELECT * FROM mine", true);
  assert_int_equal(messages(&a), 3);
}

static void a_reader_that_stays_leaves_nothing_behind(void **state) {
  (void)state;
  local_send(&a, "t", "x");
  set_patience(&a, 30);
  for (int many = 0; many < 2; many++) {
    local_sql(&b, "BEGIN; SELECT * FROM mine");
    assert_int_equal(send_rc(&a, many), MSG_BUSY);
    assert_int_equal(sqlite3_get_autocommit(a.db), 1);
    assert_int_equal(sqlite3_txn_state(a.db, "main"), SQLITE_TXN_NONE);
    local_sql(&b, "COMMIT");
  }
  assert_int_equal(messages(&a), 1);
}

static void interrupt_ends_the_wait(void **state) {
  (void)state;
  local_send(&a, "t", "x");
  set_patience(&a, 10000);
  local_sql(&b, "BEGIN IMMEDIATE");
  a.interrupts = 4;
  int64_t start = msg_clock_mono_ms();
  assert_int_equal(send_rc(&a, true), MSG_INTERRUPTED);
  assert_true(msg_clock_mono_ms() - start < 1000);
  local_sql(&b, "COMMIT");
  a.interrupts = 1;
  assert_int_equal(send_rc(&a, false), MSG_INTERRUPTED);
  assert_int_equal(messages(&a), 1);
}

/* ---- inside BEGIN ---- */

static void joins_the_transaction(void **state) {
  (void)state;
  for (int many = 0; many < 2; many++) {
    local_sql(&a, "BEGIN");
    assert_int_equal(send_rc(&a, many), MSG_OK);
    assert_int_equal(sqlite3_get_autocommit(a.db), 0);
    local_sql(&a, "ROLLBACK");
    local_sql(&a, "BEGIN");
    assert_int_equal(send_rc(&a, many), MSG_OK); /* the schema had been rolled back too */
    local_sql(&a, "COMMIT");
  }
  assert_int_equal(messages(&b), 2);
}

static void rollback_to_savepoint_undoes(void **state) {
  (void)state;
  local_send(&a, "t", "kept");
  local_sql(&a, "SAVEPOINT s");
  assert_int_equal(send_rc(&a, true), MSG_OK);
  local_sql(&a, "ROLLBACK TO s");
  assert_int_equal(messages(&a), 1);
  local_sql(&a, "RELEASE s");
}

/* Otherwise the read snapshot that the first statement takes could be stale when the second
 * writes. */
static void takes_the_write_lock_first(void **state) {
  (void)state;
  local_send(&a, "t", "x");
  local_sql(&a, "BEGIN");
  msg_list list = MSG_LIST_INIT;
  local_claim(&a, "none*", 1, &list);
  assert_int_equal(sqlite3_txn_state(a.db, "main"), SQLITE_TXN_WRITE);
  assert_int_equal(send_rc(&b, false), MSG_BUSY);
  local_sql(&a, "COMMIT");
}

static void busy_inside_begin_waits_while_nothing_was_read(void **state) {
  (void)state;
  local_send(&a, "t", "x");
  local_sql(&a, "BEGIN");
  wait_out("BEGIN IMMEDIATE", true);
  local_sql(&a, "COMMIT");
  local_sql(&a, "BEGIN; SELECT * FROM mine");
  set_patience(&a, 5000);
  local_sql(&b, "BEGIN IMMEDIATE");
  int64_t start = msg_clock_mono_ms();
  assert_int_equal(send_rc(&a, true), MSG_BUSY);
  assert_true(msg_clock_mono_ms() - start < 1000);
  assert_false(a.err.retry);
  assert_non_null(strstr(a.err.text, "BEGIN IMMEDIATE"));
  local_sql(&a, "COMMIT");
  local_sql(&b, "COMMIT");
}

static void stale_snapshot_names_the_cure(void **state) {
  (void)state;
  local_send(&a, "t", "x");
  set_patience(&a, 5000);
  local_sql(&a, "BEGIN; SELECT * FROM mine");
  local_sql(&b, "INSERT INTO mine VALUES(1)");
  for (int many = 0; many < 2; many++) {
    assert_int_equal(send_rc(&a, many), MSG_BUSY);
    assert_int_equal(a.err.native, SQLITE_BUSY_SNAPSHOT);
    assert_false(a.err.retry);
    assert_non_null(strstr(a.err.text, "finish the reading statement"));
    assert_non_null(strstr(a.err.text, "BEGIN IMMEDIATE"));
  }
  local_sql(&a, "COMMIT");
  assert_int_equal(send_rc(&a, false), MSG_OK);
}

/* ---- inside a host's statement ---- */

static int nested_rc;

static void sql_send(sqlite3_context *ctx, int argc, sqlite3_value **argv) {
  (void)argc;
  bool many = sqlite3_value_int(argv[0]) != 0;
  msg_message m = local_message("t", "x");
  msg_oid id;
  if (many) {
    char key[24];
    snprintf(key, sizeof key, "%d", sqlite3_value_int(argv[0]));
    m.key = msg_strdup(key);
  }
  nested_rc = local_put_rc(&a, &m, &id);
  msg_message_clear(&m);
  if (nested_rc == MSG_OK)
    sqlite3_result_int(ctx, 1);
  else
    sqlite3_result_error(ctx, a.err.text, -1);
}

static void with_function(void) {
  assert_int_equal(
      sqlite3_create_function(a.db, "send", 1, SQLITE_UTF8, NULL, sql_send, NULL, NULL), SQLITE_OK);
}

static void inside_reading_and_writing_statements(void **state) {
  (void)state;
  with_function();
  local_sql(&a, "INSERT INTO mine VALUES(1), (2), (3)");
  local_sql(&a, "SELECT send(0)"); /* makes the schema inside a statement */
  local_sql(&a, "SELECT send(x) FROM mine");
  local_sql(&a, "INSERT INTO mine SELECT send(x + 10) FROM mine");
  local_sql(&a, "CREATE TEMP TABLE log(x)");
  local_sql(&a, "INSERT INTO log SELECT send(x + 20) FROM mine LIMIT 2");
  local_sql(&a, "BEGIN; UPDATE mine SET x = send(0); COMMIT");
  assert_int_equal(messages(&a), 1 + 3 + 3 + 2 + 6);
}

static void schema_is_made_inside_a_writing_statement(void **state) {
  (void)state;
  with_function();
  local_sql(&a, "INSERT INTO mine SELECT send(7)");
  assert_int_equal(messages(&b), 1);
}

static void failing_host_statement_undoes(void **state) {
  (void)state;
  with_function();
  local_send(&a, "t", "x");
  local_sql(&a, "CREATE TABLE strict1(x CHECK(x < 1), y)");
  assert_int_equal(sqlite3_exec(a.db, "INSERT INTO strict1 SELECT send(x), x FROM (SELECT 1 AS x)",
                                NULL, NULL, NULL),
                   SQLITE_CONSTRAINT);
  assert_int_equal(messages(&a), 1);
}

/* SQLite's own savepoint of it lies in another schema. */
static void fails_half_way(sqlite3_stmt *stmt) {
  int64_t before = messages(&a);
  local_sql(&a, "BEGIN");
  assert_int_equal(sqlite3_step(stmt), SQLITE_CONSTRAINT);
  assert_int_equal(sqlite3_reset(stmt), SQLITE_CONSTRAINT);
  local_sql(&a, "COMMIT");
  assert_int_equal(messages(&a), before);
}

static void undoes_wherever_the_host_compiled_it(void **state) {
  static const char sql[] = "INSERT INTO temp.log SELECT send(x) FROM mine";
  sqlite3_stmt *first = NULL, *later = NULL;
  (void)state;
  with_function();
  local_sql(&a, "INSERT INTO mine VALUES(0), (0); CREATE TEMP TABLE log(x UNIQUE)");
  assert_int_equal(sqlite3_prepare_v2(a.db, sql, -1, &first, NULL), SQLITE_OK);
  local_send(&a, "t", "x");
  fails_half_way(first); /* compiled before ours */
  assert_int_equal(sqlite3_prepare_v2(a.db, sql, -1, &later, NULL), SQLITE_OK);
  fails_half_way(later); /* after ours */
  for (int key = 1; key <= 2; key++) {
    local_sql(&a, key == 1 ? "SELECT send(1)" : "SELECT send(2)"); /* compiles more */
    fails_half_way(later);                                         /* between ours */
    fails_half_way(first);
  }
  msg_local_session_release(a.session); /* ours come back */
  fails_half_way(later);
  fails_half_way(first);
  sqlite3_finalize(first);
  sqlite3_finalize(later);
}

static void sql_pinned(sqlite3_context *ctx, int argc, sqlite3_value **argv) {
  (void)argc, (void)argv;
  sqlite3_result_int(ctx, msg_local_pinned((msg_local_session *)a.session));
}

static void a_write_of_ours_pins_what_its_triggers_do(void **state) {
  (void)state;
  local_send(&a, "t", "x");
  assert_int_equal(
      sqlite3_create_function(a.db, "pinned", 0, SQLITE_UTF8, NULL, sql_pinned, NULL, NULL),
      SQLITE_OK);
  local_sql(&a, "CREATE TRIGGER told AFTER INSERT ON msg_store_message"
                " BEGIN INSERT INTO mine VALUES(pinned()); END");
  assert_int_equal(local_number(&a, "SELECT pinned()"), 0);
  msg_message m = local_message("t", "x");
  m.exclusive = false; /* a single statement, in autocommit */
  msg_oid id;
  assert_int_equal(local_put_rc(&a, &m, &id), MSG_OK);
  msg_message_clear(&m);
  assert_int_equal(local_number(&a, "SELECT count(*) FROM mine WHERE x = 1"), 1);
}

/* ---- a schema that vanished ---- */

static void vanished_schema_is_made_again(void **state) {
  (void)state;
  local_sql(&a, "BEGIN");
  local_send(&a, "t", "x");
  local_sql(&a, "ROLLBACK");
  msg_list list = MSG_LIST_INIT;
  local_claim(&a, "t", 1, &list);
  assert_int_equal(list.n, 0);
  local_sql(&a, "BEGIN");
  local_send(&a, "t", "x");
  local_sql(&a, "ROLLBACK");
  assert_false(local_claimable(&a, "t"));
  local_send(&a, "t", "x");
  assert_int_equal(messages(&b), 1);
}

static void two_connections_make_it_together(void **state) {
  (void)state;
  set_patience(&b, 2000);
  local_sql(&a, "BEGIN");
  local_send(&a, "t", "x");
  struct holder h = {.r = &a};
  msg_thread *thread = NULL;
  assert_int_equal(msg_thread_start(&thread, "holder", hold_100_ms, &h, NULL), MSG_OK);
  int rc = send_rc(&b, true);
  msg_thread_join(thread);
  assert_int_equal(rc, MSG_OK);
  assert_int_equal(messages(&b), 2);
}

/* ---- other errors ---- */

static void read_only_says_so(void **state) {
  (void)state;
  local_send(&a, "t", "x");
  local_sql(&a, "PRAGMA query_only = ON");
  for (int many = 0; many < 2; many++) {
    assert_int_equal(send_rc(&a, many), MSG_READONLY);
    assert_non_null(strstr(a.err.text, "query_only"));
  }
  local_sql(&a, "PRAGMA query_only = OFF");
  local_rig r;
  char uri[96];
  snprintf(uri, sizeof uri, "file:%s?mode=ro", path);
  sqlite3_config(SQLITE_CONFIG_URI, 1);
  sqlite3 *ro = NULL;
  assert_int_equal(sqlite3_open_v2(uri, &ro, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, NULL),
                   SQLITE_OK);
  local_rig_open(&r, path, "r");
  sqlite3 *rw = r.db;
  ((msg_local_session *)r.session)->db = ro;
  assert_int_equal(send_rc(&r, true), MSG_READONLY);
  assert_non_null(strstr(r.err.text, "open it writable"));
  r.session->ops->session_release(r.session);
  ((msg_local_session *)r.session)->db = rw;
  sqlite3_close(ro);
  local_rig_close(&r);
}

static int deny(void *arg, int action, const char *x, const char *y, const char *z, const char *w) {
  (void)arg, (void)y, (void)z, (void)w;
  return action == SQLITE_INSERT && x && strcmp(x, "msg_store_message") == 0 ? SQLITE_DENY
                                                                             : SQLITE_OK;
}

static void authorizer_says_no(void **state) {
  (void)state;
  assert_int_equal(send_rc(&a, false), MSG_OK);
  a.session->ops->session_release(a.session);
  sqlite3_set_authorizer(a.db, deny, NULL);
  assert_int_equal(send_rc(&a, false), MSG_AUTH);
  sqlite3_set_authorizer(a.db, NULL, NULL);
}

static void full_and_too_big(void **state) {
  (void)state;
  local_send(&a, "t", "x");
  sqlite3_limit(a.db, SQLITE_LIMIT_LENGTH, 2000);
  char big[3000];
  memset(big, 'x', sizeof big);
  big[sizeof big - 1] = '\0';
  msg_message m = local_message("t", big);
  msg_oid id;
  assert_int_equal(local_put_rc(&a, &m, &id), MSG_TOOBIG);
  sqlite3_limit(a.db, SQLITE_LIMIT_LENGTH, 1000000000);
  local_sql(&a, "PRAGMA max_page_count = 1");
  int rc = MSG_OK;
  for (int i = 0; i < 100 && rc == MSG_OK; i++) {
    m.id = msg_oid_new();
    rc = local_put_rc(&a, &m, &id);
  }
  assert_int_equal(rc, MSG_IO);
  assert_int_equal(a.err.native, SQLITE_FULL);
  msg_message_clear(&m);
}

static void release_lets_the_host_close(void **state) {
  (void)state;
  local_send(&a, "t", "x");
  assert_non_null(sqlite3_next_stmt(a.db, NULL));
  a.session->ops->session_release(a.session);
  assert_null(sqlite3_next_stmt(a.db, NULL));
  local_send(&a, "t", "x"); /* they come back by themselves */
}

/* ---- other schemas, own connections ---- */

static void attached_schema_is_its_own_store(void **state) {
  (void)state;
  local_rig r;
  char attach[128], other[64];
  local_path_new(other);
  snprintf(attach, sizeof attach, "ATTACH '%s' AS \"we\"\"ird\"", other);
  local_rig_open_schema(&r, path, "we\"ird", attach, "r");
  local_send(&r, "t", "x");
  assert_int_equal(local_number(&r, "SELECT count(*) FROM \"we\"\"ird\".msg_store_message"), 1);
  assert_int_equal(
      local_number(&r, "SELECT count(*) FROM main.sqlite_schema WHERE name LIKE 'msg%'"), 0);
  char main_key[96], key[96];
  msg_host host = {.db = r.db, .schema = "main"};
  assert_int_equal(msg_local_identify(&host, main_key, &r.err), MSG_OK);
  assert_int_equal(msg_local_identify(&r.host, key, &r.err), MSG_OK);
  assert_string_not_equal(main_key, key);
  r.session->ops->session_release(r.session);
  local_sql(&r, "DETACH \"we\"\"ird\"");
  assert_int_equal(check(&r), MSG_UNAVAILABLE);
  local_rig_close(&r);
  local_path_remove(other);
}

/* By another path, and by the same path after the file there was replaced. */
static void an_attached_schema_may_become_another_file(void **state) {
  (void)state;
  local_rig r;
  char attach[128], one[64], two[64];
  local_path_new(one);
  local_path_new(two);
  snprintf(attach, sizeof attach, "ATTACH '%s' AS x", one);
  local_rig_open_schema(&r, path, "x", attach, "r");
  local_send(&r, "t", "x");
  assert_int_equal(check(&r), MSG_OK);
  r.session->ops->session_release(r.session);
  snprintf(attach, sizeof attach, "DETACH x; ATTACH '%s' AS x; CREATE TABLE x.y(z)", two);
  local_sql(&r, attach);
  assert_int_equal(check(&r), MSG_UNAVAILABLE);
  assert_non_null(strstr(r.err.text, "msg_close"));
  local_sql(&r, "BEGIN IMMEDIATE");
  assert_int_equal(check(&r), MSG_UNAVAILABLE);
  local_sql(&r, "ROLLBACK");
  assert_int_equal(rename(two, one), 0);
  snprintf(attach, sizeof attach, "DETACH x; ATTACH '%s' AS x", one);
  local_sql(&r, attach);
  assert_int_equal(check(&r), MSG_UNAVAILABLE);
  assert_non_null(strstr(r.err.text, "msg_close"));
  local_rig_close(&r);
  local_path_remove(one);
  local_path_remove(two);
}

/* A hard link is another name of it. */
static void an_attached_schema_may_come_back_by_another_name(void **state) {
  (void)state;
  local_rig r;
  char attach[160], one[64], other[80];
  local_path_new(one);
  snprintf(attach, sizeof attach, "ATTACH '%s' AS x", one);
  local_rig_open_schema(&r, path, "x", attach, "r");
  local_send(&r, "t", "x");
  r.session->ops->session_release(r.session);
  snprintf(other, sizeof other, "%s-link", one);
  assert_int_equal(link(one, other), 0);
  snprintf(attach, sizeof attach, "DETACH x; ATTACH '%s' AS x", other);
  local_sql(&r, attach);
  assert_int_equal(check(&r), MSG_OK);
  local_rig_close(&r);
  local_path_remove(one);
}

static int64_t pragma_of(msg_session *own, const char *name) {
  char sql[64];
  sqlite3_stmt *stmt;
  snprintf(sql, sizeof sql, "PRAGMA main.%s", name);
  assert_int_equal(sqlite3_prepare_v2(((msg_local_session *)own)->db, sql, -1, &stmt, NULL),
                   SQLITE_OK);
  assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
  int64_t value = sqlite3_column_int64(stmt, 0);
  sqlite3_finalize(stmt);
  return value;
}

static void host_habit(const char *name, int64_t value) {
  char sql[64];
  snprintf(sql, sizeof sql, "PRAGMA %s = %lld", name, (long long)value);
  local_sql(&a, sql);
}

static void put_by(msg_session *own) {
  msg_message m = local_message("t", "own");
  msg_put put = {.message = &m};
  assert_int_equal(own->ops->put(own, &a.actor, &put, 1, &a.err), MSG_OK);
  msg_message_clear(&m);
}

static void own_connection_works_beside_the_host(void **state) {
  (void)state;
  assert_int_equal(a.store->ops->caps(a.store), MSG_CAP_HOST_TXN | MSG_CAP_WATCH | MSG_CAP_OWN);
  local_send(&a, "t", "x");
  local_sql(&a, "BEGIN");
  msg_session *own = NULL;
  assert_int_equal(a.store->ops->session_open(a.store, NULL, "msg", &a.settings, &own, &a.err),
                   MSG_OK);
  put_by(own);
  own->ops->session_close(own);
  assert_int_equal(messages(&b), 2);
  local_sql(&a, "ROLLBACK");
}

/* Whatever the host says meanwhile. */
static void own_connection_keeps_the_habits_of_its_host(void **state) {
  static const char *const NAMES[] = {"synchronous", "journal_size_limit", "fullfsync",
                                      "checkpoint_fullfsync"};
  static const int64_t HABITS[][4] = {{1, 4096, 1, 1}, {3, -1, 0, 1}, {0, 0, 1, 0}};
  (void)state;
  msg_session *own = NULL;
  assert_int_equal(a.store->ops->session_open(a.store, NULL, "msg", &a.settings, &own, &a.err),
                   MSG_OK);
  msg_local_act_for(own, &a.host);
  for (size_t n = 0; n < 3; n++) {
    for (size_t i = 0; i < 4; i++)
      host_habit(NAMES[i], HABITS[n][i]);
    put_by(own);
    for (size_t i = 0; i < 4; i++)
      assert_int_equal(pragma_of(own, NAMES[i]), HABITS[n][i]);
  }
  host_habit("secure_delete", 0);
  assert_int_equal(pragma_of(own, "secure_delete"), 1); /* the host may want it the next moment */
  own->ops->session_close(own);
}

/* In WAL mode; what comes before and after is as durable as the host asks for. */
static void own_claims_need_not_reach_the_disk(void **state) {
  (void)state;
  local_rig mine = a;
  msg_session *own = NULL;
  assert_int_equal(a.store->ops->session_open(a.store, NULL, "msg", &a.settings, &own, &a.err),
                   MSG_OK);
  mine.session = own;
  msg_local_act_for(own, &a.host);
  for (int level = 0; level <= 3; level++) {
    host_habit("synchronous", level);
    for (int i = 0; i < 2; i++) {
      msg_list list = MSG_LIST_INIT;
      put_by(own);
      assert_int_equal(pragma_of(own, "synchronous"), level);
      local_claim(&mine, "t", 1, &list);
      assert_int_equal(list.n, 1);
      assert_int_equal(pragma_of(own, "synchronous"), wal ? 1 : level); /* checkpoints are whole */
      assert_true(local_settle(&mine, MSG_SETTLE_ACK, &list.at[0].id, NULL));
      assert_int_equal(pragma_of(own, "synchronous"), level);
      msg_list_clear(&list);
    }
  }
  own->ops->session_close(own);
}

/* One that has read nothing yet must read the schema for the first pragma. */
static void own_claim_waits_for_a_writer(void **state) {
  (void)state;
  struct holder h = {.r = &b};
  local_rig mine = a;
  msg_thread *thread = NULL;
  msg_list list = MSG_LIST_INIT;
  local_send(&a, "t", "x");
  assert_int_equal(
      a.store->ops->session_open(a.store, NULL, "msg", &a.settings, &mine.session, &a.err), MSG_OK);
  set_patience(&mine, 5000);
  msg_local_act_for(mine.session, &a.host);
  local_sql(&b, "BEGIN EXCLUSIVE");
  assert_int_equal(msg_thread_start(&thread, "holder", hold_100_ms, &h, NULL), MSG_OK);
  int rc = local_claim_rc(&mine, "t", 1, 30000, &list);
  msg_thread_join(thread);
  if (rc != MSG_OK)
    fail_msg("%s", mine.err.text);
  assert_int_equal(list.n, 1);
  msg_list_clear(&list);
  mine.session->ops->session_close(mine.session);
}

static void memory_has_neither_watch_nor_own(void **state) {
  (void)state;
  local_rig r, q;
  local_rig_open(&r, ":memory:", "r");
  local_rig_open(&q, ":memory:", "q");
  assert_int_equal(r.store->ops->caps(r.store), MSG_CAP_HOST_TXN);
  assert_string_equal(r.store->ops->place(r.store), ":memory:");
  msg_session *own = NULL;
  assert_int_equal(r.store->ops->session_open(r.store, NULL, "msg", &r.settings, &own, &r.err),
                   MSG_UNSUPPORTED);
  char one[96], other[96];
  assert_int_equal(msg_local_identify(&r.host, one, &r.err), MSG_OK);
  assert_int_equal(msg_local_identify(&q.host, other, &r.err), MSG_OK);
  assert_string_not_equal(one, other);
  local_rig_close(&r);
  local_rig_close(&q);
}

static void identity_is_the_file(void **state) {
  (void)state;
  char one[96], other[96];
  assert_int_equal(msg_local_identify(&a.host, one, &a.err), MSG_OK);
  assert_int_equal(msg_local_identify(&b.host, other, &a.err), MSG_OK);
  assert_string_equal(one, other);
  msg_host temp = {.db = a.db, .schema = "temp"}, none = {.db = a.db, .schema = "none"};
  assert_int_equal(msg_local_identify(&temp, one, &a.err), MSG_INVALID);
  assert_int_equal(msg_local_identify(&none, one, &a.err), MSG_INVALID);
  assert_int_equal(check(&a), MSG_OK);
  char moved[80];
  snprintf(moved, sizeof moved, "%s-moved", path);
  assert_int_equal(rename(path, moved), 0);
  assert_int_equal(check(&a), MSG_UNAVAILABLE);
  local_sql(&a, "BEGIN IMMEDIATE"); /* stays in the file in which it began */
  assert_int_equal(check(&a), MSG_OK);
  local_sql(&a, "ROLLBACK");
  assert_int_equal(rename(moved, path), 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
#define TEST_DELETE(f)                                                                             \
  { #f " [delete]", f, setup_delete, teardown, NULL }

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(locked_store_is_busy_and_then_works),
      TEST_DELETE(locked_store_is_busy_and_then_works),
      TEST(waits_for_a_writer),
      TEST_DELETE(waits_for_a_writer),
      TEST_DELETE(waits_for_a_reader_at_commit),
      TEST_DELETE(a_reader_that_stays_leaves_nothing_behind),
      TEST(interrupt_ends_the_wait),
      TEST(joins_the_transaction),
      TEST_DELETE(joins_the_transaction),
      TEST(rollback_to_savepoint_undoes),
      TEST(takes_the_write_lock_first),
      TEST_DELETE(takes_the_write_lock_first),
      TEST(busy_inside_begin_waits_while_nothing_was_read),
      TEST_DELETE(busy_inside_begin_waits_while_nothing_was_read),
      TEST(stale_snapshot_names_the_cure),
      TEST(inside_reading_and_writing_statements),
      TEST_DELETE(inside_reading_and_writing_statements),
      TEST(schema_is_made_inside_a_writing_statement),
      TEST(failing_host_statement_undoes),
      TEST(undoes_wherever_the_host_compiled_it),
      TEST(a_write_of_ours_pins_what_its_triggers_do),
      TEST(vanished_schema_is_made_again),
      TEST(two_connections_make_it_together),
      TEST_DELETE(two_connections_make_it_together),
      TEST(read_only_says_so),
      TEST(authorizer_says_no),
      TEST(full_and_too_big),
      TEST(release_lets_the_host_close),
      TEST(attached_schema_is_its_own_store),
      TEST(an_attached_schema_may_become_another_file),
      TEST(an_attached_schema_may_come_back_by_another_name),
      TEST(own_connection_works_beside_the_host),
      TEST(own_connection_keeps_the_habits_of_its_host),
      TEST(own_claims_need_not_reach_the_disk),
      TEST_DELETE(own_claims_need_not_reach_the_disk),
      TEST_DELETE(own_claim_waits_for_a_writer),
      TEST(memory_has_neither_watch_nor_own),
      TEST(identity_is_the_file),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
