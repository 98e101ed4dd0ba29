/* store.h - the port: what a message store can do, in the domain's verbs. One contract suite
 * (tests/contract) runs against every adapter and is the definition.
 *
 * A msg_store is a thread-safe factory for one place (a file, a cluster). A msg_session is one
 * thread's handle on one queue of it. A msg_watch is one cursor thread's. Outs are written only on
 * MSG_OK. Times are ms since the epoch, judged by the store's clock. Texts handed in are borrowed
 * for the call; texts handed out are the caller's. */
#ifndef MSG_STORE_STORE_H
#define MSG_STORE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "model/filter.h"
#include "store/types.h"

typedef struct msg_store msg_store;
typedef struct msg_session msg_session;
typedef struct msg_watch msg_watch;
typedef struct msg_find msg_find; /* an open browse */
/* A host's connection, lent: only ext/ and the adapter know its inside. */
typedef struct msg_host msg_host;

/* What an adapter can do beyond the required verbs. */
enum {
  MSG_CAP_HOST_TXN = 1u << 0, /* verbs join the host's transaction */
  /* watch events may carry the message. Then between two other events every message that is put
   * for a node of this process, or exclusive of a claim that waits, and is ready at once, is told
   * by one of its own; and `unseen` shows only what is durable */
  MSG_CAP_PUSH = 1u << 1,
  /* watch_open works; else waiters look every poll_pause_ms and at the next deadline */
  MSG_CAP_WATCH = 1u << 2,
  MSG_CAP_OWN = 1u << 3, /* session_open works without a lent host */
  /* the watch keeps participants alive and sweeps: it runs while a node is announced, whether
   * anybody waits or not */
  MSG_CAP_TEND = 1u << 4
};

/* Receives one row; a non-zero return stops the listing, which then returns that code. The row is
 * borrowed. */
typedef int (*msg_count_fn)(void *arg, const msg_count *row);
typedef int (*msg_participant_fn)(void *arg, const msg_participant *row);
typedef int (*msg_lane_fn)(void *arg, const msg_lane *row);
typedef int (*msg_listener_fn)(void *arg, const msg_listener *row);
typedef int (*msg_describe_fn)(void *arg, const char *item, const char *value, const char *advice);

struct msg_store_ops {
  /* ---- store: any thread ---- */
  void (*store_close)(msg_store *); /* after every session and watch of it was closed */
  unsigned (*caps)(const msg_store *);
  const char *(*place)(const msg_store *); /* for texts: file name or hosts; never a credential */
  /** `host` is borrowed for the session's life but used only within its calls; NULL (MSG_CAP_OWN):
   *  the session opens a connection of its own. Changes nothing in the store. */
  int (*session_open)(msg_store *, msg_host *host, const char *queue, const msg_settings *,
                      msg_session **out, msg_err *);
  int (*watch_open)(msg_store *, const msg_settings *, msg_watch **out, msg_err *);
  /** These claims were rolled back with the host's transaction: deliveries that happened all the
   *  same. Counted at the next claim. No I/O. */
  void (*claims_undone)(msg_store *, const msg_oid *ids, size_t n);

  /* ---- session: its thread ---- */
  void (*session_close)(msg_session *);
  /** Drop kept statements and other things on the lent host that would keep it from closing. They
   *  come back by themselves. */
  void (*session_release)(msg_session *);

  /** Take now, in the host's transaction, the lock that its writes will need: what is read first
   *  could grow stale. Only with MSG_CAP_HOST_TXN; does nothing where nothing read before would
   *  matter. */
  int (*lock)(msg_session *, msg_err *);
  /** All or nothing, atomic, in order; durable on return (within a host transaction: with it).
   *  n > 0.
   *  Errors: MSG_EXISTS a given id is taken (text names it). */
  int (*put)(msg_session *, const msg_actor *, msg_put *items, size_t n, msg_err *);

