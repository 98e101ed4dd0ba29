#include "store/mongo/answers.h"

#include <string.h>

#include "base/mem.h"
#include "store/mongo/catalog.h"
#include "store/mongo/pipe.h"
#include "store/mongo/query.h"
#include "store/mongo/status.h"

#define TOPICS "map_value.message_listeners_by_name"

/* Answers are addressed to who asked. */
static int places_of(msg_mongo_session *s, msg_mongo_use *u, const char *asker,
                     msg_mongo_places *out, msg_err *err) {
  if (!asker || !s->queue->layout->lanes) {
    size_t n = 0;
    int rc = msg_mongo_places_all(s, u, out, err);
    for (size_t i = 0; i < out->n; i++)
      if (out->at[i]->kind == MSG_MONGO_LANES || out->at[i]->kind == MSG_MONGO_MAIN)
        out->at[n++] = out->at[i];
    out->n = n;
    return rc;
  }
  int rc = msg_mongo_places_add(out, msg_mongo_place_lane(s, asker), err);
  return rc == MSG_OK && s->queue->main ? msg_mongo_places_add(out, s->queue->main, err) : rc;
}

static int query(const msg_mongo_session *s, msg_mongo_use *u, const msg_mongo_places *places,
                 const msg_oid *to, msg_mongo_row_fn row, void *arg, msg_err *err) {
  bson_t *filter = BCON_NEW("topic", BCON_UTF8(MSG_MONGO_STATUS_TOPIC));
  bson_t *project =
      BCON_NEW("sender", BCON_INT32(1), "timestamp", BCON_INT32(1), TOPICS, BCON_INT32(1));
  bson_t *sort = BCON_NEW("sender", BCON_INT32(1), "timestamp", BCON_INT32(-1));
  msg_mongo_pipe pipe;
  if (to)
    msg_mongo_append_oid(filter, "in_answer_to", to);
  else
    BCON_APPEND(filter, "in_answer_to", "{", "$ne", BCON_NULL, "}");
  msg_mongo_append_alive(filter, msg_mongo_now_ms(s->store));
  msg_mongo_pipe_begin(&pipe, places, filter, project);
  msg_mongo_pipe_add(&pipe, "$sort", sort);
  int rc = msg_mongo_pipe_each(&pipe, u, "listeners", row, arg, err);
  bson_destroy(sort);
  bson_destroy(project);
  bson_destroy(filter);
  return rc;
}

/* As status.c answers. */
static bool is_of_our_kind(bson_iter_t topics) {
  bson_iter_t classes;
  return bson_iter_find(&topics, MSG_MONGO_STATUS_TOPIC) && BSON_ITER_HOLDS_ARRAY(&topics) &&
         bson_iter_recurse(&topics, &classes) && bson_iter_next(&classes) &&
         BSON_ITER_HOLDS_UTF8(&classes) &&
         strcmp(bson_iter_utf8(&classes, NULL), MSG_MONGO_STATUS_CLASS) == 0;
}

struct telling {
  msg_mongo_answer_fn fn;
  void *arg;
  char *last; /* whose newest was read; owned */
};

/* Those of one node follow each other, the newest first. */
static int tell(void *arg, const bson_t *doc, msg_err *err) {
  struct telling *t = arg;
  msg_mongo_answer a = {
      msg_mongo_get_text(doc, "sender"), msg_mongo_get_int(doc, "timestamp", 0), {0}};
  bson_iter_t it, names;
  if (!a.node || (t->last && strcmp(t->last, a.node) == 0) || !bson_iter_init(&it, doc) ||
      !bson_iter_find_descendant(&it, TOPICS, &names) || !BSON_ITER_HOLDS_DOCUMENT(&names) ||
      !bson_iter_recurse(&names, &a.topics))
    return MSG_OK;
  msg_free(t->last);
  t->last = msg_strdup(a.node);
  if (!t->last)
    return msg_err_nomem(err);
  return is_of_our_kind(a.topics) ? MSG_OK : t->fn(t->arg, &a, err);
}

int msg_mongo_answers(msg_mongo_session *s, msg_mongo_use *u, const char *asker, const msg_oid *to,
                      msg_mongo_answer_fn fn, void *arg, msg_err *err) {
  struct telling t = {.fn = fn, .arg = arg};
  msg_mongo_places places = {0};
  int rc = places_of(s, u, asker, &places, err);
  if (rc == MSG_OK && places.n)
    rc = query(s, u, &places, to, tell, &t, err);
  msg_free(t.last);
  msg_mongo_places_clear(&places);
  return rc;
}

void msg_mongo_append_no_registry(bson_t *filter) {
  BCON_APPEND(filter, "$nor", "[", "{", "topic", BCON_UTF8(MSG_MONGO_STATUS_TOPIC), "msg",
              BCON_UTF8(MSG_MONGO_REGISTRY_ASKS), "}", "]");
}
