/* msg_queue: a topic as a typed table. */
#include "support/cmocka_compat.h"

#include <string.h>

#include "support/host.h"

static sqlite3 *db;

static void orders(void) {
  host_run(
      db, "CREATE VIRTUAL TABLE orders USING msg_queue(topic='orders', total REAL, customer TEXT)");
}

static void a_row_is_a_message(void **state) {
  (void)state;
  orders();
  host_run(db, "INSERT INTO orders(total, customer) VALUES (9.5, 'Ada'), (3, NULL)");
  assert_string_equal(host_text(db, "SELECT json_group_array(json_array(topic, json(value), "
                                    "exclusive, sender)) FROM msg_messages"),
                      "[[\"orders\",{\"total\":9.5,\"customer\":\"Ada\"},1,\"me\"],"
                      "[\"orders\",{\"total\":3.0,\"customer\":null},1,\"me\"]]");
  assert_string_equal(
      host_text(
          db, "SELECT group_concat(total || typeof(total) || coalesce(customer, '-')) FROM orders"),
      "9.5realAda,3.0real-");
  assert_int_equal(
      host_int(db, "SELECT count(*) FROM orders WHERE msg_id IN (SELECT id FROM msg_messages)"), 2);
  assert_string_equal(host_text(db, "SELECT json_extract(msg_claim('orders'), '$.value.customer')"),
                      "Ada");
  assert_string_equal(host_text(db, "SELECT group_concat(s) FROM (SELECT msg_state || msg_attempts "
                                    "|| coalesce(msg_owner, '') AS s"
                                    " FROM orders ORDER BY msg_seq)"),
                      "claimed1me,ready0");
}

static void star_shows_the_id_and_the_payload(void **state) {
  sqlite3_stmt *stmt;
  (void)state;
  orders();
  assert_int_equal(sqlite3_prepare_v2(db, "SELECT * FROM orders", -1, &stmt, NULL), SQLITE_OK);
  assert_int_equal(sqlite3_column_count(stmt), 3);
  assert_string_equal(sqlite3_column_name(stmt, 0), "msg_id");
  assert_string_equal(sqlite3_column_name(stmt, 1), "total");
  assert_string_equal(sqlite3_column_decltype(stmt, 1), "REAL");
  sqlite3_finalize(stmt);
}

static void other_messages_of_the_topic_are_rows_too(void **state) {
  (void)state;
  orders();
  host_run(db, "SELECT msg_send('orders', 'no json'); SELECT msg_send('orders', json_array(1)); "
               "SELECT msg_send('orders', 5);"
               "SELECT msg_send('orders', NULL); SELECT msg_send('orders', x'00'); SELECT "
               "msg_send('orders', '{\"total\": \"12\"}');"
               "SELECT msg_send('orders', '{\"total\": \"abc\", \"customer\": 7}'); SELECT "
               "msg_send('other', '{\"total\": 1}');"
               "SELECT msg_send('orders', '{\"total\": true, \"customer\": {\"a\": [1]}}')");
  assert_string_equal(
      host_text(
          db,
          "SELECT json_group_array(json_array(total, typeof(total), customer, typeof(customer)))"
          " FROM orders ORDER BY msg_seq"),
      "[[null,\"null\",null,\"null\"],[null,\"null\",null,\"null\"],[null,\"null\",null,\"null\"],"
      "[null,\"null\",null,\"null\"],[null,\"null\",null,\"null\"],[12.0,\"real\",null,\"null\"],"
      "[\"abc\",\"text\",\"7\",\"text\"],[1.0,\"real\",{\"a\":[1]},\"text\"]]");
}

static void affinities_are_those_of_a_stored_column(void **state) {
  (void)state;
  host_run(db, "CREATE VIRTUAL TABLE q USING msg_queue(topic='q', i INTEGER, n numeric, r REAL, t "
               "TEXT, a ANY, x);"
               "CREATE TABLE plain(i INTEGER, n NUMERIC, r REAL, t TEXT, a, x);"
               "CREATE TEMP TABLE v(v); INSERT INTO v VALUES (1), (1.0), (1.5), ('1'), (' 2 '), "
               "('1.50'), ('1e3'), ('abc'), (NULL), (''),"
               " (12345678901), ('12345678901234567890'), (-0.5);"
               "INSERT INTO plain SELECT v, v, v, v, v, v FROM v; INSERT INTO q(i, n, r, t, a, x) "
               "SELECT v, v, v, v, v, v FROM v");
  assert_string_equal(host_text(db, "SELECT group_concat(quote(i) || '|' || quote(n) || '|' || "
                                    "quote(r) || '|' || quote(t) || '|' ||"
                                    " quote(a), ' ') FROM (SELECT * FROM q ORDER BY msg_seq)"),
                      host_text(db, "SELECT group_concat(quote(i) || '|' || quote(n) || '|' || "
                                    "quote(r) || '|' || quote(t) || '|' ||"
                                    " quote(a), ' ') FROM (SELECT * FROM plain ORDER BY rowid)"));
}

