#include "support/fake_store.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"

typedef struct row {
  msg_message m;
  msg_oid token;
  int64_t until_ms; /* claimed until; 0 free */
  char *owner;
  bool dead, gone;
} row;

typedef struct mark {
  char *node;
  msg_pattern *pattern; /* a listener: from seq `at` on; NULL: node saw seq `at` */
  int64_t at;
} mark;

typedef struct fake {
  msg_store base;
  unsigned caps;
  msg_mutex *mtx;
  msg_cond *changed;
  /* guarded by mtx */
  row *rows;
  size_t row_count, row_cap;
  mark *marks;
  size_t mark_count, mark_cap;
  uint64_t version;
  int participants;
} fake;

typedef struct fake_session {
  msg_session base;
  fake *f;
} fake_session;

typedef struct fake_watch {
  msg_watch base;
  fake *f;
  uint64_t seen;
  size_t told;     /* rows that were pushed */
  int64_t told_ms; /* monotonic: when all were */
  int64_t due_ms;  /* wall: something changes by itself then */
  bool woken;      /* guarded by f->mtx */
} fake_watch;

static fake *lock(msg_session *s) {
  fake *f = ((fake_session *)s)->f;
  msg_mutex_lock(f->mtx);
  return f;
}

static void changed_locked(fake *f) {
  f->version++;
  msg_cond_broadcast(f->changed);
}

static row *find_locked(fake *f, const msg_oid *id) {
  for (size_t i = 0; i < f->row_count; i++)
    if (!f->rows[i].gone && msg_oid_cmp(&f->rows[i].m.id, id) == 0)
      return &f->rows[i];
  return NULL;
}

/* --- put, get ------------------------------------------------------------------------------ */

static int put_one_locked(fake *f, msg_put *p, msg_err *err) {
  if (find_locked(f, &p->message->id))
    return msg_err_set(err, MSG_EXISTS, "id taken");
  if (msg_grow(&f->rows, &f->row_cap, f->row_count + 1, sizeof *f->rows) != MSG_OK)
    return msg_err_nomem(err);
  row *r = &f->rows[f->row_count];
  memset(r, 0, sizeof *r);
  if (msg_message_copy(&r->m, p->message) != MSG_OK)
    return msg_err_nomem(err);
  r->m.seq = (int64_t)++f->row_count;
  p->id = r->m.id;
  p->existed = false;
  return MSG_OK;
}

static int fake_put(msg_session *s, const msg_actor *a, msg_put *items, size_t n, msg_err *err) {
  (void)a;
  fake *f = lock(s);
  size_t before = f->row_count;
  int rc = MSG_OK;
  for (size_t i = 0; i < n && rc == MSG_OK; i++)
    rc = put_one_locked(f, &items[i], err);
  while (rc != MSG_OK && f->row_count > before)
    msg_message_clear(&f->rows[--f->row_count].m);
  if (rc == MSG_OK && (f->caps & MSG_CAP_PUSH))
    msg_cond_broadcast(f->changed);
  else if (rc == MSG_OK)
    changed_locked(f);
  msg_mutex_unlock(f->mtx);
  return rc;
}

static int fake_get(msg_session *s, const msg_oid *id, msg_message *out, msg_err *err) {
  fake *f = lock(s);
  row *r = find_locked(f, id);
  int rc = MSG_OK;
  if (!r)
    rc = msg_err_set(err, MSG_NOTFOUND, "no such message");
  else if (msg_message_copy(out, &r->m) != MSG_OK)
    rc = msg_err_nomem(err);
  msg_mutex_unlock(f->mtx);
  return rc;
}

/* --- listening, seeing --------------------------------------------------------------------- */

static mark *find_mark_locked(fake *f, const char *node, const char *pattern, int64_t at) {
  for (size_t i = 0; i < f->mark_count; i++) {
    mark *m = &f->marks[i];
    bool listens = m->pattern != NULL;
    if (strcmp(m->node, node) == 0 && listens == (pattern != NULL) &&
        (listens ? strcmp(msg_pattern_text(m->pattern), pattern) == 0 : m->at == at))
      return m;
  }
  return NULL;
}

