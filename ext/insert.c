#include "ext/insert.h"

#include <math.h>

#include "base/mem.h"
#include "base/str.h"
#include "ext/marks.h"
#include "ext/nested.h"
#include "ext/tables.h"
#include "ext/values.h"
#include "model/topic.h"

/* --- sending ------------------------------------------------------------------------------- */

/* An end given as a time: life is what remains of it from delivery on, as for ttl. */
static int end_at(msg_message *m, int64_t delete_at_ms, msg_err *err) {
  if (m->copied) { /* it has its ttl, and the end may be sooner by now */
    if (m->state != MSG_STATE_DEAD)
      m->delete_at_ms = delete_at_ms;
    return MSG_OK;
  }
  int64_t birth_ms = m->deliver_at_ms > m->timestamp_ms ? m->deliver_at_ms : m->timestamp_ms;
  if (delete_at_ms <= birth_ms)
    return msg_err_set(
        err, MSG_INVALID,
        "column delete_at is %lld, not after the delivery at %lld: give a later time",
        (long long)delete_at_ms, (long long)birth_ms);
  m->timing_out = true;
  m->ttl_ms = delete_at_ms - birth_ms;
  m->delete_at_ms = delete_at_ms;
  return MSG_OK;
}

int msg_insert_send(msg_connection *c, const char *node, msg_options *o, int64_t delete_at_ms,
                    msg_err *err) {
  msg_opened *opened;
  msg_call call;
  int rc = msg_connection_node(c, node ? node : o->node, &opened, err);
  if (rc == MSG_OK)
    rc = msg_node_fill(opened->node, &o->m, o, err);
  if (rc == MSG_OK && delete_at_ms != MSG_NEVER)
    rc = end_at(&o->m, delete_at_ms, err);
  if (rc == MSG_OK)
    rc = msg_connection_call(c, opened, MSG_CALL_WRITE, &call, err);
  return rc == MSG_OK ? msg_node_send(opened->node, &call, &o->m, 1, NULL, NULL, err) : rc;
}

/* --- one column ---------------------------------------------------------------------------- */

enum kind { KIND_TEXT, KIND_INT, KIND_JSON, KIND_RECIPIENTS };

/* Columns that are options of a send. */
static const struct column {
  enum msg_field field;
  const char *key;
  enum kind kind;
} COLUMNS[] = {
    {MSG_FIELD_ID, "id", KIND_TEXT},
    {MSG_FIELD_MSG, "msg", KIND_TEXT},
    {MSG_FIELD_MAP, "map", KIND_JSON},
    {MSG_FIELD_ADDITIONAL, "additional", KIND_JSON},
    {MSG_FIELD_RECIPIENTS, "recipients", KIND_RECIPIENTS},
    {MSG_FIELD_IN_ANSWER_TO, "in_answer_to", KIND_TEXT},
    {MSG_FIELD_EXCLUSIVE, "exclusive", KIND_INT},
    {MSG_FIELD_PRIORITY, "priority", KIND_INT},
    {MSG_FIELD_TTL, "ttl_ms", KIND_INT},
    {MSG_FIELD_TIMING_OUT, "timing_out", KIND_INT},
    {MSG_FIELD_DELETE_AFTER_PROCESSING, "delete_after_processing", KIND_INT},
    {MSG_FIELD_DELETE_AFTER_PROCESSING_TIME, "delete_after_processing_ms", KIND_INT},
    {MSG_FIELD_DELIVER_AT, "deliver_at", KIND_INT},
    {MSG_FIELD_KEY, "key", KIND_TEXT},
    {MSG_FIELD_GROUP, "group", KIND_TEXT},
};

static bool is_null(sqlite3_value *v) {
  return sqlite3_value_type(v) == SQLITE_NULL;
}

/* A virtual table gets values as they were written; an ordinary INTEGER column would have made
 * numbers of these. */
static int int_value(sqlite3_value *v, msg_value *out, msg_err *err) {
  sqlite3_value_numeric_type(v);
  int rc = msg_value_read(v, out, err);
  if (rc == MSG_OK && out->type == MSG_REAL && floor(out->r) == out->r && fabs(out->r) < 9e15)
    *out = msg_value_int((int64_t)out->r);
  return rc;
}

