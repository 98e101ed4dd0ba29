#include "store/mongo/catalog.h"

#include <string.h>

#include "base/mem.h"
#include "store/mongo/pipe.h"
#include "store/mongo/topics.h"

#define AT_ONCE 200 /* places of one call */

static int is_wanted(const msg_mongo_session *s, msg_mongo_use *u, msg_mongo_place *p,
                     const msg_pattern *pattern, bool *out, msg_err *err) {
  msg_texts topics = {0};
  int rc = msg_mongo_place_topics(s, u, p, &topics, err);
  *out = false;
  for (size_t i = 0; rc == MSG_OK && i < topics.n; i++)
    *out = *out || !pattern || msg_pattern_match(pattern, topics.at[i]);
  msg_texts_clear(&topics);
  return rc;
}

/* ---- by name ---- */

msg_mongo_place *msg_mongo_place_named(const msg_mongo_session *s, const char *collection) {
  const msg_mongo_names *names = &s->queue->names;
  msg_mongo_at at, apart;
  const char *owner;
  if (strlen(collection) >= sizeof at.messages)
    return NULL;
  msg_mongo_at_main(names, &at);
  msg_mongo_at_apart(names, &apart);
  if (!s->queue->layout->topics && strcmp(collection, at.messages) == 0)
    return s->queue->main;
  bool lane = msg_mongo_is_lane(s->queue->layout, names, collection, &owner);
  bool waits = s->queue->layout->apart && strcmp(collection, apart.messages) == 0;
  memcpy(at.messages, collection, strlen(collection) + 1);
  if (lane || waits)
    return msg_mongo_place_of(s->store, s->queue, lane ? MSG_MONGO_LANES : MSG_MONGO_APART, &at);
  if (!s->queue->layout->topics || !msg_mongo_may_be_topic(s->queue->name, names, collection))
    return NULL;
  msg_mongo_at_topic_locks(s->queue->name, collection, &at);
  return msg_mongo_place_of(s->store, s->queue, MSG_MONGO_TOPIC, &at);
}

/* Names of the database's collections. */
static int list(const msg_mongo_session *s, msg_mongo_use *u, char ***out, msg_err *err) {
  bson_error_t error;
  mongoc_database_t *db = mongoc_client_get_database(u->client, s->store->db);
  *out = mongoc_database_get_collection_names_with_opts(db, NULL, &error);
  mongoc_database_destroy(db);
  return *out ? MSG_OK : msg_mongo_fail(s->store, "look for collections", &error, NULL, err);
}

/* ---- the lists ---- */

/* Those of the wanted kinds; of topics where the pattern (NULL: any) meets one in it. */
static int gather(const msg_mongo_session *s, msg_mongo_use *u, const msg_pattern *pattern,
                  bool all, msg_mongo_places *out, msg_err *err) {
  char **names;
  int rc = list(s, u, &names, err);
  if (rc != MSG_OK)
    return rc;
  for (size_t i = 0; rc == MSG_OK && names[i]; i++) {
    msg_mongo_place *p = msg_mongo_place_named(s, names[i]);
    bool wanted = p && all;
    if (p && p->kind == MSG_MONGO_TOPIC)
      rc = is_wanted(s, u, p, pattern, &wanted, err);
    if (rc == MSG_OK && wanted)
      rc = msg_mongo_places_add(out, p, err);
  }
  bson_strfreev(names);
  return rc;
}

int msg_mongo_places_all(const msg_mongo_session *s, msg_mongo_use *u, msg_mongo_places *out,
                         msg_err *err) {
  if (!s->queue->layout->lanes)
    return msg_mongo_places_add(out, s->queue->main, err);
  int rc = s->queue->main ? msg_mongo_places_add(out, s->queue->main, err) : MSG_OK;
  return rc == MSG_OK ? gather(s, u, NULL, true, out, err) : rc;
}