static int add_mark_locked(fake *f, const char *node, const char *pattern, int64_t at,
                           msg_err *err) {
  if (msg_grow(&f->marks, &f->mark_cap, f->mark_count + 1, sizeof *f->marks) != MSG_OK)
    return msg_err_nomem(err);
  mark m = {.node = msg_strdup(node), .at = at};
  int rc = m.node ? MSG_OK : msg_err_nomem(err);
  if (rc == MSG_OK && pattern)
    rc = msg_pattern_new(pattern, &m.pattern, err);
  if (rc != MSG_OK) {
    msg_free(m.node);
    return rc;
  }
  f->marks[f->mark_count++] = m;
  return MSG_OK;
}

static int fake_listen(msg_session *s, const msg_actor *a, const char *pattern, bool catch_up,
                       msg_err *err) {
  fake *f = lock(s);
  int rc = MSG_EXISTS;
  if (!find_mark_locked(f, a->node, pattern, 0))
    rc = add_mark_locked(f, a->node, pattern, catch_up ? 0 : (int64_t)f->row_count, err);
  msg_mutex_unlock(f->mtx);
  return rc;
}

static int fake_unlisten(msg_session *s, const msg_actor *a, const char *pattern, msg_err *err) {
  (void)err;
  fake *f = lock(s);
  mark *m = find_mark_locked(f, a->node, pattern, 0);
  if (m) {
    msg_free(m->node);
    msg_pattern_free(m->pattern);
    *m = f->marks[--f->mark_count];
  }
  msg_mutex_unlock(f->mtx);
  return m ? MSG_OK : MSG_NOTFOUND;
}

/* Does some pattern the node listens to cover the message? */
static bool listens_locked(fake *f, const char *node, const msg_message *m) {
  bool listens = false;
  for (size_t i = 0; i < f->mark_count && !listens; i++) {
    const mark *k = &f->marks[i];
    listens = k->pattern && strcmp(k->node, node) == 0 && m->seq > k->at &&
              msg_pattern_match(k->pattern, m->topic);
  }
  return listens;
}

static bool pauses(const msg_pattern *const *paused, size_t n, const char *topic) {
  bool found = false;
  for (size_t i = 0; i < n && !found; i++)
    found = msg_pattern_match(paused[i], topic);
  return found;
}

static bool answers_one_of(const msg_message *m, const msg_oid *ids, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (msg_oid_cmp(&m->in_answer_to, &ids[i]) == 0)
      return true;
  return false;
}

static bool visible_locked(fake *f, const msg_actor *a, const msg_unseen *q, const row *r) {
  const msg_message *m = &r->m;
  int64_t now = msg_clock_now_ms();
  if (r->gone || m->exclusive || m->deliver_at_ms > now || m->delete_at_ms <= now ||
      find_mark_locked(f, a->node, NULL, m->seq))
    return false;
  if (q->answers_to)
    return msg_oid_cmp(&m->in_answer_to, q->answers_to) == 0;
  if (pauses(q->paused, q->paused_count, m->topic) ||
      answers_one_of(m, q->reserved, q->reserved_count) ||
      (q->pattern && !msg_pattern_match(q->pattern, m->topic)))
    return false;
  if (m->recipient_count > 0)
    return msg_message_has_recipient(m, a->node);
  return strcmp(m->sender, a->node) != 0 && listens_locked(f, a->node, m);
}

static int append(msg_list *out, const row *r, msg_err *err) {
  msg_message *m = msg_list_add(out);
  return m && msg_message_copy(m, &r->m) == MSG_OK ? MSG_OK : msg_err_nomem(err);
}

static int fake_unseen(msg_session *s, const msg_actor *a, const msg_unseen *q, msg_list *out,
                       msg_err *err) {
  fake *f = lock(s);
  int rc = MSG_OK;
  size_t n = 0;
  for (size_t i = 0; i < f->row_count && n < q->max && rc == MSG_OK; i++) {
    if (visible_locked(f, a, q, &f->rows[i])) {
      rc = append(out, &f->rows[i], err);
      n++;
    }
  }
  msg_mutex_unlock(f->mtx);
  return rc;
}

/* `soon`: that nobody had it is taken for granted. */
static int mark_all(msg_session *s, const msg_actor *a, const msg_list *list, bool soon, bool *won,
                    msg_err *err) {
  fake *f = lock(s);
  int rc = MSG_OK;
  size_t before = f->mark_count;
  for (size_t i = 0; i < list->n && rc == MSG_OK; i++) {
    won[i] = find_locked(f, &list->at[i].id) &&
             (soon || !find_mark_locked(f, a->node, NULL, list->at[i].seq));
    if (won[i])
      rc = add_mark_locked(f, a->node, NULL, list->at[i].seq, err);
  }
  while (rc != MSG_OK && f->mark_count > before)
    msg_free(f->marks[--f->mark_count].node);
  msg_mutex_unlock(f->mtx);
  return rc;
}

