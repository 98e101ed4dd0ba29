/* lease.h - who holds messages until when. Private to store/local. What writes runs inside a
 * msg_local_write with `many`.
 *
 * A lease is a row of msg_store_claim, shared by the messages that a claim took, whose rows there
 * name it by number: while little is claimed, one page holds all of it. The number is negative, as
 * no message's is, and begins with the time when the lease ends, so that leases lie in the order of
 * their ends without an index. A message whose lease is extended gets another one with the same
 * token. A lease goes with its last message.
 *
 * The process that holds a lease has a row in msg_store_holder, at least as long as it does: what
 * it leaves behind is looked for once it is dead, and not before. */
#ifndef MSG_LOCAL_LEASE_H
#define MSG_LOCAL_LEASE_H

#include "store/local/session.h"

typedef struct msg_local_lease {
  int64_t number;
  int64_t since_ms;
  int64_t messages;    /* how many */
  int64_t first, last; /* seq: none of them is outside */
} msg_local_lease;

/* Of a number, below its end in ms: they tell apart what ends in the same one. */
#define MSG_LOCAL_LEASE_BITS 16
/* SQL: when the lease of a number ends. */
#define MSG_LOCAL_LEASE_END(number) "((" number " & 0x7fffffffffffffff) >> 16)"
/* SQL: the number of the lease that ends first, which is the first row. */
#define MSG_LOCAL_FIRST_LEASE(table) "(SELECT min(seq) FROM " table " WHERE +seq < 0)"

int64_t msg_local_lease_end_ms(int64_t number);
/** The lowest number of a lease that ends after a time; 0: none does. */
int64_t msg_local_lease_after(int64_t at_ms);
/** The end of a lease that is to end at a time: one much later than anybody asks for is earlier. */
int64_t msg_local_lease_end_for(int64_t end_ms);

/** A new lease of `actor` until end_ms, made as *lease says, which gets its number. */
int msg_local_lease_new(msg_local_session *s, const msg_actor *actor, const char *token,
                        int64_t end_ms, msg_local_lease *lease, msg_err *err);
/** The same lease with another end, of one of its messages. */
int msg_local_lease_copy(msg_local_session *s, int64_t from, int64_t end_ms, int64_t seq,
                         int64_t *number, msg_err *err);
/** A message has come to it. */
int msg_local_lease_joined(msg_local_session *s, int64_t number, int64_t seq, msg_err *err);
/** Messages have left it: gone with the last one. */
int msg_local_lease_left(msg_local_session *s, int64_t number, int64_t messages, msg_err *err);
/** owner, token, since and until of *m, which is of this lease. Reads only. */
int msg_local_lease_show(msg_local_session *s, int64_t number, msg_message *m, msg_err *err);

#endif
