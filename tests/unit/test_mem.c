#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "support/cmocka_compat.h"
#include "support/fail_alloc.h"

static void zero_bytes_are_a_block(void **state) {
  (void)state;
  char *a = msg_alloc(0), *z = msg_zalloc(0), *r = msg_resize(NULL, 0);
  assert_non_null(a);
  assert_non_null(z);
  assert_int_equal(z[0], 0);
  assert_non_null(r);
  msg_free(a);
  msg_free(z);
  msg_free(r);
  msg_free(NULL);
}

static void zalloc_zeroes(void **state) {
  (void)state;
  unsigned char *p = msg_zalloc(100);
  for (int i = 0; i < 100; i++)
    assert_int_equal(p[i], 0);
  msg_free(p);
}

static void resize_keeps_content(void **state) {
  (void)state;
  char *p = msg_alloc(3);
  memcpy(p, "ab", 3);
  p = msg_resize(p, 1000);
  assert_string_equal(p, "ab");
  msg_free(p);
}

static void copies(void **state) {
  (void)state;
  char *s = msg_strdup("abc"), *n = msg_strndup("abcdef", 2), *all = msg_strndup("ab", 9);
  char *none = msg_strndup("ab", 0);
  assert_string_equal(s, "abc");
  assert_string_equal(n, "ab");
  assert_string_equal(all, "ab");
  assert_string_equal(none, "");
  assert_null(msg_strdup(NULL));
  assert_null(msg_strndup(NULL, 3));
  msg_free(s);
  msg_free(n);
  msg_free(all);
  msg_free(none);
}

static void grow_keeps_content_and_doubles(void **state) {
  (void)state;
  int *a = NULL;
  size_t cap = 0, steps = 0, seen = 0;
  for (int i = 0; i < 10000; i++) {
    assert_int_equal(msg_grow(&a, &cap, (size_t)i + 1, sizeof *a), 0);
    a[i] = i;
    steps += cap != seen;
    seen = cap;
  }
  assert_true(steps < 15);
  for (int i = 0; i < 10000; i++)
    assert_int_equal(a[i], i);
  int *before = a;
  assert_int_equal(msg_grow(&a, &cap, 5, sizeof *a), 0);
  assert_ptr_equal(a, before);
  msg_free(a);
}

static void grow_refuses_what_overflows(void **state) {
  (void)state;
  char *a = NULL;
  size_t cap = 0;
  assert_int_equal(msg_grow(&a, &cap, SIZE_MAX, 1), MSG_NOMEM);
  assert_int_equal(msg_grow(&a, &cap, SIZE_MAX / 8, 16), MSG_NOMEM);
  assert_int_equal(msg_grow(&a, &cap, SIZE_MAX / 16 + 2, 16), MSG_NOMEM);
  assert_null(a);
  assert_int_equal(cap, 0);
  assert_int_equal(msg_grow(&a, &cap, 3, 1000), 0);
  assert_int_equal(cap, 8);
  msg_free(a);
}

static void failures_leave_all_as_it_was(void **state) {
  (void)state;
  fail_alloc_install();
  int *a = NULL;
  size_t cap = 0;
  assert_int_equal(msg_grow(&a, &cap, 4, sizeof *a), 0);
  a[3] = 42;
  assert_int_equal(fail_alloc_live(), 1);
  fail_alloc_arm(1, true);
  assert_int_equal(msg_grow(&a, &cap, 100, sizeof *a), MSG_NOMEM);
  assert_null(msg_alloc(1));
  assert_null(msg_zalloc(1));
  assert_null(msg_strdup("x"));
  assert_true(fail_alloc_disarm());
  assert_int_equal(a[3], 42);
  assert_int_equal(cap, 8);
  msg_free(a);
  assert_int_equal(fail_alloc_live(), 0);
  fail_alloc_remove();
}

static void only_the_nth_fails(void **state) {
  (void)state;
  fail_alloc_install();
  fail_alloc_arm(2, false);
  void *a = msg_alloc(1), *b = msg_alloc(1), *c = msg_alloc(1);
  assert_non_null(a);
  assert_null(b);
  assert_non_null(c);
  msg_free(a);
  msg_free(c);
  assert_true(fail_alloc_disarm());
  fail_alloc_remove();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(zero_bytes_are_a_block),
      cmocka_unit_test(zalloc_zeroes),
      cmocka_unit_test(resize_keeps_content),
      cmocka_unit_test(copies),
      cmocka_unit_test(grow_keeps_content_and_doubles),
      cmocka_unit_test(grow_refuses_what_overflows),
      cmocka_unit_test(failures_leave_all_as_it_was),
      cmocka_unit_test(only_the_nth_fails),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
