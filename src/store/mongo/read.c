/* read.c - a document, whoever wrote it, as a message: int32, int64 and double alike; null, missing
 * and empty alike; `name` where there is no `topic`. See document.h. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "store/mongo/document.h"
#include "store/mongo/json.h"

/* ---- fields ---- */

bool msg_mongo_get_oid(const bson_t *doc, const char *key, msg_oid *out) {
  bson_iter_t it;
  if (!bson_iter_init_find(&it, doc, key) || !BSON_ITER_HOLDS_OID(&it))
    return false;
  memcpy(out->b, bson_iter_oid(&it)->bytes, sizeof out->b);
  return true;
}

static bool find(const bson_t *doc, const char *path, bson_iter_t *out) {
  bson_iter_t it;
  if (!strchr(path, '.'))
    return bson_iter_init_find(out, doc, path);
  return bson_iter_init(&it, doc) && bson_iter_find_descendant(&it, path, out);
}

static int64_t int_at(const bson_iter_t *it, int64_t dflt) {
  switch (bson_iter_type(it)) {
  case BSON_TYPE_INT32: return bson_iter_int32(it);
  case BSON_TYPE_INT64: return bson_iter_int64(it);
  case BSON_TYPE_DATE_TIME: return bson_iter_date_time(it);
  case BSON_TYPE_BOOL: return bson_iter_bool(it);
  case BSON_TYPE_DOUBLE: {
    double d = bson_iter_double(it);
    return d >= -9e18 && d <= 9e18 ? (int64_t)d : dflt;
  }
  default: return dflt;
  }
}

int64_t msg_mongo_get_int(const bson_t *doc, const char *path, int64_t dflt) {
  bson_iter_t it;
  return find(doc, path, &it) ? int_at(&it, dflt) : dflt;
}

const char *msg_mongo_get_text(const bson_t *doc, const char *path) {
  bson_iter_t it;
  return find(doc, path, &it) && BSON_ITER_HOLDS_UTF8(&it) ? bson_iter_utf8(&it, NULL) : NULL;
}

static int32_t clamp32(int64_t v) {
  return v < INT32_MIN ? INT32_MIN : v > INT32_MAX ? INT32_MAX : (int32_t)v;
}

/* A copy of the text, if it is one, into *out. */
static bool copy_text(const bson_iter_t *it, char **out) {
  if (!BSON_ITER_HOLDS_UTF8(it))
    return true;
  msg_free(*out);
  *out = msg_strdup(bson_iter_utf8(it, NULL));
  return *out != NULL;
}

static bool copy_json(const bson_iter_t *it, char **out) {
  msg_str s = MSG_STR_INIT;
  if (BSON_ITER_HOLDS_NULL(it))
    return true;
  msg_mongo_json_value(&s, it);
  *out = msg_str_take(&s);
  return *out != NULL;
}

static bool copy_recipients(const bson_iter_t *field, msg_message *m) {
  bson_iter_t it;
  for (size_t i = 0; i < m->recipient_count; i++)
    msg_free(m->recipients[i]);
  msg_free(m->recipients);
  m->recipients = NULL;
  m->recipient_count = 0;
  if (!BSON_ITER_HOLDS_ARRAY(field) || !bson_iter_recurse(field, &it))
    return true;
  while (bson_iter_next(&it))
    if (BSON_ITER_HOLDS_UTF8(&it) &&
        msg_message_add_recipient(m, bson_iter_utf8(&it, NULL)) != MSG_OK)
      return false;
  return true;
}

/* ---- value ---- */

