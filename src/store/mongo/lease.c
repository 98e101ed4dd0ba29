#include "store/mongo/lease.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "store/mongo/query.h"

#define LEASE_MIN 32   /* messages: with fewer it costs more than it saves */
#define LEASE_MAX 1000 /* whose ids are kept in the document and here */
#define KEPT      16   /* leases that a place remembers */
#define REST      15   /* claims without one after one was broken */

/* One of this process. */
struct msg_mongo_lease {
  char token[MSG_OID_HEX + 1]; /* "" none */
  char *node;
  msg_mongo_ids ids; /* in order */
};

/* ---- what this process remembers: guarded by the store's mtx ---- */

static void lease_clear(struct msg_mongo_lease *l) {
  msg_free(l->node);
  msg_mongo_ids_clear(&l->ids);
  *l = (struct msg_mongo_lease){0};
}

void msg_mongo_leases_forget(msg_mongo_place *p) {
  for (size_t i = 0; p->leases && i < KEPT; i++)
    lease_clear(&p->leases[i]);
  msg_free(p->leases);
  p->leases = NULL;
}

static int by_id(const void *a, const void *b) {
  return msg_oid_cmp(a, b);
}

static int ids_copy(const msg_mongo_ids *from, msg_mongo_ids *out) {
  int rc = MSG_OK;
  for (size_t i = 0; rc == MSG_OK && i < from->n; i++)
    rc = msg_mongo_ids_add(out, &from->at[i]);
  if (rc == MSG_OK && out->n > 1)
    qsort(out->at, out->n, sizeof *out->at, by_id);
  return rc;
}

static int lease_init(struct msg_mongo_lease *l, const char *token, const char *node,
                      const msg_mongo_ids *ids) {
  *l = (struct msg_mongo_lease){.node = msg_strdup(node)};
  memcpy(l->token, token, sizeof l->token);
  if (l->node && ids_copy(ids, &l->ids) == MSG_OK)
    return MSG_OK;
  lease_clear(l);
  return MSG_NOMEM;
}

/* Takes it over. One that is not remembered is only broken sooner. */
static void remember(msg_mongo_session *s, struct msg_mongo_lease *l) {
  msg_mongo_place *p = s->place;
  msg_mutex_lock(s->store->mtx);
  p->leased = true;
  if (!p->leases)
    p->leases = msg_zalloc(KEPT * sizeof *p->leases);
  if (p->leases) {
    struct msg_mongo_lease *at = &p->leases[p->lease_count++ % KEPT];
    lease_clear(at);
    *at = *l;
    *l = (struct msg_mongo_lease){0};
  }
  msg_mutex_unlock(s->store->mtx);
  lease_clear(l);
}

void msg_mongo_leases_note_broken(msg_mongo_session *s, const msg_texts *tokens) {
  msg_mongo_place *p = s->place;
  msg_mutex_lock(s->store->mtx);
  p->leased = true;
  p->unleased = REST;
  for (size_t i = 0; p->leases && i < KEPT; i++)
    if (msg_texts_have(tokens, p->leases[i].token))
      lease_clear(&p->leases[i]);
  msg_mutex_unlock(s->store->mtx);
}

/* ---- beginning ---- */

bool msg_mongo_lease_fits(msg_mongo_session *s, size_t n) {
  msg_mongo_place *p = s->place;
  bool one = p->kind == MSG_MONGO_MAIN || p->kind == MSG_MONGO_TOPIC;
  msg_mutex_lock(s->store->mtx);
  bool fits = one && n >= LEASE_MIN && n <= LEASE_MAX && !p->grouped;
  if (fits && p->unleased > 0) {
    p->unleased--;
    fits = false;
  }
  msg_mutex_unlock(s->store->mtx);
  return fits;
}

/* The mark that follows waits until most have both. */
static int put_lease(msg_mongo_session *s, msg_mongo_use *u, const struct msg_mongo_lease *l,
                     int64_t lease_ms, msg_err *err) {
  bson_t until, list = BSON_INITIALIZER;
  bson_iter_t ids;
  msg_mongo_now_expr(&until, lease_ms);
  msg_mongo_append_oids(&list, "ids", l->ids.at, l->ids.n);
  bson_iter_init_find(&ids, &list, "ids");
  bson_t *filter = BCON_NEW("_id", BCON_UTF8(l->token));
  bson_t *change =
      BCON_NEW("0", "{", "$set", "{", "in", "{", "$literal", BCON_UTF8(s->names.messages), "}",
               "ids", BCON_ITER(&ids), "until", BCON_DOCUMENT(&until), "}", "}");
  int rc = msg_mongo_upsert_soon(u, s->names.leases, "claim", filter, change, err);
  bson_destroy(change);
  bson_destroy(filter);
  bson_destroy(&list);
  bson_destroy(&until);
  return rc;
}

int msg_mongo_lease_begin(msg_mongo_session *s, msg_mongo_use *u, const char *node,
                          const char *token, const msg_mongo_ids *ids, int64_t lease_ms,
                          msg_err *err) {
  struct msg_mongo_lease l;
  if (lease_init(&l, token, node, ids) != MSG_OK)
    return msg_err_nomem(err);
  int rc = put_lease(s, u, &l, lease_ms, err);
  if (rc == MSG_OK)
    remember(s, &l);
  else
    lease_clear(&l);
  return rc;
}

/* ---- acks ---- */

static bool holds(const msg_mongo_ids *sorted, const msg_oid *id) {
  size_t i = msg_oid_place(sorted->at, sorted->n, sizeof *sorted->at, id);
  return i < sorted->n && msg_oid_cmp(&sorted->at[i], id) == 0;
}

