/* marker.c - what the store's thread does behind the verbs: it writes marks after the hand-out, all
 * that have gathered by one call, and undoes what is regretted. */
#include "base/clock.h"
#include "store/mongo/marks.h"
#include "store/mongo/query.h"
#include "store/mongo/regret.h"

#define BATCH        1000  /* of a node */
#define PAUSE_MS     200   /* after a failure */
#define STOP_MS      3000  /* tries of the last ones */
#define IDLE_MS      60000 /* just a look */
#define FORGET_TRIES 3000  /* then they are handed out once more: ten minutes */

/* ---- the marks of one place ---- */

/* processed_by, which may be null, missing or an array, and behind it who is new. */
static void append_marked(bson_t *set, const msg_mongo_seen_by *by) {
  bson_t *before = BCON_NEW("$cond", "[", "{", "$isArray", BCON_UTF8("$processed_by"), "}",
                            BCON_UTF8("$processed_by"), "[", "]", "]");
  bson_t both, array, new, names;
  BSON_APPEND_DOCUMENT_BEGIN(set, "processed_by", &both);
  BSON_APPEND_ARRAY_BEGIN(&both, "$concatArrays", &array);
  BSON_APPEND_DOCUMENT(&array, "0", before);
  BSON_APPEND_DOCUMENT_BEGIN(&array, "1", &new);
  BSON_APPEND_ARRAY_BEGIN(&new, "$setDifference", &names);
  msg_mongo_append_texts(&names, "0", "$literal", by->nodes.at, by->nodes.n, false);
  BSON_APPEND_DOCUMENT(&names, "1", before);
  bson_append_array_end(&new, &names);
  bson_append_document_end(&array, &new);
  bson_append_array_end(&both, &array);
  bson_append_document_end(set, &both);
  bson_destroy(before);
}

/* A copy in a lane goes with its owner's mark, another once nobody else is to have it. */
static void append_deletion(bson_t *pipeline, bool in_lane) {
  bson_t now;
  msg_mongo_now_expr(&now, 0);
  bson_t *over = in_lane ? BCON_NEW("$literal", BCON_BOOL(true))
                         : BCON_NEW("$cond", "[", "{", "$isArray", BCON_UTF8("$recipients"), "}",
                                    "{", "$setIsSubset", "[", BCON_UTF8("$recipients"),
                                    BCON_UTF8("$processed_by"), "]", "}", BCON_BOOL(true), "]");
  BCON_APPEND(pipeline, "1", "{", "$set", "{", "delete_at", "{", "$cond", "[", BCON_DOCUMENT(over),
              "{", "$add", "[", BCON_DOCUMENT(&now), "{", "$ifNull", "[",
              BCON_UTF8("$delete_after_processing_time"), BCON_INT32(0), "]", "}", "]", "}",
              BCON_UTF8("$delete_at"), "]", "}", "}", "}");
  bson_destroy(over);
  bson_destroy(&now);
}

static bool add_part(mongoc_bulk_operation_t *bulk, const msg_mongo_seen_by *by, bool in_lane,
                     bson_error_t *error) {
  bson_t filter = BSON_INITIALIZER, set = BSON_INITIALIZER, names;
  msg_mongo_append_ids(&filter, "_id", "$in", by->ids.at, by->ids.n);
  BSON_APPEND_DOCUMENT_BEGIN(&filter, "processed_by", &names);
  msg_mongo_append_texts(&names, "$not", "$all", by->nodes.at, by->nodes.n, false);
  bson_append_document_end(&filter, &names);
  append_marked(&set, by);
  bson_t *change = BCON_NEW("0", "{", "$set", BCON_DOCUMENT(&set), "}");
  if (by->deletes)
    append_deletion(change, in_lane);
  bool ok = mongoc_bulk_operation_update_many_with_opts(bulk, &filter, change, NULL, error);
  bson_destroy(change);
  bson_destroy(&set);
  bson_destroy(&filter);
  return ok;
}

