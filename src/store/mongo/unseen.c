/* unseen.c - broadcasts, directs and answers that a node has not been handed yet. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "model/options.h"
#include "store/mongo/answers.h"
#include "store/mongo/catalog.h"
#include "store/mongo/marks.h"
#include "store/mongo/query.h"
#include "store/mongo/topics.h"
#include "store/mongo/where.h"

#define MARKS_MAX 5000

struct looking {
  msg_mongo_session *s; /* at the place that is looked at */
  msg_mongo_use *u;
  const msg_actor *actor;
  const msg_unseen *q;
  int64_t now_ms;
  msg_mongo_listen *listens;
  size_t listen_count;
  msg_mongo_ids marks; /* under way when the look began */
  msg_list got;
};

/* ---- the filter: an $or at its root, each of its branches served by an index of its own ---- */

/* Conditions that hold for nearly every message, as expressions: no index shall be tempted by them.
 * An ObjectId, alive, not taken by me; `others`: not mine, and not there before I listened. */
static void append_expr(const struct looking *l, bson_t *one, const msg_mongo_listen *others) {
  bson_t expr, and_, no, in, pair;
  const char *me = l->actor->node;
  BSON_APPEND_DOCUMENT_BEGIN(one, "$expr", &expr);
  BSON_APPEND_ARRAY_BEGIN(&expr, "$and", &and_);
  BCON_APPEND(&and_, "0", "{", "$eq", "[", "{", "$type", BCON_UTF8("$_id"), "}",
              BCON_UTF8("objectId"), "]", "}", "1", "{", "$gt", "[", "{", "$ifNull", "[",
              BCON_UTF8("$delete_at"), BCON_DATE_TIME(MSG_TIME_MAX_MS), "]", "}",
              BCON_DATE_TIME(l->now_ms), "]", "}", "2", "{", "$not", "[", "{", "$in", "[", "{",
              "$literal", BCON_UTF8(me), "}", "{", "$cond", "[", "{", "$isArray",
              BCON_UTF8("$processed_by"), "}", BCON_UTF8("$processed_by"), "[", "]", "]", "}", "]",
              "}", "]", "}");
  if (others)
    BCON_APPEND(&and_, "3", "{", "$ne", "[", BCON_UTF8("$sender"), "{", "$literal", BCON_UTF8(me),
                "}", "]", "}");
  bool since = others && others->since_ms > INT64_MIN;
  if (since) /* by its sending: timestamp is the delivery */
    BCON_APPEND(&and_, "4", "{", "$gt", "[", "{", "$ifNull", "[", BCON_UTF8("$sq.sent"),
                BCON_UTF8("$timestamp"), "]", "}", BCON_INT64(others->since_ms), "]", "}");
  if (others && others->before_count) {
    BSON_APPEND_DOCUMENT_BEGIN(&and_, since ? "5" : "4", &no);
    BSON_APPEND_DOCUMENT_BEGIN(&no, "$not", &in);
    BSON_APPEND_ARRAY_BEGIN(&in, "$in", &pair);
    BSON_APPEND_UTF8(&pair, "0", "$_id");
    msg_mongo_append_oids(&pair, "1", others->before, others->before_count);
    bson_append_array_end(&in, &pair);
    bson_append_document_end(&no, &in);
    bson_append_document_end(&and_, &no);
  }
  bson_append_array_end(&expr, &and_);
  bson_append_document_end(one, &expr);
}

static void append_common(const struct looking *l, bson_t *one, const msg_mongo_listen *others) {
  const msg_unseen *q = l->q;
  BCON_APPEND(one, "exclusive", "{", "$in", "[", BCON_BOOL(false), BCON_NULL, "]", "}");
  append_expr(l, one, others);
  if (q->answers_to)
    msg_mongo_append_oid(one, "in_answer_to", q->answers_to);
  else if (q->reserved_count)
    msg_mongo_append_ids(one, "in_answer_to", "$nin", q->reserved, q->reserved_count);
}

