/* msg_await, msg_claim and msg_request in FROM: arguments, hand-out row by row, LIMIT, rows that
 * stay with a cursor. */
#include "support/cmocka_compat.h"

#include <pthread.h>
#include <string.h>

#include "support/host.h"

static sqlite3 *db, *peer;

static int open_db(void **state) {
  (void)state;
  const char *path = host_path();
  db = host_open_node(path, "me");
  peer = host_open_node(path, "peer");
  return 0;
}

static int close_db(void **state) {
  (void)state;
  host_close(peer);
  host_close(db);
  return 0;
}

/* n broadcasts of the peer, values 1.., that db listens to. */
static void broadcast(int n) {
  host_run(db, "SELECT msg_listen('news')");
  host_run(
      peer,
      "SELECT msg_send('news', value) FROM json_each((WITH RECURSIVE n(x) AS (VALUES (1) UNION ALL"
      " SELECT x + 1 FROM n WHERE x < %d) SELECT json_group_array(x) FROM n))",
      n);
}

static void enqueue(int n) {
  host_run(peer,
           "SELECT msg_enqueue('work', value) FROM json_each((WITH RECURSIVE n(x) AS (VALUES (1) "
           "UNION ALL"
           " SELECT x + 1 FROM n WHERE x < %d) SELECT json_group_array(x) FROM n))",
           n);
}

static int64_t unseen(void) {
  return host_int(db, "SELECT count(*) FROM msg_await('news', 0, 1000)");
}

static int64_t claimed(void) {
  return host_int(db, "SELECT count(*) FROM msg_locks");
}

/* ---- await ---- */

static void await_gives_what_is_there(void **state) {
  (void)state;
  broadcast(5);
  assert_string_equal(host_text(db, "SELECT group_concat(value) FROM msg_await('news', 0)"),
                      "1,2,3,4,5");
  assert_int_equal(unseen(), 0);
}

static void await_stops_at_max_and_at_the_window(void **state) {
  (void)state;
  broadcast(130);
  assert_int_equal(host_int(db, "SELECT count(*) FROM msg_await('news', 0, 7)"), 7);
  assert_int_equal(host_int(db, "SELECT count(*) FROM msg_await('news', 0)"), 100);
  assert_int_equal(unseen(), 23);
}

static void a_row_is_seen_when_it_is_stepped_to(void **state) {
  (void)state;
  sqlite3_stmt *stmt;
  broadcast(5);
  assert_int_equal(
      sqlite3_prepare_v2(db, "SELECT value FROM msg_await('news', 0)", -1, &stmt, NULL), SQLITE_OK);
  assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
  assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
  assert_int_equal(sqlite3_column_int(stmt, 0), 2);
  sqlite3_finalize(stmt);
  assert_int_equal(unseen(), 3);
}

static void limit_bounds_an_await(void **state) {
  (void)state;
  broadcast(10);
  assert_int_equal(
      host_int(db, "SELECT count(*) FROM (SELECT * FROM msg_await('news', 0) LIMIT 3)"), 3);
  assert_int_equal(
      host_int(db, "SELECT count(*) FROM (SELECT * FROM msg_await('news', 0, 2) LIMIT 3)"), 2);
  assert_int_equal(
      host_int(db, "SELECT count(*) FROM (SELECT * FROM msg_await('news', 0, 3) LIMIT -1)"), 3);
  host_run(db, "SELECT * FROM msg_await('news', 0) LIMIT 0");
  assert_int_equal(unseen(), 2);
}

/* What SQLite filters away was handed out all the same; what it did not come to was not. */
static void a_filter_keeps_limit_away_from_the_await(void **state) {
  (void)state;
  broadcast(10);
  assert_int_equal(host_int(db, "SELECT value FROM msg_await('news', 0) WHERE value > 2 LIMIT 1"),
                   3);
  assert_int_equal(unseen(), 7);
}

