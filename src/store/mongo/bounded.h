/* bounded.h - how long a client's calls may take as a whole: libmongoc bounds each answer alone,
 * and asks again where it may. Private to store/mongo. */
#ifndef MSG_MONGO_BOUNDED_H
#define MSG_MONGO_BOUNDED_H

#include <stdint.h>

#include "store/mongo/driver.h"

/** Before a client's first use, and each time that it is taken: its connections can be bounded. */
void msg_mongo_boundable_client(mongoc_client_t *client);
/** No answer is waited for after until_ms, monotonic: to be called again before each command. From
 *  1.27 on the driver's own second try has as much time again. Thread: that of the calls. */
void msg_mongo_bound_client(mongoc_client_t *client, int64_t until_ms);
/** Before it is given back. */
void msg_mongo_unbound_client(mongoc_client_t *client);

#endif
