/* test_cursor.c - the cursor thread: its life, its failures, what it tells. */
#include "engine/cursor.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "support/cmocka_compat.h"
#include "support/rig.h"

/* Sends while `b` waits, and expects it to come. */
static void expect_delivery(peer *a, peer *b, const char *text) {
  rig_wait w = {.p = b, .topic = "t", .timeout_ms = 10000};
  rig_wait_begin(&w);
  peer_send(a, "t", text);
  rig_wait_expect(&w, text);
  assert_true(w.took_ms < w.timeout_ms / 2); /* woken, not found by the last look */
}

static void it_starts_at_the_first_wait_and_ends_at_the_last_detach(void **state) {
  rig r;
  peer a, b;
  msg_list list = MSG_LIST_INIT;
  rig_open_pair(&r, RIG_KIND(state), &a, "a", &b, "b");
  peer_send(&a, "t", "x");
  assert_string_equal(rig_cursor(&r, NULL).state, "off");
  assert_int_equal(peer_await(&a, "t", 60, 1, &list), MSG_TIMEOUT);
  rig_until_state(&r, "running");
  assert_int_equal(fault_store_watches(r.store), 1);
  msg_node_detach(a.node);
  assert_string_equal(rig_cursor(&r, NULL).state, "running");
  msg_node_detach(b.node);
  assert_string_equal(rig_cursor(&r, NULL).state, "off");
  assert_int_equal(fault_store_watches(r.store), 0);

  assert_int_equal(peer_await(&a, "t", 60, 1, &list), MSG_TIMEOUT); /* nobody attached: polls */
  assert_string_equal(rig_cursor(&r, NULL).state, "off");
  msg_node_detach(a.node); /* more often than attached: nothing */
  msg_node_attach(a.node);
  assert_int_equal(peer_await(&a, "t", 60, 1, &list), MSG_TIMEOUT);
  rig_until_state(&r, "running");
  rig_close(&r);
}

static void closing_the_last_node_joins_it(void **state) {
  rig r;
  peer a;
  msg_list list = MSG_LIST_INIT;
  rig_open(&r, RIG_KIND(state));
  peer_open(&r, &a, "a");
  msg_node_attach(a.node); /* twice, and one detach in peer_close */
  assert_int_equal(peer_await(&a, "t", 60, 1, &list), MSG_TIMEOUT);
  rig_until_state(&r, "running");
  peer_close(&a);
  assert_string_equal(rig_cursor(&r, NULL).state, "off");
  assert_int_equal(fault_store_watches(r.store), 0);
  rig_close(&r);
}

static void it_tells_about_itself(void **state) {
  rig r;
  peer a, b;
  char error[512];
  rig_open_pair(&r, RIG_KIND(state), &a, "a", &b, "b");
  msg_cursor_info i = rig_cursor(&r, error);
  assert_string_equal(i.how, "poll");
  assert_int_equal(i.last_event_ms, 0);
  assert_int_equal(i.lag_ms, -1);
  assert_string_equal(error, "");
  int64_t began = msg_clock_now_ms();
  expect_delivery(&a, &b, "one");
  rig_until_state(&r, "running");
  expect_delivery(&a, &b, "two");
  i = rig_cursor(&r, error);
  assert_string_equal(i.state, "running");
  assert_string_not_equal(i.how, "");
  assert_true(i.last_event_ms >= began);
  assert_in_range(i.lag_ms, 0, 1000);
  assert_int_equal(i.token_age_ms, -1);
  assert_int_equal(i.restarts, 0);
  assert_int_equal(i.waiters, 0);
  assert_true(msg_node_stat(b.node, MSG_STAT_WAKES) >= 1);
  rig_close(&r);
}

/* --- failures ------------------------------------------------------------------------------ */

