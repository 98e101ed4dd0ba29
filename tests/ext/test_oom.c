/* Every allocation of every function and table made to fail in turn: a clean out-of-memory error or
 * none, nothing leaked, no crash, and the same statement goes well afterwards. */
#include "support/cmocka_compat.h"

#include <stdlib.h>
#include <string.h>

#include "support/fail_alloc.h"
#include "support/host.h"

static int install(void **state) {
  (void)state;
  fail_alloc_install_sqlite();
  return 0;
}

/* --- one statement ------------------------------------------------------------------------- */

static const char FILLED[] =
    "SELECT msg_open('local', '{\"sender_id\": \"me\"}'); SELECT msg_listen('news');"
    "SELECT msg_enqueue('work', 1, '{\"id\": \"aaaaaaaaaaaaaaaaaaaaaaaa\"}');"
    "SELECT msg_enqueue('work', x'00ff', '{\"id\": \"aaaaaaaaaaaaaaaaaaaaaaab\", \"group\": \"g\","
    " \"key\": \"k\", \"map\": {\"a\": 1}, \"additional\": [1], \"msg\": \"m\"}');"
    "SELECT msg_send('news', json_array(1), '{\"recipients\": [\"me\", \"you\"]}');"
    "SELECT msg_claim('work')";

static const char *const STATEMENTS[] = {
    "SELECT msg_open('local', '{\"lease_ms\": 5, \"queue\": \"q\"}')",
    "SELECT msg_send('news', 'text', '{\"priority\": 3, \"msg\": \"m\", \"map\": {\"a\": null}}')",
    "SELECT msg_send('news', json_object('a', 1), '{\"recipients\": [\"me\", \"you\"]}')",
    "SELECT msg_enqueue('work', x'0102', '{\"group\": \"g\", \"key\": \"k2\"}')",
    "SELECT msg_enqueue('work', 1, '{}')",
    "INSERT INTO msg_messages(topic, value) VALUES ('news', 1), ('news', 2)",
    "SELECT msg_await('news', 0)",
    "SELECT msg_await(NULL, 0)",
    "SELECT msg_claim('work')",
    "SELECT msg_claim('wo*', 1, 1000, 0)",
    "SELECT * FROM msg_claim('work', 10)",
    "SELECT * FROM msg_await('news', 0, 10)",
    "SELECT msg_request('ask', 1, 1)",
    "SELECT msg_reply('aaaaaaaaaaaaaaaaaaaaaaaa', 'answer')",
    "SELECT msg_ack('aaaaaaaaaaaaaaaaaaaaaaaa')",
    "SELECT msg_ack('[\"aaaaaaaaaaaaaaaaaaaaaaaa\", {\"id\": \"aaaaaaaaaaaaaaaaaaaaaaab\"}]')",
    "SELECT msg_release('aaaaaaaaaaaaaaaaaaaaaaaa', NULL, 10)",
    "SELECT msg_extend('aaaaaaaaaaaaaaaaaaaaaaaa', 10)",
    "SELECT msg_reject('aaaaaaaaaaaaaaaaaaaaaaaa', 'bad')",
    "SELECT msg_listen('/^n/', '{\"catch_up\": true}')",
    "SELECT msg_unlisten('news')",
    "SELECT msg_pause('news')",
    "SELECT msg_resume('news')",
    "SELECT msg_purge('news')",
    "SELECT msg_redrive('*')",
    "SELECT msg_config('lease_ms', 7)",
    "SELECT msg_doctor()",
    "SELECT msg_close()",
    "BEGIN; SELECT msg_claim('work'); SAVEPOINT a; SELECT msg_enqueue('work', 2); ROLLBACK",
    "BEGIN; SELECT msg_claim('work'); SELECT msg_listen('a'); SELECT msg_claim('work'); ROLLBACK",
    "SELECT * FROM msg_messages WHERE topic = 'work' AND state IN ('ready', 'claimed')",
    "DELETE FROM msg_messages WHERE id = 'aaaaaaaaaaaaaaaaaaaaaaab'",
    "UPDATE msg_messages SET priority = 5 WHERE id = 'aaaaaaaaaaaaaaaaaaaaaaab'",
    "UPDATE msg_messages SET priority = n.p FROM (SELECT 5 AS p) AS n WHERE topic = 'work'",
    "SELECT count(*) FROM msg_topics, msg_queues, msg_locks, msg_participants, msg_lanes",
    "SELECT count(*) FROM msg_listeners, msg_cursors, msg_stats, msg_settings, msg_doctor",
    "DROP TABLE IF EXISTS w; CREATE VIRTUAL TABLE temp.w USING msg_queue(topic='work', total "
    "REAL); SELECT * FROM w",
    "DROP TABLE IF EXISTS w; SELECT msg_purge('work'); "
    "CREATE VIRTUAL TABLE temp.w USING msg_queue(topic='work', node='me', "
    "\"a b\" REAL, c);"
    "INSERT INTO w(\"a b\", c) VALUES (1, json('{}')); DELETE FROM w WHERE c IS NOT NULL",
    "INSERT INTO msg_messages(topic, value, msg, map, additional, recipients, exclusive, options)"
    " VALUES ('work', json_array(1), 'm', '{\"a\": 1}', '[1]', '[\"me\"]', 1, '{\"group\": "
    "\"g2\"}')",
    "SELECT * FROM msg_messages WHERE node = 'me' AND id > '5' AND sender IN ('me', 'you')"
    " AND topic IN ('work', 'news') AND topic = 'work' ORDER BY priority LIMIT 3",
    "SELECT * FROM (VALUES (1), (2)) CROSS JOIN msg_await('news', 0, 10, 'me')",
    "SELECT * FROM msg_request('ask', 1, 1, '{\"msg\": \"m\", \"answers\": 2}')",
    "DELETE FROM msg_locks",
    "UPDATE msg_settings SET value = 7 WHERE name = 'lease_ms'",
};

