#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "ext/field.h"
#include "ext/nested.h"
#include "ext/values.h"

/* What the scalar forms show, in their order; the last three of claims alone. */
static const enum msg_field KEYS[] = {
    MSG_FIELD_ID,         MSG_FIELD_TOPIC,        MSG_FIELD_VALUE,     MSG_FIELD_MSG,
    MSG_FIELD_MAP,        MSG_FIELD_ADDITIONAL,   MSG_FIELD_SENDER,    MSG_FIELD_SENDER_HOST,
    MSG_FIELD_RECIPIENTS, MSG_FIELD_IN_ANSWER_TO, MSG_FIELD_EXCLUSIVE, MSG_FIELD_PRIORITY,
    MSG_FIELD_TIMESTAMP,  MSG_FIELD_DELIVER_AT,   MSG_FIELD_DELETE_AT, MSG_FIELD_KEY,
    MSG_FIELD_GROUP,      MSG_FIELD_TOKEN,        MSG_FIELD_ATTEMPTS,  MSG_FIELD_UNTIL,
};
enum { KEY_COUNT = sizeof KEYS / sizeof KEYS[0], CLAIM_KEYS = 3, VALUE_AT = 2 };

bool msg_message_key(const char *key) {
  for (int i = 0; i < KEY_COUNT; i++)
    if (strcmp(key, msg_field_name(KEYS[i])) == 0)
      return true;
  return false;
}

/* In a mask beside one bit a key: the value is JSON. */
#define VALUE_IS_JSON (1u << KEY_COUNT)

/* The members of one object. */
struct object {
  msg_value v[KEY_COUNT];
  unsigned mask; /* which are there */
};

static msg_value json_text(char *text, size_t n, bool owned) {
  return (msg_value){.type = MSG_TEXT, .json = true, .owned = owned, .p = text, .n = n};
}

static int binary(const msg_value *blob, msg_value *out, msg_err *err) {
  msg_str s = MSG_STR_INIT;
  msg_str_append(&s, "{\"$binary\":\"");
  msg_str_append_base64(&s, blob->p, blob->n);
  msg_str_append(&s, "\"}");
  size_t n = s.n;
  char *text = msg_str_take(&s);
  if (!text)
    return msg_err_nomem(err);
  *out = json_text(text, n, true);
  return MSG_OK;
}

/* What JSON has no form for, and booleans, which SQL has none for. */
static int adapt(enum msg_field f, msg_value *v, msg_err *err) {
  static char infinite[] = "9e999", negative[] = "-9e999", yes[] = "true", no[] = "false";
  if (f == MSG_FIELD_EXCLUSIVE)
    *v = v->i ? json_text(yes, sizeof yes - 1, false) : json_text(no, sizeof no - 1, false);
  else if (f == MSG_FIELD_VALUE && v->type == MSG_BLOB)
    return binary(v, v, err);
  else if (f == MSG_FIELD_VALUE && v->type == MSG_REAL && isinf(v->r))
    *v = v->r > 0 ? json_text(infinite, sizeof infinite - 1, false)
                  : json_text(negative, sizeof negative - 1, false);
  return MSG_OK;
}

static int collect(msg_connection *c, const msg_message *m, bool claimed, struct object *o,
                   msg_err *err) {
  int n = claimed ? KEY_COUNT : KEY_COUNT - CLAIM_KEYS;
  for (int i = 0; i < n; i++) {
    int rc = msg_field_value(c, m, KEYS[i], &o->v[i], err);
    if (rc == MSG_OK)
      rc = adapt(KEYS[i], &o->v[i], err);
    if (rc != MSG_OK)
      return rc;
    if (o->v[i].type != MSG_NULL || i == VALUE_AT)
      o->mask |= 1u << i;
  }
  if (o->v[VALUE_AT].json)
    o->mask |= VALUE_IS_JSON;
  return MSG_OK;
}

/* SELECT json_object('id',?1,'topic',?2,'value',json(?3),...) of the present keys. */
static int prepare(msg_connection *c, const struct object *o, sqlite3_stmt **out, msg_err *err) {
  msg_str sql = MSG_STR_INIT;
  const char *comma = "SELECT json_object(";
  for (int i = 0; i < KEY_COUNT; i++) {
    if (!(o->mask & (1u << i)))
      continue;
    msg_str_appendf(&sql, o->v[i].json ? "%s'%s',json(?%d)" : "%s'%s',?%d", comma,
                    msg_field_name(KEYS[i]), i + 1);
    comma = ",";
  }
  msg_str_append(&sql, ")");
  char *text = msg_str_take(&sql);
  if (!text)
    return msg_err_nomem(err);
  int rc = msg_nested_new_shape(c, o->mask, text, out, err);
  msg_free(text);
  return rc;
}

static int bind(sqlite3_stmt *stmt, int i, const msg_value *v) {
  switch (v->type) {
  case MSG_INT: return sqlite3_bind_int64(stmt, i, v->i);
  case MSG_REAL: return sqlite3_bind_double(stmt, i, v->r);
  case MSG_TEXT:
    return sqlite3_bind_text64(stmt, i, v->p ? v->p : "", v->n, SQLITE_STATIC, SQLITE_UTF8);
  default: return SQLITE_OK;
  }
}

static int run(sqlite3_context *ctx, sqlite3_stmt *stmt, const struct object *o, msg_err *err) {
  int rc = SQLITE_OK;
  for (int i = 0; rc == SQLITE_OK && i < KEY_COUNT; i++)
    if (o->mask & (1u << i))
      rc = bind(stmt, i + 1, &o->v[i]);
  if (rc == SQLITE_OK)
    rc = sqlite3_step(stmt);
  if (rc != SQLITE_ROW)
    return msg_nested_fail(stmt, rc, "message as JSON", err);
  sqlite3_result_value(ctx, sqlite3_column_value(stmt, 0));
  sqlite3_result_subtype(ctx, 'J');
  return MSG_OK;
}

int msg_result_message(sqlite3_context *ctx, msg_connection *c, const msg_message *m, bool claimed,
                       msg_err *err) {
  struct object o = {0};
  int rc = collect(c, m, claimed, &o, err);
  sqlite3_stmt *stmt = rc == MSG_OK ? msg_nested_shape(c, o.mask) : NULL;
  if (rc == MSG_OK && !stmt)
    rc = prepare(c, &o, &stmt, err);
  if (rc == MSG_OK)
    rc = run(ctx, stmt, &o, err);
  msg_nested_give(c, stmt);
  for (int i = 0; i < KEY_COUNT; i++)
    msg_value_clear(&o.v[i]);
  return rc;
}
