#include "store/mongo/marks.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

#define LINGER_MS  250  /* after the last that came: messages go first, */
#define LINGERS_MS 2000 /* and after the first of them */

/* ---- a node's, by their ids ---- */

static msg_mongo_seer *find_locked(const msg_mongo_place *p, const char *node) {
  msg_mongo_seer *seer = p->seers;
  while (seer && strcmp(seer->node, node) != 0)
    seer = seer->next;
  return seer;
}

static msg_mongo_seer *make_locked(msg_mongo_place *p, const char *node) {
  msg_mongo_seer *seer = find_locked(p, node);
  if (seer || !(seer = msg_zalloc(sizeof *seer)))
    return seer;
  if (!(seer->node = msg_strdup(node))) {
    msg_free(seer);
    return NULL;
  }
  seer->next = p->seers;
  p->seers = seer;
  return seer;
}

static void free_seer(msg_mongo_seer *seer) {
  msg_free(seer->node);
  msg_free(seer->at);
  msg_free(seer);
}

static size_t place_of(const msg_mongo_seer *seer, const msg_oid *id) {
  return msg_oid_place(seer->at, seer->n, sizeof *seer->at, id);
}

static struct msg_mongo_mark *mark_of(const msg_mongo_seer *seer, const msg_oid *id) {
  size_t i = place_of(seer, id);
  return i < seer->n && msg_oid_cmp(&seer->at[i].id, id) == 0 ? &seer->at[i] : NULL;
}

/* There is room. */
static bool add(msg_mongo_seer *seer, const msg_message *m) {
  size_t i = place_of(seer, &m->id);
  if (i < seer->n && msg_oid_cmp(&seer->at[i].id, &m->id) == 0)
    return false;
  memmove(&seer->at[i + 1], &seer->at[i], (seer->n++ - i) * sizeof *seer->at);
  seer->at[i] = (struct msg_mongo_mark){.id = m->id, .deletes = m->delete_after_processing};
  return true;
}

static void drop(msg_mongo_seer *seer, const msg_oid *id) {
  struct msg_mongo_mark *m = mark_of(seer, id);
  if (!m)
    return;
  size_t i = (size_t)(m - seer->at);
  memmove(m, m + 1, (--seer->n - i) * sizeof *m);
}

static void drop_empty_locked(msg_mongo_place *p) {
  for (msg_mongo_seer **at = &p->seers; *at;) {
    msg_mongo_seer *seer = *at;
    if (seer->n > 0) {
      at = &seer->next;
      continue;
    }
    *at = seer->next;
    free_seer(seer);
  }
}

/* ---- for who hands out ---- */

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

int msg_mongo_marks_take(msg_mongo_session *s, const char *node, const msg_list *list, bool *mine,
                         msg_err *err) {
  msg_mutex_lock(s->store->mtx);
  msg_mongo_seer *seer = make_locked(s->place, node);
  int rc = seer ? msg_grow(&seer->at, &seer->cap, seer->n + list->n, sizeof *seer->at) : MSG_NOMEM;
  for (size_t i = 0; rc == MSG_OK && i < list->n; i++)
    mine[i] = add(seer, &list->at[i]);
  msg_mutex_unlock(s->store->mtx);
  return rc == MSG_OK ? MSG_OK : msg_err_nomem(err);
}

void msg_mongo_marks_hand_out(msg_mongo_session *s, const char *node, const msg_list *list,
                              const bool *mine, const bool *won) {
  bool any = false;
  msg_mutex_lock(s->store->mtx);
  msg_mongo_seer *seer = find_locked(s->place, node);
  for (size_t i = 0; seer && i < list->n; i++) {
    if (mine[i] && won[i]) {
      struct msg_mongo_mark *m = mark_of(seer, &list->at[i].id);
      m->state = MSG_MONGO_HANDED;
      m->number = ++s->store->marks_handed;
    } else if (mine[i]) {
      drop(seer, &list->at[i].id);
    }
    any = any || (mine[i] && won[i]);
  }
  drop_empty_locked(s->place);
  if (any)
    linger_locked(s->store);
  msg_mutex_unlock(s->store->mtx);
}

int msg_mongo_marks_copy(msg_mongo_session *s, const char *node, msg_mongo_ids *out, msg_err *err) {
  int rc = MSG_OK;
  msg_mutex_lock(s->store->mtx);
  const msg_mongo_seer *seer = find_locked(s->place, node);
  for (size_t i = 0; rc == MSG_OK && seer && i < seer->n; i++)
    rc = msg_mongo_ids_add(out, &seer->at[i].id);
  msg_mutex_unlock(s->store->mtx);
  return rc == MSG_OK ? MSG_OK : msg_err_nomem(err);
}

