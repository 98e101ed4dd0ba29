/* mongo.h - the store and its sessions, and what every file of this room shares. Private to
 * store/mongo.
 *
 * One database holds every queue of a place. A session keeps no client: each call takes one from
 * the store's pool for operations and gives it back; a cursor thread takes one from the pool for
 * cursors and keeps it. Nothing here is kept over a fork. */
#ifndef MSG_MONGO_MONGO_H
#define MSG_MONGO_MONGO_H

#include <stdatomic.h>

#include "base/thread.h"
#include "store/mongo/driver.h"
#include "store/mongo/layout.h"
#include "store/store.h"

/* Time limits, ms. */
#define MSG_MONGO_SELECT_MS  5000  /* until a fitting server is found */
#define MSG_MONGO_SOCKET_MS  10000 /* one answer of a server */
#define MSG_MONGO_WRITE_MS   5000  /* a majority write for which nobody waits */
#define MSG_MONGO_POOL_MS    5000  /* a free client */
#define MSG_MONGO_AWAIT_MS   1000  /* one round of a change stream */
#define MSG_MONGO_DONE_MS    60000 /* a message outlives a claim by so much, whatever its ttl */
#define MSG_MONGO_KEPT_MS    10000 /* a settled message stays so long, so that a retry sees it */
#define MSG_MONGO_OPERATIONS 64    /* clients for operations */
#define MSG_MONGO_CURSORS    64    /* clients for cursor threads */

/* One queue in this process, in one layout. Lives as long as the store. */
typedef struct msg_mongo_queue {
  struct msg_mongo_queue *next;
  /* immutable */
  char *name;
  const msg_mongo_layout *layout;
  msg_mongo_names names;
  struct msg_mongo_place *main; /* NULL: there are as many as topics */
  /* shared: atomic. Monotonic: when to ask who is there; 0 nobody here wants to know. registry.h */
  _Atomic int64_t registry_due_ms;
  atomic_bool registry_asked; /* whoever lives could answer since */
  /* shared: guarded by the store's mtx */
  struct msg_mongo_regret *regrets; /* regret.h */
} msg_mongo_queue;

typedef struct msg_mongo_store {
  msg_store base;
  /* immutable after open */
  char *hosts; /* "host:port,host:port": the place, for texts */
  char *db;
  mongoc_client_pool_t *operations, *cursors;
  bool replicated; /* replica set or sharded: transactions, change streams; false: standalone */
  bool sharded;
  int generation;          /* msg_fork_generation: unusable in another */
  char version[24];        /* of the server that answered first */
  int64_t clock_offset_ms; /* server minus this machine; 0 when they agree within the round trip */
  struct msg_mongo_tend *tend; /* tend.h: listeners, own nodes, deadlines; its own lock */
  void (*chores)(void *store); /* what the marker does: chores.h */
  /* shared: atomic. A change stream tells what comes: looks give only what is durable, so that it
   * is known which of it the stream has still to tell */
  atomic_bool streams;
  /* shared: guarded by mtx */
  msg_mutex *mtx;
  msg_mongo_queue *queues;
  struct msg_mongo_place *places; /* place.h */
  struct msg_mongo_met *met;      /* where.h; NULL none yet */
  msg_thread *marker;             /* chores.h; NULL not started */
  msg_cond *marks_changed;
  uint64_t marks_handed;  /* how many were handed out */
  int64_t marks_due_ms;   /* monotonic: the marker waits until then; 0 for nothing */
  int64_t marks_first_ms; /* monotonic: since when some wait for it; 0 none */
  bool marks_stop;
  struct msg_mongo_undone { /* claims rolled back, at most 4096, oldest forgotten */
    msg_oid id;
    int32_t count;
  } * undone;
  size_t undone_count, undone_cap;
} msg_mongo_store;

typedef struct msg_mongo_session {
  msg_session base;
  /* immutable after open */
  msg_mongo_store *store;
  msg_mongo_queue *queue;
  struct msg_mongo_place *place;  /* where its messages are; NULL: there are many (place.h) */
  msg_mongo_names names;          /* messages and locks: of the place */
  int64_t participant_timeout_ms; /* from the settings of session_open, as the rest */
  int64_t write_timeout_ms;
  int64_t update_ms;     /* registry_update_interval_s */
  bool registry, sweeps; /* registry_enabled; and dm_cleanup_orphans_on_startup */
  bool lean;             /* only the indexes that we need */
  char check;            /* implementation_check: 'w', 't', 'i' */
} msg_mongo_session;

/* ---- pool.c: clients ---- */

