/* purge.c - an operator's verbs on whole topics: purge, redrive. */
#include <string.h>

#include "base/mem.h"
#include "store/mongo/catalog.h"
#include "store/mongo/change.h"
#include "store/mongo/group.h"
#include "store/mongo/locks.h"
#include "store/mongo/query.h"
#include "store/mongo/topics.h"

/* ---- purge ---- */

/* Everything but what is claimed, by us or by a Java node's lock. */
static void append_purged(bson_t *filter, const msg_texts *topics, size_t from, size_t n,
                          const msg_mongo_locks *locks, int64_t now_ms) {
  msg_mongo_append_topics(filter, topics->at + from, n);
  msg_mongo_append_there(filter);
  BCON_APPEND(filter, "$nor", "[", "{", "sq.state", BCON_UTF8("claimed"), "sq.until", "{", "$gt",
              BCON_DATE_TIME(now_ms), "}", "}", "]");
  if (locks->n == 0)
    return;
  bson_t in, array;
  char key[16];
  const char *k;
  BSON_APPEND_DOCUMENT_BEGIN(filter, "_id", &in);
  BSON_APPEND_ARRAY_BEGIN(&in, "$nin", &array);
  for (size_t i = 0; i < locks->n; i++) {
    bson_uint32_to_string((uint32_t)i, &k, key, sizeof key);
    msg_mongo_append_oid(&array, k, &locks->at[i].id);
  }
  bson_append_array_end(&in, &array);
  bson_append_document_end(filter, &in);
}

static int purge(msg_mongo_session *s, msg_mongo_use *u, const msg_texts *topics, int64_t *count,
                 msg_err *err) {
  int64_t now_ms = msg_mongo_now_ms(s->store);
  msg_mongo_locks locks = {0};
  msg_mongo_places place = {&s->place, 1, 1};
  int rc = msg_mongo_locks_read(u, &place, NULL, now_ms, &locks, err);
  for (size_t i = 0; rc == MSG_OK && i < topics->n; i += MSG_MONGO_TOPICS_MAX) {
    size_t n = topics->n - i < MSG_MONGO_TOPICS_MAX ? topics->n - i : MSG_MONGO_TOPICS_MAX;
    msg_mongo_result result = {0};
    bson_t filter = BSON_INITIALIZER;
    append_purged(&filter, topics, i, n, &locks, now_ms);
    rc = msg_mongo_delete(u, s->names.messages, "purge", &filter, &result, err);
    *count += result.deleted;
    bson_destroy(&filter);
  }
  msg_mongo_locks_clear(&locks);
  return rc;
}

/* ---- redrive ---- */

static int note_group(void *arg, const bson_t *doc, msg_err *err) {
  return msg_mongo_groups_add_of(arg, doc, err);
}

static void append_dead(bson_t *filter, const msg_texts *topics, size_t from, size_t n) {
  msg_mongo_append_texts(filter, "topic", "$in", topics->at + from, n, false);
  BSON_APPEND_UTF8(filter, "sq.state", "dead");
}

/* What comes back stands in front of a head that nobody has taken yet. */
static int demote(msg_mongo_session *s, msg_mongo_use *u, const msg_mongo_groups *g, msg_err *err) {
  bson_t filter = BSON_INITIALIZER;
  bson_t *change = BCON_NEW("$set", "{", "processed_by", "[", BCON_UTF8(MSG_MONGO_BLOCKED), "]",
                            "sq.state", BCON_UTF8("blocked"), "}", "$unset", "{", "sq.head",
                            BCON_INT32(1), "sq.until", BCON_INT32(1), "}");
  msg_mongo_append_groups(&filter, g);
  BSON_APPEND_BOOL(&filter, "sq.head", true);
  BCON_APPEND(&filter, "processed_by", "{", "$in", "[", BCON_NULL, "[", "]", "[",
              BCON_UTF8(MSG_MONGO_DELAYED), "]", "]", "}");
  int rc = msg_mongo_update(u, s->names.messages, "redrive", &filter, change, NULL, err);
  bson_destroy(change);
  bson_destroy(&filter);
  return rc;
}