static int malformed(sqlite3_stmt *json, enum msg_field f, int sqlite_rc, const char *text,
                     msg_err *err) {
  if (sqlite_rc != SQLITE_ERROR)
    return msg_nested_fail(json, sqlite_rc, "JSON", err);
  return msg_err_set(err, MSG_INVALID,
                     "column %s '%s' is not well-formed JSON: make it with json_object() or "
                     "json_array()",
                     msg_field_name(f), msg_show(text).s);
}

/* In SQLite's own spelling, which is strict JSON whatever its newer functions read. */
static int set_json(msg_connection *c, msg_options *o, const struct column *col, sqlite3_value *v,
                    msg_err *err) {
  msg_value value;
  sqlite3_stmt *json;
  int rc = msg_value_read(v, &value, err);
  if (rc != MSG_OK)
    return rc;
  if (value.type != MSG_TEXT)
    return msg_options_set(o, MSG_VERB_SEND, col->key, &value, false, err);
  char what[64];
  sqlite3_snprintf((int)sizeof what, what, "column %s", msg_field_name(col->field));
  rc = msg_json_whole(&value, what, err);
  if (rc == MSG_OK)
    rc = msg_nested_take(c, MSG_NESTED_JSON, &json, err);
  if (rc != MSG_OK)
    return rc;
  int step = sqlite3_bind_text64(json, 1, value.p, value.n, SQLITE_STATIC, SQLITE_UTF8);
  if (step == SQLITE_OK)
    step = sqlite3_step(json);
  rc = step == SQLITE_ROW ? msg_value_read(sqlite3_column_value(json, 0), &value, err)
                          : malformed(json, col->field, step, value.p, err);
  value.json = true;
  if (rc == MSG_OK)
    rc = msg_options_set(o, MSG_VERB_SEND, col->key, &value, false, err);
  msg_nested_give(c, json);
  return rc;
}

static int add_recipient(void *arg, const char *key, const msg_value *v, bool is_bool,
                         msg_err *err) {
  (void)key, (void)is_bool;
  return msg_options_add(arg, MSG_VERB_SEND, "recipients", v, err);
}

static int set_recipients(msg_connection *c, msg_options *o, sqlite3_value *v, msg_err *err) {
  msg_value array;
  int rc = msg_value_read(v, &array, err);
  if (rc == MSG_OK && array.type != MSG_TEXT)
    rc = msg_err_set(err, MSG_INVALID, "column recipients is %s: give a JSON array of sender ids",
                     msg_type_name(array.type));
  if (rc == MSG_OK)
    rc = msg_options_add(o, MSG_VERB_SEND, "recipients", NULL, err);
  return rc == MSG_OK ? msg_json_array(c, &array, "column recipients", add_recipient, o, err) : rc;
}

static int set_column(msg_connection *c, msg_options *o, const struct column *col, sqlite3_value *v,
                      msg_err *err) {
  msg_value value;
  int rc;
  switch (col->kind) {
  case KIND_RECIPIENTS: return set_recipients(c, o, v, err);
  case KIND_JSON: return set_json(c, o, col, v, err);
  case KIND_INT: rc = int_value(v, &value, err); break;
  default:
    rc = msg_value_read(v, &value, err);
    value.json = false; /* the result of a JSON function is text too */
  }
  return rc == MSG_OK ? msg_options_set(o, MSG_VERB_SEND, col->key, &value, false, err) : rc;
}

/* --- columns over options ------------------------------------------------------------------ */

static void take_text(char **to, char **from) {
  msg_free(*to);
  *to = *from;
  *from = NULL;
}

static void take_recipients(msg_message *to, msg_message *from) {
  for (size_t i = 0; i < to->recipient_count; i++)
    msg_free(to->recipients[i]);
  msg_free(to->recipients);
  to->recipients = from->recipients;
  to->recipient_count = from->recipient_count;
  from->recipients = NULL;
  from->recipient_count = 0;
}

