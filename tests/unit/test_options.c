#include "model/options.h"

#include <string.h>

#include "support/cmocka_compat.h"
#include "support/fail_alloc.h"

#define SEND    MSG_VERB_SEND
#define ENQUEUE MSG_VERB_ENQUEUE
#define REQUEST MSG_VERB_REQUEST
#define REPLY   MSG_VERB_REPLY

#define INT(x)  ((struct given){msg_value_int(x), false})
#define BOOL(x) ((struct given){msg_value_int(x), true})
#define TEXT(x) ((struct given){msg_value_text(x), false})
#define JSON(x) ((struct given){{.type = MSG_TEXT, .json = true, .p = (x), .n = strlen(x)}, false})
#define REAL(x) ((struct given){{.type = MSG_REAL, .r = (x)}, false})
#define BLOB    ((struct given){{.type = MSG_BLOB, .p = "x", .n = 1}, false})
#define NOTHING ((struct given){{.type = MSG_NULL}, false})

struct given {
  msg_value v;
  bool is_bool;
};

static msg_options o;

static int setup(void **state) {
  (void)state;
  msg_options_init(&o);
  return 0;
}

static int teardown(void **state) {
  (void)state;
  msg_options_clear(&o);
  return 0;
}

static void good(enum msg_verb verb, const char *key, struct given g) {
  msg_err err = MSG_ERR_INIT;
  if (msg_options_set(&o, verb, key, &g.v, g.is_bool, &err) != MSG_OK)
    fail_msg("%s: %s", key, err.text);
}

/* Refused with this text, and nothing changed. */
static void bad(enum msg_verb verb, const char *key, struct given g, const char *why) {
  msg_err err = MSG_ERR_INIT;
  msg_options before = o;
  assert_int_equal(msg_options_set(&o, verb, key, &g.v, g.is_bool, &err), MSG_INVALID);
  assert_string_equal(err.text, why);
  assert_memory_equal(&before, &o, sizeof o);
  assert_int_equal(msg_options_set(&o, verb, key, &g.v, g.is_bool, NULL), MSG_INVALID);
}

static void add(const char *node) {
  msg_value v = msg_value_text(node);
  msg_err err = MSG_ERR_INIT;
  if (msg_options_add(&o, SEND, "recipients", node ? &v : NULL, &err) != MSG_OK)
    fail_msg("%s", err.text);
}

static void bad_add(const char *key, struct given g, const char *why) {
  msg_err err = MSG_ERR_INIT;
  msg_options before = o;
  assert_int_equal(msg_options_add(&o, SEND, key, &g.v, &err), MSG_INVALID);
  assert_string_equal(err.text, why);
  assert_memory_equal(&before, &o, sizeof o);
}

static void finishes(enum msg_verb verb) {
  msg_err err = MSG_ERR_INIT;
  if (msg_options_finish(&o, verb, &err) != MSG_OK)
    fail_msg("%s", err.text);
}

static void bad_finish(enum msg_verb verb, const char *why) {
  msg_err err = MSG_ERR_INIT;
  assert_int_equal(msg_options_finish(&o, verb, &err), MSG_INVALID);
  assert_string_equal(err.text, why);
}

static void nothing_given(void **state) {
  (void)state;
  assert_false(o.has_exclusive || o.has_priority || o.has_ttl || o.has_timing_out || o.has_delay ||
               o.has_deliver_at);
  assert_int_equal(o.m.priority, 1000);
  assert_true(o.m.timing_out);
  assert_int_equal(o.answers, 0);
  finishes(SEND);
  assert_false(o.m.exclusive);
  finishes(REQUEST);
  finishes(REPLY);
  finishes(ENQUEUE);
  assert_true(o.m.exclusive);
}

