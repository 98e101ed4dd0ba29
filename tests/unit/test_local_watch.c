/* The watch of the local store: what is SQLite's and the system's own. The port's part is in
 * tests/contract. */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/process.h"
#include "base/thread.h"
#include "store/local/host.h"
#include "support/child.h"
#include "support/cmocka_compat.h"
#include "support/deny.h"

enum { SKIPPED = 77 };

#ifdef MSG_NO_INOTIFY
static const char *way = "poll";
#else
static const char *way = "inotify"; /* what watch_info says in these tests */
#endif

struct fixture {
  char dir[64], path[96];
  sqlite3 *db;
  msg_host host;
  msg_store *store;
  msg_session *session;
  msg_watch *watch;
  msg_settings settings;
  msg_err err;
};

static void must(struct fixture *f, int rc, int line) {
  if (rc != MSG_OK)
    print_error("line %d: %s: %s\n", line, msg_rc_name(rc), f->err.text);
  assert_int_equal(rc, MSG_OK);
}
#define MUST(call) must(f, (call), __LINE__)

static void sql(struct fixture *f, const char *text) {
  char *error = NULL;
  if (sqlite3_exec(f->db, text, NULL, NULL, &error) != SQLITE_OK)
    print_error("%s: %s\n", text, error);
  assert_null(error);
}

static void open_all(struct fixture *f) {
  assert_int_equal(sqlite3_open(f->path, &f->db), SQLITE_OK);
  f->host = (msg_host){.db = f->db, .schema = "main"};
  MUST(msg_local_open(&f->host, &f->store, &f->err));
  MUST(f->store->ops->session_open(f->store, &f->host, "msg", &f->settings, &f->session, &f->err));
}

static void close_all(struct fixture *f) {
  if (f->watch)
    f->watch->ops->watch_close(f->watch);
  f->watch = NULL;
  f->session->ops->session_close(f->session);
  f->store->ops->store_close(f->store);
  assert_int_equal(sqlite3_close(f->db), SQLITE_OK);
}

static int setup(void **state) {
  struct fixture *f = calloc(1, sizeof *f);
  assert_non_null(f);
  strcpy(f->dir, "/tmp/msg-watch-XXXXXX");
  assert_non_null(mkdtemp(f->dir));
  snprintf(f->path, sizeof f->path, "%s/file.db", f->dir);
  msg_settings_init(&f->settings);
  open_all(f);
  *state = f;
  return 0;
}

static int teardown(void **state) {
  struct fixture *f = *state;
  char command[160];
  close_all(f);
  msg_settings_clear(&f->settings);
  snprintf(command, sizeof command, "rm -rf '%s'", f->dir);
  assert_int_equal(system(command), 0);
  free(f);
  return 0;
}

static void send(struct fixture *f, bool exclusive) {
  msg_message m;
  msg_message_init(&m);
  m.id = msg_oid_new();
  m.topic = strdup("t");
  m.sender = strdup("s");
  m.exclusive = exclusive;
  m.timing_out = false;
  m.timestamp_ms = m.deliver_at_ms = msg_clock_now_ms();
  msg_actor actor = {.node = "s", .process = msg_process_self(), .settings = &f->settings};
  msg_put put = {.message = &m};
  MUST(f->session->ops->put(f->session, &actor, &put, 1, &f->err));
  free(m.topic);
  free(m.sender);
}

static void watch(struct fixture *f) {
  MUST(f->store->ops->watch_open(f->store, &f->settings, &f->watch, &f->err));
}

static int next(struct fixture *f, int64_t wait_ms) {
  msg_event e;
  return f->watch->ops->watch_next(f->watch, msg_clock_mono_ms() + wait_ms, &e, &f->err);
}

static void drain(struct fixture *f) {
  int rc;
  while ((rc = next(f, 300)) == MSG_OK)
    ;
  assert_int_equal(rc, MSG_TIMEOUT);
}

