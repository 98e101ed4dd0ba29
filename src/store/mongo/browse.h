/* browse.h - a filter as the server sees it: what it has indexes for. Rows of it are to be compared
 * with the filter itself. Pure: no I/O. Private to store/mongo. */
#ifndef MSG_MONGO_BROWSE_H
#define MSG_MONGO_BROWSE_H

#include "model/filter.h"
#include "store/mongo/driver.h"

/** Append it. `locked`: Java nodes hold some messages, of which no field tells. */
void msg_mongo_browse_append(bson_t *out, const msg_filter *f, bool locked);
/** The filter's order, as far as the server can give it. To be destroyed. */
bson_t *msg_mongo_browse_sort(const msg_filter *f);

#endif
