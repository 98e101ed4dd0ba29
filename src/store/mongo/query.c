#include "store/mongo/query.h"
#include "store/mongo/place.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

/* ---- lists ---- */

int msg_mongo_ids_add(msg_mongo_ids *l, const msg_oid *id) {
  if (msg_grow(&l->at, &l->cap, l->n + 1, sizeof *l->at) != MSG_OK)
    return MSG_NOMEM;
  l->at[l->n++] = *id;
  return MSG_OK;
}

bool msg_mongo_ids_have(const msg_mongo_ids *l, const msg_oid *id) {
  return msg_oid_index(l->at, l->n, id) < l->n;
}

void msg_mongo_ids_clear(msg_mongo_ids *l) {
  msg_free(l->at);
  *l = (msg_mongo_ids){0};
}

int msg_mongo_texts_add(msg_mongo_texts *l, const char *text) {
  char *copy = msg_strdup(text);
  if (!copy || msg_grow(&l->at, &l->cap, l->n + 1, sizeof *l->at) != MSG_OK) {
    msg_free(copy);
    return MSG_NOMEM;
  }
  l->at[l->n++] = copy;
  return MSG_OK;
}

bool msg_mongo_texts_have(const msg_mongo_texts *l, const char *text) {
  for (size_t i = 0; i < l->n; i++)
    if (strcmp(l->at[i], text) == 0)
      return true;
  return false;
}

int msg_mongo_texts_note(msg_mongo_texts *l, const char *text) {
  return msg_mongo_texts_have(l, text) ? MSG_OK : msg_mongo_texts_add(l, text);
}

void msg_mongo_texts_clear(msg_mongo_texts *l) {
  for (size_t i = 0; i < l->n; i++)
    msg_free(l->at[i]);
  msg_free(l->at);
  *l = (msg_mongo_texts){0};
}

/* ---- pieces ---- */

void msg_mongo_append_oids(bson_t *doc, const char *key, const msg_oid *ids, size_t n) {
  bson_t array;
  char buffer[16];
  const char *k;
  BSON_APPEND_ARRAY_BEGIN(doc, key, &array);
  for (size_t i = 0; i < n; i++) {
    bson_uint32_to_string((uint32_t)i, &k, buffer, sizeof buffer);
    msg_mongo_append_oid(&array, k, &ids[i]);
  }
  bson_append_array_end(doc, &array);
}

void msg_mongo_append_ids(bson_t *doc, const char *key, const char *op, const msg_oid *ids,
                          size_t n) {
  bson_t in;
  BSON_APPEND_DOCUMENT_BEGIN(doc, key, &in);
  msg_mongo_append_oids(&in, op, ids, n);
  bson_append_document_end(doc, &in);
}

void msg_mongo_append_texts(bson_t *doc, const char *key, const char *op, char *const *texts,
                            size_t n, bool null) {
  bson_t in, array;
  char buffer[16];
  const char *k;
  BSON_APPEND_DOCUMENT_BEGIN(doc, key, &in);
  BSON_APPEND_ARRAY_BEGIN(&in, op, &array);
  for (size_t i = 0; i < n; i++) {
    bson_uint32_to_string((uint32_t)i, &k, buffer, sizeof buffer);
    BSON_APPEND_UTF8(&array, k, texts[i]);
  }
  if (null) {
    bson_uint32_to_string((uint32_t)n, &k, buffer, sizeof buffer);
    BSON_APPEND_NULL(&array, k);
  }
  bson_append_array_end(&in, &array);
  bson_append_document_end(doc, &in);
}

void msg_mongo_append_alive(bson_t *doc, int64_t now_ms) {
  BCON_APPEND(doc, "delete_at", "{", "$not", "{", "$lte", BCON_DATE_TIME(now_ms), "}", "}");
}

void msg_mongo_append_alive_now(bson_t *doc) {
  bson_t now;
  msg_mongo_now_expr(&now, 0);
  BCON_APPEND(doc, "$expr", "{", "$or", "[", "{", "$lte", "[", BCON_UTF8("$delete_at"), BCON_NULL,
              "]", "}", "{", "$gt", "[", BCON_UTF8("$delete_at"), BCON_DOCUMENT(&now), "]", "}",
              "]", "}");
  bson_destroy(&now);
}

void msg_mongo_append_untaken(bson_t *doc) {
  BCON_APPEND(doc, "processed_by", "{", "$in", "[", BCON_NULL, "[", "]", "]", "}");
}

