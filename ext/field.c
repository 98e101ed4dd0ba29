#include "ext/field.h"

#include "base/mem.h"
#include "ext/nested.h"
#include "ext/values.h"

static const struct {
  const char *name, *type;
  bool read_only;
} FIELDS[MSG_FIELD_COUNT] = {
    [MSG_FIELD_ID] = {"id", "TEXT", false},
    [MSG_FIELD_TOPIC] = {"topic", "TEXT", false},
    [MSG_FIELD_VALUE] = {"value", "", false},
    [MSG_FIELD_MSG] = {"msg", "TEXT", false},
    [MSG_FIELD_MAP] = {"map", "TEXT", false},
    [MSG_FIELD_ADDITIONAL] = {"additional", "TEXT", false},
    [MSG_FIELD_SENDER] = {"sender", "TEXT", false},
    [MSG_FIELD_SENDER_HOST] = {"sender_host", "TEXT", false},
    [MSG_FIELD_RECIPIENTS] = {"recipients", "TEXT", false},
    [MSG_FIELD_IN_ANSWER_TO] = {"in_answer_to", "TEXT", false},
    [MSG_FIELD_PROCESSED_BY] = {"processed_by", "TEXT", false},
    [MSG_FIELD_EXCLUSIVE] = {"exclusive", "INTEGER", false},
    [MSG_FIELD_PRIORITY] = {"priority", "INTEGER", false},
    [MSG_FIELD_TIMESTAMP] = {"timestamp", "INTEGER", false},
    [MSG_FIELD_TTL] = {"ttl", "INTEGER", false},
    [MSG_FIELD_TIMING_OUT] = {"timing_out", "INTEGER", false},
    [MSG_FIELD_DELETE_AT] = {"delete_at", "INTEGER", false},
    [MSG_FIELD_DELETE_AFTER_PROCESSING] = {"delete_after_processing", "INTEGER", false},
    [MSG_FIELD_DELETE_AFTER_PROCESSING_TIME] = {"delete_after_processing_time", "INTEGER", false},
    [MSG_FIELD_DELIVER_AT] = {"deliver_at", "INTEGER", false},
    [MSG_FIELD_KEY] = {"key", "TEXT", false},
    [MSG_FIELD_GROUP] = {"group", "TEXT", false},
    [MSG_FIELD_STATE] = {"state", "TEXT", true},
    [MSG_FIELD_ATTEMPTS] = {"attempts", "INTEGER", false},
    [MSG_FIELD_REASON] = {"reason", "TEXT", false},
    [MSG_FIELD_OWNER] = {"owner", "TEXT", true},
    [MSG_FIELD_TOKEN] = {"token", "TEXT", true},
    [MSG_FIELD_SINCE] = {"since", "INTEGER", true},
    [MSG_FIELD_UNTIL] = {"until", "INTEGER", true},
    [MSG_FIELD_SEQ] = {"seq", "INTEGER", true},
};

const char *msg_field_name(enum msg_field f) {
  return FIELDS[f].name;
}

const char *msg_field_type(enum msg_field f) {
  return FIELDS[f].type;
}

bool msg_field_read_only(enum msg_field f) {
  return FIELDS[f].read_only;
}

void msg_field_declare(msg_str *sql, enum msg_field f) {
  msg_str_appendf(sql, "\"%s\" %s", FIELDS[f].name, FIELDS[f].type);
}

/* --- values -------------------------------------------------------------------------------- */

/* SQLite's quoting is the only JSON writer here. */
static int append_quoted(sqlite3_stmt *quote, const char *text, msg_str *out, msg_err *err) {
  int rc = sqlite3_bind_text(quote, 1, text, -1, SQLITE_STATIC);
  if (rc != SQLITE_OK || (rc = sqlite3_step(quote)) != SQLITE_ROW)
    return msg_nested_fail(quote, rc, "JSON array", err);
  const char *quoted = (const char *)sqlite3_column_text(quote, 0);
  if (!quoted)
    return msg_err_nomem(err);
  msg_str_append(out, quoted);
  sqlite3_reset(quote);
  return MSG_OK;
}

static int json_array(msg_connection *c, char *const *texts, size_t n, msg_value *out,
                      msg_err *err) {
  sqlite3_stmt *quote;
  msg_str s = MSG_STR_INIT;
  int rc = msg_nested_take(c, MSG_NESTED_QUOTE, &quote, err);
  if (rc != MSG_OK)
    return rc;
  for (size_t i = 0; rc == MSG_OK && i < n; i++) {
    msg_str_append(&s, i ? "," : "[");
    rc = append_quoted(quote, texts[i], &s, err);
  }
  msg_nested_give(c, quote);
  msg_str_append(&s, n ? "]" : "[]");
  size_t bytes = s.n;
  char *text = rc == MSG_OK ? msg_str_take(&s) : NULL;
  if (rc == MSG_OK && !text)
    rc = msg_err_nomem(err);
  if (rc == MSG_OK)
    *out = (msg_value){.type = MSG_TEXT, .json = true, .owned = true, .p = text, .n = bytes};
  msg_str_clear(&s);
  return rc;
}

