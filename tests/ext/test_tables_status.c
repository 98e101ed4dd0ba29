/* The inspection tables: what they show, what may be written, and that each shows one moment. */
#include "support/cmocka_compat.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/host.h"

static sqlite3 *db;

static void topics_and_queues_count(void **state) {
  (void)state;
  host_run(
      db,
      "SELECT msg_enqueue('work', 1); SELECT msg_enqueue('work', 2); SELECT msg_enqueue('work', 3);"
      "SELECT msg_enqueue('work', 4, '{\"delay_ms\": 100000}'); SELECT msg_claim('work');"
      "SELECT msg_reject(json_extract(msg_claim('work'), '$.id'), 'no'); SELECT msg_send('news', "
      "1);"
      "SELECT msg_enqueue('work', 5, '{\"group\": \"g\"}'); SELECT msg_enqueue('work', 6, "
      "'{\"group\": \"g\"}');"
      "SELECT msg_listen('news'); SELECT msg_pause('work')");
  assert_string_equal(host_text(db, "SELECT json_array(depth, ready, delayed, claimed, blocked, "
                                    "dead, broadcasts, listeners, paused, note)"
                                    " FROM msg_topics WHERE topic = 'work'"),
                      "[5,2,1,1,1,1,0,0,1,null]");
  assert_string_equal(host_text(db, "SELECT json_array(depth, ready, broadcasts, listeners, "
                                    "paused) FROM msg_topics WHERE topic = 'news'"),
                      "[1,1,1,1,0]");
  assert_int_equal(
      host_int(db, "SELECT count(*) FROM msg_topics WHERE oldest_age_ms BETWEEN 0 AND 60000"), 2);
  assert_string_equal(host_text(db, "SELECT json_array(queue, depth, ready, delayed, claimed, "
                                    "blocked, dead, listeners) FROM msg_queues"),
                      "[\"msg\",6,3,1,1,1,1,1]");
}

static void a_claim_in_vain_is_noted(void **state) {
  (void)state;
  host_run(db, "SELECT msg_send('news', 1); SELECT msg_claim('news')");
  assert_string_equal(host_text(db, "SELECT note FROM msg_topics"),
                      "claimed here, but only broadcasts wait: use msg_await");
  host_run(db, "SELECT msg_enqueue('news', 1); SELECT msg_claim('news')");
  assert_string_equal(host_text(db, "SELECT note FROM msg_topics"), "null");
}

static void locks_are_claims(void **state) {
  (void)state;
  host_run(db, "SELECT msg_enqueue('work', value) FROM json_each('[1, 2, 3]');"
               "CREATE TEMP TABLE c AS SELECT * FROM msg_claim('work', 2)");
  assert_int_equal(
      host_int(db, "SELECT count(*) FROM msg_locks AS l JOIN c USING (id, topic, token, until)"
                   " WHERE owner = 'me' AND since BETWEEN timestamp AND until"),
      2);
  host_run(db, "DELETE FROM msg_locks WHERE id = (SELECT min(id) FROM c)");
  assert_string_equal(
      host_text(db,
                "SELECT group_concat(state) FROM (SELECT state FROM msg_messages ORDER BY seq)"),
      "ready,claimed,ready");
  assert_string_equal(
      host_text(db, "SELECT group_concat(msg_ack(id, token)) FROM (SELECT * FROM c ORDER BY id)"),
      "0,1");
  host_fails(db, SQLITE_ERROR,
             "msg: INVALID: msg_locks shows what is there: rows cannot be inserted",
             "INSERT INTO msg_locks(id) VALUES ('x')");
  host_run(db, "SELECT msg_claim('work')");
  host_fails(db, SQLITE_ERROR, "msg_locks shows what is there: rows cannot be changed",
             "UPDATE msg_locks SET owner = 'x'");
}