static void offset_and_order_keep_limit_away(void **state) {
  (void)state;
  broadcast(6);
  assert_int_equal(host_int(db, "SELECT value FROM msg_await('news', 0) LIMIT 1 OFFSET 2"), 3);
  assert_int_equal(
      host_int(db, "SELECT value FROM msg_await('news', 0) ORDER BY value DESC LIMIT 1"), 6);
  assert_int_equal(unseen(), 0);
}

static void await_without_a_topic_takes_everything_listened_to(void **state) {
  (void)state;
  broadcast(2);
  host_run(db, "SELECT msg_listen('more.*')");
  host_run(peer, "SELECT msg_send('more.a', 3); SELECT msg_send('less', 4)");
  assert_string_equal(host_text(db, "SELECT group_concat(topic || value) FROM msg_await(NULL, 0)"),
                      "news1,news2,more.a3");
  assert_int_equal(host_int(db, "SELECT count(*) FROM msg_await WHERE timeout_ms = 0"), 0);
}

static void await_shows_the_whole_message(void **state) {
  (void)state;
  host_run(db, "SELECT msg_listen('t')");
  host_run(
      peer,
      "SELECT msg_send('t', x'01', '{\"msg\": \"m\", \"map\": {\"a\": 1}, \"additional\": [1], "
      "\"recipients\":"
      " [\"me\", \"you\"], \"priority\": 3, \"in_answer_to\": \"00000000000000000000000a\"}')");
  assert_string_equal(
      host_text(db,
                "SELECT json_array(topic, hex(value), msg, json(map), json(additional), sender,"
                " json(recipients), in_answer_to, exclusive, priority, pattern, timeout_ms, max)"
                " FROM msg_await('t', 0)"),
      "[\"t\",\"01\",\"m\",{\"a\":1},[1],\"peer\",[\"me\",\"you\"],"
      "\"00000000000000000000000a\",0,3,\"t\",0,null]");
}

static void *send_later(void *path) {
  sqlite3 *own = host_open(path);
  host_sleep_ms(100);
  host_run(own, "SELECT msg_send('news', 'late')");
  host_close(own);
  return NULL;
}

static void await_waits_for_the_first_row_only(void **state) {
  (void)state;
  pthread_t thread;
  const char *path = sqlite3_db_filename(db, "main");
  host_run(db, "SELECT msg_listen('news')");
  assert_int_equal(pthread_create(&thread, NULL, send_later, (void *)(uintptr_t)path), 0);
  int64_t began = host_now_ms();
  assert_string_equal(host_text(db, "SELECT group_concat(value) FROM msg_await('news', 5000)"),
                      "late");
  assert_true(host_now_ms() - began < 3000);
  pthread_join(thread, NULL);
  began = host_now_ms();
  assert_string_equal(host_text(db, "SELECT value FROM msg_await('news', 60)"), "none");
  assert_true(host_now_ms() - began >= 55);
}

/* ---- rows that stay ---- */

static void an_inner_loop_shows_the_same_rows_again(void **state) {
  (void)state;
  broadcast(6);
  host_run(db, "CREATE TEMP TABLE three(k); INSERT INTO three VALUES (1), (2), (3)");
  assert_string_equal(
      host_text(db,
                "SELECT group_concat(k || value) FROM three CROSS JOIN msg_await('news', 0, 2)"),
      "11,12,21,22,31,32");
  assert_string_equal(
      host_text(db,
                "SELECT group_concat(k || value) FROM three CROSS JOIN msg_await('news', 0, k)"),
      "13,24,25,36");
  assert_int_equal(unseen(), 0);
  enqueue(4);
  assert_string_equal(
      host_text(db, "SELECT group_concat(k || value) FROM three CROSS JOIN msg_claim('work', 2)"),
      "11,12,21,22,31,32");
  assert_int_equal(claimed(), 2);
  host_run(db, "UPDATE three SET k = k %% 2");
  assert_string_equal(
      host_text(db,
                "SELECT group_concat(k || value) FROM three CROSS JOIN msg_claim('work', k + 1)"),
      "13,14,13,14");
  assert_int_equal(claimed(), 4);
}