static int fake_seen(msg_session *s, const msg_actor *a, const msg_list *list, bool *won,
                     msg_err *err) {
  return mark_all(s, a, list, false, won, err);
}

static int fake_seen_soon(msg_session *s, const msg_actor *a, const msg_list *list, bool *won,
                          msg_err *err) {
  return mark_all(s, a, list, true, won, err);
}

static int fake_still_unseen(msg_session *s, const msg_actor *a, const msg_list *list, bool *still,
                             msg_err *err) {
  fake *f = lock(s);
  (void)err;
  for (size_t i = 0; i < list->n; i++) {
    const row *r = find_locked(f, &list->at[i].id);
    still[i] = r && !find_mark_locked(f, a->node, NULL, r->m.seq);
  }
  msg_mutex_unlock(f->mtx);
  return MSG_OK;
}

/* --- claiming, settling -------------------------------------------------------------------- */

static bool free_locked(const row *r, const msg_claim *q) {
  int64_t now = msg_clock_now_ms();
  bool meant = q->offered_count == 0;
  for (size_t i = 0; i < q->offered_count; i++)
    meant = meant || msg_oid_cmp(&q->offered[i], &r->m.id) == 0;
  return meant && !r->gone && !r->dead && r->m.exclusive && r->m.deliver_at_ms <= now &&
         r->m.delete_at_ms > now && r->until_ms <= now &&
         !pauses(q->paused, q->paused_count, r->m.topic) &&
         msg_pattern_match(q->pattern, r->m.topic);
}

static int claim_one_locked(row *r, const msg_actor *a, const msg_claim *q, msg_list *out,
                            msg_err *err) {
  char *owner = msg_strdup(a->node);
  int rc = owner ? append(out, r, err) : msg_err_nomem(err);
  if (rc != MSG_OK) {
    msg_free(owner);
    return rc;
  }
  msg_free(r->owner);
  r->owner = owner;
  r->token = msg_oid_new();
  r->until_ms = msg_clock_now_ms() + q->lease_ms;
  r->m.attempts++;
  msg_message *m = &out->at[out->n - 1];
  m->attempts = r->m.attempts;
  m->until_ms = r->until_ms;
  m->state = MSG_STATE_CLAIMED;
  msg_oid_hex(&r->token, m->token);
  return MSG_OK;
}

static int fake_claim(msg_session *s, const msg_actor *a, const msg_claim *q, msg_list *out,
                      msg_err *err) {
  fake *f = lock(s);
  size_t before = out->n;
  int rc = MSG_OK;
  for (size_t i = 0; i < f->row_count && out->n - before < q->count && rc == MSG_OK; i++)
    if (free_locked(&f->rows[i], q))
      rc = claim_one_locked(&f->rows[i], a, q, out, err);
  while (rc != MSG_OK && out->n > before) {
    msg_message *m = &out->at[--out->n];
    row *r = find_locked(f, &m->id);
    if (r)
      r->until_ms = 0;
    msg_message_clear(m);
  }
  msg_mutex_unlock(f->mtx);
  return rc;
}

static int fake_claimable(msg_session *s, const msg_actor *a, const msg_claim *q, bool *out,
                          msg_err *err) {
  (void)a, (void)err;
  fake *f = lock(s);
  bool found = false;
  for (size_t i = 0; i < f->row_count && !found; i++)
    found = free_locked(&f->rows[i], q);
  msg_mutex_unlock(f->mtx);
  *out = found;
  return MSG_OK;
}

static bool is_theirs(const row *r, const msg_actor *a, const msg_settle_item *item) {
  char token[MSG_OID_HEX + 1];
  msg_oid_hex(&r->token, token);
  return r->until_ms > msg_clock_now_ms() &&
         (item->token ? strcmp(item->token, token) == 0 : strcmp(r->owner, a->node) == 0);
}

static void settle_one_locked(row *r, const msg_settle *how) {
  int64_t now = msg_clock_now_ms();
  switch (how->verb) {
  case MSG_SETTLE_ACK: r->gone = true; break;
  case MSG_SETTLE_RELEASE: r->m.deliver_at_ms = now + how->delay_ms; /* fall through */
  case MSG_SETTLE_FREE: r->until_ms = 0; break;
  case MSG_SETTLE_EXTEND: r->until_ms = now + how->lease_ms; break;
  case MSG_SETTLE_REJECT: r->dead = true; break;
  }
}

