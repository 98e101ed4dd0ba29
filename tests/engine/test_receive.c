/* test_receive.c - listen, await, claim, settle, pause: what comes of one look. */
#include <string.h>

#include "base/mem.h"
#include "support/cmocka_compat.h"
#include "support/rig.h"

/* How what a look found is marked. */
static enum fault_verb seen_by(void **state) {
  return RIG_KIND(state) == RIG_PUSH ? FAULT_SEEN_SOON : FAULT_SEEN;
}

static void take(peer *p, const char *topic, const char *want) {
  msg_list list = MSG_LIST_INIT;
  int rc = peer_await(p, topic, 0, 1, &list);
  if (!want) {
    assert_int_equal(rc, MSG_TIMEOUT);
    return;
  }
  assert_int_equal(rc, MSG_OK);
  assert_int_equal(list.n, 1);
  assert_string_equal(list.at[0].value.p, want);
  msg_list_clear(&list);
}

static void every_listener_gets_a_broadcast_once_but_its_sender(void **state) {
  rig r;
  peer a, b, c;
  rig_open_pair(&r, RIG_KIND(state), &a, NULL, &b, NULL);
  peer_open(&r, &c, NULL);
  take(&a, "t", NULL);
  take(&b, "t", NULL);
  peer_send(&a, "t", "one");
  peer_send(&a, "t", "two");
  take(&b, "t", "one");
  take(&b, "t", "two");
  take(&b, "t", NULL);
  take(&a, "t", NULL);
  take(&c, "t", NULL); /* began to listen later */
  peer_send(&b, "t", "three");
  take(&c, "t", "three");
  take(&a, NULL, "three");
  assert_int_equal(msg_node_stat(b.node, MSG_STAT_AWAITED), 2);
  rig_close(&r);
}

static void a_given_name_catches_up(void **state) {
  rig r;
  peer a, given, automatic, told;
  bool yes = true;
  rig_open(&r, RIG_KIND(state));
  peer_open(&r, &a, "a");
  peer_send(&a, "t", "old");
  peer_open(&r, &given, "given");
  peer_open(&r, &automatic, NULL);
  peer_open(&r, &told, NULL);
  take(&given, "t", "old");
  take(&automatic, "t", NULL);
  assert_int_equal(msg_node_listen(told.node, &told.call, "t", &yes, NULL), MSG_OK);
  take(&told, "t", "old");
  rig_close(&r);
}

static void the_setting_decides_on_catching_up(void **state) {
  rig r;
  peer a, given;
  msg_settings s;
  rig_open(&r, RIG_KIND(state));
  peer_open(&r, &a, "a");
  peer_send(&a, "t", "old");
  msg_settings_init(&s);
  s.sender_id = msg_strdup("given");
  s.catch_up_set = true;
  s.catch_up = false;
  peer_open_with(&r, &given, &s);
  msg_settings_clear(&s);
  take(&given, "t", NULL);
  rig_close(&r);
}

static void listening_is_told_once(void **state) {
  rig r;
  peer a;
  msg_err err = MSG_ERR_INIT;
  rig_open(&r, RIG_KIND(state));
  peer_open(&r, &a, "a");
  take(&a, "t", NULL);
  take(&a, "t", NULL);
  assert_int_equal(fault_store_calls(r.store, FAULT_LISTEN), 1);
  msg_node_forget(a.node);
  take(&a, "t", NULL);
  take(&a, "t", NULL);
  assert_int_equal(fault_store_calls(r.store, FAULT_LISTEN), 2); /* EXISTS is fine */
  assert_int_equal(msg_node_unlisten(a.node, &a.call, "t", &err), MSG_OK);
  assert_int_equal(msg_node_unlisten(a.node, &a.call, "t", &err), MSG_NOTFOUND);
  take(&a, "t", NULL);
  assert_int_equal(fault_store_calls(r.store, FAULT_LISTEN), 3);
  assert_int_equal(msg_node_listen(a.node, &a.call, "t", NULL, &err), MSG_EXISTS);
  assert_int_equal(msg_node_listen(a.node, &a.call, "/(/", NULL, &err), MSG_INVALID);
  rig_close(&r);
}

static void patterns_are_awaited(void **state) {
  rig r;
  peer a, b;
  rig_open_pair(&r, RIG_KIND(state), &a, "a", &b, "b");
  take(&b, "orders.*", NULL);
  take(&b, "/^n[0-9]+$/", NULL);
  peer_send(&a, "orders.new", "glob");
  peer_send(&a, "n42", "regex");
  peer_send(&a, "other", "no");
  take(&b, "/^n[0-9]+$/", "regex");
  take(&b, "orders.*", "glob");
  take(&b, NULL, NULL);
  rig_close(&r);
}

