/* settle.c - what an owner does with a claim. Nothing is deleted: what is done keeps its token and
 * goes by delete_at. Each call leaves its mark, which tells the outcome of each item. A second run
 * leaves alone what the first one did: that may be another's by then. */
#include "store/mongo/settle.h"

#include "store/mongo/group.h"
#include "store/mongo/lease.h"
#include "store/mongo/query.h"
#include "store/mongo/split.h"
#include "store/mongo/transaction.h"

#define TOGETHER_MIN 10

static const char *const WHAT[] = {[MSG_SETTLE_ACK] = "ack",
                                   [MSG_SETTLE_RELEASE] = "release",
                                   [MSG_SETTLE_EXTEND] = "extend",
                                   [MSG_SETTLE_REJECT] = "reject",
                                   [MSG_SETTLE_FREE] = "free"};

struct settling {
  msg_mongo_session *s;
  msg_mongo_use *u;
  const msg_actor *actor;
  const msg_settle *how;
  msg_mongo_piece *piece;
  size_t left; /* of the piece: not settled by their lease */
  msg_mongo_parts parts;
  bson_t *change;
  int64_t matched; /* by the last run */
  char mark[MSG_OID_HEX + 1];
};

/* ---- the update ---- */

/* All parts by one command. */
static int run(msg_mongo_txn *t, void *arg, msg_err *err) {
  struct settling *w = arg;
  const char *what = WHAT[w->how->verb];
  mongoc_collection_t *c = msg_mongo_collection(w->u, w->s->names.messages);
  bson_t *opts = BCON_NEW("ordered", BCON_BOOL(false)), reply;
  bson_concat(opts, &t->opts);
  mongoc_bulk_operation_t *bulk = mongoc_collection_create_bulk_operation_with_opts(c, opts);
  bson_error_t error;
  bson_iter_t it;
  int rc = MSG_OK;
  for (size_t i = 0; rc == MSG_OK && i < w->parts.n; i++) {
    bson_t filter = BSON_INITIALIZER;
    msg_mongo_append_theirs(&filter, &w->parts, &w->parts.at[i], w->actor->node, w->how->verb);
    if (!mongoc_bulk_operation_update_many_with_opts(bulk, &filter, w->change, NULL, &error))
      rc = msg_mongo_fail(w->s->store, what, &error, NULL, err);
    bson_destroy(&filter);
  }
  if (rc == MSG_OK) {
    msg_mongo_bound(w->u);
    if (!mongoc_bulk_operation_execute(bulk, &reply, &error))
      rc = msg_mongo_txn_fail(t, what, &error, &reply, err);
    w->matched = bson_iter_init_find(&it, &reply, "nMatched") ? bson_iter_as_int64(&it) : 0;
    bson_destroy(&reply);
  }
  mongoc_bulk_operation_destroy(bulk);
  mongoc_collection_destroy(c);
  bson_destroy(opts);
  return rc;
}

/* Many by a transaction, which costs a call more: the others of the replica set are told of it as
 * a whole, and not of each message. */
static int update(struct settling *w, msg_err *err) {
  const msg_mongo_store *store = w->s->store;
  bool together = w->parts.item_count >= TOGETHER_MIN && store->replicated && !store->sharded;
  w->change = msg_mongo_change_of(w->how, w->mark, w->actor->settings->max_attempts);
  int rc = together ? msg_mongo_transact(w->s, w->u, WHAT[w->how->verb], run, w, err)
                    : msg_mongo_alone(w->s, w->u, run, w, err);
  bson_destroy(w->change);
  return rc;
}

/* ---- leases ---- */

static int ack_leases(msg_mongo_txn *t, void *arg, msg_err *err) {
  struct settling *w = arg;
  return msg_mongo_leases_ack(t, "ack", w->actor->node, w->piece, w->mark, &w->left, err);
}

struct breaking {
  const struct settling *w;
  bool plain;
};

static int break_leases(msg_mongo_txn *t, void *arg, msg_err *err) {
  struct breaking *b = arg;
  const msg_mongo_parts *p = &b->w->parts;
  enum msg_settle_verb verb = b->w->how->verb;
  int rc = MSG_OK;
  for (size_t i = 0; rc == MSG_OK && i < p->n; i++) {
    bson_t filter = BSON_INITIALIZER;
    bool plain = false;
    msg_mongo_append_held(&filter, p, &p->at[i], b->w->actor->node, verb);
    rc = msg_mongo_leases_break(t, WHAT[verb], &filter, &plain, NULL, NULL, err);
    b->plain = b->plain || plain;
    bson_destroy(&filter);
  }
  return rc;
}

/* Those that are left out because they are of a lease that goes on; others may break it, too. */
static int update_leased(struct settling *w, msg_err *err) {
  struct breaking b = {.w = w};
  int rc = msg_mongo_alone(w->s, w->u, break_leases, &b, err);
  return rc == MSG_OK && b.plain ? update(w, err) : rc;
}

/* ---- whose was done ---- */

