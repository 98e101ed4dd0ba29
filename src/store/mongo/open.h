/* open.h - the front door of the MongoDB store, without libmongoc's headers. */
#ifndef MSG_MONGO_OPEN_H
#define MSG_MONGO_OPEN_H

#include "store/store.h"

#define MSG_MONGO_KEY_MAX 512

/** Which cluster, database and user a connection string means, for the registry: equal strings give
 *  equal keys. No password in it, but a digest of all its options. out: MSG_MONGO_KEY_MAX bytes.
 *  Errors: MSG_INVALID not a connection string, or it names no database. */
int msg_mongo_identify(const char *uri, char *out, msg_err *err);

/** A store on that cluster and database. Time limits and concerns are ours, whatever the string
 *  says. Blocks: until a server answered, at most 5 s.
 *  Errors: MSG_INVALID as above; MSG_UNAVAILABLE, MSG_AUTH: text with hosts and cause;
 *          MSG_UNSUPPORTED a server older than 4.2. */
int msg_mongo_open(const char *uri, msg_store **out, msg_err *err);

#endif
