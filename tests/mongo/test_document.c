#include "store/mongo/document.h"

#include <string.h>

#include "base/mem.h"
#include "support/cmocka_compat.h"
#include "support/fail_alloc.h"

#define NOW INT64_C(1795995843122)

static bson_t *parse(const char *json) {
  bson_error_t error;
  bson_t *doc = bson_new_from_json((const uint8_t *)json, -1, &error);
  if (!doc)
    fail_msg("%s", error.message);
  return doc;
}

static void read_doc(const bson_t *doc, msg_message *m) {
  msg_err err = MSG_ERR_INIT;
  int rc = msg_mongo_message(doc, NOW, false, m, &err);
  if (rc != MSG_OK)
    fail_msg("%s", err.text);
}

static void read_json(const char *json, msg_message *m) {
  bson_t *doc = parse(json);
  read_doc(doc, m);
  bson_destroy(doc);
}

/* A message with little in it. */
static msg_message plain(void) {
  msg_message m;
  msg_message_init(&m);
  msg_oid_parse("6b0cb8c20b33fd37b35d4d64", &m.id);
  m.topic = (char *)"order.created";
  m.sender = (char *)"node-a";
  m.sender_host = (char *)"vm";
  m.timestamp_ms = m.deliver_at_ms = NOW;
  m.ttl_ms = 60000;
  m.delete_at_ms = NOW + 60000;
  return m;
}

static bson_t *document(const msg_message *m, const msg_mongo_standing *standing) {
  msg_err err = MSG_ERR_INIT;
  bson_t *doc = bson_new();
  if (msg_mongo_document(m, standing, doc, &err) != MSG_OK)
    fail_msg("%s", err.text);
  assert_true(bson_validate(doc, BSON_VALIDATE_UTF8, NULL));
  return doc;
}

static bson_type_t type_at(const bson_t *doc, const char *path) {
  bson_iter_t it, found;
  assert_true(bson_iter_init(&it, doc));
  return bson_iter_find_descendant(&it, path, &found) ? bson_iter_type(&found) : BSON_TYPE_EOD;
}

static void has_names(const bson_t *doc, const char *key, const char *want) {
  bson_iter_t field, it;
  char text[128] = "";
  assert_true(bson_iter_init_find(&field, doc, key) && BSON_ITER_HOLDS_ARRAY(&field));
  for (bson_iter_recurse(&field, &it); bson_iter_next(&it);)
    strcat(strcat(text, bson_iter_utf8(&it, NULL)), " ");
  assert_string_equal(text, want);
}

/* ---- writing ---- */

/* Java nodes break without them. */
static void every_field_with_its_type(void **state) {
  static const struct {
    const char *name;
    bson_type_t type;
  } fields[] = {{"_id", BSON_TYPE_OID},
                {"class_name", BSON_TYPE_UTF8},
                {"topic", BSON_TYPE_UTF8},
                {"name", BSON_TYPE_UTF8},
                {"msg", BSON_TYPE_NULL},
                {"value", BSON_TYPE_NULL},
                {"map_value", BSON_TYPE_NULL},
                {"additional", BSON_TYPE_NULL},
                {"sender", BSON_TYPE_UTF8},
                {"sender_host", BSON_TYPE_UTF8},
                {"recipients", BSON_TYPE_NULL},
                {"in_answer_to", BSON_TYPE_NULL},
                {"processed_by", BSON_TYPE_ARRAY},
                {"exclusive", BSON_TYPE_BOOL},
                {"priority", BSON_TYPE_INT32},
                {"timestamp", BSON_TYPE_INT64},
                {"ttl", BSON_TYPE_INT64},
                {"timing_out", BSON_TYPE_BOOL},
                {"delete_at", BSON_TYPE_DATE_TIME},
                {"delete_after_processing", BSON_TYPE_BOOL},
                {"delete_after_processing_time", BSON_TYPE_INT32}};
  msg_message m = plain();
  (void)state;
  bson_t *doc = document(&m, &(msg_mongo_standing){.now_ms = NOW});
  for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
    assert_int_equal(type_at(doc, fields[i].name), fields[i].type);
  assert_int_equal(bson_count_keys(doc), sizeof fields / sizeof *fields);
  assert_string_equal(msg_mongo_get_text(doc, "class_name"), "de.caluga.morphium.messaging.Msg");
  assert_string_equal(msg_mongo_get_text(doc, "name"), "order.created");
  has_names(doc, "processed_by", "");
  bson_destroy(doc);
  m.timing_out = false;
  m.ttl_ms = 0;
  m.delete_at_ms = MSG_NEVER;
  doc = document(&m, &(msg_mongo_standing){.now_ms = NOW});
  assert_int_equal(type_at(doc, "delete_at"), BSON_TYPE_NULL);
  assert_int_equal(msg_mongo_get_int(doc, "ttl", -1), 0);
  bson_destroy(doc);
}

