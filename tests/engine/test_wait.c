/* test_wait.c - waits: what wakes them, what ends them, what they cost. */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/cursor.h"
#include "support/cmocka_compat.h"
#include "support/rig.h"

static void a_send_wakes_an_await(void **state) {
  rig r;
  peer a, b;
  rig_open_pair(&r, RIG_KIND(state), &a, "a", &b, "b");
  rig_wait w = {.p = &b, .topic = "t", .timeout_ms = 10000};
  rig_wait_begin(&w);
  peer_send(&a, "t", "hello");
  rig_wait_expect(&w, "hello");
  assert_true(w.took_ms < 5000);
  rig_until_waiters(&r, 0);
  rig_close(&r);
}

static void a_send_wakes_a_claim(void **state) {
  rig r;
  peer a, b;
  rig_open_pair(&r, RIG_KIND(state), &a, "a", &b, "b");
  rig_wait w = {.p = &b, .topic = "t", .timeout_ms = 10000, .claims = true};
  rig_wait_begin(&w);
  assert_int_equal(fault_store_calls(r.store, FAULT_CLAIM), 0); /* idle waiters write nothing */
  peer_enqueue(&a, "t", "work");
  rig_wait_expect(&w, "work");
  assert_int_equal(fault_store_calls(r.store, FAULT_CLAIM), 1);
  assert_true(w.took_ms < 5000);
  rig_close(&r);
}

static void a_time_out_is_kept(void **state) {
  rig r;
  peer a;
  msg_list list = MSG_LIST_INIT;
  rig_open(&r, RIG_KIND(state));
  peer_open(&r, &a, "a");
  for (int claims = 0; claims < 2; claims++) {
    int64_t began = msg_clock_mono_ms();
    int rc = claims ? peer_claim(&a, "t", 130, 1, &list) : peer_await(&a, "t", 130, 1, &list);
    int64_t took = msg_clock_mono_ms() - began;
    assert_int_equal(rc, MSG_TIMEOUT);
    assert_in_range(took, 130, 1000);
    began = msg_clock_mono_ms();
    rc = claims ? peer_claim(&a, "t", 0, 1, &list) : peer_await(&a, "t", 0, 1, &list);
    assert_int_equal(rc, MSG_TIMEOUT);
    assert_true(msg_clock_mono_ms() - began < 100);
  }
  rig_close(&r);
}

/* What is there before the wait is taken without one. */
static void what_is_there_needs_no_wait(void **state) {
  rig r;
  peer a, b;
  msg_list list = MSG_LIST_INIT;
  rig_open_pair(&r, RIG_KIND(state), &a, "a", &b, "b");
  peer_send(&a, "t", "x");
  peer_enqueue(&a, "t", "y");
  assert_int_equal(peer_await(&b, "t", 10000, 1, &list), MSG_OK);
  assert_int_equal(peer_claim(&b, "t", 10000, 1, &list), MSG_OK);
  assert_string_equal(rig_cursor(&r, NULL).state, "off");
  msg_list_clear(&list);
  rig_close(&r);
}

/* Interrupted when it has just gone to sleep: how long it takes from there. */
static int64_t interrupt_one(peer *a, bool claims) {
  rig_wait w = {.p = a, .topic = "t", .timeout_ms = 60000, .claims = claims};
  rig_wait_begin(&w);
  rig_sleep(5);
  int64_t at = msg_clock_mono_ms();
  atomic_store(&a->interrupt, true);
  rig_wait_join(&w);
  int64_t took_ms = msg_clock_mono_ms() - at;
  assert_int_equal(w.rc, MSG_INTERRUPTED);
  assert_string_equal(w.err.text,
                      claims ? "claim on 't': interrupted" : "await on 't': interrupted");
  atomic_store(&a->interrupt, false);
  return took_ms;
}

/* The best of some: a busy machine lets threads wait for the processor besides. */
static void an_interrupt_ends_a_wait_within_100_ms(void **state) {
  rig r;
  peer a;
  rig_open(&r, RIG_KIND(state));
  peer_open(&r, &a, "a");
  for (int claims = 0; claims < 2; claims++) {
    int64_t best_ms = interrupt_one(&a, claims);
    for (int i = 0; i < 20 && best_ms > RIG_PROMPT_MS; i++) {
      int64_t took_ms = interrupt_one(&a, claims);
      best_ms = took_ms < best_ms ? took_ms : best_ms;
    }
    assert_in_range(best_ms, 0, RIG_PROMPT_MS);
  }
  rig_close(&r);
}