static void bad_arguments(void **state) {
  rig r;
  peer a;
  msg_err err = MSG_ERR_INIT;
  msg_list l = MSG_LIST_INIT;
  rig_open(&r, RIG_KIND(state));
  peer_open(&r, &a, "a");
  assert_int_equal(msg_node_await(a.node, &a.call, "t", 0, 0, &l, &err), MSG_INVALID);
  assert_int_equal(msg_node_await(a.node, &a.call, "t", -1, 1, &l, &err), MSG_INVALID);
  assert_string_equal(err.text,
                      "await on 't': a time-out of -1 ms is negative: give 0 to look once");
  assert_int_equal(msg_node_await(a.node, &a.call, "/(/", 0, 1, &l, &err), MSG_INVALID);
  assert_int_equal(msg_node_claim(a.node, &a.call, "t", 0, 0, 0, &l, &err), MSG_INVALID);
  assert_int_equal(msg_node_claim(a.node, &a.call, "t", 1, -5, 0, &l, &err), MSG_INVALID);
  assert_int_equal(msg_node_claim(a.node, &a.call, "t", 1, 0, -5, &l, &err), MSG_INVALID);
  msg_settle bad[] = {{.verb = MSG_SETTLE_RELEASE, .delay_ms = -1}, {.verb = MSG_SETTLE_EXTEND}};
  msg_settle_item item = {.id = msg_oid_new()};
  for (int i = 0; i < 2; i++)
    assert_int_equal(msg_node_settle(a.node, &a.call, &bad[i], &item, 1, &err), MSG_INVALID);
  assert_int_equal(fault_store_calls(r.store, FAULT_LISTEN) +
                       fault_store_calls(r.store, FAULT_CLAIM) +
                       fault_store_calls(r.store, FAULT_SETTLE),
                   0);
  rig_close(&r);
}

/* Where what a look leaves stays at hand, the next one brings many windows. */
static void more_than_a_window_is_taken_in_parts(void **state) {
  rig r;
  peer a, b;
  const long looks = RIG_KIND(state) == RIG_PUSH ? 2 : 3;
  msg_value window = msg_value_int(3);
  msg_list list = MSG_LIST_INIT;
  rig_open_pair(&r, RIG_KIND(state), &a, "a", &b, "b");
  assert_int_equal(msg_node_configure(b.node, "window_size", &window, false, NULL), MSG_OK);
  take(&b, "t", NULL);
  for (int i = 0; i < 8; i++)
    peer_send(&a, "t", "x");
  long before = fault_store_calls(r.store, FAULT_UNSEEN);
  assert_int_equal(peer_await(&b, "t", 0, 7, &list), MSG_OK);
  assert_int_equal(list.n, 7);
  assert_int_equal(fault_store_calls(r.store, FAULT_UNSEEN) - before, looks);
  assert_int_equal(peer_await(&b, "t", 0, 7, &list), MSG_OK); /* appends */
  assert_int_equal(list.n, 8);
  msg_list_clear(&list);
  rig_close(&r);
}

static void what_another_thread_took_is_not_handed_out(void **state) {
  rig r;
  peer a, b;
  rig_open_pair(&r, RIG_KIND(state), &a, "a", &b, "b");
  take(&b, "t", NULL);
  peer_send(&a, "t", "one");
  fault_store_lose_seen(r.store, 3);
  take(&b, "t", "one"); /* looks again */
  fault_store_lose_seen(r.store, -1);
  peer_send(&a, "t", "two");
  take(&b, "t", NULL); /* gives up at last */
  fault_store_lose_seen(r.store, 0);
  take(&b, "t", "two");
  rig_close(&r);
}

static void a_failed_look_marks_nothing(void **state) {
  const enum fault_verb VERBS[] = {FAULT_LISTEN, FAULT_UNSEEN, seen_by(state)};
  rig r;
  peer a, b;
  msg_err err = MSG_ERR_INIT;
  msg_list list = MSG_LIST_INIT;
  rig_open_pair(&r, RIG_KIND(state), &a, "a", &b, "b");
  peer_send(&a, "t", "one");
  for (int i = 0; i < 3; i++) {
    fault_store_fail(r.store, VERBS[i], MSG_IO, 0, 1);
    assert_int_equal(msg_node_await(b.node, &b.call, "t", 1000, 1, &list, &err), MSG_IO);
    assert_int_equal(list.n, 0);
    assert_int_equal(err.rc, MSG_IO);
  }
  take(&b, "t", "one");
  msg_list_clear(&list);
  rig_close(&r);
}

