#include "store/mongo/presence.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/process.h"
#include "base/str.h"
#include "store/mongo/foreign.h"
#include "store/mongo/interest.h"
#include "store/mongo/lane.h"
#include "store/mongo/people.h"
#include "store/mongo/tend.h"

/* Morphium removes the document of a node that was silent for three time-outs. */
#define PRUNE_TIMEOUTS 3

int msg_mongo_presence_list(msg_session *base, msg_participant_fn fn, void *arg, msg_err *err) {
  msg_mongo_session *s = (msg_mongo_session *)base;
  msg_mongo_people people = {0};
  msg_mongo_use u;
  int rc = msg_mongo_take(s->store, "participants", &u, err);
  if (rc != MSG_OK)
    return rc;
  rc = msg_mongo_people_load(s, &u, &people, err);
  if (rc == MSG_OK)
    rc = msg_mongo_people_add_answering(s, &u, &people, err);
  msg_mongo_give(&u);
  for (size_t i = 0; rc == MSG_OK && i < people.n; i++)
    rc = fn(arg, &people.at[i]);
  msg_mongo_people_clear(&people);
  return rc;
}

/* --- writing ------------------------------------------------------------------------------- */

static void append_listens(bson_t *sq, const msg_mongo_session *s, const char *node) {
  msg_mongo_tend *t = s->store->tend;
  bson_t list;
  char key[16];
  int n = 0;
  BSON_APPEND_ARRAY_BEGIN(sq, "listens", &list);
  msg_mutex_lock(t->mtx);
  for (size_t i = 0; i < t->heard_count; i++) {
    if (t->heard[i].queue != s->queue || strcmp(t->heard[i].node, node) != 0)
      continue;
    snprintf(key, sizeof key, "%d", n++);
    BSON_APPEND_UTF8(&list, key, t->heard[i].pattern);
  }
  msg_mutex_unlock(t->mtx);
  bson_append_array_end(sq, &list);
}

/* As Morphium writes them: $set of the whole document, its _id too. */
static bson_t *document_of(const msg_mongo_session *s, const msg_participant *p,
                           int64_t last_seen_ms) {
  const msg_mongo_layout *layout = s->queue->layout;
  bson_t *sq = BCON_NEW("implementation", BCON_UTF8(p->implementation), "layout",
                        BCON_UTF8(p->layout && p->layout[0] ? p->layout : layout->name), "process",
                        BCON_UTF8(p->process), "pid", BCON_INT32(p->pid), "automatic",
                        BCON_BOOL(p->automatic), "claims", BCON_BOOL(msg_mongo_interest_claims(s)));
  append_listens(sq, s, p->node);
  bson_t *change = BCON_NEW(
      "$set", "{", "_id", BCON_UTF8(p->node), "implementation", BCON_UTF8(layout->implementation),
      "hostname", BCON_UTF8(p->host ? p->host : ""), "started_at", BCON_INT64(p->started_at_ms),
      "last_seen", BCON_INT64(last_seen_ms), "sq", BCON_DOCUMENT(sq), "}");
  bson_destroy(sq);
  return change;
}

static bool add_upsert(msg_mongo_session *s, mongoc_bulk_operation_t *bulk,
                       const msg_participant *p, int64_t last_seen_ms, bson_error_t *error) {
  bson_t *filter = BCON_NEW("_id", BCON_UTF8(p->node));
  bson_t *change = document_of(s, p, last_seen_ms);
  bson_t *opts = BCON_NEW("upsert", BCON_BOOL(true));
  bool ok = mongoc_bulk_operation_update_one_with_opts(bulk, filter, change, opts, error);
  bson_destroy(filter);
  bson_destroy(change);
  bson_destroy(opts);
  return ok;
}

static bool add_prune(mongoc_bulk_operation_t *bulk, int64_t before_ms, bson_error_t *error) {
  bson_t *filter = BCON_NEW("last_seen", "{", "$lt", BCON_INT64(before_ms), "}");
  bool ok = mongoc_bulk_operation_remove_many_with_opts(bulk, filter, NULL, error);
  bson_destroy(filter);
  return ok;
}

/* Idempotent: the driver tries it again by itself. */
static int run_bulk(msg_mongo_session *s, mongoc_bulk_operation_t *bulk, bool ok,
                    bson_error_t *error, msg_err *err) {
  bson_t reply = BSON_INITIALIZER;
  if (ok) {
    bson_destroy(&reply);
    ok = mongoc_bulk_operation_execute(bulk, &reply, error) != 0;
  }
  int rc = ok ? MSG_OK : msg_mongo_fail(s->store, "announce", error, &reply, err);
  bson_destroy(&reply);
  mongoc_bulk_operation_destroy(bulk);
  return rc;
}

