/* marker.c - the thread that writes marks after the hand-out: all of a node that have gathered, by
 * one update. It is there from the first such mark on. */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "store/mongo/marks.h"

#define BATCH        500
#define PAUSE_MS     200   /* after a failure */
#define LAST_LOOK_MS 15000 /* after a mark was taken back */
#define STOP_MS      3000  /* tries of the last ones */
#define IDLE_MS      60000 /* just a look */
#define FORGET_TRIES 3000  /* then they are handed out once more: ten minutes */

struct work {
  msg_mongo_place *place; /* NULL: nothing to do */
  char *node;
  msg_mongo_ids ids;
};

static void work_clear(struct work *w) {
  msg_free(w->node);
  msg_mongo_ids_clear(&w->ids);
  *w = (struct work){0};
}

/* ---- under the lock ---- */

/* The marks of one node and place, out of those that wait. */
static void take_work_locked(msg_mongo_store *store, struct work *w) {
  for (msg_mongo_place *p = store->places; p && !w->place; p = p->next) {
    for (size_t i = 0; i < p->mark_count && w->ids.n < BATCH; i++) {
      struct msg_mongo_mark *m = &p->marks[i];
      if (!m->later || m->writing || (w->place && strcmp(w->node, m->node) != 0))
        continue;
      if (!w->place && !(w->node = msg_strdup(m->node)))
        return;
      w->place = p;
      if (msg_mongo_ids_add(&w->ids, &m->id) != MSG_OK)
        return;
      m->writing = true;
    }
  }
}

/* Written: they go. Not written: they wait again. */
static void end_work_locked(const struct work *w, bool written) {
  msg_mongo_place *p = w->place;
  size_t n = 0;
  for (size_t i = 0; i < p->mark_count; i++) {
    struct msg_mongo_mark m = p->marks[i];
    bool ours = m.writing && strcmp(m.node, w->node) == 0;
    m.writing = m.writing && !ours;
    if (ours && written)
      msg_free(m.node);
    else
      p->marks[n++] = m;
  }
  p->mark_count = n;
}

static bool any_later_locked(const msg_mongo_session *s) {
  for (const msg_mongo_place *p = s->store->places; p; p = p->next)
    for (size_t i = 0; p->queue == s->queue && i < p->mark_count; i++)
      if (p->marks[i].later)
        return true;
  return false;
}

/* ---- what is taken back ---- */

/* The first whose time has come; else *next_ms becomes the time of the next. */
static msg_mongo_unmark *take_unmark_locked(msg_mongo_store *store, msg_mongo_place **place,
                                            int64_t *next_ms) {
  int64_t now_ms = msg_clock_mono_ms();
  for (msg_mongo_place *p = store->places; p; p = p->next) {
    for (msg_mongo_unmark **at = &p->unmarks; *at; at = &(*at)->next) {
      msg_mongo_unmark *x = *at;
      if (x->at_ms <= now_ms) {
        *at = x->next;
        *place = p;
        return x;
      }
      *next_ms = x->at_ms < *next_ms ? x->at_ms : *next_ms;
    }
  }
  return NULL;
}

static void unmark_free(msg_mongo_unmark *x) {
  msg_free(x->node);
  msg_mongo_ids_clear(&x->ids);
  msg_free(x);
}

static void drop_marks_locked(msg_mongo_place *p, const msg_mongo_unmark *x) {
  size_t n = 0;
  for (size_t i = 0; i < p->mark_count; i++) {
    if (strcmp(p->marks[i].node, x->node) == 0 && msg_mongo_ids_have(&x->ids, &p->marks[i].id))
      msg_free(p->marks[i].node);
    else
      p->marks[n++] = p->marks[i];
  }
  p->mark_count = n;
}

/* Once done they can be handed out. Later once more, for a write that was under way meanwhile. */
static void end_unmark_locked(msg_mongo_place *p, msg_mongo_unmark *x, bool done) {
  if (done && !x->again)
    drop_marks_locked(p, x);
  if (done && x->again) {
    unmark_free(x);
    return;
  }
  x->again = done;
  x->at_ms = msg_clock_mono_ms() + (done ? LAST_LOOK_MS : PAUSE_MS);
  x->next = p->unmarks;
  p->unmarks = x;
}

