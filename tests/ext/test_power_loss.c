/* Power loss: a VFS that knows what of each file was synced. At any moment the rest is lost; what
 * remains is a sound file with everything in it that was acknowledged under synchronous = FULL,
 * also by the connection of our own that goes on beside a reading host. */
#include "support/cmocka_compat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/host.h"

/* --- the VFS: the default one's files, with another xSync ---------------------------------- */

enum { FILES = 8 };

static struct shadow { /* what is on the disk for sure */
  char name[160];      /* "": none */
  void *bytes;
  sqlite3_int64 n;
} disk[FILES];

static sqlite3_vfs *below;

/* Ours, behind the file of the default VFS. */
struct tail {
  const char *name;
  const sqlite3_io_methods *real;
  sqlite3_io_methods ours;
};

static struct tail *tail_of(sqlite3_file *f) {
  return (struct tail *)((char *)f + below->szOsFile);
}

static struct shadow *shadow_of(const char *name) {
  struct shadow *unused = NULL;
  for (size_t i = 0; i < FILES; i++) {
    if (strcmp(disk[i].name, name) == 0)
      return &disk[i];
    if (!disk[i].name[0])
      unused = &disk[i];
  }
  assert_non_null(unused);
  return unused;
}

static void forget(struct shadow *s) {
  free(s->bytes);
  memset(s, 0, sizeof *s);
}

static int sync_file(sqlite3_file *f, int flags) {
  const struct tail *t = tail_of(f);
  int rc = t->real->xSync(f, flags);
  if (rc != SQLITE_OK || !t->name)
    return rc;
  struct shadow *s = shadow_of(t->name);
  forget(s);
  snprintf(s->name, sizeof s->name, "%s", t->name);
  assert_int_equal(t->real->xFileSize(f, &s->n), SQLITE_OK);
  s->bytes = malloc((size_t)s->n + 1);
  assert_non_null(s->bytes);
  assert_int_equal(t->real->xRead(f, s->bytes, (int)s->n, 0), SQLITE_OK);
  return SQLITE_OK;
}

static int open_file(sqlite3_vfs *vfs, const char *name, sqlite3_file *f, int flags,
                     int *out_flags) {
  struct tail *t = tail_of(f);
  (void)vfs;
  int rc = below->xOpen(below, name, f, flags, out_flags);
  if (rc != SQLITE_OK)
    return rc;
  *t = (struct tail){.name = name, .real = f->pMethods, .ours = *f->pMethods};
  t->ours.xSync = sync_file;
  f->pMethods = &t->ours;
  return SQLITE_OK;
}

/* The file system keeps its own books: a file removed stays so. */
static int delete_file(sqlite3_vfs *vfs, const char *name, int sync_dir) {
  (void)vfs;
  forget(shadow_of(name));
  return below->xDelete(below, name, sync_dir);
}

static int setup(void **state) {
  static sqlite3_vfs vfs;
  (void)state;
  below = sqlite3_vfs_find(NULL);
  vfs = *below;
  vfs.zName = "lossy";
  vfs.pNext = NULL;
  vfs.szOsFile = below->szOsFile + (int)sizeof(struct tail);
  vfs.xOpen = open_file;
  vfs.xDelete = delete_file;
  return sqlite3_vfs_register(&vfs, 0);
}

/* --- the loss ------------------------------------------------------------------------------ */

static const char *path; /* as it was before the loss */

/* What a machine finds that starts again now. */
static sqlite3 *after_the_loss(void) {
  const char *left = host_path();
  for (size_t i = 0; i < FILES; i++) {
    if (!disk[i].name[0])
      continue;
    char name[200];
    snprintf(name, sizeof name, "%s%s", left, disk[i].name + strlen(path));
    FILE *f = fopen(name, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(disk[i].bytes, 1, (size_t)disk[i].n, f), disk[i].n);
    fclose(f);
  }
  return host_open(left);
}

/* The messages that were acknowledged, in order of sending, are there, and no others. */
static void remains(const char *want) {
  sqlite3 *db = after_the_loss();
  assert_string_equal(host_text(db, "PRAGMA integrity_check"), "ok");
  assert_string_equal(host_text(db, "SELECT group_concat(value) FROM (SELECT value FROM "
                                    "msg_messages ORDER BY seq)"),
                      want);
  host_close(db);
}

static sqlite3 *open_lossy(void) {
  char uri[200];
  snprintf(uri, sizeof uri, "file:%s?vfs=lossy", path);
  return host_open(uri);
}

