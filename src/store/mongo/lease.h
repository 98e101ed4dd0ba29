/* lease.h - one document for a claim of many, so that their ack is one write. Private to
 * store/mongo.
 *
 *   <queue>_leases: {_id: token, in: collection, ids: those that were to be marked, until}
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

#define MSG_MONGO_LEASES_KEPT 16 /* that a place remembers */

/* One of this process. */
typedef struct msg_mongo_lease {
  char token[MSG_OID_HEX + 1]; /* "" none */
  char *node;
  msg_mongo_ids ids; /* in order */
} msg_mongo_lease;
void msg_mongo_lease_clear(msg_mongo_lease *l);

/* ---- lease.c ---- */

/** Would a claim of so many here be by a lease? Where the last ones were broken, seldom. */
bool msg_mongo_lease_fits(msg_mongo_session *s, size_t n);
/** Before the mark. Durable with it: this alone is not waited for. */
int msg_mongo_lease_begin(msg_mongo_session *s, msg_mongo_use *u, const char *token,
                          const msg_mongo_ids *ids, int64_t lease_ms, msg_err *err);
/** After the mark: all of them were read back as mine. From now on an ack of them is the lease's.
 *  Where others were faster with some, nobody may know of it: a mark that was sent twice may still
 *  reach one of those. Errors: MSG_NOMEM. */
int msg_mongo_lease_keep(msg_mongo_session *s, const char *node, const char *token,
                         const msg_mongo_ids *ids, msg_err *err);
/** One is taken back whole, by whom nobody acks it: it failed for its caller; or, with `mark`, if
 *  it was done by this call. *was: there was one. */
int msg_mongo_lease_undo(msg_mongo_session *s, msg_mongo_use *u, const char *token,
                         const char *mark, bool *was, msg_err *err);
/** Holds: the store's mtx, or nobody else is there. */
void msg_mongo_leases_forget(msg_mongo_place *p);

/* ---- whole.c, broken.c, tidy.c ---- */

/** Ack whole leases of this process: what is done goes to the end of the piece, `left` come first.
 *  `mark`: of the call, by which its second run finds them done; NULL: it marks with the token, in
 *  a transaction, which leaves what another has done. */
int msg_mongo_leases_ack(msg_mongo_txn *t, const char *what, const char *node,
                         msg_mongo_piece *piece, const char *mark, size_t *left, msg_err *err);
/** Those that hold messages of this filter are broken. *plain: some of the messages are of none
 *  now, by this call or another's. done, recent (may be NULL): tokens of those that are done, of
 *  which the latter not MSG_MONGO_KEPT_MS ago. */
int msg_mongo_leases_break(msg_mongo_txn *t, const char *what, const bson_t *which, bool *plain,
                           msg_texts *done, msg_texts *recent, msg_err *err);
/** For the sweep: documents go of which no message bears the token any more. */
int msg_mongo_leases_tidy(msg_mongo_session *s, msg_mongo_use *u, msg_err *err);

/* ---- between the files ---- */

/** There is one here, of whomever's: its document has to be tidied away. */
void msg_mongo_leases_note(msg_mongo_session *s);
/** They were broken, as the next ones here would be. */
void msg_mongo_leases_note_broken(msg_mongo_session *s, const msg_texts *tokens);
/** Copies of the node's leases all of whose messages are given; MSG_MONGO_LEASES_KEPT at most.
 *  MSG_OK or MSG_NOMEM. */
int msg_mongo_leases_find_whole(msg_mongo_session *s, const char *node, const msg_mongo_ids *given,
                                msg_mongo_lease *out, size_t *n);
/** Add the ids in a lease's document. */
int msg_mongo_lease_ids(const bson_t *doc, msg_mongo_ids *to, msg_err *err);

#endif