void msg_mongo_append_there(bson_t *doc) {
  BCON_APPEND(doc, "sq.state", "{", "$ne", BCON_UTF8("done"), "}");
}

void msg_mongo_now_expr(bson_t *out, int64_t plus_ms) {
  bson_t terms;
  bson_init(out);
  BSON_APPEND_ARRAY_BEGIN(out, "$add", &terms);
  BSON_APPEND_UTF8(&terms, "0", "$$NOW");
  BSON_APPEND_INT64(&terms, "1", plus_ms + msg_clock_shifted());
  bson_append_array_end(out, &terms);
}

void msg_mongo_append_quoted(msg_str *regex, const char *text) {
  for (; *text; text++) {
    if (strchr("\\^$.|?*+()[]{}-", *text))
      msg_str_append(regex, "\\");
    msg_str_appendn(regex, text, 1);
  }
}

/* ---- is there one? ---- */

static int note_one(void *arg, const bson_t *doc, msg_err *err) {
  (void)doc, (void)err;
  *(bool *)arg = true;
  return MSG_OK;
}

int msg_mongo_any(msg_mongo_use *u, const char *collection, const char *what, const bson_t *filter,
                  const char *hint, int64_t max_ms, bool *out, msg_err *err) {
  bson_t *opts = BCON_NEW("limit", BCON_INT64(1), "projection", "{", "_id", BCON_INT32(1), "}");
  if (hint)
    BSON_APPEND_UTF8(opts, "hint", hint);
  if (max_ms > 0)
    BSON_APPEND_INT64(opts, "maxTimeMS", max_ms);
  *out = false;
  int rc = msg_mongo_each(u, collection, what, filter, opts, note_one, out, err);
  bson_destroy(opts);
  return rc;
}

/* ---- old nodes ---- */

static void note_unnamed(msg_mongo_session *s) {
  msg_mutex_lock(s->store->mtx);
  s->place->unnamed = true;
  msg_mutex_unlock(s->store->mtx);
}

bool msg_mongo_is_unnamed(msg_mongo_session *s) {
  msg_mutex_lock(s->store->mtx);
  bool is = s->place->unnamed;
  msg_mutex_unlock(s->store->mtx);
  return is;
}

int msg_mongo_look_unnamed(msg_mongo_session *s, msg_mongo_use *u, msg_err *err) {
  bool any = false;
  bson_t *filter = BCON_NEW("topic", BCON_NULL);
  int rc = msg_mongo_any(u, s->names.messages, "look for topics", filter, NULL, 0, &any, err);
  bson_destroy(filter);
  if (any)
    note_unnamed(s);
  return rc;
}

/* ---- topics ---- */

static bool is_wanted(const char *topic, const msg_pattern *pattern,
                      const msg_pattern *const *paused, size_t paused_count) {
  for (size_t i = 0; i < paused_count; i++)
    if (msg_pattern_match(paused[i], topic))
      return false;
  return !pattern || msg_pattern_match(pattern, topic);
}

/* Distinct values of a field by its index. */
static int distinct(const msg_mongo_session *s, msg_mongo_use *u, const char *field,
                    const bson_t *query, bson_t *reply, msg_err *err) {
  bson_error_t error;
  bson_t cmd = BSON_INITIALIZER;
  BSON_APPEND_UTF8(&cmd, "distinct", s->names.messages);
  BSON_APPEND_UTF8(&cmd, "key", field);
  BSON_APPEND_DOCUMENT(&cmd, "query", query);
  bool ok = mongoc_client_read_command_with_opts(u->client, s->store->db, &cmd, NULL, NULL, reply,
                                                 &error);
  bson_destroy(&cmd);
  return ok ? MSG_OK : msg_mongo_fail(s->store, "look for topics", &error, reply, err);
}

static int gather(const bson_t *reply, const msg_pattern *pattern, const msg_pattern *const *paused,
                  size_t paused_count, msg_mongo_texts *out, bool *unnamed, msg_err *err) {
  bson_iter_t values, it;
  if (!bson_iter_init_find(&values, reply, "values") || !bson_iter_recurse(&values, &it))
    return MSG_OK;
  while (bson_iter_next(&it)) {
    *unnamed = *unnamed || BSON_ITER_HOLDS_NULL(&it);
    if (BSON_ITER_HOLDS_UTF8(&it) &&
        is_wanted(bson_iter_utf8(&it, NULL), pattern, paused, paused_count) &&
        msg_mongo_texts_add(out, bson_iter_utf8(&it, NULL)) != MSG_OK)
      return msg_err_nomem(err);
  }
  return MSG_OK;
}