static const char *how(struct fixture *f) {
  msg_watch_info info;
  f->watch->ops->watch_info(f->watch, &info);
  return info.how;
}

/* Nothing can be read: whoever hears of writes knows that there was none, who polls says so to be
 * safe; so does who hears, of what it was too late to read before. */
static void stays_quiet_behind_a_lock(struct fixture *f) {
  bool polls = strcmp(way, "poll") == 0;
  int rc = next(f, 300);
  for (int i = 0; i < 20 && rc == MSG_OK && !polls; i++)
    rc = next(f, 300);
  assert_int_equal(rc, polls ? MSG_OK : MSG_TIMEOUT);
}

/* ---- journal modes ---- */

static void hears_in_every_journal_mode(void **state) {
  struct fixture *f = *state;
  static const char *const modes[] = {"delete",  "wal",    "truncate", "wal",
                                      "persist", "delete", "memory"};
  send(f, false);
  watch(f);
  assert_string_equal(how(f), way);
  for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
    char text[64];
    snprintf(text, sizeof text, "PRAGMA journal_mode = %s", modes[i]);
    /* WAL cannot be left while another connection is open */
    if (i > 0 && strcmp(modes[i - 1], "wal") == 0) {
      f->watch->ops->watch_close(f->watch);
      sql(f, text);
      watch(f);
    } else {
      sql(f, text);
    }
    for (int n = 0; n < 3; n++) {
      drain(f);
      int64_t before_ms = msg_clock_mono_ms();
      send(f, n == 1);
      assert_int_equal(next(f, 5000), MSG_OK);
      assert_true(msg_clock_mono_ms() - before_ms < 500);
    }
  }
}

/* The -wal is not there yet when the watch begins, and may go away and come again. */
static void hears_of_a_wal_that_comes_later(void **state) {
  struct fixture *f = *state;
  send(f, false);
  watch(f);
  drain(f);
  sql(f, "PRAGMA journal_mode = wal");
  drain(f);
  send(f, false);
  assert_int_equal(next(f, 5000), MSG_OK);
  drain(f);
  sql(f, "PRAGMA wal_checkpoint(truncate)");
  drain(f);
  send(f, false);
  assert_int_equal(next(f, 5000), MSG_OK);
}

/* Writes that commit nothing are no change: spilled pages, checkpoints. */
static void says_nothing_for_what_is_not_committed(void **state) {
  struct fixture *f = *state;
  sql(f, "PRAGMA journal_mode = wal; PRAGMA cache_size = 5; CREATE TABLE big(x)");
  send(f, false);
  watch(f);
  drain(f);
  sql(f, "BEGIN; INSERT INTO big SELECT randomblob(3000) FROM (WITH RECURSIVE n(i) AS (SELECT 1 "
         "UNION ALL"
         " SELECT i + 1 FROM n WHERE i < 2000) SELECT i FROM n)");
  assert_int_equal(next(f, 700), MSG_TIMEOUT);
  sql(f, "ROLLBACK; PRAGMA wal_checkpoint");
  assert_int_equal(next(f, 700), MSG_TIMEOUT);
}

/* Where no lock is to be had, what the system says has to do. */
static void says_so_when_the_file_stays_locked(void **state) {
  struct fixture *f = *state;
  send(f, false);
  sql(f, "PRAGMA locking_mode = exclusive");
  send(f, false); /* takes the lock for good */
  watch(f);
  assert_int_equal(next(f, 1000), MSG_OK); /* the first one always */
  for (int i = 0; i < 3; i++) {
    send(f, false);
    assert_int_equal(next(f, 2000), MSG_OK);
    stays_quiet_behind_a_lock(f);
  }
}

static void waits_beside_a_writer(void **state) {
  struct fixture *f = *state;
  send(f, false);
  watch(f);
  drain(f);
  sql(f, "BEGIN EXCLUSIVE");
  stays_quiet_behind_a_lock(f);
  send(f, false);
  sql(f, "COMMIT");
  assert_int_equal(next(f, 2000), MSG_OK);
}

