/* contract_watch.c - the contract: watch_open, next, wake, info, close. */
#include <stdatomic.h>
#include <string.h>

#include "support/contract.h"

/* A watch in a thread of its own, as the engine's cursor thread has it. */
struct watcher {
  contract *k;
  msg_watch *w;
  msg_thread *thread;
  int64_t deadline_ms; /* mono */
  msg_event event;
  msg_err err;
  int rc;
  int64_t back_ms; /* mono */
  atomic_bool waiting;
};

static msg_watch *open_watch(contract *k) {
  msg_watch *w = NULL;
  contract_needs(k, MSG_CAP_WATCH | MSG_CAP_OWN);
  OK(k->store->ops->watch_open(k->store, &k->settings, &w, &k->err));
  return w;
}

static int next(contract *k, msg_watch *w, int64_t wait_ms) {
  msg_event e;
  int rc = w->ops->watch_next(w, msg_clock_mono_ms() + wait_ms, &e, &k->err);
  if (rc == MSG_OK)
    msg_message_clear(&e.message);
  return rc;
}

/* Until it has nothing more to tell. */
static void drain(contract *k, msg_watch *w) {
  int rc;
  for (int i = 0; (rc = next(k, w, 250)) == MSG_OK; i++)
    assert_true(i < 50);
  assert_int_equal(rc, MSG_TIMEOUT);
}

static void run(void *arg) {
  struct watcher *t = arg;
  atomic_store(&t->waiting, true);
  t->rc = t->w->ops->watch_next(t->w, t->deadline_ms, &t->event, &t->err);
  t->back_ms = msg_clock_mono_ms();
}

static void nap(contract *k, int64_t ms) {
  (void)k;
  msg_mutex *m = msg_mutex_new();
  msg_cond *c = msg_cond_new();
  int64_t until_ms = msg_clock_mono_ms() + ms;
  msg_mutex_lock(m);
  while (msg_cond_wait_until(c, m, until_ms))
    ;
  msg_mutex_unlock(m);
  msg_cond_free(c);
  msg_mutex_free(m);
}

static void start(contract *k, struct watcher *t, msg_watch *w, int64_t wait_ms) {
  memset(t, 0, sizeof *t);
  t->k = k;
  t->w = w;
  t->deadline_ms = msg_clock_mono_ms() + wait_ms;
  OK(msg_thread_start(&t->thread, "watch", run, t, &k->err));
  while (!atomic_load(&t->waiting))
    nap(k, 1);
  nap(k, 20);
}

/* Joins; the wait has ended with rc, at most within_ms after since_ms. */
static void ends(struct watcher *t, int rc, int64_t since_ms, int64_t within_ms) {
  msg_thread_join(t->thread);
  if (t->rc != rc)
    print_error("watch: %s\n", t->err.text);
  assert_int_equal(t->rc, rc);
  assert_true(t->back_ms - since_ms <= within_ms);
  if (rc == MSG_OK)
    msg_message_clear(&t->event.message);
}

static void times_out(void **state) {
  contract *k = *state;
  msg_watch *w = open_watch(k);
  drain(k, w);
  int64_t before_ms = msg_clock_mono_ms();
  assert_int_equal(next(k, w, 200), MSG_TIMEOUT);
  int64_t took_ms = msg_clock_mono_ms() - before_ms;
  assert_true(took_ms >= 199 && took_ms < 1000);
  assert_int_equal(next(k, w, 0), MSG_TIMEOUT);
  assert_int_equal(next(k, w, -1000), MSG_TIMEOUT);
  w->ops->watch_close(w);
}

static void wakes_for_anothers_commit(void **state) {
  contract *k = *state;
  struct watcher t;
  PUT(.topic = "t");
  msg_watch *w = open_watch(k);
  msg_session *other = contract_session(k, "msg");
  for (int i = 0; i < 5; i++) {
    drain(k, w);
    start(k, &t, w, 10000);
    int64_t sent_ms = msg_clock_mono_ms();
    contract_put(k, i % 2 ? other : k->s, &(contract_spec){.topic = "t", .exclusive = i == 2});
    ends(&t, MSG_OK, sent_ms, 1000);
  }
  w->ops->watch_close(w);
}

/* The next event that carries a message. */
static void next_message(contract *k, msg_watch *w, msg_event *e) {
  for (int i = 0; i < 50; i++) {
    OK(w->ops->watch_next(w, msg_clock_mono_ms() + 5000, e, &k->err));
    if (e->kind == MSG_EVENT_MESSAGE)
      return;
    msg_message_clear(&e->message);
  }
  fail_msg("no message was told");
}

