/* What a ROLLBACK takes back beside rows: deliveries still count, an announcement and a listen are
 * made again. */
#include "support/cmocka_compat.h"

#include <stdio.h>
#include <string.h>

#include "support/host.h"

static const char ID[] = "aaaaaaaaaaaaaaaaaaaaaaaa";

static sqlite3 *with_message(void) {
  sqlite3 *db = host_open(host_path());
  host_run(db, "SELECT msg_open(); SELECT msg_enqueue('work', 1, '{\"id\": \"%s\"}')", ID);
  return db;
}

static int64_t claim_attempts(sqlite3 *db) {
  return host_int(db, "SELECT json_extract(msg_claim('work'), '$.attempts')");
}

static int64_t undone(sqlite3 *db) {
  return host_int(db, "SELECT sum(value) FROM msg_stats WHERE name = 'undone'");
}

static void a_rolled_back_delivery_counts(void **state) {
  (void)state;
  sqlite3 *db = with_message();
  for (int i = 1; i <= 3; i++) {
    host_run(db, "BEGIN");
    assert_int_equal(claim_attempts(db), i);
    host_run(db, "ROLLBACK");
    assert_string_equal(host_text(db, "SELECT state FROM msg_messages"), "ready");
  }
  assert_int_equal(undone(db), 3);
  assert_int_equal(claim_attempts(db), 4);
  host_close(db);
}

static void committed_claims_are_not_undone(void **state) {
  (void)state;
  sqlite3 *db = with_message();
  host_run(db, "BEGIN");
  assert_int_equal(claim_attempts(db), 1);
  host_run(db, "COMMIT; SELECT msg_release('%s'); BEGIN; ROLLBACK", ID);
  assert_int_equal(undone(db), 0);
  assert_int_equal(claim_attempts(db), 2);
  host_close(db);
}

static void poison_dies_by_rollbacks(void **state) {
  (void)state;
  sqlite3 *db = with_message();
  host_run(db, "SELECT msg_config('max_attempts', 3)");
  for (int i = 0; i < 3; i++) {
    host_run(db, "BEGIN");
    assert_int_equal(claim_attempts(db), i + 1);
    host_run(db, "ROLLBACK");
  }
  assert_string_equal(host_text(db, "SELECT msg_claim('work')"), "null");
  assert_string_equal(host_text(db, "SELECT state || ' ' || reason FROM msg_messages"),
                      "dead max_attempts");
  host_close(db);
}

/* `script` may hold C for a claim; afterwards `want` deliveries were undone. */
static void expect_undone(const char *script, int want) {
  sqlite3 *db = host_open(host_path());
  host_run(db, "SELECT msg_open(); SELECT msg_enqueue('work', 1), msg_enqueue('work', 2),"
               " msg_enqueue('work', 3), msg_enqueue('work', 4), msg_enqueue('work', 5)");
  char step[64];
  for (const char *p = script; *p; p += strcspn(p, ";") + (p[strcspn(p, ";")] == ';')) {
    snprintf(step, sizeof step, "%.*s", (int)strcspn(p, ";"), p);
    host_run(db, "%s", strcmp(step, "C") == 0 ? "SELECT msg_claim('work')" : step);
  }
  if (undone(db) != want)
    fail_msg("%s: %lld undone, not %d", script, (long long)undone(db), want);
  host_close(db);
}

