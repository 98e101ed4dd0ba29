#include "ext/batch.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "ext/aside.h"
#include "ext/nodes.h"
#include "ext/state.h"

/* Largest message; MongoDB takes 16 MiB a document. */
#define MESSAGE_MAX ((size_t)16 * 1024 * 1024 - 64 * 1024)

/* The session that a call's writes go to: it has put and settle alone. */
struct msg_writes {
  msg_session base;
  msg_connection *c;
  msg_opened *o;
};

static bool joins(const msg_opened *o) {
  msg_store *store = msg_node_store(o->node);
  return (store->ops->caps(store) & MSG_CAP_HOST_TXN) != 0;
}

bool msg_batch_wanted(msg_connection *c, const msg_opened *o) {
  return !joins(o) && (!sqlite3_get_autocommit(c->db) || msg_aside_host_writes(c, o));
}

/* --- keeping a put ------------------------------------------------------------------------- */

static size_t size_of(const msg_message *m) {
  const char *const texts[] = {m->topic, m->msg, m->map, m->additional, m->key, m->group};
  size_t n = m->value.n;
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
    n += texts[i] ? strlen(texts[i]) : 0;
  return n;
}

static int keep_put(struct msg_writes *s, const msg_put *put, msg_err *err) {
  if (size_of(put->message) > MESSAGE_MAX)
    return msg_err_set(err, MSG_TOOBIG,
                       "message on topic '%s' has %zu bytes, the store takes %zu: send a reference",
                       msg_show(put->message->topic).s, size_of(put->message), MESSAGE_MAX);
  msg_written *w = msg_written_new(false);
  if (!w || msg_message_copy(&w->message, put->message) != MSG_OK) {
    msg_written_free(w);
    return msg_err_nomem(err);
  }
  w->key_until_ms = put->key_until_ms;
  return msg_outbox_keep(s->c, s->o, w, err);
}

/* A send of the same key earlier in this transaction, of which this would be another; NULL:
 * none. */
static const msg_message *find_key(struct msg_writes *s, const msg_message *m) {
  for (size_t i = 0; m->key && i < s->c->outbox.n; i++) {
    const msg_written *w = s->c->outbox.at[i].written;
    if (w && !w->settles && w->message.key && strcmp(w->message.key, m->key) == 0 &&
        strcmp(w->message.topic, m->topic) == 0 &&
        msg_opened_same_queue(s->c->outbox.at[i].opened, s->o))
      return &w->message;
  }
  return NULL;
}

static int put(msg_session *base, const msg_actor *actor, msg_put *items, size_t n, msg_err *err) {
  struct msg_writes *s = (struct msg_writes *)base;
  int rc = MSG_OK;
  (void)actor;
  for (size_t i = 0; rc == MSG_OK && i < n; i++) {
    const msg_message *first = find_key(s, items[i].message);
    items[i].id = first ? first->id : items[i].message->id;
    items[i].existed = first != NULL;
    rc = first ? MSG_OK : keep_put(s, &items[i], err);
  }
  msg_node_count(s->o->node, MSG_STAT_STORE_CALLS, -1); /* the store heard nothing yet */
  return rc;
}

/* --- keeping a settle ---------------------------------------------------------------------- */

/* Is the claim settled already, by an earlier statement of this transaction? */
static bool is_settled(const msg_connection *c, const msg_opened *o, const msg_oid *id) {
  for (size_t i = 0; i < c->outbox.n; i++) {
    const msg_written *w = c->outbox.at[i].written;
    if (!w || !w->settles || w->how.verb == MSG_SETTLE_EXTEND || c->outbox.at[i].opened != o)
      continue;
    for (size_t k = 0; k < w->n; k++)
      if (msg_oid_cmp(&w->items[k].id, id) == 0)
        return true;
  }
  return false;
}

static int by_id(const void *a, const void *b) {
  return msg_oid_cmp(&(*(msg_settle_item *const *)a)->id, &(*(msg_settle_item *const *)b)->id);
}

