/* The life of a connection: loading, what is kept on it, closing, the tables in temp, forks. */
#include "support/cmocka_compat.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/host.h"

static void use(sqlite3 *db) {
  host_run(db, "SELECT msg_listen('news'); SELECT msg_enqueue('work', 1, '{\"priority\": 3}');"
               "SELECT msg_send('news', json_array(1)); SELECT msg_await('news', 0);"
               "SELECT msg_ack(json_extract(msg_claim('work'), '$.id'));"
               "SELECT * FROM msg_claim('work', 10); SELECT count(*) FROM msg_messages;"
               "SELECT msg_doctor()");
}

static void loading_touches_no_file(void **state) {
  (void)state;
  sqlite3 *db = host_open(host_path());
  const char *path = sqlite3_db_filename(db, "main");
  assert_int_equal(host_int(db, "SELECT msg_version() <> ''"), 1);
  assert_string_equal(host_text(db, "SELECT count(*) FROM temp.sqlite_schema"), "0");
  assert_true(host_exists(path, ""));
  assert_int_equal(host_int(db, "PRAGMA page_count"), 0);
  host_close(db);
}

static void loading_twice_is_harmless(void **state) {
  (void)state;
  sqlite3 *db = host_open(host_path());
  host_run(db, "SELECT msg_open()");
  host_load(db);
  use(db);
  host_load(db);
  use(db);
  host_close(db);
}

static void loads_while_locked_exclusively(void **state) {
  (void)state;
  const char *path = host_path();
  sqlite3 *owner = host_plain(path, 0);
  host_run(owner, "PRAGMA locking_mode = EXCLUSIVE; CREATE TABLE app(x)");
  sqlite3 *db = host_open(path);
  host_fails(db, SQLITE_BUSY, "locked", "SELECT msg_send('news', 1)");
  host_close(owner);
  use(db);
  host_close(db);
}

static void closes_with_everything_kept(void **state) {
  static const char *const MODES[] = {"delete", "wal"};
  (void)state;
  for (int i = 0; i < 2; i++) {
    const char *path = host_path();
    sqlite3 *db = host_open(path);
    host_run(db, "PRAGMA journal_mode = %s", MODES[i]);
    use(db);
    host_run(db, "BEGIN; SELECT msg_await('news', 20); COMMIT"); /* makes the aside */
    host_run(db, "SELECT msg_await('news', 20)");                /* makes the cursor thread */
    host_close(db);
    assert_false(host_exists(path, "-wal"));
    assert_false(host_exists(path, "-shm"));
    assert_false(host_exists(path, "-journal"));
  }
}

static void closes_inside_a_transaction(void **state) {
  (void)state;
  const char *path = host_path();
  sqlite3 *db = host_open(path);
  host_run(db, "PRAGMA journal_mode = wal; BEGIN");
  use(db);
  host_close(db);
  db = host_open(path);
  assert_int_equal(host_int(db, "SELECT count(*) FROM msg_messages"), 0);
  host_close(db);
}

static void close_refused_and_tried_again(void **state) {
  (void)state;
  const char *path = host_path();
  sqlite3 *db = host_open(path);
  sqlite3_stmt *stmt;
  host_run(db, "PRAGMA journal_mode = wal");
  use(db);
  assert_int_equal(sqlite3_prepare_v2(db, "SELECT 1 UNION SELECT 2", -1, &stmt, NULL), SQLITE_OK);
  assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
  assert_int_equal(sqlite3_close(db), SQLITE_BUSY);
  use(db); /* it lives on */
  assert_int_equal(sqlite3_close(db), SQLITE_BUSY);
  sqlite3_finalize(stmt);
  host_close(db);
  assert_false(host_exists(path, "-wal"));
}

static void zombies_end(void **state) {
  static const char *const SQL[] = {"SELECT 1 UNION SELECT 2", "SELECT * FROM msg_messages",
                                    "SELECT msg_send('news', 1) UNION SELECT 2"};
  (void)state;
  for (int i = 0; i < 3; i++) {
    const char *path = host_path();
    sqlite3 *db = host_open(path);
    sqlite3_stmt *stmt;
    host_run(db, "PRAGMA journal_mode = wal");
    use(db);
    assert_int_equal(sqlite3_prepare_v2(db, SQL[i], -1, &stmt, NULL), SQLITE_OK);
    sqlite3_step(stmt);
    assert_int_equal(sqlite3_close_v2(db), SQLITE_OK);
    assert_true(host_exists(path, "-wal"));
    sqlite3_step(stmt);
    sqlite3_finalize(stmt);
    assert_false(host_exists(path, "-wal"));
  }
}