static mongoc_bulk_operation_t *new_bulk(msg_mongo_session *s, msg_mongo_use *u) {
  bson_t *opts = BCON_NEW("ordered", BCON_BOOL(false));
  mongoc_collection_t *c = msg_mongo_collection(u, s->names.participants);
  mongoc_bulk_operation_t *bulk = mongoc_collection_create_bulk_operation_with_opts(c, opts);
  mongoc_collection_destroy(c);
  bson_destroy(opts);
  return bulk;
}

/* --- the verbs ----------------------------------------------------------------------------- */

static int delete_one(msg_mongo_session *s, msg_mongo_use *u, const char *node, int64_t *count,
                      msg_err *err) {
  msg_mongo_result result = {0};
  bson_t *filter = BCON_NEW("_id", BCON_UTF8(node));
  int rc = msg_mongo_delete(u, s->names.participants, "withdraw", filter, &result, err);
  bson_destroy(filter);
  *count = result.deleted;
  return rc;
}

/* Two nodes that share a lane take each other's messages. */
static int check_lane(msg_mongo_session *s, msg_mongo_use *u, const msg_participant *p,
                      msg_err *err) {
  msg_mongo_people people = {0};
  if (!s->queue->layout->lanes)
    return MSG_OK;
  const msg_mongo_place *mine = msg_mongo_place_lane(s, p->node);
  int rc = msg_mongo_people_load(s, u, &people, err);
  for (size_t i = 0; rc == MSG_OK && i < people.n; i++) {
    const msg_participant *other = &people.at[i];
    if (other->alive && strcmp(other->node, p->node) != 0 &&
        msg_mongo_place_lane(s, other->node) == mine)
      rc = msg_err_set(err, MSG_MISUSE,
                       "announce: sender ids '%s' and '%s' would share lane '%s': choose another",
                       msg_show(p->node).s, msg_show(other->node).s, mine->at.messages);
  }
  msg_mongo_people_clear(&people);
  return rc;
}

/* Its lane comes last: from then on whoever would drop it sees that its owner lives. */
static int put(msg_mongo_session *s, msg_mongo_use *u, const msg_participant *p, msg_err *err) {
  bson_error_t error = {0};
  int64_t gone;
  int rc = check_lane(s, u, p, err);
  if (rc != MSG_OK)
    return rc;
  mongoc_bulk_operation_t *bulk = new_bulk(s, u);
  rc = run_bulk(s, bulk, add_upsert(s, bulk, p, p->last_seen_ms, &error), &error, err);
  if (rc != MSG_OK)
    return rc;
  rc = msg_mongo_foreign_check(s, u, p->node, err);
  if (rc == MSG_OK)
    rc = msg_mongo_lane_make(s, u, p->node, err);
  if (rc != MSG_OK)
    delete_one(s, u, p->node, &gone, NULL);
  return rc;
}

/* From now on the store is to ask who else is there: registry.c. */
static void begin_registry(msg_mongo_queue *queue) {
  int64_t never = 0;
  atomic_compare_exchange_strong(&queue->registry_due_ms, &never, msg_clock_mono_ms());
}

int msg_mongo_presence_put(msg_session *base, const msg_participant *p, msg_err *err) {
  msg_mongo_session *s = (msg_mongo_session *)base;
  msg_mongo_use u;
  int rc = msg_mongo_take_bounded(s, "announce", &u, err);
  if (rc != MSG_OK)
    return rc;
  rc = put(s, &u, p, err);
  msg_mongo_give(&u);
  if (rc == MSG_OK && strcmp(p->process, msg_process_self()) == 0)
    rc = msg_mongo_own_put(s, p, err);
  if (rc == MSG_OK && s->registry)
    begin_registry(s->queue);
  if (rc == MSG_OK && !p->automatic)
    msg_mongo_interest_widen(s->store);
  return rc;
}

static uint64_t heard_version(const msg_mongo_session *s) {
  msg_mutex_lock(s->store->tend->mtx);
  uint64_t version = s->store->tend->heard_version;
  msg_mutex_unlock(s->store->tend->mtx);
  return version;
}

static int beat(msg_mongo_session *s, msg_mongo_use *u, const msg_mongo_own *own, size_t n,
                msg_err *err) {
  bson_error_t error = {0};
  int64_t now_ms = msg_mongo_now_ms(s->store);
  mongoc_bulk_operation_t *bulk = new_bulk(s, u);
  bool ok = add_prune(bulk, now_ms - PRUNE_TIMEOUTS * s->participant_timeout_ms, &error);
  for (size_t i = 0; ok && i < n; i++)
    ok = add_upsert(s, bulk, &own[i].row, now_ms, &error);
  return run_bulk(s, bulk, ok, &error, err);
}