static void exclusive(void **state) {
  (void)state;
  good(SEND, "exclusive", BOOL(1));
  assert_true(o.has_exclusive && o.m.exclusive);
  bad(SEND, "exclusive", BOOL(0), "option 'exclusive' is given twice: keep one");
  teardown(NULL);
  good(SEND, "exclusive", INT(0));
  assert_true(o.has_exclusive && !o.m.exclusive);
  teardown(NULL);
  good(REQUEST, "exclusive", INT(1));
  teardown(NULL);
  good(ENQUEUE, "exclusive", BOOL(1));
  teardown(NULL);
  bad(ENQUEUE, "exclusive", BOOL(0),
      "option 'exclusive' is false, but msg_enqueue sends to one owner: use msg_send");
  bad(REPLY, "exclusive", BOOL(1),
      "option 'exclusive' is not for msg_reply: use it with msg_send, "
      "msg_enqueue, msg_request");
  bad(SEND, "exclusive", INT(2), "option 'exclusive' takes true or false, not integer");
  bad(SEND, "exclusive", INT(-1), "option 'exclusive' takes true or false, not integer");
  bad(SEND, "exclusive", TEXT("true"), "option 'exclusive' takes true or false, not text");
  bad(SEND, "exclusive", REAL(1), "option 'exclusive' takes true or false, not real");
  bad(SEND, "exclusive", NOTHING,
      "option 'exclusive' takes true or false, not null: leave it out for the default");
}

static void priority(void **state) {
  (void)state;
  good(SEND, "priority", INT(INT32_MIN));
  assert_true(o.has_priority && o.m.priority == INT32_MIN);
  teardown(NULL);
  good(REPLY, "priority", INT(INT32_MAX));
  assert_true(o.m.priority == INT32_MAX);
  teardown(NULL);
  bad(SEND, "priority", INT(INT64_C(2147483648)),
      "option 'priority' is 2147483648: give it -2147483648 to 2147483647");
  bad(SEND, "priority", INT(INT64_C(-2147483649)),
      "option 'priority' is -2147483649: give it -2147483648 to 2147483647");
  bad(SEND, "priority", TEXT("high"), "option 'priority' takes an integer, not text");
  bad(SEND, "priority", REAL(1), "option 'priority' takes an integer, not real");
  bad(SEND, "priority", BOOL(1), "option 'priority' takes an integer, not boolean");
  bad(SEND, "priority", BLOB, "option 'priority' takes an integer, not blob");
  bad(SEND, "priority", JSON("[1]"), "option 'priority' takes an integer, not a JSON array");
}

static void life(void **state) {
  (void)state;
  good(SEND, "ttl_ms", INT(1));
  assert_true(o.has_ttl && o.m.ttl_ms == 1 && o.m.timing_out);
  bad(SEND, "timing_out", BOOL(0),
      "options 'ttl_ms' and 'timing_out' contradict each other: give one");
  good(SEND, "timing_out", BOOL(1));
  teardown(NULL);
  good(ENQUEUE, "timing_out", BOOL(0));
  assert_true(o.has_timing_out && !o.m.timing_out && o.m.ttl_ms == 0);
  bad(ENQUEUE, "ttl_ms", INT(1),
      "options 'timing_out' and 'ttl_ms' contradict each other: give one");
  teardown(NULL);
  good(SEND, "timing_out", BOOL(1));
  good(SEND, "ttl_ms", INT(MSG_DURATION_MAX_MS));
  teardown(NULL);
  bad(SEND, "ttl_ms", INT(0), "option 'ttl_ms' is 0: give it 1 to 3153600000000");
  bad(SEND, "ttl_ms", INT(INT64_MAX),
      "option 'ttl_ms' is 9223372036854775807: give it 1 to 3153600000000");
  bad(SEND, "timing_out", TEXT("no"), "option 'timing_out' takes true or false, not text");
}

static void delivery_time(void **state) {
  (void)state;
  good(SEND, "delay_ms", INT(0));
  assert_true(o.has_delay && o.delay_ms == 0);
  bad(SEND, "deliver_at", INT(5),
      "options 'delay_ms' and 'deliver_at' contradict each other: give one");
  teardown(NULL);
  good(ENQUEUE, "deliver_at", INT(MSG_TIME_MAX_MS));
  assert_true(o.has_deliver_at && o.m.deliver_at_ms == MSG_TIME_MAX_MS);
  bad(ENQUEUE, "delay_ms", INT(5),
      "options 'deliver_at' and 'delay_ms' contradict each other: give one");
  teardown(NULL);
  bad(SEND, "delay_ms", INT(-1), "option 'delay_ms' is -1: give it 0 to 3153600000000");
  bad(SEND, "deliver_at", INT(-1), "option 'deliver_at' is -1: give it 0 to 253402300799999");
  bad(SEND, "deliver_at", TEXT("2026-01-01T00:00:00Z"),
      "option 'deliver_at' takes an integer (ms since 1970, UTC), not text");
  bad(REQUEST, "delay_ms", INT(1),
      "option 'delay_ms' is not for msg_request: use it with msg_send, msg_enqueue");
  bad(REPLY, "deliver_at", INT(1),
      "option 'deliver_at' is not for msg_reply: use it with msg_send, msg_enqueue");
}

