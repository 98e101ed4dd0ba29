#include "ext/connection.h"

#include <string.h>

#include "base/mem.h"
#include "base/process.h"
#include "base/thread.h"
#include "ext/state.h"

/* guarded by the global lock: the connections of this process */
static msg_connection *connections;

/* --- life ---------------------------------------------------------------------------------- */

int msg_connection_new(sqlite3 *db, msg_connection **out, msg_err *err) {
  msg_connection *c = msg_zalloc(sizeof *c);
  if (!c)
    return msg_err_nomem(err);
  c->db = db;
  c->refs = 1;
  c->generation = msg_fork_generation();
  msg_global_lock();
  c->next = connections;
  connections = c;
  msg_global_unlock();
  *out = c;
  return MSG_OK;
}

msg_connection *msg_connection_find(sqlite3 *db) {
  msg_global_lock();
  msg_connection *c = connections;
  while (c && c->db != db)
    c = c->next;
  msg_global_unlock();
  return c;
}

static void unlist(msg_connection *c) {
  msg_global_lock();
  msg_connection **at = &connections;
  while (*at && *at != c)
    at = &(*at)->next;
  if (*at)
    *at = c->next;
  msg_global_unlock();
}

static bool forked(const msg_connection *c) {
  return c->generation != msg_fork_generation();
}

int msg_connection_check_fork(msg_connection *c, msg_err *err) {
  if (!forked(c))
    return MSG_OK;
  return msg_err_set(err, MSG_FORKED,
                     "this connection was opened before fork: open the database again in the "
                     "child");
}

void msg_connection_ref(msg_connection *c) {
  c->refs++;
}

void msg_opened_free(msg_opened *o) {
  if (o->aside)
    o->aside->ops->session_close(o->aside);
  if (o->session)
    o->session->ops->session_close(o->session);
  if (o->attached)
    msg_node_detach(o->node);
  if (o->node)
    msg_node_close(o->node);
  if (o->adapter->close)
    o->adapter->close(o);
  msg_free(o->beside);
  msg_free(o->writes);
  msg_free(o);
}

static void connection_free(msg_connection *c) {
  unlist(c);
  if (forked(c))
    return; /* threads, locks and files behind it are the parent's */
  msg_outbox_clear(c);
  msg_nested_close(c);
  while (c->nodes) {
    msg_opened *o = c->nodes;
    c->nodes = o->next;
    msg_opened_free(o);
  }
  for (size_t i = 0; i < MSG_CLOSED_NAMES; i++)
    msg_free(c->closed[i]);
  msg_free(c);
}

void msg_connection_unref(void *connection) {
  msg_connection *c = connection;
  if (c && --c->refs == 0)
    connection_free(c);
}

sqlite3 *msg_connection_db(msg_connection *c) {
  return c->db;
}

/* --- what is kept -------------------------------------------------------------------------- */

/* The row of a node that nobody can name again, or that lives by its announcements. By a short-
 * lived connection of our own that does not wait: the host is closing. */
static void withdraw(msg_opened *o) {
  msg_store *store = msg_node_store(o->node);
  msg_settings settings;
  msg_call call = {0};
  bool leaves = msg_node_automatic(o->node) ||
                ((store->ops->caps(store) & MSG_CAP_TEND) && msg_node_is_last(o->node));
  if (!o->announced || !leaves || !(store->ops->caps(store) & MSG_CAP_OWN) ||
      msg_node_settings(o->node, &settings, NULL) != MSG_OK)
    return;
  settings.busy_timeout_ms = 0;
  if (store->ops->session_open(store, NULL, msg_settings_queue(&settings), &settings, &call.session,
                               NULL) == MSG_OK) {
    msg_node_withdraw(o->node, &call, NULL);
    call.session->ops->session_close(call.session);
  }
  o->announced = false;
  msg_settings_clear(&settings);
}

static void leave(msg_opened *o) {
  withdraw(o);
  if (o->aside)
    o->aside->ops->session_close(o->aside);
  o->aside = NULL;
  if (o->attached)
    msg_node_detach(o->node);
  o->attached = false;
}

void msg_connection_drop_kept(msg_connection *c) {
  msg_nested_release(c);
  for (msg_opened *o = c->nodes; o; o = o->next)
    o->session->ops->session_release(o->session);
}

void msg_connection_release(msg_connection *c) {
  msg_connection_drop_kept(c);
  for (msg_opened *o = c->nodes; o && !forked(c); o = o->next)
    leave(o);
}

void msg_connection_table_up(msg_connection *c) {
  c->up++;
}

/* What a statement of a closing connection still used is given back behind the owner. */
void msg_connection_table_down(msg_connection *c) {
  if (--c->up == 0 && !c->owner_up)
    msg_connection_release(c);
}

void msg_connection_settle_down(msg_connection *c) {
  if (!c->owner_up)
    msg_connection_drop_kept(c);
}
