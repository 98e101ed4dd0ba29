/* horizon.h - how far a session knows that there is nothing new for a node.
 *
 * A look by pattern asks every topic; with a thousand topics that takes long. When a look found
 * nothing, only what got a number since then can be new: whatever becomes visible gets a new
 * number. So the next look reads just those rows. Kept in memory, of committed snapshots only: a
 * rollback cannot undo it. A listener added meanwhile begins at or above the horizon; one that
 * catches up has a start of its own (negative, random), which is part of the key. Private to
 * store/local; the session's thread. */
#ifndef MSG_LOCAL_HORIZON_H
#define MSG_LOCAL_HORIZON_H

#include "store/local/session.h"

/* `only`: pattern looked for, "" for all of the node's. starts: mix of the starts of those that
 * catch up. */
typedef struct msg_local_horizon {
  char *node, *only;
  int64_t starts;
  int64_t seq; /* nothing new up to here */
} msg_local_horizon;

/** -1 when nothing is known. */
int64_t msg_local_horizon_get(const msg_local_session *s, const char *node, const char *only,
                              int64_t starts);
/** Remember; forgets it where memory is out. */
void msg_local_horizon_set(msg_local_session *s, const char *node, const char *only, int64_t starts,
                           int64_t seq);
void msg_local_horizons_free(msg_local_session *s);

#endif