static bool is_out_of_memory(const char *result) {
  return strncmp(result, "error 7:", 8) == 0 || strncmp(result, "error 3082:", 11) == 0;
}

/* Run sql with the nth allocation from now failing; false once there is no nth. */
static bool fail_once(sqlite3 *db, const char *sql, long nth, bool for_good) {
  fail_alloc_arm(nth, for_good);
  const char *result = host_text(db, "%s", sql);
  bool fired = fail_alloc_disarm();
  if (strncmp(result, "error ", 6) == 0 && !is_out_of_memory(result))
    fail_msg("%s, allocation %ld: %s", sql, nth, result);
  if (!sqlite3_get_autocommit(db)) {
    if (!strstr(sql, "BEGIN;"))
      fail_msg("%s, allocation %ld%s: a transaction is left open", sql, nth, for_good ? " on" : "");
    host_run(db, "ROLLBACK");
  }
  return fired;
}

/* In memory, or each in a file of its own with a rollback journal. */
static bool in_files;

static sqlite3 *start(const char *setup) {
  sqlite3 *db = host_open_static(in_files ? host_path() : ":memory:");
  if (setup)
    host_run(db, setup);
  return db;
}

/* The connection still works, and leaves nothing behind. */
static void finish(sqlite3 *db, const char *sql, long nth, long before) {
  const char *again = host_text(db, "SELECT msg_config('queue')");
  if (strncmp(again, "error ", 6) == 0 && !strstr(again, "node was closed"))
    fail_msg("%s, after allocation %ld: %s", sql, nth, again);
  host_close(db);
  if (fail_alloc_live() != before)
    fail_msg("%s, allocation %ld: %ld blocks leaked", sql, nth, fail_alloc_live() - before);
}

static bool on_fresh_connection(const char *setup, const char *sql, long nth, bool for_good) {
  long before = fail_alloc_live();
  sqlite3 *db = start(setup);
  bool failed = fail_once(db, sql, nth, for_good);
  finish(db, sql, nth, before);
  return failed;
}

/* Each allocation in turn on one connection, where what was kept by earlier runs is found; and, in
 * growing steps, on fresh ones, where nothing is. */
static void each_allocation(const char *setup, const char *sql) {
  long before = fail_alloc_live(), nth = 1;
  sqlite3 *db = start(setup);
  while (fail_once(db, sql, nth, false))
    nth++;
  finish(db, sql, nth, before);
  if (getenv("MSG_VERBOSE"))
    print_message("%5ld allocations: %s\n", nth, sql);
  for (long n = 1; on_fresh_connection(setup, sql, n, false); n += 1 + n / 12)
    on_fresh_connection(setup, sql, n, true);
}

/* As the first verb of a connection: the schema, the tables in temp and the node are made too. */
static void first_verbs(void **state) {
  static const char *const FIRST[] = {"SELECT msg_open()", "SELECT msg_enqueue('work', 1)",
                                      "SELECT * FROM msg_claim('work')",
                                      "SELECT count(*) FROM msg_messages"};
  (void)state;
  on_fresh_connection(NULL, "SELECT msg_open()", 0, false);
  for (size_t i = 0; i < sizeof FIRST / sizeof FIRST[0]; i++)
    each_allocation(NULL, FIRST[i]);
}

static void first_verbs_in_a_file(void **state) {
  in_files = true;
  first_verbs(state);
  in_files = false;
}

static void later_verbs(void **state) {
  (void)state;
  on_fresh_connection(FILLED, "SELECT 1", 0, false); /* what is made once a process */
  for (size_t i = 0; i < sizeof STATEMENTS / sizeof STATEMENTS[0]; i++)
    each_allocation(FILLED, STATEMENTS[i]);
}

static void loading(void **state) {
  (void)state;
  bool fired = true;
  for (long nth = 1; fired; nth++) {
    long before = fail_alloc_live();
    sqlite3 *db = host_plain(":memory:", 0);
    int sqlite3_msg_init(sqlite3 *, char **, const void *);
    char *error = NULL;
    fail_alloc_arm(nth, false);
    int rc = sqlite3_msg_init(db, &error, NULL);
    fired = fail_alloc_disarm();
    sqlite3_free(error);
    if (rc == SQLITE_OK_LOAD_PERMANENTLY) /* SQLite itself does without some */
      host_run(db, "SELECT msg_version()");
    else
      assert_true(fired && rc == SQLITE_NOMEM);
    host_close(db);
    assert_int_equal(fail_alloc_live(), before);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(later_verbs),
      cmocka_unit_test(first_verbs),
      cmocka_unit_test(first_verbs_in_a_file),
      cmocka_unit_test(loading),
  };
  return cmocka_run_group_tests(tests, install, NULL);
}
