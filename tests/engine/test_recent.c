/* test_recent.c - what was handed out lately is known by its id, until others came behind it. */
#include "engine/recent.h"

#include "base/mem.h"
#include "support/cmocka_compat.h"

static void hand_out(msg_recent *r, const msg_oid *id) {
  msg_message m;
  msg_message_init(&m);
  m.id = *id;
  m.topic = msg_strdup("t");
  m.sender = msg_strdup("a");
  msg_recent_add(r, &(msg_list){.at = &m, .n = 1}, 0);
  msg_message_clear(&m);
}

static void the_last_are_known(void **state) {
  (void)state;
  msg_recent r = {0};
  msg_oid first = msg_oid_new(), other = msg_oid_new();
  assert_false(msg_recent_has(&r, &first));
  hand_out(&r, &first);
  assert_true(msg_recent_has(&r, &first));
  assert_false(msg_recent_has(&r, &other));
  for (int i = 0; i < MSG_RECENT_MAX; i++) {
    msg_oid id = msg_oid_new();
    hand_out(&r, &id);
    assert_true(msg_recent_has(&r, &id));
  }
  assert_false(msg_recent_has(&r, &first));
  msg_recent_clear(&r);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_last_are_known),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
