/* beside.h - the session on the host, with a way out of a stale snapshot.
 *
 * In autocommit, while a SELECT of the host is active, SQLite keeps the read transaction that a
 * nested statement of ours started, even if the SELECT itself reads other things (a table form in
 * temp). Once another connection has written, our next write fails with SQLITE_BUSY_SNAPSHOT,
 * though the user reads nothing of the messages. Then, and only then, this session goes on beside
 * the host, on a connection of our own, where each verb commits at once, as it would have on the
 * host. It stays there until the host's read transaction has ended. What the host itself reads
 * stays the user's to finish. */
#ifndef MSG_EXT_BESIDE_H
#define MSG_EXT_BESIDE_H

#include "ext/connection.h"

struct msg_beside {
  msg_session base;
  msg_connection *c;
  msg_opened *o;
  bool stepped; /* on the aside until the host's read transaction ends */
};

/** The session of `o` with that way out. Owned by o. NULL when memory is out. */
msg_session *msg_beside_session(msg_connection *c, msg_opened *o);

#endif
