/* What belongs to the host: its hooks, its locks, its journal, its checkpoints. */
#include "support/cmocka_compat.h"

#include <string.h>

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

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(hooks_see_what_the_host_commits),
      cmocka_unit_test(a_veto_stops_what_settles),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
