#include "store/mongo/json.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "support/cmocka_compat.h"

/* To BSON and back. */
static char *there_and_back(const char *text) {
  bson_t doc = BSON_INITIALIZER;
  bson_iter_t it;
  msg_str out = MSG_STR_INIT;
  msg_err err = MSG_ERR_INIT;
  if (msg_mongo_json_append(&doc, "v", text, &err) != MSG_OK) {
    bson_destroy(&doc);
    return NULL;
  }
  assert_true(bson_validate(&doc, BSON_VALIDATE_UTF8, NULL));
  assert_true(bson_iter_init_find(&it, &doc, "v"));
  msg_mongo_json_value(&out, &it);
  bson_destroy(&doc);
  return msg_str_take(&out);
}

static void comes_back_as_it_went(void **state) {
  static const char *const texts[] = {
      "{}",
      "[]",
      "{\"a\":[1,2.5,null,true,false]}",
      "{\"a\":{\"b\":{\"c\":[[],{},[[1]]]}}}",
      "[2147483647,2147483648,-2147483648,-2147483649,9223372036854775807]",
      "[0.1,1.0,-0.0,1e+300,1.5e-07]",
      "{\"jvm.heap.used\":1,\"$oid\":\"x\",\"$date\":5,\"\":2,\"a b\":3}",
      "[\"\",\"\\\"\\\\\\n\\t\\r\\b\\f\\u0001\",\"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\"]",
      "{\"a\":1,\"a\":2}",
  };
  (void)state;
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    char *back = there_and_back(texts[i]);
    assert_non_null(back);
    assert_string_equal(back, texts[i]);
    msg_free(back);
  }
}

static void is_minified(void **state) {
  static const char *const cases[][2] = {
      {" { \"a\" : [ 1 , 2 ] } ", "{\"a\":[1,2]}"},
      {"[\"\\u00e4\\ud83d\\ude00\\/\"]", "[\"\xc3\xa4\xf0\x9f\x98\x80/\"]"},
      {"[\"\\ud800x\"]", "[\"\xef\xbf\xbdx\"]"}, /* half of a pair */
      {"[1E2,9223372036854775808]", "[100.0,9.223372036854776e+18]"},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char *back = there_and_back(cases[i][0]);
    assert_non_null(back);
    assert_string_equal(back, cases[i][1]);
    msg_free(back);
  }
}

static void refuses_what_is_none(void **state) {
  static const char *const texts[] = {"",
                                      "1",
                                      "\"a\"",
                                      "null",
                                      "{",
                                      "[",
                                      "{\"a\"",
                                      "{\"a\":",
                                      "{\"a\":1",
                                      "{\"a\":1,}",
                                      "[1,]",
                                      "[1 2]",
                                      "[\"a",
                                      "[\"\\x\"]",
                                      "[\"\\u12\"]",
                                      "[nul]",
                                      "{a:1}",
                                      "[1]x",
                                      "{\"\\u0000\":1}",
                                      "[1.2.3]",
                                      "[-]"};
  (void)state;
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
    assert_null(there_and_back(texts[i]));
}

static void nests_only_so_deep(void **state) {
  char text[1024];
  (void)state;
  for (int depth = 70; depth <= 200; depth += 130) {
    memset(text, '[', (size_t)depth);
    memset(text + depth, ']', (size_t)depth);
    text[2 * depth] = '\0';
    char *back = there_and_back(text);
    assert_int_equal(back != NULL, depth == 70);
    msg_free(back);
  }
}

static void shows_what_json_lacks(void **state) {
  bson_t doc = BSON_INITIALIZER, sub;
  bson_iter_t it;
  bson_oid_t oid;
  msg_str out = MSG_STR_INIT;
  (void)state;
  bson_oid_init_from_string(&oid, "6b0cb8c20b33fd37b35d4d64");
  BSON_APPEND_DOCUMENT_BEGIN(&doc, "v", &sub);
  BSON_APPEND_OID(&sub, "id", &oid);
  BSON_APPEND_DATE_TIME(&sub, "at", 1795995903122);
  BSON_APPEND_BINARY(&sub, "bin", BSON_SUBTYPE_BINARY, (const uint8_t *)"\0\1\2", 3);
  BSON_APPEND_DOUBLE(&sub, "inf", 1e308 * 10);
  BSON_APPEND_REGEX(&sub, "re", "x", "");
  bson_append_document_end(&doc, &sub);
  assert_true(bson_iter_init_find(&it, &doc, "v"));
  msg_mongo_json_value(&out, &it);
  assert_string_equal(out.s, "{\"id\":{\"$oid\":\"6b0cb8c20b33fd37b35d4d64\"},"
                             "\"at\":{\"$date\":1795995903122},\"bin\":{\"$binary\":\"AAEC\"},"
                             "\"inf\":null,\"re\":null}");
  msg_str_clear(&out);
  bson_destroy(&doc);
}

int main(void) {
  static const struct CMUnitTest tests[] = {
      cmocka_unit_test(comes_back_as_it_went), cmocka_unit_test(is_minified),
      cmocka_unit_test(refuses_what_is_none),  cmocka_unit_test(nests_only_so_deep),
      cmocka_unit_test(shows_what_json_lacks),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