/* A process that announces itself and ends without a word. */
static void die_as(const char *node) {
  pid_t child = fork();
  if (child == 0) {
    sqlite3 *own = host_open(sqlite3_db_filename(db, "main"));
    host_run(own, "SELECT msg_open('local', '{\"sender_id\": \"%s\"}'); SELECT msg_send('x', 1)",
             node);
    _exit(0);
  }
  int status = -1;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
}

static void participants_may_be_withdrawn_when_dead(void **state) {
  (void)state;
  host_run(db, "SELECT msg_send('x', 1)");
  die_as("ghost");
  assert_string_equal(
      host_text(
          db,
          "SELECT group_concat(node || alive || automatic) FROM msg_participants ORDER BY node"),
      "ghost00,me10");
  assert_int_equal(
      host_int(db,
               "SELECT count(*) FROM msg_participants WHERE node = 'me' AND pid = %d AND host IS "
               "NOT NULL"
               " AND implementation IS NOT NULL AND layout IS NOT NULL AND last_seen >= started_at"
               " AND heartbeat_age_ms >= 0",
               (int)getpid()),
      1);
  host_fails(db, SQLITE_ERROR, "msg: MISUSE", "DELETE FROM msg_participants");
  assert_int_equal(host_int(db, "SELECT count(*) FROM msg_participants"), 2);
  host_run(db, "DELETE FROM msg_participants WHERE NOT alive");
  assert_string_equal(host_text(db, "SELECT group_concat(node) FROM msg_participants"), "me");
}

static void lanes_may_be_dropped_when_empty_and_orphaned(void **state) {
  (void)state;
  host_run(db, "SELECT msg_send('x', 1, '{\"recipients\": [\"me\", \"gone\"]}')");
  assert_string_equal(host_text(db, "SELECT json_array(lane, owner, depth, owner_alive, orphan) "
                                    "FROM msg_lanes WHERE owner = 'gone'"),
                      "[\"gone\",\"gone\",1,0,1]");
  host_fails(db, SQLITE_ERROR, "msg: MISUSE", "DELETE FROM msg_lanes WHERE owner = 'gone'");
  host_fails(db, SQLITE_ERROR, "msg: MISUSE", "DELETE FROM msg_lanes WHERE owner = 'me'");
  assert_int_equal(host_int(db, "SELECT count(*) FROM msg_lanes WHERE owner IN ('me', 'gone')"), 2);
}

static void listeners_show_this_process_first(void **state) {
  (void)state;
  sqlite3 *other = host_open(sqlite3_db_filename(db, "main"));
  host_run(other,
           "SELECT msg_open('local', '{\"sender_id\": \"a-peer\"}'); SELECT msg_listen('b.*')");
  host_run(db, "SELECT msg_listen('news'); SELECT msg_listen('/^a/')");
  assert_string_equal(host_text(db, "SELECT group_concat(node || ':' || pattern || ':' || here, ' "
                                    "') FROM msg_listeners WHERE node = 'me'"),
                      "me:/^a/:1 me:news:1");
  assert_int_equal(
      host_int(db, "SELECT count(*) FROM msg_listeners WHERE node = 'a-peer' AND pattern = 'b.*'"),
      1);
  assert_int_equal(host_int(db, "SELECT here FROM msg_listeners LIMIT 1"), 1);
  host_close(other);
}

static void stats_count(void **state) {
  (void)state;
  host_run(db, "SELECT msg_enqueue('t', 1); SELECT msg_ack(json_extract(msg_claim('t'), '$.id'));"
               "INSERT INTO msg_messages(topic) VALUES ('t')");
  assert_string_equal(host_text(db, "SELECT group_concat(name || value) FROM msg_stats WHERE node "
                                    "= 'me' AND name IN ('sent', 'claimed', 'acked')"),
                      "sent2,claimed1,acked1");
  assert_int_equal(
      host_int(db, "SELECT count(*) FROM msg_stats WHERE name = 'store_calls' AND value > 3"), 1);
}

