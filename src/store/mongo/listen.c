/* listen.c - who listens to what. A process goes by its memory: which broadcasts a node has had is
 * told by their processed_by. Others read it in its nodes' participants; Java nodes tell it in
 * their answers to status requests. */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "store/mongo/answers.h"
#include "store/mongo/catalog.h"
#include "store/mongo/interest.h"
#include "store/mongo/people.h"
#include "store/mongo/presence.h"
#include "store/mongo/query.h"
#include "store/mongo/status.h"
#include "store/mongo/tend.h"

/* Senders' clocks agree within this. What is younger and there already when a node begins to listen
 * is remembered, so that nothing is lost that becomes visible later. */
#define SKEW_MS 1000
/* Of so many at most; where there are more, the youngest's time counts. */
#define BEFORE_MAX 256

static size_t find_locked(const msg_mongo_tend *t, const msg_mongo_queue *queue, const char *node,
                          const char *pattern) {
  size_t i = 0;
  for (; i < t->heard_count; i++) {
    const msg_mongo_heard *h = &t->heard[i];
    if (h->queue == queue && strcmp(h->node, node) == 0 && strcmp(h->pattern, pattern) == 0)
      break;
  }
  return i;
}

/* --- where a listener starts --------------------------------------------------------------- */

/* One that begins to listen now, looking at what is there. */
struct beginning {
  msg_mongo_session *s;
  const char *node;
  const msg_pattern *pattern;
  int64_t since_ms, youngest_ms;
  msg_mongo_ids before;
};

static int note_visible(void *arg, const bson_t *doc, msg_err *err) {
  struct beginning *b = arg;
  msg_oid id;
  const char *topic = msg_mongo_get_text(doc, "topic");
  int64_t at_ms = msg_mongo_get_int(doc, "timestamp", 0);
  if (!topic)
    topic = msg_mongo_get_text(doc, "name");
  if (!topic || !msg_pattern_match(b->pattern, topic) || !msg_mongo_get_oid(doc, "_id", &id))
    return MSG_OK;
  if (at_ms > b->youngest_ms)
    b->youngest_ms = at_ms;
  if (b->before.n > BEFORE_MAX)
    return MSG_OK;
  return msg_mongo_ids_add(&b->before, &id) == MSG_OK ? MSG_OK : msg_err_nomem(err);
}

/* Broadcasts younger than since_ms, of the topic if it is one. */
static bson_t *visible_filter(const struct beginning *b) {
  bson_t *f = BCON_NEW("timestamp", "{", "$gt", BCON_INT64(b->since_ms), "}", "exclusive", "{",
                       "$ne", BCON_BOOL(true), "}", "recipients", BCON_NULL);
  if (msg_pattern_kind_of(b->pattern) == MSG_PATTERN_EXACT)
    BCON_APPEND(f, "topic", BCON_UTF8(msg_pattern_text(b->pattern)));
  return f;
}

static int look_at(msg_mongo_session *at, msg_mongo_use *u, void *arg, msg_err *err) {
  struct beginning *b = arg;
  bson_t *filter = visible_filter(b);
  bson_t *opts = BCON_NEW("projection", "{", "topic", BCON_INT32(1), "name", BCON_INT32(1),
                          "timestamp", BCON_INT32(1), "}");
  msg_mongo_append_durable(at->store, opts);
  int rc = msg_mongo_each(u, at->names.messages, "listen", filter, opts, note_visible, b, err);
  bson_destroy(filter);
  bson_destroy(opts);
  return rc;
}

static int begin_now(struct beginning *b, msg_err *err) {
  msg_mongo_use u;
  int rc = msg_mongo_take_bounded(b->s, "listen", &u, err);
  if (rc != MSG_OK)
    return rc;
  msg_mongo_places places = {0};
  b->since_ms = msg_mongo_now_ms(b->s->store) - SKEW_MS;
  rc = msg_mongo_places_of(b->s, &u, b->pattern, NULL, &places, err);
  if (rc == MSG_OK)
    rc = msg_mongo_places_each(b->s, &u, &places, look_at, b, err);
  if (rc == MSG_OK && b->before.n > BEFORE_MAX) {
    b->since_ms = b->youngest_ms;
    msg_mongo_ids_clear(&b->before);
  }
  msg_mongo_places_clear(&places);
  msg_mongo_give(&u);
  return rc;
}

