/* test_push.c - what a watch pushes: straight to who waits, bounded, and nothing lost. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/cursor.h"
#include "engine/node_int.h"
#include "support/cmocka_compat.h"
#include "support/rig.h"

static long calls(rig *r, enum fault_verb verb) {
  return fault_store_calls(r->store, verb);
}

/* As another process would, so that only the watch tells of it. */
static void put(peer *p, const char *topic, const char *text, bool exclusive) {
  msg_message m;
  msg_settings settings;
  msg_value v = msg_value_text(text);
  msg_actor actor = {.node = msg_node_id(p->node), .process = "other", .settings = &settings};
  msg_message_init(&m);
  msg_settings_init(&settings);
  m.topic = msg_strdup(topic);
  m.exclusive = exclusive;
  assert_int_equal(msg_value_copy(&m.value, &v), MSG_OK);
  assert_int_equal(msg_node_fill(p->node, &m, NULL, NULL), MSG_OK);
  msg_put one = {.message = &m, .id = m.id};
  assert_int_equal(p->session->ops->put(p->session, &actor, &one, 1, NULL), MSG_OK);
  msg_message_clear(&m);
  msg_settings_clear(&settings);
}

/* The watch runs, and who waited before has looked once more. */
static void settle(rig *r) {
  rig_until_state(r, "running");
  rig_sleep(50);
}

/* `b`, which waits, takes what `a` puts. */
static void pass_on(peer *a, peer *b, const char *text) {
  rig_wait w = {.p = b, .topic = "t", .timeout_ms = 10000};
  rig_wait_begin(&w);
  put(a, "t", text, false);
  rig_wait_expect(&w, text);
}

/* The same once the watch is at work. */
static void pass_settled(rig *r, peer *a, peer *b) {
  rig_wait w = {.p = b, .topic = "t", .timeout_ms = 10000};
  rig_wait_begin(&w);
  settle(r);
  put(a, "t", "first", false);
  rig_wait_expect(&w, "first");
}

/* Each is taken as it comes: no look, neither while a call waits nor when the next begins. */
static void an_await_that_waits_needs_no_look(void **state) {
  rig r;
  peer a, b;
  (void)state;
  rig_open_pair(&r, RIG_PUSH, &a, "a", &b, "b");
  for (int i = 0; i < 3; i++) /* until what is told is not from before it listened */
    pass_settled(&r, &a, &b);
  long unseen = calls(&r, FAULT_UNSEEN), seen = calls(&r, FAULT_SEEN);
  long soon = calls(&r, FAULT_SEEN_SOON);
  for (int i = 0; i < 5; i++)
    pass_on(&a, &b, "next");
  assert_int_equal(calls(&r, FAULT_UNSEEN), unseen);
  assert_int_equal(calls(&r, FAULT_SEEN), seen);
  assert_int_equal(calls(&r, FAULT_SEEN_SOON), soon + 5);
  rig_close(&r);
}

/* What comes while the node's threads are at work with another is there for the next call. */
static void what_came_between_two_calls_needs_no_look(void **state) {
  rig r;
  peer a, b;
  msg_list list = MSG_LIST_INIT;
  (void)state;
  rig_open_pair(&r, RIG_PUSH, &a, "a", &b, "b");
  pass_settled(&r, &a, &b);
  long unseen = calls(&r, FAULT_UNSEEN);
  put(&a, "t", "two", false);
  rig_sleep(50);
  assert_int_equal(peer_await(&b, "t", 10000, 1, &list), MSG_OK);
  assert_int_equal(list.n, 1);
  assert_int_equal(calls(&r, FAULT_UNSEEN), unseen);
  msg_list_clear(&list);
  rig_close(&r);
}

/* One look finds a window of them for the calls that go on. */
static void a_backlog_needs_few_looks(void **state) {
  enum { N = 50 };
  rig r;
  peer a, b;
  msg_list list = MSG_LIST_INIT;
  (void)state;
  rig_open_pair(&r, RIG_PUSH, &a, "a", &b, "b");
  assert_int_equal(peer_await(&b, "t", 0, 1, &list), MSG_TIMEOUT);
  for (int i = 0; i < N; i++)
    put(&a, "t", "x", false);
  long unseen = calls(&r, FAULT_UNSEEN);
  b.call.goes_on = true;
  for (int i = 0; i < N; i++)
    assert_int_equal(peer_await(&b, "t", 0, 1, &list), MSG_OK);
  assert_int_equal(list.n, N);
  assert_int_equal(calls(&r, FAULT_UNSEEN), unseen + 1);
  assert_int_equal(peer_await(&b, "t", 0, 1, &list), MSG_TIMEOUT);
  msg_list_clear(&list);
  rig_close(&r);
}

