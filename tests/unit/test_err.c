#include <string.h>

#include "base/err.h"
#include "support/cmocka_compat.h"

static void set_fills_and_returns(void **state) {
  (void)state;
  msg_err err = {.native = 7, .retry = true, .domain = MSG_DOMAIN_SERVER};
  assert_int_equal(msg_err_set(&err, MSG_INVALID, "topic '%s' is %d", "a", 3), MSG_INVALID);
  assert_int_equal(err.rc, MSG_INVALID);
  assert_int_equal(err.domain, MSG_DOMAIN_MSG);
  assert_int_equal(err.native, 0);
  assert_false(err.retry);
  assert_string_equal(err.text, "topic 'a' is 3");
}

static void native_keeps_code(void **state) {
  (void)state;
  msg_err err = MSG_ERR_INIT;
  assert_int_equal(msg_err_native(&err, MSG_BUSY, MSG_DOMAIN_SQLITE, 517, "file %s", "busy"),
                   MSG_BUSY);
  assert_int_equal(err.rc, MSG_BUSY);
  assert_int_equal(err.domain, MSG_DOMAIN_SQLITE);
  assert_int_equal(err.native, 517);
  assert_string_equal(err.text, "file busy");
}

static void null_carrier_is_allowed(void **state) {
  (void)state;
  assert_int_equal(msg_err_set(NULL, MSG_IO, "x %d", 1), MSG_IO);
  assert_int_equal(msg_err_native(NULL, MSG_IO, MSG_DOMAIN_ERRNO, 5, "x"), MSG_IO);
  assert_int_equal(msg_err_nomem(NULL), MSG_NOMEM);
}

static void nomem_has_text(void **state) {
  (void)state;
  msg_err err = MSG_ERR_INIT;
  assert_int_equal(msg_err_nomem(&err), MSG_NOMEM);
  assert_int_equal(err.rc, MSG_NOMEM);
  assert_string_equal(err.text, "out of memory");
}

static void own_text_may_be_an_argument(void **state) {
  (void)state;
  msg_err err = MSG_ERR_INIT;
  msg_err_set(&err, MSG_IO, "disk gone");
  msg_err_set(&err, MSG_UNAVAILABLE, "cannot open 'x': %s", err.text);
  assert_string_equal(err.text, "cannot open 'x': disk gone");
}

/* The text is filled with `pad` ASCII bytes and then `tail`; returns what is left of it. */
static size_t cut_after(size_t pad, const char *tail) {
  char long_text[600];
  msg_err err = MSG_ERR_INIT;
  memset(long_text, 'a', pad);
  strcpy(long_text + pad, tail);
  msg_err_set(&err, MSG_INVALID, "%s", long_text);
  assert_memory_equal(err.text, long_text, strlen(err.text));
  return strlen(err.text);
}

static void long_text_is_cut_between_characters(void **state) {
  (void)state;
  const size_t max = sizeof((msg_err *)0)->text - 1;
  assert_int_equal(cut_after(max, ""), max);
  assert_int_equal(cut_after(max - 1, "bcd"), max);
  /* 2, 3 and 4 bytes, cut at each place */
  assert_int_equal(cut_after(max - 1, "\xc3\xa9"), max - 1);
  assert_int_equal(cut_after(max - 2, "\xc3\xa9z"), max);
  assert_int_equal(cut_after(max - 1, "\xe2\x82\xac"), max - 1);
  assert_int_equal(cut_after(max - 2, "\xe2\x82\xac"), max - 2);
  assert_int_equal(cut_after(max - 3, "\xe2\x82\xacz"), max);
  assert_int_equal(cut_after(max - 1, "\xf0\x9f\x98\x80"), max - 1);
  assert_int_equal(cut_after(max - 2, "\xf0\x9f\x98\x80"), max - 2);
  assert_int_equal(cut_after(max - 3, "\xf0\x9f\x98\x80"), max - 3);
  assert_int_equal(cut_after(max - 4, "\xf0\x9f\x98\x80z"), max);
  assert_int_equal(cut_after(max - 4, "\xf0\x9f\x98\x80\xc3\xa9"), max);
  assert_int_equal(cut_after(max - 2, "\xc3\xa9\xc3\xa9"), max);
}

static void every_code_has_a_name(void **state) {
  (void)state;
  assert_string_equal(msg_rc_name(MSG_OK), "OK");
  assert_string_equal(msg_rc_name(MSG_NOMEM), "NOMEM");
  assert_string_equal(msg_rc_name(MSG_INVALID), "INVALID");
  assert_string_equal(msg_rc_name(MSG_FORKED), "FORKED");
  assert_string_equal(msg_rc_name(MSG_EXISTS), "EXISTS");
  for (int rc = MSG_OK; rc <= MSG_EXISTS; rc++) {
    assert_non_null(msg_rc_name(rc));
    assert_string_not_equal(msg_rc_name(rc), "UNKNOWN");
  }
  assert_string_equal(msg_rc_name(-1), "UNKNOWN");
  assert_string_equal(msg_rc_name(MSG_EXISTS + 1), "UNKNOWN");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(set_fills_and_returns),
      cmocka_unit_test(native_keeps_code),
      cmocka_unit_test(null_carrier_is_allowed),
      cmocka_unit_test(nomem_has_text),
      cmocka_unit_test(own_text_may_be_an_argument),
      cmocka_unit_test(long_text_is_cut_between_characters),
      cmocka_unit_test(every_code_has_a_name),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
