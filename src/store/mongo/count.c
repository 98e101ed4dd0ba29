/* count.c - how much there is: topics, queues. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "store/mongo/acked.h"
#include "store/mongo/catalog.h"
#include "store/mongo/pipe.h"
#include "store/mongo/query.h"

/* ---- counting by the server ---- */

/* {$sum: {$cond: [{$eq: ["$_id.st", state]}, weight, 0]}}; one message in several lanes is one. */
static void append_sum(bson_t *group, const char *key, const char *state) {
  BCON_APPEND(group, key, "{", "$sum", "{", "$cond", "[", "{", "$eq", "[", BCON_UTF8("$_id.st"),
              BCON_UTF8(state), "]", "}", "{", "$cond", "[", "{", "$eq", "[", BCON_UTF8("$_id.id"),
              BCON_NULL, "]", "}", BCON_UTF8("$n"), BCON_INT32(1), "]", "}", BCON_INT32(0), "]",
              "}", "}");
}

/* {$and: [whom has somebody, every one of whom is marked]}; what is hidden until its time keeps
 * whom it is for in sq.to. */
static void append_all_took(bson_t *out, const bson_t *marked) {
  bson_t to = BSON_INITIALIZER;
  BCON_APPEND(&to, "$cond", "[", "{", "$isArray", BCON_UTF8("$$to"), "}", BCON_UTF8("$$to"), "[",
              "]", "]");
  BCON_APPEND(out, "$let", "{", "vars", "{", "to", "{", "$cond", "[", "{", "$eq", "[", "{", "$type",
              BCON_UTF8("$sq.to"), "}", BCON_UTF8("missing"), "]", "}", BCON_UTF8("$recipients"),
              BCON_UTF8("$sq.to"), "]", "}", "}", "in", "{", "$and", "[", "{", "$gt", "[", "{",
              "$size", BCON_DOCUMENT(&to), "}", BCON_INT32(0), "]", "}", "{", "$setIsSubset", "[",
              BCON_DOCUMENT(&to), BCON_DOCUMENT(marked), "]", "}", "]", "}", "}");
  bson_destroy(&to);
}

/* "st" of each document: as msg_mongo_message tells it, less what takes a look elsewhere. */
static void append_state(bson_t *set) {
  bson_t now, pending = BSON_INITIALIZER, marked = BSON_INITIALIZER, taken = BSON_INITIALIZER,
              all = BSON_INITIALIZER;
  msg_mongo_now_expr(&now, 0);
  BCON_APPEND(&pending, "$gt", "[", BCON_UTF8("$sq.until"), BCON_DOCUMENT(&now), "]");
  BCON_APPEND(&marked, "$cond", "[", "{", "$isArray", BCON_UTF8("$processed_by"), "}",
              BCON_UTF8("$processed_by"), "[", "]", "]");
  append_all_took(&all, &marked);
  /* exclusive: anybody's mark but of a claim that is over; direct: every recipient's */
  BCON_APPEND(&taken, "$cond", "[", "{", "$or", "[", BCON_UTF8("$exclusive"),
              BCON_UTF8(MSG_MONGO_PIPE_LANE), "]", "}", "{", "$and", "[", "{", "$gt", "[", "{",
              "$size", BCON_DOCUMENT(&marked), "}", BCON_INT32(0), "]", "}", "{", "$lte", "[",
              BCON_UTF8("$sq.state"), BCON_NULL, "]", "}", "]", "}", BCON_DOCUMENT(&all), "]");
  BCON_APPEND(set, "st", "{", "$switch", "{", "branches", "[", "{", "case", "{", "$eq", "[",
              BCON_UTF8("$sq.state"), BCON_UTF8("dead"), "]", "}", "then", BCON_UTF8("dead"), "}",
              "{", "case", "{", "$and", "[", "{", "$eq", "[", BCON_UTF8("$sq.state"),
              BCON_UTF8("claimed"), "]", "}", BCON_DOCUMENT(&pending), "]", "}", "then",
              BCON_UTF8("claimed"), "}", "{", "case", "{", "$and", "[", "{", "$gt", "[",
              BCON_UTF8("$delete_at"), BCON_NULL, "]", "}", "{", "$lte", "[", "{", "$ifNull", "[",
              BCON_UTF8("$sq.life"), BCON_UTF8("$delete_at"), "]", "}", BCON_DOCUMENT(&now), "]",
              "}", "]", "}", "then", BCON_UTF8("expired"), "}", "{", "case", "{", "$and", "[", "{",
              "$eq", "[", BCON_UTF8("$sq.state"), BCON_UTF8("delayed"), "]", "}",
              BCON_DOCUMENT(&pending), "]", "}", "then", BCON_UTF8("delayed"), "}", "{", "case",
              "{", "$eq", "[", BCON_UTF8("$sq.state"), BCON_UTF8("blocked"), "]", "}", "then",
              BCON_UTF8("blocked"), "}", "{", "case", BCON_DOCUMENT(&taken), "then",
              BCON_UTF8("processed"), "}", "{", "case", BCON_UTF8("$exclusive"), "then",
              BCON_UTF8("ready"), "}", "]", "default", BCON_UTF8("broadcast"), "}", "}");
  bson_destroy(&all);
  bson_destroy(&taken);
  bson_destroy(&marked);
  bson_destroy(&pending);
  bson_destroy(&now);
}

