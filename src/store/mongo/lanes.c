/* lanes.c - lanes of the Standard layout: all in one collection, told apart by recipients. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "store/mongo/presence.h"
#include "store/mongo/tend.h"

struct lanes {
  msg_lane *at;
  size_t n, cap;
};

static void lanes_clear(struct lanes *l) {
  for (size_t i = 0; i < l->n; i++)
    msg_free(l->at[i].lane);
  msg_free(l->at);
  *l = (struct lanes){0};
}

static int lanes_add(struct lanes *l, const char *name, int64_t depth, int64_t oldest_ms,
                     msg_err *err) {
  char *copy = msg_strdup(name);
  if (!copy || msg_grow(&l->at, &l->cap, l->n + 1, sizeof *l->at) != MSG_OK) {
    msg_free(copy);
    return msg_err_nomem(err);
  }
  l->at[l->n++] = (msg_lane){.lane = copy, .owner = copy, .depth = depth, .oldest_ms = oldest_ms};
  return MSG_OK;
}

static msg_lane *lanes_find(struct lanes *l, const char *name) {
  for (size_t i = 0; i < l->n; i++)
    if (strcmp(l->at[i].lane, name) == 0)
      return &l->at[i];
  return NULL;
}

/* --- what waits ---------------------------------------------------------------------------- */

/* What is addressed to somebody (`node`, or anybody) and neither expired, dead nor done, one row a
 * recipient who has not had it: an exclusive message waits for all of them until one settles it. */
static bson_t *waiting_pipeline(const msg_mongo_session *s, const char *node) {
  bson_t first = BSON_INITIALIZER, now = BSON_INITIALIZER;
  if (node)
    BSON_APPEND_UTF8(&first, "recipients", node);
  else
    BCON_APPEND(&first, "recipients.0", "{", "$exists", BCON_BOOL(true), "}");
  BCON_APPEND(&first, "sq.state", "{", "$nin", "[", "dead", "done", "]", "}");
  BSON_APPEND_DATE_TIME(&now, "$gt", msg_mongo_now_ms(s->store));
  BCON_APPEND(&first, "$or", "[", "{", "delete_at", BCON_NULL, "}", "{", "delete_at",
              BCON_DOCUMENT(&now), "}", "]");
  bson_t *pipeline =
      BCON_NEW("pipeline", "[", "{", "$match", BCON_DOCUMENT(&first), "}", "{", "$project", "{",
               "recipients", BCON_INT32(1), "timestamp", BCON_INT32(1), "processed_by",
               BCON_INT32(1), "exclusive", BCON_INT32(1), "sq.state", BCON_INT32(1), "}", "}", "{",
               "$unwind", "$recipients", "}", "{", "$match", "{", "$expr", "{", "$or", "[", "{",
               "$in", "[", "$sq.state", "[", "delayed", "claimed", "blocked", "]", "]", "}", "{",
               "$cond", "[", "$exclusive", "{", "$eq", "[", "{", "$size", "{", "$ifNull", "[",
               "$processed_by", "[", "]", "]", "}", "}", BCON_INT32(0), "]", "}", "{", "$not", "[",
               "{", "$in", "[", "$recipients", "{", "$ifNull", "[", "$processed_by", "[", "]", "]",
               "}", "]", "}", "]", "}", "]", "}", "]", "}", "}", "}", "{", "$group", "{", "_id",
               "$recipients", "n", "{", "$sum", BCON_INT32(1), "}", "oldest", "{", "$min",
               "$timestamp", "}", "}", "}", "{", "$sort", "{", "_id", BCON_INT32(1), "}", "}", "]");
  bson_destroy(&first);
  bson_destroy(&now);
  return pipeline;
}

static int add_waiting(struct lanes *l, const bson_t *doc, const char *node, msg_err *err) {
  bson_iter_t it;
  int64_t n = 0, oldest_ms = 0;
  const char *name = NULL;
  if (!bson_iter_init(&it, doc))
    return MSG_OK;
  while (bson_iter_next(&it)) {
    const char *key = bson_iter_key(&it);
    if (strcmp(key, "_id") == 0 && BSON_ITER_HOLDS_UTF8(&it))
      name = bson_iter_utf8(&it, NULL);
    else if (strcmp(key, "n") == 0)
      n = bson_iter_as_int64(&it);
    else if (strcmp(key, "oldest") == 0)
      oldest_ms = bson_iter_as_int64(&it);
  }
  return name && (!node || strcmp(name, node) == 0) ? lanes_add(l, name, n, oldest_ms, err)
                                                    : MSG_OK;
}

