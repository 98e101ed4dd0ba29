/* I/O errors: a VFS under the host's connection fails the n-th operation, once or for good.
 * Whatever fails: a clear error, no crash, a sound file, and every send that was acknowledged is
 * there. */
#include "support/cmocka_compat.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sqlite3.h>

int sqlite3_msg_init(sqlite3 *db, char **error, const void *api);

/* ---- the failing VFS: wraps the default one's files ---- */
static struct {
  int countdown; /* operations until the failure */
  bool lasting;  /* every later one fails too */
  int code;      /* SQLITE_IOERR: any operation; SQLITE_FULL: writes only; 0: off */
  int failed;
} fault;

typedef struct file {
  sqlite3_file base;
  sqlite3_file *real;
} file;

static int trip(int code) {
  if (fault.code == 0)
    return SQLITE_OK;
  if (fault.countdown > 0 && --fault.countdown > 0)
    return SQLITE_OK;
  if (fault.failed && !fault.lasting)
    return SQLITE_OK;
  fault.failed++;
  return code;
}

static int trip_io(int code) {
  return fault.code == SQLITE_IOERR ? trip(code) : SQLITE_OK;
}

static sqlite3_file *real(sqlite3_file *f) {
  return ((file *)f)->real;
}

static int f_close(sqlite3_file *f) {
  return real(f)->pMethods->xClose(real(f));
}

static int f_read(sqlite3_file *f, void *p, int n, sqlite3_int64 at) {
  int rc = trip_io(SQLITE_IOERR_READ);
  return rc ? rc : real(f)->pMethods->xRead(real(f), p, n, at);
}

static int f_write(sqlite3_file *f, const void *p, int n, sqlite3_int64 at) {
  int rc = trip(fault.code == SQLITE_FULL ? SQLITE_FULL : SQLITE_IOERR_WRITE);
  return rc ? rc : real(f)->pMethods->xWrite(real(f), p, n, at);
}

static int f_truncate(sqlite3_file *f, sqlite3_int64 n) {
  int rc = trip_io(SQLITE_IOERR_TRUNCATE);
  return rc ? rc : real(f)->pMethods->xTruncate(real(f), n);
}

static int f_sync(sqlite3_file *f, int flags) {
  int rc = trip_io(SQLITE_IOERR_FSYNC);
  return rc ? rc : real(f)->pMethods->xSync(real(f), flags);
}

static int f_size(sqlite3_file *f, sqlite3_int64 *n) {
  int rc = trip_io(SQLITE_IOERR_FSTAT);
  return rc ? rc : real(f)->pMethods->xFileSize(real(f), n);
}

static int f_lock(sqlite3_file *f, int level) {
  int rc = trip_io(SQLITE_IOERR_LOCK);
  return rc ? rc : real(f)->pMethods->xLock(real(f), level);
}

static int f_unlock(sqlite3_file *f, int level) {
  return real(f)->pMethods->xUnlock(real(f), level);
}

static int f_reserved(sqlite3_file *f, int *out) {
  return real(f)->pMethods->xCheckReservedLock(real(f), out);
}

static int f_control(sqlite3_file *f, int op, void *arg) {
  return real(f)->pMethods->xFileControl(real(f), op, arg);
}

static int f_sector(sqlite3_file *f) {
  return real(f)->pMethods->xSectorSize(real(f));
}

static int f_device(sqlite3_file *f) {
  return real(f)->pMethods->xDeviceCharacteristics(real(f));
}

static int f_shm_map(sqlite3_file *f, int page, int size, int extend, void volatile **out) {
  int rc = trip_io(SQLITE_IOERR_SHMMAP);
  return rc ? rc : real(f)->pMethods->xShmMap(real(f), page, size, extend, out);
}

static int f_shm_lock(sqlite3_file *f, int at, int n, int flags) {
  return real(f)->pMethods->xShmLock(real(f), at, n, flags);
}

static void f_shm_barrier(sqlite3_file *f) {
  real(f)->pMethods->xShmBarrier(real(f));
}

static int f_shm_unmap(sqlite3_file *f, int del) {
  return real(f)->pMethods->xShmUnmap(real(f), del);
}

static const sqlite3_io_methods methods = {
    2,          f_close,       f_read,      f_write,   f_truncate, f_sync,   f_size,
    f_lock,     f_unlock,      f_reserved,  f_control, f_sector,   f_device, f_shm_map,
    f_shm_lock, f_shm_barrier, f_shm_unmap, NULL,      NULL};

static sqlite3_vfs *below;

static int v_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *out, int flags,
                  int *out_flags) {
  file *f = (file *)out;
  (void)vfs;
  f->base.pMethods = NULL;
  f->real = (sqlite3_file *)&f[1];
  int rc = trip_io(SQLITE_CANTOPEN);
  if (rc == SQLITE_OK)
    rc = below->xOpen(below, name, f->real, flags, out_flags);
  if (rc == SQLITE_OK)
    f->base.pMethods = &methods;
  return rc;
}

static int setup(void **state) {
  static sqlite3_vfs vfs;
  (void)state;
  below = sqlite3_vfs_find(NULL);
  vfs = *below;
  vfs.zName = "faulty";
  vfs.pNext = NULL;
  vfs.szOsFile = (int)sizeof(file) + below->szOsFile;
  vfs.xOpen = v_open;
  return sqlite3_vfs_register(&vfs, 0);
}

/* ---- the work ---- */
static char path[64];