/* What one pattern's look left for later is not all there is for another. */
static void what_one_look_left_does_not_come_before_what_another_finds(void **state) {
  rig r;
  peer a, b;
  msg_list list = MSG_LIST_INIT;
  (void)state;
  rig_open_pair(&r, RIG_PUSH, &a, "a", &b, "b");
  assert_int_equal(peer_await(&b, "t", 0, 1, &list), MSG_TIMEOUT);
  assert_int_equal(peer_await(&b, "u", 0, 1, &list), MSG_TIMEOUT);
  put(&a, "t", "first", false);
  put(&a, "u", "second", false);
  for (int i = 0; i < 200; i++) /* more than one look finds */
    put(&a, "t", "later", false);
  b.call.goes_on = true;
  assert_int_equal(peer_await(&b, "t", 0, 1, &list), MSG_OK);
  assert_int_equal(peer_await(&b, NULL, 0, 1, &list), MSG_OK);
  assert_string_equal(list.at[0].value.p, "first");
  assert_string_equal(list.at[1].value.p, "second");
  msg_list_clear(&list);
  rig_close(&r);
}

/* The watch began, or broke, since. */
static void what_a_look_left_stays_at_hand(void **state) {
  enum { N = 100 }; /* a window */
  rig r;
  peer a, b;
  msg_list list = MSG_LIST_INIT;
  (void)state;
  rig_open_pair(&r, RIG_PUSH, &a, "a", &b, "b");
  pass_settled(&r, &a, &b);
  for (int i = 0; i < N; i++)
    put(&a, "t", "x", false);
  rig_sleep(100); /* until they are told */
  assert_int_equal(peer_await(&b, "t", 0, 1, &list), MSG_OK);
  long unseen = calls(&r, FAULT_UNSEEN);
  msg_cursor_lose(b.node->cursor);
  b.call.goes_on = true;
  for (int i = 1; i < N; i++)
    assert_int_equal(peer_await(&b, "t", 0, 1, &list), MSG_OK);
  assert_int_equal(list.n, N);
  assert_int_equal(calls(&r, FAULT_UNSEEN), unseen);
  msg_list_clear(&list);
  rig_close(&r);
}

/* What was told before a look that found something may have been given by it: that is asked for by
 * the window, not one by one. */
static void a_burst_before_a_look_needs_few_calls(void **state) {
  enum { N = 50 };
  rig r;
  peer a, b;
  msg_list list = MSG_LIST_INIT;
  (void)state;
  rig_open_pair(&r, RIG_PUSH, &a, "a", &b, "b");
  pass_settled(&r, &a, &b);
  assert_int_equal(peer_await(&b, "u", 0, 1, &list), MSG_TIMEOUT);
  assert_int_equal(peer_await(&b, "t", 0, 1, &list), MSG_TIMEOUT);
  for (int i = 0; i < N; i++)
    put(&a, "t", "x", false);
  rig_sleep(100); /* until they are told */
  fault_store_lose_events(r.store, 1);
  put(&a, "u", "found", false);
  assert_int_equal(peer_await(&b, "u", 0, 1, &list), MSG_OK);
  long seen = calls(&r, FAULT_SEEN), asked = calls(&r, FAULT_STILL_UNSEEN);
  b.call.goes_on = true;
  for (int i = 0; i < N; i++)
    assert_int_equal(peer_await(&b, "t", 10000, 1, &list), MSG_OK);
  assert_int_equal(list.n, N + 1);
  assert_int_equal(calls(&r, FAULT_SEEN), seen);
  assert_int_equal(calls(&r, FAULT_STILL_UNSEEN), asked + 1);
  msg_list_clear(&list);
  rig_close(&r);
}

/* A message that is not told yet is found at once when this process put it. */
static void what_this_process_put_is_found_before_it_is_told(void **state) {
  rig r;
  peer a, b;
  msg_list list = MSG_LIST_INIT;
  (void)state;
  rig_open_pair(&r, RIG_PUSH, &a, "a", &b, "b");
  rig_wait w = {.p = &b, .topic = "t", .timeout_ms = 10000};
  rig_wait_begin(&w);
  peer_send(&a, "t", "one");
  rig_wait_expect(&w, "one");
  fault_store_lose_events(r.store, -1);
  peer_send(&a, "t", "two");
  assert_int_equal(peer_await(&b, "t", 10000, 1, &list), MSG_OK);
  assert_int_equal(list.n, 1);
  msg_list_clear(&list);
  rig_close(&r);
}

