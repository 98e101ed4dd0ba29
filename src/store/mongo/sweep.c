/* sweep.c - what is due: delays and leases that are over, lives that are over, groups whose head
 * went. One look by indexes; writes only if something is due. */
#include <string.h>

#include "base/clock.h"
#include "store/mongo/apart.h"
#include "store/mongo/change.h"
#include "store/mongo/group.h"
#include "store/mongo/lease.h"
#include "store/mongo/place.h"
#include "store/mongo/query.h"

#define PAUSE_MS  50
#define PASS_MS   500  /* between looks for heads that Java nodes took, and ... */
#define TIDY_MS   1000 /* for documents of leases; */
#define REPAIR_MS 3000 /* for groups without head; */
#define SHARE     20   /* at most one part of so many of the time */
#define BATCH     256

struct due {
  msg_mongo_ids over;    /* past their life */
  msg_mongo_ids back;    /* delayed or claimed: return */
  msg_mongo_ids done;    /* settled long enough ago: go */
  msg_mongo_ids recent;  /* settled just now: stay a moment */
  msg_mongo_ids settled; /* dead heads: their group needs another */
  msg_mongo_ids leased;  /* claimed by a lease */
  msg_texts acked;       /* tokens of leases that are done, */
  msg_texts just_acked;  /* of which these not long ago */
  msg_mongo_groups groups;
  int64_t now_ms;
};

static void due_clear(struct due *d) {
  msg_mongo_ids_clear(&d->over);
  msg_mongo_ids_clear(&d->back);
  msg_mongo_ids_clear(&d->done);
  msg_mongo_ids_clear(&d->recent);
  msg_mongo_ids_clear(&d->settled);
  msg_mongo_ids_clear(&d->leased);
  msg_texts_clear(&d->acked);
  msg_texts_clear(&d->just_acked);
  msg_mongo_groups_clear(&d->groups);
}

static int add(struct due *d, msg_mongo_ids *to, const msg_oid *id, const bson_t *doc,
               msg_err *err) {
  if (msg_mongo_ids_add(to, id) != MSG_OK)
    return msg_err_nomem(err);
  return msg_mongo_groups_add_of(&d->groups, doc, err);
}

static int note(void *arg, const bson_t *doc, msg_err *err) {
  struct due *d = arg;
  const char *state = msg_mongo_get_text(doc, "sq.state");
  msg_oid id;
  if (!msg_mongo_get_oid(doc, "_id", &id))
    return MSG_OK;
  if (msg_mongo_get_int(doc, "delete_at", MSG_NEVER) <= d->now_ms)
    return add(d, &d->over, &id, doc, err);
  if (!state || msg_mongo_get_int(doc, "sq.until", MSG_NEVER) > d->now_ms)
    return MSG_OK;
  if (strcmp(state, "claimed") == 0 && msg_mongo_get_int(doc, "sq.lease", 0) != 0)
    return add(d, &d->leased, &id, doc, err);
  if (strcmp(state, "claimed") == 0 || strcmp(state, "delayed") == 0)
    return add(d, &d->back, &id, doc, err); /* its group: it may die */
  if (strcmp(state, "done") != 0)
    return add(d, &d->settled, &id, doc, err);
  bool old = msg_mongo_get_int(doc, "sq.at", 0) + MSG_MONGO_KEPT_MS <= d->now_ms;
  return add(d, old ? &d->done : &d->recent, &id, doc, err);
}

static int look(msg_mongo_session *s, msg_mongo_use *u, struct due *d, msg_err *err) {
  bson_t *filter =
      BCON_NEW("$or", "[", "{", "sq.until", "{", "$lte", BCON_DATE_TIME(d->now_ms), "}", "}", "{",
               "delete_at", "{", "$lte", BCON_DATE_TIME(d->now_ms), "}", "}", "]");
  bson_t *opts =
      BCON_NEW("limit", BCON_INT64(BATCH), "projection", "{", "topic", BCON_INT32(1), "delete_at",
               BCON_INT32(1), "sq.state", BCON_INT32(1), "sq.until", BCON_INT32(1), "sq.lease",
               BCON_INT32(1), "sq.at", BCON_INT32(1), "sq.group", BCON_INT32(1), "}");
  int rc = msg_mongo_each(u, s->names.messages, "sweep", filter, opts, note, d, err);
  bson_destroy(filter);
  bson_destroy(opts);
  return rc;
}

/* ---- moves, each guarded by the server's own time ---- */

