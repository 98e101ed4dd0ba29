#include "store/mongo/document.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "model/topic.h"
#include "store/mongo/json.h"

/* ---- value ---- */

/* Text that no BSON string can carry as it is. */
static bool is_bytes(const msg_value *v) {
  return v->type == MSG_TEXT && v->n > 0 && !msg_utf8_valid(v->p, v->n);
}

static const char *type_of(const msg_value *v) {
  switch (v->type) {
  case MSG_INT: return "integer";
  case MSG_REAL: return "real";
  case MSG_BLOB: return "blob";
  case MSG_TEXT: return is_bytes(v) ? "bytes" : v->json ? "json" : NULL;
  case MSG_NULL: break;
  }
  return NULL;
}

static int append_base64(bson_t *doc, const msg_value *v, msg_err *err) {
  msg_str s = MSG_STR_INIT;
  msg_str_append_base64(&s, v->p, v->n);
  int rc = s.nomem ? msg_err_nomem(err) : MSG_OK;
  if (rc == MSG_OK)
    bson_append_utf8(doc, "value", -1, s.n ? s.s : "", (int)s.n);
  msg_str_clear(&s);
  return rc;
}

static int append_value(bson_t *doc, const msg_value *v, msg_err *err) {
  char number[40];
  if (v->type == MSG_TEXT || v->type == MSG_BLOB) {
    if (v->n > MSG_MONGO_DOCUMENT_MAX)
      return msg_err_set(err, MSG_TOOBIG, "a value of %zu bytes: MongoDB keeps at most %u", v->n,
                         (unsigned)MSG_MONGO_DOCUMENT_MAX);
    if (v->type == MSG_BLOB || is_bytes(v))
      return append_base64(doc, v, err);
    bson_append_utf8(doc, "value", -1, v->n ? v->p : "", (int)v->n);
    return MSG_OK;
  }
  if (v->type == MSG_NULL) {
    BSON_APPEND_NULL(doc, "value");
    return MSG_OK;
  }
  if (v->type == MSG_INT)
    snprintf(number, sizeof number, "%lld", (long long)v->i);
  else
    snprintf(number, sizeof number, "%.17g", v->r);
  BSON_APPEND_UTF8(doc, "value", number);
  return MSG_OK;
}

/* ---- fields ---- */

static void append_text(bson_t *doc, const char *key, const char *s) {
  if (s)
    BSON_APPEND_UTF8(doc, key, s);
  else
    BSON_APPEND_NULL(doc, key);
}

static void append_names(bson_t *doc, const char *key, char *const *names, size_t n) {
  bson_t array;
  char buffer[16];
  const char *k;
  BSON_APPEND_ARRAY_BEGIN(doc, key, &array);
  for (size_t i = 0; i < n; i++) {
    size_t len = bson_uint32_to_string((uint32_t)i, &k, buffer, sizeof buffer);
    bson_append_utf8(&array, k, (int)len, names[i], -1);
  }
  bson_append_array_end(doc, &array);
}

static void append_recipients(bson_t *doc, const char *key, const msg_message *m) {
  if (m->recipients)
    append_names(doc, key, m->recipients, m->recipient_count);
  else
    BSON_APPEND_NULL(doc, key);
}

static void append_one_name(bson_t *doc, const char *key, const char *name) {
  char *names[] = {(char *)name};
  append_names(doc, key, names, name ? 1 : 0);
}

static int append_json(bson_t *doc, const char *key, const char *json, msg_err *err) {
  if (json)
    return msg_mongo_json_append(doc, key, json, err);
  BSON_APPEND_NULL(doc, key);
  return MSG_OK;
}

/* ---- ours ---- */

struct ours {
  bool dead, delayed, hidden; /* hidden: recipients stand in sq.to */
  int64_t deliver_at_ms;
};

static bool needs_ours(const msg_message *m, const struct ours *o) {
  return o->delayed || m->group || m->key || m->reason || m->attempts || type_of(&m->value) ||
         o->deliver_at_ms != m->timestamp_ms;
}

