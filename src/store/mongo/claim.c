/* claim.c - leasing exclusive messages: mark, then read the locks.
 *
 * The message document is the truth, for a lock that anybody deletes would make two owners. But
 * Java nodes lock first and mark then, so after the mark the locks are read once more: who is seen
 * there is waited for. In order:
 *   1. candidates by sq_claim   2. less those that are locked   3. one guarded update marks them
 *   4. the locks, then the messages   5. a lock seen: look again until it is gone or its owner's
 *   mark is there; who is not sure steps back. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "store/mongo/catalog.h"
#include "store/mongo/change.h"
#include "store/mongo/claiming.h"
#include "store/mongo/group.h"
#include "store/mongo/interest.h"
#include "store/mongo/lease.h"
#include "store/mongo/query.h"
#include "store/mongo/regret.h"
#include "store/mongo/topics.h"
#include "store/mongo/where.h"

#define ROUNDS    8
#define ROUND_MAX 5000 /* messages */
#define AGAIN_MAX 100

void msg_mongo_claiming_go(msg_mongo_claiming *c, size_t spot) {
  c->s = &c->spots[spot].s;
  c->topics = c->spots[spot].topics;
  c->mortal = c->spots[spot].mortal;
  c->n = 0;
  msg_mongo_ids_clear(&c->dying);
  msg_mongo_ids_clear(&c->ids);
  msg_mongo_ids_clear(&c->locked);
}

static void claiming_clear(msg_mongo_claiming *c) {
  msg_mongo_ids_clear(&c->dying);
  msg_mongo_ids_clear(&c->ids);
  msg_mongo_ids_clear(&c->locked);
  msg_mongo_ids_clear(&c->shared);
  msg_list_clear(&c->got);
  msg_free(c->at);
  c->at = NULL;
  c->n = c->cap = 0;
  for (size_t i = 0; i < c->spot_count; i++)
    msg_texts_clear(&c->spots[i].topics);
  msg_free(c->spots);
  c->spots = NULL;
  c->spot_count = 0;
}

/* ---- where ---- */

static int add_spot(msg_mongo_session *at, msg_mongo_use *u, void *arg, msg_err *err) {
  msg_mongo_claiming *c = arg;
  const msg_claim *q = c->claim;
  msg_mongo_claim_spot *spot = &c->spots[c->spot_count];
  *spot = (msg_mongo_claim_spot){.s = *at};
  int rc = msg_mongo_topics_of(at, u, q->pattern, q->paused, q->paused_count, &spot->topics, err);
  if (rc == MSG_OK && spot->topics.n)
    c->spot_count++;
  else
    msg_texts_clear(&spot->topics);
  return rc;
}

int msg_mongo_claiming_find(msg_mongo_session *s, msg_mongo_claiming *c, msg_err *err) {
  msg_mongo_places places = {0};
  int rc = msg_mongo_places_of(s, c->u, c->claim->pattern, c->actor->node, &places, err);
  if (rc == MSG_OK && !(c->spots = msg_zalloc((places.n + 1) * sizeof *c->spots)))
    rc = msg_err_nomem(err);
  if (rc == MSG_OK)
    rc = msg_mongo_places_each(s, c->u, &places, add_spot, c, err);
  msg_mongo_places_clear(&places);
  return rc;
}

/* ---- 3. the mark ---- */

static int bury(msg_mongo_claiming *c, msg_err *err) {
  bson_t filter = BSON_INITIALIZER, *change = msg_mongo_change_bury("claim", "max_attempts");
  msg_mongo_append_ids(&filter, "_id", "$in", c->dying.at, c->dying.n);
  msg_mongo_append_untaken(&filter);
  int rc = msg_mongo_update(c->u, c->s->names.messages, "claim", &filter, change, NULL, err);
  bson_destroy(change);
  bson_destroy(&filter);
  if (rc == MSG_OK && msg_mongo_is_grouped(c->s))
    rc = msg_mongo_groups_after(c->s, c->u, c->dying.at, c->dying.n, err);
  return rc;
}

