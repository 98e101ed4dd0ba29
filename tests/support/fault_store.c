#include "support/fault_store.h"

#include <stdatomic.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"

#define SLICE_MS 20

typedef struct fault {
  int rc, skip, times;
  int64_t delay_ms;
  long calls;
} fault;

typedef struct fault_store {
  msg_store base;
  struct msg_store_ops ops; /* the inner ones, but for those below */
  msg_store *inner;
  unsigned without;
  msg_mutex *mtx;
  msg_cond *never;
  /* guarded by mtx */
  fault faults[FAULT_VERBS];
  int lost_events, lost_seen, watches;
  msg_message *tells; /* NULL none */
} fault_store;

typedef struct fault_session {
  msg_session base;
  fault_store *f;
  msg_session *inner;
} fault_session;

typedef struct fault_watch {
  msg_watch base;
  fault_store *f;
  msg_watch *inner;
} fault_watch;

static atomic_int alive;

static const char *const NAMES[FAULT_VERBS] = {"put",
                                               "get",
                                               "listen",
                                               "unlisten",
                                               "unseen",
                                               "seen",
                                               "seen_soon",
                                               "still_unseen",
                                               "claim",
                                               "claimable",
                                               "settle",
                                               "presence_put",
                                               "presence_withdraw",
                                               "deadline",
                                               "watch_open",
                                               "watch_next"};

static void rest(fault_store *f, int64_t ms) {
  int64_t until = msg_clock_mono_ms() + ms;
  msg_mutex_lock(f->mtx);
  while (msg_cond_wait_until(f->never, f->mtx, until))
    ;
  msg_mutex_unlock(f->mtx);
}

/* MSG_OK, or the failure that is planned now. */
static int planned(fault_store *f, enum fault_verb verb, bool count, msg_err *err) {
  msg_mutex_lock(f->mtx);
  fault *p = &f->faults[verb];
  int rc = MSG_OK;
  int64_t delay_ms = p->delay_ms;
  p->calls += count;
  if (p->rc != MSG_OK && p->skip == 0 && p->times != 0) {
    rc = p->rc;
    if (p->times > 0)
      p->times--;
  } else if (p->skip > 0) {
    p->skip--;
  }
  msg_mutex_unlock(f->mtx);
  if (count && delay_ms > 0)
    rest(f, delay_ms);
  return rc == MSG_OK ? MSG_OK : msg_err_set(err, rc, "planned failure of %s", NAMES[verb]);
}

static bool take_one(fault_store *f, int *counter) {
  msg_mutex_lock(f->mtx);
  bool take = *counter != 0;
  if (*counter > 0)
    --*counter;
  msg_mutex_unlock(f->mtx);
  return take;
}

/* --- session verbs ------------------------------------------------------------------------- */

#define INNER(s) (((fault_session *)(s))->inner)

#define WRAP(name, VERB, params, ...)                                                              \
  static int fault_##name params {                                                                 \
    int rc = planned(((fault_session *)s)->f, VERB, true, err);                                    \
    return rc == MSG_OK ? INNER(s)->ops->name(INNER(s), __VA_ARGS__) : rc;                         \
  }

WRAP(put, FAULT_PUT, (msg_session * s, const msg_actor *a, msg_put *items, size_t n, msg_err *err),
     a, items, n, err)
WRAP(get, FAULT_GET, (msg_session * s, const msg_oid *id, msg_message *out, msg_err *err), id, out,
     err)
WRAP(listen, FAULT_LISTEN,
     (msg_session * s, const msg_actor *a, const char *pattern, bool catch_up, msg_err *err), a,
     pattern, catch_up, err)
WRAP(unlisten, FAULT_UNLISTEN,
     (msg_session * s, const msg_actor *a, const char *pattern, msg_err *err), a, pattern, err)
WRAP(unseen, FAULT_UNSEEN,
     (msg_session * s, const msg_actor *a, const msg_unseen *q, msg_list *out, msg_err *err), a, q,
     out, err)
WRAP(claim, FAULT_CLAIM,
     (msg_session * s, const msg_actor *a, const msg_claim *q, msg_list *out, msg_err *err), a, q,
     out, err)
WRAP(claimable, FAULT_CLAIMABLE,
     (msg_session * s, const msg_actor *a, const msg_claim *q, bool *out, msg_err *err), a, q, out,
     err)
