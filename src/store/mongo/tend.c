#include "store/mongo/tend.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

/* --- life ---------------------------------------------------------------------------------- */

static void clear_heard(msg_mongo_heard *h) {
  msg_free(h->node);
  msg_free(h->pattern);
  msg_free(h->before);
  msg_pattern_free(h->compiled);
}

msg_mongo_tend *msg_mongo_tend_new(void) {
  msg_mongo_tend *t = msg_zalloc(sizeof *t);
  if (t && !(t->mtx = msg_mutex_new())) {
    msg_free(t);
    t = NULL;
  }
  return t;
}

void msg_mongo_tend_free(msg_mongo_tend *t) {
  if (!t)
    return;
  for (size_t i = 0; i < t->heard_count; i++)
    clear_heard(&t->heard[i]);
  for (size_t i = 0; i < t->own_count; i++)
    msg_participant_clear(&t->own[i].row);
  for (size_t i = 0; i < t->claimed_count; i++)
    msg_pattern_free(t->claimed[i].pattern);
  msg_free(t->claimed);
  msg_free(t->heard);
  msg_free(t->own);
  msg_free(t->due);
  msg_mutex_free(t->mtx);
  msg_free(t);
}

/* --- deadlines ----------------------------------------------------------------------------- */

static struct msg_mongo_due *due_locked(msg_mongo_tend *t, msg_mongo_queue *queue) {
  for (size_t i = 0; i < t->due_count; i++)
    if (t->due[i].queue == queue)
      return &t->due[i];
  if (msg_grow(&t->due, &t->due_cap, t->due_count + 1, sizeof *t->due) != MSG_OK)
    return NULL;
  t->due[t->due_count] = (struct msg_mongo_due){.queue = queue, .at_ms = MSG_NEVER};
  return &t->due[t->due_count++];
}

void msg_mongo_note_due(msg_mongo_store *store, msg_mongo_queue *queue, int64_t at_ms) {
  msg_mongo_tend *t = store->tend;
  msg_mutex_lock(t->mtx);
  struct msg_mongo_due *due = due_locked(t, queue);
  if (due && at_ms < due->at_ms)
    due->at_ms = at_ms;
  msg_mutex_unlock(t->mtx);
}

int64_t msg_mongo_take_due(msg_mongo_store *store, msg_mongo_queue *queue) {
  msg_mongo_tend *t = store->tend;
  int64_t at_ms = MSG_NEVER;
  msg_mutex_lock(t->mtx);
  struct msg_mongo_due *due = due_locked(t, queue);
  if (due) {
    at_ms = due->at_ms;
    due->at_ms = MSG_NEVER;
  }
  msg_mutex_unlock(t->mtx);
  return at_ms;
}

void msg_mongo_ask_due(msg_mongo_store *store, msg_mongo_queue *queue) {
  msg_mongo_tend *t = store->tend;
  msg_mutex_lock(t->mtx);
  struct msg_mongo_due *due = due_locked(t, queue);
  if (due)
    due->asked = true;
  msg_mutex_unlock(t->mtx);
}

bool msg_mongo_take_asked(msg_mongo_store *store, msg_mongo_queue *queue) {
  msg_mongo_tend *t = store->tend;
  msg_mutex_lock(t->mtx);
  struct msg_mongo_due *due = due_locked(t, queue);
  bool asked = due && due->asked;
  if (due)
    due->asked = false;
  msg_mutex_unlock(t->mtx);
  return asked;
}

/* --- own nodes ----------------------------------------------------------------------------- */

/* Copies of the texts; false: memory is out, and *out is to be cleared. */
static bool copy_own(msg_mongo_own *out, const msg_mongo_own *own) {
  *out = *own;
  char **texts[] = {&out->row.node, &out->row.host, &out->row.implementation, &out->row.layout,
                    &out->row.process};
  bool ok = true;
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
    *texts[i] = msg_strdup(*texts[i] ? *texts[i] : "");
    ok = ok && *texts[i];
  }
  return ok;
}

static size_t find_own_locked(const msg_mongo_tend *t, const msg_mongo_queue *queue,
                              const char *node) {
  size_t i = 0;
  while (i < t->own_count && (t->own[i].queue != queue || strcmp(t->own[i].row.node, node) != 0))
    i++;
  return i;
}