/* Idempotent: a second run finds them marked. */
static int mark_them(msg_mongo_claiming *c, msg_err *err) {
  bson_t filter = BSON_INITIALIZER, *change;
  change =
      msg_mongo_change_claim(c->actor->node, c->token, c->claim->lease_ms, c->mortal, c->leased);
  msg_mongo_append_ids(&filter, "_id", "$in", c->ids.at, c->ids.n);
  msg_mongo_append_untaken(&filter);
  if (c->mortal)
    msg_mongo_append_alive_now(&filter);
  else
    BSON_APPEND_NULL(&filter, "delete_at");
  if (c->claim->offered_count) /* which was not looked at before */
    BCON_APPEND(&filter, "sq.attempts", "{", "$not", "{", "$gte",
                BCON_INT64(c->actor->settings->max_attempts), "}", "}");
  int rc = msg_mongo_update(c->u, c->s->names.messages, "claim", &filter, change, NULL, err);
  bson_destroy(change);
  bson_destroy(&filter);
  return rc;
}

static int mark(msg_mongo_claiming *c, msg_err *err) {
  int rc = MSG_OK;
  msg_oid token = msg_oid_new();
  msg_oid_hex(&token, c->token);
  c->leased = !c->mortal && !c->claim->offered_count && msg_mongo_lease_fits(c->s, c->ids.n);
  if (c->leased)
    rc = msg_mongo_lease_begin(c->s, c->u, c->token, &c->ids, c->claim->lease_ms, err);
  return rc == MSG_OK ? mark_them(c, err) : rc;
}

/* ---- the verb ---- */

static int hand_over(msg_list *from, msg_list *out, msg_err *err) {
  msg_list_sort(from);
  for (size_t i = 0; i < from->n; i++) {
    msg_message *to = msg_list_add(out);
    if (!to)
      return msg_err_nomem(err);
    *to = from->at[i];
    msg_message_init(&from->at[i]);
  }
  return MSG_OK;
}

/* An error after the mark: nothing of it may stay claimed by a caller who does not know. */
static int give_up(msg_mongo_claiming *c, int rc) {
  msg_mongo_regret_claim(c->s, &c->ids, c->token);
  return rc;
}

static int add_picked(msg_mongo_claiming *c, const msg_mongo_candidate *x, size_t spot,
                      msg_err *err) {
  if (msg_grow(&c->picked, &c->picked_cap, c->picked_count + 1, sizeof *c->picked) != MSG_OK)
    return msg_err_nomem(err);
  c->picked[c->picked_count] = *x;
  c->picked[c->picked_count++].spot = spot;
  return MSG_OK;
}

/* What may be had, over all spots: c->picked. What has died is buried on the way. */
static int pick_at(msg_mongo_claiming *c, size_t spot, size_t count, bool *tried, msg_err *err) {
  c->spots[spot].mortal = false;
  msg_mongo_claiming_go(c, spot);
  int rc = msg_mongo_find_free(c, count, err);
  c->spots[spot].mortal = c->mortal;
  *tried = *tried || (rc == MSG_OK && (c->ids.n || c->dying.n));
  if (rc == MSG_OK && c->dying.n)
    rc = bury(c, err);
  for (size_t i = 0, k = 0; rc == MSG_OK && i < c->n && k < c->ids.n; i++) {
    if (msg_oid_cmp(&c->at[i].id, &c->ids.at[k]) != 0) /* locked */
      continue;
    k++;
    rc = add_picked(c, &c->at[i], spot, err);
  }
  return rc;
}

static int pick_everywhere(msg_mongo_claiming *c, size_t count, bool *tried, msg_err *err) {
  int rc = MSG_OK;
  c->picked_count = 0;
  for (size_t i = 0; rc == MSG_OK && i < c->spot_count; i++)
    rc = pick_at(c, i, count, tried, err);
  if (c->spot_count > 1 && c->picked_count > 1)
    qsort(c->picked, c->picked_count, sizeof *c->picked, msg_mongo_candidate_cmp);
  return rc;
}

/* *tried: there is something that others of this process are not at. */
static int pick(msg_mongo_claiming *c, size_t count, bool *tried, msg_err *err) {
  size_t asked, found;
  int rc, again = 0;
  do {
    asked = msg_mongo_claiming_ask(c, count);
    rc = pick_everywhere(c, asked, tried, err);
    found = c->picked_count;
    msg_mongo_claiming_hold(c, count);
  } while (rc == MSG_OK && c->picked_count == 0 && found >= asked && again++ < AGAIN_MAX);
  *tried = *tried && (found == 0 || c->picked_count > 0);
  return rc;
}

