/* bounded.h - connections that know how long a call may take. libmongoc bounds each answer, and
 * asks again where it may; a call of ours is bounded as a whole. Private to store/mongo. */
#ifndef MSG_MONGO_BOUNDED_H
#define MSG_MONGO_BOUNDED_H

#include <stdint.h>

#include "store/mongo/driver.h"

/** The client's connections that are made from now on obey the bound of the thread that uses
 *  them. */
void msg_mongo_bounded_client(mongoc_client_t *client);
/** Until then, monotonic, this thread waits for answers; MSG_NEVER: as long as libmongoc lets it.
 *  What comes after it finds no answer at all. */
void msg_mongo_bound(int64_t until_ms);

#endif
