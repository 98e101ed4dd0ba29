#include "ext/nodes.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/process.h"
#include "base/str.h"
#include "ext/state.h"
#include "ext/temp.h"
#include "ext/values.h"

/* immutable once connections exist */
static const msg_adapter *adapters;
static size_t adapter_count;

void msg_connection_set_adapters(const msg_adapter *table, size_t n) {
  adapters = table;
  adapter_count = n;
}

static void drop(msg_connection *c, msg_opened *o) {
  msg_opened **at = &c->nodes;
  while (*at != o)
    at = &(*at)->next;
  *at = o->next;
  if (c->current == o) {
    c->current = NULL;
    c->current_closed = true;
  }
  msg_outbox_forget(c, o);
  msg_opened_free(o);
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

bool msg_opened_same_queue(const msg_opened *a, const msg_opened *b) {
  msg_settings sa, sb;
  if (a == b)
    return true;
  if (msg_node_store(a->node) != msg_node_store(b->node) ||
      msg_node_settings(a->node, &sa, NULL) != MSG_OK)
    return false;
  bool same = msg_node_settings(b->node, &sb, NULL) == MSG_OK;
  if (same) {
    same = strcmp(msg_settings_queue(&sa), msg_settings_queue(&sb)) == 0 &&
           strcmp(msg_settings_layout(&sa), msg_settings_layout(&sb)) == 0;
    msg_settings_clear(&sb);
  }
  msg_settings_clear(&sa);
  return same;
}

/* The same node, or one as nameless for the same place: msg_open twice makes no second participant.
 * */
static bool is_same(const msg_opened *a, const msg_opened *b) {
  if (a->node == b->node)
    return true;
  return msg_node_automatic(a->node) && msg_node_automatic(b->node) && msg_opened_same_queue(a, b);
}

static bool is_in_use(const msg_connection *c, const msg_opened *o) {
  return o->readers > 0 || msg_outbox_holds(&c->outbox, o);
}

/* What another connection closed is not open twice when it is opened again. */
static void drop_shut(msg_connection *c) {
  msg_opened *next;
  for (msg_opened *o = c->nodes; o; o = next) {
    next = o->next;
    if (msg_node_is_shut(o->node) && !is_in_use(c, o))
      drop(c, o);
  }
}

/* Appends, unless this connection has the node already. */
static void adopt(msg_connection *c, msg_opened *o, msg_opening *out) {
  msg_opened **at = &c->nodes;
  while (*at && !is_same(*at, o))
    at = &(*at)->next;
  *out = (msg_opening){.o = *at ? *at : o, .is_new = !*at, .before = c->current};
  if (out->is_new)
    *at = o;
  else
    msg_opened_free(o);
}

int msg_connection_open(msg_connection *c, const char *target, const msg_settings *settings,
                        msg_opening *out, msg_err *err) {
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
    msg_opened_free(o);
    return rc;
  }
  drop_shut(c);
  adopt(c, o, out);
  c->current = out->o;
  c->current_closed = false;
  return MSG_OK;
}