/* The items that are theirs by what the store says now. */
struct looking {
  struct msg_writes *s;
  const msg_actor *actor;
  enum msg_settle_verb verb;
  msg_settle_item **sorted; /* by id */
  size_t n;
  msg_written *w; /* out */
};

/* One message that is claimed. Of items of one id the first that fits is it. */
static void match(struct looking *l, const msg_message *m) {
  msg_settle_item key = {.id = m->id}, *keyp = &key;
  msg_settle_item **at = bsearch(&keyp, l->sorted, l->n, sizeof *l->sorted, by_id);
  if (!at || is_settled(l->s->c, l->s->o, &m->id))
    return;
  while (at > l->sorted && msg_oid_cmp(&at[-1]->id, &m->id) == 0)
    at--;
  for (; at < l->sorted + l->n && msg_oid_cmp(&(*at)->id, &m->id) == 0; at++) {
    bool theirs = l->verb == MSG_SETTLE_FREE ||
                  ((*at)->token ? strcmp((*at)->token, m->token) == 0
                                : m->owner && strcmp(m->owner, l->actor->node) == 0);
    if (!theirs)
      continue;
    (*at)->done = true;
    l->w->items[l->w->n].id = m->id;
    memcpy(l->w->tokens[l->w->n++], m->token, sizeof m->token);
    return;
  }
}

static int look(struct looking *l, msg_err *err) {
  msg_session *s = l->s->o->session;
  msg_filter f;
  msg_find *find;
  msg_message m;
  int rc = MSG_OK;
  msg_filter_init(&f);
  f.states = 1u << MSG_STATE_CLAIMED;
  f.bare = true;
  for (size_t i = 0; rc == MSG_OK && i < l->n; i++)
    rc = msg_filter_add_id(&f, &l->sorted[i]->id);
  if (rc != MSG_OK)
    msg_err_nomem(err);
  else
    rc = s->ops->find(s, &f, &find, err);
  msg_filter_clear(&f);
  if (rc != MSG_OK)
    return rc;
  while ((rc = find->ops->find_next(find, &m, err)) == MSG_OK) {
    if (m.state == MSG_STATE_CLAIMED && m.token[0])
      match(l, &m);
    msg_message_clear(&m);
  }
  find->ops->find_close(find);
  return rc == MSG_NOTFOUND ? MSG_OK : rc;
}

static bool room_for(struct looking *l, const msg_settle *how, size_t n) {
  msg_written *w = l->w = msg_written_new(true);
  l->sorted = msg_alloc(n * sizeof *l->sorted);
  if (!w || !l->sorted)
    return false;
  w->how = *how;
  w->how.reason = how->reason ? msg_strdup(how->reason) : NULL;
  w->items = msg_zalloc(n * sizeof *w->items);
  w->tokens = msg_zalloc(n * sizeof *w->tokens);
  return w->items && w->tokens && (w->how.reason || !how->reason);
}

static int settle(msg_session *base, const msg_actor *actor, const msg_settle *how,
                  msg_settle_item *items, size_t n, msg_err *err) {
  struct looking l = {.s = (struct msg_writes *)base, .actor = actor, .verb = how->verb, .n = n};
  int rc = room_for(&l, how, n) ? MSG_OK : msg_err_nomem(err);
  for (size_t i = 0; rc == MSG_OK && i < n; i++) {
    items[i].done = false;
    l.sorted[i] = &items[i];
  }
  if (rc == MSG_OK) {
    qsort(l.sorted, n, sizeof *l.sorted, by_id);
    rc = look(&l, err);
  }
  msg_free(l.sorted);
  if (rc == MSG_OK && l.w->n > 0)
    return msg_outbox_keep(l.s->c, l.s->o, l.w, err);
  msg_written_free(l.w);
  return rc;
}

static const struct msg_store_ops OPS = {.put = put, .settle = settle};

msg_session *msg_batch_session(msg_connection *c, msg_opened *o) {
  if (!o->writes) {
    o->writes = msg_zalloc(sizeof *o->writes);
    if (!o->writes)
      return NULL;
    *o->writes = (struct msg_writes){{&OPS}, c, o};
  }
  return &o->writes->base;
}
