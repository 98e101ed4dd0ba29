/* run.c - commands: every one from the primary, bounded, and tried again where that is safe. */
#include "base/clock.h"
#include "store/mongo/mongo.h"

#define PAUSE_MS 50
#define GONE_MAX 20

/* The code where a collection went under a command: lanes come and go. Run again, it finds
 * nothing there, or another of that name. */
static bool is_gone(int64_t code) {
  enum { NAMESPACE_NOT_FOUND = 26, QUERY_PLAN_KILLED = 175 };
  return code == NAMESPACE_NOT_FOUND || code == QUERY_PLAN_KILLED;
}

/* After a passing error: wait a moment, and say whether to try again. */
static bool again(const msg_mongo_use *u, const bson_error_t *error, const bson_t *reply) {
  bool gone = error->domain == MONGOC_ERROR_SERVER && is_gone(error->code);
  if ((!gone && !msg_mongo_is_passing(error, reply)) || msg_clock_mono_ms() >= u->until_ms)
    return false;
  msg_clock_sleep_ms(PAUSE_MS);
  return true;
}

static int64_t field(const bson_t *reply, const char *name) {
  bson_iter_t it;
  return bson_iter_init_find(&it, reply, name) ? bson_iter_as_int64(&it) : 0;
}

/* Changes whatever matches `filter`; change NULL: removes it. `opts` may be NULL. */
static int write_many(msg_mongo_use *u, const char *collection, const char *what,
                      const bson_t *filter, const bson_t *change, const bson_t *opts,
                      msg_mongo_result *out, msg_err *err) {
  mongoc_collection_t *c = msg_mongo_collection(u, collection);
  bson_error_t error;
  bson_t reply;
  bool ok;
  int rc = MSG_OK;
  for (;;) {
    msg_mongo_bound(u);
    ok = change ? mongoc_collection_update_many(c, filter, change, opts, &reply, &error)
                : mongoc_collection_delete_many(c, filter, opts, &reply, &error);
    if (ok || !again(u, &error, &reply))
      break;
    bson_destroy(&reply);
  }
  if (!ok)
    rc = msg_mongo_fail(u->store, what, &error, &reply, err);
  else if (out) /* what a command does not count is 0 */
    *out = (msg_mongo_result){.matched = field(&reply, "matchedCount"),
                              .modified = field(&reply, "modifiedCount"),
                              .deleted = field(&reply, "deletedCount")};
  bson_destroy(&reply);
  mongoc_collection_destroy(c);
  return rc;
}

int msg_mongo_update(msg_mongo_use *u, const char *collection, const char *what,
                     const bson_t *filter, const bson_t *change, msg_mongo_result *out,
                     msg_err *err) {
  return write_many(u, collection, what, filter, change, NULL, out, err);
}

int msg_mongo_upsert_soon(msg_mongo_use *u, const char *collection, const char *what,
                          const bson_t *filter, const bson_t *change, msg_err *err) {
  bson_t *opts = BCON_NEW("upsert", BCON_BOOL(true), "writeConcern", "{", "w", BCON_INT32(1), "j",
                          BCON_BOOL(false), "}");
  int rc = write_many(u, collection, what, filter, change, opts, NULL, err);
  bson_destroy(opts);
  return rc;
}

int msg_mongo_delete(msg_mongo_use *u, const char *collection, const char *what,
                     const bson_t *filter, msg_mongo_result *out, msg_err *err) {
  return write_many(u, collection, what, filter, NULL, NULL, out, err);
}

void msg_mongo_append_durable(const msg_mongo_store *store, bson_t *opts) {
  if (atomic_load(&store->streams))
    BCON_APPEND(opts, "readConcern", "{", "level", "majority", "}");
}

/* One more: with a batch of just the limit the server keeps its cursor for a reply of nothing. */
void msg_mongo_append_limit(bson_t *opts, int64_t limit) {
  BSON_APPEND_INT64(opts, "limit", limit);
  BSON_APPEND_INT64(opts, "batchSize", limit < INT32_MAX ? limit + 1 : limit);
}

