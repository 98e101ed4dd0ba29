/* candidates.c - steps 1 and 2 of a claim: what is ready, by sq_claim, less what is locked. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "store/mongo/claiming.h"
#include "store/mongo/group.h"
#include "store/mongo/place.h"
#include "store/mongo/query.h"
#include "store/mongo/topics.h"

#define PAGE_MIN 32
#define PAGES    64
#define JAVA_MS  60000

/* ---- 1. candidates ---- */

void msg_mongo_append_ready(bson_t *filter, const msg_mongo_claiming *c, char *const *topics,
                            size_t n) {
  char *me[] = {(char *)c->actor->node};
  if (msg_mongo_is_unnamed(c->s))
    msg_mongo_append_topics(filter, topics, n);
  else
    msg_mongo_append_texts(filter, "topic", "$in", topics, n, false);
  BSON_APPEND_BOOL(filter, "exclusive", true);
  BCON_APPEND(filter, "_id", "{", "$type", BCON_UTF8("objectId"), "}");
  msg_mongo_append_untaken(filter);
  msg_mongo_append_texts(filter, "recipients", "$in", me, 1, true);
  msg_mongo_append_alive(filter, c->now_ms);
}

/* Deliveries that the host rolled back count now. */
static int64_t attempts_of(msg_mongo_claiming *c, const bson_t *doc, const msg_oid *id,
                           msg_err *err, int *rc) {
  int64_t attempts = msg_mongo_get_int(doc, "sq.attempts", 0);
  int32_t undone = msg_mongo_undone_any(c->s->store) ? msg_mongo_undone_take(c->s->store, id) : 0;
  if (undone == 0)
    return attempts;
  bson_t filter = BSON_INITIALIZER;
  bson_t *change = BCON_NEW("$set", "{", "sq.attempts", BCON_INT64(attempts + undone), "}");
  msg_mongo_append_oid(&filter, "_id", id);
  *rc = msg_mongo_update(c->u, c->s->names.messages, "claim", &filter, change, NULL, err);
  bson_destroy(change);
  bson_destroy(&filter);
  return attempts + undone;
}

static int note_candidate(void *arg, const bson_t *doc, msg_err *err) {
  msg_mongo_claiming *c = arg;
  msg_mongo_candidate x = {.priority = msg_mongo_get_int(doc, "priority", MSG_PRIORITY_DEFAULT),
                           .at_ms = msg_mongo_get_int(doc, "timestamp", 0)};
  int rc = MSG_OK;
  c->seen++;
  if (!msg_mongo_get_oid(doc, "_id", &x.id))
    return MSG_OK;
  if (msg_mongo_get_text(doc, "sq.group"))
    msg_mongo_note_grouped(c->s);
  c->mortal = c->mortal || msg_mongo_get_int(doc, "delete_at", MSG_NEVER) != MSG_NEVER;
  if (attempts_of(c, doc, &x.id, err, &rc) >= c->actor->settings->max_attempts)
    return rc != MSG_OK                                    ? rc
           : msg_mongo_ids_add(&c->dying, &x.id) == MSG_OK ? MSG_OK
                                                           : msg_err_nomem(err);
  if (rc == MSG_OK && msg_grow(&c->at, &c->cap, c->n + 1, sizeof *c->at) != MSG_OK)
    rc = msg_err_nomem(err);
  if (rc == MSG_OK)
    c->at[c->n++] = x;
  return rc;
}

static int query_candidates(msg_mongo_claiming *c, char *const *topics, size_t n, int64_t skip,
                            int64_t limit, msg_err *err) {
  bson_t filter = BSON_INITIALIZER;
  bson_t *opts =
      BCON_NEW("sort", "{", "priority", BCON_INT32(1), "timestamp", BCON_INT32(1), "_id",
               BCON_INT32(1), "}", "projection", "{", "priority", BCON_INT32(1), "timestamp",
               BCON_INT32(1), "sq.attempts", BCON_INT32(1), "sq.group", BCON_INT32(1), "delete_at",
               BCON_INT32(1), "}", "hint", BCON_UTF8("sq_claim"));
  msg_mongo_append_limit(opts, limit);
  if (skip)
    BSON_APPEND_INT64(opts, "skip", skip);
  msg_mongo_append_ready(&filter, c, topics, n);
  c->seen = 0;
  int rc =
      msg_mongo_each(c->u, c->s->names.messages, "claim", &filter, opts, note_candidate, c, err);
  bson_destroy(opts);
  bson_destroy(&filter);
  return rc;
}