/* It must not get into anybody's way: no lock between two looks. */
static void holds_no_lock(void **state) {
  struct fixture *f = *state;
  send(f, false);
  watch(f);
  drain(f);
  sql(f, "PRAGMA busy_timeout = 0; BEGIN EXCLUSIVE; COMMIT");
  sql(f, "PRAGMA journal_mode = wal");
  drain(f);
  send(f, false);
  assert_int_equal(next(f, 2000), MSG_OK);
  int busy = -1;
  sqlite3_stmt *stmt = NULL;
  assert_int_equal(sqlite3_prepare_v2(f->db, "PRAGMA wal_checkpoint(truncate)", -1, &stmt, NULL),
                   SQLITE_OK);
  assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
  busy = sqlite3_column_int(stmt, 0);
  sqlite3_finalize(stmt);
  assert_int_equal(busy, 0);
}

/* ---- the file itself ---- */

static void says_when_the_file_is_removed(void **state) {
  struct fixture *f = *state;
  send(f, false);
  watch(f);
  drain(f);
  assert_int_equal(unlink(f->path), 0);
  assert_int_equal(next(f, 5000), MSG_UNAVAILABLE);
  assert_non_null(strstr(f->err.text, f->path));
  assert_int_equal(next(f, 5000), MSG_UNAVAILABLE);
}

static void says_when_the_file_is_moved(void **state) {
  struct fixture *f = *state;
  char other[112];
  send(f, false);
  watch(f);
  drain(f);
  snprintf(other, sizeof other, "%s.old", f->path);
  assert_int_equal(rename(f->path, other), 0);
  assert_int_equal(next(f, 5000), MSG_UNAVAILABLE);
}

static void says_when_the_file_is_replaced(void **state) {
  struct fixture *f = *state;
  char other[112];
  sqlite3 *db = NULL;
  send(f, false);
  watch(f);
  drain(f);
  snprintf(other, sizeof other, "%s.new", f->path);
  assert_int_equal(sqlite3_open(other, &db), SQLITE_OK);
  sqlite3_exec(db, "CREATE TABLE x(y)", NULL, NULL, NULL);
  sqlite3_close(db);
  assert_int_equal(rename(other, f->path), 0);
  assert_int_equal(next(f, 5000), MSG_UNAVAILABLE);
  f->watch->ops->watch_close(f->watch);
  f->watch = NULL;
  assert_int_equal(f->store->ops->watch_open(f->store, &f->settings, &f->watch, &f->err),
                   MSG_UNAVAILABLE);
}

/* ---- owners of claims ---- */

/* Claims in a process of its own, tells so by a byte, and waits to be killed. */
static void claim_and_wait(const char *path, int ready) {
  sqlite3 *db = NULL;
  msg_store *store = NULL;
  msg_session *session = NULL;
  msg_settings settings;
  msg_pattern *p = NULL;
  msg_list list = MSG_LIST_INIT;
  msg_settings_init(&settings);
  if (sqlite3_open(path, &db) != SQLITE_OK)
    _exit(1);
  msg_host host = {.db = db, .schema = "main"};
  if (msg_local_open(&host, &store, NULL) != MSG_OK ||
      store->ops->session_open(store, &host, "msg", &settings, &session, NULL) != MSG_OK ||
      msg_pattern_new("t", &p, NULL) != MSG_OK)
    _exit(2);
  msg_actor actor = {.node = "child", .process = msg_process_self(), .settings = &settings};
  msg_claim claim = {.pattern = p, .count = 1, .lease_ms = 600000};
  if (session->ops->claim(session, &actor, &claim, &list, NULL) != MSG_OK || list.n != 1)
    _exit(3);
  if (write(ready, "x", 1) == 1)
    pause();
  _exit(4);
}

