#include "base/texts.h"

#include "base/err.h"
#include "support/cmocka_compat.h"

static void a_text_is_copied_and_noted_once(void **state) {
  (void)state;
  msg_texts l = {0};
  char text[] = "a";
  assert_int_equal(msg_texts_add(&l, text), MSG_OK);
  text[0] = 'b';
  assert_true(msg_texts_have(&l, "a"));
  assert_false(msg_texts_have(&l, "b"));
  assert_int_equal(msg_texts_note(&l, "a"), MSG_OK);
  assert_int_equal(l.n, 1);
  assert_int_equal(msg_texts_add(&l, "a"), MSG_OK);
  assert_int_equal(l.n, 2);
  msg_texts_clear(&l);
  assert_int_equal(l.n, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_text_is_copied_and_noted_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
