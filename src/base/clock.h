/* clock.h - time. Wall time is ms since the epoch, UTC. */
#ifndef MSG_BASE_CLOCK_H
#define MSG_BASE_CLOCK_H

#include <stdint.h>

/* "no such time": later than every other. */
#define MSG_NEVER INT64_MAX

/** Wall clock, ms. Tests may shift it. Thread: any. */
int64_t msg_clock_now_ms(void);
/** Monotonic clock, ms: for waits and their deadlines, never stored. */
int64_t msg_clock_mono_ms(void);
/** A slice of a wait for another process's lock, of which no notice comes. Not sqlite3_sleep: where
 *  SQLite was built without usleep that rounds up to whole seconds. Ends early on a signal. */
void msg_clock_sleep_ms(int64_t ms);
/** Tests: add `shift_ms` to the wall clock (0 restores it). */
void msg_clock_shift(int64_t shift_ms);
/** The shift in force: for stores that judge times by another clock. */
int64_t msg_clock_shifted(void);
/** now + delta, saturating at MSG_NEVER. delta >= 0. */
int64_t msg_clock_add(int64_t now_ms, int64_t delta_ms);

#endif