  /** Open a browse; rows come by find_next (*out initialised by it, the caller's) until
   *  MSG_NOTFOUND. It may be open while other calls on the session write: rows then show either
   *  state. */
  int (*find)(msg_session *, const msg_filter *, msg_find **out, msg_err *);
  int (*find_next)(msg_find *, msg_message *out, msg_err *);
  void (*find_close)(msg_find *);
  /** The message itself, MSG_NOTFOUND if gone. */
  int (*get)(msg_session *, const msg_oid *id, msg_message *out, msg_err *);

  /** Remember that a node listens, from now on or (catch_up) to everything unexpired. MSG_EXISTS:
   *  already known, start unchanged. */
  int (*listen)(msg_session *, const msg_actor *, const char *pattern, bool catch_up, msg_err *);
  int (*unlisten)(msg_session *, const msg_actor *, const char *pattern,
                  msg_err *); /* MSG_NOTFOUND: did not listen */
  int (*listeners)(msg_session *, msg_listener_fn, void *arg, msg_err *); /* of the whole queue */
  /** Ask nodes that live and whose listening the store does not know by itself; `listeners` and
   *  `presence_list` give what they answered. `id`: of the question. `first`: put it; else only
   *  see how many are still to answer: *silent. NULL: the store knows by itself. */
  int (*ask_listeners)(msg_session *, const msg_actor *, const msg_oid *id, bool first,
                       size_t *silent, msg_err *);
  /** Broadcasts of others, and directs and answers to the node, also those it sent itself: not
   *  yet seen by it, due, not expired, in delivery order. Appends to *out. Marks nothing. No
   *  rows: MSG_OK with nothing appended. */
  int (*unseen)(msg_session *, const msg_actor *, const msg_unseen *, msg_list *out, msg_err *);
  /** Mark what `unseen` gave, all or none. won[i]: it is this caller's to hand out (false: another
   *  thread of the same node was faster, or it is gone or expired meanwhile). Without
   *  MSG_CAP_HOST_TXN the marks become durable behind it: another process that has the node's id
   *  may win the same. */
  int (*seen)(msg_session *, const msg_actor *, const msg_list *, bool *won, msg_err *);
  /** The same, without I/O, for what came lately, pushed or given by `unseen`, and was handed to
   *  nobody of this process: it is taken for granted that it is still there. Stores with
   *  MSG_CAP_PUSH; NULL: never. Errors: MSG_UNSUPPORTED: nothing is done, `seen` does it. */
  int (*seen_soon)(msg_session *, const msg_actor *, const msg_list *, bool *won, msg_err *);
  /** Which of those that were pushed or given by `unseen` would `seen` win? Needs their ids alone,
   *  marks nothing. Stores with seen_soon; NULL: never. */
  int (*still_unseen)(msg_session *, const msg_actor *, const msg_list *, bool *still, msg_err *);

  /** Lease up to count ready messages in delivery order; appends them with owner, token, attempts,
   *  since, until. One winner each. None ready: MSG_OK with nothing appended. Those over
   *  max_attempts go dead instead. */
  int (*claim)(msg_session *, const msg_actor *, const msg_claim *, msg_list *out, msg_err *);
  /** Could a claim have something now? Reads only. */
  int (*claimable)(msg_session *, const msg_actor *, const msg_claim *, bool *out, msg_err *);
  /** All items in one batch; an item that is not theirs, or has the id of an earlier one that was
   *  done, is done = false and changes nothing. ACK removes. RELEASE keeps attempts. */
  int (*settle)(msg_session *, const msg_actor *, const msg_settle *, msg_settle_item *items,
                size_t n, msg_err *);

  /** What a transaction of the host did, as the last step before its commit. Stores without
   *  MSG_CAP_HOST_TXN; NULL else. All or nothing: MSG_LOCKED (text names it) if an item of a settle
   *  is not theirs any more. Times of the puts are stamped anew: what was due at once is sent now.
   *  Not to be tried again: undo what failed with `reached`. Bounded by write_timeout_ms. */
  int (*apply)(msg_session *, const msg_actor *, msg_unit *, msg_err *);
  /** Take back what apply did or may have done, as far as nobody has acted on it since: messages
   *  that nobody has taken are removed, what was settled is ready again. Where the store is out of
   *  reach it goes on trying in the background. Bounded like apply. */
  int (*undo)(msg_session *, const msg_actor *, msg_unit *, msg_err *);

