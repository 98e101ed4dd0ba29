/* marker.c - the store's thread for what nobody waits for: it writes marks after the hand-out, all
 * that have gathered by one call, and undoes what is regretted. It is there from the first such
 * thing on. */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "store/mongo/marks.h"
#include "store/mongo/regret.h"

#define BATCH        1000
#define LINGER_MS    250    /* after the last that came: messages go first, */
#define LINGERS_MS   2000   /* and after the first of them */
#define PAUSE_MS     200    /* after a failure */
#define LOOKS_MS     240000 /* how long a mark that was taken back may be under way */
#define STOP_MS      3000   /* tries of the last ones */
#define IDLE_MS      60000  /* just a look */
#define FORGET_TRIES 3000   /* then they are handed out once more: ten minutes */

struct work {
  msg_mongo_place *place; /* NULL: nothing to do */
  msg_mongo_seen_by *nodes;
  size_t n, cap;
};

static void work_clear(struct work *w) {
  for (size_t i = 0; i < w->n; i++) {
    msg_free(w->nodes[i].node);
    msg_mongo_ids_clear(&w->nodes[i].ids);
  }
  msg_free(w->nodes);
  *w = (struct work){0};
}

/* ---- under the lock ---- */

/* The node's part of the work, made if there is none. NULL: no memory. */
static msg_mongo_seen_by *part_of(struct work *w, const char *node) {
  for (size_t i = w->n; i > 0; i--)
    if (strcmp(w->nodes[i - 1].node, node) == 0)
      return &w->nodes[i - 1];
  char *copy = msg_strdup(node);
  if (!copy || msg_grow(&w->nodes, &w->cap, w->n + 1, sizeof *w->nodes) != MSG_OK) {
    msg_free(copy);
    return NULL;
  }
  w->nodes[w->n] = (msg_mongo_seen_by){.node = copy};
  return &w->nodes[w->n++];
}

/* The marks of one place, out of those that wait. */
static size_t take_work_locked(msg_mongo_store *store, struct work *w) {
  size_t n = 0;
  for (msg_mongo_place *p = store->places; p && !w->place; p = p->next) {
    for (size_t i = 0; i < p->mark_count && n < BATCH; i++) {
      struct msg_mongo_mark *m = &p->marks[i];
      if (!m->later || m->writing)
        continue;
      msg_mongo_seen_by *part = part_of(w, m->node);
      if (!part || msg_mongo_ids_add(&part->ids, &m->id) != MSG_OK)
        return n;
      w->place = p;
      m->writing = true;
      n++;
    }
  }
  return n;
}

/* Written: they go. Not written: they wait again. */
static void end_work_locked(const struct work *w, bool written) {
  msg_mongo_place *p = w->place;
  size_t n = 0;
  for (size_t i = 0; i < p->mark_count; i++) {
    struct msg_mongo_mark m = p->marks[i];
    bool ours = m.writing;
    m.writing = false;
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

/* Once done they can be handed out. Later again, ever more seldom, for a write that was under way
 * meanwhile. */
static void end_unmark_locked(msg_mongo_place *p, msg_mongo_unmark *x, bool done) {
  if (done && !x->again)
    drop_marks_locked(p, x);
  int64_t now_ms = msg_clock_mono_ms(), age_ms = now_ms - x->since_ms;
  if (done && age_ms > LOOKS_MS) {
    unmark_free(x);
    return;
  }
  x->again = x->again || done;
  x->at_ms = now_ms + (done && age_ms > PAUSE_MS ? age_ms : PAUSE_MS);
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
  bool written = msg_mongo_mark_seen(&u, w->place->at.messages, w->nodes, w->n, NULL) == MSG_OK;
  msg_mongo_give(&u);
  return written;
}

static void run(void *arg) {
  msg_mongo_store *store = arg;
  int failures = 0;
  bool behind = false;
  int64_t end_ms = 0; /* of the tries, once it shall stop */
  msg_mutex_lock(store->mtx);
  for (;;) {
    struct work w = {0};
    if (store->marks_stop && !end_ms)
      end_ms = msg_clock_mono_ms() + STOP_MS;
    bool lingers = !behind && store->marks_due_ms > msg_clock_mono_ms() && !store->marks_stop;
    if (!lingers) {
      store->marks_due_ms = store->marks_first_ms = 0;
      behind = take_work_locked(store, &w) == BATCH;
    }
    if (w.place) {
      msg_mutex_unlock(store->mtx);
      bool written = write_marks(store, &w);
      failures = written ? 0 : failures + 1;
      msg_mutex_lock(store->mtx);
      end_work_locked(&w, written || failures > FORGET_TRIES);
      msg_cond_broadcast(store->marks_changed);
    }
    int64_t next_ms = lingers ? store->marks_due_ms : msg_clock_mono_ms() + IDLE_MS;
    bool idle = !unmark_one(store, &next_ms) && !w.place;
    idle = !msg_mongo_regret_try_locked(store, &next_ms) && idle;
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

bool msg_mongo_marker_rouse_locked(msg_mongo_store *store) {
  bool ok = start_locked(store);
  if (ok)
    msg_cond_broadcast(store->marks_changed);
  return ok;
}

/* The marker sleeps until the first time it was told, and looks again. */
static void linger_locked(msg_mongo_store *store) {
  int64_t now_ms = msg_clock_mono_ms();
  if (store->marks_first_ms == 0) {
    store->marks_first_ms = now_ms;
    msg_cond_broadcast(store->marks_changed);
  }
  int64_t last_ms = store->marks_first_ms + LINGERS_MS;
  store->marks_due_ms = now_ms + LINGER_MS < last_ms ? now_ms + LINGER_MS : last_ms;
}

bool msg_mongo_marks_later(msg_mongo_session *s, const char *node, const msg_mongo_ids *ids) {
  msg_mongo_place *p = s->place;
  msg_mutex_lock(s->store->mtx);
  bool ok = start_locked(s->store);
  for (size_t i = 0; ok && i < p->mark_count; i++)
    if (strcmp(p->marks[i].node, node) == 0 && msg_mongo_ids_have(ids, &p->marks[i].id))
      p->marks[i].later = true;
  if (ok)
    linger_locked(s->store);
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
  x->since_ms = msg_clock_mono_ms();
  msg_mutex_lock(s->store->mtx);
  bool ok = msg_mongo_marker_rouse_locked(s->store);
  if (ok) {
    x->ids = *ids;
    *ids = (msg_mongo_ids){0};
    x->next = s->place->unmarks;
    s->place->unmarks = x;
  }
  msg_mutex_unlock(s->store->mtx);
  if (!ok)
    unmark_free(x);
  return ok;
}

void msg_mongo_seen_flush(msg_mongo_session *s) {
  int64_t deadline_ms = msg_clock_mono_ms() + s->write_timeout_ms;
  msg_mutex_lock(s->store->mtx);
  if (any_later_locked(s)) { /* now */
    s->store->marks_due_ms = 0;
    msg_cond_broadcast(s->store->marks_changed);
  }
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