static void begin_branch(const struct looking *l, bson_t *any, int *n, bson_t *one,
                         const msg_mongo_listen *others) {
  char key[16];
  snprintf(key, sizeof key, "%d", (*n)++);
  bson_append_document_begin(any, key, -1, one);
  append_common(l, one, others);
}

static void append_topics(const struct looking *l, bson_t *one, const msg_texts *topics) {
  if (msg_mongo_is_unnamed(l->s))
    msg_mongo_append_topics(one, topics->at, topics->n);
  else
    msg_mongo_append_texts(one, "topic", "$in", topics->at, topics->n, false);
}

/* {recipients: me}, of the topics that are wanted. */
static int append_directs(struct looking *l, bson_t *any, int *n, msg_err *err) {
  const msg_unseen *q = l->q;
  msg_texts topics = {0};
  bson_t one;
  bool all = !q->pattern && q->paused_count == 0;
  int rc =
      all ? MSG_OK
          : msg_mongo_topics_of(l->s, l->u, q->pattern, q->paused, q->paused_count, &topics, err);
  if (rc == MSG_OK && (all || topics.n)) {
    begin_branch(l, any, n, &one, NULL);
    BSON_APPEND_UTF8(&one, "recipients", l->actor->node);
    msg_mongo_append_no_registry(&one);
    if (!all)
      append_topics(l, &one, &topics);
    bson_append_document_end(any, &one);
  }
  msg_texts_clear(&topics);
  return rc;
}

/* Broadcasts of one pattern that came after the node began to listen. */
static void append_broadcasts(const struct looking *l, const msg_mongo_listen *listen,
                              const msg_texts *topics, bson_t *any, int *n) {
  bson_t one;
  begin_branch(l, any, n, &one, listen);
  append_topics(l, &one, topics);
  BSON_APPEND_NULL(&one, "recipients");
  bson_append_document_end(any, &one);
}

static int append_listen(struct looking *l, const msg_mongo_listen *listen, bson_t *any, int *n,
                         msg_err *err) {
  msg_pattern *pattern = NULL;
  msg_texts topics = {0};
  int rc = msg_pattern_new(listen->pattern, &pattern, err);
  if (rc == MSG_OK)
    rc = msg_mongo_topics_of(l->s, l->u, pattern, l->q->paused, l->q->paused_count, &topics, err);
  if (rc == MSG_OK && topics.n)
    append_broadcasts(l, listen, &topics, any, n);
  msg_texts_clear(&topics);
  msg_pattern_free(pattern);
  return rc;
}

static bool is_wanted(const struct looking *l, const msg_mongo_listen *listen) {
  return !l->q->pattern || strcmp(msg_pattern_text(l->q->pattern), listen->pattern) == 0;
}

/* An answer is addressed to me, or to everybody: by sq_answer. */
static void append_answers(const struct looking *l, bson_t *filter) {
  append_common(l, filter, NULL);
  BCON_APPEND(filter, "$or", "[", "{", "recipients", BCON_UTF8(l->actor->node), "}", "{",
              "recipients", BCON_NULL, "$nor", "[", "{", "sender", BCON_UTF8(l->actor->node), "}",
              "]", "}", "]");
}

static int append_filter(struct looking *l, bson_t *filter, int *n, msg_err *err) {
  bson_t any;
  if (l->q->answers_to) {
    append_answers(l, filter);
    *n = 1;
    return MSG_OK;
  }
  BSON_APPEND_ARRAY_BEGIN(filter, "$or", &any);
  int rc = l->s->place->kind == MSG_MONGO_TOPIC ? MSG_OK : append_directs(l, &any, n, err);
  bool here = l->s->place->kind != MSG_MONGO_LANES;
  for (size_t i = 0; rc == MSG_OK && here && i < l->listen_count; i++)
    if (is_wanted(l, &l->listens[i]))
      rc = append_listen(l, &l->listens[i], &any, n, err);
  bson_append_array_end(filter, &any);
  return rc;
}

