#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "engine/offer.h"

/* --- listening ----------------------------------------------------------------------------- */

static msg_listening *find_listen_locked(const msg_node *node, const char *pattern) {
  for (size_t i = 0; i < node->listen_count; i++)
    if (strcmp(msg_pattern_text(node->listens[i].pattern), pattern) == 0)
      return &node->listens[i];
  return NULL;
}

static bool knows_listen(msg_node *node, const char *pattern) {
  msg_mutex_lock(node->mtx);
  bool known = find_listen_locked(node, pattern) != NULL;
  msg_mutex_unlock(node->mtx);
  return known;
}

/* Without memory it is asked again next time: no harm done. Nothing of it was pushed yet. */
static void remember_listen(msg_node *node, const char *pattern) {
  msg_listening new = {.since_ms = msg_clock_mono_ms()};
  if (msg_pattern_new(pattern, &new.pattern, NULL) != MSG_OK)
    return;
  msg_mutex_lock(node->mtx);
  if (!find_listen_locked(node, pattern) &&
      msg_grow(&node->listens, &node->listen_cap, node->listen_count + 1, sizeof *node->listens) ==
          MSG_OK) {
    node->listens[node->listen_count++] = new;
    new.pattern = NULL;
    node->looked.epoch = 0;
  }
  msg_mutex_unlock(node->mtx);
  msg_pattern_free(new.pattern);
}

static void forget_listen(msg_node *node, const char *pattern) {
  msg_pattern *old = NULL;
  msg_mutex_lock(node->mtx);
  msg_listening *l = find_listen_locked(node, pattern);
  if (l) {
    old = l->pattern;
    *l = node->listens[--node->listen_count];
  }
  msg_inbox_lose(&node->inbox); /* what came by it is not wanted any more */
  msg_mutex_unlock(node->mtx);
  msg_pattern_free(old);
}

void msg_node_forget(msg_node *node) {
  if (msg_node_check(node, NULL) != MSG_OK)
    return;
  msg_mutex_lock(node->mtx);
  for (size_t i = 0; i < node->listen_count; i++)
    msg_pattern_free(node->listens[i].pattern);
  node->listen_count = 0;
  msg_inbox_lose(&node->inbox);
  msg_mutex_unlock(node->mtx);
}

static int listen(msg_use *u, msg_call *call, const char *pattern, bool catch_up, msg_err *err) {
  int rc = MSG_STORE(u, msg_call_looks(call), listen, &u->actor, pattern, catch_up, err);
  if (rc == MSG_OK || rc == MSG_EXISTS)
    remember_listen(u->node, pattern);
  return rc;
}

/* Refuses what no pattern can be, before the store hears of it. */
static int check_pattern(const char *pattern, msg_err *err) {
  msg_pattern *compiled;
  int rc = msg_pattern_new(pattern, &compiled, err);
  if (rc == MSG_OK)
    msg_pattern_free(compiled);
  return rc;
}

int msg_node_listen(msg_node *node, msg_call *call, const char *pattern, const bool *catch_up,
                    msg_err *err) {
  msg_use u;
  int rc = check_pattern(pattern, err);
  if (rc == MSG_OK)
    rc = msg_use_begin(&u, node, err);
  if (rc != MSG_OK)
    return rc;
  rc = listen(&u, call, pattern, catch_up ? *catch_up : msg_settings_catch_up(&u.policy->settings),
              err);
  msg_use_end(&u);
  if (rc == MSG_OK || rc == MSG_EXISTS)
    msg_gate_move(node->changes); /* for those that await everything listened to */
  return rc;
}

int msg_node_unlisten(msg_node *node, msg_call *call, const char *pattern, msg_err *err) {
  msg_use u;
  int rc = msg_use_begin(&u, node, err);
  if (rc != MSG_OK)
    return rc;
  rc = MSG_STORE(&u, call->session, unlisten, &u.actor, pattern, err);
  if (rc == MSG_OK || rc == MSG_NOTFOUND)
    forget_listen(node, pattern);
  msg_use_end(&u);
  return rc;
}

/* --- awaiting ------------------------------------------------------------------------------ */

static int look_for_await(msg_look *l, const msg_pattern *pattern, size_t max, msg_list *out,
                          msg_err *err) {
  const msg_policy *policy = l->use->policy;
  msg_unseen query = {.pattern = pattern,
                      .paused = (const msg_pattern *const *)policy->paused,
                      .paused_count = policy->paused_count,
                      .max = max};
  return msg_look_take(l, &query, out, err);
}

