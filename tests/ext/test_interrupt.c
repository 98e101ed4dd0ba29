/* sqlite3_interrupt ends any wait within 100 ms; what was there stays. */
#include "support/cmocka_compat.h"

#include <pthread.h>
#include <string.h>

#include "support/host.h"

/* A thread that interrupts after a while, once. */
struct interrupter {
  sqlite3 *db;
  int after_ms;
  int64_t at_ms; /* when it did */
};

static void *interrupt_later(void *arg) {
  struct interrupter *i = arg;
  host_sleep_ms(i->after_ms);
  i->at_ms = host_now_ms();
  sqlite3_interrupt(i->db);
  return NULL;
}

static void expect_interrupted(sqlite3 *db, const char *sql) {
  int autocommit = sqlite3_get_autocommit(db);
  struct interrupter i = {.db = db, .after_ms = 60};
  pthread_t thread;
  pthread_create(&thread, NULL, interrupt_later, &i);
  const char *result = host_text(db, "%s", sql);
  int64_t end_ms = host_now_ms();
  pthread_join(thread, NULL);
  int64_t late_ms = end_ms - i.at_ms;
  if (strncmp(result, "error 9: ", 9) != 0)
    fail_msg("%s: %s", sql, result);
  if (sqlite3_get_autocommit(db) != autocommit)
    fail_msg("%s: a transaction is left open, or closed", sql);
  if (late_ms > 100)
    fail_msg("%s: ended %lld ms late", sql, (long long)late_ms);
}

static const char *const WAITS[] = {
    "SELECT msg_await('news', 60000)",
    "SELECT * FROM msg_await('news', 60000, 10)",
    "SELECT msg_await(NULL, 60000)",
    "SELECT msg_claim('work', 1, 1000, 60000)",
    "SELECT * FROM msg_claim('work', 5, 1000, 60000)",
    "SELECT msg_request('ask', 1, 60000)",
    "SELECT * FROM msg_request('ask', 1, 60000)",
};
enum { WAIT_COUNT = sizeof WAITS / sizeof WAITS[0] };

static void any_wait(void **state) {
  static const char *const MODES[] = {"wal", "delete"};
  (void)state;
  for (int m = 0; m < 2; m++) {
    sqlite3 *db = host_open(host_path());
    host_run(db, "PRAGMA journal_mode = %s; SELECT msg_listen('news')", MODES[m]);
    for (int i = 0; i < WAIT_COUNT; i++)
      expect_interrupted(db, WAITS[i]);
    host_run(db, "SELECT msg_enqueue('work', 1)");
    assert_string_equal(host_text(db, "SELECT value FROM msg_claim('work')"), "1");
    host_close(db);
  }
}

static void a_wait_in_memory(void **state) {
  (void)state;
  sqlite3 *db = host_open(":memory:");
  for (int i = 0; i < 5; i++)
    expect_interrupted(db, WAITS[i]);
  host_close(db);
}

static void a_wait_inside_begin_keeps_the_transaction(void **state) {
  (void)state;
  sqlite3 *db = host_open(host_path());
  host_run(db, "PRAGMA journal_mode = wal; CREATE TEMP TABLE mine(x); SELECT msg_listen('news')");
  host_run(db, "BEGIN; INSERT INTO mine VALUES (1)");
  for (int i = 0; i < WAIT_COUNT; i++)
    expect_interrupted(db, WAITS[i]);
  assert_false(sqlite3_get_autocommit(db));
  host_run(db, "COMMIT");
  assert_int_equal(host_int(db, "SELECT count(*) FROM mine"), 1);
  host_close(db);
}

static void a_wait_for_a_lock(void **state) {
  (void)state;
  const char *path = host_path();
  sqlite3 *a = host_open(path), *b = host_plain(path, 0);
  host_run(a,
           "PRAGMA journal_mode = wal; SELECT msg_open('local', '{\"busy_timeout_ms\": 60000}')");
  host_run(b, "BEGIN IMMEDIATE");
  expect_interrupted(a, "SELECT msg_send('news', 1)");
  expect_interrupted(a, "SELECT msg_claim('work', 1, 1000, 60000)");
  host_run(b, "COMMIT");
  host_run(a, "SELECT msg_send('news', 1)");
  host_close(a);
  host_close(b);
}

/* --- closing while another thread waits ---------------------------------------------------- */

static void *wait_long(void *arg) {
  return (void *)(intptr_t)strncmp(host_text(arg, "SELECT msg_await('news', 60000)"),
                                   "error 1: msg: ", 14);
}

/* SQLite refuses to close a connection in use; another connection's msg_close ends the shared node. */
static void closing_a_shared_node_ends_its_waits(void **state) {
  (void)state;
  const char *path = host_path();
  sqlite3 *a = host_open(path), *b = host_open(path);
  pthread_t thread;
  void *differs;
  host_run(a, "PRAGMA journal_mode = wal; SELECT msg_open('local', '{\"sender_id\": \"me\"}')");
  host_run(b, "SELECT msg_open('local', '{\"sender_id\": \"me\"}')");
  pthread_create(&thread, NULL, wait_long, a);
  host_sleep_ms(80);
  int64_t begin_ms = host_now_ms();
  host_run(b, "SELECT msg_close()");
  pthread_join(thread, &differs);
  assert_null(differs);
  assert_true(host_now_ms() - begin_ms < 1000);
  host_close(a);
  host_close(b);
}

/* One thread waits on each of many connections; all are woken by one send. */
static void *wait_for_one(void *arg) {
  return (void *)(intptr_t)host_int(arg,
                                    "SELECT json_extract(msg_await('news', 20000), '$.value')");
}

static void many_threads(void **state) {
  enum { N = 8 };
  (void)state;
  const char *path = host_path();
  sqlite3 *db[N], *sender = host_open(path);
  pthread_t thread[N];
  host_run(sender, "PRAGMA journal_mode = wal; SELECT msg_open()");
  for (int i = 0; i < N; i++) {
    db[i] = host_open(path);
    host_run(db[i], "SELECT msg_listen('news')");
    pthread_create(&thread[i], NULL, wait_for_one, db[i]);
  }
  host_sleep_ms(100);
  host_run(sender, "SELECT msg_send('news', 42)");
  for (int i = 0; i < N; i++) {
    void *value;
    pthread_join(thread[i], &value);
    assert_int_equal((intptr_t)value, 42);
    host_close(db[i]);
  }
  host_close(sender);
  assert_false(host_exists(path, "-wal"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(any_wait),
      cmocka_unit_test(a_wait_in_memory),
      cmocka_unit_test(a_wait_inside_begin_keeps_the_transaction),
      cmocka_unit_test(a_wait_for_a_lock),
      cmocka_unit_test(closing_a_shared_node_ends_its_waits),
      cmocka_unit_test(many_threads),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
