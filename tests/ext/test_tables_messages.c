/* msg_messages: its plans, and what INSERT, UPDATE and DELETE do and refuse. */
#include "support/cmocka_compat.h"

#include <stdio.h>
#include <string.h>

#include "support/host.h"

static sqlite3 *db;

/* ---- plans ---- */

static const char *plan_of(const char *query) {
  static char out[256];
  char *sql = sqlite3_mprintf("EXPLAIN QUERY PLAN %s", query);
  sqlite3_stmt *stmt;
  if (sqlite3_prepare_v2(db, sql, -1, &stmt, NULL) != SQLITE_OK)
    fail_msg("%s: %s", sql, sqlite3_errmsg(db));
  out[0] = '\0';
  while (sqlite3_step(stmt) == SQLITE_ROW) {
    const char *detail = (const char *)sqlite3_column_text(stmt, 3);
    const char *words = strstr(detail, "INDEX 0:");
    size_t n = strlen(out);
    if (words)
      snprintf(out + n, sizeof out - n, "%s%s", n ? " / " : "", words + 8);
    else if (strstr(detail, "B-TREE"))
      snprintf(out + n, sizeof out - n, " +sort");
  }
  sqlite3_finalize(stmt);
  sqlite3_free(sql);
  return out;
}

static void the_plan_says_what_the_store_does(void **state) {
  (void)state;
  static const struct {
    const char *query, *plan;
  } CASES[] = {
      {"SELECT * FROM msg_messages", ""},
      {"SELECT * FROM msg_messages WHERE topic = 'a'", "topic="},
      {"SELECT * FROM msg_messages WHERE topic IN ('a', 'b')", "topic[]"},
      {"SELECT * FROM msg_messages WHERE topic IN (SELECT name FROM sqlite_schema)", "topic[]"},
      {"SELECT * FROM msg_messages WHERE topic COLLATE NOCASE = 'a'", ""},
      {"SELECT * FROM msg_messages WHERE topic > 'a'", ""},
      {"SELECT * FROM msg_messages WHERE topic IS 'a'", ""},
      {"SELECT * FROM msg_messages WHERE id = ?1 AND state = 'dead'", "id= state="},
      {"SELECT * FROM msg_messages WHERE id > ?1", "id>"},
      {"SELECT * FROM msg_messages WHERE id < ?1", ""},
      {"SELECT * FROM msg_messages WHERE id BETWEEN '64' AND '65'", "id>= id<="},
      {"SELECT * FROM msg_messages WHERE sender = 'me' AND priority < 5", "sender= priority<"},
      {"SELECT * FROM msg_messages WHERE timestamp >= ?1 AND deliver_at <= ?2",
       "timestamp>= deliver_at<="},
      {"SELECT * FROM msg_messages WHERE seq IN (1, 2)", "seq="},
      {"SELECT * FROM msg_messages WHERE state IN ('ready', 'dead') OR topic = 'a'",
       "state[] / topic="},
      {"SELECT * FROM msg_messages WHERE value = 1", ""},
      {"SELECT * FROM msg_messages ORDER BY priority, deliver_at, seq", "order"},
      {"SELECT * FROM msg_messages ORDER BY priority, deliver_at", "order"},
      {"SELECT * FROM msg_messages ORDER BY priority", "order"},
      {"SELECT * FROM msg_messages ORDER BY priority DESC", " +sort"},
      {"SELECT * FROM msg_messages ORDER BY priority, seq", " +sort"},
      {"SELECT * FROM msg_messages ORDER BY seq", "oldest"},
      {"SELECT * FROM msg_messages ORDER BY seq DESC LIMIT 3", "limit newest"},
      {"SELECT * FROM msg_messages WHERE topic = 'a' LIMIT 3", "topic= limit"},
      {"SELECT * FROM msg_messages WHERE topic = 'a' LIMIT 3 OFFSET 1", "topic="},
      {"SELECT * FROM msg_messages WHERE topic > 'a' LIMIT 3", ""},
      {"SELECT * FROM msg_messages WHERE topic = 'a' AND value = 1 LIMIT 3", "topic="},
      {"SELECT * FROM msg_messages WHERE priority <= 3 LIMIT 3", "priority<= limit"},
      {"SELECT * FROM msg_messages WHERE priority <= ?1 LIMIT 3", "priority<="},
      {"SELECT * FROM msg_messages WHERE priority < ?1 LIMIT 3", "priority< limit"},
      {"SELECT * FROM msg_messages WHERE (priority, seq) < (?1, ?2) LIMIT 3", "priority<="},
      {"SELECT * FROM msg_messages WHERE topic = 'a' ORDER BY topic, value LIMIT 3",
       "topic= +sort"},
      {"SELECT * FROM msg_messages WHERE node = 'me' AND topic = 'a' LIMIT 3",
       "node= topic= limit"},
  };
  for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
    const char *plan = plan_of(CASES[i].query);
    if (strcmp(plan, CASES[i].plan) != 0)
      fail_msg("%s: plan '%s', not '%s'", CASES[i].query, plan, CASES[i].plan);
  }
}

