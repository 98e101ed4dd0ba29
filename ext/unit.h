/* unit.h - what a transaction of the host holds for a store that cannot join it: it goes out as one
 * unit a queue, in the outbox's xSync, the last step before SQLite's own commit; if that fails it
 * is taken back. */
#ifndef MSG_EXT_UNIT_H
#define MSG_EXT_UNIT_H

#include "ext/connection.h"

/** xSync: send what was not sent yet. Never MSG_BUSY, on which SQLite would keep the transaction
 *  open. */
int msg_unit_sync(msg_connection *c, msg_err *err);
/** Batches from index `from` on are about to be dropped: take back what of them was sent, or may
 *  have been. */
void msg_unit_undo(msg_connection *c, size_t from);

#endif
