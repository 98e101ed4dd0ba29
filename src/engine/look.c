#include <string.h>

#include "base/mem.h"
#include "engine/node_int.h"

/* Threads of one node that look at once may take everything from under each other's eyes, but one
 * of them always wins. */
#define LOST_LOOKS_MAX 100

/* --- what came of a mark ------------------------------------------------------------------- */

/* This call marked it; the others were handed out elsewhere or are gone. */
static bool is_won(void *won, size_t i, const msg_message *m) {
  (void)m;
  return ((const bool *)won)[i];
}

/* Moves `found` behind what is in *out, which has room if it holds anything. */
static void move_to(msg_list *found, msg_list *out) {
  if (out->n == 0) {
    msg_list before = *out;
    *out = *found;
    *found = before;
    return;
  }
  memcpy(out->at + out->n, found->at, found->n * sizeof *out->at);
  out->n += found->n;
  found->n = 0;
}

static int mark_found(msg_look *l, const msg_list *found, bool soon, bool *won, msg_err *err) {
  msg_session *session = l->call->session;
  int rc = soon && session->ops->seen_soon
               ? session->ops->seen_soon(session, &l->use->actor, found, won, err)
               : MSG_UNSUPPORTED;
  if (rc != MSG_UNSUPPORTED)
    return rc;
  return MSG_STORE(l->use, session, seen, &l->use->actor, found, won, err);
}

/* Marks what was found, and moves what was won to *out. Whatever can fail comes before the mark. */
static int mark(msg_look *l, msg_list *found, bool soon, msg_list *out, msg_err *err) {
  bool *won = msg_zalloc(found->n * sizeof *won);
  int rc = won ? MSG_OK : MSG_NOMEM;
  if (rc == MSG_OK && out->n > 0)
    rc = msg_grow(&out->at, &out->cap, out->n + found->n, sizeof *out->at);
  if (rc != MSG_OK) {
    msg_free(won);
    return msg_err_nomem(err);
  }
  rc = mark_found(l, found, soon, won, err);
  if (rc == MSG_OK) {
    msg_list_keep(found, is_won, won);
    if (found->n > 0)
      move_to(found, out);
  }
  msg_free(won);
  return rc;
}

/* --- two places to look -------------------------------------------------------------------- */

#define INBOX_WINDOWS 100
#define LOOK_WINDOWS  10
#define INBOX_MAX     10000

size_t msg_look_inbox_max(const msg_policy *policy) {
  int64_t window = policy->settings.window_size;
  return window < INBOX_MAX / INBOX_WINDOWS ? (size_t)window * INBOX_WINDOWS : INBOX_MAX;
}

#define LEFT_BITS 33 /* of an epoch: those of the inbox */

/* A look that begins now. Its epoch stays the same while the inbox loses nothing: of what is
 * pushed, if that is at work, and of what looks left there. It is never 0. */
static msg_looked now_of(msg_node *node) {
  uint64_t pushing = msg_cursor_epoch(node->cursor); /* 0: it is not */
  msg_mutex_lock(node->mtx);
  msg_looked now = {.epoch = pushing << LEFT_BITS | (uint64_t)node->inbox.epoch << 1 | 1,
                    .pushes = node->inbox.pushes,
                    .puts = node->puts};
  msg_mutex_unlock(node->mtx);
  return now;
}

/* Is everything that comes pushed, and nothing in the store that is not in the inbox? */
static bool is_all(const msg_looked *l) {
  return l->epoch >> LEFT_BITS != 0 && !l->part;
}

static bool is_whole(const msg_look *l) {
  return is_all(&l->looked) && !l->owes;
}

void msg_look_begin(msg_look *l, msg_use *u, msg_call *call) {
  *l = (msg_look){.use = u, .call = call};
  msg_mutex_lock(u->node->mtx);
  u->node->looks++;
  msg_mutex_unlock(u->node->mtx);
}

void msg_look_news(msg_look *l) {
  l->looked = now_of(l->use->node);
}

void msg_look_end(msg_look *l) {
  msg_node *node = l->use->node;
  msg_mutex_lock(node->mtx);
  node->looks--;
  node->looked_ms = msg_clock_mono_ms();
  msg_mutex_unlock(node->mtx);
}