/* One field that the row gives, over whatever the options said about it. */
static void take_field(msg_options *to, msg_options *from, enum msg_field field) {
  msg_message *a = &to->m, *b = &from->m;
  switch (field) {
  case MSG_FIELD_ID: a->id = b->id; break;
  case MSG_FIELD_MSG: take_text(&a->msg, &b->msg); break;
  case MSG_FIELD_MAP: take_text(&a->map, &b->map); break;
  case MSG_FIELD_ADDITIONAL: take_text(&a->additional, &b->additional); break;
  case MSG_FIELD_RECIPIENTS: take_recipients(a, b); break;
  case MSG_FIELD_IN_ANSWER_TO: a->in_answer_to = b->in_answer_to; break;
  case MSG_FIELD_KEY: take_text(&a->key, &b->key); break;
  case MSG_FIELD_GROUP: take_text(&a->group, &b->group); break;
  case MSG_FIELD_EXCLUSIVE:
    a->exclusive = b->exclusive;
    to->has_exclusive = true;
    break;
  case MSG_FIELD_PRIORITY:
    a->priority = b->priority;
    to->has_priority = true;
    break;
  case MSG_FIELD_TTL:
    a->ttl_ms = b->ttl_ms;
    a->timing_out = true;
    to->has_ttl = true;
    break;
  case MSG_FIELD_TIMING_OUT:
    a->timing_out = b->timing_out;
    to->has_timing_out = true;
    to->has_ttl = to->has_ttl && a->timing_out;
    break;
  case MSG_FIELD_DELIVER_AT:
    a->deliver_at_ms = b->deliver_at_ms;
    to->has_deliver_at = true;
    to->has_delay = false;
    break;
  case MSG_FIELD_DELETE_AFTER_PROCESSING:
    a->delete_after_processing = b->delete_after_processing;
    break;
  case MSG_FIELD_DELETE_AFTER_PROCESSING_TIME:
    a->delete_after_processing_ms = b->delete_after_processing_ms;
    break;
  default: break;
  }
}

/* --- what a copy says of its sending ------------------------------------------------------- */

static const enum msg_field OF_COPY[] = {MSG_FIELD_SENDER,   MSG_FIELD_SENDER_HOST,
                                         MSG_FIELD_ATTEMPTS, MSG_FIELD_PROCESSED_BY,
                                         MSG_FIELD_REASON,   MSG_FIELD_TIMESTAMP};

static int copy_text(sqlite3_value **fields, enum msg_field f, char **out, msg_err *err) {
  char what[64];
  const char *text;
  if (is_null(fields[f]))
    return MSG_OK;
  sqlite3_snprintf((int)sizeof what, what, "column %s", msg_field_name(f));
  int rc = msg_arg_text(fields[f], what, &text, err);
  if (rc == MSG_OK && !(*out = msg_strdup(text)))
    rc = msg_err_nomem(err);
  return rc;
}

static int read_seen(msg_connection *c, sqlite3_value *v, msg_message *m, msg_err *err) {
  msg_value array;
  msg_texts nodes = {0};
  if (is_null(v))
    return MSG_OK;
  int rc = msg_value_read(v, &array, err);
  if (rc == MSG_OK)
    rc = msg_marks_read(c, &array, &nodes, err);
  if (rc == MSG_OK && nodes.n && m->exclusive)
    rc = msg_err_set(err, MSG_INVALID,
                     "column processed_by of an exclusive message: it has one owner, leave it "
                     "out");
  if (rc == MSG_OK && nodes.n && !(m->processed_by = msg_strdup(array.p)))
    rc = msg_err_nomem(err);
  msg_texts_clear(&nodes);
  return rc;
}

static int read_sender(sqlite3_value **fields, msg_message *m, msg_err *err) {
  int rc = copy_text(fields, MSG_FIELD_SENDER, &m->sender, err);
  if (rc == MSG_OK && m->sender)
    rc = msg_name_check("sender", m->sender, MSG_NODE_MAX, err);
  if (rc == MSG_OK && m->sender)
    rc = copy_text(fields, MSG_FIELD_SENDER_HOST, &m->sender_host, err);
  return rc;
}

static int read_numbers(sqlite3_value **fields, msg_message *m, msg_err *err) {
  int64_t attempts = 0;
  sqlite3_value_numeric_type(fields[MSG_FIELD_TIMESTAMP]);
  int rc = msg_arg_int(fields[MSG_FIELD_TIMESTAMP], "column timestamp", 1, MSG_TIME_MAX_MS,
                       &m->timestamp_ms, err);
  if (rc == MSG_OK && !is_null(fields[MSG_FIELD_ATTEMPTS]))
    rc = msg_arg_int(fields[MSG_FIELD_ATTEMPTS], "column attempts", 0, INT32_MAX, &attempts, err);
  m->attempts = (int32_t)attempts;
  return rc;
}

