/* update.c - changing and removing one message. */
#include <string.h>

#include "store/mongo/acked.h"
#include "store/mongo/group.h"
#include "store/mongo/lease.h"
#include "store/mongo/query.h"
#include "store/mongo/where.h"

#define TRIES 10

struct changing {
  msg_mongo_session *s;
  msg_mongo_use *u;
  const msg_oid *id;
  const msg_update *update;
  msg_message m; /* as it is */
  bool there, leased;
  char state[16]; /* sq.state, "" none */
};

static int note(void *arg, const bson_t *doc, msg_err *err) {
  struct changing *w = arg;
  const char *state = msg_mongo_get_text(doc, "sq.state");
  msg_mongo_acked acked = {0};
  bool gone;
  int rc = msg_mongo_is_acked(w->s, w->u, &acked, doc, &gone, err);
  msg_mongo_acked_clear(&acked);
  if (rc != MSG_OK || gone)
    return rc;
  snprintf(w->state, sizeof w->state, "%s", state ? state : "");
  w->leased = msg_mongo_get_int(doc, "sq.lease", 0) != 0;
  rc = msg_mongo_message(doc, msg_mongo_now_ms(w->s->store), true, &w->m, err);
  w->there = rc == MSG_OK;
  return rc;
}

static int read_it(struct changing *w, msg_err *err) {
  bson_t filter = BSON_INITIALIZER;
  w->there = false;
  msg_mongo_append_oid(&filter, "_id", w->id);
  msg_mongo_append_there(&filter);
  int rc = msg_mongo_each(w->u, w->s->names.messages, "update", &filter, NULL, note, w, err);
  bson_destroy(&filter);
  return rc == MSG_OK && !w->there ? MSG_NOTFOUND : rc;
}

static int check(const struct changing *w, msg_err *err) {
  const msg_update *u = w->update;
  if (!u->has_deliver_at)
    return MSG_OK;
  if (w->m.state == MSG_STATE_CLAIMED)
    return msg_err_set(
        err, MSG_MISUSE,
        "update: the message is claimed, its delivery time cannot change: release it "
        "with a delay, or free it in msg_locks first");
  if (!w->m.exclusive && w->m.state != MSG_STATE_DELAYED &&
      u->deliver_at_ms > msg_mongo_now_ms(w->s->store))
    return msg_err_set(
        err, MSG_MISUSE,
        "update: the message is out to its listeners and cannot be delayed any more: "
        "delete it and send another");
  return MSG_OK;
}

/* ---- what changes ---- */

static void append_life(const struct changing *w, bson_t *set) {
  int64_t ttl_ms = w->update->ttl_ms;
  bson_t gone;
  msg_mongo_now_expr(&gone, ttl_ms);
  BSON_APPEND_INT64(set, "ttl", ttl_ms);
  BSON_APPEND_BOOL(set, "timing_out", ttl_ms > 0);
  if (ttl_ms > 0 && strcmp(w->state, "dead") != 0) /* a dead letter gets its life when redriven */
    BSON_APPEND_DOCUMENT(set, "delete_at", &gone);
  else
    BSON_APPEND_NULL(set, "delete_at");
  bson_destroy(&gone);
}

