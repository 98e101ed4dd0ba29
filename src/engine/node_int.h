/* node_int.h - a node's inside, for the files of engine/.
 *
 * Lock order: registry (msg_global_lock) > cursor > node. Nobody holds one across a store call, the
 * interrupt probe, or a join. */
#ifndef MSG_ENGINE_NODE_INT_H
#define MSG_ENGINE_NODE_INT_H

#include <stdatomic.h>

#include "base/thread.h"
#include "engine/audience.h"
#include "engine/cursor.h"
#include "engine/inbox.h"
#include "engine/node.h"
#include "engine/policy.h"
#include "engine/recent.h"

#define MSG_VAIN_MAX 64

/* A pattern that is known to be registered in the store. */
typedef struct msg_listening {
  msg_pattern *pattern;
  msg_looked looked;
  int64_t since_ms; /* monotonic: what was durable before may have come before the listener */
} msg_listening;

struct msg_node {
  /* immutable after open */
  msg_store *store;
  msg_cursor *cursor; /* of the store; the node's reference to the store keeps it */
  char *id, *queue;
  bool automatic;
  int process; /* msg_fork_generation() of the process that opened it */
  int64_t opened_at_ms;
  msg_mutex *mtx;
  msg_cond *idle;    /* calls has become 0 */
  msg_gate *changes; /* its waits sleep on it; the cursor moves it, too */

  /* shared: guarded by the registry's lock */
  msg_node *next;
  int refs;

  /* shared: atomic */
  atomic_bool shut;
  _Atomic int64_t stats[MSG_STAT_COUNT];

  /* shared: guarded by mtx */
  int calls;    /* calls under way */
  int attached; /* connections attached through this node */
  msg_policy *policy;
  msg_listening *listens;
  size_t listen_count, listen_cap;
  msg_oid *reserved; /* requests that wait for their answers */
  size_t reserved_count, reserved_cap;
  bool reserved_looked; /* a look left their answers alone */
  msg_looked looked;    /* for everything listened to */
  msg_inbox inbox;      /* filled while somebody looks */
  int looks;
  int64_t looked_ms;               /* monotonic: the end of the last */
  msg_cond *looked_on;             /* a look at the store is over */
  uint64_t puts;                   /* by this process, which the node is to get */
  struct msg_bid *bids;            /* claims that wait: offer.h */
  msg_pattern *vain[MSG_VAIN_MAX]; /* claims that found nothing, oldest first */
  size_t vain_count;
  msg_recent recent;
  msg_audience audience;
};

/* ---- calls ---- */

/* One call on a node, from the check at its entry to its end. Owner: the calling thread. */
typedef struct msg_use {
  msg_node *node;
  msg_policy *policy; /* in force at the last begin or refresh */
  msg_actor actor;
} msg_use;

/** Errors: MSG_FORKED, MSG_MISUSE closed. */
int msg_use_begin(msg_use *u, msg_node *node, msg_err *err);
/** Take over a changed policy. */
void msg_use_refresh(msg_use *u);
void msg_use_end(msg_use *u);
/** MSG_OK, or MSG_FORKED when another process opened the node. */
int msg_node_check(const msg_node *node, msg_err *err);

/** Run a verb on a session, and count it. */
#define MSG_STORE(use, session, verb, ...)                                                         \
  (msg_node_count((use)->node, MSG_STAT_STORE_CALLS, 1), (session)->ops->verb(session, __VA_ARGS__))

/** Where a call may look and listen without touching the host's transaction. */
static inline msg_session *msg_call_looks(const msg_call *call) {
  return call->aside ? call->aside : call->session;
}

/** Where a call's sends and settles go. */
static inline msg_session *msg_call_writes(const msg_call *call) {
  return call->writes ? call->writes : call->session;
}

/* ---- waiting: wait.c ---- */

/* One wait: mark, look, and (nothing there) again, until that does not say MSG_OK. */
typedef struct msg_wait {
  msg_use *use;
  msg_call *call;
  const char *verb, *topic;  /* for texts */
  bool waits, last, entered; /* time-out above 0; the deadline is over; counted as a waiter */
  int64_t deadline_ms;       /* monotonic */
  uint32_t mark;
  int64_t look_ms; /* monotonic: the next sleep ends at the latest */
} msg_wait;