static void json_nests_and_names_are_quoted(void **state) {
  (void)state;
  host_run(db, "CREATE VIRTUAL TABLE q USING msg_queue(topic='it''s.q', \"two words\" TEXT, [it's] "
               "INTEGER, `select`, caf\xc3\xa9)");
  host_run(db, "INSERT INTO q(\"two words\", \"it's\", \"select\", caf\xc3\xa9) VALUES ('a\"b', 1, "
               "json('{\"x\": [1, 2]}'), 'y')");
  assert_string_equal(
      host_text(db, "SELECT value FROM msg_messages WHERE topic = 'it''s.q'"),
      "{\"two words\":\"a\\\"b\",\"it's\":1,\"select\":{\"x\":[1,2]},\"caf\xc3\xa9\":\"y\"}");
  assert_string_equal(
      host_text(db,
                "SELECT json_array(\"two words\", \"it's\", json(\"select\"), caf\xc3\xa9) FROM q"),
      "[\"a\\\"b\",1,{\"x\":[1,2]},\"y\"]");
}

static void a_send_may_be_shaped(void **state) {
  (void)state;
  orders();
  host_run(db, "INSERT INTO orders(msg_id, total, msg_priority, msg_deliver_at, msg_group, "
               "msg_key, msg_options) VALUES"
               " ('0000000000000000000000aa', 1, 3, 4000000000000, 'g', 'k', '{\"ttl_ms\": 60000, "
               "\"priority\": 7}')");
  assert_string_equal(
      host_text(
          db, "SELECT json_array(id, priority, deliver_at, \"group\", key, ttl) FROM msg_messages"),
      "[\"0000000000000000000000aa\",3,4000000000000,\"g\",\"k\",60000]");
  host_run(db, "INSERT INTO orders(total, msg_key) VALUES (2, 'k')");
  assert_int_equal(host_int(db, "SELECT count(*) FROM orders"), 1);
  host_fails(db, SQLITE_ERROR, "column state is read only",
             "INSERT INTO orders(total, msg_state) VALUES (1, 'dead')");
  host_fails(db, SQLITE_ERROR, "unknown option",
             "INSERT INTO orders(total, msg_options) VALUES (1, '{\"x\": 1}')");
  host_run(db, "CREATE VIRTUAL TABLE news USING msg_queue(topic='news', exclusive=0, headline);"
               "INSERT INTO news(headline) VALUES ('x')");
  assert_string_equal(
      host_text(db, "SELECT exclusive || '|' || ttl FROM msg_messages WHERE topic = 'news'"),
      "0|30000");
}

static void delete_removes_and_update_is_refused(void **state) {
  (void)state;
  orders();
  host_run(db, "INSERT INTO orders(total) VALUES (1), (2), (3); DELETE FROM orders WHERE total = 2;"
               "SELECT msg_enqueue('other', 1)");
  assert_string_equal(host_text(db, "SELECT group_concat(total) FROM orders"), "1.0,3.0");
  host_fails(db, SQLITE_ERROR,
             "msg: INVALID: a message of topic 'orders' cannot be changed once sent: DELETE it and "
             "INSERT it again",
             "UPDATE orders SET total = 5");
  host_run(db, "DELETE FROM orders");
  assert_int_equal(host_int(db, "SELECT count(*) FROM msg_messages"), 1);
}

static void a_blob_has_no_place_in_json(void **state) {
  (void)state;
  orders();
  host_fails(db, SQLITE_ERROR, "msg: INVALID: column customer is a blob, which JSON cannot hold",
             "INSERT INTO orders(total, customer) VALUES (1, x'00')");
  host_run(db, "INSERT INTO orders(total) VALUES (1)"); /* the kept statement is fine */
  assert_int_equal(host_int(db, "SELECT count(*) FROM orders"), 1);
}