/* A client on loan. */
typedef struct msg_mongo_use {
  msg_mongo_store *store;
  mongoc_client_pool_t *pool;
  mongoc_client_t *client;
  int64_t until_ms; /* monotonic: nothing is tried again after it */
  bool bounded;     /* and no answer is waited for */
} msg_mongo_use;

/** Take a client for operations, waiting at most MSG_MONGO_POOL_MS. `what` begins the error's text.
 *  Each answer may take MSG_MONGO_SOCKET_MS: for looks, which read much, and for threads of ours.
 *  Errors: MSG_UNAVAILABLE none came free; MSG_FORKED. */
int msg_mongo_take(msg_mongo_store *store, const char *what, msg_mongo_use *out, msg_err *err);
/** The same for a verb whose answers all have to come within the session's write_timeout_ms. Until
 *  the give, no other is taken by this thread. */
int msg_mongo_take_bounded(msg_mongo_session *s, const char *what, msg_mongo_use *out,
                           msg_err *err);
/** The same from the pool for cursor threads. */
int msg_mongo_take_cursor(msg_mongo_store *store, const char *what, msg_mongo_use *out,
                          msg_err *err);
/** Before a command on it: what is left of its time, if that is bounded, bounds the answer. */
void msg_mongo_bound(const msg_mongo_use *u);
/** Give it back. A use of zeroes is allowed. */
void msg_mongo_give(msg_mongo_use *u);
/** A collection of the store's database by name: mongoc_collection_destroy before the give. */
mongoc_collection_t *msg_mongo_collection(msg_mongo_use *u, const char *name);

/* ---- fail.c: errors ---- */

/** Map a driver's error; `reply` may be NULL. Text: "<what>: <cause> (MongoDB at <hosts>)".
 *  Returns AUTH, UNAVAILABLE (err->retry: repeating is safe), EXISTS (11000), TOOBIG, UNSUPPORTED,
 *  else BACKEND. err->native is the server's or the driver's code. */
int msg_mongo_fail(const msg_mongo_store *store, const char *what, const bson_error_t *error,
                   const bson_t *reply, msg_err *err);
/** Is it a duplicate key (11000)? */
bool msg_mongo_is_duplicate(const bson_error_t *error, const bson_t *reply);
/** Is the outcome of the write unknown, or was it refused before it began: may an idempotent one
 *  be tried again? Network errors, stepdowns. */
bool msg_mongo_is_passing(const bson_error_t *error, const bson_t *reply);
bool msg_mongo_has_label(const bson_t *reply, const char *label);

/* ---- clock.c: the server's time ---- */

/** The server's time as this machine knows it: for index bounds and times of messages. */
int64_t msg_mongo_now_ms(const msg_mongo_store *store);

/* ---- run.c: commands ---- */

/** To the opts of a look: so many at most, all by one reply where they fit into it. */
void msg_mongo_append_limit(bson_t *opts, int64_t limit);
/** To the opts of a look for what may be handed out: see msg_mongo_store.streams. */
void msg_mongo_append_durable(const msg_mongo_store *store, bson_t *opts);

/* What an update, insert or delete did. */
typedef struct msg_mongo_result {
  int64_t matched, modified, inserted, deleted;
} msg_mongo_result;

/** update_many by filter and pipeline (a BSON array) or modifiers. Tried again on a passing error,
 *  and where the collection is dropped under it: it must be idempotent. out may be NULL. */
int msg_mongo_update(msg_mongo_use *u, const char *collection, const char *what,
                     const bson_t *filter, const bson_t *change, msg_mongo_result *out,
                     msg_err *err);
/** The same, durable only with the next write; where none matches, one is put. */
int msg_mongo_upsert_soon(msg_mongo_use *u, const char *collection, const char *what,
                          const bson_t *filter, const bson_t *change, msg_err *err);
/** delete_many. */
int msg_mongo_delete(msg_mongo_use *u, const char *collection, const char *what,
                     const bson_t *filter, msg_mongo_result *out, msg_err *err);
/** Read from the primary; opts: projection, sort, limit. NULL: MSG_NOMEM. */
mongoc_cursor_t *msg_mongo_query(msg_mongo_use *u, const char *collection, const bson_t *filter,
                                 const bson_t *opts);
/** Next document of a cursor: MSG_OK, MSG_NOTFOUND at the end. *doc lives until the next call. */
int msg_mongo_next(msg_mongo_use *u, mongoc_cursor_t *cursor, const char *what, const bson_t **doc,
                   msg_err *err);
/** For each document of a query; a non-zero return of `row` ends it and is returned, but
 *  MSG_NOTFOUND: that is all. A collection that is dropped before the first row has none. */