static bool holds_all(const msg_mongo_ids *sorted, const msg_mongo_ids *ids) {
  bool all = ids->n <= sorted->n;
  for (size_t i = 0; all && i < ids->n; i++)
    all = holds(sorted, &ids->at[i]);
  return all;
}

/* Copies of the node's leases all of whose messages are given; KEPT at most. */
static int find_whole(msg_mongo_session *s, const char *node, const msg_mongo_ids *given,
                      struct msg_mongo_lease *out, size_t *n) {
  int rc = MSG_OK;
  *n = 0;
  msg_mutex_lock(s->store->mtx);
  for (size_t i = 0; rc == MSG_OK && s->place->leases && i < KEPT; i++) {
    const struct msg_mongo_lease *l = &s->place->leases[i];
    if (l->token[0] && strcmp(l->node, node) == 0 && holds_all(given, &l->ids)) {
      rc = lease_init(&out[*n], l->token, l->node, &l->ids);
      *n += rc == MSG_OK;
    }
  }
  msg_mutex_unlock(s->store->mtx);
  return rc;
}

/* Of an id given twice the first one. False: another token was given for one. */
static bool pick(const msg_mongo_piece *piece, const struct msg_mongo_lease *l, bool *picked) {
  msg_mongo_ids open = {0};
  bool ok = ids_copy(&l->ids, &open) == MSG_OK;
  for (size_t i = 0; ok && i < piece->n; i++) {
    const msg_settle_item *item = &piece->items[i];
    picked[i] = holds(&open, &item->id);
    if (picked[i])
      msg_mongo_ids_remove(&open, &item->id);
    ok = !picked[i] || !item->token || strcmp(item->token, l->token) == 0;
  }
  msg_mongo_ids_clear(&open);
  return ok;
}

/* {_id: token, $or: [{done: {$ne: true}, ids: all of them, its time is not over}, {mark: mark}]} */
static void append_open(bson_t *filter, const struct msg_mongo_lease *l, const char *mark) {
  bson_t now, open = BSON_INITIALIZER;
  msg_mongo_now_expr(&now, 0);
  msg_mongo_append_oids(&open, "ids", l->ids.at, l->ids.n);
  BCON_APPEND(&open, "done", "{", "$ne", BCON_BOOL(true), "}", "$expr", "{", "$gt", "[",
              BCON_UTF8("$until"), BCON_DOCUMENT(&now), "]", "}");
  BCON_APPEND(filter, "_id", BCON_UTF8(l->token), "$or", "[", BCON_DOCUMENT(&open), "{", "mark",
              BCON_UTF8(mark), "}", "]");
  bson_destroy(&open);
  bson_destroy(&now);
}

static int ack_one(msg_mongo_txn *t, const char *what, const struct msg_mongo_lease *l,
                   const char *mark, bool *done, msg_err *err) {
  bson_t filter = BSON_INITIALIZER, now;
  int64_t matched = 0;
  msg_mongo_now_expr(&now, 0);
  append_open(&filter, l, mark);
  bson_t *change = BCON_NEW("0", "{", "$set", "{", "done", BCON_BOOL(true), "at",
                            BCON_DOCUMENT(&now), "mark", BCON_UTF8(mark), "}", "}");
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
                     const struct msg_mongo_lease *l, const char *mark, msg_err *err) {
  bool *picked = msg_zalloc((piece->n + 1) * sizeof *picked), done = false;
  int rc = picked ? MSG_OK : msg_err_nomem(err);
  if (rc == MSG_OK && pick(piece, l, picked))
    rc = ack_one(t, what, l, mark ? mark : l->token, &done, err);
  for (size_t i = 0; done && i < piece->n; i++)
    piece->items[i].done = piece->items[i].done || picked[i];
  msg_free(picked);
  return rc;
}

int msg_mongo_leases_ack(msg_mongo_txn *t, const char *what, const char *node,
                         msg_mongo_piece *piece, const char *mark, size_t *left, msg_err *err) {
  struct msg_mongo_lease found[KEPT];
  msg_mongo_ids given = {0};
  size_t n = 0;
  int rc = MSG_OK;
  *left = piece->n;
  if (piece->n < LEASE_MIN)
    return MSG_OK;
  for (size_t i = 0; rc == MSG_OK && i < piece->n; i++) {
    piece->items[i].done = false;
    rc = msg_mongo_ids_add(&given, &piece->items[i].id);
  }
  if (rc == MSG_OK) {
    qsort(given.at, given.n, sizeof *given.at, by_id);
    rc = find_whole(t->s, node, &given, found, &n);
  }
  if (rc != MSG_OK)
    rc = msg_err_nomem(err);
  for (size_t i = 0; rc == MSG_OK && i < n; i++)
    rc = ack_found(t, what, piece, &found[i], mark, err);
  if (rc == MSG_OK && n && part(piece, left) != MSG_OK)
    rc = msg_err_nomem(err);
  for (size_t i = 0; i < n; i++)
    lease_clear(&found[i]);
  msg_mongo_ids_clear(&given);
  return rc;
}

/* ---- its document ---- */

int msg_mongo_lease_ids(const bson_t *doc, msg_mongo_ids *to, msg_err *err) {
  bson_iter_t field, it;
  if (!bson_iter_init_find(&field, doc, "ids") || !BSON_ITER_HOLDS_ARRAY(&field) ||
      !bson_iter_recurse(&field, &it))
    return MSG_OK;
  while (bson_iter_next(&it)) {
    msg_oid id;
    if (!BSON_ITER_HOLDS_OID(&it))
      continue;
    memcpy(id.b, bson_iter_oid(&it)->bytes, sizeof id.b);
    if (msg_mongo_ids_add(to, &id) != MSG_OK)
      return msg_err_nomem(err);
  }
  return MSG_OK;
}