/* ---- rows ---- */

static int by_id(const void *a, const void *b) {
  return msg_oid_cmp(a, b);
}

static int note(void *arg, const bson_t *doc, msg_err *err) {
  struct looking *l = arg;
  msg_message m, *to;
  int rc = msg_mongo_message(doc, l->now_ms, true, &m, err);
  if (rc == MSG_CORRUPT)
    return MSG_OK;
  if (rc != MSG_OK)
    return rc;
  bool handed =
      l->marks.n > 0 && bsearch(&m.id, l->marks.at, l->marks.n, sizeof m.id, by_id) != NULL;
  if (handed || !(to = msg_list_add(&l->got))) {
    msg_message_clear(&m);
    return handed ? MSG_OK : msg_err_nomem(err);
  }
  *to = m;
  msg_mongo_met(l->s, &m.id);
  return MSG_OK;
}

/* So many marks under way, and the marker comes first. */
static int copy_marks(struct looking *l, msg_err *err) {
  int rc = MSG_OK;
  for (int i = 0; rc == MSG_OK && i < 2 && (i == 0 || l->marks.n > MARKS_MAX); i++) {
    if (i > 0)
      msg_mongo_seen_flush(l->s);
    msg_mongo_ids_clear(&l->marks);
    rc = msg_mongo_marks_copy(l->s, l->actor->node, &l->marks, err);
  }
  if (rc == MSG_OK && l->marks.n > MARKS_MAX)
    rc = msg_err_set(err, MSG_UNAVAILABLE,
                     "await: the marks of %zu messages that were handed out cannot be written "
                     "(MongoDB at %s)",
                     l->marks.n, l->s->store->hosts);
  return rc;
}

/* Those whose mark is under way come from the server, too: room for them. */
static int look_at(struct looking *l, msg_err *err) {
  bson_t filter = BSON_INITIALIZER;
  int sources = 0;
  int rc = copy_marks(l, err);
  if (rc != MSG_OK)
    return rc;
  int64_t limit = (int64_t)l->q->max + (int64_t)l->marks.n;
  bson_t *opts = BCON_NEW("sort", "{", "priority", BCON_INT32(1), "timestamp", BCON_INT32(1), "_id",
                          BCON_INT32(1), "}");
  msg_mongo_append_limit(opts, limit);
  msg_mongo_append_durable(l->s->store, opts);
  l->now_ms = msg_mongo_now_ms(l->s->store);
  rc = append_filter(l, &filter, &sources, err);
  if (rc == MSG_OK && sources)
    rc = msg_mongo_each(l->u, l->s->names.messages, "await", &filter, opts, note, l, err);
  bson_destroy(opts);
  bson_destroy(&filter);
  return rc;
}

static int hand_over(struct looking *l, msg_list *out, msg_err *err) {
  msg_list_sort(&l->got);
  for (size_t i = 0; i < l->got.n && i < l->q->max; i++) {
    msg_message *to = msg_list_add(out);
    if (!to)
      return msg_err_nomem(err);
    *to = l->got.at[i];
    msg_message_init(&l->got.at[i]);
  }
  return MSG_OK;
}

/* Nothing came: is something due, or did an old node write? */
static int look_closer(struct looking *l, bool *more, msg_err *err) {
  int moved = 0;
  bool unnamed = msg_mongo_is_unnamed(l->s);
  int rc = msg_mongo_sweep(l->s, l->u, l->actor->settings->max_attempts, true, &moved, err);
  if (rc == MSG_OK && !unnamed)
    rc = msg_mongo_look_unnamed(l->s, l->u, err);
  *more = rc == MSG_OK && (moved > 0 || (!unnamed && msg_mongo_is_unnamed(l->s)));
  return rc;
}

