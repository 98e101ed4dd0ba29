/* Who may call what: schema code, read-only hosts, authorizers. */
#include "support/cmocka_compat.h"

#include <stdio.h>
#include <string.h>

#include "support/host.h"

/* A hostile schema must not consume, block or reconfigure. */
static const char *const DIRECT[] = {
    "msg_open()",       "msg_close()", "msg_config('lease_ms')", "msg_purge('t')",
    "msg_redrive('t')", "msg_await()", "msg_claim('work')",      "msg_request('ask', 1, 1)",
};

static const char *const UNFLAGGED[] = {
    "msg_send('t', 1)",
    "msg_enqueue('t', 1)",
    "msg_ack('aaaaaaaaaaaaaaaaaaaaaaaa')",
    "msg_release('aaaaaaaaaaaaaaaaaaaaaaaa')",
    "msg_extend('aaaaaaaaaaaaaaaaaaaaaaaa', 1)",
    "msg_reject('aaaaaaaaaaaaaaaaaaaaaaaa', 'r')",
    "msg_listen('t')",
    "msg_unlisten('t')",
    "msg_pause('t')",
    "msg_resume('t')",
    "msg_version()",
    "msg_doctor()",
};

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static void views(void **state) {
  (void)state;
  sqlite3 *db = host_open(host_path());
  for (size_t i = 0; i < COUNT(DIRECT); i++) {
    host_run(db, "DROP VIEW IF EXISTS v; CREATE VIEW v AS SELECT %s AS x", DIRECT[i]);
    host_fails(db, SQLITE_ERROR, "unsafe use of msg_", "SELECT * FROM v");
    host_run(db, "SELECT %s", DIRECT[i]);
    if (i == 1)
      host_run(db, "SELECT msg_open()");
  }
  for (size_t i = 0; i < COUNT(UNFLAGGED); i++) {
    host_run(db, "DROP VIEW IF EXISTS v; CREATE VIEW v AS SELECT %s AS x", UNFLAGGED[i]);
    host_run(db, "SELECT * FROM v");
  }
  static const char *const TABLES[] = {"msg_await('t', 0)", "msg_claim('t')",
                                       "msg_request('t', 1, 1)"};
  for (size_t i = 0; i < COUNT(TABLES); i++) {
    host_run(db, "DROP VIEW IF EXISTS v; CREATE VIEW v AS SELECT * FROM %s", TABLES[i]);
    host_fails(db, SQLITE_ERROR, "unsafe use of", "SELECT * FROM v");
  }
  host_run(db, "DROP VIEW v; CREATE VIEW v AS SELECT id FROM main.msg_messages; SELECT * FROM v");
  host_close(db);
}

static void triggers_where_the_schema_is_not_trusted(void **state) {
  (void)state;
  sqlite3 *db = host_open(host_path());
  host_run(db,
           "CREATE TABLE app(x); CREATE TABLE b(x); CREATE TRIGGER t AFTER INSERT ON app BEGIN"
           " SELECT msg_enqueue('work', new.x); END;"
           "CREATE TEMP TRIGGER u AFTER INSERT ON b BEGIN SELECT msg_enqueue('work', new.x); END;");
  host_run(db, "INSERT INTO app VALUES (1); INSERT INTO b VALUES (2)");
  host_run(db, "PRAGMA trusted_schema = OFF; INSERT INTO b VALUES (3)");
  host_fails(db, SQLITE_ERROR, "unsafe use of msg_enqueue()", "INSERT INTO app VALUES (4)");
  assert_string_equal(host_text(db, "SELECT group_concat(value) FROM msg_claim('work', 9)"),
                      "1,2,3");
  host_close(db);
}

/* Verbs that change the file. */
static const char *const WRITES[] = {
    "SELECT msg_send('t', 1)",
    "SELECT msg_enqueue('t', 1)",
    "SELECT msg_await('t', 20)",
    "SELECT * FROM msg_await('t', 20)",
    "SELECT msg_claim('work')",
    "SELECT * FROM msg_claim('work', 2, 1000, 20)",
    "SELECT msg_request('t', 1, 20)",
    "SELECT * FROM msg_request('t', 1, 20)",
    "SELECT msg_listen('t')",
    "SELECT msg_purge('work')",
    "SELECT value, msg_ack(id) FROM msg_claim('work', 2)",
};