/* `field` is `ms` ago, or longer. */
static void append_past(bson_t *filter, const char *field, int64_t ms) {
  bson_t then;
  msg_mongo_now_expr(&then, -ms);
  BCON_APPEND(filter, "$expr", "{", "$lte", "[", BCON_UTF8(field), BCON_DOCUMENT(&then), "]", "}");
  bson_destroy(&then);
}

static int bring_back(msg_mongo_session *s, msg_mongo_use *u, const msg_mongo_ids *ids,
                      int64_t max_attempts, msg_err *err) {
  if (s->place->kind == MSG_MONGO_APART)
    return msg_mongo_apart_out(s, u, ids, err);
  bson_t filter = BSON_INITIALIZER, *change = msg_mongo_change_free("sweep", 0, max_attempts);
  msg_mongo_append_ids(&filter, "_id", "$in", ids->at, ids->n);
  BCON_APPEND(&filter, "sq.state", "{", "$in", "[", BCON_UTF8("claimed"), BCON_UTF8("delayed"), "]",
              "}", "sq.lease", "{", "$ne", BCON_BOOL(true), "}");
  append_past(&filter, "$sq.until", 0);
  int rc = msg_mongo_update(u, s->names.messages, "sweep", &filter, change, NULL, err);
  bson_destroy(change);
  bson_destroy(&filter);
  return rc;
}

static int remove_over(msg_mongo_session *s, msg_mongo_use *u, const msg_mongo_ids *ids,
                       msg_err *err) {
  bson_t filter = BSON_INITIALIZER, now;
  msg_mongo_now_expr(&now, 0);
  msg_mongo_append_ids(&filter, "_id", "$in", ids->at, ids->n);
  BCON_APPEND(&filter, "$expr", "{", "$and", "[", "{", "$gt", "[", BCON_UTF8("$delete_at"),
              BCON_NULL, "]", "}", "{", "$lte", "[", BCON_UTF8("$delete_at"), BCON_DOCUMENT(&now),
              "]", "}", "]", "}");
  int rc = msg_mongo_delete(u, s->names.messages, "sweep", &filter, NULL, err);
  bson_destroy(&now);
  bson_destroy(&filter);
  return rc;
}

static int remove_done(msg_mongo_session *s, msg_mongo_use *u, const msg_mongo_ids *ids,
                       msg_err *err) {
  bson_t filter = BSON_INITIALIZER;
  msg_mongo_append_ids(&filter, "_id", "$in", ids->at, ids->n);
  BSON_APPEND_UTF8(&filter, "sq.state", "done");
  append_past(&filter, "$sq.at", MSG_MONGO_KEPT_MS);
  int rc = msg_mongo_delete(u, s->names.messages, "sweep", &filter, NULL, err);
  bson_destroy(&filter);
  return rc;
}

static int put_off(msg_mongo_session *s, msg_mongo_use *u, const msg_mongo_ids *ids, msg_err *err) {
  bson_t filter = BSON_INITIALIZER;
  bson_t *change = BCON_NEW("0", "{", "$set", "{", "sq.until", "{", "$add", "[",
                            BCON_UTF8("$sq.at"), BCON_INT64(MSG_MONGO_KEPT_MS), "]", "}", "}", "}");
  msg_mongo_append_ids(&filter, "_id", "$in", ids->at, ids->n);
  BSON_APPEND_UTF8(&filter, "sq.state", "done");
  int rc = msg_mongo_update(u, s->names.messages, "sweep", &filter, change, NULL, err);
  bson_destroy(change);
  bson_destroy(&filter);
  return rc;
}

/* ---- leases ---- */

/* Afterwards only those that are done are leases. */
static int break_leases(msg_mongo_txn *t, void *arg, msg_err *err) {
  struct due *d = arg;
  bson_t filter = BSON_INITIALIZER;
  bool plain;
  msg_texts_clear(&d->acked);
  msg_texts_clear(&d->just_acked);
  msg_mongo_append_ids(&filter, "_id", "$in", d->leased.at, d->leased.n);
  BSON_APPEND_UTF8(&filter, "sq.state", "claimed");
  append_past(&filter, "$sq.until", 0);
  int rc = msg_mongo_leases_break(t, "sweep", &filter, &plain, &d->acked, &d->just_acked, err);
  bson_destroy(&filter);
  return rc;
}

