#include "ext/batch.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "ext/aside.h"
#include "ext/beside.h"
#include "ext/calls.h"
#include "ext/state.h"

/* Largest message; MongoDB takes 16 MiB a document. */
#define MESSAGE_MAX ((size_t)16 * 1024 * 1024 - 64 * 1024)

typedef char token_text[MSG_OID_HEX + 1];

struct msg_written {
  bool settles;
  /* a put */
  msg_message message;
  int64_t key_until_ms;
  /* a settle */
  msg_settle how; /* reason owned */
  msg_settle_item *items;
  token_text *tokens; /* behind items[].token */
  size_t n;
};

/* The session that a call's writes go to: it has put and settle alone. */
struct msg_writes {
  msg_session base;
  msg_connection *c;
  msg_opened *o;
};

void msg_written_free(msg_written *w) {
  if (!w)
    return;
  msg_message_clear(&w->message);
  msg_free((char *)w->how.reason);
  msg_free(w->items);
  msg_free(w->tokens);
  msg_free(w);
}

static msg_written *written_new(bool settles) {
  msg_written *w = msg_zalloc(sizeof *w);
  if (!w)
    return NULL;
  msg_message_init(&w->message);
  w->settles = settles;
  return w;
}

static bool joins(const msg_opened *o) {
  msg_store *store = msg_node_store(o->node);
  return (store->ops->caps(store) & MSG_CAP_HOST_TXN) != 0;
}

bool msg_batch_wanted(msg_connection *c, const msg_opened *o) {
  return !joins(o) && (!sqlite3_get_autocommit(c->db) || msg_aside_host_writes(c, o));
}

