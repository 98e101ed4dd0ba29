#include "base/gate.h"

#include <limits.h>
#include <stdatomic.h>

#include "base/mem.h"

/* With a 32-bit long the kernel's timespec depends on the call; those take the portable way. */
#if defined(__linux__) && LONG_MAX > INT32_MAX && !defined(MSG_NO_FUTEX)

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LONGEST_MS (INT64_C(1000) * 1000 * 3600 * 24 * 365) /* deadlines further off are never */

struct msg_gate {
  _Atomic uint32_t number;
  _Atomic uint32_t sleepers; /* no call to the system where there are none */
};

msg_gate *msg_gate_new(void) {
  return msg_zalloc(sizeof(msg_gate));
}

void msg_gate_free(msg_gate *g) {
  msg_free(g);
}

void msg_gate_move(msg_gate *g) {
  atomic_fetch_add(&g->number, 1);
  if (atomic_load(&g->sleepers) > 0)
    syscall(SYS_futex, &g->number, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, INT_MAX, NULL, NULL, 0);
}

/* The system compares the number once more: a move between is not slept through. */
void msg_gate_sleep(msg_gate *g, uint32_t seen, int64_t deadline_ms) {
  struct timespec until = {.tv_sec = (time_t)(deadline_ms / 1000),
                           .tv_nsec = (long)(deadline_ms % 1000) * 1000000};
  if (deadline_ms < 0)
    return;
  atomic_fetch_add(&g->sleepers, 1);
  syscall(SYS_futex, &g->number, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, seen,
          deadline_ms < LONGEST_MS ? &until : NULL, NULL, FUTEX_BITSET_MATCH_ANY);
  atomic_fetch_sub(&g->sleepers, 1);
}

#else

#include "base/thread.h"

struct msg_gate {
  _Atomic uint32_t number; /* changed under mtx */
  msg_mutex *mtx;
  msg_cond *moved;
};

msg_gate *msg_gate_new(void) {
  msg_gate *g = msg_zalloc(sizeof *g);
  if (!g)
    return NULL;
  g->mtx = msg_mutex_new();
  g->moved = msg_cond_new();
  if (g->mtx && g->moved)
    return g;
  msg_gate_free(g);
  return NULL;
}

void msg_gate_free(msg_gate *g) {
  if (!g)
    return;
  msg_cond_free(g->moved);
  msg_mutex_free(g->mtx);
  msg_free(g);
}

void msg_gate_move(msg_gate *g) {
  msg_mutex_lock(g->mtx);
  atomic_fetch_add(&g->number, 1);
  msg_cond_broadcast(g->moved);
  msg_mutex_unlock(g->mtx);
}

void msg_gate_sleep(msg_gate *g, uint32_t seen, int64_t deadline_ms) {
  msg_mutex_lock(g->mtx);
  if (atomic_load(&g->number) == seen)
    msg_cond_wait_until(g->moved, g->mtx, deadline_ms);
  msg_mutex_unlock(g->mtx);
}

#endif

uint32_t msg_gate_read(const msg_gate *g) {
  return atomic_load(&g->number);
}
