#include "support/host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "support/cmocka_compat.h"

enum { KEPT = 8, TEXT_SIZE = 8192 };

int sqlite3_msg_init(sqlite3 *db, char **error, const void *api);

static char directory[64];

static void remove_directory(void) {
  char command[96];
  snprintf(command, sizeof command, "rm -rf '%s'", directory);
  if (system(command) != 0)
    perror(directory);
}

const char *host_path(void) {
  static char kept[KEPT][128];
  static int n;
  if (!directory[0]) {
    snprintf(directory, sizeof directory, "/tmp/msg-test-XXXXXX");
    assert_non_null(mkdtemp(directory));
    atexit(remove_directory);
  }
  char *path = kept[n % KEPT];
  snprintf(path, sizeof kept[0], "%s/t%d.db", directory, n++);
  return path;
}

bool host_exists(const char *path, const char *suffix) {
  char name[160];
  snprintf(name, sizeof name, "%s%s", path, suffix);
  return access(name, F_OK) == 0;
}

sqlite3 *host_plain(const char *path, int flags) {
  sqlite3 *db;
  if (flags == 0)
    flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
  assert_int_equal(sqlite3_open_v2(path, &db, flags | SQLITE_OPEN_URI, NULL), SQLITE_OK);
  sqlite3_extended_result_codes(db, 1);
  return db;
}

void host_load(sqlite3 *db) {
  char *error = NULL;
  const char *so = getenv("MSG_SO");
  assert_int_equal(sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 1, NULL),
                   SQLITE_OK);
  if (sqlite3_load_extension(db, so ? so : MSG_SO_PATH, NULL, &error) != SQLITE_OK)
    fail_msg("load: %s", error);
}

sqlite3 *host_open(const char *path) {
  sqlite3 *db = host_plain(path, 0);
  host_load(db);
  return db;
}

sqlite3 *host_open_static(const char *path) {
  sqlite3 *db = host_plain(path, 0);
  char *error = NULL;
  int rc = sqlite3_msg_init(db, &error, NULL);
  if (rc != SQLITE_OK_LOAD_PERMANENTLY)
    fail_msg("init: %d %s", rc, error);
  return db;
}

sqlite3 *host_open_node(const char *path, const char *sender_id) {
  sqlite3 *db = host_open(path);
  host_run(db, "PRAGMA journal_mode = wal; SELECT msg_open('local', '{\"sender_id\": \"%s\"}')",
           sender_id);
  return db;
}

int host_setup(void **state) {
  *(sqlite3 **)*state = host_open_node(host_path(), "me");
  return 0;
}

int host_teardown(void **state) {
  host_close(*(sqlite3 **)*state);
  return 0;
}

void host_close(sqlite3 *db) {
  if (sqlite3_close(db) == SQLITE_OK)
    return;
  for (sqlite3_stmt *s = NULL; (s = sqlite3_next_stmt(db, s));)
    print_error("left: %s\n", sqlite3_sql(s));
  fail_msg("close: %s", sqlite3_errmsg(db));
}

static void vrun(sqlite3 *db, char *out, const char *sql, va_list ap) {
  char text[TEXT_SIZE];
  const char *tail = text;
  vsnprintf(text, sizeof text, sql, ap);
  int rc = SQLITE_OK;
  bool got = false;
  snprintf(out, TEXT_SIZE, "none");
  while (rc == SQLITE_OK && tail[strspn(tail, " \n;")]) {
    sqlite3_stmt *stmt;
    rc = sqlite3_prepare_v2(db, tail, -1, &stmt, &tail);
    while (rc == SQLITE_OK && (rc = sqlite3_step(stmt)) == SQLITE_ROW) {
      const char *column = (const char *)sqlite3_column_text(stmt, 0);
      if (!got)
        snprintf(out, TEXT_SIZE, "%s", column ? column : "null");
      got = true;
      rc = SQLITE_OK;
    }
    if (rc == SQLITE_DONE)
      rc = SQLITE_OK;
    if (rc != SQLITE_OK)
      snprintf(out, TEXT_SIZE, "error %d: %s", sqlite3_extended_errcode(db), sqlite3_errmsg(db));
    sqlite3_finalize(stmt);
  }
}

static char *storage(void) {
  static _Thread_local char kept[KEPT][TEXT_SIZE];
  static _Thread_local int n;
  return kept[n++ % KEPT];
}

void host_run(sqlite3 *db, const char *sql, ...) {
  char *out = storage();
  va_list ap;
  va_start(ap, sql);
  vrun(db, out, sql, ap);
  va_end(ap);
  if (strncmp(out, "error ", 6) == 0)
    fail_msg("%s: %s", sql, out);
}

const char *host_text(sqlite3 *db, const char *sql, ...) {
  char *out = storage();
  va_list ap;
  va_start(ap, sql);
  vrun(db, out, sql, ap);
  va_end(ap);
  return out;
}

int64_t host_int(sqlite3 *db, const char *sql, ...) {
  char *out = storage(), *end;
  va_list ap;
  va_start(ap, sql);
  vrun(db, out, sql, ap);
  va_end(ap);
  int64_t n = strtoll(out, &end, 10);
  if (end == out || *end)
    fail_msg("%s: %s", sql, out);
  return n;
}

void host_fails(sqlite3 *db, int code, const char *text, const char *sql, ...) {
  char *out = storage(), want[32];
  va_list ap;
  va_start(ap, sql);
  vrun(db, out, sql, ap);
  va_end(ap);
  snprintf(want, sizeof want, "error %d: ", code);
  if (strncmp(out, want, strlen(want)) != 0 || !strstr(out, text))
    fail_msg("%s: wanted %s...%s..., got %s", sql, want, text, out);
}

void host_sleep_ms(int ms) {
  struct timespec ts = {ms / 1000, (ms % 1000) * 1000000L};
  nanosleep(&ts, NULL);
}

int64_t host_now_ms(void) {
  struct timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}
