/* run.c - commands: every one from the primary, bounded, and tried again where that is safe. */
#include "base/clock.h"
#include "store/mongo/mongo.h"

#define PAUSE_MS 50

/* After a passing error: wait a moment, and say whether to try again. */
static bool again(const msg_mongo_use *u, const bson_error_t *error, const bson_t *reply) {
  if (!msg_mongo_is_passing(error, reply) || msg_clock_mono_ms() >= u->until_ms)
    return false;
  msg_clock_sleep_ms(PAUSE_MS);
  return true;
}

static int64_t field(const bson_t *reply, const char *name) {
  bson_iter_t it;
  return bson_iter_init_find(&it, reply, name) ? bson_iter_as_int64(&it) : 0;
}

/* Changes whatever matches `filter`; change NULL: removes it. */
static int write_many(msg_mongo_use *u, const char *collection, const char *what,
                      const bson_t *filter, const bson_t *change, msg_mongo_result *out,
                      msg_err *err) {
  mongoc_collection_t *c = msg_mongo_collection(u, collection);
  bson_error_t error;
  bson_t reply;
  bool ok;
  int rc = MSG_OK;
  for (;;) {
    msg_mongo_bound(u);
    ok = change ? mongoc_collection_update_many(c, filter, change, NULL, &reply, &error)
                : mongoc_collection_delete_many(c, filter, NULL, &reply, &error);
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
  return write_many(u, collection, what, filter, change, out, err);
}

int msg_mongo_delete(msg_mongo_use *u, const char *collection, const char *what,
                     const bson_t *filter, msg_mongo_result *out, msg_err *err) {
  return write_many(u, collection, what, filter, NULL, out, err);
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

int msg_mongo_each(msg_mongo_use *u, const char *collection, const char *what, const bson_t *filter,
                   const bson_t *opts, msg_mongo_row_fn row, void *arg, msg_err *err) {
  mongoc_cursor_t *cursor = msg_mongo_query(u, collection, filter, opts);
  const bson_t *doc;
  int rc;
  while ((rc = msg_mongo_next(u, cursor, what, &doc, err)) == MSG_OK)
    if ((rc = row(arg, doc, err)) != MSG_OK)
      break;
  mongoc_cursor_destroy(cursor);
  return rc == MSG_NOTFOUND ? MSG_OK : rc;
}
