#include "engine/follow.h"

#include "base/clock.h"
#include "engine/cursor_int.h"
#include "engine/deliver.h"

/* Makes the open watch known. False: meanwhile asked to stop. What happened before it was open is
 * found by the look that the bump brings about. */
static bool publish(msg_cursor *c, msg_watch *watch) {
  msg_mutex_lock(c->mtx);
  bool wanted = c->state == MSG_CURSOR_STARTING;
  if (wanted) {
    c->state = MSG_CURSOR_RUNNING;
    c->watch = watch;
    c->failing = false;
    msg_cursor_turn_locked(c, c->pushes);
  }
  msg_mutex_unlock(c->mtx);
  if (wanted)
    msg_cursor_mute_if_idle(c);
  return wanted;
}

/* Takes the watch back from the others and closes it. */
static void retire(msg_cursor *c, msg_watch *watch) {
  msg_mutex_lock(c->mtx);
  c->watch = NULL;
  while (c->pins > 0)
    msg_cond_wait_until(c->control, c->mtx, MSG_NEVER);
  msg_mutex_unlock(c->mtx);
  watch->ops->watch_close(watch);
}

/* Notes a failure, and tells waiters that nobody watches for them. True: it may be tried again. */
static bool note_failure(msg_cursor *c, const msg_err *why) {
  msg_mutex_lock(c->mtx);
  c->last_error = *why;
  c->gone = why->rc == MSG_UNAVAILABLE;
  c->refused = why->rc == MSG_UNSUPPORTED;
  c->failing = true;
  if (c->state == MSG_CURSOR_RUNNING)
    c->state = MSG_CURSOR_STARTING;
  bool again = c->state == MSG_CURSOR_STARTING && !c->gone && !c->refused;
  msg_cursor_turn_locked(c, false);
  msg_mutex_unlock(c->mtx);
  return again;
}

/* Pauses before the next attempt. False: asked to stop. */
static bool back_off(msg_cursor *c) {
  int64_t until_ms = msg_clock_mono_ms() + c->backoff_ms;
  c->backoff_ms *= 2;
  if (c->backoff_ms > msg_cursor_tuned.backoff_cap_ms)
    c->backoff_ms = msg_cursor_tuned.backoff_cap_ms;

  msg_mutex_lock(c->mtx);
  while (c->state == MSG_CURSOR_STARTING && msg_cond_wait_until(c->control, c->mtx, until_ms))
    ;
  bool again = c->state == MSG_CURSOR_STARTING;
  if (again)
    c->restarts++;
  msg_mutex_unlock(c->mtx);
  return again;
}

/* A watch that fails as soon as it is open is not tried ever faster. */
static void note_event(msg_cursor *c, bool silence, bool pushed) {
  if (!c->tends || msg_clock_mono_ms() - c->opened_mono_ms >= msg_cursor_tuned.backoff_cap_ms)
    c->backoff_ms = msg_cursor_tuned.backoff_first_ms;
  if (c->tends && silence)
    return;
  msg_mutex_lock(c->mtx);
  if (!silence) {
    c->last_event_ms = msg_clock_now_ms();
    c->event_mono_ms = msg_clock_mono_ms();
  }
  if (!pushed)
    msg_cursor_turn_locked(c, c->pushes);
  msg_mutex_unlock(c->mtx);
}

/* A message goes to those who want it, who are woken once the last that came with it is there; any
 * other event makes everybody look. */
static void take_event(msg_cursor *c, msg_event *event) {
  bool pushed = event->kind == MSG_EVENT_MESSAGE && msg_deliver(c->store, event);
  msg_message_clear(&event->message);
  note_event(c, false, pushed);
  if (!event->more)
    msg_deliver_ring(c->store);
}

/* Follows an open watch to its end, and says why it ended. */
static void follow(msg_watch *watch, msg_cursor *c, msg_err *why) {
  for (;;) {
    msg_event event = {.kind = MSG_EVENT_CHANGED};
    msg_message_init(&event.message);
    int64_t until_ms = msg_clock_mono_ms() + msg_cursor_tuned.silence_ms;
    int rc = watch->ops->watch_next(watch, until_ms, &event, why);
    if (rc != MSG_OK && rc != MSG_TIMEOUT) {
      why->rc = rc;
      return;
    }
    if (rc == MSG_OK)
      take_event(c, &event);
    else
      note_event(c, true, false);
  }
}

/* One watch, from opening to closing. True: try again after a pause. */
static bool watch_once(msg_cursor *c) {
  msg_err why = MSG_ERR_INIT;
  msg_watch *watch = NULL;
  why.rc = c->store->ops->watch_open(c->store, &c->settings, &watch, &why);
  if (why.rc != MSG_OK)
    return note_failure(c, &why);
  c->opened_mono_ms = msg_clock_mono_ms();
  if (!publish(c, watch)) {
    watch->ops->watch_close(watch);
    return false;
  }
  follow(watch, c, &why);
  retire(c, watch);
  return why.rc != MSG_SHUTDOWN && note_failure(c, &why);
}

void msg_follow(void *arg) {
  msg_cursor *c = arg;
  while (watch_once(c) && back_off(c))
    ;
  msg_mutex_lock(c->mtx);
  c->state = MSG_CURSOR_JOINABLE;
  msg_cond_broadcast(c->control);
  msg_cursor_turn_locked(c, false);
  msg_mutex_unlock(c->mtx);
}