static void an_interrupt_comes_before_the_first_look(void **state) {
  rig r;
  peer a, b;
  msg_list list = MSG_LIST_INIT;
  rig_open_pair(&r, RIG_KIND(state), &a, "a", &b, "b");
  peer_send(&b, "t", "x");
  atomic_store(&a.interrupt, true);
  assert_int_equal(peer_await(&a, "t", 1000, 1, &list), MSG_INTERRUPTED);
  assert_int_equal(peer_claim(&a, "t", 0, 1, &list), MSG_INTERRUPTED);
  atomic_store(&a.interrupt, false);
  assert_int_equal(peer_await(&a, "t", 0, 1, &list), MSG_OK); /* nothing was lost */
  msg_list_clear(&list);
  rig_close(&r);
}

/* How long the wait went on. */
static int64_t shut_one_of_two(enum rig_kind kind) {
  rig r;
  peer a, b;
  rig_open_pair(&r, kind, &a, "a", &b, "b");
  rig_wait w = {.p = &a, .topic = "t", .timeout_ms = 60000};
  rig_wait other = {.p = &b, .topic = "t", .timeout_ms = 60000};
  rig_wait_begin(&w);
  rig_wait_start(&other);
  rig_until_waiters(&r, 2);
  int64_t at = msg_clock_mono_ms();
  msg_node_shut(a.node);
  rig_wait_join(&w);
  int64_t took_ms = msg_clock_mono_ms() - at;
  assert_int_equal(w.rc, MSG_SHUTDOWN);
  assert_string_equal(w.err.text, "await on 't': node closed: open it again with msg_open");
  rig_sleep(120);
  assert_false(atomic_load(&other.done));
  msg_node_shut(b.node);
  rig_wait_join(&other);
  rig_close(&r);
  return took_ms;
}

static void shutting_a_node_ends_its_waits_only(void **state) {
  int64_t best_ms = shut_one_of_two(RIG_KIND(state));
  for (int i = 0; i < 20 && best_ms > RIG_PROMPT_MS; i++) {
    int64_t took_ms = shut_one_of_two(RIG_KIND(state));
    best_ms = took_ms < best_ms ? took_ms : best_ms;
  }
  assert_in_range(best_ms, 0, RIG_PROMPT_MS);
}

/* The last reference goes while a call is under way: the node outlives the call. */
static void closing_a_node_ends_its_waits(void **state) {
  rig r;
  peer a, b;
  rig_open_pair(&r, RIG_KIND(state), &a, "a", &b, "b");
  rig_wait w = {.p = &a, .topic = "t", .timeout_ms = 60000};
  rig_wait_begin(&w);
  msg_node_close(a.node);
  rig_wait_join(&w);
  assert_int_equal(w.rc, MSG_SHUTDOWN);
  a.node = NULL;
  rig_close(&r);
}

static void a_blind_wait_is_refused(void **state) {
  rig r;
  peer a, b;
  msg_err err = MSG_ERR_INIT;
  msg_list list = MSG_LIST_INIT;
  rig_open_pair(&r, RIG_KIND(state), &a, "a", &b, "b");
  peer_send(&b, "t", "x");
  a.call.blind = true;
  assert_int_equal(msg_node_await(a.node, &a.call, "t", 1000, 1, &list, &err), MSG_OK);
  assert_int_equal(msg_node_await(a.node, &a.call, "t", 0, 1, &list, &err), MSG_TIMEOUT);
  int64_t began = msg_clock_mono_ms();
  assert_int_equal(msg_node_await(a.node, &a.call, "t", 1000, 1, &list, &err), MSG_MISUSE);
  assert_string_equal(err.text,
                      "await on 't': inside this transaction nothing new can arrive: COMMIT "
                      "first, or collect into a TEMP table, then wait");
  assert_int_equal(msg_node_claim(a.node, &a.call, "t", 1, 0, 1000, &list, &err), MSG_MISUSE);
  assert_int_equal(msg_node_claim(a.node, &a.call, "t", 1, 0, 0, &list, &err), MSG_TIMEOUT);
  assert_true(msg_clock_mono_ms() - began < 500);
  msg_list_clear(&list);
  rig_close(&r);
}

/* --- time ---------------------------------------------------------------------------------- */

static msg_oid send_delayed(peer *p, const char *topic, bool exclusive, int64_t delay_ms) {
  msg_message m;
  msg_oid id;
  msg_options o;
  msg_options_init(&o);
  o.has_delay = true;
  o.delay_ms = delay_ms;
  msg_message_init(&m);
  m.topic = msg_strdup(topic);
  m.exclusive = exclusive;
  assert_int_equal(msg_node_fill(p->node, &m, &o, NULL), MSG_OK);
  assert_int_equal(msg_node_send(p->node, &p->call, &m, 1, &id, NULL, NULL), MSG_OK);
  msg_message_clear(&m);
  msg_options_clear(&o);
  return id;
}

