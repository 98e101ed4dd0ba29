/* What belongs to the host: its hooks, its locks, its journal, its checkpoints. */
#include "support/cmocka_compat.h"

#include <string.h>

#include <sys/stat.h>

#include "support/host.h"

/* --- hooks --------------------------------------------------------------------------------- */

struct seen {
  int commits, rollbacks, updates, wals;
  int veto; /* answer of the commit hook */
};

static int on_commit(void *arg) {
  struct seen *s = arg;
  s->commits++;
  return s->veto;
}

static void on_rollback(void *arg) {
  ((struct seen *)arg)->rollbacks++;
}

static void on_update(void *arg, int what, const char *schema, const char *table,
                      sqlite3_int64 row) {
  (void)what, (void)schema, (void)row;
  if (strncmp(table, "msg_store", 9) == 0)
    ((struct seen *)arg)->updates++;
}

static int on_wal(void *arg, sqlite3 *db, const char *schema, int pages) {
  (void)db, (void)schema, (void)pages;
  ((struct seen *)arg)->wals++;
  return SQLITE_OK;
}

static void set_hooks(sqlite3 *db, struct seen *s) {
  sqlite3_commit_hook(db, on_commit, s);
  sqlite3_rollback_hook(db, on_rollback, s);
  sqlite3_update_hook(db, on_update, s);
  sqlite3_wal_hook(db, on_wal, s);
}

/* They stay the host's, and are called for what is sent and settled. */
static void hooks_see_what_the_host_commits(void **state) {
  static const char *const VERBS[] = {
      "SELECT msg_enqueue('work', 1)",
      "SELECT msg_claim('work')",
      "INSERT INTO msg_messages(topic, value) VALUES ('news', 1)",
      "SELECT msg_extend(id, 1000) FROM work",
      "SELECT msg_ack(id) FROM work",
      "SELECT msg_ack(id) FROM msg_locks",
  };
  (void)state;
  sqlite3 *db = host_open_node(host_path(), "me");
  host_run(db, "SELECT msg_enqueue('work', 1); SELECT msg_listen('news');"
               "CREATE TEMP TABLE work AS SELECT id FROM msg_claim('work')");
  struct seen s = {0};
  set_hooks(db, &s);
  for (size_t i = 0; i < sizeof VERBS / sizeof VERBS[0]; i++) {
    s = (struct seen){0};
    host_run(db, "%s", VERBS[i]);
    if (s.commits < 1 || s.updates < 1 || s.wals != s.commits)
      fail_msg("%s: %d commits, %d updates, %d WAL", VERBS[i], s.commits, s.updates, s.wals);
  }
  assert_ptr_equal(sqlite3_commit_hook(db, NULL, NULL), &s);
  assert_ptr_equal(sqlite3_rollback_hook(db, NULL, NULL), &s);
  assert_ptr_equal(sqlite3_update_hook(db, NULL, NULL), &s);
  host_close(db);
}

/* A claim in FROM is made beside the host; what is done with it is not. */
static void a_veto_stops_what_settles(void **state) {
  (void)state;
  sqlite3 *db = host_open_node(host_path(), "me");
  host_run(db, "SELECT msg_enqueue('work', value) FROM json_each('[1,2,3,4]')");
  struct seen s = {.veto = 1};
  set_hooks(db, &s);
  host_fails(db, SQLITE_ERROR, "commit hook refuses it", "SELECT msg_claim('work')");
  assert_int_equal(s.commits, 1);
  host_fails(db, SQLITE_ERROR, "commit hook refuses it",
             "SELECT msg_ack(id) FROM msg_claim('work', 2)");
  assert_int_equal(s.commits, 2);
  host_fails(db, SQLITE_ERROR, "commit hook refuses it", "SELECT msg_ack(id) FROM msg_locks");
  host_fails(db, SQLITE_ERROR, "commit hook refuses it", "SELECT msg_enqueue('work', 5)");
  s.veto = 0;
  assert_int_equal(host_int(db, "SELECT count(*) FROM msg_messages"), 4);
  assert_int_equal(host_int(db, "SELECT count(*) FROM msg_locks"), 2);
  host_close(db);
}

/* --- locks and journal --------------------------------------------------------------------- */

static const char *filled(const char *journal) {
  const char *path = host_path();
  sqlite3 *db = host_open(path);
  host_run(db,
           "PRAGMA journal_mode = %s; SELECT msg_open('local', '{\"sender_id\": \"x\"}');"
           "SELECT msg_enqueue('work', value) FROM json_each('[1,2,3,4,5,6]')",
           journal);
  host_close(db);
  return path;
}

/* What the extension has open is not in the way of a host that locks the file for itself: from its
 * next verb on. */
