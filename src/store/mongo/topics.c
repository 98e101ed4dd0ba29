#include "store/mongo/topics.h"

#include <string.h>

#include "base/mem.h"

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

/* ---- in a collection ---- */

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
                  size_t paused_count, msg_texts *out, bool *unnamed, msg_err *err) {
  bson_iter_t values, it;
  if (!bson_iter_init_find(&values, reply, "values") || !bson_iter_recurse(&values, &it))
    return MSG_OK;
  while (bson_iter_next(&it)) {
    *unnamed = *unnamed || BSON_ITER_HOLDS_NULL(&it);
    if (BSON_ITER_HOLDS_UTF8(&it) &&
        is_wanted(bson_iter_utf8(&it, NULL), pattern, paused, paused_count) &&
        msg_texts_add(out, bson_iter_utf8(&it, NULL)) != MSG_OK)
      return msg_err_nomem(err);
  }
  return MSG_OK;
}

static int gather_from(const msg_mongo_session *s, msg_mongo_use *u, const char *field,
                       const bson_t *query, const msg_pattern *pattern,
                       const msg_pattern *const *paused, size_t paused_count, msg_texts *out,
                       bool *unnamed, msg_err *err) {
  bson_t reply;
  int rc = distinct(s, u, field, query, &reply, err);
  if (rc == MSG_OK)
    rc = gather(&reply, pattern, paused, paused_count, out, unnamed, err);
  bson_destroy(&reply);
  return rc;
}

static int topics_in(const msg_mongo_session *at, msg_mongo_use *u, msg_texts *out, msg_err *err) {
  bson_t all = BSON_INITIALIZER;
  bool unnamed = false;
  int rc = gather_from(at, u, "topic", &all, NULL, NULL, 0, out, &unnamed, err);
  bson_destroy(&all);
  return rc;
}

/* ---- topics of a place ---- */

/* Another queue's may begin with the same letters. */
bool msg_mongo_place_is_of(const msg_mongo_place *p, const char *topic) {
  msg_mongo_at at;
  return msg_mongo_at_topic(p->queue->name, topic, MSG_MONGO_NAME_MAX, &at, NULL) == MSG_OK &&
         strcmp(at.messages, p->at.messages) == 0;
}

static int sample(const msg_mongo_session *at, msg_mongo_use *u, msg_err *err) {
  msg_texts topics = {0};
  int rc = topics_in(at, u, &topics, err);
  for (size_t i = 0; rc == MSG_OK && i < topics.n; i++)
    if (msg_mongo_place_is_of(at->place, topics.at[i]))
      msg_mongo_place_note(at->store, at->place, topics.at[i]);
  msg_texts_clear(&topics);
  return rc;
}

/* Copies of the topics that were met in it. */
static int met(const msg_mongo_session *s, const msg_mongo_place *p, msg_texts *out, msg_err *err) {
  int rc = MSG_OK;
  msg_mutex_lock(s->store->mtx);
  for (size_t i = 0; rc == MSG_OK && i < p->topics.n; i++)
    rc = msg_texts_add(out, p->topics.at[i]);
  msg_mutex_unlock(s->store->mtx);
  return rc == MSG_OK ? MSG_OK : msg_err_nomem(err);
}

int msg_mongo_place_topics(const msg_mongo_session *s, msg_mongo_use *u, msg_mongo_place *p,
                           msg_texts *out, msg_err *err) {
  int rc = met(s, p, out, err);
  if (rc != MSG_OK || out->n)
    return rc;
  msg_mongo_session at = msg_mongo_session_at(s, p);
  rc = sample(&at, u, err);
  return rc == MSG_OK ? met(s, p, out, err) : rc;
}

/* ---- who shares a topic's ---- */

void msg_mongo_place_note(msg_mongo_store *store, msg_mongo_place *p, const char *topic) {
  msg_mutex_lock(store->mtx);
  msg_texts_note(&p->topics, topic); /* one that cannot be kept is met again */
  msg_mutex_unlock(store->mtx);
}

static int refuse(const msg_mongo_place *p, const char *topic, const char *other, msg_err *err) {
  return msg_err_set(err, MSG_INVALID,
                     "send: topics '%s' and '%s' would share the collection '%s' of layout "
                     "'multi': choose another name",
                     msg_show(topic).s, msg_show(other).s, msg_show(p->at.messages).s);
}

/* Those that are there already are its topics, if there are any. */
int msg_mongo_place_admit(const msg_mongo_session *at, msg_mongo_use *u, const char *topic,
                          msg_err *err) {
  msg_mongo_place *p = at->place;
  if (p->kind != MSG_MONGO_TOPIC)
    return MSG_OK;
  msg_mutex_lock(at->store->mtx);
  bool known = p->admitted;
  msg_mutex_unlock(at->store->mtx);
  int rc = known ? MSG_OK : sample(at, u, err);
  if (rc != MSG_OK)
    return rc;
  msg_mutex_lock(at->store->mtx);
  if (p->topics.n == 0)
    msg_texts_note(&p->topics, topic);
  p->admitted = true;
  bool has = p->topics.n == 0 || msg_texts_have(&p->topics, topic);
  const char *other = has ? NULL : p->topics.at[0]; /* never freed before the store */
  msg_mutex_unlock(at->store->mtx);
  return has ? MSG_OK : refuse(p, topic, other, err);
}

/* ---- of a pattern ---- */

/* At the place of a topic: of those met there. Which was never met may be on its way. */
static int topics_at(msg_mongo_session *s, msg_mongo_use *u, const msg_pattern *pattern,
                     const msg_pattern *const *paused, size_t paused_count, msg_texts *out,
                     msg_err *err) {
  msg_texts met = {0};
  bool exact = pattern && msg_pattern_kind_of(pattern) == MSG_PATTERN_EXACT;
  int rc = exact ? MSG_OK : msg_mongo_place_topics(s, u, s->place, &met, err);
  if (exact && msg_mongo_place_is_of(s->place, msg_pattern_text(pattern)) &&
      msg_texts_add(&met, msg_pattern_text(pattern)) != MSG_OK)
    rc = msg_err_nomem(err);
  for (size_t i = 0; rc == MSG_OK && i < met.n; i++)
    if (is_wanted(met.at[i], pattern, paused, paused_count) &&
        msg_texts_add(out, met.at[i]) != MSG_OK)
      rc = msg_err_nomem(err);
  msg_texts_clear(&met);
  return rc;
}

int msg_mongo_topics_of(msg_mongo_session *s, msg_mongo_use *u, const msg_pattern *pattern,
                        const msg_pattern *const *paused, size_t paused_count, msg_texts *out,
                        msg_err *err) {
  bson_t query = BSON_INITIALIZER;
  bool unnamed = false, ignored = false;
  if (s->place->kind == MSG_MONGO_TOPIC)
    return topics_at(s, u, pattern, paused, paused_count, out, err);
  if (pattern && msg_pattern_kind_of(pattern) == MSG_PATTERN_EXACT) {
    const char *topic = msg_pattern_text(pattern);
    return !is_wanted(topic, pattern, paused, paused_count) || msg_texts_add(out, topic) == MSG_OK
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
