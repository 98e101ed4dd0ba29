#include "base/clock.h"

#include <stdatomic.h>
#include <time.h>

/* Wall minus system clock, ms; only tests set it. Atomic, as cursor threads read it meanwhile. */
static _Atomic int64_t shift;

static int64_t read_ms(clockid_t clock) {
  struct timespec ts;
  if (clock_gettime(clock, &ts) != 0)
    return 0;
  return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

int64_t msg_clock_now_ms(void) {
  return read_ms(CLOCK_REALTIME) + atomic_load_explicit(&shift, memory_order_relaxed);
}

int64_t msg_clock_mono_ms(void) {
  return read_ms(CLOCK_MONOTONIC);
}

void msg_clock_sleep_ms(int64_t ms) {
  struct timespec ts = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000L};
  if (ms > 0)
    nanosleep(&ts, NULL);
}

void msg_clock_shift(int64_t shift_ms) {
  atomic_store_explicit(&shift, shift_ms, memory_order_relaxed);
}

int64_t msg_clock_shifted(void) {
  return atomic_load_explicit(&shift, memory_order_relaxed);
}

int64_t msg_clock_add(int64_t now_ms, int64_t delta_ms) {
  if (delta_ms <= 0)
    return now_ms;
  return now_ms > MSG_NEVER - delta_ms ? MSG_NEVER : now_ms + delta_ms;
}
