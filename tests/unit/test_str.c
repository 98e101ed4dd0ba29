#include "base/str.h"

#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "support/cmocka_compat.h"
#include "support/fail_alloc.h"

static void appends(void **state) {
  (void)state;
  msg_str s = MSG_STR_INIT;
  msg_str_append(&s, "ab");
  msg_str_append(&s, NULL);
  msg_str_append(&s, "");
  msg_str_appendn(&s, "c\0d", 3);
  assert_int_equal(s.n, 5);
  assert_memory_equal(s.s, "abc\0d", 6);
  msg_str_clear(&s);
  assert_null(s.s);
  assert_int_equal(s.n, 0);
}

static void empty_append_makes_a_text(void **state) {
  (void)state;
  msg_str s = MSG_STR_INIT;
  assert_null(s.s);
  msg_str_append(&s, "");
  assert_string_equal(s.s, "");
  msg_str_clear(&s);
}

static void formats(void **state) {
  (void)state;
  msg_str s = MSG_STR_INIT;
  msg_str_appendf(&s, "%s=%d", "x", 42);
  msg_str_appendf(&s, "%s", "");
  msg_str_appendf(&s, ",%0200d", 7);
  assert_int_equal(s.n, 4 + 201);
  assert_memory_equal(s.s, "x=42,000", 8);
  assert_int_equal(s.s[204], '7');
  assert_int_equal(s.s[205], '\0');
  msg_str_clear(&s);
}

static void take_hands_over(void **state) {
  (void)state;
  msg_str s = MSG_STR_INIT;
  char *empty = msg_str_take(&s);
  assert_string_equal(empty, "");
  msg_str_append(&s, "abc");
  char *text = msg_str_take(&s);
  assert_string_equal(text, "abc");
  assert_null(s.s);
  assert_int_equal(s.n, 0);
  assert_int_equal(s.cap, 0);
  msg_free(empty);
  msg_free(text);
}

static void base64_is(const void *bytes, size_t n, const char *want) {
  msg_str s = MSG_STR_INIT;
  msg_str_append_base64(&s, bytes, n);
  assert_string_equal(s.s, want);
  assert_int_equal(s.n, strlen(want));
  msg_str_clear(&s);
}

/* RFC 4648 section 10, and the two digits that differ between alphabets. */
static void base64_vectors(void **state) {
  (void)state;
  base64_is("", 0, "");
  base64_is(NULL, 0, "");
  base64_is("f", 1, "Zg==");
  base64_is("fo", 2, "Zm8=");
  base64_is("foo", 3, "Zm9v");
  base64_is("foob", 4, "Zm9vYg==");
  base64_is("fooba", 5, "Zm9vYmE=");
  base64_is("foobar", 6, "Zm9vYmFy");
  base64_is("\xfb\xff\xbf", 3, "+/+/");
  base64_is("\0\0\0", 3, "AAAA");
  base64_is("\xff\xff\xff\xff", 4, "/////w==");
}

static void base64_appends(void **state) {
  (void)state;
  msg_str s = MSG_STR_INIT;
  msg_str_append(&s, "<");
  msg_str_append_base64(&s, "foob", 4);
  msg_str_append(&s, ">");
  assert_string_equal(s.s, "<Zm9vYg==>");
  msg_str_clear(&s);
}

static void impossible_sizes_are_nomem(void **state) {
  (void)state;
  msg_str s = MSG_STR_INIT;
  msg_str_append_base64(&s, "x", SIZE_MAX / 2);
  assert_true(s.nomem);
  assert_null(msg_str_take(&s));
  assert_false(s.nomem);
  msg_str_appendn(&s, "x", SIZE_MAX - 1);
  assert_true(s.nomem);
  msg_str_append(&s, "later");
  assert_null(s.s);
  msg_str_clear(&s);
  assert_false(s.nomem);
}

static int build(void *arg) {
  (void)arg;
  msg_str s = MSG_STR_INIT;
  msg_str_append(&s, "a");
  msg_str_appendf(&s, "%050d", 1);
  msg_str_append_base64(&s, "0123456789012345678901234567890123456789012345678901234567890", 60);
  msg_str_appendn(&s, "zzz", 3);
  char *text = msg_str_take(&s);
  if (!text)
    return MSG_NOMEM;
  int n = (int)strlen(text);
  msg_free(text);
  return n == 1 + 50 + 80 + 3 ? MSG_OK : MSG_CORRUPT;
}

