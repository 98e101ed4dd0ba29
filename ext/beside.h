/* beside.h - the session on the host, with a way out of a stale snapshot.
 *
 * In autocommit, while a SELECT of the host is active, SQLite keeps the read transaction that a nested
 * statement of ours started, even if the SELECT itself reads other things (a table form in temp). Once
 * another connection has written, our next write fails with SQLITE_BUSY_SNAPSHOT, though the user reads
 * nothing of the messages. Then, and only then, this session goes on beside the host, on a connection
 * of our own, where each verb commits at once, as it would have on the host. It stays there until the
 * host's read transaction has ended. What the host itself reads stays the user's to finish.
 *
 * Two connections that write in turn empty each other's page cache. So what a table form has
 * claimed beside the host is settled there too, when on the host it would be a transaction of its
 * own. */
#ifndef MSG_EXT_BESIDE_H
#define MSG_EXT_BESIDE_H

#include "ext/connection.h"

struct msg_beside {
  msg_session base;
  msg_connection *c;
  msg_opened *o;
  bool stepped; /* on the aside until the host's read transaction ends */
  bool
      follows; /* the last claim was made on the aside: settled there too, where that is the same */
};

/** The session of `o` with that way out. Owned by o. NULL when memory is out. */
msg_session *msg_beside_session(msg_connection *c, msg_opened *o);

/** A claim was made on o->aside. */
void msg_beside_claimed(msg_opened *o);

/* ---- from calls.c ---- */
/** May a connection of our own act for the host's? Not where that may not write itself. */
bool msg_connection_may_aside(msg_connection *c, msg_opened *o);
/** Make o->aside if it can be had; MSG_OK without one otherwise. Errors: MSG_NOMEM, MSG_INTERRUPTED. */
int msg_connection_aside(msg_connection *c, msg_opened *o, msg_err *err);
/** Is a writing statement of the host active, which our writes are part of? */
bool msg_connection_host_writes(msg_connection *c);
/** Is the file in WAL mode, and does no running statement of the host read the schema itself? */
bool msg_connection_pinned(msg_connection *c, msg_opened *o);

#endif