static void refuse_all(sqlite3 *db, int code, const char *text) {
  for (size_t i = 0; i < COUNT(WRITES); i++)
    host_fails(db, code, text, "%s", WRITES[i]);
  for (size_t i = 0; i < COUNT(WRITES); i++) { /* where waits look beside the host */
    host_run(db, "BEGIN");
    host_fails(db, code, text, "%s", WRITES[i]);
    if (!sqlite3_get_autocommit(db))
      host_run(db, "ROLLBACK");
  }
}

static const char *filled(void) {
  const char *path = host_path();
  sqlite3 *db = host_open(path);
  host_run(db, "PRAGMA journal_mode = wal; SELECT msg_open('local', '{\"sender_id\": \"x\"}');"
               "SELECT msg_enqueue('work', 1); SELECT msg_send('t', 1)");
  host_close(db);
  return path;
}

static void expect_untouched(const char *path) {
  sqlite3 *db = host_open(path);
  assert_string_equal(host_text(db, "SELECT group_concat(state) FROM msg_messages"), "ready,ready");
  assert_string_equal(host_text(db, "SELECT group_concat(node) FROM msg_participants"), "x");
  assert_string_equal(host_text(db, "SELECT count(*) FROM msg_listeners"), "0");
  host_close(db);
}

static void query_only(void **state) {
  (void)state;
  const char *path = filled();
  sqlite3 *db = host_open(path);
  host_run(db, "SELECT msg_open(); PRAGMA query_only = ON");
  refuse_all(db, SQLITE_READONLY, "msg: READONLY: ");
  assert_int_equal(host_int(db, "SELECT count(*) FROM msg_messages"), 2);
  host_run(db, "PRAGMA query_only = OFF");
  host_close(db);
  expect_untouched(path);
}

static void read_only_file(void **state) {
  (void)state;
  const char *path = filled();
  sqlite3 *db = host_plain(path, SQLITE_OPEN_READONLY);
  host_load(db);
  host_run(db, "SELECT msg_open()");
  refuse_all(db, SQLITE_READONLY, "msg: READONLY: ");
  assert_int_equal(host_int(db, "SELECT count(*) FROM msg_messages"), 2);
  host_close(db);
  expect_untouched(path);
}

/* arg: the schema. */
static int deny_writes(void *arg, int action, const char *a, const char *b, const char *schema,
                       const char *inner) {
  (void)a, (void)b, (void)inner;
  bool writes = action == SQLITE_INSERT || action == SQLITE_UPDATE || action == SQLITE_DELETE;
  return writes && schema && strcmp(schema, arg) == 0 ? SQLITE_DENY : SQLITE_OK;
}

/* Also where a wait would be by a connection of our own, which has no authorizer. */
static void authorizer(void **state) {
  (void)state;
  const char *path = filled();
  sqlite3 *db = host_open(path);
  host_run(db, "SELECT msg_open()"); /* else SQLite refuses the tables themselves */
  char schema[] = "main";
  sqlite3_set_authorizer(db, deny_writes, schema);
  refuse_all(db, SQLITE_AUTH, "msg: AUTH: ");
  sqlite3_set_authorizer(db, NULL, NULL);
  host_close(db);
  expect_untouched(path);
}

static void authorizer_of_an_attached_schema(void **state) {
  (void)state;
  const char *path = filled();
  sqlite3 *db = host_open(host_path());
  host_run(db, "ATTACH '%s' AS aux; SELECT msg_open('local:aux')", path);
  char schema[] = "aux";
  sqlite3_set_authorizer(db, deny_writes, schema);
  refuse_all(db, SQLITE_AUTH, "msg: AUTH: ");
  sqlite3_set_authorizer(db, NULL, NULL);
  host_close(db);
  expect_untouched(path);
}

/* --- SQLITE_IGNORE ------------------------------------------------------------------------- */