/* Whatever the watch did not tell, the last look finds. */
static void what_was_not_told_is_found_at_the_end(void **state) {
  rig r;
  peer a, b;
  (void)state;
  rig_open_pair(&r, RIG_PUSH, &a, "a", &b, "b");
  rig_wait w = {.p = &b, .topic = "work", .timeout_ms = 400};
  rig_wait_begin(&w);
  fault_store_lose_events(r.store, -1);
  put(&a, "work", "x", false);
  rig_wait_expect(&w, "x");
  rig_close(&r);
}

/* A look of `b` finds one at most. */
static void open_narrow(rig *r, peer *a, peer *b) {
  msg_settings settings;
  rig_open(r, RIG_PUSH);
  peer_open(r, a, "a");
  msg_settings_init(&settings);
  settings.sender_id = msg_strdup("b");
  settings.window_size = 1;
  peer_open_with(r, b, &settings);
  msg_node_attach(b->node);
  msg_settings_clear(&settings);
}

/* What was told is at hand all the same, without a look. */
static void the_last_look_of_a_wait_takes_no_knowledge_away(void **state) {
  rig r;
  peer a, b;
  msg_list list = MSG_LIST_INIT;
  (void)state;
  open_narrow(&r, &a, &b);
  pass_settled(&r, &a, &b);
  rig_wait w = {.p = &b, .topic = "t", .timeout_ms = 400};
  rig_wait_begin(&w);
  fault_store_lose_events(r.store, 1);
  put(&a, "t", "x", false);
  rig_wait_expect(&w, "x"); /* at its end: more was not looked for */
  put(&a, "t", "y", false);
  rig_sleep(100); /* until it is told */
  long unseen = calls(&r, FAULT_UNSEEN);
  assert_int_equal(peer_await(&b, "t", 10000, 1, &list), MSG_OK);
  assert_string_equal(list.at[0].value.p, "y");
  assert_int_equal(calls(&r, FAULT_UNSEEN), unseen);
  msg_list_clear(&list);
  rig_close(&r);
}

/* What came behind a gap waits until the store has given what is in it. */
static void an_inbox_that_overflows_loses_nothing_and_keeps_the_order(void **state) {
  enum { N = 200 };
  rig r;
  peer a, b;
  (void)state;
  open_narrow(&r, &a, &b);
  pass_settled(&r, &a, &b);
  for (int i = 0; i < N; i++) { /* in the middle of them it is full */
    char text[16];
    snprintf(text, sizeof text, "%d", i);
    put(&a, "t", text, false);
  }
  rig_sleep(100); /* until they are told */
  msg_list list = MSG_LIST_INIT;
  for (int i = 0; i < N / 4; i++)
    assert_int_equal(peer_await(&b, "t", 10000, 1, &list), MSG_OK);
  assert_int_equal(peer_await(&b, "t", 10000, N, &list), MSG_OK);
  assert_int_equal(list.n, N);
  for (int i = 0; i < N; i++)
    assert_int_equal(atoi(list.at[i].value.p), i);
  msg_list_clear(&list);
  msg_list none = MSG_LIST_INIT;
  assert_int_equal(peer_await(&b, "t", 0, 1, &none), MSG_TIMEOUT);
  rig_close(&r);
}

/* A look was faster than the watch, whose word of it comes when the look is over. */
static void what_a_look_gave_is_not_given_by_a_late_word(void **state) {
  rig r;
  peer a, b;
  msg_list had = MSG_LIST_INIT, list = MSG_LIST_INIT;
  (void)state;
  rig_open_pair(&r, RIG_PUSH, &a, "a", &b, "b");
  assert_int_equal(peer_await(&b, "t", 0, 1, &had), MSG_TIMEOUT);
  put(&a, "t", "early", false);
  assert_int_equal(peer_await(&b, "t", 0, 1, &had), MSG_OK);
  for (int i = 0; i < 3; i++) /* until what is told is not from before it listened */
    pass_settled(&r, &a, &b);
  fault_store_tell(r.store, &had.at[0]);
  put(&a, "t", "next", false);
  assert_int_equal(peer_await(&b, "t", 10000, 1, &list), MSG_OK);
  assert_string_equal(list.at[0].value.p, "next");
  msg_list_clear(&list);
  msg_list_clear(&had);
  rig_close(&r);
}