static bool take_back(msg_mongo_store *store, const msg_mongo_place *p, const msg_mongo_unmark *x) {
  msg_mongo_use u;
  if (msg_mongo_take(store, "mark", &u, NULL) != MSG_OK)
    return false;
  bool done = msg_mongo_unmark_seen(&u, p->at.messages, x, NULL) == MSG_OK;
  msg_mongo_give(&u);
  return done;
}

/* One, if its time has come. *next_ms: when the next is due. */
static bool unmark_one(msg_mongo_store *store, int64_t *next_ms) {
  msg_mongo_place *p = NULL;
  msg_mongo_unmark *x = take_unmark_locked(store, &p, next_ms);
  if (!x)
    return false;
  msg_mutex_unlock(store->mtx);
  bool done = take_back(store, p, x);
  msg_mutex_lock(store->mtx);
  end_unmark_locked(p, x, done);
  return true;
}

/* ---- the thread ---- */

static bool write_marks(msg_mongo_store *store, const struct work *w) {
  msg_mongo_use u;
  if (msg_mongo_take(store, "mark", &u, NULL) != MSG_OK)
    return false;
  bool written = msg_mongo_mark_seen(&u, w->place->at.messages, w->node, &w->ids, NULL) == MSG_OK;
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
    if (w.place) {
      msg_mutex_unlock(store->mtx);
      bool written = write_marks(store, &w);
      failures = written ? 0 : failures + 1;
      msg_mutex_lock(store->mtx);
      end_work_locked(&w, written || failures > FORGET_TRIES);
      msg_cond_broadcast(store->marks_changed);
    }
    int64_t next_ms = msg_clock_mono_ms() + IDLE_MS;
    bool idle = !unmark_one(store, &next_ms) && !w.place;
    work_clear(&w);
    if (store->marks_stop && (idle || msg_clock_mono_ms() >= end_ms))
      break;
    if (idle || failures)
      msg_cond_wait_until(store->marks_changed, store->mtx,
                          failures ? msg_clock_mono_ms() + PAUSE_MS : next_ms);
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
  msg_mongo_place *p = s->place;
  msg_mutex_lock(s->store->mtx);
  bool ok = start_locked(s->store);
  for (size_t i = 0; ok && i < p->mark_count; i++)
    if (strcmp(p->marks[i].node, node) == 0 && msg_mongo_ids_have(ids, &p->marks[i].id))
      p->marks[i].later = true;
  if (ok)
    msg_cond_broadcast(s->store->marks_changed);
  msg_mutex_unlock(s->store->mtx);
  return ok;
}

bool msg_mongo_marks_regret(msg_mongo_session *s, const char *node, msg_mongo_ids *ids,
                            const char *token) {
  msg_mongo_unmark *x = msg_zalloc(sizeof *x);
  if (!x || !(x->node = msg_strdup(node))) {
    msg_free(x);
    return false;
  }
  memcpy(x->token, token, sizeof x->token);
  msg_mutex_lock(s->store->mtx);
  bool ok = start_locked(s->store);
  if (ok) {
    x->ids = *ids;
    *ids = (msg_mongo_ids){0};
    x->next = s->place->unmarks;
    s->place->unmarks = x;
    msg_cond_broadcast(s->store->marks_changed);
  }
  msg_mutex_unlock(s->store->mtx);
  if (!ok)
    unmark_free(x);
  return ok;
}

void msg_mongo_marks_wait(msg_mongo_session *s, int64_t timeout_ms) {
  int64_t deadline_ms = msg_clock_mono_ms() + timeout_ms;
  msg_mutex_lock(s->store->mtx);
  while (any_later_locked(s) && msg_clock_mono_ms() < deadline_ms)
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
  for (msg_mongo_place *p = store->places; p; p = p->next)
    while (p->unmarks) {
      msg_mongo_unmark *x = p->unmarks;
      p->unmarks = x->next;
      unmark_free(x);
    }
}
