/* put.h - adding messages within a transaction: shared by put and apply. */
#ifndef MSG_MONGO_PUT_H
#define MSG_MONGO_PUT_H

#include "store/mongo/route.h"
#include "store/mongo/transaction.h"

typedef struct msg_mongo_putting {
  const msg_actor *actor;
  msg_put *items;
  size_t n;
  const msg_mongo_routes *routes; /* of the items */
  bool stamp;                     /* what was due at once is sent now */
} msg_mongo_putting;

/** A work: adds all of them. */
int msg_mongo_put_work(msg_mongo_txn *t, void *putting, msg_err *err);

/** After the transaction: a group whose head went meanwhile gets another. */
int msg_mongo_put_groups(msg_mongo_session *s, msg_mongo_use *u, const msg_mongo_routes *r,
                         msg_err *err);
/** `now_ms` in place of when the call was made; what was delayed keeps its time. Borrows from m. */
msg_message msg_mongo_stamped(const msg_message *m, int64_t now_ms);
/** One insert is enough for it: no key, no group. */
bool msg_mongo_is_plain(const msg_message *m);

#endif