static void a_statement_run_again_claims_again(void **state) {
  (void)state;
  sqlite3_stmt *stmt;
  enqueue(5);
  assert_int_equal(
      sqlite3_prepare_v2(db, "SELECT value FROM msg_claim('work', 2)", -1, &stmt, NULL), SQLITE_OK);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
    assert_int_equal(sqlite3_column_int(stmt, 0), 1 + 2 * i);
    sqlite3_reset(stmt);
  }
  sqlite3_finalize(stmt);
  assert_int_equal(claimed(), 4);
}

/* ---- claim ---- */

static void claim_leases(void **state) {
  (void)state;
  enqueue(5);
  assert_int_equal(host_int(db, "SELECT count(*) FROM msg_claim('work')"), 1);
  assert_int_equal(host_int(db, "SELECT count(*) FROM msg_claim('work', 10) WHERE token IS NOT "
                                "NULL AND attempts = 1 AND until > timestamp"),
                   4);
  assert_int_equal(host_int(db, "SELECT count(*) FROM msg_claim('work', 10)"), 0);
  assert_int_equal(host_int(db, "SELECT sum(msg_ack(id, token)) FROM msg_locks"), 5);
}

static void limit_bounds_a_claim(void **state) {
  (void)state;
  enqueue(20);
  assert_int_equal(
      host_int(db, "SELECT count(*) FROM (SELECT * FROM msg_claim('work', 10) LIMIT 3)"), 3);
  assert_int_equal(claimed(), 3);
  assert_int_equal(host_int(db, "SELECT count(*) FROM (SELECT * FROM msg_claim('work') LIMIT 3)"),
                   1);
  assert_int_equal(claimed(), 4);
  host_run(db, "SELECT * FROM msg_claim('work', 10) LIMIT 0");
  assert_int_equal(claimed(), 4);
  assert_int_equal(
      host_int(
          db,
          "SELECT count(*) FROM (SELECT * FROM msg_claim('work', 2) WHERE priority = 5 LIMIT 1)"),
      0);
  assert_int_equal(claimed(), 6);
}

static void a_lease_and_a_wait_are_arguments(void **state) {
  (void)state;
  enqueue(1);
  assert_int_equal(
      host_int(db, "SELECT until - (SELECT since FROM msg_locks) FROM msg_claim('work', 1, 500)"),
      500);
  int64_t began = host_now_ms();
  assert_int_equal(host_int(db, "SELECT attempts FROM msg_claim('work', 1, 500, 5000)"), 2);
  assert_true(host_now_ms() - began < 4000);
}