static void one_recipient(void **state) {
  (void)state;
  good(REQUEST, "recipient", TEXT("n1"));
  assert_int_equal(o.m.recipient_count, 1);
  assert_string_equal(o.m.recipients[0], "n1");
  bad_add("recipients", TEXT("n2"),
          "options 'recipient' and 'recipients' contradict each other: give one");
  bad(SEND, "recipient", TEXT("n2"), "option 'recipient' is given twice: keep one");
  teardown(NULL);
  bad(SEND, "recipient", TEXT(""), "option 'recipient': empty sender id: give it 1 to 128 bytes");
  bad(SEND, "recipient", TEXT("self"),
      "option 'recipient': sender id 'self' is reserved by Morphium: choose another name");
  bad(SEND, "recipient", INT(1), "option 'recipient' takes text, not integer");
  bad(SEND, "recipient", JSON("[\"a\"]"), "option 'recipient' takes text, not a JSON array");
  bad(REPLY, "recipient", TEXT("a"),
      "option 'recipient' is not for msg_reply: use it with msg_send, "
      "msg_enqueue, msg_request");
}

static void many_recipients(void **state) {
  (void)state;
  assert_true(msg_options_is_array("recipients"));
  assert_false(msg_options_is_array("recipient"));
  assert_false(msg_options_is_array("nonsense"));
  add(NULL);
  add("n1");
  add("n2");
  add("n1");
  assert_int_equal(o.m.recipient_count, 2);
  assert_string_equal(o.m.recipients[1], "n2");
  bad(SEND, "recipient", TEXT("n3"),
      "options 'recipients' and 'recipient' contradict each other: give one");
  bad_add("recipients", INT(1), "option 'recipients' takes an array of text, not integer");
  bad_add("recipients", JSON("{}"),
          "option 'recipients' takes an array of text, not a JSON object");
  bad_add("recipients", TEXT("_x"),
          "option 'recipients': sender id '_x' has a leading or double underscore, which "
          "Morphium cannot fold: use '-' instead");
  bad_add("recipients", TEXT("\xff"),
          "option 'recipients' with '\\xff' is not valid UTF-8: encode it as UTF-8");
  bad_add("priority", INT(1), "option 'priority' takes an integer, not an array");
  bad_add("nonsens", INT(1),
          "unknown option 'nonsens': known are exclusive, priority, ttl_ms, "
          "timing_out, delay_ms, deliver_at, recipient, recipients, key, group, "
          "msg, map, additional, in_answer_to, delete_after_processing, "
          "delete_after_processing_ms, id, node");
  msg_err err = MSG_ERR_INIT;
  assert_int_equal(msg_options_add(&o, SEND, "recipients", NULL, &err), MSG_INVALID);
  assert_string_equal(err.text, "option 'recipients' is given twice: keep one");
  finishes(SEND);
}

static void recipients_need_an_array(void **state) {
  (void)state;
  bad(SEND, "recipients", TEXT("n1"), "option 'recipients' takes an array of text, not text");
  add(NULL);
  bad_finish(SEND, "option 'recipients' is empty: name a node, or leave it out for everybody");
  teardown(NULL);
  add("n1"); /* without the mark of its start */
  finishes(SEND);
}

