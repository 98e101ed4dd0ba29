/* tend.h - what this process has on a store beside sessions: who listens to what, the nodes it
 * announced, when something is due next. Any thread. Private to store/mongo. */
#ifndef MSG_MONGO_TEND_H
#define MSG_MONGO_TEND_H

#include <stdatomic.h>

#include "store/mongo/mongo.h"

typedef struct msg_mongo_heard { /* one node's listening to one pattern */
  msg_mongo_queue *queue;
  char *node, *pattern;
  msg_pattern *compiled;
  int64_t since_ms; /* as msg_mongo_listen, and so before */
  msg_oid *before;
  size_t before_count;
} msg_mongo_heard;

typedef struct msg_mongo_own { /* a node announced by this process */
  msg_mongo_queue *queue;
  msg_participant row;   /* texts owned */
  bool registry, sweeps; /* by its settings: it asks who is there; and drops lanes of the gone */
  int64_t update_ms;
} msg_mongo_own;

typedef struct msg_mongo_tend {
  msg_mutex *mtx;
  _Atomic uint64_t interest; /* moves when it widens: interest.h */
  /* shared: guarded by mtx */
  msg_mongo_heard *heard;
  size_t heard_count, heard_cap;
  uint64_t heard_version; /* moves when it changes */
  msg_mongo_own *own;
  size_t own_count, own_cap;
  struct msg_mongo_due {
    msg_mongo_queue *queue;
    int64_t at_ms; /* store's clock; MSG_NEVER: nothing known */
    bool asked;    /* the server shall be asked for it */
  } * due;
  size_t due_count, due_cap;
  struct msg_mongo_job *jobs; /* left behind: job.h */
  struct msg_mongo_claimed {  /* patterns that were claimed: interest.h */
    msg_mongo_queue *queue;
    msg_pattern *pattern;
    bool waited; /* by a claim that waits */
  } * claimed;
  size_t claimed_count, claimed_cap;
  struct msg_mongo_stream *streams; /* open ones: interest.h */
  struct msg_mongo_warning {        /* each is told once */
    char text[256];                 /* "" none */
    bool told;
  } layout, polling; /* of the implementation check; where there is no change stream */
} msg_mongo_tend;

/** NULL when memory is out. */
msg_mongo_tend *msg_mongo_tend_new(void);
/** NULL allowed. */
void msg_mongo_tend_free(msg_mongo_tend *t);

/* ---- deadlines ---- */

/** Something of the queue is due at `at_ms` (a delay, a lease, a group head's life ends): the
 *  cursor thread of this process shall know without asking the server. Never fails: it asks now
 *  and then all the same. */
void msg_mongo_note_due(msg_mongo_store *store, msg_mongo_queue *queue, int64_t at_ms);
/** The earliest noted, which is forgotten by it; MSG_NEVER if none. */
int64_t msg_mongo_take_due(msg_mongo_store *store, msg_mongo_queue *queue);

/** A claim found nothing: what others hold comes back at a time that only the server knows. The
 *  cursor thread shall ask it soon. Never fails. */
void msg_mongo_ask_due(msg_mongo_store *store, msg_mongo_queue *queue);
/** Was that so? It is forgotten by it. */
bool msg_mongo_take_asked(msg_mongo_store *store, msg_mongo_queue *queue);

/* ---- own nodes ---- */

/** Remember or refresh (copied), with the session's settings. Errors: MSG_NOMEM. */
int msg_mongo_own_put(msg_mongo_session *s, const msg_participant *p, msg_err *err);
/** Was it announced by this process? */
bool msg_mongo_own_has(msg_mongo_store *store, const msg_mongo_queue *queue, const char *node);
void msg_mongo_own_drop(msg_mongo_store *store, msg_mongo_queue *queue, const char *node);
/** A copy of the queue's own nodes: msg_mongo_own_free. Errors: MSG_NOMEM. */
int msg_mongo_own_list(msg_mongo_store *store, msg_mongo_queue *queue, msg_mongo_own **out,
                       size_t *n, msg_err *err);
void msg_mongo_own_free(msg_mongo_own *own, size_t n);

/* ---- warnings ---- */

/** Set one; the same text again is not told again. */
void msg_mongo_warn(msg_mongo_store *store, struct msg_mongo_warning *w, const char *text);

/* ---- listeners ---- */

/** Forget all of a node's. */
void msg_mongo_heard_drop(msg_mongo_store *store, msg_mongo_queue *queue, const char *node);

#endif
