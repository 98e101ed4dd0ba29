#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sqlite3.h>

#include "base/thread.h"
#include "model/topic.h"
#include "support/cmocka_compat.h"
#include "support/fail_alloc.h"

static msg_pattern *compiled(const char *text, enum msg_pattern_kind kind) {
  msg_pattern *p = NULL;
  msg_err err = MSG_ERR_INIT;
  if (msg_pattern_new(text, &p, &err) != MSG_OK)
    fail_msg("'%s' refused: %s", text, err.text);
  assert_string_equal(msg_pattern_text(p), text);
  assert_int_equal(msg_pattern_kind_of(p), kind);
  return p;
}

static void matches(const char *text, enum msg_pattern_kind kind, const char *topic, bool want) {
  msg_pattern *p = compiled(text, kind);
  if (msg_pattern_match(p, topic) != want)
    fail_msg("'%s' on '%s' is not %d", text, topic, want);
  msg_pattern_free(p);
}

static void bad(const char *text, const char *why) {
  msg_pattern *p = (msg_pattern *)&p;
  msg_err err = MSG_ERR_INIT;
  assert_int_equal(msg_pattern_new(text, &p, &err), MSG_INVALID);
  assert_ptr_equal(p, &p); /* untouched */
  assert_string_equal(err.text, why);
  assert_int_equal(msg_pattern_new(text, &p, NULL), MSG_INVALID);
}

static void begins_with(const char *text, enum msg_pattern_kind kind, size_t n) {
  msg_pattern *p = compiled(text, kind);
  assert_int_equal(msg_pattern_prefix(p), n);
  msg_pattern_free(p);
}

static void what_every_match_begins_with(void **state) {
  (void)state;
  begins_with("orders", MSG_PATTERN_EXACT, 6);
  begins_with("orders.*", MSG_PATTERN_GLOB, 7);
  begins_with("or?ers.*", MSG_PATTERN_GLOB, 2);
  begins_with("o[r]*", MSG_PATTERN_GLOB, 1);
  begins_with("*", MSG_PATTERN_GLOB, 0);
  begins_with("/^orders/", MSG_PATTERN_REGEX, 0);
}

static void exact(void **state) {
  (void)state;
  matches("orders", MSG_PATTERN_EXACT, "orders", true);
  matches("orders", MSG_PATTERN_EXACT, "Orders", false);
  matches("orders", MSG_PATTERN_EXACT, "orders.new", false);
  matches("orders", MSG_PATTERN_EXACT, "", false);
  matches("a.b", MSG_PATTERN_EXACT, "axb", false);
  matches("/", MSG_PATTERN_EXACT, "/", true);
  matches("/a", MSG_PATTERN_EXACT, "/a", true);
  matches("a]", MSG_PATTERN_EXACT, "a]", true);
}

static void glob(void **state) {
  (void)state;
  matches("*", MSG_PATTERN_GLOB, "anything", true);
  matches("*", MSG_PATTERN_GLOB, "", true);
  matches("orders.*", MSG_PATTERN_GLOB, "orders.new", true);
  matches("orders.*", MSG_PATTERN_GLOB, "orders.", true);
  matches("orders.*", MSG_PATTERN_GLOB, "orders", false);
  matches("orders.*", MSG_PATTERN_GLOB, "ORDERS.new", false);
  matches("a?c", MSG_PATTERN_GLOB, "abc", true);
  matches("a?c", MSG_PATTERN_GLOB,
          "a\xe2\x82\xac"
          "c",
          true); /* one character, three bytes */
  matches("a?c", MSG_PATTERN_GLOB, "ac", false);
  matches("[a-c]x", MSG_PATTERN_GLOB, "bx", true);
  matches("[^a-c]x", MSG_PATTERN_GLOB, "bx", false);
  matches("[^a-c]x", MSG_PATTERN_GLOB, "dx", true);
  matches("[]]x", MSG_PATTERN_GLOB, "]x", true);
  matches("[^]]x", MSG_PATTERN_GLOB, "]x", false);
  matches("[[]x", MSG_PATTERN_GLOB, "[x", true);
  matches("[*]", MSG_PATTERN_GLOB, "*", true);
  matches("[*]", MSG_PATTERN_GLOB, "x", false);
  matches("/*", MSG_PATTERN_GLOB, "/x", true);
}

static void glob_without_sqlite_matches_nothing(void **state) {
  (void)state;
  msg_pattern_set_glob(NULL);
  matches("*", MSG_PATTERN_GLOB, "x", false);
  matches("x", MSG_PATTERN_EXACT, "x", true);
  msg_pattern_set_glob(sqlite3_strglob);
  matches("*", MSG_PATTERN_GLOB, "x", true);
}

