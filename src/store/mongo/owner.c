/* owner.c - steps 4 and 5 of a claim: whose a marked message is. */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "store/mongo/claiming.h"
#include "store/mongo/query.h"
#include "store/mongo/where.h"

#define LOCK_WAIT_MS 200
#define LOCK_STEP_MS 10

/* Those that bear my token. */
static void append_mine(bson_t *filter, const msg_mongo_claiming *c, const msg_mongo_ids *ids) {
  msg_mongo_append_ids(filter, "_id", "$in", ids->at, ids->n);
  BSON_APPEND_UTF8(filter, "sq.token", c->token);
}

/* Is my mark its only one? Another's tells of a Java node that had the lock before my mark. */
static bool is_alone(const msg_mongo_claiming *c, const bson_t *doc) {
  bson_iter_t field, it;
  return bson_iter_init_find(&field, doc, "processed_by") && BSON_ITER_HOLDS_ARRAY(&field) &&
         bson_iter_recurse(&field, &it) && bson_iter_next(&it) && BSON_ITER_HOLDS_UTF8(&it) &&
         strcmp(bson_iter_utf8(&it, NULL), c->actor->node) == 0 && !bson_iter_next(&it);
}

static int note_shared(msg_mongo_claiming *c, const bson_t *doc, msg_err *err) {
  msg_oid id;
  if (msg_mongo_get_oid(doc, "_id", &id) && msg_mongo_ids_add(&c->shared, &id) != MSG_OK)
    return msg_err_nomem(err);
  return MSG_OK;
}

/* One that bears my token. */
static int note_mine(void *arg, const bson_t *doc, msg_err *err) {
  msg_mongo_claiming *c = arg;
  msg_message m, *to;
  if (!is_alone(c, doc))
    return note_shared(c, doc, err);
  int rc = msg_mongo_message(doc, msg_mongo_now_ms(c->s->store), true, &m, err);
  if (rc != MSG_OK)
    return rc;
  if (!(to = msg_list_add(&c->got))) {
    msg_message_clear(&m);
    return msg_err_nomem(err);
  }
  *to = m;
  msg_mongo_met(c->s, &m.id);
  return MSG_OK;
}

static int read_mine(msg_mongo_claiming *c, const msg_mongo_ids *ids, msg_err *err) {
  bson_t filter = BSON_INITIALIZER;
  append_mine(&filter, c, ids);
  int rc = msg_mongo_each(c->u, c->s->names.messages, "claim", &filter, NULL, note_mine, c, err);
  bson_destroy(&filter);
  return rc;
}

/* A row of read_both. */
static int note_either(void *arg, const bson_t *doc, msg_err *err) {
  msg_mongo_claiming *c = arg;
  msg_oid id;
  if (!bson_has_field(doc, "lock"))
    return note_mine(c, doc, err);
  if (msg_mongo_get_oid(doc, "_id", &id) && msg_mongo_ids_add(&c->locked, &id) != MSG_OK)
    return msg_err_nomem(err);
  return MSG_OK;
}

/* The locks, then the messages, in this order: by one call. */
static int read_both(msg_mongo_claiming *c, msg_err *err) {
  bson_t locks = BSON_INITIALIZER, mine = BSON_INITIALIZER;
  msg_mongo_append_ids(&locks, "_id", "$in", c->ids.at, c->ids.n);
  msg_mongo_append_alive(&locks, c->now_ms);
  append_mine(&mine, c, &c->ids);
  bson_t *pipeline =
      BCON_NEW("pipeline", "[", "{", "$match", BCON_DOCUMENT(&locks), "}", "{", "$project", "{",
               "lock", "{", "$literal", BCON_BOOL(true), "}", "}", "}", "{", "$unionWith", "{",
               "coll", BCON_UTF8(c->s->names.messages), "pipeline", "[", "{", "$match",
               BCON_DOCUMENT(&mine), "}", "]", "}", "}", "]");
  int rc =
      msg_mongo_aggregate_each(c->u, c->s->names.locks, "claim", pipeline, note_either, c, err);
  bson_destroy(pipeline);
  bson_destroy(&mine);
  bson_destroy(&locks);
  return rc;
}

/* Those with a lock are in doubt: they go from what was read to *doubt. */
static int take_doubtful(msg_mongo_claiming *c, msg_mongo_ids *doubt, msg_err *err) {
  size_t n = 0;
  int rc = MSG_OK;
  for (size_t i = 0; i < c->got.n; i++) {
    if (!msg_mongo_ids_have(&c->locked, &c->got.at[i].id)) {
      c->got.at[n++] = c->got.at[i];
      continue;
    }
    if (msg_mongo_ids_add(doubt, &c->got.at[i].id) != MSG_OK)
      rc = msg_err_nomem(err);
    msg_message_clear(&c->got.at[i]);
  }
  c->got.n = n;
  return rc;
}