static void delayed_is_hidden_from_java(void **state) {
  char *names[] = {(char *)"a", (char *)"b"};
  msg_message m = plain(), back;
  (void)state;
  m.deliver_at_ms = NOW + 5000;
  bson_t *doc = document(&m, &(msg_mongo_standing){.now_ms = NOW}); /* a broadcast */
  has_names(doc, "processed_by", "~delayed ");
  has_names(doc, "recipients", "~delayed ");
  assert_int_equal(type_at(doc, "sq.to"), BSON_TYPE_NULL);
  assert_int_equal(msg_mongo_get_int(doc, "timestamp", 0), NOW + 5000);
  assert_int_equal(msg_mongo_get_int(doc, "sq.sent", 0), NOW);
  read_doc(doc, &back);
  assert_int_equal(back.state, MSG_STATE_DELAYED);
  assert_int_equal(back.recipient_count, 0);
  assert_string_equal(back.processed_by, "[]");
  assert_int_equal(back.timestamp_ms, NOW);
  assert_int_equal(back.deliver_at_ms, NOW + 5000);
  msg_message_clear(&back);
  bson_destroy(doc);
  m.recipients = names;
  m.recipient_count = 2;
  doc = document(&m, &(msg_mongo_standing){.now_ms = NOW});
  has_names(doc, "recipients", "~delayed ");
  read_doc(doc, &back);
  assert_int_equal(back.recipient_count, 2);
  assert_string_equal(back.recipients[1], "b");
  msg_message_clear(&back);
  bson_destroy(doc);
  m.exclusive = true; /* its mark is enough */
  doc = document(&m, &(msg_mongo_standing){.now_ms = NOW});
  has_names(doc, "recipients", "a b ");
  has_names(doc, "processed_by", "~delayed ");
  bson_destroy(doc);
}

static void groups_have_a_head(void **state) {
  msg_message m = plain(), back;
  (void)state;
  m.exclusive = true;
  m.group = (char *)"g";
  bson_t *doc = document(&m, &(msg_mongo_standing){.now_ms = NOW, .head = true});
  assert_int_equal(type_at(doc, "sq.head"), BSON_TYPE_BOOL);
  assert_int_equal(msg_mongo_get_int(doc, "sq.sent", 0), NOW);
  has_names(doc, "processed_by", "");
  bson_destroy(doc);
  doc = document(&m, &(msg_mongo_standing){.now_ms = NOW, .blocked = true});
  assert_int_equal(type_at(doc, "sq.head"), BSON_TYPE_EOD);
  has_names(doc, "processed_by", "~fifo ");
  read_doc(doc, &back);
  assert_int_equal(back.state, MSG_STATE_BLOCKED);
  msg_message_clear(&back);
  bson_destroy(doc);
}

static void the_servers_clock_is_used(void **state) {
  msg_message m = plain();
  (void)state;
  bson_t *doc = document(&m, &(msg_mongo_standing){.now_ms = NOW + 7000, .shift_ms = 7000});
  assert_int_equal(msg_mongo_get_int(doc, "timestamp", 0), NOW + 7000);
  assert_int_equal(msg_mongo_get_int(doc, "delete_at", 0), NOW + 67000);
  assert_int_equal(type_at(doc, "sq"), BSON_TYPE_EOD); /* not delayed by it */
  bson_destroy(doc);
}

