#include "engine/cursor.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"
#include "engine/deliver.h"

#define BACKOFF_FIRST_MS 100
#define BACKOFF_CAP_MS   5000
/* A watch is only a doorbell: after this silence waiters look all the same. */
#define SILENCE_MS 5000

enum state {
  OFF,      /* no thread. Next: STARTING (a wait, while somebody is attached) */
  STARTING, /* opens the watch, or pauses before a retry. Next: RUNNING, STOPPING, JOINABLE */
  RUNNING,  /* follows the watch. Next: STARTING (watch failed), STOPPING, JOINABLE (place gone) */
  STOPPING, /* asked to end. Next: JOINABLE */
  JOINABLE  /* the thread touches nothing any more. Next: OFF (joined) */
};

struct msg_cursor {
  /* immutable after new */
  msg_store *store;
  bool watchable; /* MSG_CAP_WATCH */
  bool tends;     /* MSG_CAP_TEND: its watch is no mere hint, silence means that nothing came */
  bool pushes;    /* MSG_CAP_PUSH */
  msg_mutex *mtx;
  msg_cond *control; /* for the thread and who stops it: state, pins */
  atomic_bool gone;  /* the watch said MSG_UNAVAILABLE */
  /* moves when messages may have come that were not pushed */
  _Atomic uint32_t epoch;
  atomic_bool pushing; /* what comes is pushed */

  /* cursor thread only, from STARTING to JOINABLE; else guarded by mtx */
  msg_settings settings;
  int64_t backoff_ms;
  int64_t opened_mono_ms; /* the open watch */

  /* shared: guarded by mtx */
  enum state state;
  msg_thread *thread;
  msg_watch *watch; /* the open one; closed by the thread, never while pinned */
  int pins;         /* other threads that are inside the watch */
  int attached, waiters;
  msg_gate **gates; /* of waiters; they move after whatever those are to notice has changed */
  size_t gate_count, gate_cap;
  bool refused;          /* the watch said MSG_UNSUPPORTED: waiters poll */
  bool failing;          /* the last attempt failed */
  int64_t retry_at_ms;   /* monotonic: no thread could be made, try again then */
  msg_err last_error;    /* rc MSG_OK: none */
  int64_t last_event_ms; /* wall; 0 never */
  int64_t event_mono_ms; /* monotonic, of an event nothing was handed out for yet; 0 none */
  int64_t lag_ms, restarts;
};

static atomic_bool exiting;
static struct {
  int64_t backoff_first_ms, backoff_cap_ms, silence_ms;
} tuning = {BACKOFF_FIRST_MS, BACKOFF_CAP_MS, SILENCE_MS};

