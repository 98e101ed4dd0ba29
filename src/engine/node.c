#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/process.h"
#include "base/str.h"
#include "engine/node_int.h"
#include "engine/registry_int.h"

static msg_node *nodes; /* guarded by the registry's lock */

static const char *const STAT_NAMES[MSG_STAT_COUNT] = {
    [MSG_STAT_SENT] = "sent",
    [MSG_STAT_DEDUPLICATED] = "deduplicated",
    [MSG_STAT_AWAITED] = "awaited",
    [MSG_STAT_CLAIMED] = "claimed",
    [MSG_STAT_ACKED] = "acked",
    [MSG_STAT_RELEASED] = "released",
    [MSG_STAT_EXTENDED] = "extended",
    [MSG_STAT_REJECTED] = "rejected",
    [MSG_STAT_LATE] = "late",
    [MSG_STAT_UNDONE] = "undone",
    [MSG_STAT_REQUESTS] = "requests",
    [MSG_STAT_ANSWERS] = "answers",
    [MSG_STAT_TIMEOUTS] = "timeouts",
    [MSG_STAT_REPLIES] = "replies",
    [MSG_STAT_STORE_CALLS] = "store_calls",
    [MSG_STAT_WAKES] = "wakes",
};

/* --- making and freeing -------------------------------------------------------------------- */

static char *automatic_id(void) {
  static atomic_uint last;
  msg_str s = MSG_STR_INIT;
  msg_str_appendf(&s, "%s-%s-%d-%u", msg_process_host(), msg_process_program(), msg_process_pid(),
                  atomic_fetch_add(&last, 1) + 1);
  return msg_str_take(&s);
}

/* What is left when nobody uses it any more. Half-built ones too. */
static void free_node(msg_node *node) {
  for (size_t i = 0; i < node->listen_count; i++)
    msg_pattern_free(node->listens[i].pattern);
  for (size_t i = 0; i < node->vain_count; i++)
    msg_pattern_free(node->vain[i]);
  if (node->cursor)
    msg_cursor_quit(node->cursor, node->changes);
  msg_recent_clear(&node->recent);
  msg_audience_clear(&node->audience);
  msg_inbox_clear(&node->inbox);
  msg_free(node->listens);
  msg_free(node->reserved);
  msg_policy_free(node->policy);
  msg_gate_free(node->changes);
  msg_cond_free(node->idle);
  msg_cond_free(node->looked_on);
  msg_mutex_free(node->mtx);
  msg_free(node->queue);
  msg_free(node->id);
  if (node->cursor)
    msg_registry_unref(node->store);
  msg_free(node);
}

static int build(msg_node *node, msg_store *store, const msg_settings *settings, msg_err *err) {
  node->store = store;
  node->process = msg_fork_generation();
  node->opened_at_ms = msg_clock_now_ms();
  node->refs = 1;
  node->automatic = settings->sender_id == NULL;
  node->id = node->automatic ? automatic_id() : msg_strdup(settings->sender_id);
  node->queue = msg_strdup(msg_settings_queue(settings));
  node->mtx = msg_mutex_new();
  node->idle = msg_cond_new();
  node->looked_on = msg_cond_new();
  node->changes = msg_gate_new();
  if (!node->id || !node->queue || !node->mtx || !node->idle || !node->looked_on || !node->changes)
    return msg_err_nomem(err);
  int rc = msg_policy_new(settings, &node->policy, err);
  if (rc != MSG_OK)
    return rc;
  node->cursor = msg_registry_cursor(store);
  if (!node->cursor)
    return msg_err_set(err, MSG_MISUSE, "open node '%s': its store is not registered",
                       msg_show(node->id).s);
  return msg_cursor_join(node->cursor, node->changes) == MSG_OK ? MSG_OK : msg_err_nomem(err);
}

/* --- opening and closing ------------------------------------------------------------------- */

/* An open node of this process, with one more reference. */
static msg_node *find_locked(const msg_store *store, const char *id, const char *queue,
                             int process) {
  for (msg_node *n = nodes; n; n = n->next) {
    if (n->process != process || n->store != store || atomic_load(&n->shut) ||
        strcmp(n->id, id) != 0 || strcmp(n->queue, queue) != 0)
      continue;
    n->refs++;
    return n;
  }
  return NULL;
}

static msg_node *find(const msg_store *store, const char *id, const char *queue) {
  int process = msg_fork_generation();
  msg_global_lock();
  msg_node *found = find_locked(store, id, queue, process);
  msg_global_unlock();
  return found;
}