static void constraints_reach_the_store(void **state) {
  (void)state;
  orders();
  host_run(db, "INSERT INTO orders(total, msg_priority) VALUES (1, 5), (2, 1), (3, 3); SELECT "
               "msg_enqueue('other', 1)");
  assert_string_equal(
      host_text(
          db, "SELECT group_concat(total) FROM (SELECT total FROM orders WHERE msg_state = 'ready'"
              " ORDER BY msg_priority, msg_deliver_at, msg_seq LIMIT 2)"),
      "2.0,3.0");
  sqlite3_stmt *stmt;
  assert_int_equal(sqlite3_prepare_v2(db,
                                      "EXPLAIN QUERY PLAN SELECT total FROM orders WHERE msg_state "
                                      "= 'ready' AND msg_priority < 9"
                                      " ORDER BY msg_priority, msg_deliver_at, msg_seq LIMIT 2",
                                      -1, &stmt, NULL),
                   SQLITE_OK);
  assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
  assert_non_null(
      strstr((const char *)sqlite3_column_text(stmt, 3), "INDEX 0:state= priority< limit order"));
  sqlite3_finalize(stmt);
  assert_int_equal(
      host_int(db, "SELECT count(*) FROM orders WHERE msg_id = (SELECT max(id) FROM msg_messages)"),
      0);
  assert_int_equal(
      host_int(db, "SELECT count(*) FROM orders AS a JOIN orders AS b ON a.msg_id = b.msg_id"), 3);
}

static void the_definition_lives_in_the_file(void **state) {
  (void)state;
  orders();
  host_run(db, "INSERT INTO orders(total) VALUES (1); CREATE VIRTUAL TABLE temp.t USING "
               "msg_queue(topic='orders', customer)");
  sqlite3 *other = host_open(sqlite3_db_filename(db, "main"));
  assert_int_equal(host_int(other, "SELECT count(*) FROM orders"), 1);
  host_run(other, "INSERT INTO orders(total) VALUES (2)");
  host_fails(other, SQLITE_ERROR, "no such table: t", "SELECT * FROM t");
  host_close(other);
  sqlite3 *plain = host_plain(sqlite3_db_filename(db, "main"), 0);
  host_fails(plain, SQLITE_ERROR, "no such module: msg_queue", "SELECT * FROM orders");
  host_close(plain);
  assert_int_equal(host_int(db, "SELECT count(*) FROM t"), 2);
  host_run(db,
           "ALTER TABLE orders RENAME TO sales; INSERT INTO sales(total) VALUES (3); DROP TABLE t");
  assert_int_equal(host_int(db, "SELECT count(*) FROM sales"), 3);
  host_run(db, "DROP TABLE sales");
  assert_int_equal(host_int(db, "SELECT count(*) FROM msg_messages"), 3);
}

static void it_may_belong_to_a_node(void **state) {
  (void)state;
  host_run(db, "SELECT msg_open('local', '{\"sender_id\": \"shop\", \"queue\": \"second\"}'); "
               "SELECT msg_open('local', '{\"sender_id\": \"me\"}');"
               "CREATE VIRTUAL TABLE orders USING msg_queue(topic='orders', node='shop', total);"
               "INSERT INTO orders(total) VALUES (1), (2); DELETE FROM orders WHERE total = 1");
  assert_string_equal(host_text(db, "SELECT sender FROM msg_messages WHERE node = 'shop'"), "shop");
  assert_int_equal(host_int(db, "SELECT count(*) FROM msg_messages"), 0);
  host_run(db, "SELECT msg_close('shop')");
  host_fails(db, SQLITE_ERROR, "node 'shop' was closed", "SELECT * FROM orders");
}

static void triggers_and_transactions(void **state) {
  (void)state;
  orders();
  host_run(db, "CREATE TABLE app(t); CREATE TRIGGER tr AFTER INSERT ON app BEGIN INSERT INTO "
               "orders(total) VALUES (new.t); END;"
               "BEGIN; INSERT INTO app VALUES (1); ROLLBACK; INSERT INTO app VALUES (2)");
  assert_string_equal(host_text(db, "SELECT group_concat(total) FROM orders"), "2.0");
  host_run(db, "BEGIN");
  host_fails(db, SQLITE_ERROR, "blob", "INSERT INTO orders(total) VALUES (3), (x'00')");
  host_run(db, "COMMIT");
  assert_string_equal(host_text(db, "SELECT group_concat(total) FROM orders"), "2.0");
}

