#include "base/patience.h"

#include "base/clock.h"

#define SLICE_MAX_MS 25

msg_patience msg_patience_of(int64_t timeout_ms) {
  return (msg_patience){msg_clock_add(msg_clock_mono_ms(), timeout_ms), 1, 0};
}

/* 1 to slice_ms. Not to be foretold, but no more: who waits shall not keep in step with others. */
static int64_t next_ms(msg_patience *p) {
  if (p->noise == 0)
    p->noise = (uint32_t)(uintptr_t)p ^ (uint32_t)p->until_ms;
  p->noise = p->noise * 1664525u + 1013904223u;
  return 1 + (int64_t)(p->noise >> 16) % p->slice_ms;
}

int msg_patience_wait(msg_patience *p, bool interrupted, const char *what, msg_err *err) {
  int64_t left_ms = p->until_ms - msg_clock_mono_ms();
  if (p->until_ms == 0 || left_ms <= 0)
    return MSG_BUSY;
  if (interrupted)
    return msg_err_set(err, MSG_INTERRUPTED, "%s: interrupted while waiting for a lock", what);
  int64_t ms = next_ms(p);
  msg_clock_sleep_ms(left_ms < ms ? left_ms : ms);
  p->slice_ms = p->slice_ms * 2 < SLICE_MAX_MS ? p->slice_ms * 2 : SLICE_MAX_MS;
  return MSG_OK;
}
