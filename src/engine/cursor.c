#include "base/clock.h"
#include "base/mem.h"
#include "engine/cursor_int.h"

#define BACKOFF_FIRST_MS 100
#define BACKOFF_CAP_MS   5000
/* A watch is only a doorbell: after this silence waiters look all the same. */
#define SILENCE_MS 5000

static atomic_bool exiting;
struct msg_cursor_tuning msg_cursor_tuned = {BACKOFF_FIRST_MS, BACKOFF_CAP_MS, SILENCE_MS};

void msg_cursor_tune(int64_t backoff_first_ms, int64_t backoff_cap_ms, int64_t silence_ms) {
  msg_cursor_tuned.backoff_first_ms = backoff_first_ms ? backoff_first_ms : BACKOFF_FIRST_MS;
  msg_cursor_tuned.backoff_cap_ms = backoff_cap_ms ? backoff_cap_ms : BACKOFF_CAP_MS;
  msg_cursor_tuned.silence_ms = silence_ms ? silence_ms : SILENCE_MS;
}

/* --- life ---------------------------------------------------------------------------------- */

msg_cursor *msg_cursor_new(msg_store *store) {
  msg_cursor *c = msg_zalloc(sizeof *c);
  if (!c)
    return NULL;
  c->store = store;
  c->watchable = (store->ops->caps(store) & MSG_CAP_WATCH) != 0;
  c->tends = (store->ops->caps(store) & MSG_CAP_TEND) != 0;
  c->pushes = (store->ops->caps(store) & MSG_CAP_PUSH) != 0;
  c->mtx = msg_mutex_new();
  atomic_init(&c->epoch, 1);
  c->control = msg_cond_new();
  c->lag_ms = -1;
  msg_settings_init(&c->settings);
  if (!c->mtx || !c->control) {
    msg_cursor_free(c);
    return NULL;
  }
  return c;
}

void msg_cursor_free(msg_cursor *c) {
  if (!c)
    return;
  msg_settings_clear(&c->settings);
  msg_cond_free(c->control);
  msg_free(c->gates);
  msg_mutex_free(c->mtx);
  msg_free(c);
}

int msg_cursor_join(msg_cursor *c, msg_gate *gate) {
  msg_mutex_lock(c->mtx);
  int rc = msg_grow(&c->gates, &c->gate_cap, c->gate_count + 1, sizeof *c->gates);
  if (rc == MSG_OK)
    c->gates[c->gate_count++] = gate;
  msg_mutex_unlock(c->mtx);
  return rc;
}

void msg_cursor_quit(msg_cursor *c, const msg_gate *gate) {
  msg_mutex_lock(c->mtx);
  for (size_t i = 0; i < c->gate_count; i++)
    if (c->gates[i] == gate)
      c->gates[i--] = c->gates[--c->gate_count];
  msg_mutex_unlock(c->mtx);
}

static void wake_all_locked(msg_cursor *c) {
  for (size_t i = 0; i < c->gate_count; i++)
    msg_gate_move(c->gates[i]);
}

void msg_cursor_turn_locked(msg_cursor *c, bool pushing) {
  atomic_store(&c->pushing, pushing);
  atomic_fetch_add(&c->epoch, 1);
  wake_all_locked(c);
}

/* --- starting and stopping ----------------------------------------------------------------- */

static void start_locked(msg_cursor *c, const msg_settings *settings, void (*follow)(void *)) {
  msg_err err = MSG_ERR_INIT;
  msg_settings copy;
  int rc = msg_settings_copy(&copy, settings);
  if (rc == MSG_OK) {
    msg_settings_clear(&c->settings);
    c->settings = copy;
    c->backoff_ms = msg_cursor_tuned.backoff_first_ms;
    c->state = MSG_CURSOR_STARTING;
    rc = msg_thread_start(&c->thread, "msg-cursor", follow, c, &err);
  } else {
    msg_err_nomem(&err);
  }
  if (rc == MSG_OK)
    return;
  c->state = MSG_CURSOR_OFF;
  c->last_error = err;
  c->failing = true;
  c->retry_at_ms = msg_clock_mono_ms() + msg_cursor_tuned.backoff_cap_ms;
}

