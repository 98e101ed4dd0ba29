#include "store/mongo/names.h"

#include <string.h>

#include "support/cmocka_compat.h"

static void of_the_default_queue(void **state) {
  msg_mongo_names n;
  (void)state;
  assert_int_equal(msg_mongo_names_of("msg", &n, NULL), MSG_OK);
  assert_string_equal(n.messages, "msg");
  assert_string_equal(n.locks, "msg_lck");
  assert_string_equal(n.participants, "msg_participants");
  assert_string_equal(n.keys, "msg_keys");
}

/* Morphium takes the name as it is. */
static void of_another_queue(void **state) {
  msg_mongo_names n;
  (void)state;
  assert_int_equal(msg_mongo_names_of("my.Queue", &n, NULL), MSG_OK);
  assert_string_equal(n.messages, "mmsg_my.Queue");
  assert_string_equal(n.locks, "mmsg_my.Queue_lck");
  assert_string_equal(n.participants, "mmsg_my.Queue_participants");
}

static void too_long_or_taken(void **state) {
  static const char *const taken[] = {"a_lck",     "a_participants", "a_keys", "a_listeners",
                                      "a_delayed", "a_leases",       "a_dm_b"};
  msg_mongo_names n;
  msg_err err = MSG_ERR_INIT;
  char longest[65], long_[200];
  (void)state;
  memset(longest, 'q', sizeof longest - 1);
  longest[64] = '\0';
  assert_int_equal(msg_mongo_names_of(longest, &n, NULL), MSG_OK);
  assert_int_equal(strlen(n.participants), strlen("mmsg__participants") + 64);
  memset(long_, 'q', sizeof long_ - 1);
  long_[199] = '\0';
  assert_int_equal(msg_mongo_names_of(long_, &n, &err), MSG_INVALID);
  for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
    assert_int_equal(msg_mongo_names_of(taken[i], &n, &err), MSG_INVALID);
    assert_non_null(strstr(err.text, taken[i]));
  }
}

static void queues_of_collections(void **state) {
  static const struct {
    const char *collection, *queue;
  } cases[] = {{"msg", "msg"},
               {"msg_lck", "msg"},
               {"msg_participants", "msg"},
               {"mmsg_a", "a"},
               {"mmsg_a_lck", "a"},
               {"mmsg_a.b_keys", "a.b"},
               {"msg_dm_nodeA1", "msg"},
               {"mmsg_a_dm_b", "a"},
               {"msg_delayed", "msg"},
               {"mmsg_a_leases", "a"},
               {"mmsg_lck", "lck"},
               {"mmsg_lck_lck", "lck"},
               {"mmsg_participants_participants", "participants"},
               {"mmsg_", NULL},
               {"mmsg", NULL},
               {"msgs", NULL},
               {"msg_topic", NULL},
               {"dm_a", NULL},
               {"customers", NULL},
               {"", NULL}};
  char queue[MSG_MONGO_NAME_MAX];
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    bool is = msg_mongo_queue_of_collection(cases[i].collection, queue);
    assert_int_equal(is, cases[i].queue != NULL);
    if (is)
      assert_string_equal(queue, cases[i].queue);
  }
}

static void folds_like_morphium(void **state) {
  static const char *const cases[][2] = {{"Node_A1", "nodeA1"},
                                         {"FooBar", "foobar"},
                                         {"x_y_z", "xYZ"},
                                         {"NODE_one", "nodeOne"},
                                         {"a.b-c/d e", "a.b-c/d e"},
                                         {"trail_", "trail"},
                                         {"3F2504E0-4F89", "3f2504e0-4f89"}};
  char out[64];
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    msg_mongo_fold(cases[i][0], out);
    assert_string_equal(out, cases[i][1]);
  }
}

int main(void) {
  static const struct CMUnitTest tests[] = {
      cmocka_unit_test(of_the_default_queue), cmocka_unit_test(of_another_queue),
      cmocka_unit_test(too_long_or_taken),    cmocka_unit_test(queues_of_collections),
      cmocka_unit_test(folds_like_morphium),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