static msg_oid *copy_ids(const msg_oid *ids, size_t n) {
  msg_oid *copy = msg_alloc((n + 1) * sizeof *copy);
  if (copy && n > 0)
    memcpy(copy, ids, n * sizeof *copy);
  return copy;
}

/* An exact topic that an earlier pattern covers has been listened to since then. */
static int covered_since(struct beginning *b, bool *found_out, msg_err *err) {
  msg_mongo_tend *t = b->s->store->tend;
  const msg_mongo_heard *first = NULL;
  msg_oid *before = NULL;
  *found_out = false;
  if (msg_pattern_kind_of(b->pattern) != MSG_PATTERN_EXACT)
    return MSG_OK;
  msg_mutex_lock(t->mtx);
  for (size_t i = 0; i < t->heard_count; i++) {
    const msg_mongo_heard *h = &t->heard[i];
    if (h->queue != b->s->queue || strcmp(h->node, b->node) != 0 ||
        !msg_pattern_match(h->compiled, msg_pattern_text(b->pattern)) ||
        (first && h->since_ms >= first->since_ms))
      continue;
    first = h;
  }
  if (first && (before = copy_ids(first->before, first->before_count))) {
    b->since_ms = first->since_ms;
    b->before = (msg_mongo_ids){before, first->before_count, first->before_count + 1};
  }
  msg_mutex_unlock(t->mtx);
  *found_out = first != NULL;
  return first && !before ? msg_err_nomem(err) : MSG_OK;
}

/* --- listen, unlisten ---------------------------------------------------------------------- */

static bool is_heard_locked(const msg_mongo_tend *t, const msg_mongo_queue *queue,
                            const char *pattern) {
  for (size_t i = 0; i < t->heard_count; i++)
    if (t->heard[i].queue == queue && strcmp(t->heard[i].pattern, pattern) == 0)
      return true;
  return false;
}

/* Takes `compiled` and b's ids over. MSG_EXISTS: another thread was faster. */
static int add(msg_mongo_session *s, const char *node, msg_pattern *compiled, struct beginning *b,
               msg_err *err) {
  msg_mongo_tend *t = s->store->tend;
  msg_mongo_heard h = {s->queue,   msg_strdup(node), msg_strdup(msg_pattern_text(compiled)),
                       compiled,   b->since_ms,      b->before.at,
                       b->before.n};
  int rc = h.node && h.pattern ? MSG_OK : MSG_NOMEM;
  msg_mutex_lock(t->mtx);
  if (rc == MSG_OK && find_locked(t, s->queue, node, h.pattern) < t->heard_count)
    rc = MSG_EXISTS;
  bool widens = !is_heard_locked(t, s->queue, msg_pattern_text(compiled));
  if (rc == MSG_OK)
    rc = msg_grow(&t->heard, &t->heard_cap, t->heard_count + 1, sizeof *t->heard);
  if (rc == MSG_OK) {
    t->heard[t->heard_count++] = h;
    t->heard_version++;
  }
  msg_mutex_unlock(t->mtx);
  if (rc == MSG_OK && widens)
    msg_mongo_interest_widen(s->store);
  if (rc == MSG_OK)
    return MSG_OK;
  msg_free(h.node);
  msg_free(h.pattern);
  msg_free(h.before);
  msg_pattern_free(compiled);
  return rc == MSG_NOMEM ? msg_err_nomem(err) : rc;
}

static bool is_known(msg_mongo_session *s, const char *node, const char *pattern) {
  msg_mongo_tend *t = s->store->tend;
  msg_mutex_lock(t->mtx);
  bool known = find_locked(t, s->queue, node, pattern) < t->heard_count;
  msg_mutex_unlock(t->mtx);
  return known;
}