/* A row with a timestamp is a copy; one with a reason, a dead letter. */
static int read_copy(msg_connection *c, sqlite3_value **fields, msg_message *m, msg_err *err) {
  m->copied = !is_null(fields[MSG_FIELD_TIMESTAMP]);
  for (size_t i = 0; !m->copied && i < sizeof OF_COPY / sizeof OF_COPY[0]; i++)
    if (!is_null(fields[OF_COPY[i]]))
      return msg_err_set(err, MSG_INVALID,
                         "column %s is of a copy of a message: give its timestamp too, or leave "
                         "both out",
                         msg_field_name(OF_COPY[i]));
  if (!m->copied)
    return MSG_OK;
  int rc = read_numbers(fields, m, err);
  if (rc == MSG_OK)
    rc = read_sender(fields, m, err);
  if (rc == MSG_OK)
    rc = copy_text(fields, MSG_FIELD_REASON, &m->reason, err);
  if (rc == MSG_OK && m->reason && !m->exclusive)
    rc = msg_err_set(err, MSG_INVALID,
                     "column reason: only an exclusive message becomes a dead letter");
  if (m->reason)
    m->state = MSG_STATE_DEAD;
  return rc == MSG_OK ? read_seen(c, fields[MSG_FIELD_PROCESSED_BY], m, err) : rc;
}

/* --- the row ------------------------------------------------------------------------------- */

static int check_read_only(sqlite3_value **fields, msg_err *err) {
  for (int f = 0; f < MSG_FIELD_COUNT; f++)
    if (msg_field_read_only((enum msg_field)f) && !is_null(fields[f]))
      return msg_err_set(err, MSG_INVALID,
                         "column %s is read only: the store sets it, leave it out",
                         msg_field_name((enum msg_field)f));
  return MSG_OK;
}

static int read_delete_at(sqlite3_value *v, int64_t *out, msg_err *err) {
  *out = MSG_NEVER;
  if (is_null(v))
    return MSG_OK;
  sqlite3_value_numeric_type(v);
  return msg_arg_int(v, "column delete_at", 1, MSG_TIME_MAX_MS, out, err);
}

static bool is_zero(sqlite3_value *v) {
  return sqlite3_value_type(v) == SQLITE_INTEGER && sqlite3_value_int64(v) == 0;
}

/* What a copied row says when it says nothing. */
static bool is_idle(enum msg_field f, sqlite3_value **fields) {
  if (f == MSG_FIELD_DELETE_AFTER_PROCESSING_TIME)
    return is_zero(fields[f]);
  return f == MSG_FIELD_TTL && is_zero(fields[f]) && is_zero(fields[MSG_FIELD_TIMING_OUT]);
}

/* The row's own columns, checked among themselves, then laid over what the options say. */
static int set_columns(msg_connection *c, enum msg_verb verb, msg_options *o,
                       sqlite3_value **fields, msg_err *err) {
  msg_options row;
  int rc = MSG_OK;
  msg_options_init(&row);
  for (size_t i = 0; rc == MSG_OK && i < sizeof COLUMNS / sizeof COLUMNS[0]; i++) {
    enum msg_field f = COLUMNS[i].field;
    if (is_null(fields[f]) || is_idle(f, fields))
      continue;
    rc = set_column(c, &row, &COLUMNS[i], fields[f], err);
    if (rc == MSG_OK)
      take_field(o, &row, f);
  }
  o->given |= row.given;
  msg_options_clear(&row);
  return rc == MSG_OK ? msg_options_finish(o, verb, err) : rc;
}

int msg_insert_read(msg_connection *c, enum msg_verb verb, sqlite3_value **fields,
                    sqlite3_value *options, msg_options *o, int64_t *delete_at_ms, msg_err *err) {
  int rc = check_read_only(fields, err);
  if (rc == MSG_OK)
    rc = read_delete_at(fields[MSG_FIELD_DELETE_AT], delete_at_ms, err);
  o->m.exclusive =
      sqlite3_value_int(fields[MSG_FIELD_EXCLUSIVE]) == 1; /* for a group among the options */
  if (rc == MSG_OK && !is_null(options))
    rc = msg_options_read(c, options, verb, o, err);
  if (rc == MSG_OK)
    rc = set_columns(c, verb, o, fields, err);
  return rc == MSG_OK ? read_copy(c, fields, &o->m, err) : rc;
}