int msg_mongo_own_put(msg_mongo_session *s, const msg_participant *p, msg_err *err) {
  msg_mongo_tend *t = s->store->tend;
  msg_mongo_own given = {s->queue, *p, s->registry, s->sweeps, s->update_ms}, copy, old = {0};
  bool ok = copy_own(&copy, &given);
  msg_mutex_lock(t->mtx);
  size_t i = find_own_locked(t, s->queue, p->node);
  ok = ok && (i < t->own_count ||
              msg_grow(&t->own, &t->own_cap, t->own_count + 1, sizeof *t->own) == MSG_OK);
  if (ok && i < t->own_count)
    old = t->own[i];
  else if (ok)
    t->own_count++;
  if (ok)
    t->own[i] = copy;
  msg_mutex_unlock(t->mtx);
  msg_participant_clear(ok ? &old.row : &copy.row);
  return ok ? MSG_OK : msg_err_nomem(err);
}

bool msg_mongo_own_has(msg_mongo_store *store, const msg_mongo_queue *queue, const char *node) {
  msg_mongo_tend *t = store->tend;
  msg_mutex_lock(t->mtx);
  bool has = find_own_locked(t, queue, node) < t->own_count;
  msg_mutex_unlock(t->mtx);
  return has;
}

void msg_mongo_own_drop(msg_mongo_store *store, msg_mongo_queue *queue, const char *node) {
  msg_mongo_tend *t = store->tend;
  msg_mongo_own old = {0};
  msg_mutex_lock(t->mtx);
  size_t i = find_own_locked(t, queue, node);
  if (i < t->own_count) {
    old = t->own[i];
    t->own[i] = t->own[--t->own_count];
  }
  msg_mutex_unlock(t->mtx);
  msg_participant_clear(&old.row);
}

int msg_mongo_own_list(msg_mongo_store *store, msg_mongo_queue *queue, msg_mongo_own **out,
                       size_t *n, msg_err *err) {
  msg_mongo_tend *t = store->tend;
  msg_mutex_lock(t->mtx);
  msg_mongo_own *list = msg_alloc((t->own_count + 1) * sizeof *list);
  size_t count = 0;
  bool ok = list != NULL;
  for (size_t i = 0; ok && i < t->own_count; i++)
    if (t->own[i].queue == queue)
      ok = copy_own(&list[count++], &t->own[i]);
  msg_mutex_unlock(t->mtx);
  if (!ok) {
    msg_mongo_own_free(list, count);
    return msg_err_nomem(err);
  }
  *out = list;
  *n = count;
  return MSG_OK;
}

void msg_mongo_own_free(msg_mongo_own *own, size_t n) {
  for (size_t i = 0; own && i < n; i++)
    msg_participant_clear(&own[i].row);
  msg_free(own);
}

/* --- warnings ------------------------------------------------------------------------------ */

void msg_mongo_warn(msg_mongo_store *store, struct msg_mongo_warning *w, const char *text) {
  msg_mutex_lock(store->tend->mtx);
  if (strcmp(w->text, text) != 0) {
    snprintf(w->text, sizeof w->text, "%s", text);
    w->told = false;
  }
  msg_mutex_unlock(store->tend->mtx);
}

static bool tell_locked(struct msg_mongo_warning *w, char *out, size_t size) {
  bool tells = w->text[0] && !w->told;
  if (tells)
    snprintf(out, size, "%s", w->text);
  w->told = true;
  return tells;
}

bool msg_mongo_warning(msg_session *base, char *out, size_t size) {
  msg_mongo_tend *t = ((msg_mongo_session *)base)->store->tend;
  msg_mutex_lock(t->mtx);
  bool tells = tell_locked(&t->layout, out, size) || tell_locked(&t->polling, out, size);
  msg_mutex_unlock(t->mtx);
  return tells;
}

/* --- listeners ----------------------------------------------------------------------------- */

void msg_mongo_heard_drop(msg_mongo_store *store, msg_mongo_queue *queue, const char *node) {
  msg_mongo_tend *t = store->tend;
  msg_mutex_lock(t->mtx);
  for (size_t i = 0; i < t->heard_count;) {
    msg_mongo_heard *h = &t->heard[i];
    if (h->queue != queue || strcmp(h->node, node) != 0) {
      i++;
      continue;
    }
    clear_heard(h);
    *h = t->heard[--t->heard_count];
  }
  msg_mutex_unlock(t->mtx);
}
