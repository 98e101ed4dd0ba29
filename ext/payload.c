#include "ext/payload.h"

#include <math.h>
#include <string.h>

#include "ext/errors.h"

#define JSON_SUBTYPE 'J'

static bool is_whole(double r) {
  return floor(r) == r && fabs(r) < 9e15;
}

/* --- payload to columns -------------------------------------------------------------------- */

/* Takes `sql`. */
static int prepare(sqlite3 *db, sqlite3_str *sql, sqlite3_stmt **out, msg_err *err) {
  char *text = sqlite3_str_finish(sql);
  if (!text)
    return msg_err_nomem(err);
  int rc = sqlite3_prepare_v2(db, text, -1, out, NULL);
  sqlite3_free(text);
  return rc == SQLITE_OK ? MSG_OK : msg_sqlite_fail(db, rc, "payload", err);
}

/* WHERE comes first: json_extract would fail on text that is no JSON. */
int msg_payload_reader(sqlite3 *db, const msg_queue_def *def, sqlite3_stmt **out, msg_err *err) {
  sqlite3_str *sql = sqlite3_str_new(db);
  for (size_t i = 0; i < def->n; i++) {
    sqlite3_str_appendf(sql, "%s json_extract(?1, '$.\"%q\"')", i ? "," : "SELECT",
                        def->columns[i].name);
  }
  sqlite3_str_appendall(sql, " WHERE json_valid(?1)");
  return prepare(db, sql, out, err);
}

/* What a column of this type makes of a value when it is stored. */
void msg_payload_result(sqlite3_context *ctx, sqlite3_stmt *row, int i, enum msg_queue_type type) {
  int is = sqlite3_column_type(row, i);
  bool number = is == SQLITE_INTEGER || is == SQLITE_FLOAT;
  /* Of the row itself, not of a copy: a copy belongs to no connection, and numeric_type needs
   * one. */
  sqlite3_value *v = sqlite3_column_value(row, i);
  if (is == SQLITE_NULL || type == MSG_QUEUE_ANY || (type == MSG_QUEUE_TEXT && !number)) {
    sqlite3_result_value(ctx, v);
    return;
  }
  if (type == MSG_QUEUE_TEXT) {
    sqlite3_result_text(ctx, (const char *)sqlite3_column_text(row, i), -1, SQLITE_TRANSIENT);
    return;
  }
  is = sqlite3_value_numeric_type(v);
  double r = is == SQLITE_FLOAT || is == SQLITE_INTEGER ? sqlite3_value_double(v) : 0;
  if (type == MSG_QUEUE_REAL && is == SQLITE_INTEGER)
    sqlite3_result_double(ctx, r);
  else if (type != MSG_QUEUE_REAL && is == SQLITE_FLOAT && is_whole(r))
    sqlite3_result_int64(ctx, (sqlite3_int64)r);
  else
    sqlite3_result_value(ctx, v);
}

/* --- columns to payload -------------------------------------------------------------------- */

/* Two parameters a column: the value, and whether it is JSON that nests. */
static int prepare_build(sqlite3 *db, const msg_queue_def *def, sqlite3_stmt **out, msg_err *err) {
  sqlite3_str *sql = sqlite3_str_new(db);
  sqlite3_str_appendall(sql, "SELECT json_object(");
  for (int i = 0; i < (int)def->n; i++)
    sqlite3_str_appendf(sql, "%s%Q, CASE ?%d WHEN 1 THEN json(?%d) ELSE ?%d END", i ? "," : "",
                        def->columns[i].name, 2 * i + 2, 2 * i + 1, 2 * i + 1);
  sqlite3_str_appendall(sql, ")");
  return prepare(db, sql, out, err);
}

/* The kept statement, or one of its own for an INSERT inside an INSERT. */
static int take_build(msg_payload_builder *b, sqlite3 *db, const msg_queue_def *def,
                      sqlite3_stmt **out, msg_err *err) {
  if (b->busy)
    return prepare_build(db, def, out, err);
  int rc = b->kept ? MSG_OK : prepare_build(db, def, &b->kept, err);
  b->busy = rc == MSG_OK;
  *out = b->kept;
  return rc;
}