static int add_topics(const msg_mongo_session *s, msg_mongo_use *u, const msg_pattern *pattern,
                      msg_mongo_places *out, msg_err *err) {
  if (!pattern || msg_pattern_kind_of(pattern) != MSG_PATTERN_EXACT)
    return gather(s, u, pattern, false, out, err);
  int rc = msg_mongo_places_topic(s, msg_pattern_text(pattern), out, NULL);
  return rc == MSG_INVALID ? MSG_OK : rc; /* no such topic can be */
}

int msg_mongo_places_of(const msg_mongo_session *s, msg_mongo_use *u, const msg_pattern *pattern,
                        const char *node, msg_mongo_places *out, msg_err *err) {
  int rc = s->queue->layout->topics ? add_topics(s, u, pattern, out, err)
                                    : msg_mongo_places_add(out, s->queue->main, err);
  if (rc == MSG_OK && node && s->queue->layout->lanes)
    rc = msg_mongo_places_add(out, msg_mongo_place_lane(s, node), err);
  return rc;
}

/* ---- at each ---- */

int msg_mongo_places_each(const msg_mongo_session *s, msg_mongo_use *u, const msg_mongo_places *l,
                          msg_mongo_at_fn fn, void *arg, msg_err *err) {
  int rc = MSG_OK;
  for (size_t i = 0; rc == MSG_OK && i < l->n; i++) {
    msg_mongo_session at = msg_mongo_session_at(s, l->at[i]);
    rc = fn(&at, u, arg, err);
  }
  return rc;
}

int msg_mongo_everywhere(const msg_mongo_session *s, msg_mongo_use *u, msg_mongo_at_fn fn,
                         void *arg, msg_err *err) {
  msg_mongo_places all = {0};
  int rc = msg_mongo_places_all(s, u, &all, err);
  if (rc == MSG_OK)
    rc = msg_mongo_places_each(s, u, &all, fn, arg, err);
  msg_mongo_places_clear(&all);
  return rc;
}

/* ---- where something matches ---- */

struct asking {
  const msg_mongo_places *places;
  msg_mongo_places *out;
};

static int note_place(void *arg, const bson_t *doc, msg_err *err) {
  const struct asking *a = arg;
  msg_mongo_place *p = msg_mongo_pipe_place(a->places, doc);
  return p ? msg_mongo_places_add(a->out, p, err) : MSG_OK;
}

/* Those of the places. */
static int ask(msg_mongo_use *u, const msg_mongo_places *l, const bson_t *match,
               msg_mongo_places *out, msg_err *err) {
  bson_t *project = BCON_NEW("_id", BCON_INT32(1));
  struct asking a = {l, out};
  msg_mongo_pipe pipe;
  msg_mongo_pipe_begin_one(&pipe, l, match, project);
  int rc = msg_mongo_pipe_each(&pipe, u, "look for a deadline", note_place, &a, err);
  bson_destroy(project);
  return rc;
}

int msg_mongo_wherever(const msg_mongo_session *s, msg_mongo_use *u, const bson_t *match,
                       msg_mongo_at_fn fn, void *arg, msg_err *err) {
  msg_mongo_places all = {0}, some = {0};
  int rc = msg_mongo_places_all(s, u, &all, err);
  if (rc == MSG_OK && all.n == 1)
    rc = msg_mongo_places_add(&some, all.at[0], err);
  for (size_t i = 0; rc == MSG_OK && all.n > 1 && i < all.n; i += AT_ONCE) {
    size_t left = all.n - i;
    msg_mongo_places part = {.at = all.at + i, .n = left < AT_ONCE ? left : AT_ONCE};
    rc = ask(u, &part, match, &some, err);
  }
  if (rc == MSG_OK)
    rc = msg_mongo_places_each(s, u, &some, fn, arg, err);
  msg_mongo_places_clear(&some);
  msg_mongo_places_clear(&all);
  return rc;
}
