/* seen.c - marking what a node was handed: its name goes into processed_by.
 *
 * Where it can be, that is done after the hand-out, by the marker thread: an answer shall not wait
 * for the write. Threads of one process settle among themselves who has a message (marks.h).
 * Another process with the same node is possible where its id was given: then each call leaves a
 * token in sq.by, the latest few of which stay, and where the server marked fewer than were asked
 * for the tokens tell whose they are. By its token a mark is taken back, too, when its outcome is
 * unknown. */
#include <string.h>

#include "base/mem.h"
#include "store/mongo/marks.h"
#include "store/mongo/query.h"
#include "store/mongo/where.h"

struct marking {
  msg_mongo_session *s;
  msg_mongo_use *u;
  const msg_actor *actor;
  const msg_list *list;
  bool *mine; /* by place in the list: taken by this thread */
  bool *left; /* and left to the marker */
  bool later;
  msg_mongo_ids ids;
  msg_mongo_ids lost;        /* of them: marked by another process */
  bool deletes, deletes_now; /* some of them go after processing */
  bool shared;               /* another process may be this node */
  bool soon;                 /* they have just come */
  bool idle;                 /* and nothing is to be written now */
  char token[MSG_OID_HEX + 1];
};

#define TOKENS_KEPT 16

/* ---- which are left ---- */

static int take(struct marking *w, msg_err *err) {
  bool nomem = false;
  for (size_t i = 0; i < w->list->n && !nomem; i++)
    w->mine[i] = msg_mongo_marks_take(w->s, w->actor->node, &w->list->at[i].id, &nomem);
  return nomem ? msg_err_nomem(err) : MSG_OK;
}

static void drop(struct marking *w) {
  for (size_t i = 0; i < w->list->n; i++)
    if (w->mine[i] && !w->left[i])
      msg_mongo_marks_drop(w->s, w->actor->node, &w->list->at[i].id);
}

static int note(void *arg, const bson_t *doc, msg_err *err) {
  struct marking *w = arg;
  msg_oid id;
  if (msg_mongo_get_oid(doc, "_id", &id) && msg_mongo_ids_add(&w->ids, &id) != MSG_OK)
    return msg_err_nomem(err);
  return MSG_OK;
}

static void append_unmarked(bson_t *filter, const char *node, const msg_mongo_ids *ids) {
  msg_mongo_append_ids(filter, "_id", "$in", ids->at, ids->n);
  BCON_APPEND(filter, "processed_by", "{", "$ne", BCON_UTF8(node), "}");
}

/* Those that are there, alive and without this node's mark. */
static int find_unmarked(struct marking *w, msg_err *err) {
  bson_t filter = BSON_INITIALIZER;
  bson_t *opts = BCON_NEW("projection", "{", "_id", BCON_INT32(1), "}");
  msg_mongo_ids all = {0};
  int rc = MSG_OK;
  for (size_t i = 0; rc == MSG_OK && i < w->list->n; i++)
    if (w->mine[i] && msg_mongo_ids_add(&all, &w->list->at[i].id) != MSG_OK)
      rc = msg_err_nomem(err);
  append_unmarked(&filter, w->actor->node, &all);
  msg_mongo_append_alive(&filter, msg_mongo_now_ms(w->s->store));
  if (rc == MSG_OK && all.n)
    rc = msg_mongo_each(w->u, w->s->names.messages, "await", &filter, opts, note, w, err);
  msg_mongo_ids_clear(&all);
  bson_destroy(opts);
  bson_destroy(&filter);
  return rc;
}

/* ---- the mark ---- */

/* processed_by may be null, missing or an array. */
static void append_marked(bson_t *doc, const char *key, const char *node) {
  BCON_APPEND(doc, key, "{", "$concatArrays", "[", "{", "$cond", "[", "{", "$isArray",
              BCON_UTF8("$processed_by"), "}", BCON_UTF8("$processed_by"), "[", "]", "]", "}", "[",
              "{", "$literal", BCON_UTF8(node), "}", "]", "]", "}");
}

