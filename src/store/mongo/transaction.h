/* transaction.h - a piece of work as one MongoDB transaction. */
#ifndef MSG_MONGO_TRANSACTION_H
#define MSG_MONGO_TRANSACTION_H

#include "store/mongo/mongo.h"

/* One run of a work. */
typedef struct msg_mongo_txn {
  msg_mongo_session *s;
  msg_mongo_use *u;
  mongoc_client_session_t *session; /* NULL on a standalone: nothing is atomic there */
  bson_t opts;                      /* {sessionId}, for every call of the work */
  bool again;                       /* out: the run failed because of another one: run anew */
} msg_mongo_txn;

/** Starts anew at each run. */
typedef int (*msg_mongo_work)(msg_mongo_txn *t, void *arg, msg_err *err);

/** Run the work, and again while it meets others, until u->until_ms. A commit whose result
 *  is unknown is repeated. */
int msg_mongo_transact(msg_mongo_session *s, msg_mongo_use *u, const char *what,
                       msg_mongo_work work, void *arg, msg_err *err);

/** The same work without a transaction, which must be idempotent: again after a passing error. */
int msg_mongo_alone(msg_mongo_session *s, msg_mongo_use *u, msg_mongo_work work, void *arg,
                    msg_err *err);

/** For works: map the error of a call, and note whether a new run may help. */
int msg_mongo_txn_fail(msg_mongo_txn *t, const char *what, const bson_error_t *error,
                       const bson_t *reply, msg_err *err);
/** For each document of a query within the transaction. */
int msg_mongo_txn_each(msg_mongo_txn *t, const char *collection, const char *what,
                       const bson_t *filter, const bson_t *opts, msg_mongo_row_fn row, void *arg,
                       msg_err *err);
/** update_many within the transaction. */
int msg_mongo_txn_update(msg_mongo_txn *t, const char *collection, const char *what,
                         const bson_t *filter, const bson_t *change, int64_t *matched,
                         msg_err *err);
/** delete_many within the transaction. */
int msg_mongo_txn_delete(msg_mongo_txn *t, const char *collection, const char *what,
                         const bson_t *filter, msg_err *err);

#endif
