/* gate.h - a number that threads sleep on until it moves. Cheaper than a mutex and a condition for
 * those who mostly wake by the clock to find it unmoved. */
#ifndef MSG_BASE_GATE_H
#define MSG_BASE_GATE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct msg_gate msg_gate;

/** At 0. NULL when memory is out. free accepts NULL; nobody may sleep there any more. */
msg_gate *msg_gate_new(void);
void msg_gate_free(msg_gate *g);

/** The number, which begins anew after 2^32 moves. What was written before the move that made it is
 *  seen. Thread: any. */
uint32_t msg_gate_read(const msg_gate *g);
/** Move it by one and wake everybody. Thread: any, also one that holds locks. */
void msg_gate_move(msg_gate *g);
/** Sleep while the number is `seen`, until msg_clock_mono_ms() >= deadline_ms. May end earlier, as
 *  when a signal came: read again. Thread: any. */
void msg_gate_sleep(msg_gate *g, uint32_t seen, int64_t deadline_ms);

#endif