/* The token of the lease that it is claimed by, or null. */
static void append_lease(bson_t *out) {
  BCON_APPEND(out, "$cond", "[", "{", "$and", "[", "{", "$eq", "[", BCON_UTF8("$sq.state"),
              BCON_UTF8("claimed"), "]", "}", BCON_UTF8("$sq.lease"), "{", "$ne", "[",
              BCON_UTF8("$processed_by"), "[", "]", "]", "}", "]", "}", BCON_UTF8("$sq.token"),
              BCON_NULL, "]");
}

/* By name, state and lease, and one by one those that may be in several lanes. */
static void append_rough(bson_t *group, bool by_topic) {
  bson_t name = BSON_INITIALIZER, lease = BSON_INITIALIZER;
  if (by_topic)
    BCON_APPEND(&name, "$ifNull", "[", BCON_UTF8("$topic"), BCON_UTF8("$name"), "]");
  else
    BCON_APPEND(&name, "$literal", BCON_NULL);
  append_lease(&lease);
  BCON_APPEND(group, "_id", "{", "k", BCON_DOCUMENT(&name), "st", BCON_UTF8("$st"), "lease",
              BCON_DOCUMENT(&lease), "id", "{", "$cond", "[", "{", "$and", "[",
              BCON_UTF8(MSG_MONGO_PIPE_LANE), "{", "$ne", "[", "{", "$size", "{", "$cond", "[", "{",
              "$isArray", BCON_UTF8("$recipients"), "}", BCON_UTF8("$recipients"), "[", "]", "]",
              "}", "}", BCON_INT32(1), "]", "}", "]", "}", BCON_UTF8("$_id"), BCON_NULL, "]", "}",
              "}", "n", "{", "$sum", BCON_INT32(1), "}", "oldest", "{", "$min", "{", "$cond", "[",
              "{", "$in", "[", BCON_UTF8("$st"), "[", BCON_UTF8("dead"), BCON_UTF8("expired"),
              BCON_UTF8("processed"), "]", "]", "}", BCON_NULL, "{", "$ifNull", "[",
              BCON_UTF8("$sq.sent"), BCON_UTF8("$timestamp"), "]", "}", "]", "}", "}");
  bson_destroy(&lease);
  bson_destroy(&name);
}

static void append_group(bson_t *group) {
  static const char *const states[] = {"ready",   "broadcast", "delayed",
                                       "claimed", "blocked",   "dead"};
  BCON_APPEND(group, "_id", BCON_UTF8("$_id.k"), "oldest", "{", "$min", BCON_UTF8("$oldest"), "}");
  for (size_t i = 0; i < sizeof states / sizeof states[0]; i++)
    append_sum(group, states[i], states[i]);
}

static int run_count(msg_mongo_session *s, msg_mongo_use *u, const msg_mongo_places *places,
                     bool by_topic, msg_mongo_row_fn row, void *arg, msg_err *err) {
  bson_t *there = BCON_NEW("sq.state", "{", "$ne", BCON_UTF8("done"), "}");
  bson_t *sort = BCON_NEW("_id", BCON_INT32(1));
  bson_t set = BSON_INITIALIZER, rough = BSON_INITIALIZER, group = BSON_INITIALIZER;
  bson_t lookup = BSON_INITIALIZER, unacked = BSON_INITIALIZER;
  msg_mongo_pipe pipe;
  append_state(&set);
  append_rough(&rough, by_topic);
  append_group(&group);
  msg_mongo_append_unacked(&lookup, &unacked, s, "_id.lease");
  msg_mongo_pipe_begin(&pipe, places, there, NULL);
  msg_mongo_pipe_add(&pipe, "$addFields", &set);
  msg_mongo_pipe_add(&pipe, "$group", &rough);
  msg_mongo_pipe_add(&pipe, "$lookup", &lookup);
  msg_mongo_pipe_add(&pipe, "$match", &unacked);
  msg_mongo_pipe_add(&pipe, "$group", &group);
  msg_mongo_pipe_add(&pipe, "$sort", sort);
  int rc = msg_mongo_pipe_each(&pipe, u, "count", row, arg, err);
  bson_destroy(&unacked);
  bson_destroy(&lookup);
  bson_destroy(&group);
  bson_destroy(&rough);
  bson_destroy(&set);
  bson_destroy(sort);
  bson_destroy(there);
  return rc;
}

