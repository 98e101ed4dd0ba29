/* marker.c - the store's thread for what nobody waits for: it writes marks after the hand-out, all
 * that have gathered by one call, and undoes what is regretted. It is there from the first such
 * thing on. */
#include "base/clock.h"
#include "store/mongo/marks.h"
#include "store/mongo/regret.h"

#define BATCH        1000  /* of a node */
#define LINGER_MS    250   /* after the last that came: messages go first, */
#define LINGERS_MS   2000  /* and after the first of them */
#define PAUSE_MS     200   /* after a failure */
#define STOP_MS      3000  /* tries of the last ones */
#define IDLE_MS      60000 /* just a look */
#define FORGET_TRIES 3000  /* then they are handed out once more: ten minutes */

/* ---- the thread ---- */

/* Tries of marks that the server refused: what it cannot be asked for stays. */
struct tries {
  int failures, refusals; /* in a row */
};

static bool write_marks(msg_mongo_store *store, const msg_mongo_seen_list *l, struct tries *t) {
  msg_mongo_use u;
  int rc = msg_mongo_take(store, "mark", &u, NULL);
  if (rc == MSG_OK)
    rc = msg_mongo_mark_seen(&u, l, NULL);
  msg_mongo_give(&u);
  t->failures = rc == MSG_OK ? 0 : t->failures + 1;
  t->refusals = rc == MSG_OK ? 0 : t->refusals + (rc != MSG_UNAVAILABLE);
  return rc == MSG_OK || t->refusals > FORGET_TRIES;
}

/* One batch. False: there was none. */
static bool mark_locked(msg_mongo_store *store, struct tries *t, bool *behind) {
  msg_mongo_seen_list l;
  store->marks_due_ms = store->marks_first_ms = 0;
  msg_mongo_marks_gather_locked(store, BATCH, &l, behind);
  if (!l.place)
    return false;
  msg_mutex_unlock(store->mtx);
  bool written = write_marks(store, &l, t);
  msg_mutex_lock(store->mtx);
  msg_mongo_marks_written_locked(&l, written);
  msg_cond_broadcast(store->marks_changed);
  msg_mongo_seen_list_clear(&l);
  return true;
}

static void run(void *arg) {
  msg_mongo_store *store = arg;
  struct tries tries = {0};
  bool behind = false;
  int64_t end_ms = 0; /* of the tries, once it shall stop */
  msg_mutex_lock(store->mtx);
  for (;;) {
    if (store->marks_stop && !end_ms)
      end_ms = msg_clock_mono_ms() + STOP_MS;
    bool lingers = !behind && store->marks_due_ms > msg_clock_mono_ms() && !store->marks_stop;
    bool idle = lingers || !mark_locked(store, &tries, &behind);
    int64_t next_ms = lingers ? store->marks_due_ms : msg_clock_mono_ms() + IDLE_MS;
    idle = !msg_mongo_regret_try_locked(store, &next_ms) && idle;
    if (store->marks_stop && (idle || msg_clock_mono_ms() >= end_ms))
      break;
    if (idle || tries.failures)
      msg_cond_wait_until(store->marks_changed, store->mtx,
                          tries.failures ? msg_clock_mono_ms() + PAUSE_MS : next_ms);
  }
  msg_mutex_unlock(store->mtx);
}

/* ---- for the others ---- */

/* Started by whoever is first; its start holds the lock, which it takes first thing. */
static int start_locked(msg_mongo_store *store, msg_err *err) {
  if (store->marker)
    return MSG_OK;
  if (!store->marks_changed && !(store->marks_changed = msg_cond_new()))
    return msg_err_nomem(err);
  return msg_thread_start(&store->marker, "msg-marker", run, store, err);
}

int msg_mongo_marker_start(msg_mongo_store *store, msg_err *err) {
  msg_mutex_lock(store->mtx);
  int rc = start_locked(store, err);
  msg_mutex_unlock(store->mtx);
  return rc;
}

bool msg_mongo_marker_rouse_locked(msg_mongo_store *store) {
  bool ok = !store->marks_stop && start_locked(store, NULL) == MSG_OK;
  if (ok)
    msg_cond_broadcast(store->marks_changed);
  return ok;
}

/* The marker sleeps until the first time it was told, and looks again. */
void msg_mongo_marker_linger_locked(msg_mongo_store *store) {
  int64_t now_ms = msg_clock_mono_ms();
  if (store->marks_first_ms == 0) {
    store->marks_first_ms = now_ms;
    msg_cond_broadcast(store->marks_changed);
  }
  int64_t last_ms = store->marks_first_ms + LINGERS_MS;
  store->marks_due_ms = now_ms + LINGER_MS < last_ms ? now_ms + LINGER_MS : last_ms;
}

void msg_mongo_seen_flush(msg_mongo_session *s) {
  int64_t deadline_ms = msg_clock_mono_ms() + s->write_timeout_ms;
  msg_mutex_lock(s->store->mtx);
  const uint64_t upto = s->store->marks_handed;
  if (msg_mongo_marks_any_locked(s, upto)) { /* now */
    s->store->marks_due_ms = 0;
    msg_cond_broadcast(s->store->marks_changed);
  }
  while (msg_mongo_marks_any_locked(s, upto) && msg_clock_mono_ms() < deadline_ms)
    msg_cond_wait_until(s->store->marks_changed, s->store->mtx, deadline_ms);
  msg_mutex_unlock(s->store->mtx);
}

void msg_mongo_marks_stop(msg_mongo_store *store) {
  msg_mutex_lock(store->mtx);
  msg_thread *marker = store->marker;
  store->marker = NULL;
  store->marks_stop = true;
  if (store->marks_changed)
    msg_cond_broadcast(store->marks_changed);
  msg_mutex_unlock(store->mtx);
  msg_thread_join(marker);
}