static void append_leased(bson_t *filter, const struct due *d) {
  msg_mongo_append_ids(filter, "_id", "$in", d->leased.at, d->leased.n);
  BCON_APPEND(filter, "sq.state", BCON_UTF8("claimed"), "sq.lease", BCON_BOOL(true),
              "processed_by.0", "{", "$exists", BCON_BOOL(true), "}");
}

/* As put_off. */
static int put_off_leased(msg_mongo_session *s, msg_mongo_use *u, const struct due *d,
                          msg_err *err) {
  bson_t filter = BSON_INITIALIZER, until;
  msg_mongo_now_expr(&until, MSG_MONGO_KEPT_MS);
  bson_t *change = BCON_NEW("0", "{", "$set", "{", "sq.until", BCON_DOCUMENT(&until), "}", "}");
  append_leased(&filter, d);
  msg_mongo_append_texts(&filter, "sq.token", "$in", d->just_acked.at, d->just_acked.n, false);
  int rc = msg_mongo_update(u, s->names.messages, "sweep", &filter, change, NULL, err);
  bson_destroy(change);
  bson_destroy(&until);
  bson_destroy(&filter);
  return rc;
}

static int remove_leased(msg_mongo_session *s, msg_mongo_use *u, const struct due *d,
                         msg_err *err) {
  bson_t filter = BSON_INITIALIZER;
  append_leased(&filter, d);
  append_past(&filter, "$sq.until", 0);
  msg_mongo_append_texts(&filter, "sq.token", "$in", d->acked.at, d->acked.n, false);
  int rc = msg_mongo_delete(u, s->names.messages, "sweep", &filter, NULL, err);
  bson_destroy(&filter);
  return rc;
}

/* Those whose lease is done go; the others come back as other claims do. */
static int end_leases(msg_mongo_session *s, msg_mongo_use *u, struct due *d, msg_err *err) {
  int rc = msg_mongo_alone(s, u, break_leases, d, err);
  if (rc == MSG_OK && d->just_acked.n)
    rc = put_off_leased(s, u, d, err);
  if (rc == MSG_OK && d->acked.n)
    rc = remove_leased(s, u, d, err);
  for (size_t i = 0; rc == MSG_OK && i < d->leased.n; i++)
    if (msg_mongo_ids_add(&d->back, &d->leased.at[i]) != MSG_OK)
      rc = msg_err_nomem(err);
  return rc;
}

static int note_settled(msg_mongo_session *s, msg_mongo_use *u, const msg_mongo_ids *ids,
                        msg_err *err) {
  bson_t filter = BSON_INITIALIZER,
         *change = BCON_NEW("$unset", "{", "sq.until", BCON_INT32(1), "}");
  msg_mongo_append_ids(&filter, "_id", "$in", ids->at, ids->n);
  BSON_APPEND_UTF8(&filter, "sq.state", "dead");
  int rc = msg_mongo_update(u, s->names.messages, "sweep", &filter, change, NULL, err);
  bson_destroy(change);
  bson_destroy(&filter);
  return rc;
}

static int move(msg_mongo_session *s, msg_mongo_use *u, struct due *d, int64_t max_attempts,
                msg_err *err) {
  int rc = d->leased.n ? end_leases(s, u, d, err) : MSG_OK;
  if (rc == MSG_OK && d->back.n)
    rc = bring_back(s, u, &d->back, max_attempts, err);
  if (rc == MSG_OK && d->over.n)
    rc = remove_over(s, u, &d->over, err);
  if (rc == MSG_OK && d->groups.n)
    rc = msg_mongo_groups_promote(s, u, &d->groups, err);
  if (rc == MSG_OK && d->settled.n)
    rc = note_settled(s, u, &d->settled, err);
  if (rc == MSG_OK && d->done.n)
    rc = remove_done(s, u, &d->done, err);
  if (rc == MSG_OK && d->recent.n)
    rc = put_off(s, u, &d->recent, err);
  return rc;
}

/* ---- when ---- */

static bool is_time(const msg_mongo_turn *turn, int64_t now_ms) {
  return now_ms - turn->at_ms >= turn->pause_ms || now_ms < turn->at_ms;
}

/* Is it time? Then it is this caller's turn. */
static bool is_turn(msg_mongo_session *s, msg_mongo_turn *turn, int64_t pause_ms, bool force) {
  int64_t now_ms = msg_clock_now_ms();
  msg_mutex_lock(s->store->mtx);
  bool is = force || is_time(turn, now_ms);
  if (is)
    *turn = (msg_mongo_turn){now_ms, pause_ms};
  msg_mutex_unlock(s->store->mtx);
  return is;
}

