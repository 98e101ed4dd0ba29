#include "base/clock.h"

#include <time.h>

#include "support/cmocka_compat.h"

static void wall_clock_is_epoch_ms(void **state) {
  (void)state;
  int64_t before = (int64_t)time(NULL) * 1000;
  int64_t now = msg_clock_now_ms();
  assert_true(now >= before - 1000 && now <= before + 60000);
}

static void shift_moves_only_the_wall(void **state) {
  (void)state;
  int64_t wall = msg_clock_now_ms(), mono = msg_clock_mono_ms();
  msg_clock_shift(3600000);
  assert_true(msg_clock_now_ms() - wall >= 3600000);
  assert_true(msg_clock_mono_ms() - mono < 60000);
  msg_clock_shift(-3600000);
  assert_true(msg_clock_now_ms() < wall);
  msg_clock_shift(0);
  assert_true(msg_clock_now_ms() >= wall);
}

static void mono_never_goes_back(void **state) {
  (void)state;
  int64_t last = msg_clock_mono_ms();
  for (int i = 0; i < 10000; i++) {
    int64_t now = msg_clock_mono_ms();
    assert_true(now >= last);
    last = now;
  }
}

static void add_saturates(void **state) {
  (void)state;
  assert_true(msg_clock_add(1000, 500) == 1500);
  assert_true(msg_clock_add(1000, 0) == 1000);
  assert_true(msg_clock_add(1000, -1) == 1000);
  assert_true(msg_clock_add(-1000, 400) == -600);
  assert_true(msg_clock_add(MSG_NEVER, 1) == MSG_NEVER);
  assert_true(msg_clock_add(1, MSG_NEVER) == MSG_NEVER);
  assert_true(msg_clock_add(MSG_NEVER - 5, 5) == MSG_NEVER);
  assert_true(msg_clock_add(MSG_NEVER - 6, 5) == MSG_NEVER - 1);
  assert_true(msg_clock_add(INT64_MIN, MSG_NEVER) == -1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(wall_clock_is_epoch_ms),
      cmocka_unit_test(shift_moves_only_the_wall),
      cmocka_unit_test(mono_never_goes_back),
      cmocka_unit_test(add_saturates),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