WRAP(settle, FAULT_SETTLE,
     (msg_session * s, const msg_actor *a, const msg_settle *how, msg_settle_item *items, size_t n,
      msg_err *err),
     a, how, items, n, err)
WRAP(presence_put, FAULT_PRESENCE_PUT, (msg_session * s, const msg_participant *p, msg_err *err), p,
     err)
WRAP(presence_withdraw, FAULT_PRESENCE_WITHDRAW,
     (msg_session * s, const char *node, bool only_dead, msg_err *err), node, only_dead, err)
WRAP(deadline, FAULT_DEADLINE, (msg_session * s, int64_t *at_ms, msg_err *err), at_ms, err)

WRAP(still_unseen, FAULT_STILL_UNSEEN,
     (msg_session * s, const msg_actor *a, const msg_list *list, bool *still, msg_err *err), a,
     list, still, err)

typedef int (*seen_fn)(msg_session *, const msg_actor *, const msg_list *, bool *won, msg_err *);

static int seen(fault_session *s, enum fault_verb verb, seen_fn fn, const msg_actor *a,
                const msg_list *list, bool *won, msg_err *err) {
  int rc = planned(s->f, verb, true, err);
  if (rc != MSG_OK)
    return rc;
  if (!take_one(s->f, &s->f->lost_seen))
    return fn(s->inner, a, list, won, err);
  for (size_t i = 0; i < list->n; i++)
    won[i] = false;
  return MSG_OK;
}

static int fault_seen(msg_session *s, const msg_actor *a, const msg_list *list, bool *won,
                      msg_err *err) {
  return seen((fault_session *)s, FAULT_SEEN, INNER(s)->ops->seen, a, list, won, err);
}

static int fault_seen_soon(msg_session *s, const msg_actor *a, const msg_list *list, bool *won,
                           msg_err *err) {
  return seen((fault_session *)s, FAULT_SEEN_SOON, INNER(s)->ops->seen_soon, a, list, won, err);
}

/* --- what is only passed on ---------------------------------------------------------------- */

#define PASS(name, params, ...)                                                                    \
  static int pass_##name params {                                                                  \
    return INNER(s)->ops->name(INNER(s), __VA_ARGS__);                                             \
  }

PASS(lock, (msg_session * s, msg_err *err), err)
PASS(find, (msg_session * s, const msg_filter *f, msg_find **out, msg_err *err), f, out, err)
PASS(listeners, (msg_session * s, msg_listener_fn fn, void *arg, msg_err *err), fn, arg, err)
PASS(update,
     (msg_session * s, const msg_actor *a, const msg_oid *id, const msg_update *u, msg_err *err), a,
     id, u, err)
PASS(remove, (msg_session * s, const msg_actor *a, const msg_oid *id, msg_err *err), a, id, err)
PASS(purge,
     (msg_session * s, const msg_actor *a, const msg_pattern *p, int64_t *count, msg_err *err), a,
     p, count, err)
PASS(redrive,
     (msg_session * s, const msg_actor *a, const msg_pattern *p, int64_t *count, msg_err *err), a,
     p, count, err)
PASS(topics, (msg_session * s, msg_count_fn fn, void *arg, msg_err *err), fn, arg, err)
PASS(queues, (msg_session * s, msg_count_fn fn, void *arg, msg_err *err), fn, arg, err)
PASS(presence_list, (msg_session * s, msg_participant_fn fn, void *arg, msg_err *err), fn, arg, err)
PASS(lanes, (msg_session * s, msg_lane_fn fn, void *arg, msg_err *err), fn, arg, err)
PASS(lane_drop, (msg_session * s, const char *lane, msg_err *err), lane, err)
PASS(describe, (msg_session * s, msg_describe_fn fn, void *arg, msg_err *err), fn, arg, err)

static int fault_session_open(msg_store *store, msg_host *host, const char *queue,
                              const msg_settings *settings, msg_session **out, msg_err *err) {
  fault_store *f = (fault_store *)store;
  fault_session *s = msg_zalloc(sizeof *s);
  if (!s)
    return msg_err_nomem(err);
  s->base.ops = &f->ops;
  s->f = f;
  int rc = f->inner->ops->session_open(f->inner, host, queue, settings, &s->inner, err);
  if (rc == MSG_OK)
    *out = &s->base;
  else
    msg_free(s);
  return rc;
}