static int note_done(void *arg, const bson_t *doc, msg_err *err) {
  struct settling *w = arg;
  msg_oid id;
  (void)err;
  if (!msg_mongo_get_oid(doc, "_id", &id))
    return MSG_OK;
  for (size_t i = 0; i < w->parts.item_count; i++) {
    msg_settle_item *item = w->parts.items[i];
    if (msg_oid_cmp(&item->id, &id) != 0)
      continue;
    item->done = true;
    break;
  }
  return MSG_OK;
}

static int find_done(struct settling *w, msg_err *err) {
  bson_t filter = BSON_INITIALIZER;
  bson_t *opts = BCON_NEW("projection", "{", "_id", BCON_INT32(1), "}");
  msg_mongo_append_ids(&filter, "_id", "$in", w->parts.ids, w->parts.item_count);
  BSON_APPEND_UTF8(&filter, "sq.mark", w->mark);
  int rc = msg_mongo_each(w->u, w->s->names.messages, WHAT[w->how->verb], &filter, opts, note_done,
                          w, err);
  bson_destroy(opts);
  bson_destroy(&filter);
  return rc;
}

static bool any_done(const struct settling *w) {
  size_t i = 0;
  while (i < w->parts.item_count && !w->parts.items[i]->done)
    i++;
  return i < w->parts.item_count;
}

/* ---- an operator frees what a Java node holds ---- */

static int free_lock(struct settling *w, msg_settle_item *item, msg_err *err) {
  bson_t filter = BSON_INITIALIZER;
  bson_t *requeue = BCON_NEW("$set", "{", "processed_by", "[", "]", "}");
  msg_mongo_result deleted = {0};
  msg_mongo_append_oid(&filter, "_id", &item->id);
  int rc = msg_mongo_delete(w->u, w->s->names.locks, "free", &filter, &deleted, err);
  item->done = rc == MSG_OK && deleted.deleted > 0;
  if (item->done)
    rc = msg_mongo_update(w->u, w->s->names.messages, "free", &filter, requeue, NULL, err);
  bson_destroy(requeue);
  bson_destroy(&filter);
  return rc;
}

static int free_locks(struct settling *w, msg_err *err) {
  int rc = MSG_OK;
  for (size_t i = 0; rc == MSG_OK && i < w->parts.item_count; i++)
    if (!w->parts.items[i]->done)
      rc = free_lock(w, w->parts.items[i], err);
  return rc;
}

/* ---- the verb ---- */

static int settle(struct settling *w, msg_err *err) {
  int rc = update(w, err);
  if (rc == MSG_OK && w->matched < (int64_t)w->parts.item_count)
    rc = update_leased(w, err);
  if (rc != MSG_OK)
    return rc;
  bool all = w->matched == (int64_t)w->parts.item_count;
  for (size_t i = 0; all && i < w->parts.item_count; i++)
    w->parts.items[i]->done = true;
  if (!all)
    rc = find_done(w, err);
  if (rc == MSG_OK && !all && w->how->verb == MSG_SETTLE_FREE)
    rc = free_locks(w, err);
  if (rc == MSG_OK && any_done(w) && w->how->verb != MSG_SETTLE_EXTEND &&
      msg_mongo_is_grouped(w->s))
    rc = msg_mongo_groups_after(w->s, w->u, w->parts.ids, w->parts.item_count, err);
  return rc;
}

static int settle_at(msg_mongo_session *at, msg_mongo_use *u, const msg_actor *actor,
                     const msg_settle *how, msg_mongo_piece *piece, msg_err *err) {
  struct settling w = {
      .s = at, .u = u, .actor = actor, .how = how, .piece = piece, .left = piece->n};
  msg_oid mark = msg_oid_new();
  msg_oid_hex(&mark, w.mark);
  int rc = how->verb == MSG_SETTLE_ACK ? msg_mongo_alone(at, u, ack_leases, &w, err) : MSG_OK;
  if (rc != MSG_OK || w.left == 0)
    return rc;
  rc = msg_mongo_parts_of(piece->items, w.left, &w.parts, err);
  if (rc == MSG_OK)
    do
      rc = settle(&w, err);
    while (rc == MSG_OK && msg_mongo_parts_next(&w.parts));
  msg_mongo_parts_clear(&w.parts);
  return rc;
}

int msg_mongo_settle(msg_session *base, const msg_actor *actor, const msg_settle *how,
                     msg_settle_item *items, size_t n, msg_err *err) {
  msg_mongo_session *s = (msg_mongo_session *)base;
  msg_mongo_split split = {0};
  msg_mongo_use u;
  int rc = msg_mongo_take_bounded(s, WHAT[how->verb], &u, err);
  if (rc != MSG_OK)
    return rc;
  rc = msg_mongo_split_of(s, &u, items, n, &split, err);
  for (size_t i = 0; rc == MSG_OK && i < split.n; i++) {
    msg_mongo_session at = msg_mongo_session_at(s, split.at[i].place);
    rc = settle_at(&at, &u, actor, how, &split.at[i], err);
  }
  msg_mongo_give(&u);
  msg_mongo_split_done(&split, items, n);
  msg_mongo_split_clear(&split);
  return rc;
}