/* ---- INSERT ---- */

static void insert_sends_with_the_defaults_of_a_send(void **state) {
  (void)state;
  host_run(db, "INSERT INTO msg_messages(topic, value) VALUES ('t', 1.5);"
               "SELECT msg_send('t', 1.5)");
  assert_int_equal(
      host_int(db,
               "SELECT count(DISTINCT (sender, sender_host, exclusive, priority, ttl, timing_out) ="
               " ('me', sender_host, 0, 1000, 30000, 1)) FROM msg_messages"),
      1);
  assert_string_equal(
      host_text(db, "SELECT group_concat(typeof(value) || value || state) FROM msg_messages"),
      "real1.5ready,real1.5ready");
}

static void insert_sets_every_column_that_a_send_can(void **state) {
  (void)state;
  host_run(db, "INSERT INTO msg_messages(id, topic, value, msg, map, additional, recipients, "
               "in_answer_to, exclusive,"
               " priority, ttl, deliver_at, delete_after_processing, delete_after_processing_time, "
               "key, \"group\")"
               " VALUES ('00000000000000000000000a', 't', x'00ff', 'm', '{\"a\": 1}', '[1, 2]', "
               "'[\"x\", \"y\"]',"
               " '00000000000000000000000b', 1, -3, 1000, 4000000000000, 1, 7, 'k', 'g')");
  assert_string_equal(
      host_text(
          db,
          "SELECT json_array(id, hex(value), msg, json(map), json(additional), json(recipients), "
          "in_answer_to,"
          " exclusive, priority, ttl, timing_out, delete_at, deliver_at, delete_after_processing,"
          " delete_after_processing_time, key, \"group\", state, json(processed_by)) FROM "
          "msg_messages"),
      "[\"00000000000000000000000a\",\"00FF\",\"m\",{\"a\":1},[1,2],[\"x\",\"y\"],"
      "\"00000000000000000000000b\",1,-3,1000,1,4000000001000,4000000000000,1,7,\"k\",\"g\","
      "\"delayed\",[]]");
}

static void a_copy_keeps_what_its_sending_said(void **state) {
  (void)state;
  host_run(db,
           "SELECT msg_listen('t'); SELECT msg_enqueue('t', 'first', '{\"key\": \"k\"}');"
           "INSERT INTO msg_messages(topic, value, sender, sender_host, timestamp, ttl, "
           "deliver_at, delete_at, exclusive, attempts, reason, key, processed_by)"
           " VALUES ('t', 'old', 'you', 'there', 1000, 5000, 2000, 4000000000000, 1, 3, NULL, "
           "'k', '[]'),"
           " ('t', 'dead', 'you', NULL, 1001, 5000, 2000, NULL, 1, 7, 'no', NULL, NULL),"
           " ('t', 'mine', 'me', NULL, 4000000000000, NULL, NULL, NULL, 0, 0, NULL, NULL, NULL),"
           " ('t', 'seen', 'you', NULL, 4000000000000, NULL, 1, 4000000000000, 0, 0, NULL, NULL,"
           " '[\"me\", \"x\"]'),"
           " ('t', 'new', 'you', NULL, 4000000000000, NULL, 1, 4000000000000, 0, 0, NULL, NULL,"
           " '[\"x\"]')");
  assert_string_equal(
      host_text(db, "SELECT group_concat(json_array(value, sender, sender_host, timestamp, ttl, "
                    "deliver_at, delete_at, state, attempts, reason, key))"
                    " FROM (SELECT * FROM msg_messages WHERE value IN ('old', 'dead') "
                    "ORDER BY timestamp)"),
      "[\"old\",\"you\",\"there\",1000,5000,2000,4000000000000,\"ready\",3,null,\"k\"],"
      "[\"dead\",\"you\",null,1001,5000,2000,null,\"dead\",7,\"no\",null]");
  assert_string_equal(host_text(db, "SELECT group_concat(value) FROM msg_await('t', 0, 10)"),
                      "new");
  assert_int_equal(host_int(db, "SELECT attempts FROM msg_claim('t', 1) WHERE value = 'old'"), 4);
}