static int take_empty(void *arg) {
  (void)arg;
  msg_str s = MSG_STR_INIT;
  char *text = msg_str_take(&s);
  msg_free(text);
  return text ? MSG_OK : MSG_NOMEM;
}

static void failures_stick(void **state) {
  (void)state;
  fail_alloc_install();
  assert_true(fail_alloc_each(build, NULL) >= 3);
  assert_int_equal(fail_alloc_each(take_empty, NULL), 1);
  fail_alloc_remove();
}

static size_t seq(const char *s) {
  return msg_utf8_sequence(s, strlen(s));
}

static void utf8_sequences(void **state) {
  (void)state;
  assert_int_equal(seq("a"), 1);
  assert_int_equal(seq("\x7f"), 1);
  assert_int_equal(seq("\xc2\x80"), 2);
  assert_int_equal(seq("\xdf\xbf"), 2);
  assert_int_equal(seq("\xe0\xa0\x80"), 3);
  assert_int_equal(seq("\xed\x9f\xbf"), 3);
  assert_int_equal(seq("\xee\x80\x80"), 3);
  assert_int_equal(seq("\xef\xbf\xbf"), 3);
  assert_int_equal(seq("\xf0\x90\x80\x80"), 4);
  assert_int_equal(seq("\xf4\x8f\xbf\xbf"), 4);
}

static void utf8_malformed(void **state) {
  (void)state;
  assert_int_equal(seq(""), 0);
  assert_int_equal(msg_utf8_sequence("\0x", 2), 0);
  assert_int_equal(seq("\x80"), 0);
  assert_int_equal(seq("\xbf"), 0);
  assert_int_equal(seq("\xc0\x80"), 0); /* overlong NUL */
  assert_int_equal(seq("\xc1\xbf"), 0);
  assert_int_equal(seq("\xe0\x9f\xbf"), 0); /* overlong */
  assert_int_equal(seq("\xed\xa0\x80"), 0); /* surrogate */
  assert_int_equal(seq("\xed\xbf\xbf"), 0);
  assert_int_equal(seq("\xf0\x8f\xbf\xbf"), 0); /* overlong */
  assert_int_equal(seq("\xf4\x90\x80\x80"), 0); /* above U+10FFFF */
  assert_int_equal(seq("\xf5\x80\x80\x80"), 0);
  assert_int_equal(seq("\xff"), 0);
  assert_int_equal(seq("\xc3"), 0); /* ends too early */
  assert_int_equal(seq("\xe2\x82"), 0);
  assert_int_equal(seq("\xf0\x9f\x98"), 0);
  assert_int_equal(seq("\xc3z"), 0); /* no continuation */
  assert_int_equal(seq("\xe2\x82z"), 0);
  assert_int_equal(seq("\xf0\x9f\x98z"), 0);
  assert_int_equal(msg_utf8_sequence("\xe2\x82\xac", 2), 0);
}

static void shows_what_is_printable(void **state) {
  (void)state;
  assert_string_equal(msg_show(NULL).s, "");
  assert_string_equal(msg_show("").s, "");
  assert_string_equal(msg_show("caf\xc3\xa9 \xe2\x82\xac").s, "caf\xc3\xa9 \xe2\x82\xac");
  assert_string_equal(msg_show("a\nb\x7f\x1b").s, "a\\x0ab\\x7f\\x1b");
  assert_string_equal(msg_show("\xc2\x85.\xff").s, "\\xc2\\x85.\\xff");
}

static void shows_the_head_of_what_is_long(void **state) {
  (void)state;
  char text[200], want[80];
  memset(text, 'a', sizeof text);
  text[199] = '\0';
  memset(want, 'a', 76);
  strcpy(want + 76, "...");
  assert_string_equal(msg_show(text).s, want);
  text[76] = '\0';
  assert_string_equal(msg_show(text).s, text);
  /* a character that does not fit is not cut */
  strcpy(text + 75, "\xe2\x82\xac");
  strcpy(want + 75, "...");
  assert_string_equal(msg_show(text).s, want);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(appends),
      cmocka_unit_test(empty_append_makes_a_text),
      cmocka_unit_test(formats),
      cmocka_unit_test(take_hands_over),
      cmocka_unit_test(base64_vectors),
      cmocka_unit_test(base64_appends),
      cmocka_unit_test(impossible_sizes_are_nomem),
      cmocka_unit_test(failures_stick),
      cmocka_unit_test(utf8_sequences),
      cmocka_unit_test(utf8_malformed),
      cmocka_unit_test(shows_what_is_printable),
      cmocka_unit_test(shows_the_head_of_what_is_long),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