static void wakes_when_an_owner_dies(void **state) {
  struct fixture *f = *state;
  int ready[2];
  char byte;
  sql(f, "PRAGMA journal_mode = wal");
  send(f, true);
  watch(f);
  drain(f);
  assert_int_equal(pipe(ready), 0);
  pid_t child = fork();
  if (child == 0)
    claim_and_wait(f->path, ready[1]);
  assert_int_equal(read(ready[0], &byte, 1), 1);
  drain(f);
  assert_int_equal(next(f, 500), MSG_TIMEOUT);
  assert_int_equal(kill(child, SIGKILL), 0);
  assert_int_equal(waitpid(child, NULL, 0), child);
  int64_t before_ms = msg_clock_mono_ms();
  assert_int_equal(next(f, 5000), MSG_OK);
  assert_true(msg_clock_mono_ms() - before_ms < 600);
  assert_int_equal(next(f, 700), MSG_TIMEOUT); /* told once, though nobody swept it */
  close(ready[0]);
  close(ready[1]);
}

/* ---- cost ---- */

#define SLEEPS_MAX 200 /* in 3 s: a watch without words looks 20 times a second */

/* How often this thread went to sleep: what a second of it costs is in the bench. */
static long sleeps(void) {
  struct rusage usage;
  assert_int_equal(getrusage(RUSAGE_THREAD, &usage), 0);
  return usage.ru_nvcsw;
}

static void idles_cheaply(void **state) {
  struct fixture *f = *state;
  static const char *const modes[] = {"PRAGMA journal_mode = delete", "PRAGMA journal_mode = wal"};
  for (int i = 0; i < 2; i++) {
    sql(f, modes[i]);
    send(f, true);
    watch(f);
    drain(f);
    long before = sleeps();
    assert_int_equal(next(f, 3000), MSG_TIMEOUT);
    long times = sleeps() - before;
    print_message("%s: slept %ld times in 3 s\n", modes[i], times);
    assert_in_range(times, 1, SLEEPS_MAX);
    f->watch->ops->watch_close(f->watch);
    f->watch = NULL;
  }
}

static const char *const names[] = {"CREATE TABLE other(x)"};

/* A schema that is made only while the watch runs, and a file without a store. */
static void watches_a_file_without_a_store(void **state) {
  struct fixture *f = *state;
  watch(f);
  drain(f);
  sql(f, names[0]);
  assert_int_equal(next(f, 2000), MSG_OK);
  drain(f);
  send(f, true);
  assert_int_equal(next(f, 2000), MSG_OK);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

/* What holds whatever the way. */
#define ANY_WAY                                                                                    \
  TEST(hears_in_every_journal_mode), TEST(hears_of_a_wal_that_comes_later),                        \
      TEST(says_nothing_for_what_is_not_committed), TEST(says_so_when_the_file_stays_locked),      \
      TEST(waits_beside_a_writer), TEST(holds_no_lock), TEST(says_when_the_file_is_removed),       \
      TEST(says_when_the_file_is_moved), TEST(says_when_the_file_is_replaced),                     \
      TEST(wakes_when_an_owner_dies), TEST(watches_a_file_without_a_store)

/* Once more where the system gives no word. */
static int run_polling(void *arg) {
  (void)arg;
  static const struct CMUnitTest tests[] = {
      ANY_WAY,
  };
  if (!deny_syscall(SYS_inotify_init1, EMFILE))
    return SKIPPED;
  way = "poll";
  return cmocka_run_group_tests_name("polling", tests, NULL, NULL);
}

static void works_without_words(void **state) {
  (void)state;
  int failed = child_run(run_polling, NULL);
  if (failed == SKIPPED)
    skip();
  assert_int_equal(failed, 0);
}

int main(void) {
  static const struct CMUnitTest tests[] = {
      cmocka_unit_test(works_without_words), /* forks: nothing is open yet */
      ANY_WAY,
      TEST(idles_cheaply),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
