/* batch.h - sends and settles in a transaction of the host, on a store that cannot join it.
 *
 * They are kept among the outbox's batches: a ROLLBACK, or a ROLLBACK TO, drops them. Ids are given
 * at once; a settle looks whose the claim is at once. unit.h sends them. */
#ifndef MSG_EXT_BATCH_H
#define MSG_EXT_BATCH_H

#include "ext/connection.h"

/** Does what this node writes now belong to a transaction that the store cannot join? */
bool msg_batch_wanted(msg_connection *c, const msg_opened *o);
/** For msg_call.writes: what is put and settled there is kept. Owned by o. NULL when memory is
 *  out. */
msg_session *msg_batch_session(msg_connection *c, msg_opened *o);

#endif
