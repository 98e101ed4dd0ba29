#include "store/mongo/lane.h"

#include <stdio.h>
#include <string.h>

#include "store/mongo/answers.h"
#include "store/mongo/people.h"
#include "store/mongo/query.h"
#include "store/mongo/tend.h"

/* An emptied lane bears it for a moment; whoever finds one finishes the job. */
#define ASIDE "~dropped"

int msg_mongo_lane_make(msg_mongo_session *s, msg_mongo_use *u, const char *node, msg_err *err) {
  if (!s->queue->layout->lanes)
    return MSG_OK;
  msg_mongo_place *p = msg_mongo_place_lane(s, node);
  if (!p)
    return msg_err_nomem(err);
  msg_mongo_session at = msg_mongo_session_at(s, p);
  msg_mongo_forget_indexes(&at); /* another process may have dropped it */
  return msg_mongo_indexes(&at, u, err);
}

int msg_mongo_lanes_keep(msg_mongo_session *s, msg_mongo_use *u, msg_err *err) {
  msg_mongo_own *own;
  size_t n;
  int rc = msg_mongo_own_list(s->store, s->queue, &own, &n, err);
  if (rc != MSG_OK)
    return rc;
  for (size_t i = 0; rc == MSG_OK && i < n; i++)
    rc = msg_mongo_lane_make(s, u, own[i].row.node, err);
  msg_mongo_own_free(own, n);
  return rc;
}

/* ---- dropping ---- */

enum { NOT_FOUND = 26, EXISTS = 48, INDEX_BUILD = 12587 };

static int drop(msg_mongo_session *s, msg_mongo_use *u, const char *collection, msg_err *err) {
  mongoc_collection_t *c = msg_mongo_collection(u, collection);
  bson_error_t error;
  int rc = MSG_OK;
  if (!mongoc_collection_drop(c, &error) && error.code != NOT_FOUND)
    rc = msg_mongo_fail(s->store, "drop lane", &error, NULL, err);
  mongoc_collection_destroy(c);
  return rc;
}

/* MSG_NOTFOUND: it was not there. MSG_BUSY: somebody is just making its indexes, to send; or
 * another one stands aside, which is to be finished first. */
static int rename_lane(msg_mongo_session *s, msg_mongo_use *u, const char *from, const char *to,
                       msg_err *err) {
  mongoc_collection_t *c = msg_mongo_collection(u, from);
  bson_error_t error;
  int rc = MSG_OK;
  if (!mongoc_collection_rename(c, s->store->db, to, false, &error))
    rc = error.code == NOT_FOUND ? MSG_NOTFOUND
         : error.code == EXISTS || error.code == INDEX_BUILD
             ? MSG_BUSY
             : msg_mongo_fail(s->store, "drop lane", &error, NULL, err);
  mongoc_collection_destroy(c);
  return rc;
}

/* What Java nodes or ours still want of it. */
static void append_wanted(bson_t *filter, const msg_mongo_session *s) {
  BCON_APPEND(filter, "sq.state", "{", "$nin", "[", BCON_UTF8("done"), "]", "}", "$or", "[", "{",
              "processed_by", "{", "$in", "[", BCON_NULL, "[", "]", "]", "}", "}", "{", "sq.state",
              "{", "$exists", BCON_BOOL(true), "}", "}", "]");
  msg_mongo_append_no_registry(filter);
  msg_mongo_append_alive(filter, msg_mongo_now_ms(s->store));
}

struct restoring {
  msg_mongo_session *s;
  msg_mongo_use *u;
  const char *lane;
  size_t n;
};

/* One that came in the last moment goes back; twice is once. */
static int restore(void *arg, const bson_t *doc, msg_err *err) {
  struct restoring *w = arg;
  mongoc_collection_t *c = msg_mongo_collection(w->u, w->lane);
  bson_error_t error;
  bson_t reply;
  int rc = MSG_OK;
  if (!mongoc_collection_insert_one(c, doc, NULL, &reply, &error) &&
      !msg_mongo_is_duplicate(&error, &reply))
    rc = msg_mongo_fail(w->s->store, "drop lane", &error, &reply, err);
  bson_destroy(&reply);
  mongoc_collection_destroy(c);
  w->n++;
  return rc;
}