static void read_count(const bson_t *doc, msg_count *out) {
  *out = (msg_count){.ready = msg_mongo_get_int(doc, "ready", 0),
                     .delayed = msg_mongo_get_int(doc, "delayed", 0),
                     .claimed = msg_mongo_get_int(doc, "claimed", 0),
                     .blocked = msg_mongo_get_int(doc, "blocked", 0),
                     .dead = msg_mongo_get_int(doc, "dead", 0),
                     .broadcasts = msg_mongo_get_int(doc, "broadcast", 0),
                     .oldest_ms = msg_mongo_get_int(doc, "oldest", 0)};
  out->ready += out->broadcasts;
  out->depth = out->ready + out->delayed + out->claimed + out->blocked;
}

/* Lanes of layout multi are every queue's: of these people's alone. */
static void keep_lanes(const msg_mongo_session *s, msg_mongo_places *l, const msg_texts *people) {
  size_t n = 0;
  for (size_t i = 0; i < l->n; i++) {
    bool theirs = l->at[i]->kind != MSG_MONGO_LANES;
    for (size_t k = 0; !theirs && k < people->n; k++)
      theirs = msg_mongo_place_lane(s, people->at[k]) == l->at[i];
    if (theirs)
      l->at[n++] = l->at[i];
  }
  l->n = n;
}

/* people: of a queue as a whole; NULL: by topic. */
static int each_count(msg_mongo_session *s, msg_mongo_use *u, const msg_texts *people,
                      msg_mongo_row_fn row, void *arg, msg_err *err) {
  msg_mongo_places places = {0};
  int rc = msg_mongo_places_all(s, u, &places, err);
  if (people && s->queue->layout->topics)
    keep_lanes(s, &places, people);
  if (rc == MSG_OK && places.n)
    rc = run_count(s, u, &places, people == NULL, row, arg, err);
  msg_mongo_places_clear(&places);
  return rc;
}

/* ---- who listens ---- */

struct audience {
  msg_texts alive; /* nodes */
  msg_texts nodes; /* who listens, and to what */
  msg_texts patterns;
  msg_texts people; /* all participants */
};

static void audience_clear(struct audience *a) {
  msg_texts_clear(&a->people);
  msg_texts_clear(&a->alive);
  msg_texts_clear(&a->nodes);
  msg_texts_clear(&a->patterns);
}

static int note_person(void *arg, const msg_participant *p) {
  struct audience *a = arg;
  int rc = msg_texts_add(&a->people, p->node);
  return rc == MSG_OK && p->alive ? msg_texts_add(&a->alive, p->node) : rc;
}

static bool has(const msg_texts *l, const char *text) {
  for (size_t i = 0; i < l->n; i++)
    if (strcmp(l->at[i], text) == 0)
      return true;
  return false;
}

static int note_listener(void *arg, const msg_listener *row) {
  struct audience *a = arg;
  if (!has(&a->alive, row->node))
    return MSG_OK;
  int rc = msg_texts_add(&a->nodes, row->node);
  return rc == MSG_OK ? msg_texts_add(&a->patterns, row->pattern) : rc;
}

static int audience_load(msg_mongo_session *s, struct audience *a, msg_err *err) {
  int rc = s->base.ops->presence_list(&s->base, note_person, a, err);
  if (rc == MSG_OK)
    rc = s->base.ops->listeners(&s->base, note_listener, a, err);
  return rc == MSG_NOMEM ? msg_err_nomem(err) : rc;
}

static bool is_match(const char *pattern, const char *topic) {
  msg_pattern *p;
  if (msg_pattern_new(pattern, &p, NULL) != MSG_OK)
    return false;
  bool is = msg_pattern_match(p, topic);
  msg_pattern_free(p);
  return is;
}