/* Links it, unless another thread was faster with the same name: then that one is the result. */
static msg_node *link_node(msg_node *node) {
  msg_global_lock();
  msg_node *other = find_locked(node->store, node->id, node->queue, node->process);
  if (!other) {
    node->next = nodes;
    nodes = node;
  }
  msg_global_unlock();
  return other ? other : node;
}

int msg_node_open(msg_store *store, const msg_settings *settings, msg_node **out, msg_err *err) {
  const char *queue = msg_settings_queue(settings);
  int rc = msg_queue_check(queue, err);
  if (rc == MSG_OK && settings->sender_id)
    rc = msg_node_name_check(settings->sender_id, err);
  if (rc == MSG_OK)
    rc = msg_settings_check(settings, err);
  if (rc != MSG_OK)
    return rc;
  msg_node *node = settings->sender_id ? find(store, settings->sender_id, queue) : NULL;
  if (node) {
    *out = node;
    return MSG_OK;
  }
  node = msg_zalloc(sizeof *node);
  if (!node)
    return msg_err_nomem(err);
  rc = build(node, store, settings, err);
  if (rc != MSG_OK) {
    free_node(node);
    return rc;
  }
  *out = link_node(node);
  if (*out != node)
    free_node(node);
  return MSG_OK;
}

void msg_nodes_each(const msg_store *store, void (*fn)(msg_node *node, void *arg), void *arg) {
  int process = msg_fork_generation();
  msg_global_lock();
  for (msg_node *n = nodes; n; n = n->next)
    if (n->process == process && n->store == store)
      fn(n, arg);
  msg_global_unlock();
}

/* True: it was the last reference, and nobody finds the node any more. */
static bool drop_reference(msg_node *node) {
  msg_global_lock();
  bool last = --node->refs == 0;
  if (last) {
    msg_node **link = &nodes;
    while (*link != node)
      link = &(*link)->next;
    *link = node->next;
  }
  msg_global_unlock();
  return last;
}

void msg_node_close(msg_node *node) {
  if (!node || msg_node_check(node, NULL) != MSG_OK || !drop_reference(node))
    return;
  msg_node_shut(node);
  msg_mutex_lock(node->mtx);
  while (node->calls > 0)
    msg_cond_wait_until(node->idle, node->mtx, MSG_NEVER);
  int attached = node->attached;
  msg_mutex_unlock(node->mtx);
  msg_cursor_detach(node->cursor, attached);
  free_node(node);
}

void msg_node_shut(msg_node *node) {
  if (msg_node_check(node, NULL) != MSG_OK)
    return;
  atomic_store(&node->shut, true);
  msg_gate_move(node->changes);
}

bool msg_node_is_shut(const msg_node *node) {
  return atomic_load(&node->shut);
}

void msg_node_attach(msg_node *node) {
  if (msg_node_check(node, NULL) != MSG_OK)
    return;
  msg_mutex_lock(node->mtx);
  node->attached++;
  msg_mutex_unlock(node->mtx);
  msg_cursor_attach(node->cursor, 1);
}

void msg_node_detach(msg_node *node) {
  if (msg_node_check(node, NULL) != MSG_OK)
    return;
  msg_mutex_lock(node->mtx);
  int n = node->attached > 0 ? 1 : 0;
  node->attached -= n;
  msg_mutex_unlock(node->mtx);
  msg_cursor_detach(node->cursor, n);
}

/* --- calls --------------------------------------------------------------------------------- */

int msg_node_check(const msg_node *node, msg_err *err) {
  if (node->process == msg_fork_generation())
    return MSG_OK;
  return msg_err_set(err, MSG_FORKED,
                     "node '%s' was opened before this process was forked: open the connection and "
                     "the node again in this process",
                     msg_show(node->id).s);
}

static void drop_policy_locked(msg_policy *p) {
  if (--p->refs == 0)
    msg_policy_free(p);
}

static void take_policy_locked(msg_use *u) {
  u->policy = u->node->policy;
  u->policy->refs++;
  u->actor.settings = &u->policy->settings;
}

int msg_use_begin(msg_use *u, msg_node *node, msg_err *err) {
  int rc = msg_node_check(node, err);
  if (rc != MSG_OK)
    return rc;
  if (atomic_load(&node->shut))
    return msg_err_set(err, MSG_MISUSE, "node '%s' is closed: open it again with msg_open",
                       msg_show(node->id).s);
  u->node = node;
  u->actor.node = node->id;
  u->actor.process = msg_process_self();
  msg_mutex_lock(node->mtx);
  node->calls++;
  take_policy_locked(u);
  msg_mutex_unlock(node->mtx);
  return MSG_OK;
}

