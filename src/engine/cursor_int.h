/* cursor_int.h - a cursor's inside, for its thread. */
#ifndef MSG_ENGINE_CURSOR_INT_H
#define MSG_ENGINE_CURSOR_INT_H

#include "base/thread.h"
#include "engine/cursor.h"

/* What comes next is named without MSG_CURSOR_. */
enum msg_cursor_state {
  MSG_CURSOR_OFF,      /* no thread. Next: STARTING (a wait, while somebody is attached) */
  MSG_CURSOR_STARTING, /* opens the watch, or pauses before a retry. Next: RUNNING, STOPPING,
                          JOINABLE */
  MSG_CURSOR_RUNNING,  /* follows the watch. Next: STARTING (watch failed), STOPPING, JOINABLE
                          (place gone) */
  MSG_CURSOR_STOPPING, /* asked to end. Next: JOINABLE */
  MSG_CURSOR_JOINABLE  /* the thread touches nothing any more. Next: OFF (joined) */
};

struct msg_cursor {
  /* immutable after new */
  msg_store *store;
  bool watchable; /* MSG_CAP_WATCH */
  bool tends;     /* MSG_CAP_TEND: its watch is no mere hint, silence means that nothing came */
  bool pushes;    /* MSG_CAP_PUSH */
  msg_mutex *mtx;
  msg_cond *control; /* for the thread and who stops it: state, pins */
  atomic_bool gone;  /* the watch said MSG_UNAVAILABLE */
  /* moves when messages may have come that were not pushed */
  _Atomic uint32_t epoch;
  atomic_bool pushing; /* what comes is pushed */

  /* cursor thread only, from STARTING to JOINABLE; else guarded by mtx */
  msg_settings settings;
  int64_t backoff_ms;
  int64_t opened_mono_ms; /* the open watch */

  /* shared: guarded by mtx */
  enum msg_cursor_state state;
  msg_thread *thread;
  msg_watch *watch; /* the open one; closed by the thread, never while pinned */
  int pins;         /* other threads that are inside the watch */
  int attached, waiters;
  msg_gate **gates; /* of waiters; they move after whatever those are to notice has changed */
  size_t gate_count, gate_cap;
  bool refused;          /* the watch said MSG_UNSUPPORTED: waiters poll */
  bool failing;          /* the last attempt failed */
  int64_t retry_at_ms;   /* monotonic: no thread could be made, try again then */
  msg_err last_error;    /* rc MSG_OK: none */
  int64_t last_event_ms; /* wall; 0 never */
  int64_t event_mono_ms; /* monotonic, of an event nothing was handed out for yet; 0 none */
  int64_t lag_ms, restarts;
};

/** What comes is pushed from now on, or is not any more: who waits looks at the store.
 *  Holds: mtx. */
void msg_cursor_turn_locked(msg_cursor *c, bool pushing);
/** The watch is muted while nobody waits, so that it is not in the way of the host. */
void msg_cursor_mute_if_idle(msg_cursor *c);

/* Changed by tests alone, before any thread runs: msg_cursor_tune. */
extern struct msg_cursor_tuning {
  int64_t backoff_first_ms, backoff_cap_ms, silence_ms;
} msg_cursor_tuned;

#endif