static void update_adds_to_who_has_seen_it(void **state) {
  (void)state;
  host_run(db,
           "SELECT msg_listen('t');"
           "INSERT INTO msg_messages(topic, value, sender, timestamp, deliver_at, delete_at) VALUES"
           " ('t', 1, 'you', 4000000000000, 1, 4000000009000),"
           " ('t', 2, 'you', 4000000000000, 1, 4000000009000);"
           "UPDATE msg_messages SET processed_by = '[\"me\"]', priority = 5 WHERE value = 1");
  assert_string_equal(
      host_text(db, "SELECT group_concat(json_array(value, json(processed_by), priority))"
                    " FROM (SELECT * FROM msg_messages ORDER BY value)"),
      "[1,[\"me\"],5],[2,[],1000]");
  host_run(db, "UPDATE msg_messages SET processed_by = '[]'"); /* takes nobody out */
  host_fails(db, SQLITE_ERROR, "column processed_by is integer: give a JSON array of sender ids",
             "UPDATE msg_messages SET processed_by = 1");
  assert_string_equal(host_text(db, "SELECT group_concat(value) FROM msg_await('t', 0, 10)"), "2");
  host_run(db, "SELECT msg_enqueue('work', 1)");
  host_fails(db, SQLITE_ERROR, "column processed_by of an exclusive message",
             "UPDATE msg_messages SET processed_by = '[\"x\"]' WHERE topic = 'work'");
}

static void marks_of_who_never_came_are_shown(void **state) {
  static const char *const SHOWN = "SELECT group_concat(json_array(value, json(processed_by)))"
                                   " FROM (SELECT * FROM msg_messages ORDER BY value)";
  (void)state;
  host_run(db, "SELECT msg_listen('t');"
               "INSERT INTO msg_messages(topic, value, sender, timestamp, deliver_at, delete_at,"
               " processed_by) VALUES"
               " ('t', 1, 'you', 4000000000000, 1, 4000000009000, '[\"me\", \"ghost\"]'),"
               " ('t', 2, 'you', 4000000000000, 1, 4000000009000, '[]');"
               "SELECT msg_send('t', 3)");
  assert_string_equal(host_text(db, SHOWN), "[1,[\"me\",\"ghost\"]],[2,[]],[3,[]]");
  host_run(db, "UPDATE msg_messages SET processed_by = '[\"later\"]' WHERE value > 1");
  assert_string_equal(host_text(db, SHOWN),
                      "[1,[\"me\",\"ghost\"]],[2,[\"later\"]],[3,[\"later\"]]");
  assert_string_equal(host_text(db, "SELECT group_concat(value) FROM msg_await('t', 0, 10)"), "2");
}

/* A new priority is a new number in the store. */
static void marks_of_who_never_came_stay_with_a_new_priority(void **state) {
  (void)state;
  host_run(db, "SELECT msg_send('t', 1);"
               "UPDATE msg_messages SET processed_by = '[\"ghost\"]';"
               "UPDATE msg_messages SET priority = 7;"
               "SELECT msg_open('local', '{\"sender_id\": \"ghost\"}');"
               "SELECT msg_listen('t', '{\"catch_up\": true}')");
  assert_string_equal(host_text(db, "SELECT processed_by FROM msg_messages"), "[\"ghost\"]");
  assert_int_equal(host_int(db, "SELECT count(*) FROM msg_await('t', 0, 10)"), 0);
}