static void give_build(msg_payload_builder *b, sqlite3_stmt *stmt) {
  if (stmt != b->kept) {
    sqlite3_finalize(stmt);
    return;
  }
  sqlite3_reset(stmt);
  sqlite3_clear_bindings(stmt);
  b->busy = false;
}

/* Likewise, on the way in. JSON keeps 15 digits of a real: longer text stays text. */
static int bind_typed(sqlite3_stmt *stmt, int at, sqlite3_value *v, enum msg_queue_type type) {
  int is = sqlite3_value_type(v);
  if (type == MSG_QUEUE_TEXT && (is == SQLITE_INTEGER || is == SQLITE_FLOAT))
    return sqlite3_bind_text(stmt, at, (const char *)sqlite3_value_text(v), -1, SQLITE_TRANSIENT);
  if (type == MSG_QUEUE_TEXT || type == MSG_QUEUE_ANY ||
      (is == SQLITE_TEXT && sqlite3_value_bytes(v) > 15))
    return sqlite3_bind_value(stmt, at, v);
  is = sqlite3_value_numeric_type(v);
  double r = is == SQLITE_FLOAT || is == SQLITE_INTEGER ? sqlite3_value_double(v) : 0;
  if (type == MSG_QUEUE_REAL && is == SQLITE_INTEGER)
    return sqlite3_bind_double(stmt, at, r);
  if (type != MSG_QUEUE_REAL && is == SQLITE_FLOAT && is_whole(r))
    return sqlite3_bind_int64(stmt, at, (sqlite3_int64)r);
  return sqlite3_bind_value(stmt, at, v);
}

static bool holds_nul(sqlite3_value *v) {
  if (sqlite3_value_type(v) != SQLITE_TEXT)
    return false;
  const unsigned char *text = sqlite3_value_text(v);
  return text && memchr(text, '\0', (size_t)sqlite3_value_bytes(v));
}

static int bind_payload(sqlite3 *db, const msg_queue_def *def, sqlite3_stmt *stmt,
                        sqlite3_value **payload, msg_err *err) {
  for (int i = 0; i < (int)def->n; i++) {
    if (sqlite3_value_type(payload[i]) == SQLITE_BLOB)
      return msg_err_set(
          err, MSG_INVALID,
          "column %s is a blob, which JSON cannot hold: send it as text, such as hex()",
          def->columns[i].name);
    if (holds_nul(payload[i]))
      return msg_err_set(err, MSG_INVALID,
                         "column %s holds a NUL character, at which SQLite cuts JSON text: send it "
                         "by msg_enqueue, as the whole value",
                         def->columns[i].name);
    int json = sqlite3_value_subtype(payload[i]) == JSON_SUBTYPE;
    int rc = bind_typed(stmt, 2 * i + 1, payload[i], def->columns[i].type);
    if (rc == SQLITE_OK)
      rc = sqlite3_bind_int(stmt, 2 * i + 2, json);
    if (rc != SQLITE_OK)
      return msg_sqlite_fail(db, rc, "payload", err);
  }
  return MSG_OK;
}

int msg_payload_build(msg_payload_builder *b, sqlite3 *db, const msg_queue_def *def,
                      sqlite3_value **payload, msg_value *out, msg_err *err) {
  sqlite3_stmt *stmt;
  int rc = take_build(b, db, def, &stmt, err);
  if (rc != MSG_OK)
    return rc;
  rc = bind_payload(db, def, stmt, payload, err);
  int step = rc == MSG_OK ? sqlite3_step(stmt) : SQLITE_OK;
  if (rc == MSG_OK && step != SQLITE_ROW)
    rc = msg_sqlite_fail(db, step, "payload", err);
  const char *text = rc == MSG_OK ? (const char *)sqlite3_column_text(stmt, 0) : NULL;
  msg_value borrowed = msg_value_text(text);
  borrowed.json = true;
  if (rc == MSG_OK && (!text || msg_value_copy(out, &borrowed) != MSG_OK))
    rc = msg_err_nomem(err);
  give_build(b, stmt);
  return rc;
}

void msg_payload_builder_clear(msg_payload_builder *b) {
  sqlite3_finalize(b->kept);
  *b = (msg_payload_builder){0};
}