static void the_end_of_a_delay_wakes(void **state) {
  rig r;
  peer a, b;
  rig_open_pair(&r, RIG_KIND(state), &a, "a", &b, "b");
  for (int claims = 0; claims < 2; claims++) {
    rig_wait w = {.p = &b, .topic = "t", .timeout_ms = 20000, .claims = claims};
    int64_t sent = msg_clock_mono_ms();
    send_delayed(&a, "t", claims, 400);
    rig_wait_start(&w);
    rig_wait_join(&w);
    assert_int_equal(w.rc, MSG_OK);
    assert_in_range(msg_clock_mono_ms() - sent, 390, 1500);
    msg_list_clear(&w.list);
  }
  rig_close(&r);
}

static void the_end_of_a_lease_wakes(void **state) {
  rig r;
  peer a, b;
  msg_list list = MSG_LIST_INIT;
  rig_open_pair(&r, RIG_KIND(state), &a, "a", &b, "b");
  peer_enqueue(&a, "t", "work");
  int64_t claimed = msg_clock_mono_ms();
  assert_int_equal(msg_node_claim(a.node, &a.call, "t", 1, 400, 0, &list, NULL), MSG_OK);
  rig_wait w = {.p = &b, .topic = "t", .timeout_ms = 20000, .claims = true};
  rig_wait_start(&w);
  rig_wait_expect(&w, "work");
  assert_in_range(msg_clock_mono_ms() - claimed, 390, 1500);
  msg_settle ack = {.verb = MSG_SETTLE_ACK};
  msg_settle_item late = {.id = list.at[0].id, .token = list.at[0].token};
  assert_int_equal(msg_node_settle(a.node, &a.call, &ack, &late, 1, NULL), MSG_OK);
  assert_false(late.done);
  msg_list_clear(&list);
  rig_close(&r);
}

/* A wait of one thread, polling: there is nobody to wake it but the store's own deadline. */
static void polling_knows_the_deadline(void **state) {
  rig r;
  peer a;
  msg_list list = MSG_LIST_INIT;
  msg_value pause = msg_value_int(1000);
  rig_open(&r, RIG_KIND(state));
  peer_open(&r, &a, "a");
  assert_int_equal(msg_node_configure(a.node, "poll_pause_ms", &pause, false, NULL), MSG_OK);
  int64_t sent = msg_clock_mono_ms();
  send_delayed(&a, "t", true, 200);
  assert_int_equal(peer_claim(&a, "t", 10000, 1, &list), MSG_OK);
  assert_in_range(msg_clock_mono_ms() - sent, 190, 800);
  msg_list_clear(&list);
  rig_close(&r);
}

static void polling_pauses_as_set(void **state) {
  rig r;
  peer a;
  msg_list list = MSG_LIST_INIT;
  msg_value pause = msg_value_int(100);
  rig_open(&r, RIG_KIND(state));
  peer_open(&r, &a, "a");
  assert_int_equal(msg_node_configure(a.node, "poll_pause_ms", &pause, false, NULL), MSG_OK);
  assert_int_equal(peer_await(&a, "t", 1000, 1, &list), MSG_TIMEOUT);
  assert_in_range(fault_store_calls(r.store, FAULT_UNSEEN), 5, 13);
  assert_int_equal(fault_store_calls(r.store, FAULT_WATCH_OPEN), 0);
  rig_close(&r);
}

static void watching_does_not_poll(void **state) {
  rig r;
  peer a;
  msg_list list = MSG_LIST_INIT;
  rig_open(&r, RIG_KIND(state));
  peer_open(&r, &a, "a");
  assert_int_equal(peer_await(&a, "t", 100, 1, &list), MSG_TIMEOUT); /* the thread runs now */
  rig_until_state(&r, "running");
  long before = fault_store_calls(r.store, FAULT_UNSEEN);
  assert_int_equal(peer_await(&a, "t", 1500, 1, &list), MSG_TIMEOUT);
  assert_in_range(fault_store_calls(r.store, FAULT_UNSEEN) - before, 1, 4);
  rig_close(&r);
}

static void resuming_wakes(void **state) {
  rig r;
  peer a, b;
  bool changed;
  rig_open_pair(&r, RIG_KIND(state), &a, "a", &b, "b");
  peer_send(&a, "t", "held");
  assert_int_equal(msg_node_pause(b.node, "t", &changed, NULL), MSG_OK);
  rig_wait w = {.p = &b, .topic = "t", .timeout_ms = 20000};
  rig_wait_begin(&w);
  rig_sleep(150);
  assert_false(atomic_load(&w.done));
  assert_int_equal(msg_node_resume(b.node, "t", &changed, NULL), MSG_OK);
  rig_wait_expect(&w, "held");
  assert_true(w.took_ms < 5000);
  rig_close(&r);
}

/* --- many ---------------------------------------------------------------------------------- */