/* What one look found for its caller. */
typedef struct finding {
  msg_list found;
  size_t n;    /* before others were faster */
  bool shares; /* the node's threads have it together: what one does not want is the others' */
  bool full;   /* there may be more */
} finding;

/* The inbox keeps them from others until they are marked. What could not be is for a look at the
 * store, by whoever comes first. */
static int mark_taken(msg_look *l, finding *f, bool soon, msg_list *out, msg_err *err) {
  msg_node *node = l->use->node;
  size_t n = f->found.n;
  msg_oid *ids = msg_alloc(n * sizeof *ids);
  int rc = ids ? MSG_OK : msg_err_nomem(err);
  for (size_t i = 0; ids && i < n; i++)
    ids[i] = f->found.at[i].id;
  if (rc == MSG_OK)
    rc = mark(l, &f->found, soon, out, err);
  msg_mutex_lock(node->mtx);
  for (size_t i = 0; i < n; i++)
    msg_inbox_took(&node->inbox, ids ? &ids[i] : &f->found.at[i].id, 1);
  if (rc != MSG_OK)
    msg_inbox_lose(&node->inbox);
  msg_mutex_unlock(node->mtx);
  msg_free(ids);
  if (rc != MSG_OK)
    msg_gate_move(node->changes);
  return rc;
}

/* The rest goes into the inbox, for whoever comes next. Others take what is not there any more:
 * nothing is lost to this look, unless it is to be asked again. */
static int share_found(msg_look *l, const msg_unseen *query, finding *f, msg_err *err) {
  msg_node *node = l->use->node;
  msg_mutex_lock(node->mtx);
  msg_inbox_looked(&node->inbox, &f->found);
  msg_inbox_keep(&node->inbox, &f->found, query->max, msg_look_inbox_max(l->use->policy));
  int rc = msg_inbox_taking(&node->inbox, &f->found);
  msg_mutex_unlock(node->mtx);
  f->n = f->full && f->found.n == 0 ? 1 : f->found.n;
  return rc == MSG_OK ? MSG_OK : msg_err_nomem(err);
}

/* How many a look asks for whose rest others get. After one that was full there is much more: to
 * come for each window would take long. */
static size_t share_of(const msg_look *l, size_t max) {
  size_t window = (size_t)l->use->policy->settings.window_size;
  size_t share = l->looked.part ? window * LOOK_WINDOWS : window;
  size_t room = msg_look_inbox_max(l->use->policy);
  share = share < room ? share : room;
  return max < share ? share : max;
}

/* What waiting requests have reserved is left to them: a request reserves before it is sent, so
 * that whoever has found its answer finds it reserved. */
static int ask_store(msg_look *l, msg_unseen *query, msg_list *found, msg_err *err) {
  msg_node *node = l->use->node;
  msg_oid *reserved = NULL;
  int rc =
      query->answers_to ? MSG_OK : msg_reserve_copy(node, &reserved, &query->reserved_count, err);
  query->reserved = reserved;
  if (rc == MSG_OK)
    rc = MSG_STORE(l->use, msg_call_looks(l->call), unseen, &l->use->actor, query, found, err);
  msg_free(reserved);
  return rc;
}

static int look_in_store(msg_look *l, const msg_unseen *query, finding *f, msg_err *err) {
  msg_node *node = l->use->node;
  msg_looked looked = now_of(node);
  msg_unseen wide = *query;
  if (f->shares)
    wide.max = share_of(l, wide.max);
  int rc = ask_store(l, &wide, &f->found, err);
  if (rc != MSG_OK)
    return rc;
  f->n = f->found.n;
  f->full = f->n >= wide.max;
  looked.part = f->full;
  looked.found = f->n > 0;
  if (looked.found)
    looked.upto = msg_message_rank(&f->found.at[f->n - 1]);
  if (!query->answers_to)
    msg_reserve_leave(node, &f->found);
  f->n = f->found.n;
  if (f->shares) {
    rc = share_found(l, query, f, err);
  } else {
    msg_mutex_lock(node->mtx);
    msg_inbox_looked(&node->inbox, &f->found);
    msg_mutex_unlock(node->mtx);
  }
  if (rc == MSG_OK) {
    l->looked = looked;
    l->owes = false;
  }
  l->asked = true;
  return rc;
}

