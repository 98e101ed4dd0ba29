/* rivals.h - whose turn it is: processes whose claims wait do not all try for a message that came.
 * For each message they are ranked by a hash that all compute alike; the first tries at once, the
 * others some milliseconds later each. Private to store/mongo. */
#ifndef MSG_MONGO_RIVALS_H
#define MSG_MONGO_RIVALS_H

#include "store/mongo/query.h"

#define MSG_MONGO_TURN_MS 15

/** The processes that claim from the queue, as their nodes have lately said, this one left out:
 *  msg_process_self() of each, no two alike. On failure *r stays as it was. */
int msg_mongo_rivals_load(msg_mongo_session *s, msg_mongo_use *u, msg_texts *r, msg_err *err);
/** How many of them go before `self` for this message. Pure. */
size_t msg_mongo_rivals_before(const msg_texts *r, const char *self, const msg_oid *id);

#endif