static void values_keep_their_types(void **state) {
  char bytes[] = {0, 1, (char)255, 'x'};
  const msg_value values[] = {{.type = MSG_NULL},
                              {.type = MSG_INT, .i = INT64_MIN},
                              {.type = MSG_REAL, .r = 0.1},
                              {.type = MSG_REAL, .r = 1e300},
                              {.type = MSG_TEXT, .p = (char *)"", .n = 0},
                              {.type = MSG_TEXT, .p = (char *)"\xc3\xa4", .n = 2},
                              {.type = MSG_TEXT, .p = bytes, .n = 4}, /* no UTF-8, and a NUL */
                              {.type = MSG_TEXT, .p = (char *)"[1]", .n = 3, .json = true},
                              {.type = MSG_BLOB, .p = bytes, .n = 4},
                              {.type = MSG_BLOB, .p = bytes, .n = 1},
                              {.type = MSG_BLOB, .p = NULL, .n = 0}};
  (void)state;
  for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
    msg_message m = plain(), back;
    m.value = values[i];
    bson_t *doc = document(&m, &(msg_mongo_standing){.now_ms = NOW});
    assert_true(type_at(doc, "value") == BSON_TYPE_UTF8 || type_at(doc, "value") == BSON_TYPE_NULL);
    read_doc(doc, &back);
    assert_int_equal(back.value.type, values[i].type);
    assert_int_equal(back.value.json, values[i].json);
    assert_true(back.value.i == values[i].i && back.value.r == values[i].r);
    assert_int_equal(back.value.n, values[i].n);
    if (values[i].n)
      assert_memory_equal(back.value.p, values[i].p, values[i].n);
    msg_message_clear(&back);
    bson_destroy(doc);
  }
}

static void too_big_is_refused(void **state) {
  size_t n = MSG_MONGO_DOCUMENT_MAX;
  char *text = msg_alloc(n);
  msg_message m = plain();
  msg_err err = MSG_ERR_INIT;
  bson_t *doc = bson_new();
  (void)state;
  assert_non_null(text);
  memset(text, 'x', n);
  m.value = (msg_value){.type = MSG_TEXT, .p = text, .n = n};
  assert_int_equal(msg_mongo_document(&m, &(msg_mongo_standing){.now_ms = NOW}, doc, &err),
                   MSG_TOOBIG);
  bson_reinit(doc);
  m.value.n = n - 1000;
  assert_int_equal(msg_mongo_document(&m, &(msg_mongo_standing){.now_ms = NOW}, doc, &err), MSG_OK);
  bson_destroy(doc);
  msg_free(text);
}

/* ---- reading what others wrote ---- */

#define ID "\"_id\":{\"$oid\":\"6b0cb8c20b33fd37b35d4d64\"}"

static void numbers_of_every_type(void **state) {
  static const char *const forms[] = {
      "{" ID ",\"priority\":5,\"ttl\":60000,\"timestamp\":{\"$numberLong\":\"1795995843122\"}}",
      "{" ID ",\"priority\":{\"$numberLong\":\"5\"},\"ttl\":{\"$numberDouble\":\"60000\"},"
      "\"timestamp\":{\"$numberDouble\":\"1795995843122\"}}",
      "{" ID ",\"priority\":{\"$numberDouble\":\"5\"},\"ttl\":{\"$numberLong\":\"60000\"},"
      "\"timestamp\":{\"$date\":{\"$numberLong\":\"1795995843122\"}}}"};
  (void)state;
  for (size_t i = 0; i < 3; i++) {
    msg_message m;
    read_json(forms[i], &m);
    assert_int_equal(m.priority, 5);
    assert_int_equal(m.ttl_ms, 60000);
    assert_int_equal(m.timestamp_ms, NOW);
    assert_int_equal(m.delete_at_ms, NOW + 60000); /* none was written: as Java nodes reckon */
    msg_message_clear(&m);
  }
}