/* What a look means. */
struct meaning {
  const msg_unseen *query;
  msg_node *node;
};

/* Is this one of it? It is for this node, whose mutex is held. */
static bool is_meant(const void *arg, const msg_message *m) {
  const struct meaning *meaning = arg;
  const msg_unseen *q = meaning->query;
  if (q->answers_to)
    return msg_oid_cmp(&m->in_answer_to, q->answers_to) == 0;
  if (q->pattern && !msg_pattern_match(q->pattern, m->topic))
    return false;
  for (size_t i = 0; i < q->paused_count; i++)
    if (msg_pattern_match(q->paused[i], m->topic))
      return false;
  return !msg_reserve_leaves_locked(meaning->node, m);
}

/* What may have been given before is asked for by the window: a call for each would take long. What
 * goes wrong will be met again. */
static void ask_for_unsure(msg_look *l, const msg_unseen *query) {
  msg_node *node = l->use->node;
  msg_session *session = l->call->session;
  const size_t window = (size_t)l->use->policy->settings.window_size;
  msg_list list = MSG_LIST_INIT;
  bool *still = NULL;
  msg_mutex_lock(node->mtx);
  uint64_t upto = node->inbox.pushes;
  int rc = msg_inbox_unsure(&node->inbox, is_meant, &(struct meaning){query, node}, window,
                            &l->looked, &list);
  msg_mutex_unlock(node->mtx);
  if (rc == MSG_OK && list.n > query->max && (still = msg_zalloc(list.n * sizeof *still))) {
    rc = MSG_STORE(l->use, session, still_unseen, &l->use->actor, &list, still, NULL);
    msg_mutex_lock(node->mtx);
    if (rc == MSG_OK)
      msg_inbox_asked(&node->inbox, &list, still, upto);
    msg_mutex_unlock(node->mtx);
  }
  msg_free(still);
  msg_list_clear(&list);
}

static int look_in_inbox(msg_look *l, const msg_unseen *query, finding *f, bool *soon,
                         msg_err *err) {
  msg_node *node = l->use->node;
  if (f->shares && l->call->session->ops->still_unseen)
    ask_for_unsure(l, query);
  msg_mutex_lock(node->mtx);
  int rc = msg_inbox_take(&node->inbox, is_meant, &(struct meaning){query, node}, query->max,
                          &l->looked, &f->found, soon);
  msg_mutex_unlock(node->mtx);
  f->n = f->found.n;
  return rc == MSG_OK ? MSG_OK : msg_err_nomem(err);
}

/* --- one look ------------------------------------------------------------------------------ */

/* Where the looks for a pattern are remembered; NULL: everything listened to. */
static msg_looked *looked_locked(msg_node *node, const msg_pattern *pattern) {
  if (!pattern)
    return &node->looked;
  for (size_t i = 0; i < node->listen_count; i++)
    if (strcmp(msg_pattern_text(node->listens[i].pattern), msg_pattern_text(pattern)) == 0)
      return &node->listens[i].looked;
  return NULL;
}

/* Goes on where another look ended. */
static void recall(msg_look *l, const msg_unseen *query) {
  msg_node *node = l->use->node;
  msg_mutex_lock(node->mtx);
  const msg_looked *at = looked_locked(node, query->pattern);
  bool is_last = at && at->epoch != 0 && at->puts == node->puts;
  if (is_last || (at && l->looked.epoch == 0)) {
    l->looked = *at;
    l->owes = !is_last;
  }
  msg_mutex_unlock(node->mtx);
}

/* While the inbox gets all and loses nothing, a look that was not needed takes nothing from it. */
static void remember(msg_look *l, const msg_unseen *query) {
  msg_node *node = l->use->node;
  msg_mutex_lock(node->mtx);
  msg_looked *at = looked_locked(node, query->pattern);
  bool knew = at && at->epoch == l->looked.epoch && is_all(at);
  if (knew && l->looked.part) {
    at->found = true;
    at->upto = l->looked.upto;
  } else if (at) {
    *at = l->looked;
  }
  msg_mutex_unlock(node->mtx);
}