static void key_and_group(void **state) {
  (void)state;
  good(SEND, "key", TEXT("order-1"));
  assert_string_equal(o.m.key, "order-1");
  good(SEND, "group", TEXT("customer 7"));
  assert_string_equal(o.m.group, "customer 7");
  bad_finish(SEND, "option 'group' needs one owner: add exclusive: true, or use msg_enqueue");
  bad_finish(REQUEST, "option 'group' needs one owner: add exclusive: true, or use msg_enqueue");
  good(SEND, "exclusive", BOOL(1));
  finishes(SEND);
  teardown(NULL);
  good(ENQUEUE, "group", TEXT("g"));
  finishes(ENQUEUE);
  assert_true(o.m.exclusive);
  teardown(NULL);
  bad(SEND, "key", TEXT(""), "empty key: give it 1 to 512 bytes");
  bad(SEND, "group", TEXT(""), "empty group: give it 1 to 512 bytes");
  bad(SEND, "key", INT(7), "option 'key' takes text, not integer");
  bad(SEND, "key", NOTHING, "option 'key' takes text, not null: leave it out for the default");
  bad(REQUEST, "key", TEXT("a"),
      "option 'key' is not for msg_request: use it with msg_send, msg_enqueue");
  bad(REPLY, "group", TEXT("a"),
      "option 'group' is not for msg_reply: use it with msg_send, "
      "msg_enqueue, msg_request");
}

static void texts(void **state) {
  (void)state;
  good(REPLY, "msg", TEXT(""));
  assert_string_equal(o.m.msg, "");
  good(REPLY, "node", TEXT("worker-1"));
  assert_string_equal(o.node, "worker-1");
  teardown(NULL);
  good(SEND, "msg", TEXT("caf\xc3\xa9\n"));
  assert_string_equal(o.m.msg, "caf\xc3\xa9\n");
  teardown(NULL);
  bad(SEND, "msg", TEXT("\xc3"),
      "option 'msg' with '\\xc3' is not valid UTF-8: encode it as UTF-8");
  struct given nul = {{.type = MSG_TEXT, .p = "a\0b", .n = 3}, false};
  bad(SEND, "msg", nul, "option 'msg' holds a NUL character: remove it");
  bad(SEND, "msg", BLOB, "option 'msg' takes text, not blob");
  bad(SEND, "node", TEXT("__"),
      "option 'node': sender id '__' has a leading or double underscore, which Morphium "
      "cannot fold: use '-' instead");
}

static void json(void **state) {
  (void)state;
  good(SEND, "map", JSON(" {\"a\":1}"));
  assert_string_equal(o.m.map, " {\"a\":1}");
  good(SEND, "additional", JSON("[1,2]"));
  assert_string_equal(o.m.additional, "[1,2]");
  teardown(NULL);
  bad(SEND, "map", JSON("[1]"), "option 'map' takes a JSON object, not a JSON array");
  bad(SEND, "map", TEXT("{}"), "option 'map' takes a JSON object, not text");
  bad(SEND, "map", JSON("1"), "option 'map' takes a JSON object, not JSON");
  bad(SEND, "map", INT(1), "option 'map' takes a JSON object, not integer");
  bad(SEND, "map", NOTHING,
      "option 'map' takes a JSON object, not null: leave it out for the default");
  bad(SEND, "additional", JSON("{}"), "option 'additional' takes a JSON array, not a JSON object");
  bad(SEND, "additional", TEXT("[]"), "option 'additional' takes a JSON array, not text");
}

static void ids(void **state) {
  (void)state;
  char hex[MSG_OID_HEX + 1];
  good(SEND, "id", TEXT("0123456789ABCDEF01234567"));
  msg_oid_hex(&o.m.id, hex);
  assert_string_equal(hex, "0123456789abcdef01234567");
  good(SEND, "in_answer_to", TEXT("000000000000000000000001"));
  assert_int_equal(o.m.in_answer_to.b[11], 1);
  teardown(NULL);
  bad(SEND, "id", TEXT("xyz"), "option 'id' is 'xyz', no message id: give it 24 hex digits");
  bad(SEND, "id", TEXT("000000000000000000000000"),
      "option 'id' is the zero id: give it the id of a message");
  bad(SEND, "in_answer_to", TEXT("0123456789abcdef012345678"),
      "option 'in_answer_to' is '0123456789abcdef012345678', no message id: give it 24 hex digits");
  bad(SEND, "id", INT(1), "option 'id' takes a message id, not integer");
  bad(REPLY, "in_answer_to", TEXT("000000000000000000000001"),
      "option 'in_answer_to' is not for msg_reply: use it with msg_send, msg_enqueue");
}