static int gather_from(const msg_mongo_session *s, msg_mongo_use *u, const char *field,
                       const bson_t *query, const msg_pattern *pattern,
                       const msg_pattern *const *paused, size_t paused_count, msg_mongo_texts *out,
                       bool *unnamed, msg_err *err) {
  bson_t reply;
  int rc = distinct(s, u, field, query, &reply, err);
  if (rc == MSG_OK)
    rc = gather(&reply, pattern, paused, paused_count, out, unnamed, err);
  bson_destroy(&reply);
  return rc;
}

int msg_mongo_topics_in(const msg_mongo_session *at, msg_mongo_use *u, msg_mongo_texts *out,
                        msg_err *err) {
  bson_t all = BSON_INITIALIZER;
  bool unnamed = false;
  int rc = gather_from(at, u, "topic", &all, NULL, NULL, 0, out, &unnamed, err);
  bson_destroy(&all);
  return rc;
}

/* At the place of a topic: of those met there. Which was never met may be on its way. */
static int topics_at(msg_mongo_session *s, msg_mongo_use *u, const msg_pattern *pattern,
                     const msg_pattern *const *paused, size_t paused_count, msg_mongo_texts *out,
                     msg_err *err) {
  msg_mongo_texts met = {0};
  bool exact = pattern && msg_pattern_kind_of(pattern) == MSG_PATTERN_EXACT;
  int rc = exact ? MSG_OK : msg_mongo_place_topics(s, u, s->place, &met, err);
  if (exact && msg_mongo_place_is_of(s->place, msg_pattern_text(pattern)) &&
      msg_mongo_texts_add(&met, msg_pattern_text(pattern)) != MSG_OK)
    rc = msg_err_nomem(err);
  for (size_t i = 0; rc == MSG_OK && i < met.n; i++)
    if (is_wanted(met.at[i], pattern, paused, paused_count) &&
        msg_mongo_texts_add(out, met.at[i]) != MSG_OK)
      rc = msg_err_nomem(err);
  msg_mongo_texts_clear(&met);
  return rc;
}

int msg_mongo_topics_of(msg_mongo_session *s, msg_mongo_use *u, const msg_pattern *pattern,
                        const msg_pattern *const *paused, size_t paused_count, msg_mongo_texts *out,
                        msg_err *err) {
  bson_t query = BSON_INITIALIZER;
  bool unnamed = false, ignored = false;
  if (s->place->kind == MSG_MONGO_TOPIC)
    return topics_at(s, u, pattern, paused, paused_count, out, err);
  if (pattern && msg_pattern_kind_of(pattern) == MSG_PATTERN_EXACT) {
    const char *topic = msg_pattern_text(pattern);
    return !is_wanted(topic, pattern, paused, paused_count) ||
                   msg_mongo_texts_add(out, topic) == MSG_OK
               ? MSG_OK
               : msg_err_nomem(err);
  }
  int rc = gather_from(s, u, "topic", &query, pattern, paused, paused_count, out, &unnamed, err);
  if (rc == MSG_OK && unnamed) { /* documents of old nodes */
    note_unnamed(s);
    BSON_APPEND_NULL(&query, "topic");
    rc = gather_from(s, u, "name", &query, pattern, paused, paused_count, out, &ignored, err);
  }
  bson_destroy(&query);
  return rc;
}

void msg_mongo_append_topics(bson_t *doc, char *const *topics, size_t n) {
  bson_t any, with, without;
  msg_mongo_append_texts(doc, "topic", "$in", topics, n, true);
  BSON_APPEND_ARRAY_BEGIN(doc, "$or", &any);
  BSON_APPEND_DOCUMENT_BEGIN(&any, "0", &with);
  BCON_APPEND(&with, "topic", "{", "$ne", BCON_NULL, "}");
  bson_append_document_end(&any, &with);
  BSON_APPEND_DOCUMENT_BEGIN(&any, "1", &without);
  msg_mongo_append_texts(&without, "name", "$in", topics, n, false);
  bson_append_document_end(&any, &without);
  bson_append_array_end(doc, &any);
}