/* One look at a time: what it finds is for all. False: another's is over now, which may do. */
static bool begin_turn(msg_look *l) {
  msg_node *node = l->use->node;
  bool first;
  msg_mutex_lock(node->mtx);
  first = msg_inbox_look(&node->inbox);
  while (!first && node->inbox.looking)
    msg_cond_wait_until(node->looked_on, node->mtx, MSG_NEVER);
  if (!first && !l->goes_on)
    first = msg_inbox_look(&node->inbox);
  msg_mutex_unlock(node->mtx);
  return first;
}

static void end_turn(msg_look *l) {
  msg_node *node = l->use->node;
  msg_mutex_lock(node->mtx);
  msg_inbox_look_end(&node->inbox);
  bool more = node->inbox.n > 0;
  msg_cond_broadcast(node->looked_on);
  msg_mutex_unlock(node->mtx);
  if (more)
    msg_gate_move(node->changes);
}

static int look_in_turn(msg_look *l, const msg_unseen *query, finding *f, msg_err *err) {
  int rc = look_in_store(l, query, f, err);
  if (rc == MSG_OK)
    remember(l, query);
  end_turn(l);
  return rc;
}

/* Is what was looked at still known, in part or whole? Pushing may have begun or stopped since:
 * then it is what the look left. */
static bool is_known(msg_look *l) {
  uint64_t differs = l->looked.epoch ^ now_of(l->use->node).epoch;
  if (differs == 0)
    return true;
  if (l->looked.epoch == 0 || differs << (64 - LEFT_BITS) != 0 || !l->looked.found)
    return false;
  l->looked.part = true;
  return true;
}

/* Where it is enough to look. False: not there. */
static bool is_in_inbox(msg_look *l, const msg_unseen *query, finding *f, bool *soon, int *rc,
                        msg_err *err) {
  if (l->goes_on && f->shares)
    recall(l, query);
  if (!is_known(l))
    return false;
  *rc = look_in_inbox(l, query, f, soon, err);
  return is_whole(l) || *rc != MSG_OK || f->n > 0;
}

static int look_once(msg_look *l, const msg_unseen *query, size_t *found_n, msg_list *out,
                     msg_err *err) {
  unsigned caps = l->use->node->store->ops->caps(l->use->node->store);
  finding f = {.found = MSG_LIST_INIT, .shares = !query->answers_to && (caps & MSG_CAP_PUSH)};
  int rc = MSG_OK;
  bool soon = f.shares, inbox;
  while (!(inbox = is_in_inbox(l, query, &f, &soon, &rc, err)) && f.shares && !begin_turn(l))
    ;
  if (!inbox)
    rc = f.shares ? look_in_turn(l, query, &f, err) : look_in_store(l, query, &f, err);
  if (rc == MSG_OK && f.found.n > 0)
    rc = inbox || f.shares ? mark_taken(l, &f, soon, out, err) : mark(l, &f.found, false, out, err);
  *found_n = f.n;
  msg_list_clear(&f.found);
  return rc;
}

int msg_look_take(msg_look *l, const msg_unseen *query, msg_list *out, msg_err *err) {
  const size_t before = out->n;
  const size_t window = (size_t)l->use->policy->settings.window_size;
  for (int lost = 0; lost < LOST_LOOKS_MAX;) {
    msg_unseen part = *query;
    size_t found = 0, had = out->n;
    part.max = query->max - (out->n - before);
    if (part.max > window && window > 0)
      part.max = window;
    int rc = look_once(l, &part, &found, out, err);
    if (rc != MSG_OK) /* what is marked must reach the caller; the failure will be met again */
      return out->n > before ? MSG_OK : rc;
    bool all_lost = found > 0 && out->n == had;
    bool more = found == part.max || all_lost || l->looked.part;
    if (out->n - before == query->max || !more)
      return MSG_OK;
    lost += all_lost;
  }
  return MSG_OK;
}

void msg_look_handed(msg_node *node, const msg_list *out, size_t from, enum msg_stat stat) {
  msg_mutex_lock(node->mtx);
  msg_recent_add(&node->recent, out, from);
  msg_mutex_unlock(node->mtx);
  msg_node_count(node, stat, (int64_t)(out->n - from));
  msg_cursor_handed(node->cursor);
}
