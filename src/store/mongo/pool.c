/* pool.c - clients on loan. */
#include "store/mongo/mongo.h"

/* waitQueueTimeoutMS bounds the pop. */
static int take(msg_mongo_store *store, mongoc_client_pool_t *pool, const char *what,
                msg_mongo_use *out, msg_err *err) {
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
  *out = (msg_mongo_use){store, pool, client};
  return MSG_OK;
}

int msg_mongo_take(msg_mongo_store *store, const char *what, msg_mongo_use *out, msg_err *err) {
  return take(store, store->operations, what, out, err);
}

int msg_mongo_take_cursor(msg_mongo_store *store, const char *what, msg_mongo_use *out,
                          msg_err *err) {
  return take(store, store->cursors, what, out, err);
}

void msg_mongo_give(msg_mongo_use *u) {
  if (u->client)
    mongoc_client_pool_push(u->pool, u->client);
  *u = (msg_mongo_use){0};
}

mongoc_collection_t *msg_mongo_collection(msg_mongo_use *u, const char *name) {
  return mongoc_client_get_collection(u->client, u->store->db, name);
}