static void marks_of_who_never_came_go_with_their_messages(void **state) {
  (void)state;
  sqlite3 *other = host_open(host_path());
  host_run(other, "INSERT INTO msg_messages(topic, timestamp, processed_by)"
                  " SELECT 't', 4000000000000, '[\"ghost\"]' FROM json_each('[1,2,3]');"
                  "DELETE FROM msg_messages");
  assert_int_equal(host_int(other, "SELECT count(*) FROM msg_store_seen"), 3);
  host_close(other);
  other = host_open(host_path());
  host_run(other, "SELECT msg_send('t', 1);"
                  "UPDATE msg_messages SET processed_by = '[\"ghost\"]'");
  assert_int_equal(host_int(other, "SELECT count(*) FROM msg_store_seen"), 1);
  host_close(other);
}

static void columns_override_options(void **state) {
  (void)state;
  host_run(db, "INSERT INTO msg_messages(topic, priority, recipients, ttl, options) VALUES ('t', "
               "4, '[\"y\"]', 5000,"
               " '{\"priority\": 9, \"recipient\": \"x\", \"msg\": \"from options\", "
               "\"timing_out\": false}')");
  assert_string_equal(
      host_text(db, "SELECT json_array(priority, json(recipients), msg, ttl) FROM msg_messages"),
      "[4,[\"y\"],\"from options\",5000]");
  host_run(
      db,
      "DELETE FROM msg_messages;"
      "INSERT INTO msg_messages(topic, exclusive, options) VALUES ('t', 1, '{\"group\": \"g\"}')");
  assert_string_equal(host_text(db, "SELECT \"group\" FROM msg_messages"), "g");
}

static void delete_at_ends_a_life(void **state) {
  (void)state;
  host_run(db,
           "INSERT INTO msg_messages(topic, exclusive, delete_at) VALUES ('t', 1, 4000000000000)");
  assert_string_equal(host_text(db, "SELECT timing_out || '|' || delete_at || '|' || (ttl = "
                                    "delete_at - timestamp) FROM msg_messages"),
                      "1|4000000000000|1");
  host_fails(db, SQLITE_ERROR, "column delete_at is 5, not after the delivery",
             "INSERT INTO msg_messages(topic, delete_at) VALUES ('t', 5)");
}

static void numbers_may_come_as_text(void **state) {
  (void)state;
  host_run(
      db,
      "INSERT INTO msg_messages(topic, priority, exclusive, ttl) VALUES ('t', '7', '1', 5000.0)");
  assert_string_equal(
      host_text(db, "SELECT json_array(priority, exclusive, ttl) FROM msg_messages"), "[7,1,5000]");
}