/* A second stage: delete_at of those that go after processing, once nobody else is to have it. */
static void append_deletion(bson_t *pipeline, bool in_lane) {
  bson_t now;
  msg_mongo_now_expr(&now, 0);
  if (in_lane) { /* a copy of its own */
    BCON_APPEND(pipeline, "1", "{", "$set", "{", "delete_at", "{", "$cond", "[",
                BCON_UTF8("$delete_after_processing"), "{", "$add", "[", BCON_DOCUMENT(&now), "{",
                "$ifNull", "[", BCON_UTF8("$delete_after_processing_time"), BCON_INT32(0), "]", "}",
                "]", "}", BCON_UTF8("$delete_at"), "]", "}", "}", "}");
    bson_destroy(&now);
    return;
  }
  BCON_APPEND(pipeline, "1", "{", "$set", "{", "delete_at", "{", "$cond", "[", "{", "$and", "[",
              BCON_UTF8("$delete_after_processing"), "{", "$cond", "[", "{", "$isArray",
              BCON_UTF8("$recipients"), "}", "{", "$setIsSubset", "[", BCON_UTF8("$recipients"),
              BCON_UTF8("$processed_by"), "]", "}", BCON_BOOL(true), "]", "}", "]", "}", "{",
              "$add", "[", BCON_DOCUMENT(&now), "{", "$ifNull", "[",
              BCON_UTF8("$delete_after_processing_time"), BCON_INT32(0), "]", "}", "]", "}",
              BCON_UTF8("$delete_at"), "]", "}", "}", "}");
  bson_destroy(&now);
}

static void append_token(bson_t *set, const char *token) {
  BCON_APPEND(set, "sq.by", "{", "$slice", "[", "{", "$concatArrays", "[", "{", "$ifNull", "[",
              BCON_UTF8("$sq.by"), "[", "]", "]", "}", "[", BCON_UTF8(token), "]", "]", "}",
              BCON_INT32(-TOKENS_KEPT), "]", "}");
}

static int note_lost(void *arg, const bson_t *doc, msg_err *err) {
  struct marking *w = arg;
  msg_oid id;
  if (msg_mongo_get_oid(doc, "_id", &id) && msg_mongo_ids_add(&w->lost, &id) != MSG_OK)
    return msg_err_nomem(err);
  return MSG_OK;
}

/* Those without my token, but for those so busy that it may have been pushed out: twice is better
 * than never. */
static int find_lost(struct marking *w, msg_err *err) {
  bson_t filter = BSON_INITIALIZER;
  bson_t *opts = BCON_NEW("projection", "{", "_id", BCON_INT32(1), "}");
  char last[16];
  snprintf(last, sizeof last, "sq.by.%d", TOKENS_KEPT - 1);
  msg_mongo_append_ids(&filter, "_id", "$in", w->ids.at, w->ids.n);
  BCON_APPEND(&filter, "sq.by", "{", "$ne", BCON_UTF8(w->token), "}", last, "{", "$exists",
              BCON_BOOL(false), "}");
  int rc = msg_mongo_each(w->u, w->s->names.messages, "await", &filter, opts, note_lost, w, err);
  bson_destroy(opts);
  bson_destroy(&filter);
  return rc;
}

static bool add_node(mongoc_bulk_operation_t *bulk, const msg_mongo_seen_by *by,
                     bson_error_t *error) {
  bson_t filter = BSON_INITIALIZER, set = BSON_INITIALIZER;
  append_unmarked(&filter, by->node, &by->ids);
  append_marked(&set, "processed_by", by->node);
  bson_t *change = BCON_NEW("0", "{", "$set", BCON_DOCUMENT(&set), "}");
  bool ok = mongoc_bulk_operation_update_many_with_opts(bulk, &filter, change, NULL, error);
  bson_destroy(change);
  bson_destroy(&set);
  bson_destroy(&filter);
  return ok;
}