static void delete_after_processing(void **state) {
  (void)state;
  good(SEND, "delete_after_processing_ms", INT(INT32_MAX));
  assert_int_equal(o.m.delete_after_processing_ms, INT32_MAX);
  bad_finish(SEND,
             "option 'delete_after_processing_ms' needs delete_after_processing: true: add it");
  good(SEND, "delete_after_processing", BOOL(1));
  assert_true(o.m.delete_after_processing);
  finishes(SEND);
  teardown(NULL);
  bad(SEND, "delete_after_processing_ms", INT(-1),
      "option 'delete_after_processing_ms' is -1: give it 0 to 2147483647");
  bad(SEND, "delete_after_processing", INT(5),
      "option 'delete_after_processing' takes true or false, not integer");
}

static void answers(void **state) {
  (void)state;
  good(REQUEST, "answers", INT(3));
  assert_int_equal(o.answers, 3);
  teardown(NULL);
  bad(REQUEST, "answers", INT(0), "option 'answers' is 0: give it 1 to 2147483647");
  bad(SEND, "answers", INT(1), "option 'answers' is not for msg_send: use it with msg_request");
  bad(ENQUEUE, "answers", INT(1),
      "option 'answers' is not for msg_enqueue: use it with msg_request");
}

static void unknown_keys(void **state) {
  (void)state;
  bad(SEND, "prioirty", INT(1), "unknown option 'prioirty': did you mean 'priority'?");
  bad(SEND, "TTL_MS", INT(1), "unknown option 'TTL_MS': did you mean 'ttl_ms'?");
  bad(SEND, "answer\n", INT(1),
      "unknown option 'answer\\x0a': known are exclusive, priority, ttl_ms, timing_out, delay_ms, "
      "deliver_at, recipient, recipients, key, group, msg, map, additional, in_answer_to, "
      "delete_after_processing, delete_after_processing_ms, id, node");
  bad(REPLY, "", INT(1),
      "unknown option '': known are priority, ttl_ms, timing_out, msg, map, "
      "additional, delete_after_processing, delete_after_processing_ms, id, node");
}

static int set_all(void *arg) {
  static const struct {
    const char *key;
    const char *text;
    bool json;
  } TEXTS[] = {{"key", "k", false},      {"group", "g", false}, {"msg", "m", false},
               {"map", "{}", true},      {"node", "n", false},  {"additional", "[]", true},
               {"recipient", "r", false}};
  (void)arg;
  msg_options all;
  int rc = MSG_OK;
  msg_options_init(&all);
  for (size_t i = 0; i < sizeof TEXTS / sizeof TEXTS[0] && rc == MSG_OK; i++) {
    msg_value v = msg_value_text(TEXTS[i].text);
    v.json = TEXTS[i].json;
    rc = msg_options_set(&all, ENQUEUE, TEXTS[i].key, &v, false, NULL);
  }
  msg_options_clear(&all);
  return rc;
}

static int add_all(void *arg) {
  (void)arg;
  msg_options all;
  msg_value a = msg_value_text("a"), b = msg_value_text("b");
  msg_options_init(&all);
  int rc = msg_options_add(&all, SEND, "recipients", NULL, NULL);
  if (rc == MSG_OK)
    rc = msg_options_add(&all, SEND, "recipients", &a, NULL);
  if (rc == MSG_OK)
    rc = msg_options_add(&all, SEND, "recipients", &b, NULL);
  msg_options_clear(&all);
  return rc;
}

static void allocation_failures(void **state) {
  (void)state;
  fail_alloc_install();
  assert_int_equal(fail_alloc_each(set_all, NULL), 8);
  assert_int_equal(fail_alloc_each(add_all, NULL), 4);
  fail_alloc_remove();
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(nothing_given),
      TEST(exclusive),
      TEST(priority),
      TEST(life),
      TEST(delivery_time),
      TEST(one_recipient),
      TEST(many_recipients),
      TEST(recipients_need_an_array),
      TEST(key_and_group),
      TEST(texts),
      TEST(json),
      TEST(ids),
      TEST(answers),
      TEST(delete_after_processing),
      TEST(unknown_keys),
      TEST(allocation_failures),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
