/* Collections by layout, as Morphium names them. No server. */
#include "store/mongo/layout.h"

#include <stdio.h>
#include <string.h>

#include "model/message.h"
#include "support/cmocka_compat.h"

static const msg_mongo_layout *layout(const char *name) {
  const msg_mongo_layout *l = msg_mongo_layout_of(name);
  assert_non_null(l);
  return l;
}

static msg_mongo_names names_of(const char *queue) {
  msg_mongo_names n;
  assert_int_equal(msg_mongo_names_of(queue, &n, NULL), MSG_OK);
  return n;
}

static void by_name_and_by_announcement(void **state) {
  (void)state;
  assert_string_equal(layout(NULL)->implementation, "StandardMessaging");
  assert_string_equal(layout("standard")->implementation, "StandardMessaging");
  assert_string_equal(layout("multi")->implementation, "MultiCollectionMessaging");
  assert_string_equal(layout("dual")->implementation, "DualChannelMessaging");
  assert_null(msg_mongo_layout_of("other"));
  assert_string_equal(msg_mongo_layout_announced("DualChannelMessaging")->name, "dual");
  assert_string_equal(msg_mongo_layout_announced("MultiCollectionMessaging")->name, "multi");
  assert_string_equal(msg_mongo_layout_announced("SingleCollectionMessaging")->name, "standard");
}

/* Standard, multi, dual, as rows: who answers; as columns: who asks. */
static void whose_answers_arrive(void **state) {
  static const char *const NAMES[] = {"standard", "multi", "dual"};
  static const bool to_all[3][3] = {
      {true, false, true}, {false, true, false}, {false, false, true}};
  static const bool to_one[3][3] = {
      {true, false, false}, {false, true, false}, {false, false, true}};
  (void)state;
  for (int of = 0; of < 3; of++)
    for (int asker = 0; asker < 3; asker++) {
      msg_message m;
      msg_message_init(&m);
      assert_int_equal(msg_mongo_layout_answers(layout(NAMES[of]), layout(NAMES[asker]), &m),
                       to_all[of][asker]);
      assert_int_equal(msg_message_add_recipient(&m, "n"), MSG_OK);
      assert_int_equal(msg_mongo_layout_answers(layout(NAMES[of]), layout(NAMES[asker]), &m),
                       to_one[of][asker]);
      m.exclusive = true; /* in the one collection, where it can be locked */
      assert_int_equal(msg_mongo_layout_answers(layout(NAMES[of]), layout(NAMES[asker]), &m),
                       to_all[of][asker]);
      msg_message_clear(&m);
    }
}

static void topics_of_multi(void **state) {
  static const struct {
    const char *queue, *topic, *messages, *locks;
  } cases[] = {
      {"msg", "order.created/x y-z", "msg_order_createdxyz", "msg_lck_order_createdxyz"},
      {"msg", "a.b", "msg_a_b", "msg_lck_a_b"},
      {"msg", "x/y-z", "msg_xyz", "msg_lck_xyz"},
      {"msg", "order_created", "msg_order_created", "msg_lck_order_created"},
      {"msg", "\xC3\x9Cml\xC3\xA4ut", "msg_\xC3\x9Cml\xC3\xA4ut", "msg_lck_\xC3\x9Cml\xC3\xA4ut"},
      {"msg", "a$b", "msg_a$b", "msg_lck_a$b"},
      {"msg", "morphium.status_info", "msg_morphium_status_info", "msg_lck_morphium_status_info"},
      {"my.Queue", "t", "my_Queue_t", "my_Queue_lck_t"},
      {"my-Queue", "t", "myQueue_t", "myQueue_lck_t"},
      {"msg", "dm_x.y", NULL, NULL},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    msg_mongo_at at;
    int rc = msg_mongo_at_topic(cases[i].queue, cases[i].topic, 255, &at, NULL);
    if (!cases[i].messages) {
      assert_int_equal(rc, MSG_INVALID); /* msg_dm_x_y would be a lane of layout dual */
      continue;
    }
    assert_int_equal(rc, MSG_OK);
    assert_string_equal(at.messages, cases[i].messages);
    assert_string_equal(at.locks, cases[i].locks);
  }
}

static void topics_that_are_none(void **state) {
  static const struct {
    const char *queue, *topic, *of;
  } cases[] = {{"msg", "lck_x", "locks of another topic"},
               {"msg", "participants", "participants"},
               {"msg", "keys", "beside"},
               {"msg", "listeners", "beside"},
               {"msg", "delayed", "waits for its time"},
               {"dm", "x", "a lane"}};
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    msg_mongo_at at;
    msg_err err = MSG_ERR_INIT;
    assert_int_equal(msg_mongo_at_topic(cases[i].queue, cases[i].topic, 255, &at, &err),
                     MSG_INVALID);
    assert_non_null(strstr(err.text, cases[i].topic));
    assert_non_null(strstr(err.text, cases[i].of));
  }
}

static void topics_that_are_too_long(void **state) {
  char topic[256];
  msg_mongo_at at;
  msg_err err = MSG_ERR_INIT;
  (void)state;
  memset(topic, 't', sizeof topic - 1);
  topic[sizeof topic - 1] = '\0';
  assert_int_equal(msg_mongo_at_topic("msg", topic, 255, &at, &err), MSG_INVALID);
  assert_non_null(strstr(err.text, "too long"));
  memset(topic + 100, '-', 155); /* goes */
  assert_int_equal(msg_mongo_at_topic("msg", topic, 255, &at, &err), MSG_OK);
  assert_int_equal(strlen(at.messages), 104);
  assert_int_equal(msg_mongo_at_topic("msg", topic, 100, &at, &err), MSG_INVALID);
}

