#include "model/topic.h"

#include <string.h>

#include "support/cmocka_compat.h"

static char text[1100];

/* n times c */
static const char *repeated(char c, size_t n) {
  memset(text, c, n);
  text[n] = '\0';
  return text;
}

typedef int check_fn(const char *name, msg_err *err);

static void good(check_fn *check, const char *name) {
  msg_err err = MSG_ERR_INIT;
  if (check(name, &err) != MSG_OK)
    fail_msg("'%s' refused: %s", name, err.text);
  assert_string_equal(err.text, "");
}

static void bad(check_fn *check, const char *name, const char *why) {
  msg_err err = MSG_ERR_INIT;
  assert_int_equal(check(name, &err), MSG_INVALID);
  assert_int_equal(err.rc, MSG_INVALID);
  assert_string_equal(err.text, why);
  assert_int_equal(check(name, NULL), MSG_INVALID);
}

static void topics_that_go(void **state) {
  (void)state;
  good(msg_topic_check, "orders");
  good(msg_topic_check, "a");
  good(msg_topic_check, "/");
  good(msg_topic_check, "/a");
  good(msg_topic_check, "a/");
  good(msg_topic_check, "a b.c-d_e]{}()^$+|\\");
  good(msg_topic_check, "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80");
  good(msg_topic_check, "\xc2\xa0");
  good(msg_topic_check, repeated('x', MSG_TOPIC_MAX));
}

static void topics_that_do_not(void **state) {
  (void)state;
  bad(msg_topic_check, NULL, "empty topic: give it 1 to 255 bytes");
  bad(msg_topic_check, "", "empty topic: give it 1 to 255 bytes");
  bad(msg_topic_check, "a*b",
      "topic 'a*b' holds a GLOB character: send to an exact name, listen with patterns");
  bad(msg_topic_check, "?",
      "topic '?' holds a GLOB character: send to an exact name, listen with patterns");
  bad(msg_topic_check, "a[b",
      "topic 'a[b' holds a GLOB character: send to an exact name, listen with patterns");
  bad(msg_topic_check, "/a/",
      "topic '/a/' stands between slashes, as a regular expression: send to "
      "an exact name, listen with patterns");
  bad(msg_topic_check, "//",
      "topic '//' stands between slashes, as a regular expression: send to "
      "an exact name, listen with patterns");
  bad(msg_topic_check, "a\nb", "topic 'a\\x0ab' holds a control character: remove it");
  bad(msg_topic_check, "\x7f", "topic '\\x7f' holds a control character: remove it");
  bad(msg_topic_check, "\xc2\x9f", "topic '\\xc2\\x9f' holds a control character: remove it");
  bad(msg_topic_check, "a\xff", "topic 'a\\xff' is not valid UTF-8: encode it as UTF-8");
  bad(msg_topic_check, "\xed\xa0\x80",
      "topic '\\xed\\xa0\\x80' is not valid UTF-8: encode it as UTF-8");
}

static void long_topic_is_shown_short(void **state) {
  (void)state;
  char why[200] = "topic '";
  memset(why + 7, 'x', 76);
  strcpy(why + 83, "...' has 256 bytes: shorten it to 255");
  bad(msg_topic_check, repeated('x', 256), why);
}

static void node_names(void **state) {
  (void)state;
  good(msg_node_name_check, "host-python3-123-1");
  good(msg_node_name_check, "Node_A1");
  good(msg_node_name_check, "a_");
  good(msg_node_name_check, "selfish");
  good(msg_node_name_check, "m\xc3\xbcnchen 1");
  good(msg_node_name_check, repeated('n', MSG_NODE_MAX));
  bad(msg_node_name_check, "", "empty sender id: give it 1 to 128 bytes");
  bad(msg_node_name_check, "_a",
      "sender id '_a' has a leading or double underscore, which Morphium "
      "cannot fold: use '-' instead");
  bad(msg_node_name_check, "a__b",
      "sender id 'a__b' has a leading or double underscore, which "
      "Morphium cannot fold: use '-' instead");
  bad(msg_node_name_check, "self", "sender id 'self' is reserved by Morphium: choose another name");
  bad(msg_node_name_check, "Self", "sender id 'Self' is reserved by Morphium: choose another name");
  bad(msg_node_name_check, "a\tb", "sender id 'a\\x09b' holds a control character: remove it");
  bad(msg_node_name_check, "\xc3", "sender id '\\xc3' is not valid UTF-8: encode it as UTF-8");
  assert_int_equal(msg_node_name_check(repeated('n', MSG_NODE_MAX + 1), NULL), MSG_INVALID);
}

static void queue_names(void **state) {
  (void)state;
  good(msg_queue_check, "msg");
  good(msg_queue_check, "0");
  good(msg_queue_check, "My.Queue_2-b");
  good(msg_queue_check, repeated('q', MSG_QUEUE_MAX));
  bad(msg_queue_check, "", "empty queue name: give it 1 to 64 bytes");
  static const char *const BAD[] = {"_a", "-a",          ".a",   "a b", "a/b",
                                    "a$", "caf\xc3\xa9", "a\"b", "a;"};
  for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++)
    assert_int_equal(msg_queue_check(BAD[i], NULL), MSG_INVALID);
  bad(msg_queue_check, "a b",
      "queue name 'a b' is not plain: use letters, digits, '_', '-', '.', "
      "and start with a letter or digit");
  assert_int_equal(msg_queue_check(repeated('q', MSG_QUEUE_MAX + 1), NULL), MSG_INVALID);
}

static int check_group(const char *name, msg_err *err) {
  return msg_key_check("group", name, err);
}

static void keys(void **state) {
  (void)state;
  good(check_group, "a*b\n/x/");
  good(check_group, repeated('k', MSG_KEY_MAX));
  bad(check_group, "", "empty group: give it 1 to 512 bytes");
  bad(check_group, "\x80", "group '\\x80' is not valid UTF-8: encode it as UTF-8");
  assert_int_equal(check_group(repeated('k', MSG_KEY_MAX + 1), NULL), MSG_INVALID);
}

static int check_ten(const char *name, msg_err *err) {
  return msg_name_check("nickname", name, 10, err);
}

static void other_names(void **state) {
  (void)state;
  good(check_ten, "0123456789");
  bad(check_ten, "0123456789a", "nickname '0123456789a' has 11 bytes: shorten it to 10");
  bad(check_ten, "\x01", "nickname '\\x01' holds a control character: remove it");
}

static void utf8(void **state) {
  (void)state;
  assert_true(msg_utf8_valid("", 0));
  assert_true(msg_utf8_valid("abc", 3));
  assert_true(msg_utf8_valid("a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z", 11));
  assert_false(msg_utf8_valid("a\0b", 3));
  assert_false(msg_utf8_valid("a\xc3", 2));
  assert_false(msg_utf8_valid("\xc3\xa9\xe2\x82", 4));
  assert_false(msg_utf8_valid("\xc0\xaf", 2));
  assert_false(msg_utf8_valid("ok\xf4\x90\x80\x80", 6));
  assert_true(msg_utf8_valid("a\xc3", 1)); /* looks no further */
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(topics_that_go),
      cmocka_unit_test(topics_that_do_not),
      cmocka_unit_test(long_topic_is_shown_short),
      cmocka_unit_test(node_names),
      cmocka_unit_test(queue_names),
      cmocka_unit_test(keys),
      cmocka_unit_test(other_names),
      cmocka_unit_test(utf8),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
