/* reach.h - what the change stream of a queue of several collections has to tell: one stream of the
 * database, so that neither a topic that appears nor a lane that goes ends it. Private to
 * store/mongo. */
#ifndef MSG_MONGO_REACH_H
#define MSG_MONGO_REACH_H

#include "store/mongo/place.h"

/** The $match on the events' collections: topics, what waits, the lanes of this process's nodes.
 *  NULL: memory is out. *lanes_out: which lanes these are, as a text to compare; the caller's. */
bson_t *msg_mongo_reach(const msg_mongo_session *s, char **lanes_out);
/** Is it the lane of a node of this process? */
bool msg_mongo_owns_lane(const msg_mongo_session *s, const char *collection);
/** The lanes now, as above; NULL: memory is out. */
char *msg_mongo_reach_lanes(const msg_mongo_session *s);

#endif