static void tells_the_messages_themselves(void **state) {
  contract *k = *state;
  contract_needs(k, MSG_CAP_PUSH);
  msg_watch *w = open_watch(k);
  drain(k, w);
  for (int exclusive = 0; exclusive < 2; exclusive++) {
    msg_event e;
    msg_oid id = contract_put(k, k->s, &(contract_spec){.topic = "t", .exclusive = exclusive});
    next_message(k, w, &e);
    assert_int_equal(msg_oid_cmp(&e.message.id, &id), 0);
    assert_string_equal(e.message.topic, "t");
    assert_int_equal(e.message.exclusive, exclusive);
    assert_null(e.message.processed_by);
    assert_true(e.turn_ms == 0); /* nobody else claims */
    msg_message_clear(&e.message);
  }
  drain(k, w);
  w->ops->watch_close(w);
}

static void wakes_for_the_very_first_message(void **state) {
  contract *k = *state;
  struct watcher t;
  msg_watch *w = open_watch(k);
  drain(k, w);
  start(k, &t, w, 10000);
  int64_t sent_ms = msg_clock_mono_ms();
  PUT(.topic = "t");
  ends(&t, MSG_OK, sent_ms, 1000);
  w->ops->watch_close(w);
}

/* What came before the watch waited is told all the same. */
static void tells_what_came_before(void **state) {
  contract *k = *state;
  msg_watch *w = open_watch(k);
  drain(k, w);
  PUT(.topic = "t");
  assert_int_equal(next(k, w, 2000), MSG_OK);
  w->ops->watch_close(w);
}

static void wakes_for_a_delay_that_ends(void **state) {
  contract *k = *state;
  struct watcher t;
  msg_watch *w = open_watch(k);
  PUT(.topic = "t", .exclusive = true, .delay_ms = 2500);
  drain(k, w);
  start(k, &t, w, 10000);
  ends(&t, MSG_OK, t.deadline_ms - 10000, 5000);
  assert_string_equal(contract_claimed(k, "a", "t", 9), "?");
  w->ops->watch_close(w);
}

static void wakes_for_a_lease_that_ends(void **state) {
  contract *k = *state;
  struct watcher t;
  msg_list list = MSG_LIST_INIT;
  msg_watch *w = open_watch(k);
  PUT(.topic = "t", .text = "1", .exclusive = true);
  contract_claim(k, k->s, "a", "t", 9, 2500, &list);
  drain(k, w);
  start(k, &t, w, 10000);
  ends(&t, MSG_OK, t.deadline_ms - 10000, 5000);
  assert_string_equal(contract_claimed(k, "a", "t", 9), "1");
  msg_list_clear(&list);
  w->ops->watch_close(w);
}

static void wakes_for_a_head_that_expires(void **state) {
  contract *k = *state;
  struct watcher t;
  msg_watch *w = open_watch(k);
  PUT(.topic = "t", .text = "1", .exclusive = true, .group = "g", .ttl_ms = 4000,
      .delay_ms = -1500);
  PUT(.topic = "t", .text = "2", .exclusive = true, .group = "g");
  drain(k, w);
  start(k, &t, w, 10000);
  ends(&t, MSG_OK, t.deadline_ms - 10000, 5000);
  assert_string_equal(contract_claimed(k, "a", "t", 9), "2");
  w->ops->watch_close(w);
}

/* What is due and not swept by anybody does not keep the thread busy. */
static void tells_a_deadline_once(void **state) {
  contract *k = *state;
  int told = 0;
  msg_watch *w = open_watch(k);
  PUT(.topic = "t", .exclusive = true, .delay_ms = 100);
  int64_t until_ms = msg_clock_mono_ms() + 1500;
  while (msg_clock_mono_ms() < until_ms)
    told += next(k, w, 300) == MSG_OK;
  assert_true(told >= 1 && told < 10);
  w->ops->watch_close(w);
}

static void wake_ends_it(void **state) {
  contract *k = *state;
  struct watcher t;
  msg_watch *w = open_watch(k);
  drain(k, w);
  start(k, &t, w, 60000);
  int64_t rung_ms = msg_clock_mono_ms();
  w->ops->watch_wake(w);
  ends(&t, MSG_SHUTDOWN, rung_ms, 1000);
  PUT(.topic = "t");
  assert_int_equal(next(k, w, 100), MSG_SHUTDOWN); /* and every later one */
  w->ops->watch_wake(w);
  assert_int_equal(next(k, w, 0), MSG_SHUTDOWN);
  w->ops->watch_close(w);
}

static void wake_before_the_wait(void **state) {
  contract *k = *state;
  msg_watch *w = open_watch(k);
  w->ops->watch_wake(w);
  assert_int_equal(next(k, w, 60000), MSG_SHUTDOWN);
  w->ops->watch_close(w);
}

