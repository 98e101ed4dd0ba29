#include "base/clock.h"
#include "base/str.h"
#include "engine/follow.h"
#include "engine/node_int.h"

/* Longest sleep between two probes for interruption, which shall end a wait within 100 ms. Each
 * wake costs some 0.05 ms of CPU, most of it the system's: 20 a second are 1 ms and more, which is
 * all that an idle waiter may take; 11 leave room for the probes. */
#define SLICE_MS 90

static int probe(const msg_wait *w, msg_err *err) {
  if (atomic_load(&w->use->node->shut))
    return msg_err_set(err, MSG_SHUTDOWN, "%s on '%s': node closed: open it again with msg_open",
                       w->verb, msg_show(w->topic).s);
  if (w->call->interrupted && w->call->interrupted(w->call->arg))
    return msg_err_set(err, MSG_INTERRUPTED, "%s on '%s': interrupted", w->verb,
                       msg_show(w->topic).s);
  return MSG_OK;
}

int msg_wait_begin(msg_wait *w, msg_use *use, msg_call *call, const char *verb, const char *topic,
                   int64_t timeout_ms, msg_err *err) {
  *w = (msg_wait){.use = use, .call = call, .verb = verb, .topic = topic ? topic : "*"};
  if (timeout_ms < 0)
    return msg_err_set(err, MSG_INVALID,
                       "%s on '%s': a time-out of %lld ms is negative: give 0 to look once", verb,
                       msg_show(w->topic).s, (long long)timeout_ms);
  w->waits = timeout_ms > 0;
  w->look_ms = MSG_NEVER;
  w->deadline_ms = msg_clock_add(msg_clock_mono_ms(), timeout_ms);
  return probe(w, err);
}

void msg_wait_mark(msg_wait *w) {
  if (w->waits)
    w->mark = msg_gate_read(w->use->node->changes);
}

int msg_wait_blind(const char *verb, const char *topic, msg_err *err) {
  return msg_err_set(err, MSG_MISUSE,
                     "%s on '%s': inside this transaction nothing new can arrive: COMMIT first, or "
                     "collect into a TEMP table, then wait",
                     verb, msg_show(topic ? topic : "*").s);
}

/* When to look again though no watch wakes us: after a pause, or when the store says that something
 * changes by itself. Monotonic. */
static int64_t next_poll(const msg_wait *w) {
  int64_t pause_ms = w->use->policy->settings.poll_pause_ms, at_ms = MSG_NEVER;
  msg_session *session = msg_call_looks(w->call);
  if (pause_ms < 1)
    pause_ms = 1;
  if (MSG_STORE(w->use, session, deadline, &at_ms, NULL) == MSG_OK && at_ms != MSG_NEVER) {
    int64_t in_ms = at_ms - msg_clock_now_ms();
    if (in_ms < pause_ms)
      pause_ms = in_ms > 1 ? in_ms : 1;
  }
  return msg_clock_mono_ms() + pause_ms;
}

/* Sleeps in slices until a look is worth while. */
static int sleep_until_look(msg_wait *w, int64_t look_ms, msg_err *err) {
  msg_node *node = w->use->node;
  for (int64_t now_ms = msg_clock_mono_ms();;) {
    int64_t until_ms = now_ms + SLICE_MS;
    if (until_ms > w->deadline_ms)
      until_ms = w->deadline_ms;
    if (until_ms > look_ms)
      until_ms = look_ms;
    enum msg_wake wake =
        msg_cursor_sleep(node->cursor, node->changes, w->mark, until_ms, &node->shut);
    if (wake == MSG_WAKE_GONE)
      return msg_cursor_gone(node->cursor, err);
    int rc = probe(w, err);
    if (rc != MSG_OK)
      return rc;
    if (wake == MSG_WAKE_SHUT)
      return msg_err_set(err, MSG_SHUTDOWN, "%s on '%s': the process exits", w->verb,
                         msg_show(w->topic).s);
    if (wake == MSG_WAKE_CHANGED) {
      msg_node_count(node, MSG_STAT_WAKES, 1);
      return MSG_OK;
    }
    now_ms = msg_clock_mono_ms();
    w->last = now_ms >= w->deadline_ms; /* one look more: what came last was not announced yet */
    if (w->last || now_ms >= look_ms)
      return MSG_OK;
  }
}

int msg_wait_again(msg_wait *w, msg_err *err) {
  msg_node *node = w->use->node;
  if (w->waits && w->call->blind)
    return msg_wait_blind(w->verb, w->topic, err);
  if (!w->waits || w->last)
    return msg_err_set(err, MSG_TIMEOUT, "%s on '%s': nothing came", w->verb, msg_show(w->topic).s);
  if (!w->entered) {
    w->entered = true;
    msg_cursor_enter(node->cursor);
  }
  bool watched = msg_cursor_rouse(node->cursor, &w->use->policy->settings, msg_follow);
  int64_t look_ms = watched ? MSG_NEVER : next_poll(w);
  int rc = sleep_until_look(w, w->look_ms < look_ms ? w->look_ms : look_ms, err);
  if (rc == MSG_OK)
    msg_use_refresh(w->use);
  return rc;
}

void msg_wait_until(msg_wait *w, int64_t at_ms) {
  w->look_ms = at_ms;
}

void msg_wait_end(msg_wait *w) {
  if (w->entered)
    msg_cursor_leave(w->use->node->cursor);
  w->entered = false;
}