static void a_closed_connection_leaves_no_participant(void **state) {
  (void)state;
  const char *path = host_path();
  sqlite3 *a = host_open(path), *b = host_open(path);
  host_run(a, "SELECT msg_open()");
  host_run(b, "SELECT msg_open()");
  assert_int_equal(host_int(a, "SELECT count(*) FROM msg_participants"), 2);
  host_close(b);
  assert_int_equal(host_int(a, "SELECT count(*) FROM msg_participants"), 1);
  assert_string_equal(host_text(a, "SELECT msg_close()"), "1");
  host_fails(a, SQLITE_ERROR, "msg: MISUSE: the node was closed", "SELECT msg_send('news', 1)");
  host_run(a, "SELECT msg_open()");
  assert_int_equal(host_int(a, "SELECT count(*) FROM msg_participants"), 1);
  host_close(a);
}

static void opening_again_is_the_same_node(void **state) {
  (void)state;
  sqlite3 *db = host_open(host_path());
  const char *first = host_text(db, "SELECT msg_open()");
  assert_string_equal(host_text(db, "SELECT msg_open('local', '{\"lease_ms\": 7}')"), first);
  assert_int_equal(host_int(db, "SELECT msg_config('lease_ms')"), 7);
  assert_string_equal(host_text(db, "SELECT msg_open('local:main')"), first);
  assert_int_equal(host_int(db, "SELECT msg_config('lease_ms')"), 7);
  assert_string_not_equal(host_text(db, "SELECT msg_open('local', '{\"queue\": \"q\"}')"), first);
  assert_string_equal(host_text(db, "SELECT msg_open('local', '{\"sender_id\": \"me\"}')"), "me");
  host_close(db);
}

static void last_insert_rowid_is_the_hosts(void **state) {
  (void)state;
  sqlite3 *db = host_open(host_path());
  host_run(db, "CREATE TABLE app(id INTEGER PRIMARY KEY); INSERT INTO app VALUES (4711)");
  use(db);
  host_run(db, "INSERT INTO msg_messages(topic, value) VALUES ('news', 1)");
  assert_int_equal(sqlite3_last_insert_rowid(db), 4711);
  host_run(db, "INSERT INTO app SELECT 4712 WHERE msg_send('news', 1) IS NOT NULL");
  assert_int_equal(sqlite3_last_insert_rowid(db), 4712);
  host_close(db);
}

/* --- the tables in temp -------------------------------------------------------------------- */

static int64_t temp_tables(sqlite3 *db) {
  return host_int(db, "SELECT count(*) FROM temp.sqlite_schema WHERE name GLOB 'msg_*'");
}

static void the_first_verb_makes_the_temp_tables(void **state) {
  (void)state;
  sqlite3 *db = host_open(host_path());
  host_run(db, "SELECT msg_send('news', 1)");
  assert_true(temp_tables(db) > 5);
  host_close(db);
  db = host_open(host_path());
  host_run(db, "SELECT * FROM msg_claim('work')");
  assert_true(temp_tables(db) > 5);
  host_close(db);
}

/* Temp DDL expires running statements; those that open a table later would fail. */
static void the_first_verb_breaks_no_running_statement(void **state) {
  (void)state;
  static const char SETUP[] =
      "CREATE TABLE app(x); INSERT INTO app VALUES (1), (2), (3); CREATE TABLE log(x);"
      "CREATE TRIGGER t AFTER INSERT ON app BEGIN SELECT msg_enqueue('work', new.x);"
      " INSERT INTO log VALUES (new.x); END;";
  sqlite3 *db = host_open(host_path());
  host_run(db, SETUP);
  assert_int_equal(host_int(db, "SELECT (SELECT count(*) FROM app) WHERE msg_send('n', 1) <> ''"),
                   3);
  host_close(db);
  db = host_open(host_path());
  host_run(db, SETUP);
  host_run(db, "INSERT INTO app VALUES (4), (5)");
  assert_int_equal(host_int(db, "SELECT count(*) FROM log"), 2);
  assert_int_equal(host_int(db, "SELECT count(*) FROM msg_messages WHERE topic = 'work'"), 2);
  host_close(db);
  db = host_open(host_path());
  host_run(db, SETUP);
  host_run(db, "INSERT INTO app SELECT msg_enqueue('w', x) FROM app WHERE x < 3");
  host_close(db);
  db = host_open(host_path());
  host_run(db, SETUP);
  sqlite3_stmt *stmt;
  static const char LATE[] = "SELECT (SELECT count(*) FROM app b WHERE b.x >= a.x) FROM app a";
  assert_int_equal(sqlite3_prepare_v2(db, LATE, -1, &stmt, NULL), SQLITE_OK);
  assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
  host_run(db, "SELECT msg_enqueue('w', 1)");
  assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
  assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
  assert_int_equal(sqlite3_step(stmt), SQLITE_DONE);
  sqlite3_finalize(stmt);
  host_run(db, "SELECT msg_enqueue('w', 1)");
  assert_true(temp_tables(db) > 5);
  host_close(db);
}

