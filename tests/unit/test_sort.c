#include "base/sort.h"

#include "support/cmocka_compat.h"

static int calls;

static int by_value(const void *a, const void *b) {
  const int *x = a, *y = b;
  calls++;
  return (*x > *y) - (*x < *y);
}

static void nothing_and_one_are_in_order(void **state) {
  (void)state;
  int one = 1;
  assert_true(msg_sort(NULL, 0, sizeof one, by_value));
  assert_true(msg_sort(&one, 1, sizeof one, by_value));
}

static void what_is_in_order_is_compared_once(void **state) {
  (void)state;
  int at[] = {1, 2, 2, 3, 5};
  calls = 0;
  assert_true(msg_sort(at, 5, sizeof *at, by_value));
  assert_int_equal(calls, 4);
}

static void what_is_not_is_sorted(void **state) {
  (void)state;
  int at[] = {1, 2, 5, 3, 2}, want[] = {1, 2, 2, 3, 5};
  assert_false(msg_sort(at, 5, sizeof *at, by_value));
  assert_memory_equal(at, want, sizeof want);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(nothing_and_one_are_in_order),
      cmocka_unit_test(what_is_in_order_is_compared_once),
      cmocka_unit_test(what_is_not_is_sorted),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