static void fault_session_close(msg_session *s) {
  if (!s)
    return;
  INNER(s)->ops->session_close(INNER(s));
  msg_free(s);
}

static void fault_session_release(msg_session *s) {
  INNER(s)->ops->session_release(INNER(s));
}

/* --- watch --------------------------------------------------------------------------------- */

static void count_watches(fault_store *f, int by) {
  msg_mutex_lock(f->mtx);
  f->watches += by;
  msg_mutex_unlock(f->mtx);
}

static int fault_watch_open(msg_store *store, const msg_settings *settings, msg_watch **out,
                            msg_err *err) {
  fault_store *f = (fault_store *)store;
  int rc = planned(f, FAULT_WATCH_OPEN, true, err);
  if (rc != MSG_OK)
    return rc;
  fault_watch *w = msg_zalloc(sizeof *w);
  if (!w)
    return msg_err_nomem(err);
  w->base.ops = &f->ops;
  w->f = f;
  rc = f->inner->ops->watch_open(f->inner, settings, &w->inner, err);
  if (rc != MSG_OK) {
    msg_free(w);
    return rc;
  }
  count_watches(f, 1);
  *out = &w->base;
  return MSG_OK;
}

/* In slices, so that a failure planned meanwhile comes soon. */
/* What it was told to tell. */
static bool tell(fault_store *f, msg_event *out) {
  msg_mutex_lock(f->mtx);
  bool tells = f->tells != NULL;
  if (tells) {
    out->kind = MSG_EVENT_MESSAGE;
    out->message = *f->tells;
    out->told_ms = msg_clock_mono_ms();
    msg_message_init(f->tells);
    f->tells = NULL;
  }
  msg_mutex_unlock(f->mtx);
  return tells;
}

static int fault_watch_next(msg_watch *watch, int64_t deadline_ms, msg_event *out, msg_err *err) {
  fault_watch *w = (fault_watch *)watch;
  bool first = true;
  for (;;) {
    int rc = planned(w->f, FAULT_WATCH_NEXT, first, err);
    if (rc != MSG_OK)
      return rc;
    first = false;
    if (tell(w->f, out))
      return MSG_OK;
    int64_t until = msg_clock_mono_ms() + SLICE_MS;
    if (until > deadline_ms)
      until = deadline_ms;
    rc = w->inner->ops->watch_next(w->inner, until, out, err);
    if (rc == MSG_OK && take_one(w->f, &w->f->lost_events)) {
      msg_message_clear(&out->message);
      continue;
    }
    if (rc != MSG_TIMEOUT || msg_clock_mono_ms() >= deadline_ms)
      return rc;
  }
}

static void fault_watch_wake(msg_watch *watch) {
  fault_watch *w = (fault_watch *)watch;
  w->inner->ops->watch_wake(w->inner);
}

static void fault_watch_info(const msg_watch *watch, msg_watch_info *out) {
  const fault_watch *w = (const fault_watch *)watch;
  w->inner->ops->watch_info(w->inner, out);
}

static void fault_watch_close(msg_watch *watch) {
  fault_watch *w = (fault_watch *)watch;
  count_watches(w->f, -1);
  w->inner->ops->watch_close(w->inner);
  msg_free(w);
}

/* --- store --------------------------------------------------------------------------------- */

static void fault_close(msg_store *store) {
  fault_store *f = (fault_store *)store;
  f->inner->ops->store_close(f->inner);
  msg_cond_free(f->never);
  msg_mutex_free(f->mtx);
  msg_free(f);
  atomic_fetch_sub(&alive, 1);
}

static unsigned fault_caps(const msg_store *store) {
  const fault_store *f = (const fault_store *)store;
  return f->inner->ops->caps(f->inner) & ~f->without;
}

static const char *fault_place(const msg_store *store) {
  const fault_store *f = (const fault_store *)store;
  return f->inner->ops->place(f->inner);
}

static void fault_undone(msg_store *store, const msg_oid *ids, size_t n) {
  fault_store *f = (fault_store *)store;
  f->inner->ops->claims_undone(f->inner, ids, n);
}

