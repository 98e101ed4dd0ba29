/* reach.h - the collections of a queue that has several, for a change stream of their database:
 * neither a topic that appears nor a lane that goes ends it. Private to store/mongo. */
#ifndef MSG_MONGO_REACH_H
#define MSG_MONGO_REACH_H

#include "store/mongo/place.h"

/** A $match on the events' collections; what ends a stream has none, and matches. */
bson_t *msg_mongo_reach(const msg_mongo_session *s);

#endif
