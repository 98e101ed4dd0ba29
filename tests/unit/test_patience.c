#include "base/patience.h"

#include "base/clock.h"
#include "support/cmocka_compat.h"

static void none_does_not_wait(void **state) {
  (void)state;
  msg_err err = MSG_ERR_INIT;
  msg_patience none = {0}, spent = msg_patience_of(0);
  assert_int_equal(msg_patience_wait(&none, false, "send", &err), MSG_BUSY);
  assert_int_equal(msg_patience_wait(&none, true, "send", &err), MSG_BUSY);
  assert_int_equal(msg_patience_wait(&spent, false, "send", &err), MSG_BUSY);
  assert_int_equal(err.rc, MSG_OK); /* untouched */
}

static void an_interrupt_ends_it(void **state) {
  (void)state;
  msg_err err = MSG_ERR_INIT;
  msg_patience p = msg_patience_of(MSG_NEVER);
  assert_int_equal(msg_patience_wait(&p, true, "send", &err), MSG_INTERRUPTED);
  assert_string_equal(err.text, "send: interrupted while waiting for a lock");
}

static void slices_grow_and_end_in_time(void **state) {
  (void)state;
  msg_patience p = msg_patience_of(120);
  int slices = 0, longest = 0;
  while (msg_patience_wait(&p, false, "send", NULL) == MSG_OK) {
    slices++;
    longest = p.slice_ms > longest ? p.slice_ms : longest;
  }
  assert_true(slices >= 1 && slices <= 120);
  assert_in_range(longest, 2, 25);
  assert_true(msg_clock_mono_ms() >= p.until_ms);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(none_does_not_wait),
      cmocka_unit_test(an_interrupt_ends_it),
      cmocka_unit_test(slices_grow_and_end_in_time),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