/* What somebody began to listen to meanwhile may be overwritten: again. */
int msg_mongo_heartbeat(msg_mongo_session *s, msg_mongo_use *u, msg_err *err) {
  msg_mongo_own *own = NULL;
  size_t n = 0;
  uint64_t version;
  int rc = msg_mongo_own_list(s->store, s->queue, &own, &n, err);
  if (rc == MSG_OK && n > 0) {
    do {
      version = heard_version(s);
      rc = beat(s, u, own, n, err);
    } while (rc == MSG_OK && version != heard_version(s));
    if (rc == MSG_OK)
      rc = msg_mongo_foreign_check(s, u, NULL, err);
  }
  msg_mongo_own_free(own, n);
  return rc;
}

int64_t msg_mongo_beat_ms(const msg_mongo_session *s) {
  const msg_mongo_tend *t = s->store->tend;
  int64_t ms = s->update_ms;
  msg_mutex_lock(t->mtx);
  for (size_t i = 0; i < t->own_count; i++)
    if (t->own[i].queue == s->queue && t->own[i].update_ms < ms)
      ms = t->own[i].update_ms;
  msg_mutex_unlock(t->mtx);
  return ms;
}

/* Best effort: the next heartbeat says so, too. Who looks asks the primary. */
void msg_mongo_presence_tell(msg_mongo_session *s, const char *node, const char *pattern,
                             bool listens) {
  msg_mongo_use u;
  if (!msg_mongo_own_has(s->store, s->queue, node) ||
      msg_mongo_take_bounded(s, "listen", &u, NULL) != MSG_OK)
    return;
  mongoc_collection_t *c = msg_mongo_collection(&u, s->names.participants);
  bson_t *opts = BCON_NEW("writeConcern", "{", "w", BCON_INT32(1), "}");
  bson_t *filter = BCON_NEW("_id", BCON_UTF8(node));
  bson_t *change =
      BCON_NEW(listens ? "$addToSet" : "$pull", "{", "sq.listens", BCON_UTF8(pattern), "}");
  msg_mongo_bound(&u);
  mongoc_collection_update_one(c, filter, change, opts, NULL, NULL);
  bson_destroy(change);
  bson_destroy(filter);
  bson_destroy(opts);
  mongoc_collection_destroy(c);
  msg_mongo_give(&u);
}

static int no_participant(const char *node, msg_err *err) {
  return msg_err_set(err, MSG_NOTFOUND, "withdraw: no participant '%s': see table msg_participants",
                     msg_show(node).s);
}

static int withdraw(msg_mongo_session *s, msg_mongo_use *u, const char *node, bool only_dead,
                    msg_err *err) {
  msg_mongo_people people;
  int64_t gone = 0;
  int rc = msg_mongo_people_load(s, u, &people, err);
  const msg_participant *p = rc == MSG_OK ? msg_mongo_people_find(&people, node) : NULL;
  if (rc == MSG_OK && only_dead && p && p->alive)
    rc = msg_err_set(err, MSG_MISUSE,
                     "participant '%s' is alive: close it there, or end its process first",
                     msg_show(node).s);
  if (rc == MSG_OK) {
    msg_mongo_own_drop(s->store, s->queue, node); /* before: or a heartbeat brings it back */
    if (p && p->automatic)
      msg_mongo_heard_drop(s->store, s->queue, node);
    rc = delete_one(s, u, node, &gone, err);
  }
  if (rc == MSG_OK && p)
    rc = msg_mongo_lane_leave(s, u, node,
                              p->automatic && strcmp(p->process, msg_process_self()) == 0, err);
  msg_mongo_people_clear(&people);
  return rc == MSG_OK && gone == 0 ? no_participant(node, err) : rc;
}

int msg_mongo_presence_withdraw(msg_session *base, const char *node, bool only_dead, msg_err *err) {
  msg_mongo_session *s = (msg_mongo_session *)base;
  msg_mongo_use u;
  int rc = msg_mongo_take_bounded(s, "withdraw", &u, err);
  if (rc != MSG_OK)
    return rc;
  rc = withdraw(s, &u, node, only_dead, err);
  msg_mongo_give(&u);
  if (rc == MSG_OK && !only_dead) /* who has the id next shall not be handed the same */
    msg_mongo_seen_flush(s);
  return rc;
}