static void insert_refuses(void **state) {
  (void)state;
  static const struct {
    const char *columns, *values, *text;
  } CASES[] = {
      {"value", "1", "msg: INVALID: column topic is null"},
      {"topic", "5", "msg: INVALID: column topic is integer: give it text"},
      {"topic", "'a*'", "GLOB"},
      {"topic, state", "'t', 'dead'",
       "msg: INVALID: column state is read only: the store sets it, leave it out"},
      {"topic, owner", "'t', 'x'", "column owner is read only"},
      {"topic, token", "'t', 'x'", "column token is read only"},
      {"topic, since", "'t', 1", "column since is read only"},
      {"topic, until", "'t', 1", "column until is read only"},
      {"topic, seq", "'t', 1", "column seq is read only"},
      {"topic, sender", "'t', 'you'",
       "column sender is of a copy of a message: give its timestamp too, or leave both out"},
      {"topic, attempts", "'t', 1", "column attempts is of a copy"},
      {"topic, processed_by", "'t', '[]'", "column processed_by is of a copy"},
      {"topic, reason", "'t', 'x'", "column reason is of a copy"},
      {"topic, sender_host", "'t', 'x'", "column sender_host is of a copy"},
      {"topic, timestamp", "'t', 'now'", "column timestamp is text: give it an integer"},
      {"topic, timestamp, attempts", "'t', 1, -1", "column attempts is -1"},
      {"topic, timestamp, sender", "'t', 1, ''", "empty sender: give it 1 to 128 bytes"},
      {"topic, timestamp, sender", "'t', 1, 5", "column sender is integer"},
      {"topic, timestamp, reason", "'t', 1, 'x'",
       "column reason: only an exclusive message becomes a dead letter"},
      {"topic, timestamp, processed_by", "'t', 1, '[5]'",
       "column processed_by: give a JSON array of sender ids"},
      {"topic, timestamp, processed_by", "'t', 1, 5", "column processed_by is integer"},
      {"topic, timestamp, exclusive, processed_by", "'t', 1, 1, '[\"x\"]'",
       "column processed_by of an exclusive message"},
      {"topic, id", "'t', 'xyz'", "option 'id' is 'xyz', no message id: give it 24 hex digits"},
      {"topic, priority", "'t', 'high'", "option 'priority' takes an integer, not text"},
      {"topic, priority", "'t', 3000000000", "option 'priority' is 3000000000"},
      {"topic, exclusive", "'t', 2", "option 'exclusive' takes true or false"},
      {"topic, ttl", "'t', 0", "option 'ttl_ms' is 0"},
      {"topic, ttl, timing_out", "'t', 5, 0", "contradict each other"},
      {"topic, map", "'t', '{a'", "column map '{a' is not well-formed JSON"},
      {"topic, map", "'t', '[1]'", "option 'map' takes a JSON object"},
      {"topic, additional", "'t', '{}'", "option 'additional' takes a JSON array"},
      {"topic, recipients", "'t', 'x'", "column recipients 'x' is not well-formed JSON"},
      {"topic, recipients", "'t', '[]'", "option 'recipients' is empty"},
      {"topic, recipients", "'t', '[1]'",
       "option 'recipients' takes an array of text, not integer"},
      {"topic, recipients", "'t', 1",
       "column recipients is integer: give a JSON array of sender ids"},
      {"topic, \"group\"", "'t', 'g'", "option 'group' needs one owner"},
      {"topic, options", "'t', '{\"prioritty\": 1}'",
       "unknown option 'prioritty': did you mean 'priority'?"},
      {"topic, options", "'t', 5", "options are integer"},
      {"topic, node", "'t', 'nobody'", "node 'nobody' is not open"},
      {"topic, node", "'t', 5", "column node is integer"},
      {"topic, delete_at", "'t', 'x'", "column delete_at is text"},
  };
  for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++)
    host_fails(db, SQLITE_ERROR, CASES[i].text, "INSERT INTO msg_messages(%s) VALUES (%s)",
               CASES[i].columns, CASES[i].values);
  assert_int_equal(host_int(db, "SELECT count(*) FROM msg_messages"), 0);
}

static void an_id_that_is_taken_is_a_constraint(void **state) {
  (void)state;
  host_run(db, "INSERT INTO msg_messages(id, topic) VALUES ('0000000000000000000000aa', 't')");
  host_fails(db, SQLITE_CONSTRAINT, "0000000000000000000000aa",
             "INSERT INTO msg_messages(id, topic) VALUES ('0000000000000000000000aa', 't')");
  host_run(db,
           "INSERT OR IGNORE INTO msg_messages(id, topic) VALUES ('0000000000000000000000aa', 'u'),"
           " ('0000000000000000000000ab', 'u')");
  host_fails(
      db, SQLITE_CONSTRAINT, "0000000000000000000000aa",
      "INSERT OR REPLACE INTO msg_messages(id, topic) VALUES ('0000000000000000000000aa', 'v')");
  assert_string_equal(
      host_text(db,
                "SELECT group_concat(topic) FROM (SELECT topic FROM msg_messages ORDER BY seq)"),
      "t,u");
}

static void insert_select_is_all_or_nothing(void **state) {
  (void)state;
  static const char *const BEFORE[] = {
      "SELECT 1", "BEGIN", "BEGIN; SELECT msg_send('first', 1)",
      "BEGIN; INSERT INTO msg_messages(topic) VALUES ('first'); SAVEPOINT s"};
  for (size_t i = 0; i < sizeof BEFORE / sizeof BEFORE[0]; i++) {
    host_run(db, BEFORE[i]);
    host_fails(
        db, SQLITE_ERROR, "bad*",
        "INSERT INTO msg_messages(topic, value) SELECT iif(value = 300, 'bad*', 'good'), value"
        " FROM json_each((SELECT json_group_array(value) FROM (WITH RECURSIVE n(value) AS"
        " (VALUES (1) UNION ALL SELECT value + 1 FROM n WHERE value < 400) SELECT value FROM n)))");
    host_run(db, i ? "COMMIT" : "SELECT 1");
    assert_int_equal(host_int(db, "SELECT count(*) FROM msg_messages WHERE topic = 'good'"), 0);
  }
  assert_int_equal(host_int(db, "SELECT count(*) FROM msg_messages WHERE topic = 'first'"), 2);
  host_run(db, "INSERT INTO msg_messages(topic, value) SELECT 'copy', value FROM msg_messages");
  assert_int_equal(host_int(db, "SELECT count(*) FROM msg_messages WHERE topic = 'copy'"), 2);
}