/* A statement that reads few columns has the store copy few. */
static void a_claim_shows_what_is_asked_for(void **state) {
  (void)state;
  static const struct {
    const char *columns, *want;
  } cases[] = {
      {"value", "1"},
      {"topic || value || sender || priority || attempts || exclusive", "work1peer711"},
      {"sender_host IS NOT NULL", "1"},
      {"msg", "text"},
      {"\"group\"", "g"},
      {"key || map", "k{\"a\":1}"},
      {"additional", "[2]"},
      {"in_answer_to IS NULL AND recipients IS NULL AND delete_at IS NULL", "1"},
      {"until - timestamp >= 30000 AND length(token) = 24 AND deliver_at = timestamp", "1"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    host_run(peer, "SELECT msg_enqueue('work', 1, '{\"group\": \"g\", \"key\": \"k\", "
                   "\"map\": {\"a\": 1}, \"additional\": [2], \"msg\": \"text\", "
                   "\"priority\": 7}')");
    assert_string_equal(host_text(db, "SELECT %s FROM msg_claim('work')", cases[i].columns),
                        cases[i].want);
    host_run(db, "SELECT msg_ack(id) FROM msg_messages");
    host_run(peer, "DELETE FROM msg_store_key");
  }
}

static void a_rolled_back_claim_comes_back(void **state) {
  (void)state;
  enqueue(2);
  host_run(db, "BEGIN; SELECT * FROM msg_claim('work', 2); ROLLBACK");
  assert_int_equal(claimed(), 0);
  assert_string_equal(host_text(db, "SELECT group_concat(attempts) FROM msg_claim('work', 2)"),
                      "2,2");
}

static void a_node_may_be_named(void **state) {
  (void)state;
  enqueue(1);
  host_run(db, "SELECT msg_open('local', '{\"sender_id\": \"second\"}')");
  host_run(db, "SELECT * FROM msg_claim('work') WHERE node = 'me'");
  assert_string_equal(host_text(db, "SELECT owner FROM msg_locks"), "me");
  host_run(peer, "SELECT msg_send('news', 1, '{\"recipient\": \"me\"}')");
  assert_int_equal(host_int(db, "SELECT count(*) FROM msg_await('news', 0)"), 0);
  assert_int_equal(host_int(db, "SELECT count(*) FROM msg_await('news', 0, 5, 'me')"), 1);
}

/* ---- request ---- */

static void *answer(void *path) {
  sqlite3 *own = host_open(path);
  host_run(own,
           "SELECT msg_open('local', '{\"sender_id\": \"server\"}'); SELECT msg_listen('ask')");
  host_run(own,
           "CREATE TEMP TABLE r AS SELECT id, value FROM msg_await('ask', 10000) LIMIT 1;"
           "SELECT msg_reply(id, value || '!') FROM r; SELECT msg_reply(id, value || '?') FROM r");
  host_close(own);
  return NULL;
}

static void request_gives_answers_as_rows(void **state) {
  (void)state;
  pthread_t thread;
  const char *path = sqlite3_db_filename(db, "main");
  assert_int_equal(pthread_create(&thread, NULL, answer, (void *)(uintptr_t)path), 0);
  while (host_int(db, "SELECT count(*) FROM msg_listeners WHERE node = 'server'") == 0)
    host_sleep_ms(5);
  assert_string_equal(host_text(db, "SELECT group_concat(value || sender) FROM msg_request('ask', "
                                    "'hi', 10000, '{\"answers\":2}')"),
                      "hi!server,hi?server");
  pthread_join(thread, NULL);
  assert_string_equal(host_text(db, "SELECT value FROM msg_request('nobody', 1, 20)"), "none");
}

/* ---- errors ---- */

static void arguments_are_checked(void **state) {
  (void)state;
  static const struct {
    const char *from, *text;
  } CASES[] = {
      {"msg_claim", "msg: INVALID: msg_claim: topic is missing: name a topic"},
      {"msg_claim(NULL)", "msg_claim: topic is missing"},
      {"msg_claim(5)", "msg: INVALID: msg_claim: topic is integer: give it text"},
      {"msg_claim('t', 0)", "msg: INVALID: msg_claim: count is 0: give it 1 to 1000000"},
      {"msg_claim('t', 'x')", "msg_claim: count is text: give it an integer"},
      {"msg_claim('t', 1, 0)", "msg_claim: lease_ms is 0"},
      {"msg_claim('t', 1, 1, -1)", "msg_claim: wait_ms is -1"},
      {"msg_claim('t', 1, 1, 1, 'nobody')", "node 'nobody' is not open"},
      {"msg_claim('/(/')", "msg: INVALID"},
      {"msg_await('t', -1)", "msg_await: timeout_ms is -1"},
      {"msg_await('t', 0, 0)", "msg_await: max is 0"},
      {"msg_await(x'00')", "msg_await: topic is blob: give it text"},
      {"msg_await('t', 0, 1, 5)", "msg_await: node is integer: give it text"},
      {"msg_request", "msg_request: topic is missing"},
      {"msg_request('t', 1)", "msg_request: timeout_ms is missing"},
      {"msg_request('t', 1, 10, '{\"answers\":0}')", "option 'answers' is 0"},
      {"msg_request('t', 1, 10, '{')", "msg: INVALID: options"},
      {"msg_request('t*', 1, 10)", "GLOB"},
  };
  for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++)
    host_fails(db, SQLITE_ERROR, CASES[i].text, "SELECT * FROM %s", CASES[i].from);
  host_fails(db, SQLITE_ERROR, "too many arguments", "SELECT * FROM msg_await('t', 0, 1, 'me', 5)");
  assert_int_equal(host_int(db, "SELECT count(*) FROM msg_messages"), 0);
  enqueue(1);
  host_fails(db, SQLITE_ERROR, "topic is missing", "SELECT * FROM msg_claim");
  assert_int_equal(claimed(), 0);
}

