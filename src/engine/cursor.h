/* cursor.h - the cursor thread of one store: follows its watch, puts what it pushes into the nodes'
 * inboxes, and makes waiters look again.
 *
 * Every store of the registry has one cursor, shared by its nodes. The thread starts at the first
 * wait while a connection is attached, and is stopped and joined when the last one detaches.
 * Without it (no watch, nobody attached, watch failing) waiters look on their own, every
 * poll_pause_ms. Private to engine/. All functions: any thread, hold no lock. */
#ifndef MSG_ENGINE_CURSOR_H
#define MSG_ENGINE_CURSOR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/gate.h"
#include "engine/cursors.h"
#include "model/settings.h"
#include "store/store.h"

/* How long a stop waits for the thread: at the last detach, and in all at exit. */
#define MSG_CURSOR_STOP_MS 2000

typedef struct msg_cursor msg_cursor;

/** For a store that outlives it. NULL when memory is out. */
msg_cursor *msg_cursor_new(msg_store *store);
/** After a msg_cursor_stop that returned true. NULL allowed. */
void msg_cursor_free(msg_cursor *c);

/** `n` connections that may wait have come. */
void msg_cursor_attach(msg_cursor *c, int n);
/** One of them is about to withdraw its node and go. Where the watch tends the store and this is
 *  the last, the thread is asked to end: a stream ends with the next write, which is the
 *  withdrawal. */
void msg_cursor_leaves(msg_cursor *c);
/** They have gone. Blocks: up to MSG_CURSOR_STOP_MS when they were the last. */
void msg_cursor_detach(msg_cursor *c, int n);

/** Ask the thread to end; does not wait. */
void msg_cursor_request_stop(msg_cursor *c);
/** The same, and join it. False: it still runs at the monotonic deadline, and may be asked
 *  again. */
bool msg_cursor_stop(msg_cursor *c, int64_t deadline_ms);
/** The process exits: no thread starts any more, and every wait ends. */
void msg_cursor_exit(void);

/* ---- waiting ---- */

/** A gate on which waits sleep: the cursor moves it when they shall look again. Read it before a
 *  look, hand what it said to sleep after it. Errors: MSG_NOMEM. */
int msg_cursor_join(msg_cursor *c, msg_gate *gate);
/** Before it is freed. One that never joined is allowed. */
void msg_cursor_quit(msg_cursor *c, const msg_gate *gate);
/** The same number as before: all that has come since was pushed. 0: it is not pushed. */
uint32_t msg_cursor_epoch(msg_cursor *c);
/** What was pushed was lost: every waiter looks at the store. */
void msg_cursor_lose(msg_cursor *c);

/** A wait begins / is over. */
void msg_cursor_enter(msg_cursor *c);
void msg_cursor_leave(msg_cursor *c);

/** Start the thread if it may run and does not. True: it follows a watch, so that sleeping for its
 *  wake is enough. False: look again before long.
 *  Args: settings are those of the node that waits; the thread keeps a copy. follow is what it
 *  runs: msg_follow, which this file does not know. */
bool msg_cursor_rouse(msg_cursor *c, const msg_settings *settings, void (*follow)(void *));

enum msg_wake {
  MSG_WAKE_TIME,    /* until_ms is there, or a signal came */
  MSG_WAKE_CHANGED, /* the gate is not at `mark` any more */
  MSG_WAKE_GONE,    /* the place is gone: msg_cursor_gone has the text */
  MSG_WAKE_SHUT     /* *shut, or the process exits */
};
/** Sleep on a gate that joined until the monotonic until_ms or one of the reasons above. */
enum msg_wake msg_cursor_sleep(msg_cursor *c, msg_gate *gate, uint32_t mark, int64_t until_ms,
                               const atomic_bool *shut);
/** Why the place is gone. Returns MSG_UNAVAILABLE. */
int msg_cursor_gone(msg_cursor *c, msg_err *err);
/** Something was handed out: the lag of the last event ends here. */
void msg_cursor_handed(msg_cursor *c);

/** A snapshot. Owns: info->last_error points into *error; the other texts live as long as the
 *  store. */
void msg_cursor_look(msg_cursor *c, msg_cursor_info *info, msg_err *error);

/** Tests, before any thread runs: first and longest pause after a failure, and the silence after
 *  which waiters look all the same. Zeros restore the defaults. */
void msg_cursor_tune(int64_t backoff_first_ms, int64_t backoff_cap_ms, int64_t silence_ms);

#endif