int msg_mongo_candidate_cmp(const void *a, const void *b) {
  const msg_mongo_candidate *x = a, *y = b;
  if (x->priority != y->priority)
    return x->priority < y->priority ? -1 : 1;
  if (x->at_ms != y->at_ms)
    return x->at_ms < y->at_ms ? -1 : 1;
  return msg_oid_cmp(&x->id, &y->id);
}

/* One page over all topics, in order. Few topics go into one query; of many the best of each
 * part. */
static int page(msg_mongo_claiming *c, int64_t skip, int64_t limit, msg_err *err) {
  int rc = MSG_OK;
  size_t most = 0;
  c->n = 0;
  for (size_t i = 0; rc == MSG_OK && i < c->topics.n; i += MSG_MONGO_TOPICS_MAX) {
    size_t n = c->topics.n - i;
    n = n < MSG_MONGO_TOPICS_MAX ? n : MSG_MONGO_TOPICS_MAX;
    rc = query_candidates(c, c->topics.at + i, n, skip, limit, err);
    most = c->seen > most ? c->seen : most;
  }
  c->seen = most;
  if (c->n > 1 && c->topics.n > MSG_MONGO_TOPICS_MAX)
    qsort(c->at, c->n, sizeof *c->at, msg_mongo_candidate_cmp);
  return rc;
}

/* ---- 2. locks ---- */

static int note_locked(void *arg, const bson_t *doc, msg_err *err) {
  msg_oid id;
  if (msg_mongo_get_oid(doc, "_id", &id) && msg_mongo_ids_add(arg, &id) != MSG_OK)
    return msg_err_nomem(err);
  return MSG_OK;
}

void msg_mongo_note_locked(msg_mongo_session *s) {
  msg_mutex_lock(s->store->mtx);
  s->place->locked_at_ms = msg_clock_mono_ms();
  msg_mutex_unlock(s->store->mtx);
}

int msg_mongo_read_locks(msg_mongo_claiming *c, const msg_mongo_ids *ids, msg_mongo_ids *locked,
                         msg_err *err) {
  bson_t filter = BSON_INITIALIZER;
  bson_t *opts = BCON_NEW("projection", "{", "_id", BCON_INT32(1), "}");
  msg_mongo_ids_clear(locked);
  msg_mongo_append_ids(&filter, "_id", "$in", ids->at, ids->n);
  msg_mongo_append_alive(&filter, c->now_ms);
  int rc =
      msg_mongo_each(c->u, c->s->names.locks, "claim", &filter, opts, note_locked, locked, err);
  if (locked->n)
    msg_mongo_note_locked(c->s);
  bson_destroy(opts);
  bson_destroy(&filter);
  return rc;
}

/* Has a lock been met lately? */
static bool with_java(msg_mongo_session *s) {
  msg_mutex_lock(s->store->mtx);
  int64_t at_ms = s->place->locked_at_ms;
  msg_mutex_unlock(s->store->mtx);
  return at_ms && msg_clock_mono_ms() - at_ms < JAVA_MS;
}

/* The first `count` of the page that nobody has locked go to c->ids. */
static int choose(msg_mongo_claiming *c, size_t count, msg_err *err) {
  msg_mongo_ids all = {0};
  int rc = MSG_OK;
  for (size_t i = 0; rc == MSG_OK && i < c->n; i++)
    rc = msg_mongo_ids_add(&all, &c->at[i].id);
  if (rc != MSG_OK)
    rc = msg_err_nomem(err);
  else if (all.n && with_java(c->s)) /* else they are seen after the mark, which is enough */
    rc = msg_mongo_read_locks(c, &all, &c->locked, err);
  for (size_t i = 0; rc == MSG_OK && i < all.n && c->ids.n < count; i++)
    if (!msg_mongo_ids_have(&c->locked, &all.at[i]) &&
        msg_mongo_ids_add(&c->ids, &all.at[i]) != MSG_OK)
      rc = msg_err_nomem(err);
  msg_mongo_ids_clear(&all);
  return rc;
}

/* Pages on while everything is locked. */
int msg_mongo_find_free(msg_mongo_claiming *c, size_t count, msg_err *err) {
  int64_t skip = 0;
  int64_t limit = count > INT32_MAX ? INT32_MAX : (int64_t)count;
  for (int i = 0; i < PAGES; i++) {
    int rc = page(c, skip, limit, err);
    if (rc == MSG_OK)
      rc = choose(c, count, err);
    if (rc != MSG_OK || c->ids.n || c->dying.n || (int64_t)c->seen < limit)
      return rc;
    skip += limit;
    limit = limit < PAGE_MIN ? PAGE_MIN : 4 * limit;
  }
  return MSG_OK;
}