static void definitions_are_checked(void **state) {
  (void)state;
  static const struct {
    const char *arguments, *text;
  } CASES[] = {
      {"", "msg: INVALID: msg_queue: no topic: CREATE VIRTUAL TABLE name USING "
           "msg_queue(topic='...', column TYPE, ...)"},
      {"a TEXT", "no topic"},
      {"topic='t'", "msg_queue: no column: name the keys of the payload"},
      {"topic='t', a FLOOT", "msg: INVALID: msg_queue: argument 'a FLOOT': unknown type: use TEXT, "
                             "REAL, INTEGER, NUMERIC, ANY or none"},
      {"topic='t', a BLOB", "unknown type"},
      {"topic='t', a TEXT NOT NULL", "unknown type"},
      {"topic='t', a, A INT", "argument 'A INT': the column is there already"},
      {"topic='t', msg_id TEXT", "names that begin with msg_ are the message's own"},
      {"topic='t', MSG_x", "names that begin with msg_"},
      {"topic='t', rowid", "this name is the row number's"},
      {"topic='t', \"\"", "a column needs a name"},
      {"topic='t', \"a\"\"b\"", "a column name may hold no '\"'"},
      {"topic='t', 'a' TEXT", "a column name is not a string"},
      {"topic='t', (a)", "give a column, name TYPE, or an option, name=value"},
      {"topic='t', topic='u', a", "argument 'topic='u'': it is given twice"},
      {"topic='t', exclusive=2, a", "exclusive takes 0 (to every listener) or 1 (to one owner)"},
      {"topic='t', exclusive=1, exclusive=1, a", "given twice"},
      {"topic='t', queue='q', a",
       "argument 'queue='q'': unknown option: known are topic, exclusive, node"},
      {"topic=, a", "a value is missing"},
      {"topic='a' 'b', a", "give one value"},
      {"topic='a*', a", "GLOB"},
      {"topic='t', node='_x', a", "_x"},
  };
  for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++)
    host_fails(db, SQLITE_ERROR, CASES[i].text, "CREATE VIRTUAL TABLE q USING msg_queue(%s)",
               CASES[i].arguments);
  host_fails(db, SQLITE_ERROR, "no such table: msg_queue", "SELECT * FROM msg_queue");
  host_fails(db, SQLITE_ERROR, "no topic", "CREATE VIRTUAL TABLE q USING msg_queue");
  assert_int_equal(host_int(db, "SELECT count(*) FROM sqlite_schema WHERE name = 'q'"), 0);
}

static void sixty_columns_are_the_limit(void **state) {
  (void)state;
  const char *sixty = host_text(
      db, "SELECT group_concat('c' || value) FROM json_each((WITH RECURSIVE n(x) AS (VALUES (1)"
          " UNION ALL SELECT x + 1 FROM n WHERE x < 60) SELECT json_group_array(x) FROM n))");
  host_run(db,
           "CREATE VIRTUAL TABLE q USING msg_queue(topic='t', %s); INSERT INTO q(c1, c60) VALUES "
           "(1, 60)",
           sixty);
  assert_int_equal(host_int(db, "SELECT c1 + c60 FROM q"), 61);
  host_fails(db, SQLITE_ERROR, "more than 60 columns",
             "CREATE VIRTUAL TABLE r USING msg_queue(topic='t', %s, c61)", sixty);
}

#define TEST(f) HOST_TEST(f, &db)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(a_row_is_a_message),
      TEST(star_shows_the_id_and_the_payload),
      TEST(other_messages_of_the_topic_are_rows_too),
      TEST(affinities_are_those_of_a_stored_column),
      TEST(json_nests_and_names_are_quoted),
      TEST(a_send_may_be_shaped),
      TEST(delete_removes_and_update_is_refused),
      TEST(a_blob_has_no_place_in_json),
      TEST(constraints_reach_the_store),
      TEST(the_definition_lives_in_the_file),
      TEST(it_may_belong_to_a_node),
      TEST(triggers_and_transactions),
      TEST(definitions_are_checked),
      TEST(sixty_columns_are_the_limit),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
