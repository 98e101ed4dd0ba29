#include "ext/program.h"

#include <string.h>

static bool is_opening(const char *opcode) {
  static const char *const OPENING[] = {"OpenRead", "OpenWrite", "ReopenIdx", "Program"};
  for (size_t i = 0; i < sizeof OPENING / sizeof OPENING[0]; i++)
    if (strcmp(opcode, OPENING[i]) == 0)
      return true;
  return false;
}

bool msg_program_look(sqlite3 *db, sqlite3_stmt *running, msg_program *out) {
  char *sql = sqlite3_mprintf("EXPLAIN %s", sqlite3_sql(running));
  sqlite3_stmt *stmt = NULL;
  bool ok = sql && sqlite3_prepare_v2(db, sql, -1, &stmt, NULL) == SQLITE_OK && stmt;
  int rc = SQLITE_DONE;
  while (ok && (rc = sqlite3_step(stmt)) == SQLITE_ROW) {
    const char *opcode = (const char *)sqlite3_column_text(stmt, 1);
    if (!opcode)
      break;
    out->opens = out->opens || is_opening(opcode);
    out->results += strcmp(opcode, "ResultRow") == 0;
    if (strcmp(opcode, "Transaction") == 0)
      out->schemas |= UINT64_C(1) << (sqlite3_column_int(stmt, 2) & 63);
  }
  sqlite3_finalize(stmt);
  sqlite3_free(sql);
  return ok && rc == SQLITE_DONE;
}
