/* unseen.c - broadcasts, directs and answers that a node has not been handed yet. */
#include <string.h>

#include "base/mem.h"
#include "store/mongo/marks.h"
#include "store/mongo/query.h"

struct looking {
  msg_mongo_session *s;
  msg_mongo_use *u;
  const msg_actor *actor;
  const msg_unseen *q;
  int64_t now_ms;
  msg_mongo_listen *listens;
  size_t listen_count;
  msg_mongo_ids marks; /* under way when the look began */
  msg_list got;
};

/* ---- the filter ---- */

/* {recipients: me}, of the topics that are wanted. */
static int append_directs(struct looking *l, bson_t *any, int *n, msg_err *err) {
  const msg_unseen *q = l->q;
  msg_mongo_texts topics = {0};
  bson_t one;
  char key[16];
  bool all = !q->pattern && q->paused_count == 0;
  int rc =
      all ? MSG_OK
          : msg_mongo_topics_of(l->s, l->u, q->pattern, q->paused, q->paused_count, &topics, err);
  if (rc == MSG_OK && (all || topics.n)) {
    snprintf(key, sizeof key, "%d", (*n)++);
    BSON_APPEND_DOCUMENT_BEGIN(any, key, &one);
    BSON_APPEND_UTF8(&one, "recipients", l->actor->node);
    if (!all)
      msg_mongo_append_topics(&one, topics.at, topics.n);
    bson_append_document_end(any, &one);
  }
  msg_mongo_texts_clear(&topics);
  return rc;
}

/* Broadcasts of one pattern that came after the node began to listen. */
static void append_broadcasts(const struct looking *l, const msg_mongo_listen *listen,
                              const msg_mongo_texts *topics, bson_t *any, int *n) {
  bson_t one;
  char key[16];
  snprintf(key, sizeof key, "%d", (*n)++);
  BSON_APPEND_DOCUMENT_BEGIN(any, key, &one);
  msg_mongo_append_topics(&one, topics->at, topics->n);
  BSON_APPEND_NULL(&one, "recipients");
  BCON_APPEND(&one, "sender", "{", "$ne", BCON_UTF8(l->actor->node), "}");
  if (listen->since_ms > INT64_MIN)
    BCON_APPEND(&one, "timestamp", "{", "$gt", BCON_INT64(listen->since_ms), "}");
  if (listen->before_count)
    msg_mongo_append_ids(&one, "_id", "$nin", listen->before, listen->before_count);
  bson_append_document_end(any, &one);
}

static int append_listen(struct looking *l, const msg_mongo_listen *listen, bson_t *any, int *n,
                         msg_err *err) {
  msg_pattern *pattern = NULL;
  msg_mongo_texts topics = {0};
  int rc = msg_pattern_new(listen->pattern, &pattern, err);
  if (rc == MSG_OK)
    rc = msg_mongo_topics_of(l->s, l->u, pattern, l->q->paused, l->q->paused_count, &topics, err);
  if (rc == MSG_OK && topics.n)
    append_broadcasts(l, listen, &topics, any, n);
  msg_mongo_texts_clear(&topics);
  msg_pattern_free(pattern);
  return rc;
}

static bool is_wanted(const struct looking *l, const msg_mongo_listen *listen) {
  return !l->q->pattern || strcmp(msg_pattern_text(l->q->pattern), listen->pattern) == 0;
}

/* What an answer may be: addressed to me, or to everybody. */
static void append_answers(const struct looking *l, bson_t *any, int *n) {
  char key[16];
  snprintf(key, sizeof key, "%d", (*n)++);
  BCON_APPEND(any, key, "{", "recipients", BCON_UTF8(l->actor->node), "}");
  snprintf(key, sizeof key, "%d", (*n)++);
  BCON_APPEND(any, key, "{", "recipients", BCON_NULL, "sender", "{", "$ne",
              BCON_UTF8(l->actor->node), "}", "}");
}