static int redrive_part(msg_mongo_session *s, msg_mongo_use *u, const msg_texts *topics,
                        size_t from, size_t n, int64_t *count, msg_err *err) {
  msg_mongo_groups groups = {0};
  msg_mongo_result result = {0};
  bson_t dead = BSON_INITIALIZER, grouped, *change = msg_mongo_change_redrive();
  bson_t *opts =
      BCON_NEW("projection", "{", "topic", BCON_INT32(1), "sq.group", BCON_INT32(1), "}");
  append_dead(&dead, topics, from, n);
  bson_copy_to(&dead, &grouped);
  BCON_APPEND(&grouped, "sq.group", "{", "$exists", BCON_BOOL(true), "}");
  int rc =
      msg_mongo_each(u, s->names.messages, "redrive", &grouped, opts, note_group, &groups, err);
  if (rc == MSG_OK)
    rc = msg_mongo_update(u, s->names.messages, "redrive", &dead, change, &result, err);
  *count += result.matched;
  if (rc == MSG_OK && groups.n)
    rc = demote(s, u, &groups, err);
  if (rc == MSG_OK && groups.n)
    rc = msg_mongo_groups_promote(s, u, &groups, err);
  msg_mongo_groups_clear(&groups);
  bson_destroy(opts);
  bson_destroy(change);
  bson_destroy(&grouped);
  bson_destroy(&dead);
  return rc;
}

static int redrive(msg_mongo_session *s, msg_mongo_use *u, const msg_texts *topics, int64_t *count,
                   msg_err *err) {
  int rc = MSG_OK;
  for (size_t i = 0; rc == MSG_OK && i < topics->n; i += MSG_MONGO_TOPICS_MAX) {
    size_t n = topics->n - i < MSG_MONGO_TOPICS_MAX ? topics->n - i : MSG_MONGO_TOPICS_MAX;
    rc = redrive_part(s, u, topics, i, n, count, err);
  }
  return rc;
}

/* ---- the verbs ---- */

typedef int (*on_topics)(msg_mongo_session *s, msg_mongo_use *u, const msg_texts *topics,
                         int64_t *count, msg_err *err);

struct acting {
  const msg_pattern *pattern;
  on_topics act;
  int64_t n;
};

static int act_at(msg_mongo_session *at, msg_mongo_use *u, void *arg, msg_err *err) {
  struct acting *w = arg;
  msg_texts topics = {0};
  int rc = msg_mongo_topics_of(at, u, w->pattern, NULL, 0, &topics, err);
  if (rc == MSG_OK && topics.n)
    rc = w->act(at, u, &topics, &w->n, err);
  msg_texts_clear(&topics);
  return rc;
}

static int run(msg_session *base, const char *what, const msg_pattern *pattern, on_topics act,
               int64_t *count, msg_err *err) {
  msg_mongo_session *s = (msg_mongo_session *)base;
  struct acting w = {.pattern = pattern, .act = act};
  msg_mongo_use u;
  int rc = msg_mongo_take(s->store, what, &u, err);
  if (rc != MSG_OK)
    return rc;
  rc = msg_mongo_everywhere(s, &u, act_at, &w, err);
  msg_mongo_give(&u);
  if (rc == MSG_OK)
    *count = w.n;
  return rc;
}

int msg_mongo_purge(msg_session *base, const msg_actor *actor, const msg_pattern *pattern,
                    int64_t *count, msg_err *err) {
  (void)actor;
  return run(base, "purge", pattern, purge, count, err);
}

int msg_mongo_redrive(msg_session *base, const msg_actor *actor, const msg_pattern *pattern,
                      int64_t *count, msg_err *err) {
  (void)actor;
  return run(base, "redrive", pattern, redrive, count, err);
}
