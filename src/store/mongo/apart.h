/* apart.h - what waits where no Java node looks goes to its place when its time has come.
 * Private to store/mongo. */
#ifndef MSG_MONGO_APART_H
#define MSG_MONGO_APART_H

#include "store/mongo/place.h"

/** Those of the ids whose delay is over go to their topics and lanes, each by a transaction.
 *  `at` is the session where they wait. */
int msg_mongo_apart_out(msg_mongo_session *at, msg_mongo_use *u, const msg_mongo_ids *ids,
                        msg_err *err);

#endif