/* Another's mark stands beside mine, or its lock will not go: mine goes. */
static int step_back(msg_mongo_claiming *c, const msg_mongo_ids *ids, msg_err *err) {
  bson_t filter = BSON_INITIALIZER;
  append_mine(&filter, c, ids);
  bson_t *change = BCON_NEW(
      "0", "{", "$set", "{", "processed_by", "{", "$filter", "{", "input",
      BCON_UTF8("$processed_by"), "cond", "{", "$ne", "[", BCON_UTF8("$$this"), "{", "$literal",
      BCON_UTF8(c->actor->node), "}", "]", "}", "}", "}", "delete_at", "{", "$ifNull", "[",
      BCON_UTF8("$sq.life"), BCON_UTF8("$delete_at"), "]", "}", "sq.attempts", "{", "$subtract",
      "[", BCON_UTF8("$sq.attempts"), BCON_INT32(1), "]", "}", "}", "}", "1", "{", "$unset", "[",
      BCON_UTF8("sq.state"), BCON_UTF8("sq.token"), BCON_UTF8("sq.owner"), BCON_UTF8("sq.since"),
      BCON_UTF8("sq.until"), BCON_UTF8("sq.life"), BCON_UTF8("sq.lease"), "]", "}");
  int rc = msg_mongo_update(c->u, c->s->names.messages, "claim", &filter, change, NULL, err);
  bson_destroy(change);
  bson_destroy(&filter);
  return rc;
}

/* Of those in doubt, the ones whose lock went; the others stay in doubt. */
static int take_freed(msg_mongo_claiming *c, msg_mongo_ids *doubt, msg_mongo_ids *freed,
                      msg_err *err) {
  size_t n = 0;
  int rc = msg_mongo_read_locks(c, doubt, &c->locked, err);
  if (rc != MSG_OK)
    return rc;
  for (size_t i = 0; i < doubt->n; i++) {
    if (msg_mongo_ids_have(&c->locked, &doubt->at[i]))
      doubt->at[n++] = doubt->at[i];
    else if (msg_mongo_ids_add(freed, &doubt->at[i]) != MSG_OK)
      rc = msg_err_nomem(err);
  }
  doubt->n = n;
  return rc;
}

/* Waits for the lock to go, or for its owner's mark. */
static int settle_doubtful(msg_mongo_claiming *c, msg_mongo_ids *doubt, msg_err *err) {
  int64_t deadline_ms = msg_clock_mono_ms() + LOCK_WAIT_MS;
  int rc = MSG_OK;
  while (rc == MSG_OK && doubt->n && msg_clock_mono_ms() < deadline_ms) {
    msg_mongo_ids freed = {0};
    msg_clock_sleep_ms(LOCK_STEP_MS);
    rc = take_freed(c, doubt, &freed, err);
    if (rc == MSG_OK && freed.n)
      rc = read_mine(c, &freed, err);
    msg_mongo_ids_clear(&freed);
  }
  return rc;
}

/* Before MongoDB 4.4 by two calls. */
static int read_one_by_one(msg_mongo_claiming *c, msg_err *err) {
  int rc = msg_mongo_read_locks(c, &c->ids, &c->locked, err);
  return rc == MSG_OK ? read_mine(c, &c->ids, err) : rc;
}

int msg_mongo_read_back(msg_mongo_claiming *c, msg_err *err) {
  msg_mongo_ids doubt = {0};
  msg_mongo_ids_clear(&c->locked);
  msg_mongo_ids_clear(&c->shared);
  int rc = strncmp(c->s->store->version, "4.2", 3) == 0 || c->s->store->sharded
               ? read_one_by_one(c, err)
               : read_both(c, err);
  if (rc == MSG_OK && c->locked.n) {
    msg_mongo_note_locked(c->s);
    rc = take_doubtful(c, &doubt, err);
  }
  if (rc == MSG_OK)
    rc = settle_doubtful(c, &doubt, err);
  if (rc == MSG_OK && doubt.n)
    rc = step_back(c, &doubt, err);
  if (rc == MSG_OK && c->shared.n)
    rc = step_back(c, &c->shared, err);
  msg_mongo_ids_clear(&doubt);
  return rc;
}