/* JOINABLE to OFF. Lets go of mtx while it joins. */
static void join_locked(msg_cursor *c) {
  msg_thread *thread = c->thread;
  c->thread = NULL;
  c->state = MSG_CURSOR_OFF;
  c->gone = c->refused = c->failing = false;
  msg_mutex_unlock(c->mtx);
  msg_thread_join(thread);
  msg_mutex_lock(c->mtx);
}

static msg_watch *pin_locked(msg_cursor *c) {
  if (c->watch)
    c->pins++;
  return c->watch;
}

static void unpin(msg_cursor *c) {
  msg_mutex_lock(c->mtx);
  c->pins--;
  msg_cond_broadcast(c->control);
  msg_mutex_unlock(c->mtx);
}

void msg_cursor_request_stop(msg_cursor *c) {
  msg_watch *watch = NULL;
  msg_mutex_lock(c->mtx);
  if (c->state == MSG_CURSOR_STARTING || c->state == MSG_CURSOR_RUNNING) {
    c->state = MSG_CURSOR_STOPPING;
    watch = pin_locked(c);
    msg_cond_broadcast(c->control);
    wake_all_locked(c);
  }
  msg_mutex_unlock(c->mtx);
  if (!watch)
    return;
  watch->ops->watch_wake(watch);
  unpin(c);
}

bool msg_cursor_stop(msg_cursor *c, int64_t deadline_ms) {
  msg_cursor_request_stop(c);
  msg_mutex_lock(c->mtx);
  while (c->state == MSG_CURSOR_STOPPING && msg_cond_wait_until(c->control, c->mtx, deadline_ms))
    ;
  bool ended = c->state != MSG_CURSOR_STOPPING;
  if (c->state == MSG_CURSOR_JOINABLE)
    join_locked(c);
  msg_mutex_unlock(c->mtx);
  return ended;
}

void msg_cursor_exit(void) {
  atomic_store(&exiting, true);
}

void msg_cursor_attach(msg_cursor *c, int n) {
  msg_mutex_lock(c->mtx);
  c->attached += n;
  msg_mutex_unlock(c->mtx);
}

void msg_cursor_leaves(msg_cursor *c) {
  msg_mutex_lock(c->mtx);
  bool last = c->tends && c->attached == 1;
  msg_mutex_unlock(c->mtx);
  if (last)
    msg_cursor_request_stop(c);
}

void msg_cursor_detach(msg_cursor *c, int n) {
  if (n == 0)
    return;
  msg_mutex_lock(c->mtx);
  c->attached -= n;
  bool last = c->attached <= 0;
  msg_mutex_unlock(c->mtx);
  if (last)
    msg_cursor_stop(c, msg_clock_mono_ms() + MSG_CURSOR_STOP_MS);
}

/* --- waiting ------------------------------------------------------------------------------- */

void msg_cursor_lose(msg_cursor *c) {
  msg_mutex_lock(c->mtx);
  msg_cursor_turn_locked(c, atomic_load(&c->pushing));
  msg_mutex_unlock(c->mtx);
}

uint32_t msg_cursor_epoch(msg_cursor *c) {
  return atomic_load(&c->pushing) ? atomic_load(&c->epoch) : 0;
}

/* Another thread may come or go meanwhile: look again. */
void msg_cursor_mute_if_idle(msg_cursor *c) {
  bool settled = false;
  while (!settled) {
    msg_mutex_lock(c->mtx);
    bool idle = c->waiters == 0;
    msg_watch *watch = pin_locked(c);
    msg_mutex_unlock(c->mtx);
    if (!watch)
      return;
    if (watch->ops->watch_mute)
      watch->ops->watch_mute(watch, idle);
    msg_mutex_lock(c->mtx);
    settled = idle == (c->waiters == 0);
    msg_mutex_unlock(c->mtx);
    unpin(c);
  }
}