static void exclusive_after(const char *journal, const char *verb) {
  sqlite3 *db = host_open(filled(journal));
  host_run(db, "SELECT msg_open('local', '{\"busy_timeout_ms\": 200}')");
  host_run(db, "%s", verb);
  host_run(db, "PRAGMA locking_mode = exclusive");
  assert_int_equal(host_int(db, "SELECT msg_enqueue('work', 7) IS NOT NULL"), 1);
  host_run(db, "CREATE TABLE app(x); INSERT INTO app VALUES (1)");
  assert_int_equal(host_int(db, "SELECT count(*) FROM msg_claim('work', 1)"), 1);
  host_run(db, "INSERT INTO msg_messages(topic, value) VALUES ('news', 1)");
  assert_int_equal(host_int(db, "SELECT count(*) FROM msg_await('none', 20)"), 0);
  assert_string_equal(host_text(db, "SELECT msg_claim('none', 1, 1000, 20)"), "null");
  host_run(db, "INSERT INTO app VALUES (2)");
  host_run(db, "PRAGMA locking_mode = normal; SELECT count(*) FROM app");
  assert_int_equal(host_int(db, "SELECT count(*) FROM msg_claim('work', 1)"), 1);
  host_close(db);
}

static void exclusive_locking(void **state) {
  static const char *const VERBS[] = {
      "SELECT value FROM msg_claim('work', 1)", /* a connection beside */
      "SELECT msg_claim('none', 1, 1000, 20)",  /* a cursor thread */
      "SELECT * FROM msg_await('none', 20)",    /* both */
      "BEGIN; SELECT msg_await('none', 20); COMMIT",
  };
  (void)state;
  for (size_t i = 0; i < sizeof VERBS / sizeof VERBS[0]; i++) {
    exclusive_after("wal", VERBS[i]);
    exclusive_after("delete", VERBS[i]);
  }
}

/* A journal mode is changed by who has the file alone. */
static void journal_mode_after_msg_close(void **state) {
  (void)state;
  sqlite3 *db = host_open(filled("wal"));
  host_run(db, "SELECT value FROM msg_claim('work', 1); SELECT * FROM msg_await('none', 20)");
  host_fails(db, SQLITE_BUSY, "locked", "PRAGMA journal_mode = delete");
  host_run(db, "SELECT msg_close()");
  assert_string_equal(host_text(db, "PRAGMA journal_mode = delete"), "delete");
  host_run(db, "SELECT msg_open()");
  assert_int_equal(host_int(db, "SELECT count(*) FROM msg_claim('work', 9)"), 5);
  assert_string_equal(host_text(db, "PRAGMA journal_mode = wal"), "wal");
  assert_int_equal(host_int(db, "SELECT count(*) FROM msg_await('none', 20)"), 0);
  host_close(db);
}

/* --- checkpoints --------------------------------------------------------------------------- */

static int64_t size_of(const char *path) {
  struct stat st;
  assert_int_equal(stat(path, &st), 0); /* opens nothing: SQLite's locks stay */
  return st.st_size;
}

/* A host that checkpoints by itself, or leaves it to another program. */
static void no_checkpoint_where_the_host_makes_none(void **state) {
  (void)state;
  const char *path = filled("wal");
  sqlite3 *db = host_open(path), *reader = host_plain(path, 0);
  host_run(reader, "BEGIN; SELECT count(*) FROM sqlite_schema; COMMIT");
  host_run(db, "PRAGMA wal_autocheckpoint = 0; CREATE TABLE big(x); INSERT INTO big"
               " WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i + 1 FROM n WHERE i < 1500)"
               " SELECT zeroblob(4000) FROM n");
  int64_t pages = host_int(db, "PRAGMA page_count");
  int64_t size = size_of(path);
  assert_true(pages > 1500);
  host_run(db, "SELECT msg_ack(id) FROM msg_claim('work', 1)");
  host_run(db, "BEGIN; SELECT msg_await('none', 20); COMMIT");
  sqlite3 *second = host_open(path); /* its node's row goes with it, by a connection of our own */
  host_run(second, "PRAGMA wal_autocheckpoint = 0; SELECT msg_send('t', 1)");
  host_close(second);
  assert_int_equal(size_of(path), size);
  host_run(db, "PRAGMA wal_autocheckpoint = 6000; SELECT count(*) FROM msg_claim('work', 1)");
  assert_int_equal(size_of(path), size);
  host_run(db, "PRAGMA wal_autocheckpoint = 1000; SELECT count(*) FROM msg_claim('work', 1)");
  assert_true(size_of(path) > size);
  host_close(reader);
  host_close(db);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(hooks_see_what_the_host_commits),
      cmocka_unit_test(a_veto_stops_what_settles),
      cmocka_unit_test(exclusive_locking),
      cmocka_unit_test(journal_mode_after_msg_close),
      cmocka_unit_test(no_checkpoint_where_the_host_makes_none),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
