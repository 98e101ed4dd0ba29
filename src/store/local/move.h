/* move.h - how a message goes from one stored state to another, with its lanes and its group kept
 * in step. Private to store/local. Everything here runs inside a msg_local_write with `many`.
 *
 * READY, MORTAL, ADDRESSED, LIVE, DIRECT and DELAYED are where a message may be put when it is free
 * to go; which of them follows from the message and the time. Of a group only the head is there or
 * CLAIMED; its followers are BLOCKED until it leaves. */
#ifndef MSG_LOCAL_MOVE_H
#define MSG_LOCAL_MOVE_H

#include "store/local/session.h"

/* One row, as far as moving it needs. */
typedef struct msg_local_item {
  int64_t seq;
  enum msg_local_state state;
  bool exclusive, has_recipients, mortal, grouped;
  int32_t attempts;
  int64_t deliver_at_ms;
  int64_t lease; /* while CLAIMED */
  char queue[MSG_QUEUE_MAX + 1], topic[MSG_TOPIC_MAX + 1], group[MSG_KEY_MAX + 1];
} msg_local_item;

/** Where a message belongs that is free to go at `now`. */
enum msg_local_state msg_local_free_state(const msg_local_item *item, int64_t now_ms);

/* Columns of msg_store_message AS m, in the order msg_local_item_read expects. */
#define MSG_LOCAL_ITEM_COLUMNS                                                                     \
  "m.seq, m.state, m.exclusive, m.recipients IS NOT NULL, m.delete_at IS NOT NULL,"                \
  " m.grp IS NOT NULL, m.attempts, m.deliver_at, m.queue, m.topic, m.grp,"                         \
  " " MSG_LOCAL_CLAIM("lease", "m.seq") ", " MSG_LOCAL_CLAIM("attempts", "m.seq")

/** The row of a bound statement; gives it back.
 *  Errors: MSG_NOTFOUND (no text), MSG_CORRUPT names longer than any that is accepted. */
int msg_local_item_read(msg_local_session *s, sqlite3_stmt *stmt, msg_local_item *out,
                        msg_err *err);
/** Errors: as msg_local_item_read. */
int msg_local_item_load(msg_local_session *s, int64_t seq, msg_local_item *out, msg_err *err);
int msg_local_item_find(msg_local_session *s, const msg_oid *id, msg_local_item *out, msg_err *err);

/** Free to go, at item->deliver_at_ms: no owner any more; behind the rest of its group if it is not
 * the first of it. */
int msg_local_item_free(msg_local_session *s, msg_local_item *item, int64_t now_ms, msg_err *err);
/** The same for one that keeps its place in the group. */
int msg_local_item_place(msg_local_session *s, msg_local_item *item, int64_t now_ms, msg_err *err);
/** Dead, for `reason`. Dead letters do not expire. */
int msg_local_item_bury(msg_local_session *s, const msg_local_item *item, const char *reason,
                        int64_t now_ms, msg_err *err);
/** Gone. */
int msg_local_item_drop(msg_local_session *s, const msg_local_item *item, int64_t now_ms,
                        msg_err *err);

/** The row in msg_store_ready of a message that is READY and not claimed: made, or removed. Before
 *  its priority or delivery time changes it must be out. */
int msg_local_ready_add(msg_local_session *s, int64_t seq, msg_err *err);
int msg_local_ready_remove(msg_local_session *s, const msg_local_item *item, msg_err *err);

/** Lane rows of a message: made from its recipients, or removed. */
int msg_local_lanes_make(msg_local_session *s, int64_t seq, msg_err *err);
int msg_local_lanes_drop(msg_local_session *s, int64_t seq, msg_err *err);

/* SQL: 1 for a broadcast that comes with the next number behind one of a later delivery time, else
 * NULL: its column `moved`. Those where it is NULL are in delivery order by number. Where the last
 * few tell nothing it is 1, which is never wrong. */
#define MSG_LOCAL_OUT_OF_PLACE(queue, topic, priority, deliver_at)                                 \
  "(SELECT CASE WHEN max(CASE WHEN o.moved IS NULL THEN o.deliver_at END) > " deliver_at           \
  " OR count(o.moved) = 16 THEN 1 END FROM (SELECT p.moved, p.deliver_at"                          \
  " FROM @.msg_store_message AS p INDEXED BY msg_store_message_live WHERE p.state = 8"             \
  " AND p.queue = " queue " AND p.topic = " topic " AND p.priority = " priority                    \
  " ORDER BY p.seq DESC LIMIT 16) AS o)"

/** A number greater than every seq given so far. */
int msg_local_next_seq(msg_local_session *s, int64_t *out, msg_err *err);

/** Growing array of seqs. */
typedef struct msg_local_seqs {
  int64_t *at;
  size_t n, cap;
} msg_local_seqs;
/** Append column 0 of every row of `stmt`, and give it back. */
int msg_local_seqs_read(msg_local_session *s, sqlite3_stmt *stmt, msg_local_seqs *out,
                        msg_err *err);
/** How many of `seqs`, sorted, follow each other without a gap from the first on. At least 1. */
size_t msg_local_seqs_run(const int64_t *seqs, size_t n);
/** In ascending order. False: they were in another. */
bool msg_local_seqs_sort(msg_local_seqs *seqs);
/** Sort them, and delete their rows of msg_store_message, those alone. */
int msg_local_seqs_delete(msg_local_session *s, msg_local_seqs *seqs, msg_err *err);

#endif