static void savepoints(void **state) {
  (void)state;
  expect_undone("BEGIN;C;SAVEPOINT a;C;ROLLBACK TO a;COMMIT", 1);
  expect_undone("BEGIN;C;SAVEPOINT a;C;C;ROLLBACK TO a;C;ROLLBACK TO a;COMMIT", 3);
  expect_undone("BEGIN;SAVEPOINT a;SAVEPOINT b;C;ROLLBACK TO a;C;ROLLBACK TO a;COMMIT", 2);
  expect_undone("BEGIN;SAVEPOINT a;SAVEPOINT b;C;RELEASE b;C;ROLLBACK TO a;COMMIT", 2);
  expect_undone("BEGIN;SAVEPOINT a;C;RELEASE a;SAVEPOINT b;C;ROLLBACK TO b;COMMIT", 1);
  expect_undone("BEGIN;SAVEPOINT a;C;RELEASE a;COMMIT", 0);
  expect_undone("BEGIN;SAVEPOINT a;C;RELEASE a;ROLLBACK", 1);
  expect_undone("SAVEPOINT a;C;ROLLBACK TO a;C;RELEASE a", 1);
  expect_undone("SAVEPOINT a;C;SAVEPOINT b;C;ROLLBACK TO a;RELEASE a", 2);
  expect_undone("BEGIN;SAVEPOINT a;C;SAVEPOINT b;SAVEPOINT c;C;SAVEPOINT d;ROLLBACK TO b;COMMIT",
                1);
  expect_undone(
      "BEGIN;SAVEPOINT a;SAVEPOINT b;C;ROLLBACK TO a;C;SAVEPOINT c;C;ROLLBACK TO a;COMMIT", 3);
  expect_undone("C;BEGIN;C;COMMIT;BEGIN;C;ROLLBACK", 1);
}

static void many_claims_at_once(void **state) {
  (void)state;
  sqlite3 *db = host_open(host_path());
  host_run(db, "SELECT msg_open(); INSERT INTO msg_messages(topic, value, exclusive)"
               " WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100)"
               " SELECT 'work', i, 1 FROM n");
  host_run(db, "BEGIN; SELECT * FROM msg_claim('work', 100); ROLLBACK");
  assert_int_equal(undone(db), 100);
  assert_int_equal(host_int(db, "SELECT min(attempts) FROM msg_claim('work', 100)"), 2);
  host_close(db);
}

static void a_failed_statement_takes_its_claims_back(void **state) {
  (void)state;
  sqlite3 *db = with_message();
  host_run(db, "CREATE TABLE app(x UNIQUE); INSERT INTO app VALUES (1); BEGIN");
  host_fails(db, SQLITE_CONSTRAINT_UNIQUE, "UNIQUE",
             "INSERT INTO app SELECT msg_claim('work') IS NOT NULL UNION ALL SELECT 1");
  host_run(db, "COMMIT");
  assert_int_equal(undone(db), 1);
  host_fails(db, SQLITE_CONSTRAINT_UNIQUE, "UNIQUE",
             "INSERT INTO app SELECT msg_claim('work') IS NOT NULL UNION ALL SELECT 1");
  assert_int_equal(undone(db), 2);
  host_close(db);
}

static void a_node_closed_in_the_transaction(void **state) {
  (void)state;
  sqlite3 *db = with_message();
  sqlite3 *other = host_open(sqlite3_db_filename(db, "main")); /* keeps the store open */
  host_run(other, "SELECT msg_open()");
  host_run(db, "BEGIN");
  assert_int_equal(claim_attempts(db), 1);
  host_run(db, "SELECT msg_close(); ROLLBACK; SELECT msg_open()");
  assert_int_equal(claim_attempts(db), 2);
  host_close(db);
  host_close(other);
}

static void an_announcement_is_made_again(void **state) {
  (void)state;
  sqlite3 *db = host_open(host_path());
  host_run(db, "CREATE TABLE app(x); BEGIN; INSERT INTO app VALUES (1); SELECT msg_send('n', 1)");
  assert_int_equal(host_int(db, "SELECT count(*) FROM msg_participants"), 1);
  host_run(db, "ROLLBACK");
  assert_int_equal(host_int(db, "SELECT count(*) FROM msg_participants"), 0);
  host_run(db, "SELECT msg_send('n', 1)");
  assert_int_equal(host_int(db, "SELECT count(*) FROM msg_participants"), 1);
  host_close(db);
}

