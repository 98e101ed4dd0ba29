/* claiming.h - a claim at work, shared by the files it is in: candidates.c, owner.c,
 * hold.c, claim.c, claimable.c. */
#ifndef MSG_MONGO_CLAIMING_H
#define MSG_MONGO_CLAIMING_H

#include "store/mongo/place.h"

typedef struct msg_mongo_candidate {
  msg_oid id;
  int64_t priority, at_ms;
  size_t spot; /* where it is */
} msg_mongo_candidate;

/* A place at which is claimed. */
typedef struct msg_mongo_claim_spot {
  msg_mongo_session s;
  msg_texts topics;
  bool mortal; /* some of its candidates have a delete_at */
} msg_mongo_claim_spot;

typedef struct msg_mongo_claiming {
  msg_mongo_use *u;
  const msg_actor *actor;
  const msg_claim *claim;
  msg_mongo_claim_spot *spots;
  size_t spot_count;
  msg_mongo_candidate *picked; /* of a round, in order of delivery */
  size_t picked_count, picked_cap;
  /* the one at work: borrowed from its spot */
  msg_mongo_session *s;
  msg_texts topics;
  int64_t now_ms;
  /* of a round */
  msg_mongo_candidate *at;
  size_t n, cap;
  size_t seen;         /* rows of the last page */
  bool mortal;         /* one of them has a delete_at */
  msg_mongo_ids dying; /* candidates with too many attempts */
  msg_mongo_ids ids;   /* to be marked, then marked */
  msg_mongo_ids locked;
  msg_mongo_ids shared; /* another's mark stands beside mine */
  msg_list got;         /* read back after the mark */
  char token[MSG_OID_HEX + 1];
  bool leased; /* by a lease: lease.h */
} msg_mongo_claiming;

/* ---- claim.c ---- */

/** Find where: the topics' places, and the node's lane, in which somebody may have put an exclusive
 *  message for it. */
int msg_mongo_claiming_find(msg_mongo_session *s, msg_mongo_claiming *c, msg_err *err);
/** To work at one of the spots. */
void msg_mongo_claiming_go(msg_mongo_claiming *c, size_t spot);
typedef int (*msg_mongo_claiming_fn)(msg_mongo_session *s, msg_mongo_claiming *c, void *arg,
                                     msg_err *err);
/** Run the work with a client, within write_timeout_ms; once more where indexes were lost. Clears
 *  *c, of which actor and claim are set. */
int msg_mongo_claiming_run(msg_session *base, msg_mongo_claiming *c, const char *what,
                           msg_mongo_claiming_fn work, void *arg, msg_err *err);

/* ---- hold.c ---- */

/** How many to look for to find `count` that no other claim of this process is at. */
size_t msg_mongo_claiming_ask(msg_mongo_claiming *c, size_t count);
/** The first `count` that no other is at stay picked, and are this one's until it lets go. */
void msg_mongo_claiming_hold(msg_mongo_claiming *c, size_t count);
/** Nothing is picked any more. */
void msg_mongo_claiming_let_go(msg_mongo_claiming *c);

/* ---- the steps ---- */

/** What may be claimed, of these topics. */
void msg_mongo_append_ready(bson_t *filter, const msg_mongo_claiming *c, char *const *topics,
                            size_t n);
/** Which is delivered first. */
int msg_mongo_candidate_cmp(const void *a, const void *b);
/** The first `count` that nobody has locked go to c->ids; those to bury to c->dying. */
int msg_mongo_find_free(msg_mongo_claiming *c, size_t count, msg_err *err);
/** Which of the ids are locked now. A lock whose time is over only waits for its removal. */
int msg_mongo_read_locks(msg_mongo_claiming *c, const msg_mongo_ids *ids, msg_mongo_ids *locked,
                         msg_err *err);
/** A lock was met: from now on they are looked at before the mark, too. */
void msg_mongo_note_locked(msg_mongo_session *s);
/** After the mark: those that are mine alone go to c->got, from the others I step back. */
int msg_mongo_read_back(msg_mongo_claiming *c, msg_err *err);

#endif
