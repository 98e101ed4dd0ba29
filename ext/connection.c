#include "ext/connection.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/process.h"
#include "base/str.h"
#include "base/thread.h"
#include "ext/batch.h"
#include "ext/state.h"
#include "ext/tables.h"
#include "ext/values.h"

/* immutable once connections exist */
static const msg_adapter *adapters;
static size_t adapter_count;

/* guarded by the global lock: the connections of this process */
static msg_connection *connections;

void msg_connection_set_adapters(const msg_adapter *table, size_t n) {
  adapters = table;
  adapter_count = n;
}

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

/* What was filled of a node, half-built ones too. */
static void opened_free(msg_opened *o) {
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
    opened_free(o);
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

/* The row of a node that nobody can name again, or that lives by its announcements. By a short-lived connection of our own that does
 * not wait: the host is closing. */
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

static void release_statements(msg_connection *c) {
  msg_nested_release(c);
  for (msg_opened *o = c->nodes; o; o = o->next)
    o->session->ops->session_release(o->session);
}

void msg_connection_release(msg_connection *c) {
  release_statements(c);
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
    release_statements(c);
}

/* --- opening ------------------------------------------------------------------------------- */

/* The target in force, "env:NAME" and the default looked up. Its text is never shown: it may hold
 * a password. */
static int resolve(const char *target, const char **out, msg_err *err) {
  if (!target || !target[0]) {
    target = msg_process_env("MSG_TARGET");
    if (!target || !target[0])
      target = "local";
  }
  if (strncmp(target, "env:", 4) == 0) {
    const char *value = msg_process_env(target + 4);
    if (!value || !value[0] || strncmp(value, "env:", 4) == 0)
      return msg_err_set(err, MSG_INVALID,
                         "target: environment variable '%s' is %s: set it to a target",
                         msg_show(target + 4).s, value && value[0] ? "'env:' again" : "not set");
    target = value;
  }
  *out = target;
  return MSG_OK;
}

static int find_adapter(const char *target, const msg_adapter **out, msg_err *err) {
  size_t n = strcspn(target, ":");
  for (size_t i = 0; i < adapter_count; i++) {
    if (strlen(adapters[i].scheme) == n && strncmp(adapters[i].scheme, target, n) == 0) {
      *out = &adapters[i];
      return MSG_OK;
    }
  }
  if (strncmp(target, "mongodb:", 8) == 0 || strncmp(target, "mongodb+srv:", 12) == 0)
    return msg_err_set(err, MSG_UNSUPPORTED,
                       "target 'mongodb': this build has the local store alone: use 'local'");
  char scheme[32];
  snprintf(scheme, sizeof scheme, "%.*s", (int)(n < sizeof scheme ? n : sizeof scheme - 1), target);
  return msg_err_set(
      err, MSG_INVALID,
      "unknown target '%s': give 'local', 'local:SCHEMA', 'mongodb://...' or 'env:NAME'",
      msg_show(scheme).s);
}

static msg_opened *find_node(msg_connection *c, const char *name) {
  msg_opened *o = c->nodes;
  while (o && strcmp(msg_node_id(o->node), name) != 0)
    o = o->next;
  return o;
}

static bool same_queue(const msg_opened *a, const msg_opened *b) {
  msg_settings sa, sb;
  if (msg_node_settings(a->node, &sa, NULL) != MSG_OK)
    return false;
  bool same = msg_node_settings(b->node, &sb, NULL) == MSG_OK;
  if (same) {
    same = strcmp(msg_settings_queue(&sa), msg_settings_queue(&sb)) == 0;
    msg_settings_clear(&sb);
  }
  msg_settings_clear(&sa);
  return same;
}

/* The same node, or one as nameless for the same place: msg_open twice makes no second participant. */
static bool is_same(const msg_opened *a, const msg_opened *b) {
  if (a->node == b->node)
    return true;
  return msg_node_automatic(a->node) && msg_node_automatic(b->node) &&
         msg_node_store(a->node) == msg_node_store(b->node) && same_queue(a, b);
}

/* Appends, unless this connection has the node already. */
static msg_opened *adopt(msg_connection *c, msg_opened *o) {
  msg_opened **at = &c->nodes;
  for (; *at; at = &(*at)->next) {
    if (is_same(*at, o)) {
      opened_free(o);
      return *at;
    }
  }
  *at = o;
  return o;
}

int msg_connection_open(msg_connection *c, const char *target, const msg_settings *settings,
                        msg_opened **out, msg_err *err) {
  const msg_adapter *adapter = NULL;
  int rc = msg_connection_check_fork(c, err);
  if (rc == MSG_OK)
    rc = resolve(target, &target, err);
  if (rc == MSG_OK)
    rc = find_adapter(target, &adapter, err);
  if (rc != MSG_OK)
    return rc;
  msg_opened *o = msg_zalloc(sizeof *o);
  if (!o)
    return msg_err_nomem(err);
  o->adapter = adapter;
  rc = adapter->open(c, target, settings, o, err);
  if (rc != MSG_OK) {
    opened_free(o);
    return rc;
  }
  *out = c->current = adopt(c, o);
  c->current_closed = false;
  return MSG_OK;
}

/* The first verb of a connection: MSG_TARGET and MSG_OPTIONS, or the defaults. */
static int open_default(msg_connection *c, msg_opened **out, msg_err *err) {
  msg_settings settings;
  msg_settings_init(&settings);
  const char *json = msg_process_env("MSG_OPTIONS");
  int rc = MSG_OK;
  if (json && json[0]) {
    msg_value v = msg_value_text(json);
    rc = msg_settings_read_text(c, &v, &settings, err);
    if (rc != MSG_OK && rc != MSG_NOMEM && err)
      msg_err_set(err, err->rc, "environment variable MSG_OPTIONS: %s", err->text);
  }
  if (rc == MSG_OK)
    rc = msg_connection_open(c, NULL, &settings, out, err);
  msg_settings_clear(&settings);
  return rc;
}

/* --- finding ------------------------------------------------------------------------------- */

static bool was_closed(const msg_connection *c, const char *name) {
  for (size_t i = 0; i < MSG_CLOSED_NAMES; i++)
    if (c->closed[i] && strcmp(c->closed[i], name) == 0)
      return true;
  return false;
}

static int find_named(msg_connection *c, const char *name, msg_opened **out, msg_err *err) {
  *out = find_node(c, name);
  if (*out)
    return MSG_OK;
  if (was_closed(c, name))
    return msg_err_set(err, MSG_MISUSE, "node '%s' was closed: open it again by msg_open",
                       msg_show(name).s);
  return msg_err_set(err, MSG_INVALID,
                     "node '%s' is not open on this connection: open it by msg_open with option "
                     "sender_id",
                     msg_show(name).s);
}

static int find_current(msg_connection *c, msg_opened **out, msg_err *err) {
  *out = c->current;
  if (*out)
    return MSG_OK;
  if (c->current_closed)
    return msg_err_set(err, MSG_MISUSE, "the node was closed: open one by msg_open");
  return open_default(c, out, err);
}

int msg_connection_node(msg_connection *c, const char *name, msg_opened **out, msg_err *err) {
  msg_opened *o = NULL;
  int rc = msg_connection_check_fork(c, err);
  if (rc == MSG_OK)
    rc = msg_outbox_own(c, err);
  if (rc == MSG_OK)
    rc = name ? find_named(c, name, &o, err) : find_current(c, &o, err);
  if (rc == MSG_OK && o->adapter->check)
    rc = o->adapter->check(o, err);
  if (rc == MSG_OK)
    rc = msg_connection_tables(c, NULL, err);
  if (rc == MSG_OK)
    *out = o;
  return rc;
}

msg_opened *msg_connection_next(msg_connection *c, msg_opened *after) {
  return after ? after->next : c->nodes;
}

/* --- closing ------------------------------------------------------------------------------- */

static void remember_closed(msg_connection *c, const char *name) {
  if (was_closed(c, name))
    return;
  char **slot = &c->closed[c->closed_next++ % MSG_CLOSED_NAMES];
  msg_free(*slot);
  *slot = msg_strdup(name); /* missing: the error names it unknown */
}

static void unlink_node(msg_connection *c, msg_opened *o) {
  msg_opened **at = &c->nodes;
  while (*at != o)
    at = &(*at)->next;
  *at = o->next;
  if (c->current == o) {
    c->current = NULL;
    c->current_closed = true;
  }
}

int msg_connection_close_node(msg_connection *c, const char *name, bool *closed, msg_err *err) {
  int rc = msg_connection_check_fork(c, err);
  if (rc != MSG_OK)
    return rc;
  msg_opened *o = name ? find_node(c, name) : c->current;
  *closed = o != NULL;
  if (!o)
    return MSG_OK;
  if (o->readers > 0)
    return msg_err_set(err, MSG_MISUSE,
                       "node '%s' is being read by a running statement: finish that first",
                       msg_show(msg_node_id(o->node)).s);
  if (msg_batch_pending(c, o))
    return msg_err_set(
        err, MSG_MISUSE,
        "node '%s' has sent or settled in this transaction: COMMIT or ROLLBACK first",
        msg_show(msg_node_id(o->node)).s);
  msg_call call = {.session = o->session, .interrupted = msg_connection_interrupted, .arg = c};
  if (o->announced)
    msg_node_withdraw(o->node, &call, NULL);
  msg_node_shut(o->node);
  remember_closed(c, msg_node_id(o->node));
  unlink_node(c, o);
  msg_outbox_forget(c, o);
  opened_free(o);
  return MSG_OK;
}