static void fill_ops(struct msg_store_ops *o) {
  o->store_close = fault_close;
  o->caps = fault_caps;
  o->place = fault_place;
  o->session_open = fault_session_open;
  o->watch_open = fault_watch_open;
  o->claims_undone = fault_undone;
  o->session_close = fault_session_close;
  o->session_release = fault_session_release;
  o->lock = pass_lock;
  o->put = fault_put;
  o->get = fault_get;
  o->listen = fault_listen;
  o->unlisten = fault_unlisten;
  o->unseen = fault_unseen;
  o->seen = fault_seen;
  o->seen_soon = fault_seen_soon;
  o->still_unseen = fault_still_unseen;
  o->claim = fault_claim;
  o->claimable = fault_claimable;
  o->settle = fault_settle;
  o->presence_put = fault_presence_put;
  o->presence_withdraw = fault_presence_withdraw;
  o->deadline = fault_deadline;
  o->find = pass_find; /* its rows come from the inner store's own object */
  o->listeners = pass_listeners;
  o->update = pass_update;
  o->remove = pass_remove;
  o->purge = pass_purge;
  o->redrive = pass_redrive;
  o->topics = pass_topics;
  o->queues = pass_queues;
  o->presence_list = pass_presence_list;
  o->lanes = pass_lanes;
  o->lane_drop = pass_lane_drop;
  o->describe = pass_describe;
  o->watch_next = fault_watch_next;
  o->watch_wake = fault_watch_wake;
  o->watch_info = fault_watch_info;
  o->watch_close = fault_watch_close;
}

msg_store *fault_store_new(msg_store *inner) {
  fault_store *f = inner ? msg_zalloc(sizeof *f) : NULL;
  if (!f) {
    if (inner)
      inner->ops->store_close(inner);
    return NULL;
  }
  atomic_fetch_add(&alive, 1);
  f->inner = inner;
  fill_ops(&f->ops);
  f->base.ops = &f->ops;
  f->mtx = msg_mutex_new();
  f->never = msg_cond_new();
  if (!f->mtx || !f->never) {
    fault_close(&f->base);
    return NULL;
  }
  return &f->base;
}

void fault_store_fail(msg_store *store, enum fault_verb verb, int rc, int skip, int times) {
  fault_store *f = (fault_store *)store;
  msg_mutex_lock(f->mtx);
  f->faults[verb].rc = rc;
  f->faults[verb].skip = skip;
  f->faults[verb].times = times;
  msg_mutex_unlock(f->mtx);
}

void fault_store_delay(msg_store *store, enum fault_verb verb, int64_t delay_ms) {
  fault_store *f = (fault_store *)store;
  msg_mutex_lock(f->mtx);
  f->faults[verb].delay_ms = delay_ms;
  msg_mutex_unlock(f->mtx);
}

static void set_counter(fault_store *f, int *counter, int n) {
  msg_mutex_lock(f->mtx);
  *counter = n;
  msg_mutex_unlock(f->mtx);
}

void fault_store_lose_events(msg_store *store, int n) {
  fault_store *f = (fault_store *)store;
  set_counter(f, &f->lost_events, n);
}

void fault_store_tell(msg_store *store, msg_message *m) {
  fault_store *f = (fault_store *)store;
  msg_mutex_lock(f->mtx);
  f->tells = m;
  while (f->tells)
    msg_cond_wait_until(f->never, f->mtx, msg_clock_mono_ms() + SLICE_MS);
  msg_mutex_unlock(f->mtx);
}

void fault_store_lose_seen(msg_store *store, int n) {
  fault_store *f = (fault_store *)store;
  set_counter(f, &f->lost_seen, n);
}

void fault_store_without(msg_store *store, unsigned caps) {
  ((fault_store *)store)->without = caps;
}

long fault_store_calls(msg_store *store, enum fault_verb verb) {
  fault_store *f = (fault_store *)store;
  msg_mutex_lock(f->mtx);
  long n = f->faults[verb].calls;
  msg_mutex_unlock(f->mtx);
  return n;
}

int fault_store_watches(msg_store *store) {
  fault_store *f = (fault_store *)store;
  msg_mutex_lock(f->mtx);
  int n = f->watches;
  msg_mutex_unlock(f->mtx);
  return n;
}

int fault_store_alive(void) {
  return atomic_load(&alive);
}
