/* closing.h - pools that are being destroyed: libmongoc waits up to half a second for the
 * threads by which it watches the servers, and nobody else has to. Private to store/mongo. */
#ifndef MSG_MONGO_CLOSING_H
#define MSG_MONGO_CLOSING_H

#include "store/mongo/driver.h"

/** Once a process, behind mongoc_init: at its exit, pools with TLS are waited for, so that the TLS
 *  library does not end before them. */
void msg_mongo_closing_start(void);
/** Destroy a pool that nobody uses, in a thread of its own. NULL allowed. */
void msg_mongo_closing(mongoc_client_pool_t *pool);

#endif