static sqlite3 *open_db(const char *journal) {
  sqlite3 *db = NULL;
  char sql[64];
  snprintf(sql, sizeof sql, "PRAGMA journal_mode = %s", journal);
  assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, "faulty"),
                   SQLITE_OK);
  assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
  assert_int_equal(sqlite3_msg_init(db, NULL, NULL) & 0xff, SQLITE_OK);
  return db;
}

/* Runs one statement. On failure: an error with a text, and the transaction, if any, is given
 * up. */
static bool run(sqlite3 *db, const char *sql) {
  int rc = sqlite3_exec(db, sql, NULL, NULL, NULL);
  if (rc == SQLITE_OK)
    return true;
  assert_true(strlen(sqlite3_errmsg(db)) > 0);
  assert_string_not_equal(sqlite3_errmsg(db), "not an error");
  if (!sqlite3_get_autocommit(db))
    sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
  return false;
}

static int64_t number(sqlite3 *db, const char *sql) {
  sqlite3_stmt *stmt = NULL;
  assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &stmt, NULL), SQLITE_OK);
  assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
  int64_t n = sqlite3_column_int64(stmt, 0);
  sqlite3_finalize(stmt);
  return n;
}

static bool send_pair(sqlite3 *db) {
  return run(db, "BEGIN IMMEDIATE") && run(db, "SELECT msg_enqueue('keep', 2)") &&
         run(db, "SELECT msg_enqueue('keep', 3)") && run(db, "COMMIT");
}

/* What was promised: bit i of the result is set when send i was acknowledged. */
static unsigned work(sqlite3 *db) {
  unsigned sent = 0;
  run(db, "SELECT msg_open('local')");
  sent |= run(db, "SELECT msg_enqueue('keep', 0)") ? 1u : 0;
  sent |= run(db, "SELECT msg_send('keep', 1, '{\"ttl_ms\":600000}')") ? 2u : 0;
  sent |= send_pair(db) ? 12u : 0;
  run(db, "SELECT msg_enqueue('work', 9)");
  run(db, "SELECT msg_ack(id) FROM msg_claim('work', 1)");
  run(db, "SELECT count(*) FROM msg_messages");
  run(db, "SELECT msg_await('news', 0)");
  run(db, "SELECT depth FROM msg_topics");
  sent |=
      run(db, "INSERT INTO msg_messages(topic, value, exclusive) VALUES('keep', 4, 1)") ? 16u : 0;
  return sent;
}

static void remove_files(void) {
  static const char *const suffix[] = {"", "-wal", "-shm", "-journal"};
  char name[80];
  for (size_t i = 0; i < 4; i++) {
    snprintf(name, sizeof name, "%s%s", path, suffix[i]);
    unlink(name);
  }
}

static void assert_sound(sqlite3 *db) {
  sqlite3_stmt *stmt = NULL;
  assert_int_equal(sqlite3_prepare_v2(db, "PRAGMA integrity_check", -1, &stmt, NULL), SQLITE_OK);
  assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
  assert_string_equal((const char *)sqlite3_column_text(stmt, 0), "ok");
  sqlite3_finalize(stmt);
}

static void check(const char *journal, unsigned sent) {
  sqlite3 *db = open_db(journal);
  assert_sound(db);
  for (int i = 0; i < 5; i++) {
    char sql[128];
    snprintf(sql, sizeof sql,
             "SELECT count(*) FROM msg_messages WHERE topic = 'keep' AND value = %d", i);
    int64_t n = number(db, sql);
    assert_true(n <= 1);
    if (sent & 1u << i)
      assert_int_equal(n, 1);
  }
  int64_t pair =
      number(db, "SELECT count(*) FROM msg_messages WHERE topic = 'keep' AND value IN (2, 3)");
  assert_true(pair == 0 || pair == 2); /* one transaction: both or none */
  assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

static void loop(const char *journal, int code, bool lasting) {
  int failures = 0, failed = 1;
  snprintf(path, sizeof path, "/tmp/msg-io-%d.db", (int)getpid());
  for (int n = 1; failed; n += n > 60 ? 1 + n / 20 : 1) { /* later operations are sampled */
    remove_files();
    sqlite3 *db = open_db(journal);
    fault.countdown = n;
    fault.lasting = lasting;
    fault.failed = 0;
    fault.code = code;
    unsigned sent = work(db);
    fault.code = 0;
    failed = fault.failed;
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    check(journal, sent);
    if (!failed)
      assert_int_equal(sent, 31);
    failures += failed > 0;
  }
  remove_files();
  assert_true(failures > 20);
}

static void test_wal_once(void **state) {
  (void)state;
  loop("wal", SQLITE_IOERR, false);
}

static void test_wal_lasting(void **state) {
  (void)state;
  loop("wal", SQLITE_IOERR, true);
}

static void test_wal_full(void **state) {
  (void)state;
  loop("wal", SQLITE_FULL, true);
}

static void test_journal_once(void **state) {
  (void)state;
  loop("delete", SQLITE_IOERR, false);
}

static void test_journal_lasting(void **state) {
  (void)state;
  loop("delete", SQLITE_IOERR, true);
}

static void test_journal_full(void **state) {
  (void)state;
  loop("delete", SQLITE_FULL, true);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_wal_once),        cmocka_unit_test(test_wal_lasting),
      cmocka_unit_test(test_wal_full),        cmocka_unit_test(test_journal_once),
      cmocka_unit_test(test_journal_lasting), cmocka_unit_test(test_journal_full),
  };
  return cmocka_run_group_tests(tests, setup, NULL);
}
