#include "ext/values.h"

#include <inttypes.h>
#include <string.h>

#include "base/str.h"

#define JSON_SUBTYPE 'J' /* 74: SQLite's own mark */

static int read_bytes(sqlite3_value *v, bool text, msg_value *out, msg_err *err) {
  const void *p = text ? (const void *)sqlite3_value_text(v) : sqlite3_value_blob(v);
  int n = sqlite3_value_bytes(v);
  if (!p && (text || n > 0))
    return msg_err_nomem(err);
  union {
    const void *in;
    char *out;
  } cast = {p}; /* borrowed: nobody writes through it */
  *out = (msg_value){.type = text ? MSG_TEXT : MSG_BLOB, .p = cast.out, .n = (size_t)n};
  out->json = text && sqlite3_value_subtype(v) == JSON_SUBTYPE;
  return MSG_OK;
}

int msg_value_read(sqlite3_value *v, msg_value *out, msg_err *err) {
  switch (sqlite3_value_type(v)) {
  case SQLITE_INTEGER: *out = msg_value_int(sqlite3_value_int64(v)); return MSG_OK;
  case SQLITE_FLOAT:
    *out = (msg_value){.type = MSG_REAL, .r = sqlite3_value_double(v)};
    return MSG_OK;
  case SQLITE_TEXT: return read_bytes(v, true, out, err);
  case SQLITE_BLOB: return read_bytes(v, false, out, err);
  default: *out = (msg_value){0}; return MSG_OK;
  }
}

static bool same(const msg_value *a, const msg_value *b) {
  if (a->type != b->type)
    return false;
  switch (a->type) {
  case MSG_NULL: return true;
  case MSG_INT: return a->i == b->i;
  case MSG_REAL: return memcmp(&a->r, &b->r, sizeof a->r) == 0;
  default: return a->n == b->n && (a->n == 0 || memcmp(a->p, b->p, a->n) == 0);
  }
}

int msg_value_holds(const msg_value *now, sqlite3_value *v, bool *out, msg_err *err) {
  msg_value given;
  int rc = msg_value_read(v, &given, err);
  *out = rc == MSG_OK && same(now, &given);
  return rc;
}

void msg_result_value(sqlite3_context *ctx, const msg_value *v) {
  switch (v->type) {
  case MSG_INT: sqlite3_result_int64(ctx, v->i); break;
  case MSG_REAL: sqlite3_result_double(ctx, v->r); break;
  case MSG_TEXT:
    sqlite3_result_text64(ctx, v->p ? v->p : "", v->n, SQLITE_TRANSIENT, SQLITE_UTF8);
    if (v->json)
      sqlite3_result_subtype(ctx, JSON_SUBTYPE);
    break;
  case MSG_BLOB:
    if (v->n > 0)
      sqlite3_result_blob64(ctx, v->p, v->n, SQLITE_TRANSIENT);
    else
      sqlite3_result_zeroblob(ctx, 0);
    break;
  case MSG_NULL: sqlite3_result_null(ctx); break;
  }
}

void msg_result_text(sqlite3_context *ctx, const char *s) {
  sqlite3_result_text(ctx, s, -1, SQLITE_TRANSIENT);
}

void msg_result_oid(sqlite3_context *ctx, const msg_oid *id) {
  char hex[MSG_OID_HEX + 1];
  if (msg_oid_is_zero(id)) {
    sqlite3_result_null(ctx);
    return;
  }
  msg_oid_hex(id, hex);
  sqlite3_result_text(ctx, hex, MSG_OID_HEX, SQLITE_TRANSIENT);
}

/* --- arguments ----------------------------------------------------------------------------- */

int msg_arg_text(sqlite3_value *v, const char *what, const char **out, msg_err *err) {
  msg_value value;
  int rc = msg_value_read(v, &value, err);
  if (rc != MSG_OK)
    return rc;
  if (value.type != MSG_TEXT)
    return msg_err_set(err, MSG_INVALID, "%s is %s: give it text", what, msg_type_name(value.type));
  if (memchr(value.p, '\0', value.n))
    return msg_err_set(err, MSG_INVALID, "%s holds a NUL character: remove it", what);
  *out = value.p;
  return MSG_OK;
}

/* 2^63 is no int64, and neither is NaN. */
static bool is_whole(double r) {
  return r >= -9223372036854775808.0 && r < 9223372036854775808.0 && (double)(int64_t)r == r;
}

int msg_arg_int(sqlite3_value *v, const char *what, int64_t lo, int64_t hi, int64_t *out,
                msg_err *err) {
  msg_value value;
  int rc = msg_value_read(v, &value, err);
  if (rc != MSG_OK)
    return rc;
  if (value.type == MSG_REAL && is_whole(value.r))
    value = msg_value_int((int64_t)value.r);
  if (value.type != MSG_INT)
    return msg_err_set(err, MSG_INVALID, "%s is %s: give it an integer", what,
                       msg_type_name(value.type));
  if (value.i < lo || value.i > hi)
    return msg_err_set(err, MSG_INVALID, "%s is %" PRId64 ": give it %" PRId64 " to %" PRId64, what,
                       value.i, lo, hi);
  *out = value.i;
  return MSG_OK;
}

int msg_arg_oid(sqlite3_value *v, const char *what, msg_oid *out, msg_err *err) {
  const char *text;
  int rc = msg_arg_text(v, what, &text, err);
  if (rc != MSG_OK)
    return rc;
  if (!msg_oid_parse(text, out) || msg_oid_is_zero(out))
    return msg_err_set(err, MSG_INVALID, "%s is '%s', no message id: give it 24 hex digits", what,
                       msg_show(text).s);
  return MSG_OK;
}
