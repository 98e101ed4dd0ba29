#include "base/patience.h"

#include "base/clock.h"

#define SLICE_MAX_MS 50

msg_patience msg_patience_of(int64_t timeout_ms) {
  return (msg_patience){msg_clock_add(msg_clock_mono_ms(), timeout_ms), 1};
}

int msg_patience_wait(msg_patience *p, bool interrupted, const char *what, msg_err *err) {
  int64_t left_ms = p->until_ms - msg_clock_mono_ms();
  if (p->until_ms == 0 || left_ms <= 0)
    return MSG_BUSY;
  if (interrupted)
    return msg_err_set(err, MSG_INTERRUPTED, "%s: interrupted while waiting for a lock", what);
  msg_clock_sleep_ms(left_ms < p->slice_ms ? left_ms : p->slice_ms);
  p->slice_ms = p->slice_ms * 2 < SLICE_MAX_MS ? p->slice_ms * 2 : SLICE_MAX_MS;
  return MSG_OK;
}