int msg_mongo_mark_seen(msg_mongo_use *u, const char *collection, const msg_mongo_seen_by *nodes,
                        size_t n, msg_err *err) {
  bson_error_t error = {0};
  bson_t reply = BSON_INITIALIZER;
  bson_t *opts = BCON_NEW("ordered", BCON_BOOL(false));
  mongoc_collection_t *c = msg_mongo_collection(u, collection);
  mongoc_bulk_operation_t *bulk = mongoc_collection_create_bulk_operation_with_opts(c, opts);
  bool ok = true;
  for (size_t i = 0; ok && i < n; i++)
    ok = add_node(bulk, &nodes[i], &error);
  if (ok) {
    bson_destroy(&reply);
    ok = mongoc_bulk_operation_execute(bulk, &reply, &error) != 0;
  }
  int rc = ok ? MSG_OK : msg_mongo_fail(u->store, "await", &error, &reply, err);
  bson_destroy(&reply);
  mongoc_bulk_operation_destroy(bulk);
  mongoc_collection_destroy(c);
  bson_destroy(opts);
  return rc;
}

int msg_mongo_unmark_seen(msg_mongo_use *u, const char *collection, const msg_mongo_unmark *x,
                          msg_err *err) {
  bson_t filter = BSON_INITIALIZER;
  msg_mongo_append_ids(&filter, "_id", "$in", x->ids.at, x->ids.n);
  BSON_APPEND_UTF8(&filter, "sq.by", x->token);
  bson_t *change =
      BCON_NEW("$pull", "{", "processed_by", BCON_UTF8(x->node), "sq.by", BCON_UTF8(x->token), "}");
  int rc = msg_mongo_update(u, collection, "await", &filter, change, NULL, err);
  bson_destroy(change);
  bson_destroy(&filter);
  return rc;
}

/* Those that have just come are there; alive they are by our clock. */
static int note_mine(struct marking *w, msg_err *err) {
  int64_t now_ms = msg_mongo_now_ms(w->s->store);
  int rc = MSG_OK;
  for (size_t i = 0; rc == MSG_OK && i < w->list->n; i++)
    if (w->mine[i] && w->list->at[i].delete_at_ms > now_ms)
      rc = msg_mongo_ids_add(&w->ids, &w->list->at[i].id);
  return rc == MSG_OK ? MSG_OK : msg_err_nomem(err);
}

/* What has just come is marked by the primary alone, which is enough to know whose it is; the
 * marker sees to it that it stays. */
static int mark(struct marking *w, msg_err *err) {
  bson_t filter = BSON_INITIALIZER, set = BSON_INITIALIZER;
  msg_mongo_result result = {0};
  append_unmarked(&filter, w->actor->node, &w->ids);
  append_marked(&set, "processed_by", w->actor->node);
  append_token(&set, w->token);
  bson_t *change = BCON_NEW("0", "{", "$set", BCON_DOCUMENT(&set), "}");
  if (w->deletes)
    append_deletion(change, w->s->place->kind == MSG_MONGO_LANES);
  int rc = w->soon ? msg_mongo_update_soon(w->u, w->s->names.messages, "await", &filter, change,
                                           &result, err)
                   : msg_mongo_update(w->u, w->s->names.messages, "await", &filter, change, &result,
                                      err);
  bson_destroy(change);
  bson_destroy(&set);
  bson_destroy(&filter);
  return rc == MSG_OK && w->shared && result.matched < (int64_t)w->ids.n ? find_lost(w, err) : rc;
}

/* What fails here goes by its delete_at: the message is the caller's. */
static void remove_now(struct marking *w) {
  bson_t filter = BSON_INITIALIZER, now;
  msg_mongo_now_expr(&now, 0);
  msg_mongo_append_ids(&filter, "_id", "$in", w->ids.at, w->ids.n);
  BSON_APPEND_BOOL(&filter, "delete_after_processing", true);
  BCON_APPEND(&filter, "$expr", "{", "$and", "[", "{", "$gt", "[", BCON_UTF8("$delete_at"),
              BCON_NULL, "]", "}", "{", "$lte", "[", BCON_UTF8("$delete_at"), BCON_DOCUMENT(&now),
              "]", "}", "]", "}");
  msg_mongo_delete(w->u, w->s->names.messages, "await", &filter, NULL, NULL);
  bson_destroy(&now);
  bson_destroy(&filter);
}