static void count_waiter(msg_cursor *c, int n) {
  msg_mutex_lock(c->mtx);
  int before = c->waiters;
  c->waiters += n;
  bool turned = (before == 0) != (c->waiters == 0);
  msg_mutex_unlock(c->mtx);
  if (turned)
    msg_cursor_mute_if_idle(c);
}

void msg_cursor_enter(msg_cursor *c) {
  count_waiter(c, 1);
}

void msg_cursor_leave(msg_cursor *c) {
  count_waiter(c, -1);
}

bool msg_cursor_rouse(msg_cursor *c, const msg_settings *settings, void (*follow)(void *)) {
  msg_mutex_lock(c->mtx);
  bool wanted = c->watchable && c->attached > 0 && !atomic_load(&exiting) &&
                msg_clock_mono_ms() >= c->retry_at_ms;
  if (wanted && c->state == MSG_CURSOR_JOINABLE && !c->gone && !c->refused)
    join_locked(c); /* its stop took longer than the bound */
  if (wanted && c->state == MSG_CURSOR_OFF)
    start_locked(c, settings, follow);
  bool running = c->state == MSG_CURSOR_RUNNING;
  msg_mutex_unlock(c->mtx);
  return running;
}

/* Runs twenty times a second for every idle waiter: no lock, no clock. */
enum msg_wake msg_cursor_sleep(msg_cursor *c, msg_gate *gate, uint32_t mark, int64_t until_ms,
                               const atomic_bool *shut) {
  for (bool slept = false;; slept = true) {
    bool changed = msg_gate_read(gate) != mark; /* first: gone moves the gate */
    if (atomic_load(shut) || atomic_load(&exiting))
      return MSG_WAKE_SHUT;
    if (atomic_load(&c->gone))
      return MSG_WAKE_GONE;
    if (changed)
      return MSG_WAKE_CHANGED;
    if (slept)
      return MSG_WAKE_TIME;
    msg_gate_sleep(gate, mark, until_ms);
  }
}

int msg_cursor_gone(msg_cursor *c, msg_err *err) {
  msg_mutex_lock(c->mtx);
  msg_err why = c->last_error;
  msg_mutex_unlock(c->mtx);
  if (err)
    *err = why;
  return MSG_UNAVAILABLE;
}

void msg_cursor_handed(msg_cursor *c) {
  msg_mutex_lock(c->mtx);
  if (c->event_mono_ms != 0) {
    c->lag_ms = msg_clock_mono_ms() - c->event_mono_ms;
    c->event_mono_ms = 0;
  }
  msg_mutex_unlock(c->mtx);
}

/* --- inspection ---------------------------------------------------------------------------- */

static const char *state_name_locked(const msg_cursor *c) {
  switch (c->state) {
  case MSG_CURSOR_OFF: return c->failing ? "failed" : "off";
  case MSG_CURSOR_STARTING: return c->failing ? "failed" : "starting";
  case MSG_CURSOR_RUNNING: return "running";
  case MSG_CURSOR_STOPPING: return "stopping";
  case MSG_CURSOR_JOINABLE: break;
  }
  return c->refused ? "off" : c->gone ? "failed" : "stopping";
}

void msg_cursor_look(msg_cursor *c, msg_cursor_info *info, msg_err *error) {
  const char *place = c->store->ops->place(c->store);
  msg_mutex_lock(c->mtx);
  *info = (msg_cursor_info){
      .store = place,
      .state = state_name_locked(c),
      .how = "poll",
      .last_event_ms = c->last_event_ms,
      .token_age_ms = -1,
      .lag_ms = c->lag_ms,
      .restarts = c->restarts,
      .waiters = c->waiters,
  };
  *error = c->last_error;
  msg_watch *watch = pin_locked(c);
  msg_mutex_unlock(c->mtx);

  info->last_error = error->text;
  if (!watch)
    return;
  msg_watch_info of_watch = {.how = info->how, .token_age_ms = -1};
  watch->ops->watch_info(watch, &of_watch);
  unpin(c);
  info->how = of_watch.how;
  info->token_age_ms = of_watch.token_age_ms;
}