static void the_hosts_last_insert_rowid_stays(void **state) {
  (void)state;
  host_run(db, "CREATE TABLE app(x); INSERT INTO app(rowid) VALUES (77);"
               "INSERT INTO msg_messages(topic) VALUES ('t'); UPDATE msg_messages SET priority = 1;"
               "DELETE FROM msg_messages; CREATE VIRTUAL TABLE q USING msg_queue(topic='t', a);"
               "INSERT INTO q(a) VALUES (1)");
  assert_int_equal(sqlite3_last_insert_rowid(db), 77);
  host_fails(db, SQLITE_ERROR, "topic", "INSERT INTO msg_messages(value) VALUES (1)");
  assert_int_equal(sqlite3_last_insert_rowid(db), 77);
}

/* ---- UPDATE, DELETE ---- */

static void update_changes_priority_delivery_and_life(void **state) {
  (void)state;
  host_run(db, "SELECT msg_enqueue('t', 1); SELECT msg_enqueue('t', 2);"
               "UPDATE msg_messages SET priority = 5, ttl = 60000, deliver_at = 4000000000000 "
               "WHERE value = 2");
  assert_string_equal(
      host_text(
          db,
          "SELECT json_array(priority, ttl, deliver_at, state) FROM msg_messages WHERE value = 2"),
      "[5,60000,4000000000000,\"delayed\"]");
  host_run(db, "UPDATE msg_messages SET ttl = NULL, priority = priority + 1 WHERE value = 2");
  assert_string_equal(
      host_text(db,
                "SELECT json_array(priority, ttl, delete_at) FROM msg_messages WHERE value = 2"),
      "[6,0,null]");
  assert_int_equal(host_int(db, "SELECT priority FROM msg_messages WHERE value = 1"), 1000);
}

static void an_update_that_changes_nothing_is_none(void **state) {
  (void)state;
  host_run(db, "SELECT msg_enqueue('t', 1, '{\"recipient\": \"x\", \"map\": {\"a\": 1}}');"
               "UPDATE msg_messages SET topic = topic, value = 1, recipients = recipients, map = "
               "map, key = NULL, node = node,"
               " priority = 3, id = id, sender = 'me'");
  assert_int_equal(host_int(db, "SELECT priority FROM msg_messages"), 3);
}

/* SQLite gives it every column, as if the statement named it. */
static void an_update_from_another_table_changes_what_it_names(void **state) {
  (void)state;
  host_run(db, "SELECT msg_enqueue('t', 1, '{\"ttl_ms\": 100000, \"map\": {\"a\": 1}}'),"
               " msg_send('t', 2, '{\"recipients\": [\"x\", \"y\"], \"key\": \"k\"}');"
               "SELECT msg_claim('t')");
  int64_t end = host_int(db, "SELECT sum(delete_at) FROM msg_messages");
  host_sleep_ms(2);
  host_run(db, "UPDATE msg_messages SET priority = n.p, deliver_at = deliver_at"
               " FROM (SELECT value AS v, 7 AS p FROM msg_messages) AS n WHERE value = n.v");
  assert_int_equal(host_int(db, "SELECT sum(priority) FROM msg_messages"), 14);
  assert_int_equal(host_int(db, "SELECT sum(delete_at) FROM msg_messages"), end);
  host_run(db, "UPDATE msg_messages SET ttl = ttl");
  assert_true(host_int(db, "SELECT sum(delete_at) FROM msg_messages") > end);
  host_fails(db, SQLITE_ERROR, "column topic of",
             "UPDATE msg_messages SET topic = n.x FROM (SELECT 'x' AS x) AS n");
  host_fails(db, SQLITE_ERROR, "its delivery time cannot change",
             "UPDATE msg_messages SET deliver_at = n.x FROM (SELECT 4000000000000 AS x) AS n");
}