static msg_value json(const char *text) {
  msg_value v = msg_value_text(text);
  v.json = text != NULL;
  return v;
}

/* Zero, or "never", is how a message says that it has none. */
static msg_value time_or_null(int64_t ms) {
  return ms == 0 || ms == MSG_NEVER ? (msg_value){0} : msg_value_int(ms);
}

static int oid_value(const msg_oid *id, msg_value *out, msg_err *err) {
  if (msg_oid_is_zero(id))
    return MSG_OK;
  char *hex = msg_alloc(MSG_OID_HEX + 1);
  if (!hex)
    return msg_err_nomem(err);
  msg_oid_hex(id, hex);
  *out = (msg_value){.type = MSG_TEXT, .owned = true, .p = hex, .n = MSG_OID_HEX};
  return MSG_OK;
}

static int recipients_value(msg_connection *c, const msg_message *m, msg_value *out, msg_err *err) {
  return m->recipients ? json_array(c, m->recipients, m->recipient_count, out, err) : MSG_OK;
}

static msg_value value_of(const msg_message *m) {
  msg_value v = m->value;
  v.owned = false;
  return v;
}

int msg_field_value(msg_connection *c, const msg_message *m, enum msg_field f, msg_value *out,
                    msg_err *err) {
  msg_value v = {0};
  *out = v;
  switch (f) {
  case MSG_FIELD_ID: return oid_value(&m->id, out, err);
  case MSG_FIELD_IN_ANSWER_TO: return oid_value(&m->in_answer_to, out, err);
  case MSG_FIELD_RECIPIENTS: return recipients_value(c, m, out, err);
  case MSG_FIELD_TOPIC: v = msg_value_text(m->topic); break;
  case MSG_FIELD_VALUE: v = value_of(m); break;
  case MSG_FIELD_MSG: v = msg_value_text(m->msg); break;
  case MSG_FIELD_MAP: v = json(m->map); break;
  case MSG_FIELD_ADDITIONAL: v = json(m->additional); break;
  case MSG_FIELD_SENDER: v = msg_value_text(m->sender); break;
  case MSG_FIELD_SENDER_HOST: v = msg_value_text(m->sender_host); break;
  case MSG_FIELD_PROCESSED_BY: v = json(m->processed_by); break;
  case MSG_FIELD_EXCLUSIVE: v = msg_value_int(m->exclusive); break;
  case MSG_FIELD_PRIORITY: v = msg_value_int(m->priority); break;
  case MSG_FIELD_TIMESTAMP: v = msg_value_int(m->timestamp_ms); break;
  case MSG_FIELD_TTL: v = msg_value_int(m->timing_out ? m->ttl_ms : 0); break; /* Morphium: 0 */
  case MSG_FIELD_TIMING_OUT: v = msg_value_int(m->timing_out); break;
  case MSG_FIELD_DELETE_AT: v = time_or_null(m->delete_at_ms); break;
  case MSG_FIELD_DELETE_AFTER_PROCESSING: v = msg_value_int(m->delete_after_processing); break;
  case MSG_FIELD_DELETE_AFTER_PROCESSING_TIME:
    v = msg_value_int(m->delete_after_processing_ms);
    break;
  case MSG_FIELD_DELIVER_AT: v = msg_value_int(m->deliver_at_ms); break;
  case MSG_FIELD_KEY: v = msg_value_text(m->key); break;
  case MSG_FIELD_GROUP: v = msg_value_text(m->group); break;
  case MSG_FIELD_STATE: v = msg_value_text(msg_state_name(m->state)); break;
  case MSG_FIELD_ATTEMPTS: v = msg_value_int(m->attempts); break;
  case MSG_FIELD_REASON: v = msg_value_text(m->reason); break;
  case MSG_FIELD_OWNER: v = msg_value_text(m->owner); break;
  case MSG_FIELD_TOKEN: v = msg_value_text(m->token[0] ? m->token : NULL); break;
  case MSG_FIELD_SINCE: v = time_or_null(m->since_ms); break;
  case MSG_FIELD_UNTIL: v = time_or_null(m->until_ms); break;
  case MSG_FIELD_SEQ: v = time_or_null(m->seq); break;
  case MSG_FIELD_COUNT: break;
  }
  *out = v;
  return MSG_OK;
}

void msg_result_field(sqlite3_context *ctx, msg_connection *c, const msg_message *m,
                      enum msg_field f) {
  msg_value v;
  msg_err err = MSG_ERR_INIT;
  if (f == MSG_FIELD_ID && !msg_oid_is_zero(&m->id)) {
    msg_result_oid(ctx, &m->id);
    return;
  }
  if (msg_field_value(c, m, f, &v, &err) != MSG_OK) {
    msg_result_error(ctx, &err);
    return;
  }
  msg_result_value(ctx, &v);
  msg_value_clear(&v);
}
