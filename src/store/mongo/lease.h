/* lease.h - one document for a claim of many, so that their ack is one write. Private to
 * store/mongo.
 *
 *   <queue>_leases: {_id: token, in: collection, ids: [in order], until}
 *                   and when all of them were acked: done: true, at, mark
 *
 * Its messages bear sq.lease: true. With its ack they are settled, though they show "claimed" until
 * the sweep, at their lease's end, removes them. Whoever changes some of them otherwise breaks it
 * first: unless it is done its document goes, then the flags. A flag without a document means
 * nothing. Groups, lanes and messages with a delete_at have none. */
#ifndef MSG_MONGO_LEASE_H
#define MSG_MONGO_LEASE_H

#include "store/mongo/split.h"
#include "store/mongo/transaction.h"

/** Would a claim of so many here be by a lease? Where the last ones were broken, seldom. */
bool msg_mongo_lease_fits(msg_mongo_session *s, size_t n);
/** Before the mark. Durable with it: this alone is not waited for. */
int msg_mongo_lease_begin(msg_mongo_session *s, msg_mongo_use *u, const char *node,
                          const char *token, const msg_mongo_ids *ids, int64_t lease_ms,
                          msg_err *err);

/** Ack whole leases of this process: what is done goes to the end of the piece, `left` come first.
 *  `mark`: of the call; NULL: the token. A second run finds them done. */
int msg_mongo_leases_ack(msg_mongo_txn *t, const char *what, const char *node,
                         msg_mongo_piece *piece, const char *mark, size_t *left, msg_err *err);
/** Those that hold these messages are broken. *broken: there were some. done, recent (may be NULL):
 *  tokens of those that are done, of which the latter not MSG_MONGO_KEPT_MS ago. */
int msg_mongo_leases_break(msg_mongo_txn *t, const char *what, const msg_oid *ids, size_t n,
                           bool *broken, msg_texts *done, msg_texts *recent, msg_err *err);
/** One is taken back whole, by whom nobody acks it: it failed for its caller; or, with `mark`, if
 *  it was done by this call. *was: there was one. */
int msg_mongo_lease_undo(msg_mongo_session *s, msg_mongo_use *u, const char *token,
                         const char *mark, bool *was, msg_err *err);
/** For the sweep: documents go of which no message bears the token any more. */
int msg_mongo_leases_tidy(msg_mongo_session *s, msg_mongo_use *u, msg_err *err);
/** Holds: the store's mtx, or nobody else is there. */
void msg_mongo_leases_forget(msg_mongo_place *p);

/* ---- for readers ---- */

/* Which leases are done, as one look knows it. Of zeroes. */
typedef struct msg_mongo_acked {
  bool known;
  msg_texts tokens; /* in order */
} msg_mongo_acked;

/** Is the message settled by its lease? Reads them with the first that has one. */
int msg_mongo_is_acked(const msg_mongo_session *s, msg_mongo_use *u, msg_mongo_acked *acked,
                       const bson_t *doc, bool *out, msg_err *err);
void msg_mongo_acked_clear(msg_mongo_acked *acked);
/** To a pipeline whose rows have the token of a lease, or null, at `field`: without those that are
 *  done. */
void msg_mongo_append_unacked(bson_t *lookup, bson_t *match, const msg_mongo_session *s,
                              const char *field);

#endif
