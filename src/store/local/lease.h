/* lease.h - who holds messages until when. Private to store/local. What writes runs inside a
 * msg_local_write with `many`.
 *
 * One row of msg_store_lease a claim, shared by the messages it took. Each of them names it by
 * number, so that a claim changes two small numbers of a message and moves nothing of it. A message
 * whose lease is extended gets another row with the same token. A row goes with its last message.
 */
#ifndef MSG_LOCAL_LEASE_H
#define MSG_LOCAL_LEASE_H

#include "store/local/session.h"

/* msg_store_message.lease where there is none: stored as wide as every number that leases get,
 * which are the greater ones. */
#define MSG_LOCAL_NO_LEASE "16777216"

/** A new lease of `actor`, of which no message knows yet. */
int msg_local_lease_new(msg_local_session *s, const msg_actor *actor, const char *token,
                        int64_t since_ms, int64_t due_ms, int64_t *number, msg_err *err);
/** The same lease with another end. */
int msg_local_lease_copy(msg_local_session *s, int64_t from, int64_t due_ms, int64_t *number,
                         msg_err *err);
/** A message has left it: gone with the last one. */
int msg_local_lease_left(msg_local_session *s, int64_t number, msg_err *err);
/** owner, token, since and until of *m, which is of this lease. Reads only. */
int msg_local_lease_show(msg_local_session *s, int64_t number, msg_message *m, msg_err *err);

#endif