static int restore_all(msg_mongo_session *s, msg_mongo_use *u, const char *aside, const char *lane,
                       size_t *n, msg_err *err) {
  struct restoring w = {s, u, lane, 0};
  bson_t filter = BSON_INITIALIZER;
  append_wanted(&filter, s);
  int rc = msg_mongo_each(u, aside, "drop lane", &filter, NULL, restore, &w, err);
  bson_destroy(&filter);
  *n = w.n;
  return rc;
}

/* Is something in it? Looked at first: mostly there is an answer without a rename. */
static int is_wanted(msg_mongo_session *s, msg_mongo_use *u, const char *lane, bool *out,
                     msg_err *err) {
  bson_t filter = BSON_INITIALIZER;
  append_wanted(&filter, s);
  int rc = msg_mongo_any(u, lane, "drop lane", &filter, NULL, 0, out, err);
  bson_destroy(&filter);
  return rc;
}

static int owner_lives(msg_mongo_session *s, msg_mongo_use *u, const char *lane, bool *out,
                       msg_err *err) {
  msg_mongo_people people;
  int rc = msg_mongo_people_load(s, u, &people, err);
  *out = rc == MSG_OK && msg_mongo_people_own_lane(s, &people, lane);
  msg_mongo_people_clear(&people);
  return rc;
}

bool msg_mongo_lane_is_aside(const char *collection) {
  size_t n = strlen(collection), k = strlen(ASIDE);
  return n > k && strcmp(collection + n - k, ASIDE) == 0;
}

/* There is no dropping of an empty collection alone: it is renamed, so that nobody sends to it any
 * more, looked at once more, and what came in between goes back. So does the lane itself, if its
 * owner came: who announces itself makes its lane after that. */
int msg_mongo_lane_drop_empty(msg_mongo_session *s, msg_mongo_use *u, const char *lane,
                              bool *dropped, msg_err *err) {
  char aside[MSG_MONGO_NAME_MAX + sizeof ASIDE], home[MSG_MONGO_NAME_MAX];
  bool wanted = false;
  size_t n = 0, len = strlen(lane);
  bool left = msg_mongo_lane_is_aside(lane); /* by who died over it */
  snprintf(home, sizeof home, "%.*s", (int)(left ? len - strlen(ASIDE) : len), lane);
  snprintf(aside, sizeof aside, "%s" ASIDE, home);
  *dropped = false;
  int rc = left ? MSG_OK : is_wanted(s, u, home, &wanted, err);
  if (rc != MSG_OK || wanted)
    return rc;
  int moved = left ? MSG_OK : rename_lane(s, u, home, aside, err);
  if (moved != MSG_OK && moved != MSG_BUSY) {
    *dropped = moved == MSG_NOTFOUND;
    return *dropped ? MSG_OK : moved;
  }
  bool lives;
  rc = owner_lives(s, u, home, &lives, err);
  if (rc == MSG_OK && lives && (rc = rename_lane(s, u, aside, home, err)) != MSG_BUSY)
    return rc == MSG_NOTFOUND ? MSG_OK : rc;
  if (rc == MSG_BUSY) /* there is a new one */
    rc = MSG_OK;
  if (rc != MSG_OK)
    return rc;
  rc = restore_all(s, u, aside, home, &n, err);
  if (rc == MSG_OK)
    rc = drop(s, u, aside, err);
  *dropped = rc == MSG_OK && moved == MSG_OK && n == 0 && !lives;
  return rc;
}

/* Whoever is just making its indexes sends to it: it stays. */
static int drop_if_at_rest(msg_mongo_session *s, msg_mongo_use *u, const char *lane, msg_err *err) {
  msg_err own = MSG_ERR_INIT;
  int rc = drop(s, u, lane, &own);
  if (rc == MSG_OK || own.native == INDEX_BUILD)
    return MSG_OK;
  if (err)
    *err = own;
  return rc;
}

int msg_mongo_lane_leave(msg_mongo_session *s, msg_mongo_use *u, const char *node, bool ours_alone,
                         msg_err *err) {
  msg_mongo_at at;
  bool dropped;
  if (!s->queue->layout->lanes || (s->queue->layout->topics && !ours_alone))
    return MSG_OK; /* other queues' nodes may have that id */
  msg_mongo_at_lane(s->queue->layout, &s->queue->names, node, &at);
  return ours_alone ? drop_if_at_rest(s, u, at.messages, err)
                    : msg_mongo_lane_drop_empty(s, u, at.messages, &dropped, err);
}
