/* marker.c - the thread that writes marks after the hand-out: all of a node that have gathered, by
 * one update. It is there from the first such mark on. */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "store/mongo/marks.h"

#define BATCH        500
#define PAUSE_MS     200   /* after a failure */
#define STOP_MS      3000  /* tries of the last ones */
#define IDLE_MS      60000 /* just a look */
#define FORGET_TRIES 3000  /* then they are handed out once more: ten minutes */

struct work {
  msg_mongo_queue *queue; /* NULL: nothing to do */
  char *node;
  msg_mongo_ids ids;
};

static void work_clear(struct work *w) {
  msg_free(w->node);
  msg_mongo_ids_clear(&w->ids);
  *w = (struct work){0};
}

/* ---- under the lock ---- */

/* The marks of one node and queue, out of those that wait. */
static void take_work_locked(msg_mongo_store *store, struct work *w) {
  for (msg_mongo_queue *q = store->queues; q && !w->queue; q = q->next) {
    for (size_t i = 0; i < q->mark_count && w->ids.n < BATCH; i++) {
      struct msg_mongo_mark *m = &q->marks[i];
      if (!m->later || m->writing || (w->queue && strcmp(w->node, m->node) != 0))
        continue;
      if (!w->queue && !(w->node = msg_strdup(m->node)))
        return;
      w->queue = q;
      if (msg_mongo_ids_add(&w->ids, &m->id) != MSG_OK)
        return;
      m->writing = true;
    }
  }
}

/* Written: they go. Not written: they wait again. */
static void end_work_locked(const struct work *w, bool written) {
  msg_mongo_queue *q = w->queue;
  size_t n = 0;
  for (size_t i = 0; i < q->mark_count; i++) {
    struct msg_mongo_mark m = q->marks[i];
    bool ours = m.writing && strcmp(m.node, w->node) == 0;
    m.writing = m.writing && !ours;
    if (ours && written)
      msg_free(m.node);
    else
      q->marks[n++] = m;
  }
  q->mark_count = n;
}

static bool any_later_locked(const msg_mongo_queue *q) {
  for (size_t i = 0; i < q->mark_count; i++)
    if (q->marks[i].later)
      return true;
  return false;
}

/* ---- the thread ---- */

static bool write_marks(msg_mongo_store *store, const struct work *w) {
  msg_mongo_names names;
  msg_mongo_use u;
  if (msg_mongo_names_of(w->queue->name, &names, NULL) != MSG_OK)
    return true;
  if (msg_mongo_take(store, "mark", &u, NULL) != MSG_OK)
    return false;
  bool written = msg_mongo_mark_seen(&u, names.messages, w->node, &w->ids, NULL) == MSG_OK;
  msg_mongo_give(&u);
  return written;
}

static void run(void *arg) {
  msg_mongo_store *store = arg;
  int failures = 0;
  int64_t end_ms = 0; /* of the tries, once it shall stop */
  msg_mutex_lock(store->mtx);
  for (;;) {
    struct work w = {0};
    if (store->marks_stop && !end_ms)
      end_ms = msg_clock_mono_ms() + STOP_MS;
    take_work_locked(store, &w);
    if (w.queue) {
      msg_mutex_unlock(store->mtx);
      bool written = write_marks(store, &w);
      failures = written ? 0 : failures + 1;
      msg_mutex_lock(store->mtx);
      end_work_locked(&w, written || failures > FORGET_TRIES);
      msg_cond_broadcast(store->marks_changed);
    }
    bool idle = !w.queue;
    work_clear(&w);
    if (store->marks_stop && (idle || msg_clock_mono_ms() >= end_ms))
      break;
    if (idle || failures)
      msg_cond_wait_until(store->marks_changed, store->mtx,
                          msg_clock_mono_ms() + (idle ? IDLE_MS : PAUSE_MS));
  }
  msg_mutex_unlock(store->mtx);
}

/* ---- for the others ---- */

/* Started by whoever is first; its start holds the lock, which it takes first thing. */
static bool start_locked(msg_mongo_store *store) {
  if (store->marker)
    return true;
  if (!store->marks_changed)
    store->marks_changed = msg_cond_new();
  return store->marks_changed && !store->marks_stop &&
         msg_thread_start(&store->marker, "msg-marker", run, store, NULL) == MSG_OK;
}

bool msg_mongo_marks_later(msg_mongo_session *s, const char *node, const msg_mongo_ids *ids) {
  msg_mongo_queue *q = s->queue;
  msg_mutex_lock(s->store->mtx);
  bool ok = start_locked(s->store);
  for (size_t i = 0; ok && i < q->mark_count; i++)
    if (strcmp(q->marks[i].node, node) == 0 && msg_mongo_ids_have(ids, &q->marks[i].id))
      q->marks[i].later = true;
  if (ok)
    msg_cond_broadcast(s->store->marks_changed);
  msg_mutex_unlock(s->store->mtx);
  return ok;
}

void msg_mongo_marks_wait(msg_mongo_session *s, int64_t timeout_ms) {
  int64_t deadline_ms = msg_clock_mono_ms() + timeout_ms;
  msg_mutex_lock(s->store->mtx);
  while (any_later_locked(s->queue) && msg_clock_mono_ms() < deadline_ms)
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