/* ---- the verb ---- */

/* The mark may be written later: nothing goes with it, and nobody else is this node. */
static bool can_wait(const msg_message *m, bool shared) {
  bool answer = !msg_oid_is_zero(&m->in_answer_to) && m->recipient_count == 1;
  return !m->delete_after_processing && (answer || !shared);
}

static void look_at(struct marking *w, const msg_message *m) {
  w->deletes = w->deletes || m->delete_after_processing;
  w->deletes_now =
      w->deletes_now || (m->delete_after_processing && m->delete_after_processing_ms == 0);
  w->later = w->later && can_wait(m, w->shared);
}

/* Those whose mark is left to the marker stay taken until it is written. */
static bool leave(struct marking *w) {
  if (!msg_mongo_marks_later(w->s, w->actor->node, &w->ids))
    return false;
  for (size_t i = 0; i < w->list->n; i++)
    w->left[i] = w->mine[i] && msg_mongo_ids_have(&w->ids, &w->list->at[i].id);
  return true;
}

/* They are handed out later. */
static void regret(struct marking *w) {
  for (size_t i = 0; i < w->list->n; i++)
    w->left[i] = w->mine[i] && msg_mongo_ids_have(&w->ids, &w->list->at[i].id);
  if (!msg_mongo_marks_regret(w->s, w->actor->node, &w->ids, w->token))
    memset(w->left, 0, w->list->n * sizeof *w->left);
}

static int run(struct marking *w, msg_err *err) {
  int rc = take(w, err);
  if (rc == MSG_OK)
    rc = w->soon ? note_mine(w, err) : find_unmarked(w, err);
  w->later = true;
  for (size_t i = 0; i < w->list->n; i++)
    look_at(w, &w->list->at[i]);
  if (rc == MSG_OK && w->ids.n && w->later && leave(w))
    return MSG_OK;
  if (rc == MSG_OK && w->idle && w->ids.n)
    return msg_err_set(err, MSG_UNSUPPORTED, "await: the mark cannot wait");
  if (rc == MSG_OK && w->ids.n && !w->u->client)
    rc = msg_mongo_take_bounded(w->s, "await", w->u, err);
  if (rc == MSG_OK && w->ids.n && (rc = mark(w, err)) != MSG_OK)
    regret(w);
  if (rc == MSG_OK && w->ids.n && w->soon)
    leave(w);
  if (rc == MSG_OK && w->ids.n && w->deletes_now)
    remove_now(w);
  return rc;
}

enum when { NOW, SOON, LATER };

static int seen_at(msg_mongo_session *s, const msg_actor *actor, const msg_list *list,
                   enum when when, bool *won, msg_err *err) {
  msg_mongo_use u = {0};
  struct marking w = {.s = s, .u = &u, .actor = actor, .list = list};
  w.soon = when != NOW;
  w.idle = when == LATER;
  msg_oid token = msg_oid_new();
  w.shared = actor->settings->sender_id != NULL;
  msg_oid_hex(&token, w.token);
  w.mine = msg_zalloc(2 * list->n * sizeof *w.mine);
  if (!w.mine)
    return msg_err_nomem(err);
  w.left = w.mine + list->n;
  int rc = w.soon ? MSG_OK : msg_mongo_take_bounded(s, "await", &u, err);
  if (rc == MSG_OK)
    rc = run(&w, err);
  msg_mongo_give(&u);
  drop(&w);
  for (size_t i = 0; rc == MSG_OK && i < list->n; i++)
    won[i] = w.mine[i] && msg_mongo_ids_have(&w.ids, &list->at[i].id) &&
             !msg_mongo_ids_have(&w.lost, &list->at[i].id);
  msg_mongo_ids_clear(&w.ids);
  msg_mongo_ids_clear(&w.lost);
  msg_free(w.mine);
  return rc;
}

