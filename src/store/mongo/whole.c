/* whole.c - acks of whole leases. */
#include <string.h>

#include "base/mem.h"
#include "store/mongo/lease.h"
#include "store/mongo/query.h"

/* Of an id given twice the first one. False: another token was given for one. */
static bool pick(const msg_mongo_piece *piece, const msg_mongo_lease *l, bool *picked) {
  msg_mongo_ids open = {0};
  bool ok = msg_mongo_ids_order(&open, l->ids.at, l->ids.n) == MSG_OK;
  for (size_t i = 0; ok && i < piece->n; i++) {
    const msg_settle_item *item = &piece->items[i];
    picked[i] = msg_mongo_ids_hold(&open, &item->id);
    if (picked[i])
      msg_mongo_ids_remove(&open, &item->id);
    ok = !picked[i] || !item->token || strcmp(item->token, l->token) == 0;
  }
  msg_mongo_ids_clear(&open);
  return ok;
}

/* {_id: token, $or: [{done: {$ne: true}, its time is not over}, {mark: mark}]}; without a mark the
 * first alone. */
static void append_open(bson_t *filter, const msg_mongo_lease *l, const char *mark) {
  bson_t now, open = BSON_INITIALIZER;
  msg_mongo_now_expr(&now, 0);
  BCON_APPEND(&open, "done", "{", "$ne", BCON_BOOL(true), "}", "$expr", "{", "$gt", "[",
              BCON_UTF8("$until"), BCON_DOCUMENT(&now), "]", "}");
  BSON_APPEND_UTF8(filter, "_id", l->token);
  if (mark)
    BCON_APPEND(filter, "$or", "[", BCON_DOCUMENT(&open), "{", "mark", BCON_UTF8(mark), "}", "]");
  else
    bson_concat(filter, &open);
  bson_destroy(&open);
  bson_destroy(&now);
}

static int ack_one(msg_mongo_txn *t, const char *what, const msg_mongo_lease *l, const char *mark,
                   bool *done, msg_err *err) {
  bson_t filter = BSON_INITIALIZER, now;
  int64_t matched = 0;
  msg_mongo_now_expr(&now, 0);
  append_open(&filter, l, mark);
  bson_t *change =
      BCON_NEW("0", "{", "$set", "{", "done", BCON_BOOL(true), "at", BCON_DOCUMENT(&now), "mark",
               BCON_UTF8(mark ? mark : l->token), "}", "}");
  int rc = msg_mongo_txn_update(t, t->s->names.leases, what, &filter, change, &matched, err);
  *done = rc == MSG_OK && matched > 0;
  bson_destroy(change);
  bson_destroy(&filter);
  bson_destroy(&now);
  return rc;
}

/* Those that are done go to the end, in their order. */
static int part(msg_mongo_piece *p, size_t *left) {
  msg_settle_item *items = msg_alloc(p->n * sizeof *items);
  size_t *from = msg_alloc(p->n * sizeof *from), n = 0;
  *left = 0;
  for (size_t i = 0; items && from && i < p->n; i++) {
    if (p->items[i].done) {
      items[n] = p->items[i];
      from[n++] = p->from[i];
    } else {
      p->items[*left] = p->items[i];
      p->from[(*left)++] = p->from[i];
    }
  }
  bool ok = items && from;
  for (size_t i = 0; i < n; i++) {
    p->items[*left + i] = items[i];
    p->from[*left + i] = from[i];
  }
  msg_free(items);
  msg_free(from);
  return ok ? MSG_OK : MSG_NOMEM;
}

static int ack_found(msg_mongo_txn *t, const char *what, msg_mongo_piece *piece,
                     const msg_mongo_lease *l, const char *mark, msg_err *err) {
  bool *picked = msg_zalloc((piece->n + 1) * sizeof *picked), done = false;
  int rc = picked ? MSG_OK : msg_err_nomem(err);
  if (rc == MSG_OK && pick(piece, l, picked))
    rc = ack_one(t, what, l, mark, &done, err);
  for (size_t i = 0; done && i < piece->n; i++)
    piece->items[i].done = piece->items[i].done || picked[i];
  msg_free(picked);
  return rc;
}

int msg_mongo_leases_ack(msg_mongo_txn *t, const char *what, const char *node,
                         msg_mongo_piece *piece, const char *mark, size_t *left, msg_err *err) {
  msg_mongo_lease found[MSG_MONGO_LEASES_KEPT];
  msg_mongo_ids given = {0};
  size_t n = 0;
  int rc = MSG_OK;
  *left = piece->n;
  for (size_t i = 0; rc == MSG_OK && i < piece->n; i++) {
    piece->items[i].done = false;
    rc = msg_mongo_ids_add(&given, &piece->items[i].id);
  }
  if (rc == MSG_OK)
    rc = msg_mongo_leases_find_whole(t->s, node, &given, found, &n);
  if (rc != MSG_OK)
    rc = msg_err_nomem(err);
  for (size_t i = 0; rc == MSG_OK && i < n; i++)
    rc = ack_found(t, what, piece, &found[i], mark, err);
  if (rc == MSG_OK && n && part(piece, left) != MSG_OK)
    rc = msg_err_nomem(err);
  for (size_t i = 0; i < n; i++)
    msg_mongo_lease_clear(&found[i]);
  msg_mongo_ids_clear(&given);
  return rc;
}