static int append_sources(struct looking *l, bson_t *filter, int *n, msg_err *err) {
  bson_t any;
  int rc = MSG_OK;
  BSON_APPEND_ARRAY_BEGIN(filter, "$or", &any);
  if (l->q->answers_to) {
    append_answers(l, &any, n);
  } else {
    rc = append_directs(l, &any, n, err);
    for (size_t i = 0; rc == MSG_OK && i < l->listen_count; i++)
      if (is_wanted(l, &l->listens[i]))
        rc = append_listen(l, &l->listens[i], &any, n, err);
  }
  bson_append_array_end(filter, &any);
  return rc;
}

static int append_filter(struct looking *l, bson_t *filter, int *sources, msg_err *err) {
  const msg_unseen *q = l->q;
  BCON_APPEND(filter, "exclusive", "{", "$in", "[", BCON_BOOL(false), BCON_NULL, "]", "}",
              "processed_by", "{", "$ne", BCON_UTF8(l->actor->node), "}", "_id", "{", "$type",
              BCON_UTF8("objectId"), "}");
  msg_mongo_append_alive(filter, l->now_ms);
  if (q->answers_to)
    msg_mongo_append_oid(filter, "in_answer_to", q->answers_to);
  else if (q->reserved_count)
    msg_mongo_append_ids(filter, "in_answer_to", "$nin", q->reserved, q->reserved_count);
  return append_sources(l, filter, sources, err);
}

/* ---- rows ---- */

static int note(void *arg, const bson_t *doc, msg_err *err) {
  struct looking *l = arg;
  msg_message m, *to;
  int rc = msg_mongo_message(doc, l->now_ms, true, &m, err);
  if (rc == MSG_CORRUPT)
    return MSG_OK;
  if (rc != MSG_OK)
    return rc;
  if (msg_mongo_ids_have(&l->marks, &m.id) || msg_mongo_marks_have(l->s, l->actor->node, &m.id)) {
    msg_message_clear(&m);
    return MSG_OK;
  }
  if (!(to = msg_list_add(&l->got))) {
    msg_message_clear(&m);
    return msg_err_nomem(err);
  }
  *to = m;
  return MSG_OK;
}

/* Those whose mark is under way come from the server, too: room for them. */
static int look(struct looking *l, msg_err *err) {
  bson_t filter = BSON_INITIALIZER;
  int sources = 0;
  msg_mongo_ids_clear(&l->marks);
  if (msg_mongo_marks_copy(l->s, l->actor->node, &l->marks) != MSG_OK)
    return msg_err_nomem(err);
  int64_t limit = (int64_t)l->q->max + (int64_t)l->marks.n;
  bson_t *opts = BCON_NEW("sort", "{", "priority", BCON_INT32(1), "timestamp", BCON_INT32(1), "_id",
                          BCON_INT32(1), "}", "limit", BCON_INT64(limit));
  l->now_ms = msg_mongo_now_ms(l->s->store);
  int rc = append_filter(l, &filter, &sources, err);
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

static int unseen(struct looking *l, msg_list *out, msg_err *err) {
  int64_t max_attempts = l->actor->settings->max_attempts;
  int moved = 0;
  int rc = msg_mongo_sweep(l->s, l->u, max_attempts, false, NULL, err);
  if (rc == MSG_OK && !l->q->answers_to)
    rc = msg_mongo_listens(l->s, l->u, l->actor->node, &l->listens, &l->listen_count, err);
  if (rc == MSG_OK)
    rc = look(l, err);
  if (rc == MSG_OK && l->got.n == 0)
    rc = msg_mongo_sweep(l->s, l->u, max_attempts, true, &moved, err);
  if (rc == MSG_OK && moved)
    rc = look(l, err);
  return rc == MSG_OK ? hand_over(l, out, err) : rc;
}

int msg_mongo_unseen(msg_session *base, const msg_actor *actor, const msg_unseen *query,
                     msg_list *out, msg_err *err) {
  msg_mongo_session *s = (msg_mongo_session *)base;
  msg_mongo_use u;
  struct looking l = {.s = s, .u = &u, .actor = actor, .q = query};
  int rc = msg_mongo_take(s->store, "await", &u, err);
  if (rc != MSG_OK)
    return rc;
  rc = unseen(&l, out, err);
  msg_list_clear(&l.got);
  msg_mongo_ids_clear(&l.marks);
  if (l.listens)
    msg_mongo_listens_free(l.listens, l.listen_count);
  msg_mongo_give(&u);
  return rc;
}