typedef int (*msg_mongo_row_fn)(void *arg, const bson_t *doc, msg_err *err);
int msg_mongo_each(msg_mongo_use *u, const char *collection, const char *what, const bson_t *filter,
                   const bson_t *opts, msg_mongo_row_fn row, void *arg, msg_err *err);
/** The same of an aggregation ({pipeline: [...]}), by one reply if that is large enough. */
int msg_mongo_aggregate_each(msg_mongo_use *u, const char *collection, const char *what,
                             const bson_t *pipeline, msg_mongo_row_fn row, void *arg, msg_err *err);
/** Run an aggregation until it gives its first row. *cursor is the caller's, also on an error;
 *  *first lives until it is asked for the next. `opts` may be NULL. A collection that is dropped
 *  meanwhile has nothing. Errors: MSG_NOTFOUND no row, those of msg_mongo_fail. */
int msg_mongo_aggregate(msg_mongo_use *u, const char *collection, const char *what,
                        const bson_t *pipeline, const bson_t *opts, mongoc_cursor_t **cursor,
                        const bson_t **first, msg_err *err);

/* ---- undone.c ---- */

void msg_mongo_claims_undone(msg_store *, const msg_oid *ids, size_t n);
/** Are there rolled-back deliveries? Cheap. */
bool msg_mongo_undone_any(msg_mongo_store *store);
/** Rolled-back deliveries of one message; they are forgotten. */
int32_t msg_mongo_undone_take(msg_mongo_store *store, const msg_oid *id);

/* ---- mongo.c ---- */

extern const struct msg_store_ops msg_mongo_ops;

/* ---- queue.c ---- */

/** Put a new session on a queue, made at first use.
 *  Errors: MSG_INVALID as msg_mongo_names_of; MSG_UNSUPPORTED the server is too old for the layout.
 */
int msg_mongo_session_set(msg_mongo_session *s, const char *queue, const msg_mongo_layout *layout,
                          msg_err *err);
/** *out: like `s`, but on another queue. To be used within the call, never closed. */
int msg_mongo_session_on(const msg_mongo_session *s, const char *queue, msg_mongo_session *out,
                         msg_err *err);
/** Free all of a store, whose threads are gone. */
void msg_mongo_queues_free(msg_mongo_store *store);

/* ---- indexes.c ---- */

/** Make what is missing of the indexes at the session's place, once a process and place. Called by
 *  verbs that write. */
int msg_mongo_indexes(msg_mongo_session *s, msg_mongo_use *u, msg_err *err);
/** From now on they are made for groups, for directs, for answers, too. */
void msg_mongo_need_groups(msg_mongo_session *s);
void msg_mongo_need_directs(msg_mongo_session *s);
void msg_mongo_need_answers(msg_mongo_session *s);
/** Has a collection, if it is there at all, an index of this name? */
int msg_mongo_has_index(msg_mongo_use *u, const char *collection, const char *what,
                        const char *name, bool *out, msg_err *err);
/** Are they known to be there? */
bool msg_mongo_is_indexed(msg_mongo_session *s);
/** The collection went, or may have: they are looked for again. */
void msg_mongo_forget_indexes(msg_mongo_session *s);
/** After the error of a query that named one: were they dropped, or are they still being built?
 *  Then they are forgotten: try again, which makes or waits for them. */
bool msg_mongo_lost_indexes(msg_mongo_session *s, const msg_err *err);

/* ---- sweep.c ---- */

/** Return, bury or remove at most 256 messages that are due: delays over, leases over, lives over.
 *  Looks at most once in 50 ms a process and queue unless `force`. One call when nothing is due.
 *  *moved (may be NULL): how many. */
int msg_mongo_sweep(msg_mongo_session *s, msg_mongo_use *u, int64_t max_attempts, bool force,
                    int *moved, msg_err *err);
/** Before a look at a queue: what is due of what waits goes out. Nothing where nothing waits
 *  apart. */
int msg_mongo_sweep_apart(const msg_mongo_session *s, msg_mongo_use *u, msg_err *err);
/** For a thread that idles: what no time tells of groups, if it is time for it and the queue has
 *  groups. *moved as above. */
int msg_mongo_sweep_groups(msg_mongo_session *s, int *moved, msg_err *err);

/* ---- marks.c ---- */

/** Wait until what was handed out is marked in this queue, at most for write_timeout_ms: for verbs
 *  that show who has seen what. */
void msg_mongo_seen_flush(msg_mongo_session *s);

/* ---- listen.c ("watch"): what a node listens to ---- */

