/* lanes.c - lanes as they are shown. Where they are no collections they are told apart by
 * recipients. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "store/mongo/catalog.h"
#include "store/mongo/document.h"
#include "store/mongo/lane.h"
#include "store/mongo/people.h"
#include "store/mongo/pipe.h"
#include "store/mongo/query.h"
#include "store/mongo/tend.h"

struct lanes {
  msg_mongo_session *s;
  msg_lane *at; /* texts owned */
  size_t n, cap;
};

static void lanes_clear(struct lanes *l) {
  for (size_t i = 0; i < l->n; i++) {
    msg_free(l->at[i].lane);
    msg_free(l->at[i].owner);
  }
  msg_free(l->at);
  l->at = NULL;
  l->n = l->cap = 0;
}

/* A lane by its owner's name: itself, or the collection that it leads to. */
static void name_of(const struct lanes *l, const char *owner, msg_mongo_at *out) {
  if (l->s->queue->layout->lanes)
    msg_mongo_at_lane(l->s->queue->layout, &l->s->queue->names, owner, out);
  else
    snprintf(out->messages, sizeof out->messages, "%s", owner);
}

static msg_lane *lanes_find(const struct lanes *l, const char *lane) {
  for (size_t i = 0; i < l->n; i++)
    if (strcmp(l->at[i].lane, lane) == 0)
      return &l->at[i];
  return NULL;
}

/* The one of this name, made if it is not there. NULL: memory is out. */
static msg_lane *lanes_add(struct lanes *l, const char *lane, const char *owner) {
  msg_lane *known = lanes_find(l, lane);
  if (known)
    return known;
  msg_lane one = {.lane = msg_strdup(lane), .owner = msg_strdup(owner), .indexed = true};
  if (!one.lane || !one.owner || msg_grow(&l->at, &l->cap, l->n + 1, sizeof *l->at) != MSG_OK) {
    msg_free(one.lane);
    msg_free(one.owner);
    return NULL;
  }
  l->at[l->n] = one;
  return &l->at[l->n++];
}

static msg_lane *lanes_add_of(struct lanes *l, const char *owner) {
  msg_mongo_at at;
  name_of(l, owner, &at);
  return lanes_add(l, at.messages, owner);
}

/* --- what waits ---------------------------------------------------------------------------- */

/* What is addressed to somebody and neither expired, dead nor done, one row a recipient who has not
 * had it: an exclusive message waits for all of them until one settles it. */
static void append_match(bson_t *match, const msg_mongo_session *s) {
  bson_t now = BSON_INITIALIZER;
  BCON_APPEND(match, "recipients.0", "{", "$exists", BCON_BOOL(true), "}");
  BCON_APPEND(match, "sq.state", "{", "$nin", "[", "dead", "done", "]", "}");
  BSON_APPEND_DATE_TIME(&now, "$gt", msg_mongo_now_ms(s->store));
  BCON_APPEND(match, "$or", "[", "{", "delete_at", BCON_NULL, "}", "{", "delete_at",
              BCON_DOCUMENT(&now), "}", "]");
  bson_destroy(&now);
}

struct waiting {
  struct lanes *lanes;
  const msg_mongo_places *places;
};

/* A copy in a lane is for its owner alone. */
static int add_waiting(void *arg, const bson_t *doc, msg_err *err) {
  struct lanes *l = ((struct waiting *)arg)->lanes;
  const msg_mongo_places *places = ((struct waiting *)arg)->places;
  const char *to = msg_mongo_get_text(doc, "_id.to");
  int64_t i = places->n > 1 ? msg_mongo_get_int(doc, "_id.at", 0) : 0;
  int64_t oldest_ms = msg_mongo_get_int(doc, "oldest", 0);
  msg_mongo_at at;
  if (!to || strcmp(to, MSG_MONGO_DELAYED) == 0 || i < 0 || i >= (int64_t)places->n)
    return MSG_OK;
  name_of(l, to, &at);
  if (places->at[i]->kind == MSG_MONGO_LANES &&
      strcmp(places->at[i]->at.messages, at.messages) != 0)
    return MSG_OK;
  msg_lane *lane = lanes_add(l, at.messages, to);
  if (!lane)
    return msg_err_nomem(err);
  lane->depth += msg_mongo_get_int(doc, "n", 0);
  if (lane->oldest_ms == 0 || oldest_ms < lane->oldest_ms)
    lane->oldest_ms = oldest_ms;
  return MSG_OK;
}

