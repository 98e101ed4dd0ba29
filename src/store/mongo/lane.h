/* lane.h - the life of a lane where it is a collection: made when its owner opens, dropped when it
 * closes or is gone, never with a message in it. Private to store/mongo. */
#ifndef MSG_MONGO_LANE_H
#define MSG_MONGO_LANE_H

#include "store/mongo/place.h"

/** The node's lane and its indexes; no I/O where layouts have none. */
int msg_mongo_lane_make(msg_mongo_session *s, msg_mongo_use *u, const char *node, msg_err *err);
/** The same for every node of this process on the queue. */
int msg_mongo_lanes_keep(msg_mongo_session *s, msg_mongo_use *u, msg_err *err);
/** Is it one that is about to be dropped? */
bool msg_mongo_lane_is_aside(const char *collection);
/** Drop a lane, unless something is in it or its owner lives: *dropped. Whoever sends meanwhile
 *  makes a new one. */
int msg_mongo_lane_drop_empty(msg_mongo_session *s, msg_mongo_use *u, const char *lane,
                              bool *dropped, msg_err *err);
/** Drop the queue's lanes that nobody needs: empty, and of nobody who lives or answered a status
 *  request lately. */
int msg_mongo_lanes_sweep(msg_mongo_session *s, msg_mongo_use *u, msg_err *err);
/** The node goes. ours_alone: nobody will ever be it again, for its id was made here: then the lane
 *  goes with what is in it; else if it is empty. */
int msg_mongo_lane_leave(msg_mongo_session *s, msg_mongo_use *u, const char *node, bool ours_alone,
                         msg_err *err);

#endif
