/* change.h - the pipelines that move a message from one state to another. Each is to be destroyed;
 * each keeps fields it does not know. NULL: memory is out. */
#ifndef MSG_MONGO_CHANGE_H
#define MSG_MONGO_CHANGE_H

#include "store/mongo/query.h"

/** Claim it for `node`. `mortal`: some may have a delete_at, which the claim has to outlive.
 *  `leased`: by a lease (lease.h). */
bson_t *msg_mongo_change_claim(const char *node, const char *token, int64_t lease_ms, bool mortal,
                               bool leased);
/** Done: stays, for a retry to see, until the sweep after its lease's end. Touches no index, but
 *  for a group's head. */
bson_t *msg_mongo_change_ack(const char *mark);
/** Ready again; delayed by delay_ms > 0; dead when attempts have reached max_attempts. A delayed
 *  broadcast goes out. What a Java node has marked beside the owner stays that node's: done. */
bson_t *msg_mongo_change_free(const char *mark, int64_t delay_ms, int64_t max_attempts);
bson_t *msg_mongo_change_extend(const char *mark, int64_t lease_ms);
bson_t *msg_mongo_change_bury(const char *mark, const char *reason);
/** From the dead: ready, or, in a group, behind its head. */
bson_t *msg_mongo_change_redrive(void);

#endif