static mongoc_cursor_t *aggregate(msg_mongo_use *u, const char *collection, const bson_t *pipeline,
                                  const bson_t *opts) {
  mongoc_collection_t *c = msg_mongo_collection(u, collection);
  msg_mongo_bound(u);
  mongoc_cursor_t *cursor = mongoc_collection_aggregate(c, MONGOC_QUERY_NONE, pipeline, opts, NULL);
  mongoc_collection_destroy(c);
  return cursor;
}

mongoc_cursor_t *msg_mongo_query(msg_mongo_use *u, const char *collection, const bson_t *filter,
                                 const bson_t *opts) {
  mongoc_collection_t *c = msg_mongo_collection(u, collection);
  msg_mongo_bound(u);
  mongoc_cursor_t *cursor = mongoc_collection_find_with_opts(c, filter, opts, NULL);
  mongoc_collection_destroy(c);
  return cursor;
}

int msg_mongo_next(msg_mongo_use *u, mongoc_cursor_t *cursor, const char *what, const bson_t **doc,
                   msg_err *err) {
  bson_error_t error;
  const bson_t *reply = NULL;
  if (mongoc_cursor_next(cursor, doc))
    return MSG_OK;
  if (mongoc_cursor_error_document(cursor, &error, &reply))
    return msg_mongo_fail(u->store, what, &error, reply, err);
  return MSG_NOTFOUND;
}

/* Its first row. `query` is a filter, or the pipeline of an aggregation. */
static int first_of(msg_mongo_use *u, const char *collection, const char *what, bool aggregates,
                    const bson_t *query, const bson_t *opts, mongoc_cursor_t **cursor,
                    const bson_t **first, msg_err *err) {
  msg_err own = MSG_ERR_INIT;
  int rc = MSG_OK;
  *cursor = NULL;
  for (int i = 0; i < GONE_MAX; i++) {
    if (*cursor)
      mongoc_cursor_destroy(*cursor);
    *cursor = aggregates ? aggregate(u, collection, query, opts)
                         : msg_mongo_query(u, collection, query, opts);
    rc = msg_mongo_next(u, *cursor, what, first, &own);
    if (rc == MSG_OK || rc == MSG_NOTFOUND || own.domain != MSG_DOMAIN_SERVER ||
        !is_gone(own.native))
      break;
  }
  if (rc != MSG_OK && rc != MSG_NOTFOUND && err)
    *err = own;
  return rc;
}

static int each(msg_mongo_use *u, const char *collection, const char *what, bool aggregates,
                const bson_t *query, const bson_t *opts, msg_mongo_row_fn row, void *arg,
                msg_err *err) {
  mongoc_cursor_t *cursor;
  const bson_t *doc;
  int rc = first_of(u, collection, what, aggregates, query, opts, &cursor, &doc, err);
  while (rc == MSG_OK && (rc = row(arg, doc, err)) == MSG_OK)
    rc = msg_mongo_next(u, cursor, what, &doc, err);
  mongoc_cursor_destroy(cursor);
  return rc == MSG_NOTFOUND ? MSG_OK : rc;
}

int msg_mongo_each(msg_mongo_use *u, const char *collection, const char *what, const bson_t *filter,
                   const bson_t *opts, msg_mongo_row_fn row, void *arg, msg_err *err) {
  return each(u, collection, what, false, filter, opts, row, arg, err);
}

int msg_mongo_aggregate(msg_mongo_use *u, const char *collection, const char *what,
                        const bson_t *pipeline, const bson_t *opts, mongoc_cursor_t **cursor,
                        const bson_t **first, msg_err *err) {
  return first_of(u, collection, what, true, pipeline, opts, cursor, first, err);
}

int msg_mongo_aggregate_each(msg_mongo_use *u, const char *collection, const char *what,
                             const bson_t *pipeline, msg_mongo_row_fn row, void *arg,
                             msg_err *err) {
  bson_t *opts = BCON_NEW("allowDiskUse", BCON_BOOL(true), "batchSize", BCON_INT32(INT32_MAX));
  int rc = each(u, collection, what, true, pipeline, opts, row, arg, err);
  bson_destroy(opts);
  return rc;
}
