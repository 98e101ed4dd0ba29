/* registry.h - Morphium's registry: nodes elsewhere are asked now and then what they listen to, and
 * lanes of those who are gone are dropped. Only where a node of this process has it enabled.
 * Private to store/mongo. */
#ifndef MSG_MONGO_REGISTRY_H
#define MSG_MONGO_REGISTRY_H

#include "store/mongo/mongo.h"

/** For the cursor thread: what it is time for. Best effort; mostly no I/O. */
void msg_mongo_registry_tend(msg_mongo_session *s);

#endif
