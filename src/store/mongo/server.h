/* server.h - what the servers behind a connection string are. Private to store/mongo. */
#ifndef MSG_MONGO_SERVER_H
#define MSG_MONGO_SERVER_H

#include "store/mongo/mongo.h"

/** Meet the first server: sets replicated, sharded, version and clock_offset_ms of the store.
 *  Errors: MSG_UNAVAILABLE, MSG_AUTH: the text names hosts and cause; MSG_UNSUPPORTED too old. */
int msg_mongo_server_meet(msg_mongo_store *store, const mongoc_uri_t *uri, msg_err *err);

/** Server minus this machine's clock, ms, and how sure that is: half of the round trip. */
bool msg_mongo_server_clock(mongoc_client_t *client, int64_t *offset_ms, int64_t *within_ms);

#endif
