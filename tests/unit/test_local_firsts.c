/* test_local_firsts.c - the first of many in delivery order, in whatever order they are met. */
#include "store/local/firsts.h"

#include <stdlib.h>

#include "support/cmocka_compat.h"

enum { MANY = 1000 };

static msg_rank of(int i) {
  return (msg_rank){.priority = i / 100, .deliver_at_ms = i / 10 % 10, .seq = i};
}

static bool add(msg_local_firsts *f, int i) {
  const msg_rank one = of(i);
  bool wanted = false;
  assert_int_equal(msg_local_firsts_add(f, &one, &wanted, NULL), MSG_OK);
  return wanted;
}

static void expect_first(msg_local_firsts *f, size_t n) {
  msg_local_firsts_trim(f);
  assert_int_equal(f->n, n);
  for (size_t i = 0; i < n; i++)
    assert_int_equal(f->at[i].seq, i);
}

static void the_first_of_any_order(void **state) {
  (void)state;
  for (size_t max = 1; max < 300; max += 37) {
    msg_local_firsts up = {.max = max}, down = {.max = max}, mixed = {.max = max};
    for (int i = 0; i < MANY; i++) {
      add(&up, i);
      add(&down, MANY - 1 - i);
      add(&mixed, i * 7 % MANY);
      assert_true(up.n <= max && down.n <= 2 * (max + 33) && mixed.n <= 2 * (max + 33));
    }
    expect_first(&up, max);
    expect_first(&down, max);
    expect_first(&mixed, max);
    msg_local_firsts_clear(&up);
    msg_local_firsts_clear(&down);
    msg_local_firsts_clear(&mixed);
  }
}

static void what_comes_behind_enough_is_not_wanted(void **state) {
  msg_local_firsts f = {.max = 2};
  (void)state;
  assert_true(add(&f, 5));
  assert_true(add(&f, 9)); /* full */
  assert_false(add(&f, 10));
  assert_true(add(&f, 1));
  msg_local_firsts_trim(&f);
  assert_false(add(&f, 9));
  assert_int_equal(f.n, 2);
  msg_local_firsts_clear(&f);
  assert_true(add(&f, 10));
  assert_int_equal(f.max, 2);
  msg_local_firsts_clear(&f);
}

static void one_that_is_met_twice_is_there_once(void **state) {
  msg_local_firsts f = {.max = 10};
  (void)state;
  for (int i = 0; i < 4; i++)
    add(&f, i % 2);
  expect_first(&f, 2);
  msg_local_firsts_clear(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_first_of_any_order),
      cmocka_unit_test(what_comes_behind_enough_is_not_wanted),
      cmocka_unit_test(one_that_is_met_twice_is_there_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