void msg_use_refresh(msg_use *u) {
  msg_mutex_lock(u->node->mtx);
  if (u->policy != u->node->policy) {
    drop_policy_locked(u->policy);
    take_policy_locked(u);
  }
  msg_mutex_unlock(u->node->mtx);
}

void msg_use_end(msg_use *u) {
  msg_node *node = u->node;
  msg_mutex_lock(node->mtx);
  drop_policy_locked(u->policy);
  if (--node->calls == 0)
    msg_cond_broadcast(node->idle);
  msg_mutex_unlock(node->mtx);
}

/* --- names, settings, pauses --------------------------------------------------------------- */

bool msg_node_is_last(const msg_node *node) {
  msg_global_lock();
  bool last = node->refs == 1;
  msg_global_unlock();
  return last;
}

const char *msg_node_id(const msg_node *node) {
  return node->id;
}

bool msg_node_automatic(const msg_node *node) {
  return node->automatic;
}

msg_store *msg_node_store(const msg_node *node) {
  return node->store;
}

int msg_node_settings(msg_node *node, msg_settings *out, msg_err *err) {
  msg_use u;
  int rc = msg_use_begin(&u, node, err);
  if (rc != MSG_OK)
    return rc;
  if (msg_settings_copy(out, &u.policy->settings) != MSG_OK)
    rc = msg_err_nomem(err);
  msg_use_end(&u);
  return rc;
}

/* Puts `made` in the place of the policy it was made from. False: another thread changed it
 * meanwhile. */
static bool replace_policy(msg_use *u, msg_policy *made) {
  msg_node *node = u->node;
  msg_mutex_lock(node->mtx);
  bool fresh = node->policy == u->policy;
  if (fresh) {
    node->policy = made;
    drop_policy_locked(u->policy); /* the node's reference; the call has its own */
    msg_inbox_lose(&node->inbox);  /* what was paused was not looked at */
  }
  msg_mutex_unlock(node->mtx);
  return fresh;
}

/* A change of the policy: configure, pause or resume. */
typedef struct change {
  int (*pauses)(const msg_policy *, const char *, msg_policy **, msg_err *); /* NULL: configure */
  const char *name; /* setting or pattern */
  const msg_value *value;
  bool is_bool;
} change;

static int make_policy(const msg_policy *p, const change *ch, msg_policy **out, msg_err *err) {
  if (ch->pauses)
    return ch->pauses(p, ch->name, out, err);
  return msg_policy_configured(p, ch->name, ch->value, ch->is_bool, out, err);
}

static int change_policy(msg_node *node, const change *ch, bool *changed, msg_err *err) {
  msg_use u;
  int rc = msg_use_begin(&u, node, err);
  if (rc != MSG_OK)
    return rc;
  msg_policy *made = NULL;
  for (;;) {
    rc = make_policy(u.policy, ch, &made, err);
    if (rc != MSG_OK || !made || replace_policy(&u, made))
      break;
    msg_policy_free(made);
    msg_use_refresh(&u);
  }
  msg_use_end(&u);
  if (rc == MSG_OK && changed)
    *changed = made != NULL;
  if (rc == MSG_OK && made)
    msg_gate_move(node->changes);
  return rc;
}

int msg_node_configure(msg_node *node, const char *name, const msg_value *v, bool is_bool,
                       msg_err *err) {
  change ch = {.name = name, .value = v, .is_bool = is_bool};
  return change_policy(node, &ch, NULL, err);
}

int msg_node_pause(msg_node *node, const char *pattern, bool *changed, msg_err *err) {
  change ch = {.pauses = msg_policy_paused, .name = pattern};
  return change_policy(node, &ch, changed, err);
}

int msg_node_resume(msg_node *node, const char *pattern, bool *changed, msg_err *err) {
  change ch = {.pauses = msg_policy_resumed, .name = pattern};
  return change_policy(node, &ch, changed, err);
}

bool msg_node_is_paused(msg_node *node, const char *topic) {
  msg_use u;
  if (msg_use_begin(&u, node, NULL) != MSG_OK)
    return false;
  bool paused = msg_policy_pauses(u.policy, topic);
  msg_use_end(&u);
  return paused;
}

/* --- counters ------------------------------------------------------------------------------ */

const char *msg_stat_name(enum msg_stat s) {
  return (unsigned)s < MSG_STAT_COUNT ? STAT_NAMES[s] : "unknown";
}

int64_t msg_node_stat(msg_node *node, enum msg_stat s) {
  return (unsigned)s < MSG_STAT_COUNT ? atomic_load(&node->stats[s]) : 0;
}

void msg_node_count(msg_node *node, enum msg_stat s, int64_t n) {
  atomic_fetch_add_explicit(&node->stats[s], n, memory_order_relaxed);
}