static void null_missing_and_empty_marks(void **state) {
  static const char *const forms[] = {"", ",\"processed_by\":null", ",\"processed_by\":[]",
                                      ",\"processed_by\":[\"~delayed\"]"};
  (void)state;
  for (size_t i = 0; i < 4; i++) {
    char json[256];
    msg_message m;
    snprintf(json, sizeof json, "{" ID ",\"topic\":\"t\",\"exclusive\":true%s}", forms[i]);
    read_json(json, &m);
    assert_string_equal(m.processed_by, "[]");
    assert_int_equal(m.state, MSG_STATE_READY);
    msg_message_clear(&m);
  }
}

static void the_old_name(void **state) {
  msg_message m;
  (void)state;
  read_json("{" ID ",\"name\":\"old\",\"topic\":null}", &m);
  assert_string_equal(m.topic, "old");
  msg_message_clear(&m);
  read_json("{" ID ",\"name\":\"old\",\"topic\":\"new\"}", &m);
  assert_string_equal(m.topic, "new");
  msg_message_clear(&m);
  read_json("{" ID ",\"topic\":\"new\",\"name\":\"old\"}", &m);
  assert_string_equal(m.topic, "new");
  msg_message_clear(&m);
}

static void next_to_nothing(void **state) {
  msg_message m;
  msg_err err = MSG_ERR_INIT;
  (void)state;
  read_json("{" ID "}", &m);
  assert_string_equal(m.topic, "");
  assert_string_equal(m.sender, "");
  assert_int_equal(m.priority, MSG_PRIORITY_DEFAULT);
  assert_true(m.timing_out);
  assert_false(m.exclusive);
  msg_message_clear(&m);
  bson_t *doc = parse("{\"_id\":\"text\",\"topic\":\"t\"}");
  assert_int_equal(msg_mongo_message(doc, NOW, false, &m, &err), MSG_CORRUPT);
  bson_destroy(doc);
}

static void values_that_are_no_strings(void **state) {
  static const struct {
    const char *json;
    enum msg_type type;
    const char *text;
  } cases[] = {{"7", MSG_INT, NULL},
               {"true", MSG_INT, NULL},
               {"0.5", MSG_REAL, NULL},
               {"null", MSG_NULL, NULL},
               {"{\"a\":[1]}", MSG_TEXT, "{\"a\":[1]}"},
               {"[1,\"x\"]", MSG_TEXT, "[1,\"x\"]"},
               {"{\"$binary\":{\"base64\":\"AAE=\",\"subType\":\"00\"}}", MSG_BLOB, NULL}};
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char json[256];
    msg_message m;
    snprintf(json, sizeof json, "{" ID ",\"value\":%s}", cases[i].json);
    read_json(json, &m);
    assert_int_equal(m.value.type, cases[i].type);
    if (cases[i].text)
      assert_string_equal(m.value.p, cases[i].text);
    msg_message_clear(&m);
  }
}

static void state_is(const char *fields, enum msg_state want) {
  char json[512];
  msg_message m;
  snprintf(json, sizeof json, "{" ID ",\"topic\":\"t\",%s}", fields);
  read_json(json, &m);
  if (m.state != want)
    print_error("%s\n", fields);
  assert_int_equal(m.state, want);
  assert_int_equal(want == MSG_STATE_CLAIMED, m.owner != NULL);
  msg_message_clear(&m);
}

#define UNTIL(at) "\"until\":{\"$date\":{\"$numberLong\":\"" at "\"}}"
#define LATER     "1795995843123"
#define EARLIER   "1795995843122" /* now: over */