/* Nodes that listen to the topic; NULL: to anything. Each counts once. */
static int64_t audience_of(const struct audience *a, const char *topic) {
  int64_t n = 0;
  for (size_t i = 0; i < a->nodes.n; i++) {
    bool counted = false, listens = !topic || is_match(a->patterns.at[i], topic);
    for (size_t j = 0; j < i && listens && !counted; j++)
      counted = strcmp(a->nodes.at[j], a->nodes.at[i]) == 0 &&
                (!topic || is_match(a->patterns.at[j], topic));
    n += listens && !counted;
  }
  return n;
}

/* ---- topics ---- */

struct listing {
  const struct audience *audience;
  msg_count_fn fn;
  void *arg;
};

static int give_topic(void *arg, const bson_t *doc, msg_err *err) {
  struct listing *l = arg;
  const char *topic = msg_mongo_get_text(doc, "_id");
  msg_count c;
  (void)err;
  read_count(doc, &c);
  if (!topic || (c.depth == 0 && c.dead == 0))
    return MSG_OK;
  c.name = (char *)topic;
  c.listeners = audience_of(l->audience, topic);
  return l->fn(l->arg, &c);
}

int msg_mongo_topics(msg_session *base, msg_count_fn fn, void *arg, msg_err *err) {
  msg_mongo_session *s = (msg_mongo_session *)base;
  msg_mongo_use u;
  struct audience audience = {0};
  struct listing l = {&audience, fn, arg};
  msg_mongo_seen_flush(s);
  int rc = audience_load(s, &audience, err);
  if (rc == MSG_OK)
    rc = msg_mongo_take(s->store, "count", &u, err);
  if (rc == MSG_OK) {
    rc = each_count(s, &u, NULL, give_topic, &l, err);
    msg_mongo_give(&u);
  }
  audience_clear(&audience);
  return rc;
}

/* ---- queues ---- */

static int by_text(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

static int queue_names(msg_mongo_session *s, msg_mongo_use *u, msg_texts *out, msg_err *err) {
  mongoc_database_t *db = mongoc_client_get_database(u->client, s->store->db);
  bson_error_t error;
  char queue[MSG_MONGO_NAME_MAX];
  char **names = mongoc_database_get_collection_names_with_opts(db, NULL, &error);
  int rc = names ? MSG_OK : msg_mongo_fail(s->store, "count", &error, NULL, err);
  for (size_t i = 0; rc == MSG_OK && names[i]; i++)
    if (msg_mongo_queue_of_collection(names[i], queue) && !has(out, queue) &&
        msg_texts_add(out, queue) != MSG_OK)
      rc = msg_err_nomem(err);
  if (out->n > 1)
    qsort(out->at, out->n, sizeof *out->at, by_text);
  bson_strfreev(names);
  mongoc_database_destroy(db);
  return rc;
}

static int note_queue(void *arg, const bson_t *doc, msg_err *err) {
  (void)err;
  read_count(doc, arg);
  return MSG_OK;
}

/* With nothing in it and nobody there it is none. */
static int give_queue(msg_mongo_session *s, const char *name, msg_count_fn fn, void *arg,
                      msg_err *err) {
  msg_mongo_session other;
  msg_mongo_use u;
  msg_count c = {0};
  struct audience a = {0};
  int rc = msg_mongo_session_on(s, name, &other, err);
  if (rc == MSG_OK)
    rc = audience_load(&other, &a, err);
  if (rc == MSG_OK)
    rc = msg_mongo_take(s->store, "count", &u, err);
  if (rc == MSG_OK) {
    rc = each_count(&other, &u, &a.people, note_queue, &c, err);
    msg_mongo_give(&u);
  }
  c.name = (char *)name;
  c.listeners = audience_of(&a, NULL);
  if (rc == MSG_OK && (c.depth || c.dead || a.people.n))
    rc = fn(arg, &c);
  audience_clear(&a);
  return rc;
}

int msg_mongo_queues(msg_session *base, msg_count_fn fn, void *arg, msg_err *err) {
  msg_mongo_session *s = (msg_mongo_session *)base;
  msg_mongo_use u;
  msg_texts names = {0};
  int rc = msg_mongo_take(s->store, "count", &u, err);
  if (rc != MSG_OK)
    return rc;
  rc = queue_names(s, &u, &names, err);
  msg_mongo_give(&u);
  for (size_t i = 0; rc == MSG_OK && i < names.n; i++)
    rc = give_queue(s, names.at[i], fn, arg, err);
  msg_texts_clear(&names);
  return rc;
}