/* Marks those that were picked at one spot. */
static int win_at(msg_mongo_claiming *c, size_t spot, msg_err *err) {
  size_t before = c->got.n;
  int rc = MSG_OK;
  msg_mongo_claiming_go(c, spot);
  for (size_t i = 0; rc == MSG_OK && i < c->picked_count; i++)
    if (c->picked[i].spot == spot && msg_mongo_ids_add(&c->ids, &c->picked[i].id) != MSG_OK)
      return msg_err_nomem(err);
  if (c->ids.n == 0)
    return MSG_OK;
  rc = mark(c, err);
  if (rc == MSG_OK)
    rc = msg_mongo_read_back(c, err);
  if (rc == MSG_OK && c->leased && c->got.n - before == c->ids.n)
    rc = msg_mongo_lease_keep(c->s, c->actor->node, c->token, &c->ids, err);
  if (rc == MSG_OK)
    return MSG_OK;
  while (c->got.n > before)
    msg_message_clear(&c->got.at[--c->got.n]);
  return give_up(c, rc);
}

/* *won: how many. *tried: there was something to win. What was won before a failure is handed
 * out. */
static int play_round(msg_mongo_claiming *c, size_t count, msg_list *out, size_t *won, bool *tried,
                      msg_err *err) {
  msg_list_clear(&c->got);
  c->now_ms = msg_mongo_now_ms(c->s->store);
  *won = 0;
  *tried = false;
  int rc = pick(c, count, tried, err);
  for (size_t i = 0; rc == MSG_OK && i < c->spot_count; i++)
    rc = win_at(c, i, err);
  msg_mongo_claiming_let_go(c);
  *won = c->got.n;
  return c->got.n ? hand_over(&c->got, out, err) : rc;
}

/* What came back short may have missed what only a look finds: what is due, and what old nodes
 * wrote. *more: there may be more now. */
static int look_closer_at(msg_mongo_claiming *c, bool *more, msg_err *err) {
  int moved = 0;
  bool unnamed = msg_mongo_is_unnamed(c->s);
  int rc = msg_mongo_sweep(c->s, c->u, c->actor->settings->max_attempts, true, &moved, err);
  if (rc == MSG_OK && !unnamed)
    rc = msg_mongo_look_unnamed(c->s, c->u, err);
  *more = *more || (rc == MSG_OK && (moved > 0 || (!unnamed && msg_mongo_is_unnamed(c->s))));
  return rc;
}

static int look_closer(msg_mongo_claiming *c, bool *more, msg_err *err) {
  int rc = MSG_OK;
  for (size_t i = 0; rc == MSG_OK && i < c->spot_count; i++) {
    msg_mongo_claiming_go(c, i);
    rc = look_closer_at(c, more, err);
  }
  return rc;
}

/* Where others are faster it tries again, some times. */
static int play(msg_mongo_claiming *c, msg_list *out, msg_err *err) {
  const size_t count = c->claim->count;
  bool looked = false;
  size_t got = 0;
  for (int vain = 0; vain < ROUNDS && got < count;) {
    size_t won, ask = count - got < ROUND_MAX ? count - got : ROUND_MAX;
    bool tried, more = false;
    int rc = play_round(c, ask, out, &won, &tried, err);
    if (rc != MSG_OK)
      return rc;
    got += won;
    if (won == ask)
      continue;
    if (got) /* what is left is for the next claim */
      return MSG_OK;
    vain++;
    if (tried)
      continue;
    if (looked)
      return MSG_OK;
    looked = true;
    rc = look_closer(c, &more, err);
    if (rc != MSG_OK || !more)
      return rc;
  }
  return MSG_OK;
}

static int ready(msg_mongo_claiming *c, msg_err *err) {
  int rc = MSG_OK;
  for (size_t i = 0; rc == MSG_OK && i < c->spot_count; i++) {
    msg_mongo_claiming_go(c, i);
    rc = msg_mongo_indexes(c->s, c->u, err);
    if (rc == MSG_OK)
      rc = msg_mongo_sweep(c->s, c->u, c->actor->settings->max_attempts, false, NULL, err);
  }
  return rc;
}