static void cursors_show_the_thread(void **state) {
  (void)state;
  host_run(db, "SELECT msg_await('news', 300)");
  assert_string_equal(host_text(db,
                                "SELECT json_array(state, waiters, restarts, last_error) FROM "
                                "msg_cursors WHERE store LIKE '%%' || '%s'",
                                strrchr(sqlite3_db_filename(db, "main"), '/')),
                      "[\"running\",0,0,null]");
}

static void settings_may_be_changed(void **state) {
  (void)state;
  assert_string_equal(host_text(db, "SELECT json_array(value, \"default\", unit, runtime, help IS "
                                    "NOT NULL) FROM msg_settings WHERE name = 'lease_ms'"),
                      "[30000,\"30000\",\"ms\",1,1]");
  assert_string_equal(
      host_text(
          db, "SELECT json_array(value, unit, runtime) FROM msg_settings WHERE name = 'sender_id'"),
      "[\"me\",null,0]");
  host_run(db, "UPDATE msg_settings SET value = 60000 WHERE name = 'lease_ms'");
  assert_int_equal(host_int(db, "SELECT value FROM msg_settings WHERE name = 'lease_ms'"), 60000);
  assert_int_equal(host_int(db, "SELECT msg_config('lease_ms')"), 60000);
  host_fails(db, SQLITE_ERROR, "setting 'queue' is fixed while the node is open",
             "UPDATE msg_settings SET value = 'q' WHERE name = 'queue'");
  host_fails(db, SQLITE_ERROR, "setting 'lease_ms' is 0",
             "UPDATE msg_settings SET value = 0 WHERE name = 'lease_ms'");
  host_fails(db, SQLITE_ERROR, "msg_settings: only value can be changed",
             "UPDATE msg_settings SET unit = 's' WHERE name = 'lease_ms'");
  host_fails(db, SQLITE_ERROR, "msg_settings: only value can be changed",
             "UPDATE msg_settings SET name = 'x', value = 1 WHERE name = 'lease_ms'");
  host_fails(db, SQLITE_ERROR, "msg_settings: only value can be changed",
             "UPDATE msg_settings SET value = 1, unit = n.u FROM (SELECT 's' AS u) AS n"
             " WHERE name = 'lease_ms'");
  host_run(db, "UPDATE msg_settings SET value = n.v FROM (SELECT 'lease_ms' AS k, 60001 AS v) AS n"
               " WHERE name = n.k");
  assert_int_equal(host_int(db, "SELECT msg_config('lease_ms')"), 60001);
  host_run(db, "UPDATE msg_settings SET value = 60000 WHERE name = 'lease_ms'");
  host_fails(db, SQLITE_ERROR, "rows cannot be inserted",
             "INSERT INTO msg_settings(name) VALUES ('x')");
  host_fails(db, SQLITE_ERROR, "rows of msg_settings cannot be deleted",
             "DELETE FROM msg_settings");
  assert_int_equal(host_int(db, "SELECT value FROM msg_settings WHERE name = 'lease_ms'"), 60000);
}

static void the_doctor_is_a_table_too(void **state) {
  (void)state;
  assert_true(
      host_int(db, "SELECT count(*) FROM msg_doctor WHERE item IS NOT NULL AND value IS NOT NULL") >
      5);
}

static void what_only_shows_cannot_be_written(void **state) {
  static const char *const TABLES[] = {"msg_topics",  "msg_queues", "msg_listeners",
                                       "msg_cursors", "msg_stats",  "msg_doctor"};
  (void)state;
  for (size_t i = 0; i < sizeof TABLES / sizeof TABLES[0]; i++)
    host_fails(db, SQLITE_ERROR, "may not be modified", "DELETE FROM %s", TABLES[i]);
}

