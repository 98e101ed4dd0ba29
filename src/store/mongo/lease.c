#include "store/mongo/lease.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "store/mongo/query.h"

#define LEASE_MIN  32   /* messages: with fewer it costs more than it saves */
#define LEASE_MAX  1000 /* whose ids are kept in the document and here */
#define KEPT       16   /* leases that a place remembers */
#define REST       15   /* claims without one after one was broken */
#define TIDY_BATCH 128

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

/* They were broken: others would be, too. */
static void note_broken(msg_mongo_session *s, const msg_texts *tokens) {
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

struct beginning {
  const struct msg_mongo_lease *lease;
  int64_t lease_ms;
};

/* The mark that follows waits until most have both. */
static int write_lease(msg_mongo_txn *t, void *arg, msg_err *err) {
  const struct beginning *w = arg;
  bson_t until, ids = BSON_INITIALIZER, reply;
  bson_error_t error;
  bson_iter_t it;
  int rc = MSG_OK;
  msg_mongo_now_expr(&until, w->lease_ms);
  msg_mongo_append_oids(&ids, "ids", w->lease->ids.at, w->lease->ids.n);
  bson_iter_init_find(&it, &ids, "ids");
  bson_t *filter = BCON_NEW("_id", BCON_UTF8(w->lease->token));
  bson_t *change =
      BCON_NEW("0", "{", "$set", "{", "in", "{", "$literal", BCON_UTF8(t->s->names.messages), "}",
               "ids", BCON_ITER(&it), "until", BCON_DOCUMENT(&until), "}", "}");
  bson_t *opts = BCON_NEW("upsert", BCON_BOOL(true), "writeConcern", "{", "w", BCON_INT32(1), "j",
                          BCON_BOOL(false), "}");
  mongoc_collection_t *c = msg_mongo_collection(t->u, t->s->names.leases);
  msg_mongo_bound(t->u);
  if (!mongoc_collection_update_one(c, filter, change, opts, &reply, &error))
    rc = msg_mongo_txn_fail(t, "claim", &error, &reply, err);
  bson_destroy(&reply);
  mongoc_collection_destroy(c);
  bson_destroy(opts);
  bson_destroy(change);
  bson_destroy(filter);
  bson_destroy(&ids);
  bson_destroy(&until);
  return rc;
}

int msg_mongo_lease_begin(msg_mongo_session *s, msg_mongo_use *u, const char *node,
                          const char *token, const msg_mongo_ids *ids, int64_t lease_ms,
                          msg_err *err) {
  struct msg_mongo_lease l;
  struct beginning w = {&l, lease_ms};
  if (lease_init(&l, token, node, ids) != MSG_OK)
    return msg_err_nomem(err);
  int rc = msg_mongo_alone(s, u, write_lease, &w, err);
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

/* ---- breaking ---- */

struct breaking {
  msg_texts tokens;        /* of the messages' leases */
  msg_mongo_ids ids;       /* all messages of theirs */
  msg_texts *done, *recent; /* of those that are done */
  int64_t now_ms;
};

static int note_token(void *arg, const bson_t *doc, msg_err *err) {
  struct breaking *w = arg;
  const char *token = msg_mongo_get_text(doc, "sq.token");
  return token && msg_texts_note(&w->tokens, token) != MSG_OK ? msg_err_nomem(err) : MSG_OK;
}

static int note_ids(void *arg, const bson_t *doc, msg_err *err) {
  msg_mongo_ids *to = arg;
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

static int note_lease(void *arg, const bson_t *doc, msg_err *err) {
  struct breaking *w = arg;
  return note_ids(&w->ids, doc, err);
}

static int note_done(void *arg, const bson_t *doc, msg_err *err) {
  struct breaking *w = arg;
  const char *token = msg_mongo_get_text(doc, "_id");
  bool recent = msg_mongo_get_int(doc, "at", 0) + MSG_MONGO_KEPT_MS > w->now_ms;
  int rc = token ? msg_texts_add(w->done, token) : MSG_OK;
  if (rc == MSG_OK && token && recent && w->recent)
    rc = msg_texts_add(w->recent, token);
  return rc == MSG_OK ? MSG_OK : msg_err_nomem(err);
}

static int read_tokens(msg_mongo_txn *t, const char *what, const msg_oid *ids, size_t n,
                       struct breaking *w, msg_err *err) {
  bson_t filter = BSON_INITIALIZER;
  bson_t *opts = BCON_NEW("projection", "{", "sq.token", BCON_INT32(1), "}");
  msg_mongo_append_ids(&filter, "_id", "$in", ids, n);
  BCON_APPEND(&filter, "sq.state", BCON_UTF8("claimed"), "sq.lease", BCON_BOOL(true));
  int rc = msg_mongo_txn_each(t, t->s->names.messages, what, &filter, opts, note_token, w, err);
  bson_destroy(opts);
  bson_destroy(&filter);
  return rc;
}

static int read_leases(msg_mongo_txn *t, const char *what, bool done, msg_mongo_row_fn row,
                       struct breaking *w, msg_err *err) {
  bson_t filter = BSON_INITIALIZER;
  msg_mongo_append_texts(&filter, "_id", "$in", w->tokens.at, w->tokens.n, false);
  if (done)
    BSON_APPEND_BOOL(&filter, "done", true);
  int rc = msg_mongo_txn_each(t, t->s->names.leases, what, &filter, NULL, row, w, err);
  bson_destroy(&filter);
  return rc;
}

static int remove_open(msg_mongo_txn *t, const char *what, struct breaking *w, msg_err *err) {
  bson_t filter = BSON_INITIALIZER;
  msg_mongo_append_texts(&filter, "_id", "$in", w->tokens.at, w->tokens.n, false);
  BCON_APPEND(&filter, "done", "{", "$ne", BCON_BOOL(true), "}");
  int rc = msg_mongo_txn_delete(t, t->s->names.leases, what, &filter, err);
  bson_destroy(&filter);
  return rc;
}

static int unflag(msg_mongo_txn *t, const char *what, const struct breaking *w,
                  const msg_texts *open, msg_err *err) {
  bson_t filter = BSON_INITIALIZER;
  bson_t *change = BCON_NEW("$unset", "{", "sq.lease", BCON_INT32(1), "}");
  msg_mongo_append_ids(&filter, "_id", "$in", w->ids.at, w->ids.n);
  msg_mongo_append_texts(&filter, "sq.token", "$in", open->at, open->n, false);
  int rc = msg_mongo_txn_update(t, t->s->names.messages, what, &filter, change, NULL, err);
  bson_destroy(change);
  bson_destroy(&filter);
  return rc;
}

/* Once its document is gone nobody can ack it whole any more. */
static int break_them(msg_mongo_txn *t, const char *what, struct breaking *w, bool *broken,
                      msg_err *err) {
  msg_texts open = {0};
  int rc = read_leases(t, what, false, note_lease, w, err);
  if (rc == MSG_OK)
    rc = remove_open(t, what, w, err);
  if (rc == MSG_OK)
    rc = read_leases(t, what, true, note_done, w, err);
  for (size_t i = 0; rc == MSG_OK && i < w->tokens.n; i++)
    if (!msg_texts_have(w->done, w->tokens.at[i]) &&
        msg_texts_add(&open, w->tokens.at[i]) != MSG_OK)
      rc = msg_err_nomem(err);
  *broken = open.n > 0;
  if (rc == MSG_OK && open.n)
    rc = unflag(t, what, w, &open, err);
  if (rc == MSG_OK && open.n)
    note_broken(t->s, &open);
  msg_texts_clear(&open);
  return rc;
}

int msg_mongo_leases_break(msg_mongo_txn *t, const char *what, const msg_oid *ids, size_t n,
                           bool *broken, msg_texts *done, msg_texts *recent, msg_err *err) {
  msg_texts own = {0};
  struct breaking w = {.done = done ? done : &own,
                       .recent = recent,
                       .now_ms = msg_mongo_now_ms(t->s->store)};
  *broken = false;
  int rc = read_tokens(t, what, ids, n, &w, err);
  for (size_t i = 0; rc == MSG_OK && w.tokens.n && i < n; i++)
    if (msg_mongo_ids_add(&w.ids, &ids[i]) != MSG_OK)
      rc = msg_err_nomem(err);
  if (rc == MSG_OK && w.tokens.n)
    rc = break_them(t, what, &w, broken, err);
  msg_texts_clear(&own);
  msg_texts_clear(&w.tokens);
  msg_mongo_ids_clear(&w.ids);
  return rc;
}

int msg_mongo_lease_undo(msg_mongo_session *s, msg_mongo_use *u, const char *token,
                         const char *mark, bool *was, msg_err *err) {
  bson_t filter = BSON_INITIALIZER;
  msg_mongo_result result = {0};
  BSON_APPEND_UTF8(&filter, "_id", token);
  if (mark)
    BCON_APPEND(&filter, "in", BCON_UTF8(s->names.messages), "mark", BCON_UTF8(mark));
  int rc = msg_mongo_delete(u, s->queue->names.leases, "undo", &filter, &result, err);
  if (was)
    *was = result.deleted > 0;
  bson_destroy(&filter);
  return rc;
}

/* ---- tidying ---- */

struct tidying {
  msg_texts over, borne; /* tokens: past their time; and those that a message bears */
  msg_mongo_ids ids;
};

static void tidying_clear(struct tidying *w) {
  msg_texts_clear(&w->over);
  msg_texts_clear(&w->borne);
  msg_mongo_ids_clear(&w->ids);
}

static int note_over(void *arg, const bson_t *doc, msg_err *err) {
  struct tidying *w = arg;
  const char *token = msg_mongo_get_text(doc, "_id");
  if (token && msg_texts_add(&w->over, token) != MSG_OK)
    return msg_err_nomem(err);
  return note_ids(&w->ids, doc, err);
}

static int note_borne(void *arg, const bson_t *doc, msg_err *err) {
  struct tidying *w = arg;
  const char *token = msg_mongo_get_text(doc, "sq.token");
  return token && msg_texts_note(&w->borne, token) != MSG_OK ? msg_err_nomem(err) : MSG_OK;
}

static int read_over(msg_mongo_session *s, msg_mongo_use *u, struct tidying *w, msg_err *err) {
  int64_t then_ms = msg_mongo_now_ms(s->store) - MSG_MONGO_KEPT_MS;
  bson_t *filter = BCON_NEW("in", BCON_UTF8(s->names.messages), "until", "{", "$lte",
                            BCON_DATE_TIME(then_ms), "}");
  bson_t *opts = BCON_NEW("limit", BCON_INT64(TIDY_BATCH), "projection", "{", "ids", BCON_INT32(1),
                          "}");
  int rc = msg_mongo_each(u, s->names.leases, "sweep", filter, opts, note_over, w, err);
  bson_destroy(opts);
  bson_destroy(filter);
  return rc;
}

static int read_borne(msg_mongo_session *s, msg_mongo_use *u, struct tidying *w, msg_err *err) {
  bson_t filter = BSON_INITIALIZER;
  bson_t *opts = BCON_NEW("projection", "{", "sq.token", BCON_INT32(1), "}");
  msg_mongo_append_ids(&filter, "_id", "$in", w->ids.at, w->ids.n);
  BSON_APPEND_BOOL(&filter, "sq.lease", true);
  int rc = msg_mongo_each(u, s->names.messages, "sweep", &filter, opts, note_borne, w, err);
  bson_destroy(opts);
  bson_destroy(&filter);
  return rc;
}

static int remove_unborne(msg_mongo_session *s, msg_mongo_use *u, struct tidying *w, size_t *n,
                          msg_err *err) {
  msg_texts gone = {0};
  bson_t filter = BSON_INITIALIZER;
  int rc = MSG_OK;
  for (size_t i = 0; rc == MSG_OK && i < w->over.n; i++)
    if (!msg_texts_have(&w->borne, w->over.at[i]) && msg_texts_add(&gone, w->over.at[i]) != MSG_OK)
      rc = msg_err_nomem(err);
  msg_mongo_append_texts(&filter, "_id", "$in", gone.at, gone.n, false);
  if (rc == MSG_OK && gone.n)
    rc = msg_mongo_delete(u, s->names.leases, "sweep", &filter, NULL, err);
  *n = gone.n;
  bson_destroy(&filter);
  msg_texts_clear(&gone);
  return rc;
}

int msg_mongo_leases_tidy(msg_mongo_session *s, msg_mongo_use *u, msg_err *err) {
  size_t gone;
  int rc;
  do {
    struct tidying w = {0};
    gone = 0;
    rc = read_over(s, u, &w, err);
    if (rc == MSG_OK && w.over.n)
      rc = read_borne(s, u, &w, err);
    if (rc == MSG_OK && w.over.n)
      rc = remove_unborne(s, u, &w, &gone, err);
    tidying_clear(&w);
  } while (rc == MSG_OK && gone == TIDY_BATCH);
  return rc;
}

/* ---- readers ---- */

static int note_acked(void *arg, const bson_t *doc, msg_err *err) {
  const char *token = msg_mongo_get_text(doc, "_id");
  return token && msg_texts_add(arg, token) != MSG_OK ? msg_err_nomem(err) : MSG_OK;
}

static int acked_read(const msg_mongo_session *s, msg_mongo_use *u, msg_mongo_acked *acked,
                      msg_err *err) {
  bson_t *filter = BCON_NEW("done", BCON_BOOL(true));
  bson_t *opts = BCON_NEW("projection", "{", "_id", BCON_INT32(1), "}", "sort", "{", "_id",
                          BCON_INT32(1), "}");
  int rc = msg_mongo_each(u, s->queue->names.leases, "look at leases", filter, opts, note_acked,
                          &acked->tokens, err);
  acked->known = rc == MSG_OK;
  bson_destroy(opts);
  bson_destroy(filter);
  return rc;
}

static int by_text(const void *key, const void *text) {
  return strcmp(key, *(char *const *)text);
}

/* Who empties processed_by by hand wants it to be handed out again. */
static bool is_leased(const bson_t *doc) {
  const char *state = msg_mongo_get_text(doc, "sq.state");
  bson_iter_t field, it;
  return state && strcmp(state, "claimed") == 0 && msg_mongo_get_int(doc, "sq.lease", 0) != 0 &&
         bson_iter_init_find(&field, doc, "processed_by") && BSON_ITER_HOLDS_ARRAY(&field) &&
         bson_iter_recurse(&field, &it) && bson_iter_next(&it);
}

int msg_mongo_is_acked(const msg_mongo_session *s, msg_mongo_use *u, msg_mongo_acked *acked,
                       const bson_t *doc, bool *out, msg_err *err) {
  *out = false;
  if (!is_leased(doc))
    return MSG_OK;
  int rc = acked->known ? MSG_OK : acked_read(s, u, acked, err);
  const char *token = msg_mongo_get_text(doc, "sq.token");
  *out = rc == MSG_OK && token && acked->tokens.n &&
         bsearch(token, acked->tokens.at, acked->tokens.n, sizeof *acked->tokens.at, by_text);
  return rc;
}

void msg_mongo_acked_clear(msg_mongo_acked *acked) {
  msg_texts_clear(&acked->tokens);
  acked->known = false;
}

void msg_mongo_append_unacked(bson_t *lookup, bson_t *match, const msg_mongo_session *s,
                              const char *field) {
  BCON_APPEND(lookup, "from", BCON_UTF8(s->queue->names.leases), "localField", BCON_UTF8(field),
              "foreignField", BCON_UTF8("_id"), "as", BCON_UTF8("lease"));
  BCON_APPEND(match, "lease.done", "{", "$ne", BCON_BOOL(true), "}");
}