/* What check_glob accepts, SQLite must be able to match, and the other way round. */
static void unclosed_brackets(void **state) {
  (void)state;
  bad("a[", "pattern 'a[' has '[' without ']': close it, or write '[[]' for a bracket itself");
  bad("[", "pattern '[' has '[' without ']': close it, or write '[[]' for a bracket itself");
  bad("[]", "pattern '[]' has '[' without ']': close it, or write '[[]' for a bracket itself");
  bad("[^]", "pattern '[^]' has '[' without ']': close it, or write '[[]' for a bracket itself");
  bad("[^", "pattern '[^' has '[' without ']': close it, or write '[[]' for a bracket itself");
  bad("[a]*[b", "pattern '[a]*[b' has '[' without ']': close it, or write '[[]' for a bracket "
                "itself");
}

static void regex(void **state) {
  (void)state;
  matches("/order/", MSG_PATTERN_REGEX, "my.orders", true);
  matches("/^order$/", MSG_PATTERN_REGEX, "orders", false);
  matches("/^order(s|ings)?$/", MSG_PATTERN_REGEX, "orderings", true);
  matches("/^[[:alpha:]]+\\.[0-9]{2,3}$/", MSG_PATTERN_REGEX, "abc.123", true);
  matches("/^[[:alpha:]]+\\.[0-9]{2,3}$/", MSG_PATTERN_REGEX, "abc.1234", false);
  matches("/^[^]/]+$/", MSG_PATTERN_REGEX, "a/b", false);
  matches("/^a/b$/", MSG_PATTERN_REGEX, "a/b", true);
  matches("/A/", MSG_PATTERN_REGEX, "a", false);
  matches("/ /", MSG_PATTERN_REGEX, "a b", true);
  matches("/^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$/", MSG_PATTERN_REGEX,
          "123e4567-e89b-12d3-a456-426614174000", true);
}

static void regex_that_libc_refuses(void **state) {
  (void)state;
  msg_err err = MSG_ERR_INIT;
  msg_pattern *p = NULL;
  static const char *const BAD[] = {"/(/",          "/[a/",    "/a{2/", "/a{3,2}/",
                                    "/[[:nope:]]/", "/[z-a]/", "/\\/"};
  for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
    assert_int_equal(msg_pattern_new(BAD[i], &p, &err), MSG_INVALID);
    assert_null(p);
    char head[64];
    snprintf(head, sizeof head, "pattern '%s' is no extended regular expression (", BAD[i]);
    assert_memory_equal(err.text, head, strlen(head));
    assert_non_null(strstr(err.text, "): correct it, or drop the slashes"));
  }
  bad("//", "pattern '//' is empty: use '*' for every topic");
}

static void regex_that_would_take_the_machine_down(void **state) {
  (void)state;
  static const char *const LARGE[] = {
      "/(a{200}){200}/",
      "/((((((((((((((((((((a+)+)+)+)+)+)+)+)+)+)+)+)+)+)+)+)+)+)+)+/",
      "/a{1000}/",
      "/a{99999999999999999999}/",
      "/a{1,99999999999999999999}/",
      "/(((a{1,15}){1,15}){1,15})/",
      "/(a{,9}b{1000,})/",
      "/(|a{1000}b)/",
      "/(((a?){9}b?){9}c?){9}/",
      "/(((){250}){250})/",
  };
  char want[200];
  for (size_t i = 0; i < sizeof LARGE / sizeof LARGE[0]; i++) {
    snprintf(want, sizeof want,
             "pattern '%s' expands to more than 1000 positions: repeat less with {n} and +",
             LARGE[i]);
    bad(LARGE[i], want);
  }
  char deep[100] = "/";
  for (int i = 0; i < 33; i++)
    strcat(deep, "(");
  strcat(deep, "/");
  snprintf(want, sizeof want, "pattern '%s' nests more than 32 groups: use fewer parentheses",
           deep);
  bad(deep, want);
  bad("/a+?/", "pattern '/a+?/' repeats a repetition: drop one of the two, or put the first in "
               "parentheses");
  bad("/(a){2}*/",
      "pattern '/(a){2}*/' repeats a repetition: drop one of the two, or put the first "
      "in parentheses");
  bad("/(a)\\1/",
      "pattern '/(a)\\1/' holds a back-reference, which extended regular expressions do "
      "not have: spell it out");
}