int msg_mongo_listen_to(msg_session *base, const msg_actor *actor, const char *pattern,
                        bool catch_up, msg_err *err) {
  msg_mongo_session *s = (msg_mongo_session *)base;
  struct beginning b = {.s = s, .node = actor->node, .since_ms = INT64_MIN};
  msg_pattern *compiled;
  if (is_known(s, actor->node, pattern))
    return MSG_EXISTS;
  int rc = msg_pattern_new(pattern, &compiled, err);
  if (rc != MSG_OK)
    return rc;
  bool covered = false;
  b.pattern = compiled;
  if (!catch_up)
    rc = covered_since(&b, &covered, err);
  if (rc == MSG_OK && !catch_up && !covered)
    rc = begin_now(&b, err);
  if (rc == MSG_OK) {
    rc = add(s, actor->node, compiled, &b, err);
    if (rc == MSG_OK)
      msg_mongo_presence_tell(s, actor->node, pattern, true);
    return rc;
  }
  msg_mongo_ids_clear(&b.before);
  msg_pattern_free(compiled);
  return rc;
}

int msg_mongo_unlisten(msg_session *base, const msg_actor *actor, const char *pattern,
                       msg_err *err) {
  msg_mongo_session *s = (msg_mongo_session *)base;
  msg_mongo_tend *t = s->store->tend;
  msg_mongo_heard old = {0};
  msg_mutex_lock(t->mtx);
  size_t i = find_locked(t, s->queue, actor->node, pattern);
  if (i < t->heard_count) {
    old = t->heard[i];
    t->heard_count--;
    t->heard_version++;
    memmove(&t->heard[i], &t->heard[i + 1], (t->heard_count - i) * sizeof *t->heard);
  }
  msg_mutex_unlock(t->mtx);
  if (!old.node)
    return msg_err_set(err, MSG_NOTFOUND, "node '%s' does not listen to '%s'",
                       msg_show(actor->node).s, msg_show(pattern).s);
  msg_free(old.node);
  msg_free(old.pattern);
  msg_free(old.before);
  msg_pattern_free(old.compiled);
  msg_mongo_presence_tell(s, actor->node, pattern, false);
  return MSG_OK;
}

/* --- looking ------------------------------------------------------------------------------- */

int msg_mongo_listens(msg_mongo_session *s, msg_mongo_use *u, const char *node,
                      msg_mongo_listen **out, size_t *n, msg_err *err) {
  msg_mongo_tend *t = s->store->tend;
  (void)u;
  msg_mutex_lock(t->mtx);
  msg_mongo_listen *list = msg_zalloc((t->heard_count + 1) * sizeof *list);
  size_t count = 0;
  bool ok = list != NULL;
  for (size_t i = 0; ok && i < t->heard_count; i++) {
    const msg_mongo_heard *h = &t->heard[i];
    if (h->queue != s->queue || strcmp(h->node, node) != 0)
      continue;
    list[count] = (msg_mongo_listen){msg_strdup(h->pattern), h->since_ms,
                                     copy_ids(h->before, h->before_count), h->before_count};
    ok = list[count].pattern && list[count].before;
    count++;
  }
  msg_mutex_unlock(t->mtx);
  if (!ok) {
    msg_mongo_listens_free(list, count);
    return msg_err_nomem(err);
  }
  *out = list;
  *n = count;
  return MSG_OK;
}

void msg_mongo_listens_free(msg_mongo_listen *l, size_t n) {
  for (size_t i = 0; l && i < n; i++) {
    msg_free(l[i].pattern);
    msg_free(l[i].before);
  }
  msg_free(l);
}

/* A copy of what the queue's nodes listen to: no callback runs under the lock. */
static int copy_all(msg_mongo_session *s, msg_listener **out, size_t *n) {
  msg_mongo_tend *t = s->store->tend;
  msg_mutex_lock(t->mtx);
  msg_listener *list = msg_zalloc((t->heard_count + 1) * sizeof *list);
  size_t count = 0;
  bool ok = list != NULL;
  for (size_t i = 0; ok && i < t->heard_count; i++) {
    const msg_mongo_heard *h = &t->heard[i];
    if (h->queue != s->queue)
      continue;
    list[count] = (msg_listener){msg_strdup(h->node), msg_strdup(h->pattern), true};
    ok = list[count].node && list[count].pattern;
    count++;
  }
  msg_mutex_unlock(t->mtx);
  *out = list;
  *n = count;
  return ok ? MSG_OK : MSG_NOMEM;
}