void msg_cursor_tune(int64_t backoff_first_ms, int64_t backoff_cap_ms, int64_t silence_ms) {
  tuning.backoff_first_ms = backoff_first_ms ? backoff_first_ms : BACKOFF_FIRST_MS;
  tuning.backoff_cap_ms = backoff_cap_ms ? backoff_cap_ms : BACKOFF_CAP_MS;
  tuning.silence_ms = silence_ms ? silence_ms : SILENCE_MS;
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

static void mute_if_idle(msg_cursor *c);

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

/* What comes is pushed from now on, or is not any more: who waits looks at the store. */
static void turn_locked(msg_cursor *c, bool pushing) {
  atomic_store(&c->pushing, pushing);
  atomic_fetch_add(&c->epoch, 1);
  wake_all_locked(c);
}

/* --- the thread ---------------------------------------------------------------------------- */

/* Makes the open watch known. False: meanwhile asked to stop. What happened before it was open is
 * found by the look that the bump brings about. */
static bool publish(msg_cursor *c, msg_watch *watch) {
  msg_mutex_lock(c->mtx);
  bool wanted = c->state == STARTING;
  if (wanted) {
    c->state = RUNNING;
    c->watch = watch;
    c->failing = false;
    turn_locked(c, c->pushes);
  }
  msg_mutex_unlock(c->mtx);
  if (wanted)
    mute_if_idle(c);
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
  if (c->state == RUNNING)
    c->state = STARTING;
  bool again = c->state == STARTING && !c->gone && !c->refused;
  turn_locked(c, false);
  msg_mutex_unlock(c->mtx);
  return again;
}

/* Pauses before the next attempt. False: asked to stop. */
static bool back_off(msg_cursor *c) {
  int64_t until_ms = msg_clock_mono_ms() + c->backoff_ms;
  c->backoff_ms *= 2;
  if (c->backoff_ms > tuning.backoff_cap_ms)
    c->backoff_ms = tuning.backoff_cap_ms;

  msg_mutex_lock(c->mtx);
  while (c->state == STARTING && msg_cond_wait_until(c->control, c->mtx, until_ms))
    ;
  bool again = c->state == STARTING;
  if (again)
    c->restarts++;
  msg_mutex_unlock(c->mtx);
  return again;
}

/* A watch that fails as soon as it is open is not tried ever faster. */
static void note_event(msg_cursor *c, bool silence, bool pushed) {
  if (!c->tends || msg_clock_mono_ms() - c->opened_mono_ms >= tuning.backoff_cap_ms)
    c->backoff_ms = tuning.backoff_first_ms;
  if (c->tends && silence)
    return;
  msg_mutex_lock(c->mtx);
  if (!silence) {
    c->last_event_ms = msg_clock_now_ms();
    c->event_mono_ms = msg_clock_mono_ms();
  }
  if (!pushed)
    turn_locked(c, c->pushes);
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
    int64_t until_ms = msg_clock_mono_ms() + tuning.silence_ms;
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

static void run(void *arg) {
  msg_cursor *c = arg;
  while (watch_once(c) && back_off(c))
    ;
  msg_mutex_lock(c->mtx);
  c->state = JOINABLE;
  msg_cond_broadcast(c->control);
  turn_locked(c, false);
  msg_mutex_unlock(c->mtx);
}

/* --- starting and stopping ----------------------------------------------------------------- */

static void start_locked(msg_cursor *c, const msg_settings *settings) {
  msg_err err = MSG_ERR_INIT;
  msg_settings copy;
  int rc = msg_settings_copy(&copy, settings);
  if (rc == MSG_OK) {
    msg_settings_clear(&c->settings);
    c->settings = copy;
    c->backoff_ms = tuning.backoff_first_ms;
    c->state = STARTING;
    rc = msg_thread_start(&c->thread, "msg-cursor", run, c, &err);
  } else {
    msg_err_nomem(&err);
  }
  if (rc == MSG_OK)
    return;
  c->state = OFF;
  c->last_error = err;
  c->failing = true;
  c->retry_at_ms = msg_clock_mono_ms() + tuning.backoff_cap_ms;
}

/* JOINABLE to OFF. Lets go of mtx while it joins. */
static void join_locked(msg_cursor *c) {
  msg_thread *thread = c->thread;
  c->thread = NULL;
  c->state = OFF;
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
  if (c->state == STARTING || c->state == RUNNING) {
    c->state = STOPPING;
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
  while (c->state == STOPPING && msg_cond_wait_until(c->control, c->mtx, deadline_ms))
    ;
  bool ended = c->state != STOPPING;
  if (c->state == JOINABLE)
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
  turn_locked(c, atomic_load(&c->pushing));
  msg_mutex_unlock(c->mtx);
}

uint32_t msg_cursor_epoch(msg_cursor *c) {
  return atomic_load(&c->pushing) ? atomic_load(&c->epoch) : 0;
}

/* The watch is muted while nobody waits, so that it is not in the way of the host. Another thread
 * may come or go meanwhile: look again. */
static void mute_if_idle(msg_cursor *c) {
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
    mute_if_idle(c);
}

void msg_cursor_enter(msg_cursor *c) {
  count_waiter(c, 1);
}

void msg_cursor_leave(msg_cursor *c) {
  count_waiter(c, -1);
}

bool msg_cursor_rouse(msg_cursor *c, const msg_settings *settings) {
  msg_mutex_lock(c->mtx);
  bool wanted = c->watchable && c->attached > 0 && !atomic_load(&exiting) &&
                msg_clock_mono_ms() >= c->retry_at_ms;
  if (wanted && c->state == JOINABLE && !c->gone && !c->refused)
    join_locked(c); /* its stop took longer than the bound */
  if (wanted && c->state == OFF)
    start_locked(c, settings);
  bool running = c->state == RUNNING;
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
  case OFF: return c->failing ? "failed" : "off";
  case STARTING: return c->failing ? "failed" : "starting";
  case RUNNING: return "running";
  case STOPPING: return "stopping";
  case JOINABLE: break;
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
