/* driver.h - libmongoc 1.23 to 2.x as the rest of this room sees it: the one place where versions
 * differ. */
#ifndef MSG_MONGO_DRIVER_H
#define MSG_MONGO_DRIVER_H

#include <mongoc/mongoc.h>

#if !MONGOC_CHECK_VERSION(1, 23, 0)
#error "libmongoc 1.23 or newer is needed"
#endif

#endif