/* Where it stands with its new time: delayed, or out. */
static void append_standing(const struct changing *w, bson_t *set, bool *goes_out) {
  int64_t at_ms = w->update->deliver_at_ms + w->s->store->clock_offset_ms;
  bool apart = w->s->place->kind == MSG_MONGO_APART; /* the sweep moves it */
  bool late = apart || at_ms > msg_mongo_now_ms(w->s->store);
  /* what listeners had keeps their marks */
  bool out = !w->m.exclusive && w->m.state != MSG_STATE_DELAYED;
  bool placed = !out && strcmp(w->state, "blocked") != 0 && strcmp(w->state, "dead") != 0 &&
                w->m.state != MSG_STATE_PROCESSED;
  BSON_APPEND_INT64(set, "timestamp", at_ms);
  BCON_APPEND(set, "sq.sent", "{", "$ifNull", "[", BCON_UTF8("$sq.sent"), BCON_UTF8("$timestamp"),
              "]", "}");
  if (!placed)
    return;
  if (late) {
    BCON_APPEND(set, "processed_by", "[", BCON_UTF8(MSG_MONGO_DELAYED), "]", "sq.state",
                BCON_UTF8("delayed"), "sq.until", BCON_DATE_TIME(at_ms));
    return;
  }
  *goes_out = true;
  BCON_APPEND(set, "processed_by", "[", "]", "recipients", "{", "$cond", "[", "{", "$eq", "[", "{",
              "$type", BCON_UTF8("$sq.to"), "}", BCON_UTF8("missing"), "]", "}",
              BCON_UTF8("$recipients"), BCON_UTF8("$sq.to"), "]", "}");
}

static bson_t *change_of(const struct changing *w) {
  const msg_update *u = w->update;
  bson_t set = BSON_INITIALIZER;
  bool goes_out = false;
  if (u->has_priority)
    BSON_APPEND_INT32(&set, "priority", u->priority);
  if (u->has_ttl)
    append_life(w, &set);
  if (u->has_deliver_at)
    append_standing(w, &set, &goes_out);
  bson_t *change = BCON_NEW("0", "{", "$set", BCON_DOCUMENT(&set), "}");
  if (goes_out)
    BCON_APPEND(change, "1", "{", "$unset", "[", BCON_UTF8("sq.state"), BCON_UTF8("sq.until"),
                BCON_UTF8("sq.to"), "]", "}");
  else if (u->has_ttl)
    BCON_APPEND(change, "1", "{", "$unset", BCON_UTF8("sq.life"), "}");
  bson_destroy(&set);
  return change;
}

/* ---- leases ---- */

struct breaking {
  const msg_oid *id;
  msg_texts done; /* its lease's token, if that is done */
};

static int break_in(msg_mongo_txn *t, void *arg, msg_err *err) {
  struct breaking *w = arg;
  bson_t filter = BSON_INITIALIZER;
  bool plain;
  msg_texts_clear(&w->done);
  msg_mongo_append_oid(&filter, "_id", w->id);
  BSON_APPEND_UTF8(&filter, "sq.state", "claimed");
  int rc = msg_mongo_leases_break(t, "change", &filter, &plain, &w->done, NULL, err);
  bson_destroy(&filter);
  return rc;
}

/* Nobody acks it with its lease any more; or *done that way. */
static int break_lease(msg_mongo_session *s, msg_mongo_use *u, const msg_oid *id, bool *done,
                       msg_err *err) {
  struct breaking w = {.id = id};
  int rc = msg_mongo_alone(s, u, break_in, &w, err);
  *done = w.done.n > 0;
  msg_texts_clear(&w.done);
  return rc;
}

static void append_unleased(bson_t *filter) {
  BCON_APPEND(filter, "sq.lease", "{", "$ne", BCON_BOOL(true), "}");
}

/* ---- the change ---- */

/* Only as it was read. What has a life is of no lease. */
static void append_guard(const struct changing *w, bson_t *filter) {
  msg_mongo_append_oid(filter, "_id", w->id);
  if (w->state[0])
    BSON_APPEND_UTF8(filter, "sq.state", w->state);
  else
    BSON_APPEND_NULL(filter, "sq.state");
  if (w->update->has_ttl)
    append_unleased(filter);
  if (w->m.exclusive && w->update->has_deliver_at && w->m.state == MSG_STATE_READY && !w->state[0])
    msg_mongo_append_untaken(filter);
}

static int change(struct changing *w, int64_t *matched, msg_err *err) {
  bool done;
  *matched = 0;
  int rc = w->leased && w->update->has_ttl ? break_lease(w->s, w->u, w->id, &done, err) : MSG_OK;
  if (rc != MSG_OK)
    return rc;
  bson_t filter = BSON_INITIALIZER, *how = change_of(w);
  msg_mongo_result result = {0};
  append_guard(w, &filter);
  rc = msg_mongo_update(w->u, w->s->names.messages, "update", &filter, how, &result, err);
  *matched = result.matched;
  bson_destroy(how);
  bson_destroy(&filter);
  return rc;
}