static void update_refuses_other_columns(void **state) {
  (void)state;
  static const struct {
    const char *set, *text;
  } CASES[] = {
      {"topic = 'x'", "msg: INVALID: column topic of a message cannot be changed: only priority, "
                      "deliver_at, ttl and processed_by can"},
      {"value = 2", "column value of"},
      {"value = '1'", "column value of"},
      {"id = '0000000000000000000000aa'", "column id of"},
      {"state = 'dead'", "column state of"},
      {"exclusive = 0", "column exclusive of"},
      {"recipients = '[\"y\"]'", "column recipients of"},
      {"delete_at = 4000000000000", "column delete_at of"},
      {"timing_out = 1", "column timing_out of"},
      {"attempts = 0, owner = 'x'", "column owner of"},
      {"key = 'x'", "column key of"},
      {"rowid = 99", "column rowid of"},
      {"options = '{}'", "column options of"},
      {"node = 'other'", "column node of"},
      {"priority = 'x'", "column priority is text"},
      {"priority = 99999999999", "column priority is 99999999999"},
      {"deliver_at = -1", "column deliver_at is -1"},
      {"deliver_at = NULL", "column deliver_at is null"},
      {"ttl = -5", "column ttl is -5"},
      {"priority = 1, seq = 5", "column seq of"},
  };
  host_run(db, "SELECT msg_enqueue('t', 1)");
  for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++)
    host_fails(db, SQLITE_ERROR, CASES[i].text, "UPDATE msg_messages SET %s", CASES[i].set);
  assert_int_equal(
      host_int(db, "SELECT count(*) FROM msg_messages WHERE priority = 1000 AND topic = 't'"), 1);
}

static void delete_removes_in_any_state(void **state) {
  (void)state;
  host_run(db,
           "SELECT msg_enqueue('t', value) FROM json_each('[1,2,3,4,5,6]');"
           "SELECT msg_claim('t'); SELECT msg_reject(json_extract(msg_claim('t'), '$.id'), 'no');"
           "DELETE FROM msg_messages WHERE value IN (1, 2, 3)");
  assert_string_equal(
      host_text(db,
                "SELECT group_concat(value) FROM (SELECT value FROM msg_messages ORDER BY seq)"),
      "4,5,6");
  host_run(db,
           "DELETE FROM msg_messages WHERE id IN (SELECT id FROM msg_messages WHERE value > 4)");
  assert_int_equal(host_int(db, "SELECT count(*) FROM msg_messages"), 1);
  host_run(db, "BEGIN; DELETE FROM msg_messages; ROLLBACK");
  assert_int_equal(host_int(db, "SELECT count(*) FROM msg_messages"), 1);
}

static void writes_during_a_scan_are_safe(void **state) {
  (void)state;
  sqlite3_stmt *scan;
  host_run(db,
           "BEGIN; SELECT msg_enqueue('t', value) FROM json_each((SELECT json_group_array(x) FROM"
           " (WITH RECURSIVE n(x) AS (VALUES (1) UNION ALL SELECT x + 1 FROM n WHERE x < 300) "
           "SELECT x FROM n)));"
           "COMMIT");
  assert_int_equal(
      sqlite3_prepare_v2(db, "SELECT id FROM msg_messages ORDER BY priority", -1, &scan, NULL),
      SQLITE_OK);
  int n = 0;
  while (sqlite3_step(scan) == SQLITE_ROW) {
    n++;
    host_run(db, "UPDATE msg_messages SET priority = 5 WHERE id = '%s'",
             sqlite3_column_text(scan, 0));
    if (n % 3 == 0)
      host_run(db, "DELETE FROM msg_messages WHERE id = '%s'", sqlite3_column_text(scan, 0));
  }
  assert_int_equal(sqlite3_finalize(scan), SQLITE_OK);
  assert_true(n >= 300);
  assert_int_equal(host_int(db, "SELECT count(*) FROM msg_messages WHERE priority = 5"), 200);
}