static void a_cursor_shows_one_moment(void **state) {
  sqlite3_stmt *stmt;
  (void)state;
  host_run(db,
           "SELECT msg_enqueue('a', 1); SELECT msg_enqueue('b', 1); SELECT msg_enqueue('c', 1)");
  assert_int_equal(sqlite3_prepare_v2(db, "SELECT topic, depth FROM msg_topics", -1, &stmt, NULL),
                   SQLITE_OK);
  assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
  host_run(db, "SELECT msg_enqueue('d', 1); DELETE FROM msg_messages WHERE topic <> 'd'");
  int n = 1;
  while (sqlite3_step(stmt) == SQLITE_ROW)
    n += sqlite3_column_int(stmt, 1);
  sqlite3_finalize(stmt);
  assert_int_equal(n, 3);
  assert_string_equal(host_text(db, "SELECT group_concat(topic) FROM msg_topics"), "d");
}

static void views_may_use_them(void **state) {
  (void)state;
  host_run(db, "SELECT msg_enqueue('a', 1); CREATE VIEW w AS SELECT t.topic, count(l.id) AS locks "
               "FROM msg_topics AS t"
               " LEFT JOIN msg_locks AS l ON l.topic = t.topic GROUP BY t.topic");
  assert_string_equal(host_text(db, "SELECT topic || locks FROM w"), "a0");
  host_fails(db, SQLITE_ERROR, "msg_topics takes no arguments",
             "CREATE VIRTUAL TABLE temp.x USING msg_topics(1)");
}

static char logged[512];

static void note_log(void *arg, int code, const char *text) {
  (void)arg;
  if (code == SQLITE_WARNING)
    snprintf(logged, sizeof logged, "%s", text);
}

static void a_send_that_reaches_nobody_is_logged_and_told(void **state) {
  (void)state;
  host_run(db, "SELECT msg_open('local', '{\"sender_id\": \"r\", \"registry_enabled\": true,"
               " \"registry_check_topics\": \"warn\"}')");
  logged[0] = '\0';
  host_run(db, "SELECT msg_send('news', 1)");
  assert_string_equal(logged, "msg: node 'r' sent to topic 'news', to which nobody listens");
  logged[0] = '\0';
  host_run(db, "SELECT msg_send('news', 2)");
  assert_string_equal(logged, "");
  assert_string_equal(host_text(db,
                                "SELECT group_concat(item || ': ' || value) FROM msg_doctor"
                                " WHERE item = 'nobody listens' AND advice LIKE '%%msg_enqueue'"),
                      "nobody listens: news");
}

static void an_empty_file_has_empty_tables(void **state) {
  static const char *const TABLES[] = {"msg_topics",       "msg_queues", "msg_locks",
                                       "msg_participants", "msg_lanes",  "msg_listeners"};
  (void)state;
  sqlite3 *fresh = host_open(host_path());
  for (size_t i = 0; i < sizeof TABLES / sizeof TABLES[0]; i++) {
    if (host_int(fresh, "SELECT count(*) FROM %s", TABLES[i]) != 0)
      fail_msg("%s has rows", TABLES[i]);
  }
  assert_int_equal(host_int(fresh, "PRAGMA page_count"), 0);
  host_run(fresh, "DELETE FROM msg_locks; DELETE FROM msg_lanes; DELETE FROM msg_participants");
  host_close(fresh);
}

#define TEST(f) HOST_TEST(f, &db)

int main(void) {
  sqlite3_config(SQLITE_CONFIG_LOG, note_log, NULL);
  const struct CMUnitTest tests[] = {
      TEST(topics_and_queues_count),
      TEST(a_claim_in_vain_is_noted),
      TEST(locks_are_claims),
      TEST(participants_may_be_withdrawn_when_dead),
      TEST(lanes_may_be_dropped_when_empty_and_orphaned),
      TEST(listeners_show_this_process_first),
      TEST(stats_count),
      TEST(cursors_show_the_thread),
      TEST(settings_may_be_changed),
      TEST(the_doctor_is_a_table_too),
      TEST(what_only_shows_cannot_be_written),
      TEST(a_cursor_shows_one_moment),
      TEST(views_may_use_them),
      TEST(a_send_that_reaches_nobody_is_logged_and_told),
      TEST(an_empty_file_has_empty_tables),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