static int run(struct changing *w, msg_err *err) {
  for (int i = 0; i < TRIES; i++) {
    int64_t matched = 0;
    int rc = read_it(w, err);
    if (rc != MSG_OK)
      return rc;
    rc = check(w, err);
    if (rc == MSG_OK)
      rc = change(w, &matched, err);
    msg_message_clear(&w->m);
    if (rc != MSG_OK || matched)
      return rc;
  }
  return msg_err_set(err, MSG_BACKEND,
                     "update: the message changes all the time: try again when it is at rest");
}

static int change_at(msg_mongo_session *at, msg_mongo_use *u, void *arg, msg_err *err) {
  struct changing *w = arg;
  w->s = at;
  w->u = u;
  int rc = run(w, err);
  if (rc == MSG_OK && at->place->kind == MSG_MONGO_APART && w->update->has_deliver_at)
    rc = msg_mongo_sweep(at, u, INT64_MAX, true, NULL, err);
  return rc;
}

int msg_mongo_change(msg_session *base, const msg_actor *actor, const msg_oid *id,
                     const msg_update *update, msg_err *err) {
  struct changing w = {.id = id, .update = update};
  (void)actor;
  return msg_mongo_where_each((msg_mongo_session *)base, "update", id, change_at, &w, err);
}

/* ---- removing ---- */

struct removing {
  msg_mongo_groups groups;
  bool there, leased;
};

static int note_gone(void *arg, const bson_t *doc, msg_err *err) {
  struct removing *w = arg;
  w->there = true;
  w->leased = msg_mongo_get_int(doc, "sq.lease", 0) != 0;
  return msg_mongo_groups_add_of(&w->groups, doc, err);
}

/* *gone: for others; else it is another's lease now. */
static int try_remove(msg_mongo_session *s, msg_mongo_use *u, const msg_oid *id, bool *gone,
                      struct removing *w, msg_err *err) {
  msg_mongo_result result = {0};
  bson_t filter = BSON_INITIALIZER;
  bson_t *opts = BCON_NEW("projection", "{", "topic", BCON_INT32(1), "sq.group", BCON_INT32(1),
                          "sq.lease", BCON_INT32(1), "}");
  bool acked = false;
  w->there = false;
  msg_mongo_append_oid(&filter, "_id", id);
  msg_mongo_append_there(&filter);
  int rc = msg_mongo_each(u, s->names.messages, "delete", &filter, opts, note_gone, w, err);
  if (rc == MSG_OK && w->there && w->leased)
    rc = break_lease(s, u, id, &acked, err);
  append_unleased(&filter);
  *gone = !w->there || acked;
  if (rc == MSG_OK && !*gone)
    rc = msg_mongo_delete(u, s->names.messages, "delete", &filter, &result, err);
  bson_destroy(opts);
  bson_destroy(&filter);
  return rc == MSG_OK && result.deleted == 0 ? MSG_NOTFOUND : rc;
}

static int remove_at(msg_mongo_session *s, msg_mongo_use *u, void *arg, msg_err *err) {
  struct removing w = {0};
  bool gone = false;
  int rc = MSG_NOTFOUND;
  for (int i = 0; i < TRIES && rc == MSG_NOTFOUND && !gone; i++)
    rc = try_remove(s, u, arg, &gone, &w, err);
  if (rc == MSG_OK)
    rc = msg_mongo_groups_promote(s, u, &w.groups, err);
  msg_mongo_groups_clear(&w.groups);
  return rc;
}

int msg_mongo_remove(msg_session *base, const msg_actor *actor, const msg_oid *id, msg_err *err) {
  (void)actor;
  return msg_mongo_where_each((msg_mongo_session *)base, "delete", id, remove_at, (void *)id, err);
}