static int ignore_action(void *arg, int action, const char *table, const char *b,
                         const char *schema, const char *inner) {
  (void)b, (void)schema, (void)inner;
  bool ours = table && strncmp(table, "msg_store", 9) == 0;
  return ours && action == *(const int *)arg ? SQLITE_IGNORE : SQLITE_OK;
}

/* Verbs that WRITES does not name, and looks. */
static const char *const MORE[] = {
    "SELECT msg_reply('aaaaaaaaaaaaaaaaaaaaaaaa', 1)",
    "SELECT msg_ack('aaaaaaaaaaaaaaaaaaaaaaaa')",
    "SELECT msg_release('aaaaaaaaaaaaaaaaaaaaaaaa')",
    "SELECT msg_extend('aaaaaaaaaaaaaaaaaaaaaaaa', 1)",
    "SELECT msg_reject('aaaaaaaaaaaaaaaaaaaaaaaa', 'r')",
    "SELECT msg_unlisten('t')",
    "SELECT msg_redrive('work')",
    "INSERT INTO msg_messages(topic, value) VALUES ('t', 1)",
    "UPDATE msg_messages SET priority = 1",
    "DELETE FROM msg_messages",
    "DELETE FROM msg_participants",
    "SELECT * FROM msg_messages",
    "SELECT * FROM msg_topics",
    "SELECT * FROM msg_queues",
    "SELECT * FROM msg_locks",
    "SELECT * FROM msg_participants",
    "SELECT * FROM msg_lanes",
    "SELECT * FROM msg_listeners",
};

/* What SQLite leaves out without a word must not look done, whatever was compiled before. */
static void ignored_by(int action, bool warm) {
  const char *path = filled();
  sqlite3 *db = host_open(path);
  host_run(db, "SELECT msg_open()");
  if (warm) /* the statements are kept, and compiled anew under the authorizer */
    host_run(db, "SELECT msg_send('t', 2); SELECT msg_ack(msg_claim('none') ->> 'id')"
                 " FROM (SELECT 1) WHERE 0; SELECT msg_claim('none'); DELETE FROM msg_messages"
                 " WHERE value = 2");
  sqlite3_set_authorizer(db, ignore_action, &action);
  refuse_all(db, SQLITE_AUTH, "msg: AUTH: the host's authorizer answers SQLITE_IGNORE");
  for (size_t i = 0; i < COUNT(MORE); i++)
    host_fails(db, SQLITE_AUTH, "SQLITE_IGNORE", "%s", MORE[i]);
  sqlite3_set_authorizer(db, NULL, NULL);
  assert_string_equal(host_text(db, "SELECT group_concat(state) FROM msg_messages"), "ready,ready");
  assert_string_equal(host_text(db, "SELECT group_concat(value) FROM msg_claim('work', 9)"), "1");
  assert_int_equal(host_int(db, "SELECT msg_send('t', 3) IS NOT NULL"), 1);
  assert_int_equal(host_int(db, "SELECT count(*) FROM msg_messages WHERE value = 3"), 1);
  host_close(db);
}

static void ignored_inserts(void **state) {
  (void)state;
  ignored_by(SQLITE_INSERT, false);
  ignored_by(SQLITE_INSERT, true);
}

static void ignored_updates(void **state) {
  (void)state;
  ignored_by(SQLITE_UPDATE, false);
  ignored_by(SQLITE_UPDATE, true);
}

static void ignored_reads(void **state) {
  (void)state;
  ignored_by(SQLITE_READ, false);
  ignored_by(SQLITE_READ, true);
}

/* One column of one table, and the action: one answer among all. */
struct only {
  int action;
  char table[40], column[40];
};

static int ignore_only(void *arg, int action, const char *table, const char *column,
                       const char *schema, const char *inner) {
  const struct only *o = arg;
  (void)schema, (void)inner;
  bool hit = action == o->action && strcmp(table, o->table) == 0 &&
             (action == SQLITE_INSERT || strcmp(column, o->column) == 0);
  return hit ? SQLITE_IGNORE : SQLITE_OK;
}