/* What is marked must reach the caller, though the next part fails. */
static void a_later_failure_keeps_what_was_marked(void **state) {
  rig r;
  peer a, b;
  msg_value window = msg_value_int(2);
  msg_list list = MSG_LIST_INIT;
  rig_open_pair(&r, RIG_KIND(state), &a, "a", &b, "b");
  assert_int_equal(msg_node_configure(b.node, "window_size", &window, false, NULL), MSG_OK);
  for (int i = 0; i < 5; i++)
    peer_send(&a, "t", "x");
  fault_store_fail(r.store, seen_by(state), MSG_IO, 1, 1);
  assert_int_equal(peer_await(&b, "t", 0, 5, &list), MSG_OK);
  assert_int_equal(list.n, 2);
  assert_int_equal(peer_await(&b, "t", 0, 5, &list), MSG_OK);
  assert_int_equal(list.n, 5);
  msg_list_clear(&list);
  rig_close(&r);
}

/* --- claims -------------------------------------------------------------------------------- */

static void a_claim_owns_until_it_is_settled(void **state) {
  rig r;
  peer a, b;
  msg_list list = MSG_LIST_INIT, none = MSG_LIST_INIT;
  msg_settle ack = {.verb = MSG_SETTLE_ACK};
  msg_settle_item items[2];
  rig_open_pair(&r, RIG_KIND(state), &a, "a", &b, "b");
  msg_oid id = peer_enqueue(&a, "jobs", "work");
  assert_int_equal(peer_claim(&a, "jobs", 0, 1, &list), MSG_OK); /* one's own too */
  assert_int_equal(list.n, 1);
  assert_int_equal(list.at[0].attempts, 1);
  assert_int_equal(peer_claim(&b, "jobs", 0, 1, &none), MSG_TIMEOUT);
  items[0] = (msg_settle_item){.id = id, .token = list.at[0].token};
  items[1] = (msg_settle_item){.id = msg_oid_new()};
  assert_int_equal(msg_node_settle(a.node, &a.call, &ack, items, 2, NULL), MSG_OK);
  assert_true(items[0].done);
  assert_false(items[1].done);
  assert_int_equal(msg_node_stat(a.node, MSG_STAT_CLAIMED), 1);
  assert_int_equal(msg_node_stat(a.node, MSG_STAT_ACKED), 1);
  assert_int_equal(msg_node_stat(a.node, MSG_STAT_LATE), 1);
  assert_int_equal(msg_node_settle(a.node, &a.call, &ack, items, 0, NULL), MSG_OK);
  assert_int_equal(fault_store_calls(r.store, FAULT_SETTLE), 1);
  msg_list_clear(&list);
  rig_close(&r);
}

static void every_settling_is_counted(void **state) {
  static const struct {
    msg_settle how;
    enum msg_stat stat;
  } CASES[] = {
      {{.verb = MSG_SETTLE_EXTEND, .lease_ms = 60000}, MSG_STAT_EXTENDED},
      {{.verb = MSG_SETTLE_RELEASE}, MSG_STAT_RELEASED},
      {{.verb = MSG_SETTLE_REJECT, .reason = "bad"}, MSG_STAT_REJECTED},
  };
  rig r;
  peer a;
  msg_list list = MSG_LIST_INIT;
  rig_open(&r, RIG_KIND(state));
  peer_open(&r, &a, "a");
  for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
    msg_oid id = peer_enqueue(&a, "jobs", "x");
    assert_int_equal(peer_claim(&a, "jobs", 0, 9, &list), MSG_OK);
    msg_settle_item item = {.id = id};
    assert_int_equal(msg_node_settle(a.node, &a.call, &CASES[i].how, &item, 1, NULL), MSG_OK);
    assert_true(item.done);
    assert_int_equal(msg_node_stat(a.node, CASES[i].stat), 1);
  }
  msg_oid undone[2] = {msg_oid_new(), msg_oid_new()};
  msg_node_undone(a.node, undone, 2);
  msg_node_undone(a.node, undone, 0);
  assert_int_equal(msg_node_stat(a.node, MSG_STAT_UNDONE), 2);
  msg_list_clear(&list);
  rig_close(&r);
}

static void store_calls_are_few_and_counted(void **state) {
  rig r;
  peer a;
  msg_list list = MSG_LIST_INIT;
  rig_open(&r, RIG_KIND(state));
  peer_open(&r, &a, "a");
  peer_enqueue(&a, "jobs", "x");
  assert_int_equal(msg_node_stat(a.node, MSG_STAT_STORE_CALLS), 1);
  assert_int_equal(peer_claim(&a, "jobs", 0, 1, &list),
                   MSG_OK); /* straight, without asking first */
  assert_int_equal(msg_node_stat(a.node, MSG_STAT_STORE_CALLS), 2);
  msg_node_count(a.node, MSG_STAT_STORE_CALLS, 3);
  assert_int_equal(msg_node_stat(a.node, MSG_STAT_STORE_CALLS), 5);
  msg_list_clear(&list);
  rig_close(&r);
}