static int fake_settle(msg_session *s, const msg_actor *a, const msg_settle *how,
                       msg_settle_item *items, size_t n, msg_err *err) {
  (void)err;
  fake *f = lock(s);
  for (size_t i = 0; i < n; i++) {
    row *r = find_locked(f, &items[i].id);
    items[i].done = r && (how->verb == MSG_SETTLE_FREE || is_theirs(r, a, &items[i]));
    if (items[i].done)
      settle_one_locked(r, how);
  }
  changed_locked(f);
  msg_mutex_unlock(f->mtx);
  return MSG_OK;
}

/* --- presence, time ------------------------------------------------------------------------ */

static int fake_presence_put(msg_session *s, const msg_participant *p, msg_err *err) {
  (void)p, (void)err;
  fake *f = lock(s);
  f->participants++;
  msg_mutex_unlock(f->mtx);
  return MSG_OK;
}

static int fake_presence_withdraw(msg_session *s, const char *node, bool only_dead, msg_err *err) {
  (void)node, (void)only_dead, (void)err;
  fake *f = lock(s);
  bool any = f->participants > 0;
  f->participants -= any;
  msg_mutex_unlock(f->mtx);
  return any ? MSG_OK : MSG_NOTFOUND;
}

static int64_t deadline_locked(const fake *f) {
  int64_t at = MSG_NEVER, now = msg_clock_now_ms();
  for (size_t i = 0; i < f->row_count; i++) {
    const row *r = &f->rows[i];
    if (!r->gone && r->m.deliver_at_ms > now && r->m.deliver_at_ms < at)
      at = r->m.deliver_at_ms;
    if (!r->gone && r->until_ms > now && r->until_ms < at)
      at = r->until_ms;
  }
  return at;
}

static int fake_deadline(msg_session *s, int64_t *at_ms, msg_err *err) {
  (void)err;
  fake *f = lock(s);
  *at_ms = deadline_locked(f);
  msg_mutex_unlock(f->mtx);
  return MSG_OK;
}

/* --- watching ------------------------------------------------------------------------------ */

static const struct msg_store_ops OPS;

static int fake_watch_open(msg_store *store, const msg_settings *settings, msg_watch **out,
                           msg_err *err) {
  (void)settings;
  fake_watch *w = msg_zalloc(sizeof *w);
  if (!w)
    return msg_err_nomem(err);
  w->base.ops = &OPS;
  w->f = (fake *)store;
  msg_mutex_lock(w->f->mtx);
  w->seen = w->f->version;
  w->told = w->f->row_count;
  w->due_ms = deadline_locked(w->f);
  msg_mutex_unlock(w->f->mtx);
  *out = &w->base;
  return MSG_OK;
}

static bool pushes_locked(const fake_watch *w) {
  return (w->f->caps & MSG_CAP_PUSH) && w->told < w->f->row_count;
}

static int push_locked(fake_watch *w, msg_event *out) {
  const row *r = &w->f->rows[w->told++];
  out->kind = r->m.deliver_at_ms > msg_clock_now_ms() ? MSG_EVENT_CHANGED : MSG_EVENT_MESSAGE;
  out->more = pushes_locked(w);
  out->told_ms = w->told_ms;
  if (!out->more)
    w->told_ms = msg_clock_mono_ms();
  return out->kind == MSG_EVENT_CHANGED ? MSG_OK : msg_message_copy(&out->message, &r->m);
}

static int fake_watch_next(msg_watch *watch, int64_t deadline_ms, msg_event *out, msg_err *err) {
  (void)err;
  fake_watch *w = (fake_watch *)watch;
  fake *f = w->f;
  bool in_time = true;
  msg_mutex_lock(f->mtx);
  while (in_time && !w->woken && w->seen == f->version && !pushes_locked(w) &&
         msg_clock_now_ms() < w->due_ms) {
    int64_t until = deadline_ms, due = deadline_locked(f);
    w->due_ms = due < w->due_ms ? due : w->due_ms;
    if (w->due_ms != MSG_NEVER && msg_clock_mono_ms() + (w->due_ms - msg_clock_now_ms()) < until)
      until = msg_clock_mono_ms() + (w->due_ms - msg_clock_now_ms());
    in_time = msg_cond_wait_until(f->changed, f->mtx, until) || until != deadline_ms;
  }
  bool changed = w->seen != f->version || msg_clock_now_ms() >= w->due_ms;
  int rc = w->woken ? MSG_SHUTDOWN : changed ? MSG_OK : MSG_TIMEOUT;
  if (!w->woken && !changed && pushes_locked(w)) {
    rc = push_locked(w, out);
  } else if (rc == MSG_TIMEOUT) {
    w->told_ms = msg_clock_mono_ms();
  } else if (rc == MSG_OK) {
    w->seen = f->version;
    w->due_ms = deadline_locked(f);
    out->kind = MSG_EVENT_CHANGED;
  }
  msg_mutex_unlock(f->mtx);
  return rc;
}