static int digit64(char c) {
  if (c >= 'A' && c <= 'Z')
    return c - 'A';
  if (c >= 'a' && c <= 'z')
    return c - 'a' + 26;
  if (c >= '0' && c <= '9')
    return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Of our own making: what does not fit ends it. */
static size_t decode64(const char *s, size_t n, char *out) {
  size_t len = 0;
  uint32_t bits = 0;
  int have = 0;
  for (size_t i = 0; i < n && digit64(s[i]) >= 0; i++) {
    bits = bits << 6 | (uint32_t)digit64(s[i]);
    have += 6;
    if (have >= 8) {
      have -= 8;
      out[len++] = (char)(bits >> have & 0xFF);
    }
  }
  return len;
}

static bool own_bytes(msg_value *v, enum msg_type type, const char *s, size_t n, bool base64) {
  v->type = type;
  v->owned = true;
  if (n == 0 && type == MSG_BLOB)
    return true;
  v->p = msg_alloc(n + 1);
  if (!v->p)
    return false;
  if (base64) {
    v->n = decode64(s, n, v->p);
  } else {
    memcpy(v->p, s, n);
    v->n = n;
  }
  v->p[v->n] = '\0';
  return true;
}

static bool read_text_value(const bson_iter_t *it, const char *type, msg_value *v) {
  uint32_t n;
  const char *s = bson_iter_utf8(it, &n);
  if (type && strcmp(type, "integer") == 0) {
    v->type = MSG_INT;
    v->i = strtoll(s, NULL, 10);
    return true;
  }
  if (type && strcmp(type, "real") == 0) {
    v->type = MSG_REAL;
    v->r = strtod(s, NULL);
    return true;
  }
  if (type && strcmp(type, "blob") == 0)
    return own_bytes(v, MSG_BLOB, s, n, true);
  v->json = type && strcmp(type, "json") == 0;
  return own_bytes(v, MSG_TEXT, s, n, type && strcmp(type, "bytes") == 0);
}

static bool read_json_value(const bson_iter_t *it, msg_value *v) {
  char *text = NULL;
  if (!copy_json(it, &text))
    return false;
  *v = (msg_value){.type = MSG_TEXT, .json = true, .owned = true, .p = text, .n = strlen(text)};
  return true;
}

/* Morphium's is a string; others may have written what they like. */
static bool read_value(const bson_iter_t *it, const char *type, msg_value *v) {
  uint32_t n;
  const uint8_t *bytes;
  switch (bson_iter_type(it)) {
  case BSON_TYPE_NULL:
  case BSON_TYPE_UNDEFINED: return true;
  case BSON_TYPE_UTF8: return read_text_value(it, type, v);
  case BSON_TYPE_BOOL:
  case BSON_TYPE_INT32:
  case BSON_TYPE_INT64:
    v->type = MSG_INT;
    v->i = int_at(it, 0);
    return true;
  case BSON_TYPE_DOUBLE:
    v->type = MSG_REAL;
    v->r = bson_iter_double(it);
    return true;
  case BSON_TYPE_BINARY:
    bson_iter_binary(it, NULL, &n, &bytes);
    return own_bytes(v, MSG_BLOB, (const char *)bytes, n, false);
  default: return read_json_value(it, v);
  }
}

/* ---- who took it ---- */

static int by_name(const void *a, const void *b) {
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void append_quoted(msg_str *out, const char *s) {
  bson_t doc = BSON_INITIALIZER;
  bson_iter_t it;
  BSON_APPEND_UTF8(&doc, "s", s);
  if (bson_iter_init_find(&it, &doc, "s"))
    msg_mongo_json_value(out, &it);
  bson_destroy(&doc);
}

struct marks {
  const char **at;
  size_t n, cap;
};

/* Names of nodes, without pre-marks and, while it is claimed, its owner. */
static bool read_marks(const bson_t *doc, const char *owner, struct marks *out) {
  bson_iter_t field, it;
  if (!bson_iter_init_find(&field, doc, "processed_by") || !BSON_ITER_HOLDS_ARRAY(&field) ||
      !bson_iter_recurse(&field, &it))
    return true;
  while (bson_iter_next(&it)) {
    const char *name = BSON_ITER_HOLDS_UTF8(&it) ? bson_iter_utf8(&it, NULL) : "~";
    if (name[0] == '~' || (owner && strcmp(name, owner) == 0))
      continue;
    if (msg_grow(&out->at, &out->cap, out->n + 1, sizeof *out->at) != MSG_OK)
      return false;
    out->at[out->n++] = name;
  }
  if (out->n > 1)
    qsort(out->at, out->n, sizeof *out->at, by_name);
  return true;
}

static bool write_marks(const struct marks *marks, msg_message *m) {
  msg_str s = MSG_STR_INIT;
  msg_str_append(&s, "[");
  for (size_t i = 0; i < marks->n; i++) {
    msg_str_append(&s, i ? "," : "");
    append_quoted(&s, marks->at[i]);
  }
  msg_str_append(&s, "]");
  m->processed_by = msg_str_take(&s);
  return m->processed_by != NULL;
}

/* ---- state ---- */

static bool has_mark(const struct marks *marks, const char *node) {
  for (size_t i = 0; i < marks->n; i++)
    if (strcmp(marks->at[i], node) == 0)
      return true;
  return false;
}

/* Has everybody taken it who should? Nobody knows the audience of a broadcast. */
static bool is_processed(const msg_message *m, const struct marks *marks) {
  if (m->exclusive)
    return marks->n > 0;
  for (size_t i = 0; i < m->recipient_count; i++)
    if (!has_mark(marks, m->recipients[i]))
      return false;
  return m->recipient_count > 0;
}

static enum msg_state state_of(const msg_message *m, const struct marks *marks, const char *ours,
                               int64_t now_ms) {
  bool pending = m->until_ms > now_ms;
  if (ours && strcmp(ours, "dead") == 0)
    return MSG_STATE_DEAD;
  if (ours && strcmp(ours, "claimed") == 0 && pending)
    return MSG_STATE_CLAIMED;
  if (m->delete_at_ms <= now_ms)
    return MSG_STATE_EXPIRED;
  if (ours && strcmp(ours, "delayed") == 0 && pending)
    return MSG_STATE_DELAYED;
  if (ours && strcmp(ours, "blocked") == 0)
    return MSG_STATE_BLOCKED;
  if (ours && strcmp(ours, "done") == 0)
    return MSG_STATE_PROCESSED;
  return is_processed(m, marks) ? MSG_STATE_PROCESSED : MSG_STATE_READY;
}

/* ---- the document ---- */

static bool read_ours(const bson_iter_t *field, msg_message *m, const char **state,
                      const char **type) {
  bson_iter_t it;
  bool ok = true;
  if (!BSON_ITER_HOLDS_DOCUMENT(field) || !bson_iter_recurse(field, &it))
    return true;
  while (ok && bson_iter_next(&it)) {
    const char *key = bson_iter_key(&it);
    if (strcmp(key, "state") == 0 && BSON_ITER_HOLDS_UTF8(&it))
      *state = bson_iter_utf8(&it, NULL);
    else if (strcmp(key, "type") == 0 && BSON_ITER_HOLDS_UTF8(&it))
      *type = bson_iter_utf8(&it, NULL);
    else if (strcmp(key, "token") == 0 && BSON_ITER_HOLDS_UTF8(&it) &&
             strlen(bson_iter_utf8(&it, NULL)) == MSG_OID_HEX)
      memcpy(m->token, bson_iter_utf8(&it, NULL), sizeof m->token);
    else if (strcmp(key, "owner") == 0)
      ok = copy_text(&it, &m->owner);
    else if (strcmp(key, "reason") == 0)
      ok = copy_text(&it, &m->reason);
    else if (strcmp(key, "group") == 0)
      ok = copy_text(&it, &m->group);
    else if (strcmp(key, "key") == 0)
      ok = copy_text(&it, &m->key);
    else if (strcmp(key, "since") == 0)
      m->since_ms = int_at(&it, 0);
    else if (strcmp(key, "until") == 0)
      m->until_ms = int_at(&it, 0);
    else if (strcmp(key, "attempts") == 0)
      m->attempts = clamp32(int_at(&it, 0));
    else if (strcmp(key, "sent") == 0)
      m->timestamp_ms = int_at(&it, m->timestamp_ms);
    else if (strcmp(key, "life") == 0)
      m->delete_at_ms = int_at(&it, m->delete_at_ms);
    else if (strcmp(key, "to") == 0)
      ok = copy_recipients(&it, m);
  }
  return ok;
}

static bool read_texts(const bson_t *doc, msg_message *m) {
  bson_iter_t it;
  bool ok = bson_iter_init(&it, doc);
  while (ok && bson_iter_next(&it)) {
    const char *key = bson_iter_key(&it);
    if (strcmp(key, "topic") == 0 || (strcmp(key, "name") == 0 && !m->topic))
      ok = copy_text(&it, &m->topic);
    else if (strcmp(key, "msg") == 0)
      ok = copy_text(&it, &m->msg);
    else if (strcmp(key, "sender") == 0)
      ok = copy_text(&it, &m->sender);
    else if (strcmp(key, "sender_host") == 0)
      ok = copy_text(&it, &m->sender_host);
    else if (strcmp(key, "map_value") == 0)
      ok = copy_json(&it, &m->map);
    else if (strcmp(key, "additional") == 0)
      ok = copy_json(&it, &m->additional);
    else if (strcmp(key, "recipients") == 0)
      ok = copy_recipients(&it, m);
  }
  if (ok && !m->topic)
    ok = (m->topic = msg_strdup("")) != NULL;
  if (ok && !m->sender)
    ok = (m->sender = msg_strdup("")) != NULL;
  return ok;
}

static void read_numbers(const bson_t *doc, msg_message *m) {
  m->exclusive = msg_mongo_get_int(doc, "exclusive", 0) != 0;
  m->priority = clamp32(msg_mongo_get_int(doc, "priority", MSG_PRIORITY_DEFAULT));
  m->deliver_at_ms = m->timestamp_ms = msg_mongo_get_int(doc, "timestamp", 0);
  m->ttl_ms = msg_mongo_get_int(doc, "ttl", 0);
  m->timing_out = msg_mongo_get_int(doc, "timing_out", 1) != 0;
  m->delete_at_ms = msg_mongo_get_int(doc, "delete_at", MSG_NEVER);
  m->delete_after_processing = msg_mongo_get_int(doc, "delete_after_processing", 0) != 0;
  m->delete_after_processing_ms =
      clamp32(msg_mongo_get_int(doc, "delete_after_processing_time", 0));
}

/* Without delete_at a foreign document lives as Java nodes let it live; a dead letter for ever. */
static void settle_life(msg_message *m, const char *state) {
  if (state && strcmp(state, "dead") == 0)
    m->delete_at_ms = MSG_NEVER;
  else if (m->delete_at_ms == MSG_NEVER && m->timing_out && m->ttl_ms > 0)
    m->delete_at_ms = msg_clock_add(m->deliver_at_ms, m->ttl_ms);
}

/* Of a claim that is over nothing is left but how often. */
static void settle_claim(msg_message *m, const struct marks *marks, const char *state,
                         int64_t now_ms) {
  m->state = state_of(m, marks, state, now_ms);
  if (m->state == MSG_STATE_CLAIMED)
    return;
  msg_free(m->owner);
  m->owner = NULL;
  m->token[0] = '\0';
  m->since_ms = m->until_ms = 0;
}

int msg_mongo_message(const bson_t *doc, int64_t now_ms, bool bare, msg_message *out,
                      msg_err *err) {
  const char *state = NULL, *type = NULL;
  struct marks marks = {0};
  bson_iter_t it;
  msg_message_init(out);
  if (!msg_mongo_get_oid(doc, "_id", &out->id))
    return msg_err_set(err, MSG_CORRUPT, "a message whose _id is no ObjectId");
  out->seq = msg_mongo_seq(&out->id);
  if (!msg_mongo_get_oid(doc, "in_answer_to", &out->in_answer_to))
    out->in_answer_to = (msg_oid){0};
  read_numbers(doc, out);
  bool ok = read_texts(doc, out);
  if (ok && bson_iter_init_find(&it, doc, "sq"))
    ok = read_ours(&it, out, &state, &type);
  if (ok && bson_iter_init_find(&it, doc, "value"))
    ok = read_value(&it, type, &out->value);
  settle_life(out, state);
  bool claimed = state && strcmp(state, "claimed") == 0;
  ok = ok && read_marks(doc, claimed ? out->owner : NULL, &marks);
  if (ok)
    settle_claim(out, &marks, state, now_ms);
  if (ok && !bare)
    ok = write_marks(&marks, out);
  msg_free(marks.at);
  if (ok)
    return MSG_OK;
  msg_message_clear(out);
  return msg_err_nomem(err);
}

int64_t msg_mongo_seq(const msg_oid *id) {
  int64_t seconds = (int64_t)id->b[0] << 24 | id->b[1] << 16 | id->b[2] << 8 | id->b[3];
  return seconds << 24 | (int64_t)(id->b[9] << 16 | id->b[10] << 8 | id->b[11]);
}
