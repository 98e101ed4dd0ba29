/* Arguments as SQL hands them over: options JSON, ids and batches, patterns, constraints of the
 * tables. The first byte picks the statement, the second how the rest is bound. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <sqlite3.h>

int sqlite3_msg_init(sqlite3 *db, char **error, const void *api);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const statements[] = {
    "SELECT msg_send('t', 1, ?1)",
    "SELECT msg_enqueue('t', ?1, ?1)",
    "SELECT msg_send(?1, ?1)",
    "SELECT msg_open('local', ?1)",
    "SELECT msg_ack(?1)",
    "SELECT msg_release(?1, ?1, ?1)",
    "SELECT msg_extend(?1, 1000, ?1)",
    "SELECT msg_reject(?1, ?1)",
    "SELECT msg_reply(?1, ?1, ?1)",
    "SELECT msg_listen(?1)",
    "SELECT msg_await(?1, 0)",
    "SELECT msg_claim(?1, 1, 1000)",
    "SELECT msg_config('lease_ms', ?1)",
    "SELECT msg_purge(?1)",
    "INSERT INTO msg_messages(topic, value, priority) VALUES('t', ?1, ?1)",
    "SELECT * FROM msg_messages WHERE id = ?1 OR topic = ?1",
    ("SELECT * FROM msg_messages WHERE state IN (?1, 'ready') AND priority > ?1"
     " ORDER BY priority, deliver_at, seq LIMIT 3"),
    "SELECT * FROM msg_claim(?1, ?1) LIMIT 2",
};

static sqlite3 *db;
static sqlite3_stmt *prepared[sizeof statements / sizeof *statements];

static void start(void) {
  if (sqlite3_open(":memory:", &db) != SQLITE_OK ||
      (sqlite3_msg_init(db, NULL, NULL) & 0xff) != SQLITE_OK)
    abort();
  if (sqlite3_exec(db, "SELECT msg_open('local')", NULL, NULL, NULL) != SQLITE_OK)
    abort();
  for (size_t i = 0; i < sizeof statements / sizeof *statements; i++)
    if (sqlite3_prepare_v2(db, statements[i], -1, &prepared[i], NULL) != SQLITE_OK)
      abort();
}

static void bind(sqlite3_stmt *stmt, uint8_t how, const uint8_t *data, int n) {
  switch (how % 4) {
  case 0: sqlite3_bind_text(stmt, 1, (const char *)data, n, SQLITE_STATIC); break;
  case 1: sqlite3_bind_blob(stmt, 1, data, n, SQLITE_STATIC); break;
  case 2:
    sqlite3_bind_int64(stmt, 1, n ? (sqlite3_int64)((sqlite3_uint64)data[0] << n % 57) : 0);
    break;
  default: sqlite3_bind_double(stmt, 1, n ? data[0] / 3.0 - 40 : 0); break;
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static int runs;
  if (!db)
    start();
  if (size < 2 || size > 4096)
    return 0;
  sqlite3_stmt *stmt = prepared[data[0] % (sizeof statements / sizeof *statements)];
  bind(stmt, data[1], data + 2, (int)size - 2);
  int rc;
  while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {}
  if (rc != SQLITE_DONE && !strlen(sqlite3_errmsg(db)))
    abort(); /* an error has a text */
  sqlite3_reset(stmt);
  sqlite3_clear_bindings(stmt);
  if (!sqlite3_get_autocommit(db))
    abort();
  if (++runs % 256 == 0)
    sqlite3_exec(db, "DELETE FROM msg_messages", NULL, NULL, NULL);
  return 0;
}