  /** Errors: MSG_NOTFOUND; MSG_MISUSE deliver_at of a claimed message. */
  int (*update)(msg_session *, const msg_actor *, const msg_oid *id, const msg_update *, msg_err *);
  int (*remove)(msg_session *, const msg_actor *, const msg_oid *id,
                msg_err *); /* any state; MSG_NOTFOUND */
  /** Remove everything of the topic(s) that is not claimed. */
  int (*purge)(msg_session *, const msg_actor *, const msg_pattern *, int64_t *count, msg_err *);
  /** Dead letters back to ready, attempts 0. */
  int (*redrive)(msg_session *, const msg_actor *, const msg_pattern *, int64_t *count, msg_err *);

  int (*topics)(msg_session *, msg_count_fn, void *arg, msg_err *);
  int (*queues)(msg_session *, msg_count_fn, void *arg, msg_err *); /* every queue of the place */

  int (*presence_put)(msg_session *, const msg_participant *, msg_err *); /* insert or refresh */
  int (*presence_list)(msg_session *, msg_participant_fn, void *arg, msg_err *);
  /** Remove a participant, and its listeners if its id was automatic. only_dead: MSG_MISUSE if it
   *  is alive. MSG_NOTFOUND. */
  int (*presence_withdraw)(msg_session *, const char *node, bool only_dead, msg_err *);
  int (*lanes)(msg_session *, msg_lane_fn, void *arg, msg_err *);
  /** Drop an empty lane whose owner is not alive; else MSG_MISUSE with the reason. MSG_NOTFOUND. */
  int (*lane_drop)(msg_session *, const char *lane, msg_err *);

  /** The next time at which something changes without a commit (a delay, a lease or a life ends),
   *  MSG_NEVER if none. Reads only. */
  int (*deadline)(msg_session *, int64_t *at_ms, msg_err *);
  /** A request was not answered in time: can answers of somebody who lives not come? MSG_MISUSE:
   *  text names one. NULL: all can. */
  int (*unanswered)(msg_session *, const msg_actor *, const msg_message *request, msg_err *);
  /** Something about the place that users should read, such as nodes of another layout: each once.
   *  False: nothing new. No I/O. NULL: never. */
  bool (*warning)(msg_session *, char *out, size_t size);
  /** Facts for msg_doctor: (item, value, advice or NULL). */
  int (*describe)(msg_session *, msg_describe_fn, void *arg, msg_err *);

  /* ---- watch: its cursor thread ---- */
  /** Block until something may have changed or the monotonic deadline. MSG_TIMEOUT is normal. Also
   *  returns CHANGED when a deadline of the store passes and when the process of a claim's owner
   *  ends. MSG_SHUTDOWN after watch_wake. The first call after watch_open returns CHANGED: what
   *  came before is not known. MSG_UNAVAILABLE: the place is gone (file replaced or removed): close
   *  it. */
  int (*watch_next)(msg_watch *, int64_t deadline_mono_ms, msg_event *out, msg_err *);
  void (*watch_wake)(msg_watch *); /* any thread: end the current and every later watch_next */
  /** While muted, the watch touches nothing of the store: a reader of an embedded file can be in
   *  its writer's way. Returns when it touches nothing any more. A watch is born unmuted. Optional.
   *  Thread: any. Blocks: for the length of one look. */
  void (*watch_mute)(msg_watch *, bool muted);
  void (*watch_info)(const msg_watch *, msg_watch_info *out); /* any thread */
  void (*watch_close)(msg_watch *);
};

/* First member of every adapter's object; calls go through the ops: s->ops->put(s, ...). */
struct msg_store {
  const struct msg_store_ops *ops;
};
struct msg_session {
  const struct msg_store_ops *ops;
};
struct msg_watch {
  const struct msg_store_ops *ops;
};
struct msg_find {
  const struct msg_store_ops *ops;
};

#endif
