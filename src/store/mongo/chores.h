/* chores.h - the store's thread for what nobody waits for. It is there from the first such thing
 * on, and does what the store was given for it at its opening (marker.c), so that whoever leaves it
 * something need not know how that is done. Private to store/mongo. */
#ifndef MSG_MONGO_CHORES_H
#define MSG_MONGO_CHORES_H

#include "store/mongo/mongo.h"

/** See that it runs. Errors: no thread can be had. */
int msg_mongo_chores_start(msg_mongo_store *store, msg_err *err);
/** There is something to do now. False: no thread can be had. Holds: the store's mtx. */
bool msg_mongo_chores_rouse_locked(msg_mongo_store *store);
/** Do what is left, at most for some seconds, and end the thread. Before the pools go. */
void msg_mongo_chores_stop(msg_mongo_store *store);

#endif