/* --- what others tell ---------------------------------------------------------------------- */

struct telling {
  msg_mongo_session *s;
  const msg_mongo_own *own; /* this process's */
  size_t own_count;
  msg_listener_fn fn;
  void *arg;
};

static bool is_own(const struct telling *t, const char *node) {
  for (size_t i = 0; i < t->own_count; i++)
    if (strcmp(t->own[i].row.node, node) == 0)
      return true;
  return false;
}

/* A participant of our kind. */
static int tell_participant(void *arg, const bson_t *doc, msg_err *err) {
  struct telling *t = arg;
  const char *node = msg_mongo_get_text(doc, "_id");
  bson_iter_t it, list, pattern;
  int rc = MSG_OK;
  (void)err;
  if (!node || is_own(t, node) || !msg_mongo_is_alive(t->s, doc) || !bson_iter_init(&it, doc) ||
      !bson_iter_find_descendant(&it, "sq.listens", &list) || !BSON_ITER_HOLDS_ARRAY(&list) ||
      !bson_iter_recurse(&list, &pattern))
    return MSG_OK;
  while (rc == MSG_OK && bson_iter_next(&pattern)) {
    if (!BSON_ITER_HOLDS_UTF8(&pattern))
      continue;
    msg_listener row = {(char *)node, (char *)bson_iter_utf8(&pattern, NULL), true};
    rc = t->fn(t->arg, &row);
  }
  return rc;
}

static int tell_answer(void *arg, const msg_mongo_answer *a, msg_err *err) {
  struct telling *t = arg;
  bson_iter_t topic = a->topics;
  int rc = MSG_OK;
  (void)err;
  while (rc == MSG_OK && !is_own(t, a->node) && bson_iter_next(&topic)) {
    msg_listener row = {(char *)a->node, (char *)bson_iter_key(&topic), true};
    if (strcmp(row.pattern, MSG_MONGO_STATUS_TOPIC) != 0)
      rc = t->fn(t->arg, &row);
  }
  return rc;
}

static int tell_elsewhere(struct telling *t, msg_mongo_use *u, msg_err *err) {
  bson_t *filter = BCON_NEW("sq.listens.0", "{", "$exists", BCON_BOOL(true), "}");
  int rc = msg_mongo_each(u, t->s->names.participants, "listeners", filter, NULL, tell_participant,
                          t, err);
  bson_destroy(filter);
  return rc == MSG_OK ? msg_mongo_answers(t->s, u, NULL, NULL, tell_answer, t, err) : rc;
}

static int tell_all(msg_mongo_session *s, msg_listener_fn fn, void *arg, msg_err *err) {
  msg_mongo_own *own = NULL;
  msg_mongo_use u;
  struct telling t = {.s = s, .fn = fn, .arg = arg};
  int rc = msg_mongo_own_list(s->store, s->queue, &own, &t.own_count, err);
  if (rc == MSG_OK)
    rc = msg_mongo_take(s->store, "listeners", &u, err);
  if (rc == MSG_OK) {
    t.own = own;
    rc = tell_elsewhere(&t, &u, err);
    msg_mongo_give(&u);
  }
  msg_mongo_own_free(own, t.own_count);
  return rc;
}

int msg_mongo_listeners(msg_session *base, msg_listener_fn fn, void *arg, msg_err *err) {
  msg_listener *list = NULL;
  size_t n = 0;
  int rc = copy_all((msg_mongo_session *)base, &list, &n);
  if (rc != MSG_OK)
    msg_err_nomem(err);
  for (size_t i = 0; rc == MSG_OK && i < n; i++)
    rc = fn(arg, &list[i]);
  for (size_t i = 0; i < n; i++) {
    msg_free(list[i].node);
    msg_free(list[i].pattern);
  }
  msg_free(list);
  return rc == MSG_OK ? tell_all((msg_mongo_session *)base, fn, arg, err) : rc;
}