/* Looks until something came or the wait is over. */
static int await(msg_look *l, msg_wait *w, const msg_pattern *pattern, size_t max, msg_list *out,
                 msg_err *err) {
  const size_t before = out->n;
  msg_use *u = l->use;
  int rc = MSG_OK;
  if (pattern && !knows_listen(u->node, msg_pattern_text(pattern)))
    rc = listen(u, l->call, msg_pattern_text(pattern), msg_settings_catch_up(&u->policy->settings),
                err);
  if (rc == MSG_EXISTS)
    rc = MSG_OK;
  l->goes_on = w->waits || l->call->goes_on;
  while (rc == MSG_OK) {
    msg_wait_mark(w);
    l->asked = false;
    rc = look_for_await(l, pattern, max, out, err);
    if (rc == MSG_OK && out->n == before && w->last && !l->asked) { /* whatever was told */
      l->goes_on = false;
      l->looked.epoch = 0;
      rc = look_for_await(l, pattern, max, out, err);
    }
    if (rc != MSG_OK || out->n > before)
      break;
    rc = msg_wait_again(w, err);
  }
  if (rc == MSG_OK)
    msg_look_handed(u->node, out, before, MSG_STAT_AWAITED);
  return rc;
}

int msg_node_await(msg_node *node, msg_call *call, const char *pattern, int64_t timeout_ms,
                   size_t max, msg_list *out, msg_err *err) {
  msg_use u;
  msg_wait w;
  msg_look look;
  msg_pattern *compiled = NULL;
  int rc = msg_use_begin(&u, node, err);
  if (rc != MSG_OK)
    return rc;
  if (max == 0)
    rc = msg_err_set(err, MSG_INVALID, "await: a maximum of 0 messages: give 1 or more");
  if (rc == MSG_OK && pattern)
    rc = msg_pattern_new(pattern, &compiled, err);
  if (rc == MSG_OK)
    rc = msg_wait_begin(&w, &u, call, "await", pattern, timeout_ms, err);
  if (rc == MSG_OK) {
    msg_look_begin(&look, &u, call);
    rc = await(&look, &w, compiled, max, out, err);
    msg_look_end(&look);
    msg_wait_end(&w);
  }
  msg_pattern_free(compiled);
  msg_use_end(&u);
  return rc;
}

/* --- claims that found nothing ------------------------------------------------------------- */

/* Takes the pattern of the same text out; NULL if there is none. */
static msg_pattern *take_vain_locked(msg_node *node, const char *text) {
  for (size_t i = 0; i < node->vain_count; i++) {
    msg_pattern *p = node->vain[i];
    if (strcmp(msg_pattern_text(p), text) != 0)
      continue;
    node->vain_count--;
    memmove(&node->vain[i], &node->vain[i + 1], (node->vain_count - i) * sizeof node->vain[0]);
    return p;
  }
  return NULL;
}

/* Remembers `p` (taken) as claimed in vain, the latest; or forgets its text. */
static void note_vain(msg_node *node, msg_pattern *p, bool vain) {
  msg_pattern *old, *oldest = NULL;
  msg_mutex_lock(node->mtx);
  old = node->vain_count > 0 ? take_vain_locked(node, msg_pattern_text(p)) : NULL;
  if (vain && node->vain_count == MSG_VAIN_MAX)
    oldest = take_vain_locked(node, msg_pattern_text(node->vain[0]));
  if (vain)
    node->vain[node->vain_count++] = p;
  msg_mutex_unlock(node->mtx);
  msg_pattern_free(old);
  msg_pattern_free(oldest);
  if (!vain)
    msg_pattern_free(p);
}

bool msg_node_claimed_in_vain(msg_node *node, const char *topic) {
  if (msg_node_check(node, NULL) != MSG_OK)
    return false;
  bool vain = false;
  msg_mutex_lock(node->mtx);
  for (size_t i = 0; i < node->vain_count && !vain; i++)
    vain = msg_pattern_match(node->vain[i], topic);
  msg_mutex_unlock(node->mtx);
  return vain;
}

/* --- claiming ------------------------------------------------------------------------------ */

/* One claim, at work. */
typedef struct claiming {
  msg_use *use;
  msg_call *call;
  msg_wait *wait;
  msg_claim *query;
  msg_bid bid; /* while it waits */
  /* the last look at the store: what came since is offered */
  uint32_t epoch;
  const msg_policy *policy;
} claiming;

/* A claim writes, so a waiter asks first whether there is something: fifty idle ones cost no
 * write. Where what comes is pushed, looks are rare. */
