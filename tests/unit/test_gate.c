#include "base/gate.h"

#include <stdatomic.h>
#include <stddef.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/thread.h"
#include "support/cmocka_compat.h"
#include "support/fail_alloc.h"

enum { SLEEPERS = 8, MOVES = 2000 };

struct sleeper {
  msg_gate *gate;
  atomic_uint seen;
  atomic_int *done;
};

/* Follows the number to its end. A move slept through would be for ever. */
static void follow(void *arg) {
  struct sleeper *s = arg;
  for (uint32_t seen = 0; seen != MOVES; seen = msg_gate_read(s->gate)) {
    atomic_store(&s->seen, seen);
    msg_gate_sleep(s->gate, seen, MSG_NEVER);
  }
  atomic_fetch_add(s->done, 1);
}

static void no_move_is_slept_through(void **state) {
  (void)state;
  msg_thread *threads[SLEEPERS];
  struct sleeper sleepers[SLEEPERS];
  atomic_int done = 0;
  msg_gate *g = msg_gate_new();
  assert_int_equal(msg_gate_read(g), 0);
  for (int i = 0; i < SLEEPERS; i++) {
    sleepers[i] = (struct sleeper){.gate = g, .done = &done};
    assert_int_equal(msg_thread_start(&threads[i], "sleeper", follow, &sleepers[i], NULL), MSG_OK);
  }
  for (uint32_t n = 0; n < MOVES; n++) {
    if (n % 16 == 0) /* everybody is here, and mostly asleep */
      for (int i = 0; i < SLEEPERS; i++)
        while (atomic_load(&sleepers[i].seen) != n)
          msg_clock_sleep_ms(1);
    msg_gate_move(g);
  }
  for (int i = 0; i < SLEEPERS; i++)
    msg_thread_join(threads[i]);
  assert_int_equal(atomic_load(&done), SLEEPERS);
  msg_gate_free(g);
  msg_gate_free(NULL);
}

/* None of these sleeps for ever. */
static void sleep_ends(void **state) {
  (void)state;
  msg_gate *g = msg_gate_new();
  msg_gate_sleep(g, 1, MSG_NEVER); /* moved already */
  msg_gate_sleep(g, 0, 0);
  msg_gate_sleep(g, 0, -1);
  int64_t until_ms = msg_clock_mono_ms() + 20;
  while (msg_clock_mono_ms() < until_ms)
    msg_gate_sleep(g, 0, until_ms);
  assert_int_equal(msg_gate_read(g), 0);
  msg_gate_move(g);
  assert_int_equal(msg_gate_read(g), 1);
  msg_gate_free(g);
}

static int make_one(void *arg) {
  (void)arg;
  msg_gate *g = msg_gate_new();
  msg_gate_free(g);
  return g ? MSG_OK : MSG_NOMEM;
}

static void without_memory_there_is_none(void **state) {
  (void)state;
  fail_alloc_install();
  assert_true(fail_alloc_each(make_one, NULL) > 0);
  fail_alloc_remove();
}

int main(void) {
  static const struct CMUnitTest tests[] = {
      cmocka_unit_test(no_move_is_slept_through),
      cmocka_unit_test(sleep_ends),
      cmocka_unit_test(without_memory_there_is_none),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