static int load_waiting(struct lanes *l, msg_mongo_use *u, const msg_mongo_places *places,
                        msg_err *err) {
  struct waiting w = {l, places};
  bson_t match = BSON_INITIALIZER;
  bson_t *project =
      BCON_NEW("recipients", BCON_INT32(1), "timestamp", BCON_INT32(1), "processed_by",
               BCON_INT32(1), "exclusive", BCON_INT32(1), "sq.state", BCON_INT32(1));
  bson_t *unwind = BCON_NEW("path", BCON_UTF8("$recipients"));
  bson_t *waits = BCON_NEW("$expr", "{", "$or", "[", "{", "$in", "[", "$sq.state", "[", "delayed",
                           "claimed", "blocked", "]", "]", "}", "{", "$cond", "[", "{", "$or", "[",
                           BCON_UTF8("$exclusive"), BCON_UTF8(MSG_MONGO_PIPE_LANE), "]", "}", "{",
                           "$eq", "[", "{", "$size", "{", "$ifNull", "[", "$processed_by", "[", "]",
                           "]", "}", "}", BCON_INT32(0), "]", "}", "{", "$not", "[", "{", "$in",
                           "[", "$recipients", "{", "$ifNull", "[", "$processed_by", "[", "]", "]",
                           "}", "]", "}", "]", "}", "]", "}", "]", "}");
  bson_t *group = BCON_NEW("_id", "{", "to", "$recipients", "at", "$at", "}", "n", "{", "$sum",
                           BCON_INT32(1), "}", "oldest", "{", "$min", "$timestamp", "}");
  msg_mongo_pipe pipe;
  append_match(&match, l->s);
  msg_mongo_pipe_begin(&pipe, places, &match, project);
  msg_mongo_pipe_add(&pipe, "$unwind", unwind);
  msg_mongo_pipe_add(&pipe, "$match", waits);
  msg_mongo_pipe_add(&pipe, "$group", group);
  int rc = msg_mongo_pipe_each(&pipe, u, "lanes", add_waiting, &w, err);
  bson_destroy(group);
  bson_destroy(waits);
  bson_destroy(unwind);
  bson_destroy(project);
  bson_destroy(&match);
  return rc;
}

/* --- those that are collections ------------------------------------------------------------ */

static int load_collections(struct lanes *l, msg_mongo_use *u, const msg_mongo_places *places,
                            msg_err *err) {
  int rc = MSG_OK;
  for (size_t i = 0; rc == MSG_OK && i < places->n; i++) {
    msg_mongo_session at = msg_mongo_session_at(l->s, places->at[i]);
    const char *owner;
    if (places->at[i]->kind != MSG_MONGO_LANES ||
        !msg_mongo_is_lane(l->s->queue->layout, &l->s->queue->names, at.names.messages, &owner))
      continue;
    msg_lane *lane = lanes_add(l, at.names.messages, owner);
    if (lane) /* by that without which nothing goes away */
      rc = msg_mongo_has_index(u, at.names.messages, "lanes", "delete_at_1", &lane->indexed, err);
    else
      rc = msg_err_nomem(err);
  }
  return rc;
}

/* --- the verbs ----------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b) {
  return strcmp(((const msg_lane *)a)->owner, ((const msg_lane *)b)->owner);
}

/* Whoever lives. */
static void note_owners(struct lanes *l, const msg_mongo_people *people) {
  for (size_t i = 0; i < l->n; i++)
    l->at[i].orphan = true;
  for (size_t i = 0; i < people->n; i++) {
    msg_mongo_at at;
    name_of(l, people->at[i].node, &at);
    msg_lane *lane = lanes_find(l, at.messages);
    if (lane && people->at[i].alive) {
      lane->owner_alive = true;
      lane->orphan = false;
    }
  }
}

/* Every participant has one, and so has every name that something waits for. */
static int load(struct lanes *l, msg_mongo_use *u, msg_err *err) {
  msg_mongo_people people;
  msg_mongo_places places = {0};
  int rc = msg_mongo_people_load(l->s, u, &people, err);
  for (size_t i = 0; rc == MSG_OK && i < people.n; i++) /* first: they know their names */
    rc = lanes_add_of(l, people.at[i].node) ? MSG_OK : msg_err_nomem(err);
  if (rc == MSG_OK)
    rc = msg_mongo_places_all(l->s, u, &places, err);
  if (rc == MSG_OK && places.n)
    rc = load_waiting(l, u, &places, err);
  if (rc == MSG_OK)
    rc = load_collections(l, u, &places, err);
  note_owners(l, &people);
  msg_mongo_places_clear(&places);
  msg_mongo_people_clear(&people);
  if (rc == MSG_OK && l->n > 1)
    qsort(l->at, l->n, sizeof *l->at, by_name);
  return rc;
}

