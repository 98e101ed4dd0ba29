/* patience.h - waiting for another process's lock, of which no notice comes: in slices of random
 * length that grow to 25 ms, up to a deadline. An interrupt ends it, and nobody starves behind
 * others who take the lock in turns. Owner thread only. */
#ifndef MSG_BASE_PATIENCE_H
#define MSG_BASE_PATIENCE_H

#include <stdint.h>

#include "base/err.h"

typedef struct msg_patience {
  int64_t until_ms; /* monotonic; 0: does not wait at all */
  int slice_ms;     /* the longest now */
  uint32_t noise;
} msg_patience;

/** From now on for `timeout_ms`. Made before the first try: what a busy handler of the host
 *  draws out counts too. */
msg_patience msg_patience_of(int64_t timeout_ms);
/** Wait one slice. `interrupted`: the caller was, just now; `what` begins the text.
 *  MSG_OK: try again. Errors: MSG_BUSY no time left, *err untouched; MSG_INTERRUPTED. */
int msg_patience_wait(msg_patience *p, bool interrupted, const char *what, msg_err *err);

#endif