static void append_ours(bson_t *doc, const msg_message *m, const msg_mongo_standing *st,
                        const struct ours *o) {
  bson_t sq;
  if (!needs_ours(m, o))
    return;
  BSON_APPEND_DOCUMENT_BEGIN(doc, "sq", &sq);
  if (o->dead)
    BSON_APPEND_UTF8(&sq, "state", "dead");
  else if (st->blocked)
    BSON_APPEND_UTF8(&sq, "state", "blocked");
  else if (o->delayed) {
    BSON_APPEND_UTF8(&sq, "state", "delayed");
    BSON_APPEND_DATE_TIME(&sq, "until", o->deliver_at_ms + st->shift_ms);
  }
  if (m->group) {
    BSON_APPEND_UTF8(&sq, "group", m->group);
    if (st->head)
      BSON_APPEND_BOOL(&sq, "head", true);
  }
  if (m->key)
    BSON_APPEND_UTF8(&sq, "key", m->key);
  if (m->attempts)
    BSON_APPEND_INT32(&sq, "attempts", m->attempts);
  if (m->reason)
    BSON_APPEND_UTF8(&sq, "reason", m->reason);
  if (m->group || o->deliver_at_ms != m->timestamp_ms)
    BSON_APPEND_INT64(&sq, "sent", m->timestamp_ms + st->shift_ms);
  if (o->hidden)
    append_recipients(&sq, "to", m);
  if (type_of(&m->value))
    BSON_APPEND_UTF8(&sq, "type", type_of(&m->value));
  bson_append_document_end(doc, &sq);
}

static void append_times(bson_t *doc, const msg_message *m, const msg_mongo_standing *st,
                         const struct ours *o) {
  BSON_APPEND_INT32(doc, "priority", m->priority);
  BSON_APPEND_INT64(doc, "timestamp", o->deliver_at_ms + st->shift_ms);
  BSON_APPEND_INT64(doc, "ttl", m->ttl_ms);
  BSON_APPEND_BOOL(doc, "timing_out", m->timing_out);
  if (m->delete_at_ms == MSG_NEVER)
    BSON_APPEND_NULL(doc, "delete_at");
  else
    BSON_APPEND_DATE_TIME(doc, "delete_at", m->delete_at_ms + st->shift_ms);
  BSON_APPEND_BOOL(doc, "delete_after_processing", m->delete_after_processing);
  BSON_APPEND_INT32(doc, "delete_after_processing_time", m->delete_after_processing_ms);
}

/* Who has it: a pre-mark, or of a copy those who have seen it. */
static int append_processed(bson_t *doc, const msg_message *m, const msg_mongo_standing *st,
                            const struct ours *o, msg_err *err) {
  const char *mark = o->dead       ? MSG_MONGO_DEAD
                     : st->blocked ? MSG_MONGO_BLOCKED
                     : o->delayed  ? MSG_MONGO_DELAYED
                                   : NULL;
  if (!mark && m->processed_by && !m->exclusive)
    return msg_mongo_json_append(doc, "processed_by", m->processed_by, err);
  append_one_name(doc, "processed_by", mark);
  return MSG_OK;
}

static int append_marks(bson_t *doc, const msg_message *m, const msg_mongo_standing *st,
                        const struct ours *o, msg_err *err) {
  if (o->hidden)
    append_one_name(doc, "recipients", MSG_MONGO_DELAYED);
  else
    append_recipients(doc, "recipients", m);
  if (msg_oid_is_zero(&m->in_answer_to))
    BSON_APPEND_NULL(doc, "in_answer_to");
  else
    msg_mongo_append_oid(doc, "in_answer_to", &m->in_answer_to);
  int rc = append_processed(doc, m, st, o, err);
  BSON_APPEND_BOOL(doc, "exclusive", m->exclusive);
  return rc;
}

int msg_mongo_document(const msg_message *m, const msg_mongo_standing *st, bson_t *doc,
                       msg_err *err) {
  struct ours o = {.deliver_at_ms = m->deliver_at_ms ? m->deliver_at_ms : m->timestamp_ms};
  o.dead = m->state == MSG_STATE_DEAD;
  o.delayed = !o.dead && o.deliver_at_ms + st->shift_ms > st->now_ms;
  o.hidden = o.delayed && !m->exclusive;
  msg_mongo_append_oid(doc, "_id", &m->id);
  BSON_APPEND_UTF8(doc, "class_name", MSG_MONGO_CLASS);
  BSON_APPEND_UTF8(doc, "topic", m->topic);
  BSON_APPEND_UTF8(doc, "name", m->topic);
  append_text(doc, "msg", m->msg);
  int rc = append_value(doc, &m->value, err);
  if (rc == MSG_OK)
    rc = append_json(doc, "map_value", m->map, err);
  if (rc == MSG_OK)
    rc = append_json(doc, "additional", m->additional, err);
  if (rc != MSG_OK)
    return rc;
  append_text(doc, "sender", m->sender);
  append_text(doc, "sender_host", m->sender_host);
  rc = append_marks(doc, m, st, &o, err);
  if (rc != MSG_OK)
    return rc;
  append_times(doc, m, st, &o);
  append_ours(doc, m, st, &o);
  if (doc->len > MSG_MONGO_DOCUMENT_MAX)
    return msg_err_set(err, MSG_TOOBIG,
                       "a message of %u bytes on topic '%s': MongoDB keeps at most %u", doc->len,
                       msg_show(m->topic).s, (unsigned)MSG_MONGO_DOCUMENT_MAX);
  return MSG_OK;
}
