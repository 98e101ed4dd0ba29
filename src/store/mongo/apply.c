/* apply.c - what a transaction of the host did, as one MongoDB transaction; how it is undone. */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "store/mongo/group.h"
#include "store/mongo/job.h"
#include "store/mongo/lease.h"
#include "store/mongo/put.h"
#include "store/mongo/regret.h"
#include "store/mongo/settle.h"
#include "store/mongo/split.h"

/* --- applying ------------------------------------------------------------------------------ */

struct applying {
  const msg_actor *actor;
  msg_unit *unit;
  msg_mongo_routes routes;      /* of its puts */
  msg_mongo_split *splits;      /* of each of its settles */
  char nobody[MSG_OID_HEX + 1]; /* a mark that no document bears */
  bool worked;                  /* the work was done: what fails then is the commit */
};

static int not_theirs(const struct msg_unit_settle *settle, const msg_mongo_part *part,
                      const msg_mongo_parts *parts, int64_t matched, msg_err *err) {
  char hex[MSG_OID_HEX + 1];
  (void)settle;
  msg_oid_hex(&parts->ids[part->first], hex);
  return msg_err_set(
      err, MSG_LOCKED,
      "commit: %lld of %zu claims of token '%s', such as message %s, have ended "
      "since they were settled in this transaction: claim again, with a longer lease",
      (long long)((int64_t)part->n - matched), part->n, part->token, hex);
}

/* What is acked or rejected bears its token as mark, by which it can be undone. */
static const char *mark_of(const struct applying *a, const msg_settle *how, const char *token) {
  return how->verb == MSG_SETTLE_ACK || how->verb == MSG_SETTLE_REJECT ? token : a->nobody;
}

static int update_part(msg_mongo_txn *t, const struct applying *a,
                       const struct msg_unit_settle *settle, const msg_mongo_parts *parts,
                       const msg_mongo_part *part, int64_t *matched, msg_err *err) {
  bson_t filter = BSON_INITIALIZER;
  int64_t n = 0;
  bson_t *change = msg_mongo_change_of(&settle->how, mark_of(a, &settle->how, part->token),
                                       a->actor->settings->max_attempts);
  msg_mongo_append_theirs(&filter, parts, part, a->actor->node, settle->how.verb);
  int rc = msg_mongo_txn_update(t, t->s->names.messages, "commit", &filter, change, &n, err);
  bson_destroy(change);
  bson_destroy(&filter);
  *matched += n;
  return rc;
}

static int settle_part(msg_mongo_txn *t, struct applying *a, const struct msg_unit_settle *settle,
                       const msg_mongo_parts *parts, const msg_mongo_part *part, msg_err *err) {
  bson_t leased = BSON_INITIALIZER;
  int64_t matched = 0;
  bool plain = false;
  int rc = update_part(t, a, settle, parts, part, &matched, err);
  msg_mongo_append_held(&leased, parts, part, a->actor->node, settle->how.verb);
  if (rc == MSG_OK && matched < (int64_t)part->n)
    rc = msg_mongo_leases_break(t, "commit", &leased, &plain, NULL, NULL, err);
  bson_destroy(&leased);
  if (settle->how.verb == MSG_SETTLE_EXTEND) /* what was extended matches again */
    matched = plain ? 0 : matched;
  if (rc == MSG_OK && plain)
    rc = update_part(t, a, settle, parts, part, &matched, err);
  if (rc == MSG_OK && matched < (int64_t)part->n)
    rc = not_theirs(settle, part, parts, matched, err);
  return rc;
}

static int settle_piece(msg_mongo_txn *t, struct applying *a, const struct msg_unit_settle *settle,
                        msg_mongo_piece *piece, msg_err *err) {
  msg_mongo_session at = msg_mongo_session_at(t->s, piece->place), *s = t->s;
  msg_mongo_parts parts = {0};
  t->s = &at;
  size_t left = piece->n;
  int rc = MSG_OK;
  if (settle->how.verb == MSG_SETTLE_ACK)
    rc = msg_mongo_leases_ack(t, "commit", a->actor->node, piece, NULL, &left, err);
  if (rc == MSG_OK && left)
    rc = msg_mongo_parts_of(piece->items, left, &parts, err);
  for (size_t i = 0; rc == MSG_OK && i < parts.n; i++)
    rc = settle_part(t, a, settle, &parts, &parts.at[i], err);
  msg_mongo_parts_clear(&parts);
  t->s = s;
  return rc;
}

static int settle_all(msg_mongo_txn *t, struct applying *a, size_t number, msg_err *err) {
  const struct msg_unit_settle *settle = &a->unit->settles[number];
  const msg_mongo_split *split = &a->splits[number];
  size_t found = 0;
  int rc = MSG_OK;
  for (size_t i = 0; rc == MSG_OK && i < split->n; i++) {
    rc = settle_piece(t, a, settle, &split->at[i], err);
    found += split->at[i].n;
  }
  if (rc == MSG_OK && found < settle->n)
    rc = msg_err_set(err, MSG_LOCKED,
                     "commit: %zu of %zu messages that were settled in this transaction are gone",
                     settle->n - found, settle->n);
  return rc;
}

