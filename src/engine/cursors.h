/* cursors.h - how this process follows its stores: a snapshot, for people to read. */
#ifndef MSG_ENGINE_CURSORS_H
#define MSG_ENGINE_CURSORS_H

#include <stdint.h>

#include "base/err.h"

typedef struct msg_cursor_info {
  const char *store;     /* place */
  const char *state;     /* "off", "starting", "running", "stopping", "failed" */
  const char *how;       /* "inotify", "poll", ... */
  int64_t last_event_ms; /* wall; 0 never */
  int64_t token_age_ms;  /* -1: none */
  int64_t lag_ms;        /* event to hand-over of the last event; -1 unknown */
  int64_t restarts;
  const char *last_error; /* "" none */
  int waiters;            /* waits going on now */
} msg_cursor_info;
typedef int (*msg_cursor_fn)(void *arg, const msg_cursor_info *row);
/** One row a store of this process. The row is borrowed; a non-zero return ends the walk with that
 *  code. */
int msg_engine_cursors(msg_cursor_fn fn, void *arg, msg_err *err);

#endif
