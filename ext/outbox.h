/* outbox.h - what the host's open transaction holds beside rows: seen by a virtual table without
 * rows, msg_outbox, whose xBegin, xSavepoint, xRollbackTo, xRollback and xCommit follow it.
 *
 * A batch enters by a nested INSERT of ours into temp.msg_outbox (the eponymous one while there is
 * no temp table). A savepoint that was open before the first batch has no mark: a ROLLBACK TO it
 * cuts to nothing. */
#ifndef MSG_EXT_OUTBOX_H
#define MSG_EXT_OUTBOX_H

#include "ext/connection.h"
#include "ext/written.h"

/* One marker's content: undone as a whole. */
typedef struct msg_batch {
  /** It is rolled back; the newest comes first. NULL: nothing to do. */
  void (*undone)(const struct msg_batch *);
  msg_store *store;   /* a reference */
  msg_opened *opened; /* NULL once closed */
  msg_oid *ids;       /* owned */
  size_t n;
  msg_written *written; /* a send or settle that goes out at the commit; owned; NULL: none */
  bool tried;           /* its sending was begun */
  bool taken;           /* of unit.h, within a call */
} msg_batch;

typedef struct msg_outbox_mark {
  int level;
  size_t batches; /* entered before the savepoint */
} msg_outbox_mark;

typedef struct msg_outbox {
  msg_batch *at;
  size_t n, cap;
  msg_outbox_mark *marks;
  size_t mark_count, mark_cap;
  bool joined; /* a table of ours takes part in the transaction: savepoints are told */
  bool failed; /* a sync failed and may have reached the store all the same */
  bool open;   /* a marker of ours is being inserted: the last batch is not in yet */
} msg_outbox;

/** Enter a batch (ids are copied) by its marker. On failure it is not in, or was undone.
 *  Errors: MSG_NOMEM; MSG_INTERRUPTED before anything was written; what the marker meets. */
int msg_outbox_enter(msg_connection *c, msg_opened *o, void (*undone)(const msg_batch *),
                     const msg_oid *ids, size_t n, msg_err *err);
/** Enter what goes out at the commit, by a marker only if none was in the transaction. Owns: w, in
 *  any case. */
int msg_outbox_keep(msg_connection *c, msg_opened *o, msg_written *w, msg_err *err);
/** Does the node have something that waits for the commit? */
bool msg_outbox_holds(const msg_outbox *box, const msg_opened *o);
/** xUpdate of the marker: the batch is in. False: no marker of ours. */
bool msg_outbox_let_in(msg_outbox *box);
/** xSavepoint, xRelease, xRollbackTo. Errors: MSG_NOMEM. */
int msg_outbox_savepoint(msg_outbox *box, int level);
void msg_outbox_release(msg_outbox *box, int level);
void msg_outbox_rollback_to(msg_outbox *box, int level);
/** How many batches a rollback to there leaves. */
size_t msg_outbox_left(const msg_outbox *box, int level);
/** xCommit, or (undone) xRollback. */
void msg_outbox_finish(msg_outbox *box, bool undone);
/** The node is closed: its batches stay, by their store. */
void msg_outbox_forget(msg_connection *c, const msg_opened *o);
void msg_outbox_clear(msg_connection *c);
/** Connect msg_owner, the virtual table whose xDisconnect releases what is kept on the host. It is
 *  eponymous only: no ROLLBACK or schema reset disconnects it, only the closing of the
 *  connection. */
int msg_outbox_own(msg_connection *c, msg_err *err);

#endif
