/* rivals.h - whose turn it is: processes whose claims wait do not all try for a message that came.
 * For each message they are ranked by a hash that all compute alike; the first tries at once, the
 * others some milliseconds later each. Private to store/mongo. */
#ifndef MSG_MONGO_RIVALS_H
#define MSG_MONGO_RIVALS_H

#include "store/mongo/mongo.h"

#define MSG_MONGO_TURN_MS 15

/* The processes that claim from the queue, this one left out. */
typedef struct msg_mongo_rivals {
  char **process; /* msg_process_self() of each, no two alike */
  size_t n, cap;
} msg_mongo_rivals;

/** Those whose nodes have lately said that they claim. On failure *r stays as it was. */
int msg_mongo_rivals_load(msg_mongo_session *s, msg_mongo_use *u, msg_mongo_rivals *r,
                          msg_err *err);
/** Copied; one that is there stays. Errors: MSG_NOMEM. */
int msg_mongo_rivals_add(msg_mongo_rivals *r, const char *process);
void msg_mongo_rivals_clear(msg_mongo_rivals *r);

/** How many of them go before `self` for this message. Pure. */
size_t msg_mongo_rivals_before(const msg_mongo_rivals *r, const char *self, const msg_oid *id);

#endif
