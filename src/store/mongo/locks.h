/* locks.h - lock documents: how Java nodes hold an exclusive message. A reader sees a claim. */
#ifndef MSG_MONGO_LOCKS_H
#define MSG_MONGO_LOCKS_H

#include "store/mongo/place.h"

typedef struct msg_mongo_locks {
  struct msg_mongo_lock {
    msg_oid id;
    char *owner;
    int64_t until_ms;
  } * at; /* by id */
  size_t n, cap;
} msg_mongo_locks;

/** The locks of these places that hold at `now_ms`, at most 10,000; of one message where `id` is
 *  given. */
int msg_mongo_locks_read(msg_mongo_use *u, const msg_mongo_places *places, const msg_oid *id,
                         int64_t now_ms, msg_mongo_locks *out, msg_err *err);
void msg_mongo_locks_clear(msg_mongo_locks *l);
/** Show m as claimed if there is a lock on it and it is not ours already. On MSG_NOMEM m is
 *  cleared. */
int msg_mongo_locks_apply(const msg_mongo_locks *l, msg_message *m, msg_err *err);

#endif
