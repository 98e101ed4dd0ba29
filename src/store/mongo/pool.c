/* pool.c - clients on loan, and how long their calls may take. */
#include "base/clock.h"
#include "store/mongo/bounded.h"
#include "store/mongo/mongo.h"

/* The server gives up before we do, so that its answer says what became of a write. */
static void set_write_timeout(mongoc_client_t *client, int64_t timeout_ms) {
  const mongoc_write_concern_t *old = mongoc_client_get_write_concern(client);
  timeout_ms -= timeout_ms / 5;
  if (mongoc_write_concern_get_wtimeout_int64(old) == timeout_ms)
    return;
  mongoc_write_concern_t *own = mongoc_write_concern_copy(old);
  mongoc_write_concern_set_wtimeout_int64(own, timeout_ms);
  mongoc_client_set_write_concern(client, own);
  mongoc_write_concern_destroy(own);
}

/* waitQueueTimeoutMS bounds the pop. */
static int take(msg_mongo_store *store, mongoc_client_pool_t *pool, const char *what,
                int64_t write_timeout_ms, msg_mongo_use *out, msg_err *err) {
  *out = (msg_mongo_use){0};
  if (store->generation != msg_fork_generation())
    return msg_err_set(err, MSG_FORKED, "%s: opened by this process's parent: open it again", what);
  mongoc_client_t *client = mongoc_client_pool_pop(pool);
  if (!client) {
    msg_err_set(err, MSG_UNAVAILABLE, "%s: no connection came free in %d ms (MongoDB at %s)", what,
                MSG_MONGO_POOL_MS, store->hosts);
    if (err)
      err->retry = true;
    return MSG_UNAVAILABLE;
  }
  msg_mongo_boundable_client(client);
  set_write_timeout(client, write_timeout_ms);
  *out = (msg_mongo_use){.store = store,
                         .pool = pool,
                         .client = client,
                         .until_ms = msg_clock_mono_ms() + write_timeout_ms};
  return MSG_OK;
}

int msg_mongo_take(msg_mongo_store *store, const char *what, msg_mongo_use *out, msg_err *err) {
  return take(store, store->operations, what, MSG_MONGO_WRITE_MS, out, err);
}

int msg_mongo_take_bounded(msg_mongo_session *s, const char *what, msg_mongo_use *out,
                           msg_err *err) {
  int rc = take(s->store, s->store->operations, what, s->write_timeout_ms, out, err);
  out->bounded = rc == MSG_OK;
  msg_mongo_bound(out);
  return rc;
}

int msg_mongo_take_cursor(msg_mongo_store *store, const char *what, msg_mongo_use *out,
                          msg_err *err) {
  return take(store, store->cursors, what, MSG_MONGO_WRITE_MS, out, err);
}

void msg_mongo_bound(const msg_mongo_use *u) {
  if (u->bounded)
    msg_mongo_bound_client(u->client, u->until_ms);
}

void msg_mongo_give(msg_mongo_use *u) {
  if (u->bounded)
    msg_mongo_unbound_client(u->client);
  if (u->client)
    mongoc_client_pool_push(u->pool, u->client);
  *u = (msg_mongo_use){0};
}

mongoc_collection_t *msg_mongo_collection(msg_mongo_use *u, const char *name) {
  return mongoc_client_get_collection(u->client, u->store->db, name);
}