static void ignored_columns_one_by_one(void **state) {
  static const int ACTIONS[] = {SQLITE_READ, SQLITE_UPDATE, SQLITE_INSERT};
  (void)state;
  sqlite3 *db = host_open(host_path());
  host_run(db, "SELECT msg_open()");
  host_run(db, "CREATE TABLE column_of AS SELECT t.name AS t, c.name AS c FROM sqlite_schema AS t"
               " JOIN pragma_table_info(t.name) AS c WHERE t.type = 'table'"
               " AND t.name LIKE 'msg!_store%%' ESCAPE '!'");
  int64_t n = host_int(db, "SELECT count(*) FROM column_of");
  assert_int_equal(n, 82);
  for (int64_t i = 1; i <= n; i++) {
    for (size_t a = 0; a < COUNT(ACTIONS); a++) {
      struct only o = {.action = ACTIONS[a]};
      snprintf(o.table, sizeof o.table, "%s",
               host_text(db, "SELECT t FROM column_of WHERE rowid = %lld", (long long)i));
      snprintf(o.column, sizeof o.column, "%s",
               host_text(db, "SELECT c FROM column_of WHERE rowid = %lld", (long long)i));
      if (o.action == SQLITE_UPDATE &&
          host_int(db,
                   "SELECT count(*) FROM sqlite_schema AS t JOIN pragma_table_info(t.name) AS c"
                   " WHERE t.name = '%s' AND c.name = '%s' AND c.pk"
                   " AND t.sql LIKE '%%INTEGER PRIMARY KEY%%'",
                   o.table, o.column) > 0)
        continue; /* SQLite changes a rowid all the same */
      sqlite3_set_authorizer(db, ignore_only, &o);
      host_fails(db, SQLITE_AUTH, "SQLITE_IGNORE", "SELECT msg_send('t', 1)");
      sqlite3_set_authorizer(db, NULL, NULL);
    }
  }
  assert_int_equal(host_int(db, "SELECT count(*) FROM msg_messages"), 0);
  host_run(db, "SELECT msg_send('t', 1)");
  assert_int_equal(host_int(db, "SELECT count(*) FROM msg_messages"), 1);
  host_close(db);
}

/* The first verb makes the tables: then not half of them. */
static void ignored_from_the_first_verb_on(void **state) {
  static int insert = SQLITE_INSERT;
  (void)state;
  sqlite3 *db = host_open(host_path());
  sqlite3_set_authorizer(db, ignore_action, &insert);
  host_fails(db, SQLITE_AUTH, "inserting into table msg_store", "SELECT msg_enqueue('work', 1)");
  assert_int_equal(host_int(db, "SELECT count(*) FROM main.sqlite_schema"), 0);
  sqlite3_set_authorizer(db, NULL, NULL);
  host_run(db, "SELECT msg_enqueue('work', 1)");
  assert_string_equal(host_text(db, "SELECT value FROM msg_claim('work')"), "1");
  assert_int_equal(host_int(db, "SELECT count(*) FROM msg_participants"), 1);
  host_close(db);
}

/* It is no authorizer's doing. */
static void a_host_of_few_variables(void **state) {
  (void)state;
  sqlite3 *db = host_open(host_path());
  int was = sqlite3_limit(db, SQLITE_LIMIT_VARIABLE_NUMBER, 10);
  host_fails(db, SQLITE_ERROR, "variable number must be between ?1 and ?10",
             "SELECT msg_enqueue('work', 1)");
  sqlite3_limit(db, SQLITE_LIMIT_VARIABLE_NUMBER, was);
  host_run(db, "SELECT msg_enqueue('work', 1)");
  assert_string_equal(host_text(db, "SELECT value FROM msg_claim('work')"), "1");
  host_close(db);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(views),
      cmocka_unit_test(triggers_where_the_schema_is_not_trusted),
      cmocka_unit_test(query_only),
      cmocka_unit_test(read_only_file),
      cmocka_unit_test(authorizer),
      cmocka_unit_test(authorizer_of_an_attached_schema),
      cmocka_unit_test(ignored_inserts),
      cmocka_unit_test(ignored_updates),
      cmocka_unit_test(ignored_reads),
      cmocka_unit_test(ignored_columns_one_by_one),
      cmocka_unit_test(ignored_from_the_first_verb_on),
      cmocka_unit_test(a_host_of_few_variables),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