/* Muting is optional. It has told what came before. */
static msg_watch *open_mutable_watch(contract *k) {
  msg_watch *w = open_watch(k);
  if (!w->ops->watch_mute) {
    w->ops->watch_close(w);
    skip();
  }
  drain(k, w);
  return w;
}

static void muted_it_says_nothing(void **state) {
  contract *k = *state;
  struct watcher t;
  msg_watch *w = open_mutable_watch(k);
  start(k, &t, w, 60000);
  w->ops->watch_mute(w, true); /* while it waits */
  PUT(.topic = "t");
  nap(k, 100);
  int64_t unmuted_ms = msg_clock_mono_ms();
  w->ops->watch_mute(w, false);
  ends(&t, MSG_OK, unmuted_ms, 2000);
  assert_true(t.back_ms >= unmuted_ms);
  w->ops->watch_close(w);
}

static void muted_it_can_be_ended(void **state) {
  contract *k = *state;
  struct watcher t;
  msg_watch *w = open_mutable_watch(k);
  w->ops->watch_mute(w, true);
  start(k, &t, w, 60000);
  PUT(.topic = "t");
  nap(k, 20);
  int64_t rung_ms = msg_clock_mono_ms();
  w->ops->watch_wake(w);
  ends(&t, MSG_SHUTDOWN, rung_ms, 1000);
  w->ops->watch_close(w);
}

static void info_tells_what_and_how(void **state) {
  contract *k = *state;
  msg_watch_info info;
  msg_watch *w = open_watch(k);
  w->ops->watch_info(w, &info);
  assert_true(strlen(info.what) > 0);
  assert_true(strlen(info.how) > 0);
  w->ops->watch_close(w);
}

static void two_watches_on_one_place(void **state) {
  contract *k = *state;
  struct watcher t[2];
  msg_watch *w[2] = {open_watch(k), open_watch(k)};
  for (int i = 0; i < 2; i++)
    drain(k, w[i]);
  for (int i = 0; i < 2; i++)
    start(k, &t[i], w[i], 10000);
  int64_t sent_ms = msg_clock_mono_ms();
  PUT(.topic = "t");
  for (int i = 0; i < 2; i++) {
    ends(&t[i], MSG_OK, sent_ms, 1000);
    w[i]->ops->watch_close(w[i]);
  }
}

/* No change is lost, however close they follow each other. */
static void no_message_is_slept_through(void **state) {
  contract *k = *state;
  msg_watch *w = open_watch(k);
  struct watcher t;
  contract_listen(k, "a", "t", false);
  drain(k, w);
  for (int i = 0; i < 200; i++) {
    memset(&t, 0, sizeof t);
    t.w = w;
    t.deadline_ms = msg_clock_mono_ms() + 10000;
    OK(msg_thread_start(&t.thread, "watch", run, &t, &k->err));
    if (i % 3 == 0)
      nap(k, i % 7);
    PUT(.topic = "t", .text = "1");
    while (*contract_await(k, "a", "t", 9))
      ;
    ends(&t, MSG_OK, 0, INT64_MAX);
  }
  w->ops->watch_close(w);
}

static void without_a_watch_unsupported(void **state) {
  contract *k = *state;
  msg_watch *w = NULL;
  if (k->store->ops->caps(k->store) & MSG_CAP_WATCH)
    skip();
  assert_int_equal(k->store->ops->watch_open(k->store, &k->settings, &w, &k->err), MSG_UNSUPPORTED);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(times_out),
    cmocka_unit_test(wakes_for_anothers_commit),
    cmocka_unit_test(wakes_for_the_very_first_message),
    cmocka_unit_test(tells_the_messages_themselves),
    cmocka_unit_test(tells_what_came_before),
    cmocka_unit_test(wakes_for_a_delay_that_ends),
    cmocka_unit_test(wakes_for_a_lease_that_ends),
    cmocka_unit_test(wakes_for_a_head_that_expires),
    cmocka_unit_test(tells_a_deadline_once),
    cmocka_unit_test(wake_ends_it),
    cmocka_unit_test(wake_before_the_wait),
    cmocka_unit_test(muted_it_says_nothing),
    cmocka_unit_test(muted_it_can_be_ended),
    cmocka_unit_test(info_tells_what_and_how),
    cmocka_unit_test(two_watches_on_one_place),
    cmocka_unit_test(no_message_is_slept_through),
    cmocka_unit_test(without_a_watch_unsupported),
};
const contract_group contract_watches = {"watch", tests, sizeof tests / sizeof *tests};