/* Those of the list that are at a spot: borrowed copies. */
static int part_seen(msg_mongo_session *s, const msg_actor *actor, const msg_list *list,
                     const msg_mongo_spot *spot, enum when when, bool *won, msg_err *err) {
  msg_mongo_session at = msg_mongo_session_at(s, spot->place);
  msg_message *rows = msg_alloc(list->n * sizeof *rows);
  bool *theirs = msg_zalloc(list->n * sizeof *theirs);
  msg_list part = {rows, 0, list->n};
  int rc = rows && theirs ? MSG_OK : msg_err_nomem(err);
  for (size_t i = 0; rc == MSG_OK && i < list->n; i++)
    if (msg_mongo_ids_have(&spot->ids, &list->at[i].id))
      rows[part.n++] = list->at[i];
  if (rc == MSG_OK && part.n)
    rc = seen_at(&at, actor, &part, when, theirs, err);
  for (size_t i = 0, k = 0; rc == MSG_OK && i < list->n; i++)
    if (msg_mongo_ids_have(&spot->ids, &list->at[i].id))
      won[i] = theirs[k++];
  msg_free(theirs);
  msg_free(rows);
  return rc;
}

/* Where they are: asked only for those that this process has not met. */
static int find_spots(msg_mongo_session *s, const msg_list *list, msg_mongo_spots *spots,
                      msg_err *err) {
  msg_mongo_ids ids = {0};
  msg_mongo_use u = {0};
  bool known = true;
  int rc = MSG_OK;
  for (size_t i = 0; rc == MSG_OK && i < list->n; i++) {
    known = known && msg_mongo_last_met(s, &list->at[i].id);
    rc = msg_mongo_ids_add(&ids, &list->at[i].id) == MSG_OK ? MSG_OK : msg_err_nomem(err);
  }
  if (rc == MSG_OK && !known)
    rc = msg_mongo_take_bounded(s, "await", &u, err);
  if (rc == MSG_OK)
    rc = msg_mongo_recall(s, &u, ids.at, ids.n, spots, err);
  msg_mongo_give(&u);
  msg_mongo_ids_clear(&ids);
  return rc;
}

/* Copies in the lanes of others are theirs. */
static int seen(msg_session *base, const msg_actor *actor, const msg_list *list, enum when when,
                bool *won, msg_err *err) {
  msg_mongo_session *s = (msg_mongo_session *)base;
  msg_mongo_spots spots = {0};
  if (list->n == 0)
    return MSG_OK;
  if (!s->queue->layout->lanes)
    return seen_at(s, actor, list, when, won, err);
  if (when == LATER) /* one place's marks could wait, and another's not */
    return msg_err_set(err, MSG_UNSUPPORTED, "await: the marks are in several places");
  const msg_mongo_place *lane = msg_mongo_place_lane(s, actor->node);
  memset(won, 0, list->n * sizeof *won);
  int rc = find_spots(s, list, &spots, err);
  for (size_t i = 0; rc == MSG_OK && i < spots.n; i++)
    if (spots.at[i].place->kind != MSG_MONGO_LANES || spots.at[i].place == lane)
      rc = part_seen(s, actor, list, &spots.at[i], when, won, err);
  msg_mongo_spots_clear(&spots);
  return rc;
}

int msg_mongo_seen(msg_session *base, const msg_actor *actor, const msg_list *list, bool *won,
                   msg_err *err) {
  return seen(base, actor, list, NOW, won, err);
}

int msg_mongo_seen_soon(msg_session *base, const msg_actor *actor, const msg_list *list, bool *won,
                        msg_err *err) {
  return seen(base, actor, list, SOON, won, err);
}

int msg_mongo_seen_later(msg_session *base, const msg_actor *actor, const msg_list *list, bool *won,
                         msg_err *err) {
  return seen(base, actor, list, LATER, won, err);
}