static sqlite3 *start(const char *journal, const char *synchronous) {
  for (size_t i = 0; i < FILES; i++)
    forget(&disk[i]);
  path = host_path();
  sqlite3 *db = open_lossy();
  host_run(db, "PRAGMA journal_mode = %s; PRAGMA synchronous = %s", journal, synchronous);
  host_run(db, "CREATE TABLE app(x); INSERT INTO app VALUES (1), (2), (3)");
  return db;
}

/* --- the tests ----------------------------------------------------------------------------- */

static void what_was_acknowledged_stays(void **state) {
  static const char *const JOURNALS[] = {"wal", "delete"};
  (void)state;
  for (size_t i = 0; i < 2; i++) {
    sqlite3 *db = start(JOURNALS[i], "full");
    host_run(db, "SELECT msg_enqueue('t', 1)");
    remains("1");
    host_run(db, "BEGIN; INSERT INTO app VALUES (4); SELECT msg_enqueue('t', 2)");
    remains("1");
    host_run(db, "SELECT msg_enqueue('t', 3); COMMIT");
    remains("1,2,3");
    host_run(db, "SELECT msg_ack(id) FROM msg_claim('t')");
    remains("2,3");
    host_run(db, "PRAGMA wal_checkpoint");
    host_run(db, "INSERT INTO msg_messages(topic, value, exclusive) VALUES ('t', 4, 1)");
    remains("2,3,4");
    host_close(db);
    remains("2,3,4");
  }
}

/* While a statement of the host reads temp, the messages stay as they were when first looked at,
 * until another writes: from then on verbs go on beside it. */
static void also_beside_a_reading_host(void **state) {
  (void)state;
  sqlite3 *db = start("wal", "full"), *other = open_lossy();
  sqlite3_stmt *stmt;
  host_run(other, "PRAGMA synchronous = full");
  host_run(
      db,
      "SELECT msg_enqueue('t', 1); CREATE TEMP TABLE mine(x); INSERT INTO mine VALUES (1), (2)");
  assert_int_equal(sqlite3_prepare_v2(db, "SELECT x FROM temp.mine", -1, &stmt, NULL), SQLITE_OK);
  assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
  host_run(db, "SELECT msg_ack('aaaaaaaaaaaaaaaaaaaaaaaa'); SELECT count(*) FROM msg_topics");
  assert_int_equal(sqlite3_txn_state(db, "main"), SQLITE_TXN_READ);
  host_run(other, "SELECT msg_enqueue('t', 2)");
  host_run(db, "SELECT msg_enqueue('t', 3)");
  remains("1,2,3");
  host_run(db, "SELECT msg_ack(id) FROM msg_claim('t')");
  remains("2,3");
  assert_int_equal(sqlite3_txn_state(db, "main"), SQLITE_TXN_READ);
  assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
  sqlite3_finalize(stmt);
  host_run(db, "SELECT msg_enqueue('t', 4)");
  remains("2,3,4");
  host_close(other);
  host_close(db);
}

/* A request inside BEGIN leaves at once, whatever becomes of the transaction. */
static void also_a_request_inside_begin(void **state) {
  (void)state;
  sqlite3 *db = start("wal", "full");
  host_run(db, "SELECT msg_listen('ask')");
  host_run(db, "BEGIN; SELECT msg_request('ask', 'question', 1)");
  remains("question");
  host_run(db, "ROLLBACK");
  remains("question");
  host_close(db);
}

/* Less may be there, but what is there is whole and in order. */
static void with_normal_the_file_stays_sound(void **state) {
  (void)state;
  sqlite3 *db = start("wal", "normal");
  int64_t most = 0;
  for (int i = 1; i <= 60; i++) {
    host_run(db, "BEGIN; SELECT msg_enqueue('t', %d); SELECT msg_enqueue('t', %d); COMMIT", 2 * i,
             2 * i + 1);
    if (i % 20 == 0)
      host_run(db, "PRAGMA wal_checkpoint");
    sqlite3 *left = after_the_loss();
    assert_string_equal(host_text(left, "PRAGMA integrity_check"), "ok");
    int64_t n = host_int(left, "SELECT count(*) FROM msg_messages");
    assert_true(n % 2 == 0 && n >= most && n <= 2 * i);
    assert_int_equal(host_int(left, "SELECT coalesce(max(value), 1) FROM msg_messages"), n + 1);
    most = n;
    host_close(left);
  }
  assert_int_equal(most, 120); /* the last checkpoint */
  host_close(db);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_was_acknowledged_stays),
      cmocka_unit_test(also_beside_a_reading_host),
      cmocka_unit_test(also_a_request_inside_begin),
      cmocka_unit_test(with_normal_the_file_stays_sound),
  };
  return cmocka_run_group_tests(tests, setup, NULL);
}