/* The first table form is run anew by SQLite once the temp tables are there: no row twice. */
static void the_first_table_form_gives_each_row_once(void **state) {
  (void)state;
  static const char *const SQL[] = {
      "SELECT group_concat(value) FROM msg_claim('work', 10)",
      ("SELECT group_concat(x) FROM"
       " (SELECT 'a' AS x UNION ALL SELECT value FROM msg_claim('work', 10))"),
      "SELECT group_concat(value) FROM app LEFT JOIN msg_claim('work', 10)",
  };
  static const char *const WANT[] = {"1,2", "a,1,2", "1,2"};
  for (int i = 0; i < 3; i++) {
    const char *path = host_path();
    sqlite3 *a = host_open(path), *b = host_open(path);
    host_run(a, "CREATE TABLE app(y); INSERT INTO app VALUES (0);"
                "SELECT msg_enqueue('work', 1), msg_enqueue('work', 2)");
    assert_string_equal(host_text(b, SQL[i]), WANT[i]);
    host_close(b);
    host_close(a);
  }
}

static void temp_tables_come_back_after_rollback(void **state) {
  (void)state;
  sqlite3 *db = host_open(host_path());
  host_run(db, "BEGIN; SELECT msg_enqueue('work', 1)");
  assert_true(temp_tables(db) > 5);
  host_run(db, "ROLLBACK");
  assert_int_equal(temp_tables(db), 0);
  host_run(db, "SELECT msg_enqueue('work', 1)");
  assert_true(temp_tables(db) > 5);
  assert_int_equal(host_int(db, "SELECT count(*) FROM msg_claim('work')"), 1);
  host_close(db);
}

static void another_schema_change_is_survived(void **state) {
  (void)state;
  const char *path = host_path();
  sqlite3 *a = host_open(path), *b = host_plain(path, 0);
  host_run(a, "PRAGMA journal_mode = wal");
  use(a);
  for (int i = 0; i < 5; i++) {
    host_run(b, "CREATE TABLE app%d(x)", i);
    use(a);
  }
  host_close(a);
  host_close(b);
  assert_false(host_exists(path, "-wal"));
}

/* --- forks --------------------------------------------------------------------------------- */

static void a_child_gets_the_error(void **state) {
  static const char *const SQL[] = {"SELECT msg_open()",
                                    "SELECT msg_send('news', 1)",
                                    "SELECT msg_await('news', 50)",
                                    "SELECT msg_claim('work')",
                                    "SELECT * FROM msg_claim('work', 2)",
                                    "SELECT count(*) FROM msg_messages",
                                    "SELECT msg_doctor()",
                                    "SELECT msg_close()"};
  (void)state;
  sqlite3 *db = host_open(host_path());
  host_run(db, "PRAGMA journal_mode = wal");
  use(db);
  host_run(db, "SELECT msg_await('news', 20)");
  pid_t pid = fork();
  if (pid == 0) {
    int bad = 0;
    for (size_t i = 0; i < sizeof SQL / sizeof SQL[0]; i++)
      bad += strncmp(host_text(db, "%s", SQL[i]), "error 1: msg: FORKED: ", 22) != 0;
    _exit(bad);
  }
  int status;
  waitpid(pid, &status, 0);
  assert_int_equal(status, 0);
  use(db);
  host_close(db);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(loading_touches_no_file),
      cmocka_unit_test(loading_twice_is_harmless),
      cmocka_unit_test(loads_while_locked_exclusively),
      cmocka_unit_test(closes_with_everything_kept),
      cmocka_unit_test(closes_inside_a_transaction),
      cmocka_unit_test(close_refused_and_tried_again),
      cmocka_unit_test(zombies_end),
      cmocka_unit_test(a_closed_connection_leaves_no_participant),
      cmocka_unit_test(opening_again_is_the_same_node),
      cmocka_unit_test(last_insert_rowid_is_the_hosts),
      cmocka_unit_test(the_first_verb_makes_the_temp_tables),
      cmocka_unit_test(the_first_verb_breaks_no_running_statement),
      cmocka_unit_test(the_first_table_form_gives_each_row_once),
      cmocka_unit_test(temp_tables_come_back_after_rollback),
      cmocka_unit_test(another_schema_change_is_survived),
      cmocka_unit_test(a_child_gets_the_error),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