/* A topic's has no directs and no answers, and a lane its indexes from its beginning. */
static int ready(msg_mongo_session *at, msg_mongo_use *u, const struct looking *l, msg_err *err) {
  if (at->place->kind == MSG_MONGO_TOPIC || at->place->kind == MSG_MONGO_LANES)
    return MSG_OK;
  if (l->q->answers_to)
    msg_mongo_need_answers(at);
  else
    msg_mongo_need_directs(at);
  return msg_mongo_indexes(at, u, err);
}

/* At one place. Answers are never delayed, nor of nodes without topics. */
static int unseen_at(msg_mongo_session *at, msg_mongo_use *u, void *arg, msg_err *err) {
  struct looking *l = arg;
  size_t before = l->got.n;
  bool more = false;
  l->s = at;
  l->u = u;
  int rc = ready(at, u, l, err);
  if (rc != MSG_OK)
    return rc;
  if (l->q->answers_to)
    return before < l->q->max ? look_at(l, err) : MSG_OK;
  rc = msg_mongo_sweep(at, u, l->actor->settings->max_attempts, false, NULL, err);
  if (rc == MSG_OK)
    rc = look_at(l, err);
  if (rc == MSG_OK && l->got.n == before)
    rc = look_closer(l, &more, err);
  return rc == MSG_OK && more ? look_at(l, err) : rc;
}

/* Answers are in the lane, but for those of nodes without lanes. */
static int places_of(msg_mongo_session *s, struct looking *l, msg_mongo_places *out, msg_err *err) {
  const char *node = l->actor->node;
  int rc = s->queue->layout->lanes ? msg_mongo_places_add(out, msg_mongo_place_lane(s, node), err)
                                   : MSG_OK;
  if (l->q->answers_to)
    return rc == MSG_OK && s->queue->main ? msg_mongo_places_add(out, s->queue->main, err) : rc;
  for (size_t i = 0; rc == MSG_OK && i < l->listen_count; i++) {
    msg_pattern *pattern;
    if (!is_wanted(l, &l->listens[i]))
      continue;
    rc = msg_pattern_new(l->listens[i].pattern, &pattern, err);
    if (rc == MSG_OK) {
      rc = msg_mongo_places_of(s, l->u, pattern, NULL, out, err);
      msg_pattern_free(pattern);
    }
  }
  return rc == MSG_OK && s->queue->main ? msg_mongo_places_add(out, s->queue->main, err) : rc;
}

static int unseen(msg_mongo_session *s, struct looking *l, msg_list *out, msg_err *err) {
  msg_mongo_places places = {0};
  int rc = l->q->answers_to
               ? MSG_OK
               : msg_mongo_listens(s, l->u, l->actor->node, &l->listens, &l->listen_count, err);
  if (rc == MSG_OK && !l->q->answers_to)
    rc = msg_mongo_sweep_apart(s, l->u, err);
  if (rc == MSG_OK)
    rc = places_of(s, l, &places, err);
  if (rc == MSG_OK)
    rc = msg_mongo_places_each(s, l->u, &places, unseen_at, l, err);
  msg_mongo_places_clear(&places);
  return rc == MSG_OK ? hand_over(l, out, err) : rc;
}

int msg_mongo_unseen(msg_session *base, const msg_actor *actor, const msg_unseen *query,
                     msg_list *out, msg_err *err) {
  msg_mongo_session *s = (msg_mongo_session *)base;
  msg_mongo_use u;
  struct looking l = {.u = &u, .actor = actor, .q = query};
  int rc = msg_mongo_take_bounded(s, "await", &u, err);
  if (rc != MSG_OK)
    return rc;
  rc = unseen(s, &l, out, err);
  msg_list_clear(&l.got);
  msg_mongo_ids_clear(&l.marks);
  if (l.listens)
    msg_mongo_listens_free(l.listens, l.listen_count);
  msg_mongo_give(&u);
  return rc;
}
