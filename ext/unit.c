#include "ext/unit.h"

#include <string.h>

#include "base/mem.h"
#include "ext/nodes.h"
#include "ext/state.h"

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
  int rc = msg_opened_actor(n->o, &settings, &actor, err);
  if (rc != MSG_OK)
    return rc;
  msg_node_count(n->o->node, MSG_STAT_STORE_CALLS, 1);
  rc = verb(s, &actor, &n->u, err);
  if (rc == MSG_OK && !undo)
    msg_node_put_beside(n->o->node, n->u.puts, n->u.put_count);
  msg_settings_clear(&settings);
  return rc;
}

int msg_unit_sync(msg_connection *c, msg_err *err) {
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

void msg_unit_undo(msg_connection *c, size_t from) {
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