/* ---- what was pushed ---- */

static size_t spot_of(msg_mongo_session *s, msg_mongo_claiming *c, msg_mongo_place *p) {
  size_t i = 0;
  while (i < c->spot_count && c->spots[i].s.place != p)
    i++;
  if (i == c->spot_count)
    c->spots[c->spot_count++] =
        (msg_mongo_claim_spot){.s = msg_mongo_session_at(s, p), .mortal = true};
  return i;
}

/* They stand for steps 1 and 2. *known: it is known where all of them are. */
static int take_offered(msg_mongo_session *s, msg_mongo_claiming *c, bool *known, msg_err *err) {
  const msg_claim *q = c->claim;
  int rc = MSG_OK;
  c->spots = msg_zalloc((q->offered_count + 1) * sizeof *c->spots);
  if (!c->spots)
    return msg_err_nomem(err);
  *known = true;
  for (size_t i = 0; rc == MSG_OK && *known && i < q->offered_count && i < q->count; i++) {
    msg_mongo_candidate x = {.id = q->offered[i]};
    msg_mongo_place *p = msg_mongo_last_met(s, &x.id);
    *known = p != NULL;
    if (p)
      rc = add_picked(c, &x, spot_of(s, c, p), err);
  }
  return rc;
}

static int win_offered(msg_mongo_claiming *c, msg_list *out, msg_err *err) {
  int rc = MSG_OK;
  c->s = &c->spots[0].s;
  msg_mongo_claiming_hold(c, c->picked_count);
  for (size_t i = 0; rc == MSG_OK && i < c->spot_count; i++) {
    msg_mongo_claiming_go(c, i);
    rc = msg_mongo_indexes(c->s, c->u, err);
    c->now_ms = msg_mongo_now_ms(c->s->store);
    if (rc == MSG_OK)
      rc = win_at(c, i, err);
  }
  msg_mongo_claiming_let_go(c);
  return c->got.n ? hand_over(&c->got, out, err) : rc;
}

static int claim_with(msg_mongo_session *s, msg_mongo_claiming *c, void *out, msg_err *err) {
  if (c->claim->offered_count && !msg_mongo_undone_any(s->store)) {
    bool known = false;
    int rc = take_offered(s, c, &known, err);
    if (rc != MSG_OK || known)
      return rc == MSG_OK ? win_offered(c, out, err) : rc;
    claiming_clear(c);
  }
  int rc = msg_mongo_sweep_apart(s, c->u, err);
  if (rc == MSG_OK)
    rc = msg_mongo_claiming_find(s, c, err);
  if (rc == MSG_OK)
    rc = ready(c, err);
  return rc == MSG_OK && c->spot_count ? play(c, out, err) : rc;
}

/* The spot that failed has lost its indexes: nothing was claimed yet. */
static bool has_lost(const msg_mongo_claiming *c, const msg_err *err) {
  return c->spot_count && msg_mongo_lost_indexes(c->s, err);
}

int msg_mongo_claiming_run(msg_session *base, msg_mongo_claiming *c, const char *what,
                           msg_mongo_claiming_fn work, void *arg, msg_err *err) {
  msg_mongo_session *s = (msg_mongo_session *)base;
  msg_mongo_use u;
  msg_err own = MSG_ERR_INIT;
  err = err ? err : &own;
  c->u = &u;
  msg_mongo_interest_claim(s, c->claim->pattern, c->claim->waits);
  int rc = msg_mongo_take_bounded(s, what, &u, err);
  if (rc != MSG_OK)
    return rc;
  rc = work(s, c, arg, err);
  if (rc != MSG_OK && has_lost(c, err)) {
    claiming_clear(c);
    rc = work(s, c, arg, err);
  }
  claiming_clear(c);
  msg_free(c->picked);
  msg_mongo_give(&u);
  return rc;
}

int msg_mongo_claim(msg_session *base, const msg_actor *actor, const msg_claim *claim,
                    msg_list *out, msg_err *err) {
  msg_mongo_claiming c = {.actor = actor, .claim = claim};
  return msg_mongo_claiming_run(base, &c, "claim", claim_with, out, err);
}
