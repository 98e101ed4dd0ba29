/* local.h - the local store itself, and its verbs: what the ops table (local.c) is made of.
 * Private to store/local. */
#ifndef MSG_LOCAL_LOCAL_H
#define MSG_LOCAL_LOCAL_H

#include "store/local/session.h"
#include "store/local/undone.h"

/* ---- local.c ---- */

struct msg_local_store {
  msg_store base;
  /* immutable after open */
  char *path; /* file name, "" without a file */
  char *vfs;  /* VFS name for our own connections */
  char key[96];
  uint64_t device, inode; /* of path */
  sqlite3_file *file;     /* SQLite's handle; identity without a path, not to be used */
  /* shared */
  msg_local_undone *undone;
};

/* ---- connect.c ---- */

/** A connection of our own on the store's file, through the host's VFS: NOMUTEX, busy timeout 0.
 * `writable` false: read only. */
int msg_local_connect(msg_local_store *store, bool writable, sqlite3 **out, msg_err *err);

/* ---- the verbs, by file; contracts in store.h ----
 * put.c      put                      claim.c   claim, claimable
 * settle.c   settle                   update.c  update
 * admin.c    remove, purge, redrive   find.c    find, find_next, find_close, get
 * listen.c   listen, unlisten, listeners
 * unseen.c   unseen                   seen.c    seen
 * count.c    topics, queues, deadline, describe
 * presence.c presence_*, lanes, lane_drop
 * watch.c    watch_*                  write.c   lock
 * session.c  session_*                local.c   the rest */
int msg_local_lock_now(msg_session *, msg_err *);
int msg_local_put(msg_session *, const msg_actor *, msg_put *, size_t, msg_err *);
int msg_local_claim(msg_session *, const msg_actor *, const msg_claim *, msg_list *, msg_err *);
int msg_local_claimable(msg_session *, const msg_actor *, const msg_claim *, bool *, msg_err *);
int msg_local_settle(msg_session *, const msg_actor *, const msg_settle *, msg_settle_item *,
                     size_t, msg_err *);
int msg_local_update(msg_session *, const msg_actor *, const msg_oid *, const msg_update *,
                     msg_err *);
int msg_local_remove(msg_session *, const msg_actor *, const msg_oid *, msg_err *);
int msg_local_purge(msg_session *, const msg_actor *, const msg_pattern *, int64_t *, msg_err *);
int msg_local_redrive(msg_session *, const msg_actor *, const msg_pattern *, int64_t *, msg_err *);
int msg_local_find(msg_session *, const msg_filter *, msg_find **, msg_err *);
int msg_local_find_next(msg_find *, msg_message *, msg_err *);
void msg_local_find_close(msg_find *);
int msg_local_get(msg_session *, const msg_oid *, msg_message *, msg_err *);
int msg_local_listen(msg_session *, const msg_actor *, const char *, bool, msg_err *);
int msg_local_unlisten(msg_session *, const msg_actor *, const char *, msg_err *);
int msg_local_listeners(msg_session *, msg_listener_fn, void *, msg_err *);
int msg_local_unseen(msg_session *, const msg_actor *, const msg_unseen *, msg_list *, msg_err *);
int msg_local_seen(msg_session *, const msg_actor *, const msg_list *, bool *, msg_err *);
int msg_local_topics(msg_session *, msg_count_fn, void *, msg_err *);
int msg_local_queues(msg_session *, msg_count_fn, void *, msg_err *);
int msg_local_deadline(msg_session *, int64_t *, msg_err *);
int msg_local_describe(msg_session *, msg_describe_fn, void *, msg_err *);
int msg_local_presence_put(msg_session *, const msg_participant *, msg_err *);
int msg_local_presence_list(msg_session *, msg_participant_fn, void *, msg_err *);
int msg_local_presence_withdraw(msg_session *, const char *, bool, msg_err *);
int msg_local_lanes(msg_session *, msg_lane_fn, void *, msg_err *);
int msg_local_lane_drop(msg_session *, const char *, msg_err *);
int msg_local_watch_open(msg_store *, const msg_settings *, msg_watch **, msg_err *);
int msg_local_watch_next(msg_watch *, int64_t, msg_event *, msg_err *);
void msg_local_watch_wake(msg_watch *);
void msg_local_watch_mute(msg_watch *, bool);
void msg_local_watch_info(const msg_watch *, msg_watch_info *);
void msg_local_watch_close(msg_watch *);
int msg_local_session_open(msg_store *, msg_host *, const char *, const msg_settings *,
                           msg_session **, msg_err *);
void msg_local_session_close(msg_session *);
void msg_local_session_release(msg_session *);

#endif