static void a_failed_watch_is_opened_again_after_pauses(void **state) {
  rig r;
  peer a, b;
  char error[512];
  msg_cursor_tune(20, 80, 0);
  rig_open_pair(&r, RIG_KIND(state), &a, "a", &b, "b");
  fault_store_fail(r.store, FAULT_WATCH_OPEN, MSG_IO, 0, -1);
  expect_delivery(&a, &b, "polled"); /* waiters look on their own meanwhile */
  rig_until_state(&r, "failed");
  rig_cursor(&r, error);
  assert_string_equal(error, "planned failure of watch_open");
  long before = fault_store_calls(r.store, FAULT_WATCH_OPEN);
  rig_sleep(400);
  assert_in_range(fault_store_calls(r.store, FAULT_WATCH_OPEN) - before, 2, 7); /* 80 ms apart */
  expect_delivery(&a, &b, "still polled");

  fault_store_fail(r.store, FAULT_WATCH_OPEN, MSG_OK, 0, 0);
  rig_until_state(&r, "running");
  assert_true(rig_cursor(&r, error).restarts >= 3);
  expect_delivery(&a, &b, "watched");

  fault_store_fail(r.store, FAULT_WATCH_NEXT, MSG_BACKEND, 0, 1); /* breaks once, in the middle */
  rig_sleep(200);
  rig_until_state(&r, "running");
  rig_cursor(&r, error);
  assert_string_equal(error, "planned failure of watch_next");
  expect_delivery(&a, &b, "again");
  peer_close(&a);
  peer_close(&b);
  assert_int_equal(fault_store_watches(r.store), 0);
  rig_close(&r);
  msg_cursor_tune(0, 0, 0);
}

static void a_stop_cuts_a_pause_short(void **state) {
  rig r;
  peer a;
  msg_list list = MSG_LIST_INIT;
  msg_cursor_tune(60000, 60000, 0);
  rig_open(&r, RIG_KIND(state));
  peer_open(&r, &a, "a");
  fault_store_fail(r.store, FAULT_WATCH_OPEN, MSG_IO, 0, -1);
  assert_int_equal(peer_await(&a, "t", 100, 1, &list), MSG_TIMEOUT);
  rig_until_state(&r, "failed");
  int64_t began = msg_clock_mono_ms();
  peer_close(&a);
  assert_true(msg_clock_mono_ms() - began < 1000);
  rig_close(&r);
  msg_cursor_tune(0, 0, 0);
}

/* What failed while the thread was off for good is not carried over. */
static void a_store_that_refuses_to_be_watched_is_polled(void **state) {
  rig r;
  peer a, b;
  rig_open_pair(&r, RIG_KIND(state), &a, "a", &b, "b");
  fault_store_fail(r.store, FAULT_WATCH_OPEN, MSG_UNSUPPORTED, 0, -1);
  expect_delivery(&a, &b, "one");
  expect_delivery(&a, &b, "two");
  assert_int_equal(fault_store_calls(r.store, FAULT_WATCH_OPEN), 1);
  assert_string_equal(rig_cursor(&r, NULL).state, "off");
  msg_node_detach(a.node);
  msg_node_detach(b.node);
  fault_store_fail(r.store, FAULT_WATCH_OPEN, MSG_OK, 0, 0);
  msg_node_attach(b.node);
  expect_delivery(&a, &b, "three");
  rig_until_state(&r, "running");
  rig_close(&r);
}

static void a_place_that_is_gone_ends_waits_with_its_text(void **state) {
  static const enum fault_verb VERBS[] = {FAULT_WATCH_OPEN, FAULT_WATCH_NEXT};
  for (int i = 0; i < 2; i++) {
    rig r;
    peer a;
    rig_open(&r, RIG_KIND(state));
    peer_open(&r, &a, "a");
    rig_wait w = {.p = &a, .topic = "t", .timeout_ms = 20000};
    fault_store_fail(r.store, VERBS[i], MSG_UNAVAILABLE, 0, 1);
    rig_wait_start(&w);
    rig_wait_join(&w);
    assert_int_equal(w.rc, MSG_UNAVAILABLE);
    assert_non_null(strstr(w.err.text, "planned failure of watch_"));
    assert_true(w.took_ms < 5000);
    rig_until_state(&r, "failed");
    rig_wait again = {.p = &a, .topic = "t", .timeout_ms = 20000};
    rig_wait_start(&again);
    rig_wait_join(&again);
    assert_int_equal(again.rc, MSG_UNAVAILABLE);
    peer_close(&a);
    assert_int_equal(fault_store_watches(r.store), 0);
    rig_close(&r);
  }
}

/* Not planned, but real: another file takes the place of the watched one. */
static void a_replaced_file_ends_waits(void **state) {
  rig r;
  peer a;
  rig_open(&r, RIG_KIND(state));
  peer_open(&r, &a, "a");
  rig_wait w = {.p = &a, .topic = "t", .timeout_ms = 20000};
  rig_wait_start(&w);
  rig_until_state(&r, "running");
  char other[80], wal[80], shm[80];
  snprintf(other, sizeof other, "%s.new", r.path);
  snprintf(wal, sizeof wal, "%s-wal", r.path);
  snprintf(shm, sizeof shm, "%s-shm", r.path);
  FILE *f = fopen(other, "w");
  assert_non_null(f);
  fclose(f);
  assert_int_equal(rename(other, r.path), 0);
  rig_wait_join(&w);
  assert_int_equal(w.rc, MSG_UNAVAILABLE);
  assert_string_not_equal(w.err.text, "");
  peer_close(&a);
  unlink(wal);
  rig_close(&r);
  unlink(shm);
}

