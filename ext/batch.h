/* batch.h - sends and settles in a transaction of the host, on a store that cannot join it.
 *
 * They are kept among the outbox's batches: a ROLLBACK, or a ROLLBACK TO, drops them. They go
 * out as one unit a queue in the outbox's xSync, the last step before SQLite's own commit; if
 * that fails they are taken back. Ids are given at once; a settle looks whose the claim is at
 * once. */
#ifndef MSG_EXT_BATCH_H
#define MSG_EXT_BATCH_H

#include "ext/connection.h"
#include "ext/outbox.h"

/* One put or one settle. Owned by its msg_batch. */
typedef struct msg_written msg_written;

/** Does what this node writes now belong to a transaction that the store cannot join? */
bool msg_batch_wanted(msg_connection *c, const msg_opened *o);
/** For msg_call.writes: what is put and settled there is kept. Owned by o. NULL when memory is
 *  out. */
msg_session *msg_batch_session(msg_connection *c, msg_opened *o);

/** xSync: send what was not sent yet. Never MSG_BUSY, on which SQLite would keep the transaction
 *  open. */
int msg_batch_sync(msg_connection *c, msg_err *err);
/** Batches from index `from` on are dropped: take back what of them was sent, or may have been. */
void msg_batch_undo(msg_connection *c, size_t from);
/** Claims of the batch were rolled back, on a store that did not: give them back. */
void msg_batch_give_back(const msg_batch *b);
/** Does the node have something that waits for the commit? */
bool msg_batch_pending(const msg_connection *c, const msg_opened *o);

void msg_written_free(msg_written *w);

#endif