static void states(void **state) {
  (void)state;
  state_is("\"exclusive\":true,\"processed_by\":[\"java\"]", MSG_STATE_PROCESSED);
  state_is("\"recipients\":[\"a\",\"b\"],\"processed_by\":[\"b\"]", MSG_STATE_READY);
  state_is("\"recipients\":[\"a\",\"b\"],\"processed_by\":[\"b\",\"a\"]", MSG_STATE_PROCESSED);
  state_is("\"processed_by\":[\"a\"]", MSG_STATE_READY);
  state_is("\"sq\":{\"state\":\"claimed\",\"owner\":\"a\"," UNTIL(LATER) "}", MSG_STATE_CLAIMED);
  state_is("\"sq\":{\"state\":\"claimed\",\"owner\":\"a\"," UNTIL(EARLIER) "}", MSG_STATE_READY);
  state_is("\"sq\":{\"state\":\"delayed\"," UNTIL(LATER) "}", MSG_STATE_DELAYED);
  state_is("\"sq\":{\"state\":\"delayed\"," UNTIL(EARLIER) "}", MSG_STATE_READY);
  state_is("\"sq\":{\"state\":\"dead\",\"reason\":\"r\"},\"ttl\":1,\"timestamp\":1",
           MSG_STATE_DEAD); /* without end */
  state_is("\"delete_at\":{\"$date\":{\"$numberLong\":\"" EARLIER "\"}}", MSG_STATE_EXPIRED);
  state_is("\"delete_at\":{\"$date\":{\"$numberLong\":\"" LATER "\"}}", MSG_STATE_READY);
  /* a claim outlives the message */
  state_is("\"delete_at\":{\"$date\":{\"$numberLong\":\"" EARLIER "\"}},"
           "\"sq\":{\"state\":\"claimed\",\"owner\":\"a\"," UNTIL(LATER) "}",
           MSG_STATE_CLAIMED);
}

static void marks_are_sorted_and_quoted(void **state) {
  msg_message m;
  (void)state;
  read_json("{" ID ",\"processed_by\":[\"n1\",\"n \\\"2\\\"\",5,\"~fifo\"]}", &m);
  assert_string_equal(m.processed_by, "[\"n \\\"2\\\"\",\"n1\"]");
  msg_message_clear(&m);
}

static void seq_follows_the_ids(void **state) {
  int64_t last = 0;
  (void)state;
  for (int i = 0; i < 1000; i++) {
    msg_oid id = msg_oid_new();
    int64_t seq = msg_mongo_seq(&id);
    assert_true(seq > last);
    last = seq;
  }
}

static int read_all(void *arg) {
  msg_message m;
  int rc = msg_mongo_message(arg, NOW, false, &m, NULL);
  if (rc == MSG_OK)
    msg_message_clear(&m);
  return rc;
}

static void without_memory(void **state) {
  bson_t *doc = parse(
      "{" ID ",\"topic\":\"t\",\"msg\":\"m\",\"value\":\"v\",\"map_value\":{\"a\":[1]},"
      "\"additional\":[\"x\"],\"sender\":\"s\",\"sender_host\":\"h\",\"recipients\":[\"a\",\"b\"],"
      "\"processed_by\":[\"a\",\"c\"],\"sq\":{\"state\":\"claimed\",\"owner\":\"c\",\"key\":\"k\","
      "\"group\":\"g\",\"reason\":\"r\",\"to\":[\"z\"]," UNTIL(LATER) "}}");
  (void)state;
  fail_alloc_install();
  assert_true(fail_alloc_each(read_all, doc) > 10);
  fail_alloc_remove();
  bson_destroy(doc);
}

int main(void) {
  static const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_field_with_its_type),
      cmocka_unit_test(delayed_is_hidden_from_java),
      cmocka_unit_test(groups_have_a_head),
      cmocka_unit_test(the_servers_clock_is_used),
      cmocka_unit_test(values_keep_their_types),
      cmocka_unit_test(too_big_is_refused),
      cmocka_unit_test(numbers_of_every_type),
      cmocka_unit_test(null_missing_and_empty_marks),
      cmocka_unit_test(the_old_name),
      cmocka_unit_test(next_to_nothing),
      cmocka_unit_test(values_that_are_no_strings),
      cmocka_unit_test(states),
      cmocka_unit_test(marks_are_sorted_and_quoted),
      cmocka_unit_test(seq_follows_the_ids),
      cmocka_unit_test(without_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