static void regex_that_only_looks_large(void **state) {
  (void)state;
  matches("/[a{9999}]/", MSG_PATTERN_REGEX, "{", true);
  matches("/[]a{9999}]/", MSG_PATTERN_REGEX, "]", true);
  matches("/[[.a.]{9999}]/", MSG_PATTERN_REGEX, "a", true);
  matches("/a\\{9999/", MSG_PATTERN_REGEX, "a{9999", true);
  matches("/[\\1]/", MSG_PATTERN_REGEX, "1", true);
  matches("/^a+b?c*$/", MSG_PATTERN_REGEX, "aacc", true);
  matches("/^(a+)?b$/", MSG_PATTERN_REGEX, "b", true);
  matches("/^a{0}b$/", MSG_PATTERN_REGEX, "b", true);
  matches("/^a{990}$/", MSG_PATTERN_REGEX, "b", false);
}

static void names_are_checked(void **state) {
  (void)state;
  char longest[MSG_PATTERN_MAX + 2];
  bad("", "empty pattern: give it 1 to 512 bytes");
  bad(NULL, "empty pattern: give it 1 to 512 bytes");
  bad("a*\xff", "pattern 'a*\\xff' is not valid UTF-8: encode it as UTF-8");
  bad("a*\n", "pattern 'a*\\x0a' holds a control character: remove it");
  memset(longest, '*', sizeof longest);
  longest[MSG_PATTERN_MAX + 1] = '\0';
  assert_int_equal(msg_pattern_new(longest, &(msg_pattern *){NULL}, NULL), MSG_INVALID);
  longest[MSG_PATTERN_MAX] = '\0';
  matches(longest, MSG_PATTERN_GLOB, "x", true);
  /* an exact name is a topic, and as long as one at most */
  memset(longest, 'x', MSG_TOPIC_MAX + 1);
  longest[MSG_TOPIC_MAX + 1] = '\0';
  assert_int_equal(msg_pattern_new(longest, &(msg_pattern *){NULL}, NULL), MSG_INVALID);
}

static int compile(void *arg) {
  msg_pattern *p = NULL;
  int rc = msg_pattern_new(arg, &p, NULL);
  msg_pattern_free(p);
  return rc;
}

static void allocation_failures(void **state) {
  (void)state;
  char name[] = "a", star[] = "a*", re[] = "/a/";
  fail_alloc_install();
  assert_int_equal(fail_alloc_each(compile, name), 1);
  assert_int_equal(fail_alloc_each(compile, star), 1);
  assert_int_equal(fail_alloc_each(compile, re), 2);
  for (int i = 0; i < 2; i++) { /* no leak on refusals either */
    assert_int_equal(msg_pattern_new(i ? "/(/" : "/a{9999}/", &(msg_pattern *){NULL}, NULL),
                     MSG_INVALID);
    assert_int_equal(fail_alloc_live(), 0);
  }
  fail_alloc_remove();
}

static void match_often(void *arg) {
  msg_pattern *const *p = arg;
  char topic[40];
  for (int i = 0; i < 500; i++) {
    snprintf(topic, sizeof topic, "orders.%d.new", i);
    if (!msg_pattern_match(p[0], topic) || !msg_pattern_match(p[1], topic))
      abort();
  }
}

static void patterns_are_shared_by_threads(void **state) {
  (void)state;
  msg_pattern *p[] = {compiled("/^orders\\.[0-9]+\\.(new|old)$/", MSG_PATTERN_REGEX),
                      compiled("orders.*.new", MSG_PATTERN_GLOB)};
  msg_thread *threads[8];
  for (int i = 0; i < 8; i++)
    assert_int_equal(msg_thread_start(&threads[i], "match", match_often, p, NULL), MSG_OK);
  for (int i = 0; i < 8; i++)
    msg_thread_join(threads[i]);
  msg_pattern_free(p[0]);
  msg_pattern_free(p[1]);
  msg_pattern_free(NULL);
}

static int setup(void **state) {
  (void)state;
  msg_pattern_set_glob(sqlite3_strglob);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_every_match_begins_with),
      cmocka_unit_test(exact),
      cmocka_unit_test(glob),
      cmocka_unit_test(glob_without_sqlite_matches_nothing),
      cmocka_unit_test(unclosed_brackets),
      cmocka_unit_test(regex),
      cmocka_unit_test(regex_that_libc_refuses),
      cmocka_unit_test(regex_that_would_take_the_machine_down),
      cmocka_unit_test(regex_that_only_looks_large),
      cmocka_unit_test(names_are_checked),
      cmocka_unit_test(allocation_failures),
      cmocka_unit_test(patterns_are_shared_by_threads),
  };
  return cmocka_run_group_tests(tests, setup, NULL);
}
