/* schema.h - the tables of the local store in the host's file.
 *
 * msg_store            one row: version, store id
 * msg_store_message    one row a message; `state` is stored, see the codes
 * msg_store_ready      one row a READY message that nobody has claimed: a claim takes from it and
 *                      leaves the message, whose row is wide, as it is
 * msg_store_claim      one row a claimed message; `attempts` counts this delivery. And one row a
 *                      lease, shared by the messages that a claim took: see lease.h
 * msg_store_holder     one row a process that has leases, or had some
 * msg_store_lane       one row a recipient that has not taken its direct message yet
 *                      (exclusive = 0, state DIRECT), or that may claim it now (exclusive = 1,
 *                      state ADDRESSED only: gone while claimed, delayed, blocked or dead)
 * msg_store_listener   one row a node and pattern: where it began to listen
 * msg_store_floor      one row a node, topic, priority and pattern: every live broadcast of that
 *                      topic and priority with seq <= floor is done with, as far as that
 *                      pattern goes
 * msg_store_seen       broadcasts above the floor that a node has seen
 * msg_store_key        de-duplication keys, kept until their window ends
 * msg_store_node       participants
 */
#ifndef MSG_LOCAL_SCHEMA_H
#define MSG_LOCAL_SCHEMA_H

#include "base/err.h"
#include "store/local/sqlite.h"

#define MSG_LOCAL_VERSION 1

/* msg_store_message.state. Partial indexes name these numbers: never renumber. */
enum msg_local_state {
  MSG_LOCAL_READY = 1,     /* exclusive, no expiry, no recipients: claimable while it is in
                              msg_store_ready, else claimed */
  MSG_LOCAL_MORTAL = 2,    /* exclusive, claimable until delete_at, no recipients */
  MSG_LOCAL_ADDRESSED = 3, /* exclusive, claimable by its recipients (msg_store_lane) only */
  MSG_LOCAL_DELAYED = 4,   /* exclusive or not; `due` = deliver_at */
  MSG_LOCAL_BLOCKED = 5,   /* behind the head of its group */
  MSG_LOCAL_CLAIMED = 6,   /* one that was not READY is claimed */
  MSG_LOCAL_DEAD = 7,
  MSG_LOCAL_LIVE = 8,  /* broadcast, visible */
  MSG_LOCAL_DIRECT = 9 /* not exclusive, waits in msg_store_lane (not delayed there: delayed ones
                          are DELAYED without lane rows) */
};

/* ADDRESSED, DELAYED, BLOCKED and DIRECT: the condition of index msg_store_message_other. A
 * statement must repeat it as it stands to go by that index. Not IN (...), for which SQLite would
 * build a table at every write. */
#define MSG_LOCAL_OTHER "state > 2 AND state <> 6 AND state <> 7 AND state <> 8"

/* SQL: a column of the claim of message `seq`, of the message `seq`; NULL where there is none. A
 * scalar subquery, as reading.h says why. */
#define MSG_LOCAL_CLAIM(column, seq)                                                               \
  "(SELECT c." column " FROM @.msg_store_claim AS c WHERE c.seq = " seq ")"
#define MSG_LOCAL_MESSAGE(column, seq)                                                             \
  "(SELECT w." column " FROM @.msg_store_message AS w WHERE w.seq = " seq ")"

enum msg_schema_state { MSG_SCHEMA_NONE, MSG_SCHEMA_CURRENT, MSG_SCHEMA_OLD };

/** A schema's name as an SQL identifier, in its quotes; the caller's (msg_free). NULL when
 *  memory is out. */
char *msg_schema_quote(const char *name);
/** `sql` with every '@' replaced by `quoted`; the caller's. NULL when memory is out. */
char *msg_schema_expand(const char *quoted, const char *sql);
/** What a version found in msg_store means. Errors: MSG_UNSUPPORTED a newer version (text: both
 *  numbers, cure: newer msg.so); MSG_CORRUPT. */
int msg_schema_judge(sqlite3_int64 version, enum msg_schema_state *out, msg_err *err);
/** Create or migrate, step by step; msg_local_write around it makes it atomic.
 *  Errors: MSG_BUSY another connection was faster: look again. */
int msg_schema_make(sqlite3 *db, const char *schema, msg_err *err);

#endif
