/* keys.h - de-duplication: keys remembered for a while, {_id: {t, k}, msg, until}. */
#ifndef MSG_MONGO_KEYS_H
#define MSG_MONGO_KEYS_H

#include "store/mongo/query.h"
#include "store/mongo/transaction.h"

/** Enter the keys of the batch within the transaction. An item whose key is remembered, or came
 *  earlier in the batch, is marked existed with the first message's id. */
int msg_mongo_keys_enter(msg_mongo_txn *t, msg_put *items, size_t n, msg_err *err);

#endif