static void a_row_is_written_through_the_node_it_was_read_by(void **state) {
  (void)state;
  host_run(
      db,
      "SELECT msg_open('local', '{\"sender_id\": \"other\", \"queue\": \"second\"}');"
      "SELECT msg_enqueue('t', 'second'); SELECT msg_enqueue('t', 'first', '{\"node\": \"me\"}')");
  assert_int_equal(host_int(db, "SELECT count(*) FROM msg_messages WHERE node = 'me'"), 1);
  host_run(db, "UPDATE msg_messages SET priority = 8 WHERE node = 'me'");
  assert_int_equal(host_int(db, "SELECT priority FROM msg_messages WHERE node = 'other'"), 1000);
  host_run(db, "DELETE FROM msg_messages WHERE node = 'me'");
  assert_string_equal(host_text(db, "SELECT value FROM msg_messages"), "second");
  host_run(db, "SELECT msg_enqueue('t', 'first', '{\"node\": \"me\"}')");
  host_fails(db, SQLITE_ERROR, "two nodes at once",
             "DELETE FROM msg_messages WHERE node = 'me' AND EXISTS (SELECT 1 FROM msg_messages AS "
             "o WHERE o.node = 'other'"
             " AND o.topic = msg_messages.topic)");
  host_fails(db, SQLITE_ERROR, "node 'nobody' is not open",
             "SELECT * FROM msg_messages WHERE node = 'nobody'");
  host_fails(db, SQLITE_ERROR, "column node takes", "SELECT * FROM msg_messages WHERE node = 5");
}

static void a_node_being_read_cannot_be_closed(void **state) {
  (void)state;
  host_run(db, "SELECT msg_enqueue('t', 1); SELECT msg_enqueue('t', 2)");
  host_fails(db, SQLITE_ERROR, "node 'me' is being read by a running statement",
             "SELECT msg_close('me') FROM msg_messages");
  host_run(db, "SELECT msg_close('me')");
  host_fails(db, SQLITE_ERROR, "closed", "SELECT * FROM msg_messages");
}

/* ---- where it may be used ---- */

static void views_and_triggers_may_use_it(void **state) {
  (void)state;
  host_run(db, "CREATE TABLE app(x); CREATE VIEW w AS SELECT topic, value FROM msg_messages;"
               "CREATE TRIGGER tr AFTER INSERT ON app BEGIN INSERT INTO msg_messages(topic, value) "
               "VALUES ('app', new.x); END;"
               "INSERT INTO app VALUES (1), (2)");
  assert_int_equal(host_int(db, "SELECT sum(value) FROM w"), 3);
  host_fails(db, SQLITE_ERROR, "msg_messages takes no arguments",
             "CREATE VIRTUAL TABLE temp.x USING msg_messages(a)");
  host_run(db, "CREATE VIRTUAL TABLE temp.x USING msg_messages");
  assert_int_equal(host_int(db, "SELECT count(*) FROM x"), 2);
}

static void an_empty_file_has_no_messages(void **state) {
  (void)state;
  sqlite3 *fresh = host_open(host_path());
  assert_int_equal(host_int(fresh, "SELECT count(*) FROM msg_messages"), 0);
  assert_int_equal(host_int(fresh, "PRAGMA page_count"), 0);
  host_run(fresh, "DELETE FROM msg_messages; UPDATE msg_messages SET priority = 1");
  host_close(fresh);
}

#define TEST(f) HOST_TEST(f, &db)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(the_plan_says_what_the_store_does),
      TEST(insert_sends_with_the_defaults_of_a_send),
      TEST(insert_sets_every_column_that_a_send_can),
      TEST(a_copy_keeps_what_its_sending_said),
      TEST(update_adds_to_who_has_seen_it),
      TEST(marks_of_who_never_came_are_shown),
      TEST(marks_of_who_never_came_stay_with_a_new_priority),
      TEST(marks_of_who_never_came_go_with_their_messages),
      TEST(columns_override_options),
      TEST(delete_at_ends_a_life),
      TEST(numbers_may_come_as_text),
      TEST(insert_refuses),
      TEST(an_id_that_is_taken_is_a_constraint),
      TEST(insert_select_is_all_or_nothing),
      TEST(the_hosts_last_insert_rowid_stays),
      TEST(update_changes_priority_delivery_and_life),
      TEST(an_update_that_changes_nothing_is_none),
      TEST(an_update_from_another_table_changes_what_it_names),
      TEST(update_refuses_other_columns),
      TEST(delete_removes_in_any_state),
      TEST(writes_during_a_scan_are_safe),
      TEST(a_row_is_written_through_the_node_it_was_read_by),
      TEST(a_node_being_read_cannot_be_closed),
      TEST(views_and_triggers_may_use_it),
      TEST(an_empty_file_has_no_messages),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