/* A watch is only a doorbell: what it swallows is found by the look after a silence. */
static void lost_events_are_made_up_for(void **state) {
  rig r;
  peer a, b;
  msg_list list = MSG_LIST_INIT;
  msg_cursor_tune(0, 0, 300);
  rig_open_pair(&r, RIG_KIND(state), &a, "a", &b, "b");
  assert_int_equal(peer_await(&b, "t", 60, 1, &list), MSG_TIMEOUT);
  rig_until_state(&r, "running");
  fault_store_lose_events(r.store, -1);
  expect_delivery(&a, &b, "found");
  rig_close(&r);
  msg_cursor_tune(0, 0, 0);
}

/* A watch that takes its time to open: waiters poll, a stop is bounded, and what is left is used
 * and closed later. */
static void a_slow_watch_holds_nobody_up(void **state) {
  rig r;
  peer a, b;
  rig_open_pair(&r, RIG_KIND(state), &a, "a", &b, "b");
  fault_store_delay(r.store, FAULT_WATCH_OPEN, 3000);
  expect_delivery(&a, &b, "polled");
  assert_string_equal(rig_cursor(&r, NULL).state, "starting");
  msg_node_detach(a.node);
  int64_t began = msg_clock_mono_ms();
  msg_node_detach(b.node);
  assert_in_range(msg_clock_mono_ms() - began, 0, 2500);
  assert_string_equal(rig_cursor(&r, NULL).state, "stopping");
  fault_store_delay(r.store, FAULT_WATCH_OPEN, 0);
  msg_node_attach(b.node);
  expect_delivery(&a, &b, "polled again");
  rig_sleep(1500); /* the slow one has ended */
  expect_delivery(&a, &b, "restarted");
  rig_until_state(&r, "running");
  rig_close(&r);
}

static void a_store_outlives_a_slow_thread(void **state) {
  rig r;
  peer a;
  msg_list list = MSG_LIST_INIT;
  rig_open(&r, RIG_KIND(state));
  peer_open(&r, &a, "a");
  fault_store_delay(r.store, FAULT_WATCH_OPEN, 5500);
  assert_int_equal(peer_await(&a, "t", 60, 1, &list), MSG_TIMEOUT);
  peer_close(&a);
  msg_registry_unref(r.store);
  assert_int_equal(fault_store_alive(), r.others + 1); /* its thread is still inside */
  rig_sleep(2500);
  rig next;
  rig_open(&next, RIG_FAKE); /* whoever registers next cleans up */
  assert_int_equal(fault_store_alive(), r.others + 1);
  next.others = r.others;
  rig_close(&next);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      RIG_TEST(it_starts_at_the_first_wait_and_ends_at_the_last_detach, fake),
      RIG_TEST(it_starts_at_the_first_wait_and_ends_at_the_last_detach, file),
      RIG_TEST(closing_the_last_node_joins_it, fake),
      RIG_TEST(closing_the_last_node_joins_it, file),
      RIG_TEST(it_tells_about_itself, fake),
      RIG_TEST(it_tells_about_itself, file),
      RIG_TEST(a_failed_watch_is_opened_again_after_pauses, fake),
      RIG_TEST(a_failed_watch_is_opened_again_after_pauses, file),
      RIG_TEST(a_stop_cuts_a_pause_short, fake),
      RIG_TEST(a_store_that_refuses_to_be_watched_is_polled, fake),
      RIG_TEST(a_store_that_refuses_to_be_watched_is_polled, file),
      RIG_TEST(a_place_that_is_gone_ends_waits_with_its_text, fake),
      RIG_TEST(a_place_that_is_gone_ends_waits_with_its_text, file),
      RIG_TEST(a_replaced_file_ends_waits, file),
      RIG_TEST(lost_events_are_made_up_for, fake),
      RIG_TEST(lost_events_are_made_up_for, file),
      RIG_TEST(a_slow_watch_holds_nobody_up, fake),
      RIG_TEST(a_store_outlives_a_slow_thread, fake),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