static int claim_by_look(claiming *c, msg_list *out, msg_err *err) {
  msg_use *u = c->use;
  bool there = true;
  int rc = MSG_OK;
  c->epoch = msg_cursor_epoch(u->node->cursor);
  c->policy = u->policy;
  c->query->offered_count = 0;
  if (c->wait->waits && c->epoch == 0)
    rc = MSG_STORE(u, msg_call_looks(c->call), claimable, &u->actor, c->query, &there, err);
  if (rc == MSG_OK && there)
    rc = MSG_STORE(u, c->call->session, claim, &u->actor, c->query, out, err);
  return rc;
}

/* What goes wrong with them is for whoever looks. */
static int claim_offered(claiming *c, msg_list *out, msg_err *err) {
  msg_use *u = c->use;
  msg_oid *ids = NULL;
  int64_t now_ms = c->wait->last ? MSG_NEVER : msg_clock_mono_ms();
  if (msg_bid_take(&c->bid, now_ms, &ids, &c->query->offered_count) != MSG_OK)
    return claim_by_look(c, out, err);
  int rc = MSG_OK;
  c->query->offered = ids;
  if (c->query->offered_count > 0)
    rc = MSG_STORE(u, c->call->session, claim, &u->actor, c->query, out, err);
  if (rc != MSG_OK)
    msg_cursor_lose(u->node->cursor);
  c->query->offered = NULL;
  c->query->offered_count = 0;
  msg_free(ids);
  return rc;
}

static int look_for_claim(claiming *c, msg_list *out, msg_err *err) {
  msg_use *u = c->use;
  c->query->paused = (const msg_pattern *const *)u->policy->paused;
  c->query->paused_count = u->policy->paused_count;
  bool offered = c->wait->waits && c->epoch != 0 && c->policy == u->policy &&
                 c->epoch == msg_cursor_epoch(u->node->cursor) && !msg_bid_look(&c->bid);
  return offered ? claim_offered(c, out, err) : claim_by_look(c, out, err);
}

static int claim_until(claiming *c, msg_list *out, msg_err *err) {
  const size_t before = out->n;
  int rc = MSG_OK;
  while (rc == MSG_OK) {
    msg_wait_mark(c->wait);
    rc = look_for_claim(c, out, err);
    if (rc != MSG_OK || out->n > before)
      break;
    if (c->wait->waits)
      msg_wait_until(c->wait, msg_bid_due(&c->bid));
    rc = msg_wait_again(c->wait, err);
  }
  return rc;
}

static int claim(msg_use *u, msg_call *call, msg_wait *w, msg_claim *query, msg_list *out,
                 msg_err *err) {
  const size_t before = out->n;
  claiming c = {.use = u, .call = call, .wait = w, .query = query};
  query->waits = w->waits;
  if (w->waits)
    msg_bid_open(&c.bid, u->node, query->pattern, query->count);
  int rc = claim_until(&c, out, err);
  if (w->waits)
    msg_bid_close(&c.bid, out, before);
  if (rc == MSG_OK)
    msg_look_handed(u->node, out, before, MSG_STAT_CLAIMED);
  return rc;
}

static int check_claim(const msg_claim *query, const char *pattern, msg_err *err) {
  if (query->count == 0)
    return msg_err_set(err, MSG_INVALID, "claim on '%s': a count of 0: give 1 or more",
                       msg_show(pattern).s);
  if (query->lease_ms <= 0)
    return msg_err_set(err, MSG_INVALID,
                       "claim on '%s': a lease of %lld ms: give 1 or more, or 0 for the node's own",
                       msg_show(pattern).s, (long long)query->lease_ms);
  return MSG_OK;
}

int msg_node_claim(msg_node *node, msg_call *call, const char *pattern, size_t count,
                   int64_t lease_ms, int64_t wait_ms, msg_list *out, msg_err *err) {
  msg_use u;
  msg_wait w;
  msg_pattern *compiled = NULL;
  int rc = msg_use_begin(&u, node, err);
  if (rc != MSG_OK)
    return rc;
  msg_claim query = {.count = count,
                     .lease_ms = lease_ms ? lease_ms : u.policy->settings.lease_ms,
                     .brief = call->brief};
  rc = check_claim(&query, pattern, err);
  if (rc == MSG_OK)
    rc = msg_pattern_new(pattern, &compiled, err);
  if (rc == MSG_OK)
    rc = msg_wait_begin(&w, &u, call, "claim", pattern, wait_ms, err);
  if (rc == MSG_OK) {
    query.pattern = compiled;
    rc = claim(&u, call, &w, &query, out, err);
    msg_wait_end(&w);
  }
  if (rc == MSG_OK || rc == MSG_TIMEOUT)
    note_vain(node, compiled, rc == MSG_TIMEOUT);
  else
    msg_pattern_free(compiled);
  msg_use_end(&u);
  return rc;
}