/* The first verb of a connection: MSG_TARGET and MSG_OPTIONS, or the defaults. */
static int open_default(msg_connection *c, msg_opened **out, msg_err *err) {
  msg_settings settings;
  msg_opening opening;
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
    rc = msg_connection_open(c, NULL, &settings, &opening, err);
  if (rc == MSG_OK)
    *out = opening.o;
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

/* From o on. */
static msg_opened *find_from(msg_opened *o, const char *name) {
  while (o && strcmp(msg_node_id(o->node), name) != 0)
    o = o->next;
  return o;
}

/* "queue 'msg' of local:main" */
static msg_shown place_of(const msg_opened *o) {
  msg_settings settings;
  char text[sizeof(msg_shown)];
  bool known = msg_node_settings(o->node, &settings, NULL) == MSG_OK;
  snprintf(text, sizeof text, "queue '%s' of %s%s%s", known ? msg_settings_queue(&settings) : "?",
           o->adapter->scheme, o->schema ? ":" : "", o->schema ? o->schema : "");
  if (known)
    msg_settings_clear(&settings);
  return msg_show(text);
}

/* A name that two stores or queues share means neither. *out NULL: none is open. */
static int find_only(msg_connection *c, const char *name, msg_opened **out, msg_err *err) {
  *out = find_from(c->nodes, name);
  msg_opened *other = *out ? find_from((*out)->next, name) : NULL;
  if (!other)
    return MSG_OK;
  return msg_err_set(err, MSG_INVALID,
                     "node '%s' is open twice, on %s and on %s: close the current one by "
                     "msg_close(), or open them with different sender ids",
                     msg_show(name).s, place_of(*out).s, place_of(other).s);
}

static int find_named(msg_connection *c, const char *name, msg_opened **out, msg_err *err) {
  int rc = find_only(c, name, out, err);
  if (rc != MSG_OK || *out)
    return rc;
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

static int check(msg_opened *o, msg_err *err) {
  return o->adapter->check ? o->adapter->check(o, err) : MSG_OK;
}

static int make_ready(msg_connection *c, msg_opened *o, msg_err *err) {
  int rc = check(o, err);
  return rc == MSG_OK ? msg_temp_tables_make(c, NULL, err) : rc;
}

int msg_connection_node(msg_connection *c, const char *name, msg_opened **out, msg_err *err) {
  msg_opened *o = NULL;
  int rc = msg_connection_check_fork(c, err);
  if (rc == MSG_OK)
    rc = msg_outbox_own(c, err);
  if (rc == MSG_OK)
    rc = name ? find_named(c, name, &o, err) : find_current(c, &o, err);
  if (rc == MSG_OK)
    rc = make_ready(c, o, err);
  if (rc == MSG_OK)
    *out = o;
  return rc;
}

int msg_connection_again(msg_connection *c, msg_opened *o, msg_err *err) {
  const msg_opened *at = c->nodes;
  int rc = msg_connection_check_fork(c, err);
  if (rc != MSG_OK)
    return rc;
  while (at && at != o)
    at = at->next;
  if (!at)
    return msg_err_set(err, MSG_MISUSE,
                       "the node through which the row was read was closed: read it again");
  return make_ready(c, o, err);
}

int msg_opened_actor(msg_opened *o, msg_settings *settings, msg_actor *out, msg_err *err) {
  int rc = msg_node_settings(o->node, settings, err);
  if (rc == MSG_OK)
    *out = (msg_actor){msg_node_id(o->node), msg_process_self(), settings};
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

int msg_connection_close_node(msg_connection *c, const char *name, bool *closed, msg_err *err) {
  int rc = msg_connection_check_fork(c, err);
  if (rc != MSG_OK)
    return rc;
  msg_opened *o = c->current;
  if (name)
    rc = find_only(c, name, &o, err);
  if (rc != MSG_OK)
    return rc;
  *closed = o != NULL;
  if (!o)
    return MSG_OK;
  if (o->readers > 0)
    return msg_err_set(err, MSG_MISUSE,
                       "node '%s' is being read by a running statement: finish that first",
                       msg_show(msg_node_id(o->node)).s);
  if (msg_outbox_holds(&c->outbox, o))
    return msg_err_set(
        err, MSG_MISUSE,
        "node '%s' has sent or settled in this transaction: COMMIT or ROLLBACK first",
        msg_show(msg_node_id(o->node)).s);
  msg_call call = {.session = o->session, .interrupted = msg_nested_interrupted, .arg = c};
  if (o->announced && check(o, NULL) == MSG_OK) /* not from another's tables */
    msg_node_withdraw(o->node, &call, NULL);
  msg_node_shut(o->node);
  remember_closed(c, msg_node_id(o->node));
  drop(c, o);
  return MSG_OK;
}

void msg_connection_refuse(msg_connection *c, const msg_opening *opening) {
  msg_opened *o = opening->o;
  c->current = opening->before;
  c->current_closed = !c->current;
  if (!opening->is_new || is_in_use(c, o))
    return;
  msg_call call = {.session = o->session, .interrupted = msg_nested_interrupted, .arg = c};
  if (o->announced && msg_node_is_last(o->node))
    msg_node_withdraw(o->node, &call, NULL);
  remember_closed(c, msg_node_id(o->node));
  drop(c, o);
}