static int load_waiting(msg_mongo_session *s, msg_mongo_use *u, const char *node, struct lanes *l,
                        msg_err *err) {
  mongoc_collection_t *c = msg_mongo_collection(u, s->names.messages);
  bson_t *pipeline = waiting_pipeline(s, node);
  mongoc_cursor_t *cursor = mongoc_collection_aggregate(c, MONGOC_QUERY_NONE, pipeline, NULL, NULL);
  const bson_t *doc;
  int rc;
  while ((rc = msg_mongo_next(u, cursor, "lanes", &doc, err)) == MSG_OK)
    if ((rc = add_waiting(l, doc, node, err)) != MSG_OK)
      break;
  mongoc_cursor_destroy(cursor);
  bson_destroy(pipeline);
  mongoc_collection_destroy(c);
  return rc == MSG_NOTFOUND ? MSG_OK : rc;
}

/* --- the verbs ----------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b) {
  return strcmp(((const msg_lane *)a)->lane, ((const msg_lane *)b)->lane);
}

/* Every participant has one, and so has every name that something waits for. */
static int load(msg_mongo_session *s, msg_mongo_use *u, struct lanes *l, msg_err *err) {
  msg_mongo_people people;
  int rc = msg_mongo_people_load(s, u, &people, err);
  if (rc == MSG_OK)
    rc = load_waiting(s, u, NULL, l, err);
  for (size_t i = 0; rc == MSG_OK && i < people.n; i++)
    if (!lanes_find(l, people.at[i].node))
      rc = lanes_add(l, people.at[i].node, 0, 0, err);
  for (size_t i = 0; i < l->n; i++) {
    const msg_participant *p = msg_mongo_people_find(&people, l->at[i].lane);
    l->at[i].owner_alive = p && p->alive;
    l->at[i].orphan = !l->at[i].owner_alive;
  }
  msg_mongo_people_clear(&people);
  if (rc == MSG_OK && l->n > 1)
    qsort(l->at, l->n, sizeof *l->at, by_name);
  return rc;
}

int msg_mongo_lanes(msg_session *base, msg_lane_fn fn, void *arg, msg_err *err) {
  msg_mongo_session *s = (msg_mongo_session *)base;
  struct lanes all = {0};
  msg_mongo_use u;
  int rc = msg_mongo_seen_flush(s, err);
  if (rc == MSG_OK)
    rc = msg_mongo_take(s->store, "lanes", &u, err);
  if (rc != MSG_OK)
    return rc;
  rc = load(s, &u, &all, err);
  msg_mongo_give(&u);
  for (size_t i = 0; rc == MSG_OK && i < all.n; i++)
    rc = fn(arg, &all.at[i]);
  lanes_clear(&all);
  return rc;
}

/* In this layout nothing is dropped but the participant. */
static int drop(msg_mongo_session *s, msg_mongo_use *u, const char *lane, msg_err *err) {
  msg_mongo_people people;
  struct lanes waiting = {0};
  int rc = msg_mongo_people_load(s, u, &people, err);
  if (rc == MSG_OK)
    rc = load_waiting(s, u, lane, &waiting, err);
  const msg_participant *p = msg_mongo_people_find(&people, lane);
  if (rc == MSG_OK && p && p->alive)
    rc = msg_err_set(err, MSG_MISUSE,
                     "the owner of lane '%s' is alive: close it there, or end its process first",
                     msg_show(lane).s);
  else if (rc == MSG_OK && waiting.n > 0)
    rc = msg_err_set(err, MSG_MISUSE,
                     "lane '%s' holds %lld messages: let '%s' take them, or delete them first",
                     msg_show(lane).s, (long long)waiting.at[0].depth, msg_show(lane).s);
  else if (rc == MSG_OK && !p)
    rc =
        msg_err_set(err, MSG_NOTFOUND, "drop: no lane '%s': see table msg_lanes", msg_show(lane).s);
  lanes_clear(&waiting);
  msg_mongo_people_clear(&people);
  return rc;
}

int msg_mongo_lane_drop(msg_session *base, const char *lane, msg_err *err) {
  msg_mongo_session *s = (msg_mongo_session *)base;
  msg_mongo_use u;
  int rc = msg_mongo_seen_flush(s, err);
  if (rc == MSG_OK)
    rc = msg_mongo_take(s->store, "drop lane", &u, err);
  if (rc != MSG_OK)
    return rc;
  rc = drop(s, &u, lane, err);
  msg_mongo_give(&u);
  return rc == MSG_OK ? msg_mongo_presence_withdraw(base, lane, false, err) : rc;
}
