/* notify.h - the operating system's word that a file was written to, and a bell to end the wait
 * for it.
 *
 * Linux: inotify, which opens no descriptor on the file (closing one would drop SQLite's POSIX
 * locks). Elsewhere, or when a limit is reached, there is no word and only the bell: the caller
 * looks itself. */
#ifndef MSG_LOCAL_NOTIFY_H
#define MSG_LOCAL_NOTIFY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

typedef struct msg_local_notify msg_local_notify;

enum {
  MSG_NOTIFY_RUNG = 1u << 0,    /* the bell: stays, once rung */
  MSG_NOTIFY_WRITTEN = 1u << 1, /* the file or its -wal was written to, or a -wal appeared */
  MSG_NOTIFY_GONE = 1u << 2     /* the file may have been moved, removed or replaced */
};

/** Watch `path` and `path`-wal.
 *  Owns:   *out is the caller's (msg_local_notify_free).
 *  Errors: MSG_NOMEM; MSG_BACKEND no bell to be had (errno domain). */
int msg_local_notify_new(const char *path, msg_local_notify **out, msg_err *err);
void msg_local_notify_free(msg_local_notify *n);
/** Wait up to timeout_us (negative is 0). deaf: for the bell only; words heard meanwhile are
 *  kept for the next call.
 *  Returns what came, 0 for nothing. Thread: one. */
unsigned msg_local_notify_wait(msg_local_notify *n, int64_t timeout_us, bool deaf);
/** False: no word will come, look yourself. Thread: any. */
bool msg_local_notify_works(const msg_local_notify *n);
/** Is there a watch on the -wal? While there is none, wait at most a moment. Thread: that of
 *  wait. */
bool msg_local_notify_whole(const msg_local_notify *n);
/** Ring the bell. Thread: any. */
void msg_local_notify_ring(msg_local_notify *n);

#endif
