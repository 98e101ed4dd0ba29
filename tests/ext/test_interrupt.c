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

/* How long after the interrupt the statement ended. */
static int64_t interrupt_once(sqlite3 *db, const char *sql) {
  int autocommit = sqlite3_get_autocommit(db);
  struct interrupter i = {.db = db, .after_ms = 60};
  pthread_t thread;
  pthread_create(&thread, NULL, interrupt_later, &i);
  const char *result = host_text(db, "%s", sql);
  int64_t end_ms = host_now_ms();
  pthread_join(thread, NULL);
  if (strncmp(result, "error 9: ", 9) != 0)
    fail_msg("%s: %s", sql, result);
  if (sqlite3_get_autocommit(db) != autocommit)
    fail_msg("%s: a transaction is left open, or closed", sql);
  return end_ms - i.at_ms;
}

/* The best of some: a busy machine lets threads wait for the processor besides. */
static void expect_interrupted(sqlite3 *db, const char *sql) {
  int64_t best_ms = interrupt_once(db, sql);
  for (int i = 0; i < 20 && best_ms > 100; i++) {
    int64_t late_ms = interrupt_once(db, sql);
    best_ms = late_ms < best_ms ? late_ms : best_ms;
  }
  if (best_ms > 100)
    fail_msg("%s: ended %lld ms late", sql, (long long)best_ms);
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

/* --- at every step ------------------------------------------------------------------------- */

static struct {
  sqlite3 *db;
  int countdown; /* progress calls until the interrupt; 0: never */
} steps;

static int count_step(void *arg) {
  (void)arg;
  if (steps.countdown > 0 && --steps.countdown == 0)
    sqlite3_interrupt(steps.db);
  return 0;
}

/* The statement, interrupted at the nth step; false once there is no nth. */
static bool interrupt_at(sqlite3 *db, int n, const char *sql) {
  steps.db = db;
  steps.countdown = n;
  const char *result = host_text(db, "%s", sql);
  bool reached = steps.countdown == 0;
  steps.countdown = 0;
  if (strncmp(result, "error ", 6) == 0 && strncmp(result, "error 9: ", 9) != 0)
    fail_msg("%s, step %d: %s", sql, n, result);
  return reached;
}

/* Nothing stays open, nothing half done, and the connection goes on. */
static void every_step(void **state) {
  static const char *const SQL[] = {
      "SELECT msg_send('news', 1)",
      "SELECT msg_await('news', 0)",
      "SELECT * FROM msg_await('news', 0, 10)",
      "SELECT msg_claim('work')",
      "SELECT * FROM msg_claim('work', 10)",
      "SELECT msg_ack('aaaaaaaaaaaaaaaaaaaaaaaa')",
      "SELECT msg_listen('more')",
      "SELECT msg_purge('work')",
      "INSERT INTO msg_messages(topic, value) VALUES ('news', 1), ('news', 2)",
      "SELECT count(*) FROM msg_messages",
  };
  (void)state;
  for (size_t i = 0; i < sizeof SQL / sizeof SQL[0]; i++) {
    bool more = true;
    for (int n = 1; more; n += 1 + n / 20) {
      sqlite3 *db = host_open(":memory:");
      host_run(db, "CREATE TEMP TABLE mine(x)");
      if (n % 2)
        host_run(db, "SELECT msg_listen('news'); SELECT msg_enqueue('work', 1,"
                     " '{\"id\": \"aaaaaaaaaaaaaaaaaaaaaaaa\"}')");
      sqlite3_progress_handler(db, 3, count_step, NULL);
      more = interrupt_at(db, n, SQL[i]);
      if (!sqlite3_get_autocommit(db))
        fail_msg("%s, step %d: a transaction is left open", SQL[i], n);
      host_run(db, "BEGIN; INSERT INTO mine VALUES (1)");
      interrupt_at(db, n, SQL[i]);
      host_run(db, sqlite3_get_autocommit(db) ? "SELECT 1" : "COMMIT");
      host_run(db, "SELECT msg_send('news', 1)");
      assert_true(sqlite3_get_autocommit(db));
      host_close(db);
    }
  }
}

/* --- closing while another thread waits ---------------------------------------------------- */

static void *wait_long(void *arg) {
  return (void *)(intptr_t)strncmp(host_text(arg, "SELECT msg_await('news', 60000)"),
                                   "error 1: msg: ", 14);
}

/* SQLite refuses to close a connection in use; another connection's msg_close ends the shared
 * node. */
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
      cmocka_unit_test(every_step),
      cmocka_unit_test(closing_a_shared_node_ends_its_waits),
      cmocka_unit_test(many_threads),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