static void fake_watch_wake(msg_watch *watch) {
  fake_watch *w = (fake_watch *)watch;
  msg_mutex_lock(w->f->mtx);
  w->woken = true;
  msg_cond_broadcast(w->f->changed);
  msg_mutex_unlock(w->f->mtx);
}

static void fake_watch_info(const msg_watch *watch, msg_watch_info *out) {
  (void)watch;
  *out = (msg_watch_info){.what = "memory", .how = "bell", .token_age_ms = -1};
}

static void fake_watch_close(msg_watch *watch) {
  msg_free(watch);
}

/* --- life ---------------------------------------------------------------------------------- */

static void fake_close(msg_store *store) {
  fake *f = (fake *)store;
  for (size_t i = 0; i < f->row_count; i++) {
    msg_message_clear(&f->rows[i].m);
    msg_free(f->rows[i].owner);
  }
  for (size_t i = 0; i < f->mark_count; i++) {
    msg_free(f->marks[i].node);
    msg_pattern_free(f->marks[i].pattern);
  }
  msg_free(f->rows);
  msg_free(f->marks);
  msg_cond_free(f->changed);
  msg_mutex_free(f->mtx);
  msg_free(f);
}

static unsigned fake_caps(const msg_store *store) {
  return ((const fake *)store)->caps | MSG_CAP_OWN;
}

static const char *fake_place(const msg_store *store) {
  (void)store;
  return "fake";
}

static int fake_session_open(msg_store *store, msg_host *host, const char *queue,
                             const msg_settings *settings, msg_session **out, msg_err *err) {
  (void)host, (void)queue, (void)settings;
  fake_session *s = msg_zalloc(sizeof *s);
  if (!s)
    return msg_err_nomem(err);
  s->base.ops = &OPS;
  s->f = (fake *)store;
  *out = &s->base;
  return MSG_OK;
}

static void fake_session_close(msg_session *s) {
  msg_free(s);
}

static void fake_undone(msg_store *store, const msg_oid *ids, size_t n) {
  (void)store, (void)ids, (void)n;
}

static const struct msg_store_ops OPS = {
    .store_close = fake_close,
    .caps = fake_caps,
    .place = fake_place,
    .session_open = fake_session_open,
    .session_close = fake_session_close,
    .claims_undone = fake_undone,
    .put = fake_put,
    .get = fake_get,
    .listen = fake_listen,
    .unlisten = fake_unlisten,
    .unseen = fake_unseen,
    .seen = fake_seen,
    .seen_soon = fake_seen_soon,
    .still_unseen = fake_still_unseen,
    .claim = fake_claim,
    .claimable = fake_claimable,
    .settle = fake_settle,
    .presence_put = fake_presence_put,
    .presence_withdraw = fake_presence_withdraw,
    .deadline = fake_deadline,
    .watch_open = fake_watch_open,
    .watch_next = fake_watch_next,
    .watch_wake = fake_watch_wake,
    .watch_info = fake_watch_info,
    .watch_close = fake_watch_close,
};

msg_store *fake_store_new(unsigned caps) {
  fake *f = msg_zalloc(sizeof *f);
  if (!f)
    return NULL;
  f->base.ops = &OPS;
  f->caps = caps;
  f->mtx = msg_mutex_new();
  f->changed = msg_cond_new();
  if (!f->mtx || !f->changed) {
    fake_close(&f->base);
    return NULL;
  }
  return &f->base;
}

int fake_store_participants(msg_store *store) {
  fake *f = (fake *)store;
  msg_mutex_lock(f->mtx);
  int n = f->participants;
  msg_mutex_unlock(f->mtx);
  return n;
}