/* What the last one writes when it goes ends the watch's round: it must have been asked before. */
static void the_last_to_withdraw_ends_the_watch(void **state) {
  rig r;
  peer a, b;
  (void)state;
  rig_open_pair(&r, RIG_PUSH, &a, "a", &b, "b");
  pass_settled(&r, &a, &b);
  msg_call call = {.session = a.session};
  assert_int_equal(msg_node_withdraw(a.node, &call, NULL), MSG_OK);
  rig_sleep(50);
  assert_string_equal(rig_cursor(&r, NULL).state, "running"); /* b is there */
  peer_close(&a);
  call.session = b.session;
  fault_store_fail(r.store, FAULT_PRESENCE_WITHDRAW, MSG_IO, 0, 1);
  assert_int_equal(msg_node_withdraw(b.node, &call, NULL), MSG_IO);
  rig_until_state(&r, "stopping");
  rig_close(&r);
}

/* Idle claims are not woken for what one of them takes. */
static void one_claim_takes_what_was_pushed(void **state) {
  rig r;
  peer a, b[4];
  rig_wait w[4];
  (void)state;
  rig_open(&r, RIG_PUSH);
  peer_open(&r, &a, "a");
  for (int i = 0; i < 4; i++) {
    char name[16];
    snprintf(name, sizeof name, "b%d", i);
    peer_open(&r, &b[i], name);
    w[i] = (rig_wait){.p = &b[i], .topic = "t", .timeout_ms = 10000, .claims = true};
    rig_wait_start(&w[i]);
  }
  rig_until_waiters(&r, 4);
  settle(&r);
  long before = calls(&r, FAULT_CLAIM);
  long asked = calls(&r, FAULT_CLAIMABLE);
  for (int i = 0; i < 4; i++) {
    put(&a, "t", "work", true);
    rig_sleep(20);
  }
  for (int i = 0; i < 4; i++)
    rig_wait_expect(&w[i], "work");
  assert_int_equal(calls(&r, FAULT_CLAIM) - before, 4);
  assert_int_equal(calls(&r, FAULT_CLAIMABLE), asked);
  rig_close(&r);
}

/* An offer whose claim fails is for the others. */
static void an_offer_that_failed_is_looked_for(void **state) {
  rig r;
  peer a, b, c;
  (void)state;
  rig_open(&r, RIG_PUSH);
  peer_open(&r, &a, "a");
  peer_open(&r, &b, "b");
  peer_open(&r, &c, "c");
  rig_wait one = {.p = &b, .topic = "t", .timeout_ms = 10000, .claims = true};
  rig_wait two = {.p = &c, .topic = "t", .timeout_ms = 10000, .claims = true};
  rig_wait_start(&one);
  rig_wait_start(&two);
  rig_until_waiters(&r, 2);
  settle(&r);
  fault_store_fail(r.store, FAULT_CLAIM, MSG_BACKEND, 0, 1);
  peer_enqueue(&a, "t", "work");
  while (!atomic_load(&one.done) && !atomic_load(&two.done))
    rig_sleep(5);
  peer_enqueue(&a, "t", "work");
  rig_wait_join(&one);
  rig_wait_join(&two);
  assert_true((one.rc == MSG_BACKEND) != (two.rc == MSG_BACKEND));
  assert_true((one.rc == MSG_OK) != (two.rc == MSG_OK));
  msg_list_clear(&one.list);
  msg_list_clear(&two.list);
  rig_close(&r);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(an_await_that_waits_needs_no_look),
      cmocka_unit_test(what_came_between_two_calls_needs_no_look),
      cmocka_unit_test(a_backlog_needs_few_looks),
      cmocka_unit_test(a_burst_before_a_look_needs_few_calls),
      cmocka_unit_test(what_this_process_put_is_found_before_it_is_told),
      cmocka_unit_test(what_was_not_told_is_found_at_the_end),
      cmocka_unit_test(an_inbox_that_overflows_loses_nothing_and_keeps_the_order),
      cmocka_unit_test(the_last_look_of_a_wait_takes_no_knowledge_away),
      cmocka_unit_test(what_a_look_left_stays_at_hand),
      cmocka_unit_test(what_one_look_left_does_not_come_before_what_another_finds),
      cmocka_unit_test(what_a_look_gave_is_not_given_by_a_late_word),
      cmocka_unit_test(the_last_to_withdraw_ends_the_watch),
      cmocka_unit_test(one_claim_takes_what_was_pushed),
      cmocka_unit_test(an_offer_that_failed_is_looked_for),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