bool msg_batch_pending(const msg_connection *c, const msg_opened *o) {
  for (size_t i = 0; i < c->outbox.n; i++)
    if (c->outbox.at[i].opened == o && c->outbox.at[i].written)
      return true;
  return false;
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
  msg_written *w = written_new(false);
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
  msg_written *w = l->w = written_new(true);
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

static const struct msg_store_ops OPS = {
    .version = 1, .kind = "batch", .put = put, .settle = settle};

msg_session *msg_batch_session(msg_connection *c, msg_opened *o) {
  if (!o->writes) {
    o->writes = msg_zalloc(sizeof *o->writes);
    if (!o->writes)
      return NULL;
    *o->writes = (struct msg_writes){{&OPS}, c, o};
  }
  return &o->writes->base;
}

/* --- units --------------------------------------------------------------------------------- */

/* A unit of one queue, made of batches of the outbox that stay where they are. */
struct unit {
  msg_opened *o; /* through which it goes */
  msg_unit u;
  size_t settle_cap, put_cap;
};

static void unit_clear(struct unit *n) {
  for (size_t i = 0; i < n->u.settle_count; i++)
    msg_free(n->u.settles[i].items);
  msg_free(n->u.settles);
  msg_free(n->u.puts);
}

static bool same_way(const msg_settle *a, const msg_settle *b) {
  return a->verb == b->verb && a->delay_ms == b->delay_ms && a->lease_ms == b->lease_ms &&
         (a->reason == b->reason || (a->reason && b->reason && strcmp(a->reason, b->reason) == 0));
}

static int unit_add_put(struct unit *n, const msg_written *w) {
  int rc = msg_grow(&n->u.puts, &n->put_cap, n->u.put_count + 1, sizeof *n->u.puts);
  if (rc == MSG_OK)
    n->u.puts[n->u.put_count++] =
        (msg_put){.message = &w->message, .key_until_ms = w->key_until_ms, .id = w->message.id};
  return rc;
}

/* Settles of one kind that follow each other are one. */
static int unit_add_settle(struct unit *n, const msg_written *w) {
  size_t at = n->u.settle_count;
  if (at == 0 || !same_way(&n->u.settles[at - 1].how, &w->how)) {
    if (msg_grow(&n->u.settles, &n->settle_cap, at + 1, sizeof *n->u.settles) != MSG_OK)
      return MSG_NOMEM;
    n->u.settles[at] = (struct msg_unit_settle){.how = w->how};
    n->u.settle_count++;
  }
  struct msg_unit_settle *s = &n->u.settles[n->u.settle_count - 1];
  msg_settle_item *grown = msg_resize(s->items, (s->n + w->n) * sizeof *grown);
  if (!grown)
    return MSG_NOMEM;
  s->items = grown;
  for (size_t i = 0; i < w->n; i++)
    s->items[s->n++] = (msg_settle_item){.id = w->items[i].id, .token = w->tokens[i]};
  return MSG_OK;
}

enum { UNSENT, TRIED };

static bool is_due(const msg_batch *b, int which) {
  return b->written && b->opened && (which == TRIED ? b->tried : !b->tried) && !b->taken;
}

/* The first batch from `from` on that is due, and all of its queue, in order. n->o NULL: none is.
 * What is in it is `taken`. */
static int unit_gather(msg_connection *c, size_t from, int which, struct unit *n) {
  msg_outbox *box = &c->outbox;
  int rc = MSG_OK;
  *n = (struct unit){0};
  for (size_t i = from; rc == MSG_OK && i < box->n; i++) {
    msg_batch *b = &box->at[i];
    if (!is_due(b, which) || (n->o && !msg_opened_same_queue(n->o, b->opened)))
      continue;
    n->o = b->opened;
    b->taken = true;
    rc = b->written->settles ? unit_add_settle(n, b->written) : unit_add_put(n, b->written);
  }
  return rc;
}

/* What was taken has been tried, so that a second xSync sends nothing twice, or is not to be undone
 * again. */
static void release_taken(msg_connection *c, bool tried) {
  for (size_t i = 0; i < c->outbox.n; i++) {
    if (c->outbox.at[i].taken)
      c->outbox.at[i].tried = tried;
    c->outbox.at[i].taken = false;
  }
}

typedef int (*unit_verb)(msg_session *, const msg_actor *, msg_unit *, msg_err *);

static int unit_run(struct unit *n, bool undo, msg_err *err) {
  msg_session *s = n->o->session;
  unit_verb verb = undo ? s->ops->undo : s->ops->apply;
  msg_settings settings;
  msg_actor actor;
  int rc = msg_connection_actor(n->o, &settings, &actor, err);
  if (rc != MSG_OK)
    return rc;
  msg_node_count(n->o->node, MSG_STAT_STORE_CALLS, 1);
  rc = verb(s, &actor, &n->u, err);
  if (rc == MSG_OK && !undo)
    msg_node_put_beside(n->o->node, n->u.puts, n->u.put_count);
  msg_settings_clear(&settings);
  return rc;
}

int msg_batch_sync(msg_connection *c, msg_err *err) {
  struct unit n;
  int rc;
  do {
    rc = unit_gather(c, 0, UNSENT, &n);
    if (rc != MSG_OK)
      msg_err_nomem(err);
    else if (n.o)
      rc = unit_run(&n, false, err);
    c->outbox.failed = rc != MSG_OK && n.u.reached;
    release_taken(c, rc == MSG_OK || n.u.reached);
    unit_clear(&n);
  } while (rc == MSG_OK && n.o);
  if (rc == MSG_BUSY)
    rc = MSG_UNAVAILABLE;
  if (err)
    err->rc = rc;
  return rc;
}

void msg_batch_undo(msg_connection *c, size_t from) {
  struct unit n;
  int rc;
  do {
    msg_err err = MSG_ERR_INIT;
    rc = unit_gather(c, from, TRIED, &n);
    n.u.reached = c->outbox.failed;
    if (rc == MSG_OK && n.o && unit_run(&n, true, &err) != MSG_OK)
      sqlite3_log(SQLITE_WARNING, "msg: rolled back, but what was sent may stay: %s", err.text);
    release_taken(c, false);
    unit_clear(&n);
  } while (rc == MSG_OK && n.o);
}

void msg_batch_give_back(const msg_batch *b) {
  msg_opened *o = b->opened;
  msg_settings settings;
  msg_actor actor;
  msg_settle how = {.verb = MSG_SETTLE_RELEASE};
  msg_settle_item *items = msg_zalloc(b->n * sizeof *items);
  if (items && msg_connection_actor(o, &settings, &actor, NULL) == MSG_OK) {
    for (size_t i = 0; i < b->n; i++)
      items[i].id = b->ids[i];
    msg_node_count(o->node, MSG_STAT_UNDONE, (int64_t)b->n);
    msg_node_count(o->node, MSG_STAT_STORE_CALLS, 1);
    o->session->ops->settle(o->session, &actor, &how, items, b->n, NULL); /* else the lease ends */
    msg_settings_clear(&settings);
  }
  msg_free(items);
}