/* Threads that share a node share its messages: each is handed out once. */
static void a_shared_node_hands_out_each_message_once(void **state) {
  enum { THREADS = 4, MESSAGES = 60 };
  rig r;
  peer a, w[THREADS];
  int seen[MESSAGES] = {0};
  rig_open(&r, RIG_KIND(state));
  peer_open(&r, &a, "a");
  msg_list none = MSG_LIST_INIT;
  for (int i = 0; i < THREADS; i++)
    peer_open(&r, &w[i], "shared");
  assert_int_equal(peer_await(&w[0], "t", 0, 1, &none), MSG_TIMEOUT);
  for (int done = 0, sent = 0; done < MESSAGES;) {
    rig_wait waits[THREADS];
    for (int i = 0; i < THREADS; i++) {
      waits[i] = (rig_wait){.p = &w[i], .topic = "t", .timeout_ms = 100, .max = 5};
      rig_wait_start(&waits[i]);
    }
    for (int i = 0; i < 10 && sent < MESSAGES; i++, sent++) {
      char text[8] = {(char)('0' + sent / 10), (char)('0' + sent % 10)};
      peer_send(&a, "t", text);
    }
    for (int i = 0; i < THREADS; i++) {
      rig_wait_join(&waits[i]);
      if (waits[i].rc != MSG_OK && waits[i].rc != MSG_TIMEOUT)
        fail_msg("%s", waits[i].err.text);
      for (size_t k = 0; k < waits[i].list.n; k++, done++) {
        const char *text = waits[i].list.at[k].value.p;
        seen[(text[0] - '0') * 10 + text[1] - '0']++;
      }
      msg_list_clear(&waits[i].list);
    }
  }
  for (int i = 0; i < MESSAGES; i++)
    assert_int_equal(seen[i], 1);
  rig_close(&r);
}

static void claimers_do_not_share_a_message(void **state) {
  enum { THREADS = 4, MESSAGES = 40 };
  rig r;
  peer a, w[THREADS];
  int got = 0;
  rig_open(&r, RIG_KIND(state));
  peer_open(&r, &a, "a");
  for (int i = 0; i < THREADS; i++)
    peer_open(&r, &w[i], NULL);
  rig_wait waits[THREADS];
  for (int round = 0; round < MESSAGES / THREADS; round++) {
    for (int i = 0; i < THREADS; i++) {
      waits[i] = (rig_wait){.p = &w[i], .topic = "t", .timeout_ms = 10000, .claims = true};
      rig_wait_start(&waits[i]);
    }
    for (int i = 0; i < THREADS; i++)
      peer_enqueue(&a, "t", "x");
    for (int i = 0; i < THREADS; i++) {
      rig_wait_join(&waits[i]);
      if (waits[i].rc != MSG_OK)
        fail_msg("%s", waits[i].err.text);
      got += (int)waits[i].list.n;
      assert_int_equal(waits[i].list.at[0].attempts, 1);
      msg_list_clear(&waits[i].list);
    }
  }
  assert_int_equal(got, MESSAGES);
  rig_close(&r);
}

#define ON_THREADS(f) RIG_TEST(f, fake), RIG_TEST(f, push), RIG_TEST(f, no_watch), RIG_TEST(f, file)

int main(void) {
  const struct CMUnitTest tests[] = {
      ON_THREADS(a_send_wakes_an_await),
      RIG_TEST(a_send_wakes_a_claim, fake),
      RIG_TEST(a_send_wakes_a_claim, no_watch),
      RIG_TEST(a_send_wakes_a_claim, file),
      ON_THREADS(a_time_out_is_kept),
      RIG_TEST(a_time_out_is_kept, memory),
      RIG_TEST(what_is_there_needs_no_wait, fake),
      RIG_TEST(what_is_there_needs_no_wait, file),
      ON_THREADS(an_interrupt_ends_a_wait_within_100_ms),
      RIG_TEST(an_interrupt_ends_a_wait_within_100_ms, memory),
      ON_THREADS(an_interrupt_comes_before_the_first_look),
      ON_THREADS(shutting_a_node_ends_its_waits_only),
      RIG_TEST(closing_a_node_ends_its_waits, fake),
      ON_THREADS(a_blind_wait_is_refused),
      ON_THREADS(the_end_of_a_delay_wakes),
      ON_THREADS(the_end_of_a_lease_wakes),
      RIG_TEST(polling_knows_the_deadline, no_watch),
      RIG_TEST(polling_knows_the_deadline, memory),
      RIG_TEST(polling_pauses_as_set, no_watch),
      RIG_TEST(polling_pauses_as_set, memory),
      RIG_TEST(watching_does_not_poll, fake),
      RIG_TEST(watching_does_not_poll, file),
      ON_THREADS(resuming_wakes),
      ON_THREADS(a_shared_node_hands_out_each_message_once),
      ON_THREADS(claimers_do_not_share_a_message),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
