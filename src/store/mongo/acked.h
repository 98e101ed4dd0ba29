/* acked.h - what readers have to know of leases (lease.h): which are done. Private to
 * store/mongo. */
#ifndef MSG_MONGO_ACKED_H
#define MSG_MONGO_ACKED_H

#include "store/mongo/mongo.h"

/* Which leases are done, as one look knows it. Of zeroes. */
typedef struct msg_mongo_acked {
  bool known;
  msg_texts tokens; /* in order */
} msg_mongo_acked;

/** Is the message settled by its lease? Reads them with the first that has one. */
int msg_mongo_is_acked(const msg_mongo_session *s, msg_mongo_use *u, msg_mongo_acked *acked,
                       const bson_t *doc, bool *out, msg_err *err);
void msg_mongo_acked_clear(msg_mongo_acked *acked);
/** To a pipeline whose rows have the token of a lease, or null, at `field`: without those that are
 *  done. */
void msg_mongo_append_unacked(bson_t *lookup, bson_t *match, const msg_mongo_session *s,
                              const char *field);

#endif