static int write_all(msg_mongo_use *u, const msg_mongo_seen_list *l, msg_err *err) {
  bson_error_t error = {0};
  bson_t reply = BSON_INITIALIZER;
  bson_t *opts = BCON_NEW("ordered", BCON_BOOL(false));
  mongoc_collection_t *c = msg_mongo_collection(u, l->place->at.messages);
  mongoc_bulk_operation_t *bulk = mongoc_collection_create_bulk_operation_with_opts(c, opts);
  bool ok = true;
  for (size_t i = 0; ok && i < l->n; i++)
    ok = add_part(bulk, &l->at[i], l->place->kind == MSG_MONGO_LANES, &error);
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

/* What fails here goes by its delete_at. */
static void remove_done(msg_mongo_use *u, const msg_mongo_seen_list *l) {
  bson_t filter = BSON_INITIALIZER, now;
  msg_mongo_ids ids = {0};
  for (size_t i = 0; i < l->n; i++)
    for (size_t k = 0; l->at[i].deletes && k < l->at[i].ids.n; k++)
      msg_mongo_ids_add(&ids, &l->at[i].ids.at[k]);
  msg_mongo_now_expr(&now, 0);
  msg_mongo_append_ids(&filter, "_id", "$in", ids.at, ids.n);
  BSON_APPEND_BOOL(&filter, "delete_after_processing", true);
  BCON_APPEND(&filter, "$expr", "{", "$and", "[", "{", "$gt", "[", BCON_UTF8("$delete_at"),
              BCON_NULL, "]", "}", "{", "$lte", "[", BCON_UTF8("$delete_at"), BCON_DOCUMENT(&now),
              "]", "}", "]", "}");
  if (ids.n)
    msg_mongo_delete(u, l->place->at.messages, "await", &filter, NULL, NULL);
  msg_mongo_ids_clear(&ids);
  bson_destroy(&now);
  bson_destroy(&filter);
}

/* Idempotent: one call, and one more where some go after processing. */
static int mark_seen(msg_mongo_use *u, const msg_mongo_seen_list *l, msg_err *err) {
  int rc = write_all(u, l, err);
  if (rc == MSG_OK)
    remove_done(u, l);
  return rc;
}

/* ---- the thread ---- */

/* Tries of marks that the server refused: what it cannot be asked for stays. */
struct tries {
  int failures, refusals; /* in a row */
};

static bool write_marks(msg_mongo_store *store, const msg_mongo_seen_list *l, struct tries *t) {
  msg_mongo_use u;
  int rc = msg_mongo_take(store, "mark", &u, NULL);
  if (rc == MSG_OK)
    rc = mark_seen(&u, l, NULL);
  msg_mongo_give(&u);
  t->failures = rc == MSG_OK ? 0 : t->failures + 1;
  t->refusals = rc == MSG_OK ? 0 : t->refusals + (rc != MSG_UNAVAILABLE);
  return rc == MSG_OK || t->refusals > FORGET_TRIES;
}

/* One batch. False: there was none. */
static bool mark_locked(msg_mongo_store *store, struct tries *t, bool *behind) {
  msg_mongo_seen_list l;
  store->marks_due_ms = store->marks_first_ms = 0;
  msg_mongo_marks_gather_locked(store, BATCH, &l, behind);
  if (!l.place)
    return false;
  msg_mutex_unlock(store->mtx);
  bool written = write_marks(store, &l, t);
  msg_mutex_lock(store->mtx);
  msg_mongo_marks_written_locked(&l, written);
  msg_cond_broadcast(store->marks_changed);
  msg_mongo_seen_list_clear(&l);
  return true;
}

void msg_mongo_marker_run(void *arg) {
  msg_mongo_store *store = arg;
  struct tries tries = {0};
  bool behind = false;
  int64_t end_ms = 0; /* of the tries, once it shall stop */
  msg_mutex_lock(store->mtx);
  for (;;) {
    if (store->marks_stop && !end_ms)
      end_ms = msg_clock_mono_ms() + STOP_MS;
    bool lingers = !behind && store->marks_due_ms > msg_clock_mono_ms() && !store->marks_stop;
    bool idle = lingers || !mark_locked(store, &tries, &behind);
    int64_t next_ms = lingers ? store->marks_due_ms : msg_clock_mono_ms() + IDLE_MS;
    idle = !msg_mongo_regret_try_locked(store, &next_ms) && idle;
    if (store->marks_stop && (idle || msg_clock_mono_ms() >= end_ms))
      break;
    if (idle || tries.failures)
      msg_cond_wait_until(store->marks_changed, store->mtx,
                          tries.failures ? msg_clock_mono_ms() + PAUSE_MS : next_ms);
  }
  msg_mutex_unlock(store->mtx);
}