/** Probes for interruption. Errors: MSG_INVALID negative time-out, MSG_INTERRUPTED,
 *  MSG_SHUTDOWN. */
int msg_wait_begin(msg_wait *w, msg_use *use, msg_call *call, const char *verb, const char *topic,
                   int64_t timeout_ms, msg_err *err);
/** Before each look. */
void msg_wait_mark(msg_wait *w);
/** After a look that found nothing: sleep until another may find more; the policy is fresh then.
 *  Errors: MSG_TIMEOUT, MSG_MISUSE (blind), MSG_INTERRUPTED, MSG_SHUTDOWN, MSG_UNAVAILABLE. */
int msg_wait_again(msg_wait *w, msg_err *err);
void msg_wait_end(msg_wait *w);
/** The next sleep ends at the monotonic `at_ms` at the latest. */
void msg_wait_until(msg_wait *w, int64_t at_ms);
/** What a blind call gets. Returns MSG_MISUSE. */
int msg_wait_blind(const char *verb, const char *topic, msg_err *err);

/* ---- looking: look.c ---- */

/* One call that looks again and again for the same: at the store, then, while nothing was lost, at
 * what is pushed. */
typedef struct msg_look {
  msg_use *use;
  msg_call *call;
  bool goes_on; /* what others of the node found and left, and what was pushed, is as good */
  bool owes;    /* but this process has put something since, which the store has in any case */
  bool asked;   /* the store, since this was cleared */
  msg_looked looked;
} msg_look;

/** Without memory of an earlier one: the first look is at the store. */
void msg_look_begin(msg_look *l, msg_use *u, msg_call *call);
/** Nothing that it looks for can have come before now. */
void msg_look_news(msg_look *l);
/** Take up to query->max of what the node may be handed, marking it seen; appends to *out. Finding
 *  nothing is MSG_OK. */
int msg_look_take(msg_look *l, const msg_unseen *query, msg_list *out, msg_err *err);
void msg_look_end(msg_look *l);

/** How many messages an inbox holds. */
size_t msg_look_inbox_max(const msg_policy *policy);

/** Messages from index `from` on are about to reach the caller: remember and count them. */
void msg_look_handed(msg_node *node, const msg_list *out, size_t from, enum msg_stat stat);

/* ---- what comes: deliver.c ---- */

/** These were put by this process: a call that begins now finds them, told by the watch or not. */
void msg_deliver_put(msg_store *store, const msg_put *puts, size_t n);
/** Some of the store's messages were removed or changed by this process. */
void msg_deliver_doubt(msg_store *store);

/* ---- nodes: node.c ---- */

/** Every open node of a store in this process, under the registry's lock: `fn` must not block. */
void msg_nodes_each(const msg_store *store, void (*fn)(msg_node *node, void *arg), void *arg);

/* ---- requests under way: reserve.c ---- */

int msg_reserve_add(msg_node *node, const msg_oid *request, msg_err *err);
void msg_reserve_drop(msg_node *node, const msg_oid *request);
/** Is it an answer to a request that waits? The node's mutex is held. */
bool msg_reserve_has_locked(const msg_node *node, const msg_message *m);
/** The same for who has looked and leaves it alone: the waits look again when the request ends. */
bool msg_reserve_leaves_locked(msg_node *node, const msg_message *m);
/** Such answers go from the list. */
void msg_reserve_leave(msg_node *node, msg_list *found);
/** A copy of what is reserved (msg_free). Errors: MSG_NOMEM. */
int msg_reserve_copy(msg_node *node, msg_oid **out, size_t *n, msg_err *err);

/* ---- sending: send.c ---- */

/** Put one filled message by `session`, one of the call's; *id is the one in the store. */
int msg_send_one(msg_use *u, const msg_call *call, msg_session *session, const msg_message *m,
                 msg_oid *id, msg_err *err);

#endif
