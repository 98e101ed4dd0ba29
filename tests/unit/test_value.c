#include "model/value.h"

#include <string.h>

#include "base/mem.h"
#include "support/cmocka_compat.h"
#include "support/fail_alloc.h"

static void constructors_borrow(void **state) {
  (void)state;
  const char *s = "abc";
  msg_value v = msg_value_text(s);
  assert_int_equal(v.type, MSG_TEXT);
  assert_ptr_equal(v.p, s);
  assert_int_equal(v.n, 3);
  assert_false(v.owned);
  assert_false(v.json);
  msg_value_clear(&v);
  assert_int_equal(v.type, MSG_NULL);
  assert_int_equal(msg_value_text(NULL).type, MSG_NULL);
  v = msg_value_int(INT64_MIN);
  assert_int_equal(v.type, MSG_INT);
  assert_true(v.i == INT64_MIN);
}

static void copies_every_type(void **state) {
  (void)state;
  msg_value in[] = {
      {0},
      {.type = MSG_INT, .i = INT64_MAX},
      {.type = MSG_REAL, .r = 0.1},
      {.type = MSG_TEXT, .p = "a\0b", .n = 3, .json = true},
      {.type = MSG_TEXT, .p = "", .n = 0},
      {.type = MSG_BLOB, .p = "\0\1", .n = 2},
      {.type = MSG_BLOB, .p = NULL, .n = 0},
  };
  for (size_t i = 0; i < sizeof in / sizeof in[0]; i++) {
    msg_value out = {.type = MSG_INT, .i = 99, .owned = true, .p = (char *)1}; /* not cleared */
    assert_int_equal(msg_value_copy(&out, &in[i]), MSG_OK);
    assert_int_equal(out.type, in[i].type);
    assert_int_equal(out.json, in[i].json);
    assert_true(out.i == in[i].i);
    assert_true(out.r == in[i].r);
    assert_int_equal(out.n, in[i].n);
    if (in[i].type == MSG_TEXT)
      assert_int_equal(out.p[out.n], '\0');
    if (in[i].n) {
      assert_memory_equal(out.p, in[i].p, in[i].n);
      assert_ptr_not_equal(out.p, in[i].p);
      assert_true(out.owned);
    }
    msg_value_clear(&out);
    assert_null(out.p);
  }
}

static void copy_of_borrowed_number_owns_nothing(void **state) {
  (void)state;
  char text[] = "rest";
  msg_value in = {.type = MSG_INT, .i = 1, .p = text, .n = 4}, out;
  assert_int_equal(msg_value_copy(&out, &in), MSG_OK);
  assert_null(out.p);
  assert_false(out.owned);
}

static int copy_text(void *arg) {
  msg_value out = {.type = MSG_INT};
  int rc = msg_value_copy(&out, arg);
  if (rc != MSG_OK && (out.type != MSG_NULL || out.p))
    return MSG_CORRUPT;
  msg_value_clear(&out);
  return rc;
}

static void failed_copy_is_null(void **state) {
  (void)state;
  msg_value text = msg_value_text("abc"), blob = {.type = MSG_BLOB, .p = "xy", .n = 2};
  fail_alloc_install();
  assert_int_equal(fail_alloc_each(copy_text, &text), 1);
  assert_int_equal(fail_alloc_each(copy_text, &blob), 1);
  fail_alloc_remove();
}

static void types_have_names(void **state) {
  (void)state;
  assert_string_equal(msg_type_name(MSG_NULL), "null");
  assert_string_equal(msg_type_name(MSG_INT), "integer");
  assert_string_equal(msg_type_name(MSG_REAL), "real");
  assert_string_equal(msg_type_name(MSG_TEXT), "text");
  assert_string_equal(msg_type_name(MSG_BLOB), "blob");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(constructors_borrow),
      cmocka_unit_test(copies_every_type),
      cmocka_unit_test(copy_of_borrowed_number_owns_nothing),
      cmocka_unit_test(failed_copy_is_null),
      cmocka_unit_test(types_have_names),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