typedef struct msg_mongo_listen {
  char *pattern;
  int64_t since_ms; /* broadcasts delivered after it (deliver_at > since); INT64_MIN: all */
  msg_oid *before;  /* but for these, which were there already */
  size_t before_count;
} msg_mongo_listen;
/** The patterns of a node in this queue; the caller's (msg_mongo_listens_free). */
int msg_mongo_listens(msg_mongo_session *s, msg_mongo_use *u, const char *node,
                      msg_mongo_listen **out, size_t *n, msg_err *err);
void msg_mongo_listens_free(msg_mongo_listen *l, size_t n);

/* ---- the verbs, by file (signatures as in store.h) ----
 * put.c put   find.c find, get   claim.c claim   claimable.c claimable   settle.c settle
 * unseen.c unseen   seen.c seen   update.c update, remove   purge.c purge, redrive
 * count.c topics, queues   deadline.c deadline
 * "watch": listen.c, presence.c, lanes.c, watch.c, describe.c   foreign.c unanswered
 * registry.c ask_listeners */
int msg_mongo_put(msg_session *, const msg_actor *, msg_put *, size_t, msg_err *);
int msg_mongo_find(msg_session *, const msg_filter *, msg_find **, msg_err *);
int msg_mongo_find_next(msg_find *, msg_message *, msg_err *);
void msg_mongo_find_close(msg_find *);
int msg_mongo_get(msg_session *, const msg_oid *, msg_message *, msg_err *);
int msg_mongo_claim(msg_session *, const msg_actor *, const msg_claim *, msg_list *, msg_err *);
int msg_mongo_claimable(msg_session *, const msg_actor *, const msg_claim *, bool *, msg_err *);
int msg_mongo_settle(msg_session *, const msg_actor *, const msg_settle *, msg_settle_item *,
                     size_t, msg_err *);
int msg_mongo_unseen(msg_session *, const msg_actor *, const msg_unseen *, msg_list *, msg_err *);
int msg_mongo_seen(msg_session *, const msg_actor *, const msg_list *, bool *, msg_err *);
int msg_mongo_seen_soon(msg_session *, const msg_actor *, const msg_list *, bool *, msg_err *);
int msg_mongo_still_unseen(msg_session *, const msg_actor *, const msg_list *, bool *, msg_err *);
int msg_mongo_apply(msg_session *, const msg_actor *, msg_unit *, msg_err *);
int msg_mongo_undo(msg_session *, const msg_actor *, msg_unit *, msg_err *);
int msg_mongo_change(msg_session *, const msg_actor *, const msg_oid *, const msg_update *,
                     msg_err *);
int msg_mongo_remove(msg_session *, const msg_actor *, const msg_oid *, msg_err *);
int msg_mongo_purge(msg_session *, const msg_actor *, const msg_pattern *, int64_t *, msg_err *);
int msg_mongo_redrive(msg_session *, const msg_actor *, const msg_pattern *, int64_t *, msg_err *);
int msg_mongo_topics(msg_session *, msg_count_fn, void *, msg_err *);
int msg_mongo_queues(msg_session *, msg_count_fn, void *, msg_err *);
int msg_mongo_deadline(msg_session *, int64_t *, msg_err *);
/** The same for who tends the queue: of the lives only those with which something is to be done. */
int msg_mongo_deadline_tended(msg_mongo_session *, int64_t *, msg_err *);
int msg_mongo_listen_to(msg_session *, const msg_actor *, const char *, bool, msg_err *);
int msg_mongo_unlisten(msg_session *, const msg_actor *, const char *, msg_err *);
int msg_mongo_listeners(msg_session *, msg_listener_fn, void *, msg_err *);
int msg_mongo_ask_listeners(msg_session *, const msg_actor *, const msg_oid *, bool, size_t *,
                            msg_err *);
int msg_mongo_unanswered(msg_session *, const msg_actor *, const msg_message *, msg_err *);
bool msg_mongo_warning(msg_session *, char *, size_t);
int msg_mongo_describe(msg_session *, msg_describe_fn, void *, msg_err *);
int msg_mongo_presence_put(msg_session *, const msg_participant *, msg_err *);
int msg_mongo_presence_list(msg_session *, msg_participant_fn, void *, msg_err *);
int msg_mongo_presence_withdraw(msg_session *, const char *, bool, msg_err *);
int msg_mongo_lanes(msg_session *, msg_lane_fn, void *, msg_err *);
int msg_mongo_lane_drop(msg_session *, const char *, msg_err *);
int msg_mongo_watch_open(msg_store *, const msg_settings *, msg_watch **, msg_err *);
int msg_mongo_watch_next(msg_watch *, int64_t, msg_event *, msg_err *);
void msg_mongo_watch_wake(msg_watch *);
void msg_mongo_watch_info(const msg_watch *, msg_watch_info *);
void msg_mongo_watch_close(msg_watch *);

#endif
