#include "store/mongo/arrival.h"

#include <stdio.h>
#include <string.h>

#include "store/mongo/answers.h"
#include "store/mongo/status.h"
#include "store/mongo/tend.h"

/* Of an exclusive message not its body: who claims it reads it. */
bson_t *msg_mongo_wanted_fields(void) {
  static const char *const OF_EXCLUSIVE[] = {
      "_id",       "topic",     "name",      "sender", "recipients",   "priority",
      "exclusive", "timestamp", "delete_at", "sq",     "in_answer_to", "processed_by"};
  bson_t *doc = BCON_NEW("operationType", BCON_INT32(1), "ns", BCON_INT32(1)),
         few = BSON_INITIALIZER;
  char path[64];
  for (size_t i = 0; i < sizeof OF_EXCLUSIVE / sizeof OF_EXCLUSIVE[0]; i++) {
    snprintf(path, sizeof path, "$fullDocument.%s", OF_EXCLUSIVE[i]);
    BSON_APPEND_UTF8(&few, OF_EXCLUSIVE[i], path);
  }
  BCON_APPEND(doc, "fullDocument", "{", "$cond", "[", "{", "$eq", "[",
              BCON_UTF8("$fullDocument.exclusive"), BCON_BOOL(true), "]", "}", BCON_DOCUMENT(&few),
              BCON_UTF8("$fullDocument"), "]", "}");
  bson_destroy(&few);
  return doc;
}

void msg_mongo_arrival_read(bson_iter_t *doc, msg_mongo_arrival *a) {
  *a = (msg_mongo_arrival){0};
  bson_iter_t sq;
  while (bson_iter_next(doc)) {
    const char *key = bson_iter_key(doc);
    if ((strcmp(key, "topic") == 0 || (strcmp(key, "name") == 0 && !a->topic)) &&
        BSON_ITER_HOLDS_UTF8(doc)) {
      a->topic = bson_iter_utf8(doc, NULL);
    } else if (strcmp(key, "sender") == 0 && BSON_ITER_HOLDS_UTF8(doc)) {
      a->sender = bson_iter_utf8(doc, NULL);
    } else if (strcmp(key, "msg") == 0 && BSON_ITER_HOLDS_UTF8(doc)) {
      a->msg = bson_iter_utf8(doc, NULL);
    } else if (strcmp(key, "recipients") == 0 && BSON_ITER_HOLDS_ARRAY(doc)) {
      a->addressed = bson_iter_recurse(doc, &a->recipients);
    } else if (strcmp(key, "exclusive") == 0) {
      a->exclusive = bson_iter_as_bool(doc);
    } else if (strcmp(key, "in_answer_to") == 0) {
      a->answer = BSON_ITER_HOLDS_OID(doc);
    } else if (strcmp(key, "_id") == 0 && BSON_ITER_HOLDS_OID(doc)) {
      memcpy(a->id.b, bson_iter_oid(doc)->bytes, sizeof a->id.b);
      a->has_id = true;
    } else if (strcmp(key, "sq") == 0 && BSON_ITER_HOLDS_DOCUMENT(doc) &&
               bson_iter_recurse(doc, &sq) && bson_iter_find(&sq, "until") &&
               BSON_ITER_HOLDS_DATE_TIME(&sq)) {
      a->until_ms = bson_iter_date_time(&sq);
    }
  }
}

static bool is_own(const msg_mongo_tend *t, const msg_mongo_queue *queue, const char *node) {
  for (size_t i = 0; i < t->own_count; i++)
    if (t->own[i].queue == queue && strcmp(t->own[i].row.node, node) == 0)
      return true;
  for (size_t i = 0; i < t->heard_count; i++)
    if (t->heard[i].queue == queue && strcmp(t->heard[i].node, node) == 0)
      return true;
  return false;
}

/* Does a node of this process, not its sender, listen to it? Who did not even announce itself
 * may. */
static bool is_heard(const msg_mongo_tend *t, const msg_mongo_queue *queue,
                     const msg_mongo_arrival *a) {
  if (t->own_count + t->heard_count == 0)
    return true;
  for (size_t i = 0; i < t->heard_count; i++) {
    const msg_mongo_heard *h = &t->heard[i];
    if (h->queue == queue && (!a->sender || strcmp(h->node, a->sender) != 0) &&
        (!a->topic || msg_pattern_match(h->compiled, a->topic)))
      return true;
  }
  return false;
}

/* As msg_mongo_append_no_registry. */
static bool is_for_registry(const msg_mongo_arrival *a) {
  return a->addressed && a->topic && strcmp(a->topic, MSG_MONGO_STATUS_TOPIC) == 0 && a->msg &&
         strcmp(a->msg, MSG_MONGO_REGISTRY_ASKS) == 0;
}

/* Whoever claims told nobody of what. */
bool msg_mongo_arrival_concerns(const msg_mongo_session *s, const msg_mongo_arrival *a) {
  msg_mongo_tend *t = s->store->tend;
  const msg_mongo_queue *queue = s->queue;
  bool mine = a->exclusive;
  bson_iter_t to = a->recipients;
  if (is_for_registry(a))
    return false;
  msg_mutex_lock(t->mtx);
  if (!mine && a->addressed)
    while (!mine && bson_iter_next(&to))
      mine = t->own_count + t->heard_count == 0 ||
             (BSON_ITER_HOLDS_UTF8(&to) && is_own(t, queue, bson_iter_utf8(&to, NULL)));
  else if (!mine)
    mine = is_heard(t, queue, a);
  msg_mutex_unlock(t->mtx);
  return mine;
}