/* What takes long is done seldom. */
static void end_turn(msg_mongo_session *s, msg_mongo_turn *turn) {
  msg_mutex_lock(s->store->mtx);
  int64_t took_ms = msg_clock_now_ms() - turn->at_ms;
  if (took_ms * SHARE > turn->pause_ms)
    turn->pause_ms = took_ms * SHARE;
  msg_mutex_unlock(s->store->mtx);
}

/* ---- groups: what no time tells ---- */

static int tend_groups(msg_mongo_session *s, msg_mongo_use *u, int *moved, msg_err *err) {
  msg_mongo_place *p = s->place;
  int rc = MSG_OK;
  *moved = 0;
  if (is_turn(s, &p->passed, PASS_MS, false)) {
    rc = msg_mongo_groups_pass(s, u, moved, err);
    end_turn(s, &p->passed);
  }
  if (rc == MSG_OK && is_turn(s, &p->repaired, REPAIR_MS, false)) {
    rc = msg_mongo_groups_repair(s, u, err);
    end_turn(s, &p->repaired);
  }
  return rc;
}

/* One of the queue's whose turn it is. */
static msg_mongo_place *next_grouped(msg_mongo_session *s) {
  int64_t now_ms = msg_clock_now_ms();
  msg_mutex_lock(s->store->mtx);
  msg_mongo_place *p = s->store->places;
  while (p && (p->queue != s->queue || !p->grouped || !is_time(&p->passed, now_ms)))
    p = p->next;
  msg_mutex_unlock(s->store->mtx);
  return p;
}

int msg_mongo_sweep_groups(msg_mongo_session *s, int *moved, msg_err *err) {
  msg_mongo_place *p;
  msg_mongo_use u;
  int rc = MSG_OK;
  *moved = 0;
  while (rc == MSG_OK && (p = next_grouped(s))) {
    msg_mongo_session at = msg_mongo_session_at(s, p);
    int passed = 0;
    rc = msg_mongo_take(s->store, "look at groups", &u, err);
    if (rc == MSG_OK)
      rc = tend_groups(&at, &u, &passed, err);
    *moved += passed;
    msg_mongo_give(&u);
  }
  return rc;
}

/* ---- leases that are over ---- */

static bool is_leased(msg_mongo_session *s) {
  msg_mutex_lock(s->store->mtx);
  bool is = s->place->leased;
  msg_mutex_unlock(s->store->mtx);
  return is;
}

static int tidy(msg_mongo_session *s, msg_mongo_use *u, msg_err *err) {
  msg_mongo_turn *turn = &s->place->tidied;
  if (!is_turn(s, turn, TIDY_MS, false))
    return MSG_OK;
  int rc = msg_mongo_leases_tidy(s, u, err);
  end_turn(s, turn);
  return rc;
}

int msg_mongo_sweep(msg_mongo_session *s, msg_mongo_use *u, int64_t max_attempts, bool force,
                    int *moved, msg_err *err) {
  struct due d = {.now_ms = msg_mongo_now_ms(s->store)};
  int passed = 0;
  if (moved)
    *moved = 0;
  if (!is_turn(s, &s->place->swept, PAUSE_MS, force))
    return MSG_OK;
  int rc = look(s, u, &d, err);
  size_t n = d.over.n + d.back.n + d.settled.n + d.done.n + d.recent.n + d.leased.n;
  if (rc == MSG_OK && n)
    rc = move(s, u, &d, max_attempts, err);
  if (rc == MSG_OK && d.groups.n)
    msg_mongo_note_grouped(s);
  due_clear(&d);
  if (rc == MSG_OK && is_leased(s))
    rc = tidy(s, u, err);
  if (rc == MSG_OK && msg_mongo_is_grouped(s))
    rc = tend_groups(s, u, &passed, err);
  if (rc == MSG_OK && moved)
    *moved = (int)n + passed;
  return rc;
}

int msg_mongo_sweep_apart(const msg_mongo_session *s, msg_mongo_use *u, msg_err *err) {
  msg_mongo_at where;
  if (!s->queue->layout->apart)
    return MSG_OK;
  msg_mongo_at_apart(&s->queue->names, &where);
  msg_mongo_place *p = msg_mongo_place_of(s->store, s->queue, MSG_MONGO_APART, &where);
  if (!p)
    return msg_err_nomem(err);
  msg_mongo_session at = msg_mongo_session_at(s, p);
  return msg_mongo_sweep(&at, u, INT64_MAX, true, NULL, err);
}