static void lanes(void **state) {
  static const char *const cases[][2] = {{"Node_A1", "nodeA1"},      {"FooBar", "foobar"},
                                         {"x_y_z", "xYZ"},           {"NODE_one", "nodeOne"},
                                         {"a.b-c/d e", "a.b-c/d e"}, {"trail_", "trail"}};
  msg_mongo_names msg = names_of("msg"), other = names_of("my.Queue");
  msg_mongo_at at;
  const char *owner;
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char want[64];
    msg_mongo_at_lane(layout("multi"), &msg, cases[i][0], &at);
    snprintf(want, sizeof want, "dm_%s", cases[i][1]);
    assert_string_equal(at.messages, want);
    assert_true(msg_mongo_is_lane(layout("multi"), &msg, at.messages, &owner));
    assert_string_equal(owner, cases[i][1]);
    msg_mongo_at_lane(layout("dual"), &msg, cases[i][0], &at);
    snprintf(want, sizeof want, "msg_dm_%s", cases[i][1]);
    assert_string_equal(at.messages, want);
    assert_string_equal(at.locks, "msg_lck");
    assert_true(msg_mongo_is_lane(layout("dual"), &msg, at.messages, &owner));
    assert_string_equal(owner, cases[i][1]);
  }
  msg_mongo_at_lane(layout("dual"), &other, "a", &at);
  assert_string_equal(at.messages, "mmsg_my.Queue_dm_a");
  assert_false(msg_mongo_is_lane(layout("dual"), &msg, at.messages, &owner));
  assert_false(msg_mongo_is_lane(layout("dual"), &msg, "msg_dm_", &owner));
  assert_false(msg_mongo_is_lane(layout("dual"), &msg, "msg_dm_a_lck", &owner));
  assert_false(msg_mongo_is_lane(layout("multi"), &msg, "dm_a_participants", &owner));
  assert_false(msg_mongo_is_lane(layout("standard"), &msg, "msg_dm_a", &owner));
}

static void collections_that_may_be_a_topics(void **state) {
  static const char *const no[] = {"msg",      "msg_lck",       "msg_lck_t",  "msg_participants",
                                   "msg_keys", "msg_listeners", "msg_leases", "msg_delayed",
                                   "msg_dm_a", "dm_a",          "other_t",    "mmsg_q"};
  msg_mongo_names n = names_of("msg");
  (void)state;
  assert_true(msg_mongo_may_be_topic("msg", &n, "msg_t"));
  assert_true(msg_mongo_may_be_topic("msg", &n, "msg_a_b"));
  for (size_t i = 0; i < sizeof no / sizeof *no; i++)
    assert_false(msg_mongo_may_be_topic("msg", &n, no[i]));
  n = names_of("my.Queue");
  assert_true(msg_mongo_may_be_topic("my.Queue", &n, "my_Queue_t"));
  assert_false(msg_mongo_may_be_topic("my.Queue", &n, "my_Queue_lck_t"));
}

static enum msg_mongo_goes goes(const char *name, int recipients, bool exclusive, bool later) {
  static char a[] = "a", b[] = "b";
  char *to[] = {a, b};
  msg_message m;
  msg_message_init(&m);
  m.recipients = to;
  m.recipient_count = (size_t)recipients;
  m.exclusive = exclusive;
  return msg_mongo_goes(layout(name), &m, later);
}

static void where_a_message_goes(void **state) {
  (void)state;
  for (int exclusive = 0; exclusive < 2; exclusive++)
    for (int later = 0; later < 2; later++)
      for (int to = 0; to < 3; to++)
        assert_int_equal(goes("standard", to, exclusive, later), MSG_MONGO_MAIN);
  assert_int_equal(goes("dual", 0, false, false), MSG_MONGO_MAIN);
  assert_int_equal(goes("dual", 1, false, false), MSG_MONGO_LANES);
  assert_int_equal(goes("dual", 2, false, false), MSG_MONGO_LANES);
  assert_int_equal(goes("dual", 1, false, true), MSG_MONGO_MAIN);
  assert_int_equal(goes("dual", 2, true, false), MSG_MONGO_MAIN);
  assert_int_equal(goes("multi", 0, false, false), MSG_MONGO_TOPIC);
  assert_int_equal(goes("multi", 0, true, true), MSG_MONGO_TOPIC);
  assert_int_equal(goes("multi", 0, false, true), MSG_MONGO_APART);
  assert_int_equal(goes("multi", 2, false, false), MSG_MONGO_LANES);
  assert_int_equal(goes("multi", 1, true, false), MSG_MONGO_LANES);
  assert_int_equal(goes("multi", 1, true, true), MSG_MONGO_APART);
  assert_int_equal(goes("multi", 2, true, false), MSG_MONGO_TOPIC);
}

int main(void) {
  static const struct CMUnitTest tests[] = {
      cmocka_unit_test(by_name_and_by_announcement),
      cmocka_unit_test(whose_answers_arrive),
      cmocka_unit_test(topics_of_multi),
      cmocka_unit_test(topics_that_are_none),
      cmocka_unit_test(topics_that_are_too_long),
      cmocka_unit_test(lanes),
      cmocka_unit_test(collections_that_may_be_a_topics),
      cmocka_unit_test(where_a_message_goes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