static void a_listen_is_made_again(void **state) {
  (void)state;
  const char *path = host_path();
  sqlite3 *a = host_open(path), *b = host_open(path);
  host_run(
      a, "SELECT msg_open(); BEGIN; SELECT msg_send('x', 1); SELECT msg_listen('news'); ROLLBACK");
  host_run(a, "SELECT msg_await('news', 0)");
  host_run(b, "SELECT msg_send('news', 7)");
  assert_int_equal(host_int(a, "SELECT json_extract(msg_await('news', 0), '$.value')"), 7);
  host_run(a, "BEGIN; SELECT msg_send('x', 1); SELECT msg_unlisten('news'); ROLLBACK");
  host_run(b, "SELECT msg_send('news', 8)");
  assert_int_equal(host_int(a, "SELECT json_extract(msg_await('news', 0), '$.value')"), 8);
  host_close(a);
  host_close(b);
}

/* --- a pending interrupt ------------------------------------------------------------------- */

/* Interrupts once, when what leases a message has been released: the marker is next. */
struct watch {
  sqlite3 *db;
  bool leased, done;
};

static int statement_ended(unsigned type, void *arg, void *stmt, void *ns) {
  struct watch *w = arg;
  const char *sql = sqlite3_sql(stmt);
  (void)type, (void)ns;
  w->leased = w->leased || strstr(sql, "msg_store_claim(");
  if (w->leased && !w->done && strncmp(sql, "RELEASE", 7) == 0) {
    w->done = true;
    sqlite3_interrupt(w->db);
  }
  return 0;
}

static void an_interrupt_before_the_marker_keeps_the_transaction(void **state) {
  (void)state;
  sqlite3 *db = with_message();
  struct watch w = {.db = db};
  host_run(db, "CREATE TABLE app(x); SELECT msg_enqueue('work', 2)");
  host_run(db, "BEGIN; INSERT INTO app VALUES (1); SELECT msg_claim('work')");
  sqlite3_trace_v2(db, SQLITE_TRACE_PROFILE, statement_ended, &w);
  host_fails(db, SQLITE_INTERRUPT, "msg: INTERRUPTED: transaction marker",
             "SELECT msg_claim('work')");
  sqlite3_trace_v2(db, 0, NULL, NULL);
  assert_true(w.done);
  assert_false(sqlite3_get_autocommit(db));
  host_run(db, "COMMIT");
  assert_int_equal(host_int(db, "SELECT count(*) FROM app"), 1);
  assert_int_equal(undone(db), 0);
  host_close(db);
}

static void the_outbox_is_private(void **state) {
  (void)state;
  sqlite3 *db = host_open(host_path());
  host_run(db, "SELECT msg_open()");
  host_fails(db, SQLITE_ERROR, "msg: INVALID: table msg_outbox is private",
             "INSERT INTO msg_outbox VALUES (1)");
  host_fails(db, SQLITE_ERROR, "msg: INVALID: module msg_outbox is private",
             "CREATE VIRTUAL TABLE mine USING msg_outbox");
  assert_string_equal(host_text(db, "SELECT count(*) FROM msg_outbox"), "0");
  assert_string_equal(host_text(db, "SELECT count(*) FROM msg_owner"), "0");
  host_close(db);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_rolled_back_delivery_counts),
      cmocka_unit_test(committed_claims_are_not_undone),
      cmocka_unit_test(poison_dies_by_rollbacks),
      cmocka_unit_test(savepoints),
      cmocka_unit_test(many_claims_at_once),
      cmocka_unit_test(a_failed_statement_takes_its_claims_back),
      cmocka_unit_test(a_node_closed_in_the_transaction),
      cmocka_unit_test(an_announcement_is_made_again),
      cmocka_unit_test(a_listen_is_made_again),
      cmocka_unit_test(an_interrupt_before_the_marker_keeps_the_transaction),
      cmocka_unit_test(the_outbox_is_private),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