static int work(msg_mongo_txn *t, void *arg, msg_err *err) {
  struct applying *a = arg;
  msg_mongo_putting p = {.actor = a->actor,
                         .items = a->unit->puts,
                         .n = a->unit->put_count,
                         .routes = &a->routes,
                         .stamp = true};
  int rc = MSG_OK;
  a->worked = false;
  for (size_t i = 0; rc == MSG_OK && i < a->unit->settle_count; i++)
    rc = settle_all(t, a, i, err);
  if (rc == MSG_OK && p.n > 0)
    rc = msg_mongo_put_work(t, &p, err);
  a->worked = rc == MSG_OK;
  return rc;
}

/* --- groups -------------------------------------------------------------------------------- */

/* The next of a group is called when its head is done, and a first one that came while it went. The
 * sweeper does it too: no failure is worth telling. */
static void look_after_groups(msg_mongo_session *s, msg_mongo_use *u, const struct applying *a) {
  msg_mongo_put_groups(s, u, &a->routes, NULL);
  for (size_t i = 0; i < a->unit->settle_count; i++) {
    for (size_t k = 0; k < a->splits[i].n; k++) {
      const msg_mongo_piece *piece = &a->splits[i].at[k];
      msg_mongo_session at = msg_mongo_session_at(s, piece->place);
      msg_mongo_ids ids = {0};
      for (size_t n = 0; n < piece->n; n++)
        msg_mongo_ids_add(&ids, &piece->items[n].id);
      if (a->unit->settles[i].how.verb != MSG_SETTLE_EXTEND && msg_mongo_is_grouped(&at))
        msg_mongo_groups_after(&at, u, ids.at, ids.n, NULL);
      msg_mongo_ids_clear(&ids);
    }
  }
}

/* One message alone needs no transaction. */
static int put_alone(msg_mongo_session *s, const msg_actor *actor, msg_unit *unit, msg_err *err) {
  msg_message now = msg_mongo_stamped(unit->puts[0].message, msg_clock_now_ms());
  msg_put one = {.message = &now};
  int rc = msg_mongo_put(&s->base, actor, &one, 1, err);
  unit->reached = rc == MSG_UNAVAILABLE;
  return rc;
}

/* Where everything is and goes, before the transaction. */
static int prepare(msg_mongo_session *s, msg_mongo_use *u, struct applying *a, msg_err *err) {
  const msg_unit *unit = a->unit;
  int rc = msg_mongo_routes_of(s, unit->puts, unit->put_count, &a->routes, err);
  if (rc == MSG_OK)
    rc = msg_mongo_routes_ready(s, u, &a->routes, err);
  if (rc == MSG_OK && !(a->splits = msg_zalloc((unit->settle_count + 1) * sizeof *a->splits)))
    rc = msg_err_nomem(err);
  for (size_t i = 0; rc == MSG_OK && i < unit->settle_count; i++)
    rc = msg_mongo_split_of(s, u, unit->settles[i].items, unit->settles[i].n, &a->splits[i], err);
  return rc;
}

static void applying_clear(struct applying *a) {
  for (size_t i = 0; a->splits && i < a->unit->settle_count; i++)
    msg_mongo_split_clear(&a->splits[i]);
  msg_free(a->splits);
  msg_mongo_routes_clear(&a->routes);
}

static int apply_now(msg_session *base, const msg_actor *actor, msg_unit *unit, msg_err *err) {
  msg_mongo_session *s = (msg_mongo_session *)base;
  struct applying a = {.actor = actor, .unit = unit};
  msg_oid nobody = msg_oid_new();
  msg_mongo_use u;
  msg_oid_hex(&nobody, a.nobody);
  unit->reached = false;
  if (unit->settle_count == 0 && unit->put_count == 1 && msg_mongo_is_plain(unit->puts[0].message))
    return put_alone(s, actor, unit, err);
  int rc = msg_mongo_regrets_recall(s, unit, err);
  if (rc == MSG_OK)
    rc = msg_mongo_take_bounded(s, "commit", &u, err);
  if (rc != MSG_OK)
    return rc;
  rc = prepare(s, &u, &a, err);
  if (rc == MSG_OK) {
    rc = msg_mongo_transact(s, &u, "commit", work, &a, err);
    unit->reached = rc != MSG_OK && (a.worked || !s->store->replicated);
  }
  if (rc == MSG_OK)
    look_after_groups(s, &u, &a);
  applying_clear(&a);
  msg_mongo_give(&u);
  return rc;
}

int msg_mongo_apply(msg_session *base, const msg_actor *actor, msg_unit *unit, msg_err *err) {
  return msg_mongo_job_run((msg_mongo_session *)base, actor, unit, apply_now, "commit",
                           actor->settings->write_timeout_ms, err);
}

int msg_mongo_undo(msg_session *base, const msg_actor *actor, msg_unit *unit, msg_err *err) {
  if (unit->reached)
    return msg_mongo_undo_now(base, actor, unit, err);
  return msg_mongo_job_run((msg_mongo_session *)base, actor, unit, msg_mongo_undo_now, "undo",
                           actor->settings->write_timeout_ms, err);
}