static void a_schema_may_not_receive(void **state) {
  static const char *const FORMS[] = {"msg_claim('work')", "msg_await('news')",
                                      "msg_request('a', 1, 10)"};
  (void)state;
  enqueue(1);
  for (int i = 0; i < 3; i++) {
    host_run(db, "CREATE VIEW v%d AS SELECT * FROM %s", i, FORMS[i]);
    host_fails(db, SQLITE_ERROR, "unsafe use of virtual table", "SELECT * FROM v%d", i);
  }
  host_run(db, "CREATE TABLE app(x); CREATE TRIGGER tr AFTER INSERT ON app BEGIN SELECT id FROM "
               "msg_claim('work'); END");
  host_fails(db, SQLITE_ERROR, "unsafe use of virtual table", "INSERT INTO app VALUES (1)");
  assert_int_equal(claimed(), 0);
}

static void the_first_statement_may_be_a_receiving_one(void **state) {
  (void)state;
  enqueue(3);
  sqlite3 *fresh = host_open(sqlite3_db_filename(db, "main"));
  assert_int_equal(host_int(fresh, "SELECT count(*) FROM msg_claim('work', 2)"), 2);
  assert_int_equal(
      host_int(fresh, "SELECT count(*) FROM temp.sqlite_schema WHERE name = 'msg_claim'"), 1);
  host_close(fresh);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, open_db, close_db)

/* data_version: another connection has written. */
static void a_claim_in_from_is_beside_and_settled_on_the_host(void **state) {
  (void)state;
  enqueue(8);
  host_run(db, "SELECT msg_open()");
  int64_t version = host_int(db, "PRAGMA data_version");
  const char *ids = host_text(db, "SELECT json_group_array(id) FROM msg_claim('work', 8)");
  assert_int_not_equal(host_int(db, "PRAGMA data_version"), version);
  version = host_int(db, "PRAGMA data_version");
  assert_int_equal(host_int(db, "SELECT msg_ack('%s' ->> 0)", ids), 1);
  assert_int_equal(host_int(peer, "SELECT count(*) FROM msg_locks"), 7);
  host_run(db, "BEGIN; SELECT msg_ack('%s'); ROLLBACK", ids);
  assert_int_equal(claimed(), 7);
  assert_int_equal(host_int(db, "PRAGMA data_version"), version);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(await_gives_what_is_there),
      TEST(await_stops_at_max_and_at_the_window),
      TEST(a_row_is_seen_when_it_is_stepped_to),
      TEST(limit_bounds_an_await),
      TEST(a_filter_keeps_limit_away_from_the_await),
      TEST(offset_and_order_keep_limit_away),
      TEST(await_without_a_topic_takes_everything_listened_to),
      TEST(await_shows_the_whole_message),
      TEST(await_waits_for_the_first_row_only),
      TEST(an_inner_loop_shows_the_same_rows_again),
      TEST(a_statement_run_again_claims_again),
      TEST(claim_leases),
      TEST(limit_bounds_a_claim),
      TEST(a_lease_and_a_wait_are_arguments),
      TEST(a_claim_shows_what_is_asked_for),
      TEST(a_rolled_back_claim_comes_back),
      TEST(a_claim_in_from_is_beside_and_settled_on_the_host),
      TEST(a_node_may_be_named),
      TEST(request_gives_answers_as_rows),
      TEST(arguments_are_checked),
      TEST(a_schema_may_not_receive),
      TEST(the_first_statement_may_be_a_receiving_one),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
