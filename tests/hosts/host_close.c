/* host_close FILE: close a connection while another thread waits on it. Prints "ok", or what went
 * wrong.
 *
 * SQLite holds the connection's mutex during a statement, so that sqlite3_close waits for the wait;
 * what must hold is that it does, or that an interrupt before it ends both at once, that the close
 * succeeds, and that nothing crashes. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <sqlite3.h>

static int64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int fail(const char *what, int rc) {
  printf("%s: %d %s\n", what, rc, sqlite3_errstr(rc));
  return 1;
}

static sqlite3 *open_file(const char *path) {
  sqlite3 *db = NULL;
  char *text = NULL;
  if (sqlite3_open(path, &db) == SQLITE_OK && sqlite3_enable_load_extension(db, 1) == SQLITE_OK &&
      sqlite3_load_extension(db, MSG_SO_PATH, NULL, &text) == SQLITE_OK &&
      sqlite3_exec(db, "PRAGMA journal_mode = WAL; SELECT msg_listen('news')", NULL, NULL, &text) ==
          SQLITE_OK)
    return db;
  printf("%s\n", text ? text : sqlite3_errmsg(db));
  sqlite3_close(db);
  return NULL;
}

struct waiter {
  sqlite3 *db;
  const char *sql;
  int rc;
  atomic_bool prepared;
};

static void *wait_for_message(void *arg) {
  struct waiter *w = arg;
  sqlite3_stmt *stmt = NULL;
  w->rc = sqlite3_prepare_v2(w->db, w->sql, -1, &stmt, NULL);
  atomic_store(&w->prepared, true);
  if (w->rc == SQLITE_OK)
    while ((w->rc = sqlite3_step(stmt)) == SQLITE_ROW)
      continue;
  sqlite3_finalize(stmt);
  return NULL;
}

/* Until its statement holds the connection. */
static void wait_for_waiter(struct waiter *w) {
  sqlite3_mutex *mutex = sqlite3_db_mutex(w->db);
  while (!atomic_load(&w->prepared) || sqlite3_mutex_try(mutex) == SQLITE_OK) {
    if (atomic_load(&w->prepared))
      sqlite3_mutex_leave(mutex);
    usleep(1000);
  }
  usleep(50000);
}

/* close_v2 may return before the thread has finalized its statement. */
static int close_during(const char *path, const char *sql, int interrupted, int64_t most_ms) {
  struct waiter w = {.db = open_file(path), .sql = sql};
  pthread_t thread;
  if (!w.db || pthread_create(&thread, NULL, wait_for_message, &w) != 0)
    return fail("start", SQLITE_ERROR);
  wait_for_waiter(&w);
  int64_t begin = now_ms();
  if (interrupted)
    sqlite3_interrupt(w.db);
  int rc = sqlite3_close_v2(w.db);
  pthread_join(thread, NULL);
  if (rc != SQLITE_OK)
    return fail("close", rc);
  if (w.rc != (interrupted ? SQLITE_INTERRUPT : SQLITE_DONE))
    return fail("wait", w.rc);
  if (now_ms() - begin > most_ms) {
    printf("%s took %lld ms\n", sql, (long long)(now_ms() - begin));
    return 1;
  }
  return 0;
}

int main(int argc, char **argv) {
  static const char *const LONG[] = {
      "SELECT msg_await('news', 60000)", "SELECT * FROM msg_await('news', 60000)",
      "SELECT msg_claim('work', 1, 1000, 60000)", "SELECT msg_request('ask', 1, 60000)"};
  static const char *const SHORT[] = {"SELECT msg_await('news', 400)",
                                      "SELECT * FROM msg_claim('work', 1, 1000, 400)"};
  if (argc != 2)
    return 2;
  setvbuf(stdout, NULL, _IONBF, 0);
  for (size_t i = 0; i < sizeof LONG / sizeof LONG[0]; i++)
    if (close_during(argv[1], LONG[i], 1, 1000))
      return 1;
  for (size_t i = 0; i < sizeof SHORT / sizeof SHORT[0]; i++)
    if (close_during(argv[1], SHORT[i], 0, 3000))
      return 1;
  puts("ok");
  return 0;
}