int msg_mongo_lanes(msg_session *base, msg_lane_fn fn, void *arg, msg_err *err) {
  msg_mongo_session *s = (msg_mongo_session *)base;
  struct lanes all = {.s = s};
  msg_mongo_use u;
  msg_mongo_seen_flush(s);
  int rc = msg_mongo_take(s->store, "lanes", &u, err);
  if (rc != MSG_OK)
    return rc;
  rc = load(&all, &u, err);
  msg_mongo_give(&u);
  for (size_t i = 0; rc == MSG_OK && i < all.n; i++)
    rc = fn(arg, &all.at[i]);
  lanes_clear(&all);
  return rc;
}

static int check(const msg_lane *lane, const char *name, msg_err *err) {
  if (!lane)
    return msg_err_set(err, MSG_NOTFOUND, "drop: no lane '%s': see table msg_lanes",
                       msg_show(name).s);
  if (lane->owner_alive)
    return msg_err_set(err, MSG_MISUSE,
                       "the owner of lane '%s' is alive: close it there, or end its process first",
                       msg_show(name).s);
  if (lane->depth > 0)
    return msg_err_set(err, MSG_MISUSE,
                       "lane '%s' holds %lld messages: let '%s' take them, or delete them first",
                       msg_show(name).s, (long long)lane->depth, msg_show(lane->owner).s);
  return MSG_OK;
}

/* The owner's name goes to *owner: the participant goes with its lane. */
static int drop(msg_mongo_session *s, msg_mongo_use *u, const char *name, char **owner,
                msg_err *err) {
  struct lanes all = {.s = s};
  int rc = load(&all, u, err);
  const msg_lane *lane = lanes_find(&all, name);
  bool dropped = true;
  if (rc == MSG_OK)
    rc = check(lane, name, err);
  if (rc == MSG_OK && s->queue->layout->lanes)
    rc = msg_mongo_lane_drop_empty(s, u, lane->lane, &dropped, err);
  if (rc == MSG_OK && !dropped)
    rc = msg_err_set(err, MSG_MISUSE, "a message came into lane '%s' meanwhile: it stays",
                     msg_show(name).s);
  if (rc == MSG_OK && !(*owner = msg_strdup(lane->owner)))
    rc = msg_err_nomem(err);
  lanes_clear(&all);
  return rc;
}

int msg_mongo_lane_drop(msg_session *base, const char *lane, msg_err *err) {
  msg_mongo_session *s = (msg_mongo_session *)base;
  char *owner = NULL;
  msg_mongo_use u;
  msg_mongo_seen_flush(s);
  int rc = msg_mongo_take(s->store, "drop lane", &u, err);
  if (rc != MSG_OK)
    return rc;
  rc = drop(s, &u, lane, &owner, err);
  msg_mongo_give(&u);
  if (rc == MSG_OK)
    rc = msg_mongo_presence_withdraw(base, owner, false, err);
  bool was = owner != NULL && s->queue->layout->lanes; /* nobody's lane has no participant */
  msg_free(owner);
  return rc == MSG_NOTFOUND && was ? MSG_OK : rc;
}

/* --- the sweep ----------------------------------------------------------------------------- */

/* As Morphium looks: whatever it is that is in it. */
static int sweep_one(msg_mongo_session *s, msg_mongo_use *u, const char *lane, msg_err *err) {
  bson_t all = BSON_INITIALIZER;
  bool any = false, dropped;
  int rc = msg_mongo_lane_is_aside(lane)
               ? MSG_OK
               : msg_mongo_any(u, lane, "drop lane", &all, NULL, 0, &any, err);
  bson_destroy(&all);
  return rc == MSG_OK && !any ? msg_mongo_lane_drop_empty(s, u, lane, &dropped, err) : rc;
}

int msg_mongo_lanes_sweep(msg_mongo_session *s, msg_mongo_use *u, msg_err *err) {
  msg_mongo_people people;
  msg_mongo_places places = {0};
  const char *owner;
  int rc = msg_mongo_people_load(s, u, &people, err);
  if (rc == MSG_OK)
    rc = msg_mongo_people_add_answering(s, u, &people, err);
  if (rc == MSG_OK)
    rc = msg_mongo_places_all(s, u, &places, err);
  for (size_t i = 0; rc == MSG_OK && i < places.n; i++) {
    const char *lane = places.at[i]->at.messages;
    if (places.at[i]->kind == MSG_MONGO_LANES &&
        msg_mongo_is_lane(s->queue->layout, &s->queue->names, lane, &owner) &&
        !msg_mongo_people_own_lane(s, &people, lane))
      rc = sweep_one(s, u, lane, err);
  }
  msg_mongo_places_clear(&places);
  msg_mongo_people_clear(&people);
  return rc;
}