static void a_claim_in_vain_is_remembered(void **state) {
  rig r;
  peer a;
  msg_list list = MSG_LIST_INIT;
  rig_open(&r, RIG_KIND(state));
  peer_open(&r, &a, "a");
  peer_send(&a, "t", "broadcast");
  assert_false(msg_node_claimed_in_vain(a.node, "t"));
  assert_int_equal(peer_claim(&a, "t", 0, 1, &list), MSG_TIMEOUT);
  assert_int_equal(peer_claim(&a, "u*", 0, 1, &list), MSG_TIMEOUT);
  assert_true(msg_node_claimed_in_vain(a.node, "t"));
  assert_true(msg_node_claimed_in_vain(a.node, "u1"));
  assert_false(msg_node_claimed_in_vain(a.node, "other"));
  peer_enqueue(&a, "t", "x");
  assert_int_equal(peer_claim(&a, "t", 0, 1, &list), MSG_OK);
  assert_false(msg_node_claimed_in_vain(a.node, "t"));
  for (int i = 0; i < 70; i++) { /* more than are remembered: the oldest go */
    char topic[] = {'v', (char)('a' + i % 26), (char)('a' + i / 26), '\0'};
    assert_int_equal(peer_claim(&a, topic, 0, 1, &list), MSG_TIMEOUT);
  }
  assert_false(msg_node_claimed_in_vain(a.node, "u1"));
  assert_true(msg_node_claimed_in_vain(a.node, "vrc"));
  msg_list_clear(&list);
  rig_close(&r);
}

/* --- pauses -------------------------------------------------------------------------------- */

static void a_paused_topic_is_left_alone(void **state) {
  rig r;
  peer a, b;
  bool changed;
  msg_list list = MSG_LIST_INIT;
  rig_open_pair(&r, RIG_KIND(state), &a, "a", &b, "b");
  peer_send(&a, "t.1", "one");
  peer_enqueue(&a, "t.2", "two");
  assert_int_equal(msg_node_pause(b.node, "t.*", &changed, NULL), MSG_OK);
  assert_true(changed);
  assert_int_equal(msg_node_pause(b.node, "t.*", &changed, NULL), MSG_OK);
  assert_false(changed);
  assert_true(msg_node_is_paused(b.node, "t.9"));
  assert_false(msg_node_is_paused(b.node, "u"));
  take(&b, "t.1", NULL);
  assert_int_equal(peer_claim(&b, "t.2", 0, 1, &list), MSG_TIMEOUT);
  assert_int_equal(msg_node_resume(b.node, "t.1", &changed, NULL), MSG_OK);
  assert_false(changed); /* only by the text it was paused with */
  assert_int_equal(msg_node_resume(b.node, "t.*", &changed, NULL), MSG_OK);
  assert_true(changed);
  take(&b, "t.1", "one");
  assert_int_equal(peer_claim(&b, "t.2", 0, 1, &list), MSG_OK);
  assert_int_equal(msg_node_pause(b.node, "/(/", &changed, NULL), MSG_INVALID);
  msg_list_clear(&list);
  rig_close(&r);
}

#define ON_ALL(f) RIG_TEST(f, fake), RIG_TEST(f, push), RIG_TEST(f, file), RIG_TEST(f, memory)

int main(void) {
  const struct CMUnitTest tests[] = {
      ON_ALL(every_listener_gets_a_broadcast_once_but_its_sender),
      ON_ALL(a_given_name_catches_up),
      ON_ALL(the_setting_decides_on_catching_up),
      ON_ALL(listening_is_told_once),
      ON_ALL(patterns_are_awaited),
      ON_ALL(bad_arguments),
      ON_ALL(more_than_a_window_is_taken_in_parts),
      ON_ALL(what_another_thread_took_is_not_handed_out),
      ON_ALL(a_failed_look_marks_nothing),
      ON_ALL(a_later_failure_keeps_what_was_marked),
      ON_ALL(a_claim_owns_until_it_is_settled),
      ON_ALL(every_settling_is_counted),
      ON_ALL(store_calls_are_few_and_counted),
      ON_ALL(a_claim_in_vain_is_remembered),
      ON_ALL(a_paused_topic_is_left_alone),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