/* Is there any of the queue that was handed out as number `upto` or before? */
static bool any_handed_locked(const msg_mongo_session *s, uint64_t upto) {
  for (const msg_mongo_place *p = s->store->places; p; p = p->next)
    for (const msg_mongo_seer *seer = p->seers; seer && p->queue == s->queue; seer = seer->next)
      for (size_t i = 0; i < seer->n; i++)
        if (seer->at[i].state != MSG_MONGO_TAKEN && seer->at[i].number <= upto)
          return true;
  return false;
}

void msg_mongo_seen_flush(msg_mongo_session *s) {
  int64_t deadline_ms = msg_clock_mono_ms() + s->write_timeout_ms;
  msg_mutex_lock(s->store->mtx);
  const uint64_t upto = s->store->marks_handed;
  if (any_handed_locked(s, upto)) { /* now */
    s->store->marks_due_ms = 0;
    msg_cond_broadcast(s->store->marks_changed);
  }
  while (any_handed_locked(s, upto) && msg_clock_mono_ms() < deadline_ms)
    msg_cond_wait_until(s->store->marks_changed, s->store->mtx, deadline_ms);
  msg_mutex_unlock(s->store->mtx);
}

/* ---- for who writes ---- */

static void clear_part(msg_mongo_seen_by *part) {
  msg_texts_clear(&part->nodes);
  msg_mongo_ids_clear(&part->ids);
}

void msg_mongo_seen_list_clear(msg_mongo_seen_list *l) {
  for (size_t i = 0; i < l->n; i++)
    clear_part(&l->at[i]);
  msg_free(l->at);
  *l = (msg_mongo_seen_list){0};
}

static bool is_same(const msg_mongo_ids *a, const msg_mongo_ids *b) {
  for (size_t i = 0; i < a->n && i < b->n; i++)
    if (msg_oid_cmp(&a->at[i], &b->at[i]) != 0)
      return false;
  return a->n == b->n;
}

/* Owns: *ids, which is emptied. */
static bool add_part(msg_mongo_seen_list *l, const char *node, bool deletes, msg_mongo_ids *ids) {
  size_t i = 0;
  while (i < l->n && (l->at[i].deletes != deletes || !is_same(&l->at[i].ids, ids)))
    i++;
  if (i == l->n) {
    msg_mongo_seen_by part = {.deletes = deletes};
    if (msg_grow(&l->at, &l->cap, l->n + 1, sizeof *l->at) != MSG_OK ||
        msg_texts_add(&part.nodes, node) != MSG_OK)
      return false;
    part.ids = *ids;
    *ids = (msg_mongo_ids){0};
    l->at[l->n++] = part;
    return true;
  }
  return msg_texts_add(&l->at[i].nodes, node) == MSG_OK;
}

/* The first of a node's, those that go after processing or the others. What no memory is there for
 * waits. */
static void gather_of(msg_mongo_seer *seer, bool deletes, size_t max, msg_mongo_seen_list *l,
                      bool *full) {
  msg_mongo_ids ids = {0};
  size_t end = 0;
  for (; end < seer->n && ids.n < max; end++)
    if (seer->at[end].state == MSG_MONGO_HANDED && seer->at[end].deletes == deletes &&
        msg_mongo_ids_add(&ids, &seer->at[end].id) != MSG_OK)
      break;
  *full = *full || ids.n == max;
  if (ids.n && add_part(l, seer->node, deletes, &ids))
    for (size_t i = 0; i < end; i++)
      if (seer->at[i].state == MSG_MONGO_HANDED && seer->at[i].deletes == deletes)
        seer->at[i].state = MSG_MONGO_WRITING;
  msg_mongo_ids_clear(&ids);
}

void msg_mongo_marks_gather_locked(msg_mongo_store *store, size_t max, msg_mongo_seen_list *out,
                                   bool *full) {
  *out = (msg_mongo_seen_list){0};
  *full = false;
  for (msg_mongo_place *p = store->places; p && out->n == 0; p = p->next) {
    for (msg_mongo_seer *seer = p->seers; seer; seer = seer->next) {
      gather_of(seer, false, max, out, full);
      gather_of(seer, true, max, out, full);
    }
    out->place = p;
  }
  if (out->n == 0)
    out->place = NULL;
}

void msg_mongo_marks_written_locked(const msg_mongo_seen_list *l, bool written) {
  for (msg_mongo_seer *seer = l->place->seers; seer; seer = seer->next) {
    size_t n = 0;
    for (size_t i = 0; i < seer->n; i++) {
      struct msg_mongo_mark m = seer->at[i];
      if (m.state == MSG_MONGO_WRITING && written)
        continue;
      m.state = m.state == MSG_MONGO_WRITING ? MSG_MONGO_HANDED : m.state;
      seer->at[n++] = m;
    }
    seer->n = n;
  }
  drop_empty_locked(l->place);
}

void msg_mongo_seers_free(msg_mongo_place *p) {
  while (p->seers) {
    msg_mongo_seer *seer = p->seers;
    p->seers = seer->next;
    free_seer(seer);
  }
}
