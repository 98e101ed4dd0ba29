/* settle.c - what an owner does with a claim: ack, release, extend, reject; and an operator: free.
 *
 * A token fences: who lost the lease, or shares only the node's name with its later owner, changes
 * nothing. */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/sort.h"
#include "base/str.h"
#include "store/local/lease.h"
#include "store/local/move.h"
#include "store/local/reading.h"

/* Theirs, while the lease holds: by token, else by the node's own name. (A join might scan the
 * leases when statistics found few.) */
#define THEIRS                                                                                     \
  " FROM @.msg_store_message AS m WHERE m.id = ?1 AND m.queue = ?2"                                \
  " AND (SELECT (SELECT " MSG_LOCAL_LEASE_END(                                                     \
      "l.seq") " > ?3 AND (l.token = ?4 OR (?4 IS NULL AND l.owner = ?5))"                         \
               "  FROM @.msg_store_claim AS l WHERE l.seq = c.lease)"                              \
               "  FROM @.msg_store_claim AS c WHERE c.seq = m.seq)"

static const char *const WHAT[] = {[MSG_SETTLE_ACK] = "ack",
                                   [MSG_SETTLE_RELEASE] = "release",
                                   [MSG_SETTLE_EXTEND] = "extend",
                                   [MSG_SETTLE_REJECT] = "reject",
                                   [MSG_SETTLE_FREE] = "free"};

struct settling {
  const msg_actor *actor;
  const msg_settle *how;
  msg_settle_item *items;
  size_t n;
  int64_t now_ms;
  int64_t lease, extended; /* the last lease of which a message was extended, and its new one */
};

/* A statement on one message of theirs, by THEIRS. */
static int theirs(msg_local_session *s, const char *sql, const struct settling *w,
                  const msg_settle_item *item, sqlite3_stmt **out, msg_err *err) {
  return msg_local_bound(s, sql, out, err, "dtitt", &item->id, s->queue, w->now_ms, item->token,
                         w->actor->node);
}

/* ---- one by one ---- */

/* The message, if the claim may be settled by this caller. */
static int owned(msg_local_session *s, const struct settling *w, const msg_settle_item *item,
                 msg_local_item *out, msg_err *err) {
  static const char sql[] = "SELECT " MSG_LOCAL_ITEM_COLUMNS THEIRS;
  static const char sql_any[] =
      "SELECT " MSG_LOCAL_ITEM_COLUMNS " FROM @.msg_store_message AS m WHERE m.id = ?1"
      " AND m.queue = ?2 AND " MSG_LOCAL_CLAIM("lease", "m.seq") " IS NOT NULL";
  sqlite3_stmt *stmt = NULL;
  int rc = w->how->verb == MSG_SETTLE_FREE
               ? msg_local_bound(s, sql_any, &stmt, err, "dt", &item->id, s->queue)
               : theirs(s, sql, w, item, &stmt, err);
  return rc == MSG_OK ? msg_local_item_read(s, stmt, out, err) : rc;
}

static bool is_repeated(const struct settling *w, const msg_settle_item *item) {
  const msg_settle_item *at = w->items;
  while (at < item && !(at->done && msg_oid_cmp(&at->id, &item->id) == 0))
    at++;
  return at < item;
}

/* Messages of one lease stay together. */
static int extend(msg_local_session *s, struct settling *w, const msg_settle_item *named,
                  const msg_local_item *item, msg_err *err) {
  static const char sql[] = "UPDATE @.msg_store_claim SET lease = ?2 WHERE seq = ?1";
  int64_t end_ms = msg_clock_add(w->now_ms, w->how->lease_ms);
  int rc = MSG_OK;
  if (msg_local_lease_end_ms(item->lease) == msg_local_lease_end_for(end_ms))
    return is_repeated(w, named) ? MSG_NOTFOUND : MSG_OK;
  if (w->lease != item->lease)
    rc = msg_local_lease_copy(s, item->lease, end_ms, item->seq, &w->extended, err);
  else
    rc = msg_local_lease_joined(s, w->extended, item->seq, err);
  w->lease = item->lease;
  if (rc == MSG_OK)
    rc = msg_local_exec(s, sql, NULL, err, "ii", item->seq, w->extended);
  return rc == MSG_OK ? msg_local_lease_left(s, item->lease, 1, err) : rc;
}

static int release(msg_local_session *s, struct settling *w, msg_local_item *item, msg_err *err) {
  if (item->attempts >= w->actor->settings->max_attempts)
    return msg_local_item_bury(s, item, "max_attempts", w->now_ms, err);
  if (w->how->delay_ms > 0)
    item->deliver_at_ms = msg_clock_add(w->now_ms, w->how->delay_ms);
  return msg_local_item_free(s, item, w->now_ms, err);
}

static int settle_owned(msg_local_session *s, struct settling *w, const msg_settle_item *named,
                        msg_local_item *item, msg_err *err) {
  switch (w->how->verb) {
  case MSG_SETTLE_ACK: return msg_local_item_drop(s, item, w->now_ms, err);
  case MSG_SETTLE_RELEASE: return release(s, w, item, err);
  case MSG_SETTLE_REJECT: return msg_local_item_bury(s, item, w->how->reason, w->now_ms, err);
  case MSG_SETTLE_FREE: return msg_local_item_free(s, item, w->now_ms, err);
  case MSG_SETTLE_EXTEND: return extend(s, w, named, item, err);
  }
  return msg_err_set(err, MSG_INVALID, "unknown way to settle: %d", (int)w->how->verb);
}

static int settle_item(msg_local_session *s, struct settling *w, msg_settle_item *item,
                       msg_err *err) {
  msg_local_item found;
  item->done = false;
  int rc = owned(s, w, item, &found, err);
  if (rc == MSG_OK)
    rc = settle_owned(s, w, item, &found, err);
  item->done = rc == MSG_OK;
  return rc == MSG_NOTFOUND ? MSG_OK : rc;
}

/* ---- many acks ---- */

/* An item's row. */
struct found {
  int64_t seq, lease;
  msg_settle_item *item;
};

/* An item to be found. */
struct wanted {
  msg_settle_item *item;
  bool found;
};

struct batch {
  struct found *at;
  size_t n;
  struct wanted *wanted; /* by id */
  size_t wanted_n;
  bool alone; /* leases have been of one message each: not worth reading through */
};

/* The lease of an item. */
struct held {
  int64_t lease;
  int64_t last; /* seq: none of its messages is after it */
  bool whole;   /* it has every number up to there, from its first message */
  char token[MSG_OID_HEX + 1];
  bool own; /* the caller's by name */
};

static int by_id(const void *a, const void *b) {
  const struct wanted *x = a, *y = b;
  int order = msg_oid_cmp(&x->item->id, &y->item->id);
  return order != 0 ? order : (x->item > y->item) - (x->item < y->item);
}

static int by_seq(const void *a, const void *b) {
  const struct found *x = a, *y = b;
  if (x->seq != y->seq)
    return x->seq < y->seq ? -1 : 1;
  return (x->item > y->item) - (x->item < y->item);
}

static void add_found(struct batch *b, struct wanted *x, int64_t seq, int64_t lease) {
  x->found = true;
  b->at[b->n++] = (struct found){seq, lease, x->item};
}

/* MSG_NOTFOUND: not to settle by this way. Those of groups are left to settle_item. */
static int find_one(msg_local_session *s, const struct settling *w, struct batch *b,
                    struct wanted *x, msg_err *err) {
  static const char sql[] =
      "SELECT m.seq, " MSG_LOCAL_CLAIM("lease", "m.seq") THEIRS " AND m.grp IS NULL";
  sqlite3_stmt *stmt = NULL;
  int rc = theirs(s, sql, w, x->item, &stmt, err);
  if (rc == MSG_OK && (rc = msg_local_row(s, stmt, err)) == MSG_OK)
    add_found(b, x, sqlite3_column_int64(stmt, 0), sqlite3_column_int64(stmt, 1));
  msg_local_done(s, stmt);
  return rc;
}

static int look_at_lease(msg_local_session *s, const struct settling *w, int64_t lease,
                         struct held *out, msg_err *err) {
  static const char sql[] = "SELECT token, owner = ?2, last, last - first + 1 = messages FROM "
                            "@.msg_store_claim WHERE seq = ?1";
  sqlite3_stmt *stmt = NULL;
  *out = (struct held){.lease = lease};
  int rc = msg_local_bound(s, sql, &stmt, err, "it", lease, w->actor->node);
  if (rc == MSG_OK && (rc = msg_local_row(s, stmt, err)) == MSG_OK) {
    const char *token = (const char *)sqlite3_column_text(stmt, 0);
    if (token && strlen(token) < sizeof out->token)
      memcpy(out->token, token, strlen(token) + 1);
    out->own = sqlite3_column_int(stmt, 1) != 0;
    out->last = sqlite3_column_int64(stmt, 2);
    out->whole = sqlite3_column_int(stmt, 3) != 0;
  }
  msg_local_done(s, stmt);
  return rc;
}

static bool holds(const struct held *h, const msg_settle_item *item) {
  return item->token ? strcmp(item->token, h->token) == 0 : h->own;
}

/* The first of `id` or after it. */
static size_t first_of(const struct batch *b, const msg_oid *id) {
  size_t lo = 0, hi = b->wanted_n;
  while (lo < hi) {
    size_t mid = lo + (hi - lo) / 2;
    if (msg_oid_cmp(&b->wanted[mid].item->id, id) < 0)
      lo = mid + 1;
    else
      hi = mid;
  }
  return lo;
}

/* *next: where the one after the last is expected. */
static void take_row(struct batch *b, const struct held *h, int64_t seq, const msg_oid *id,
                     size_t *next) {
  size_t first = *next < b->wanted_n && msg_oid_cmp(&b->wanted[*next].item->id, id) == 0 &&
                         !b->wanted[*next].found
                     ? *next
                     : first_of(b, id);
  *next = first + 1;
  for (size_t i = first; i < b->wanted_n; i++) {
    struct wanted *x = &b->wanted[i];
    if (msg_oid_cmp(&x->item->id, id) != 0)
      return;
    if (!x->found && holds(h, x->item))
      add_found(b, x, seq, h->lease);
  }
}

/* Those of a run of a lease's messages that are wanted. */
static int take_run(msg_local_session *s, struct batch *b, const struct held *h, int64_t first,
                    int64_t last, size_t *next, msg_err *err) {
  static const char sql[] = "SELECT m.seq, m.id FROM @.msg_store_message AS m NOT INDEXED"
                            " WHERE m.seq BETWEEN ?1 AND ?2 AND m.queue = ?3 AND m.grp IS NULL";
  sqlite3_stmt *stmt = NULL;
  int rc = msg_local_bound(s, sql, &stmt, err, "iit", first, last, s->queue);
  while (rc == MSG_OK && (rc = msg_local_row(s, stmt, err)) == MSG_OK) {
    msg_oid id;
    if (msg_oid_parse((const char *)sqlite3_column_text(stmt, 1), &id))
      take_row(b, h, sqlite3_column_int64(stmt, 0), &id, next);
  }
  msg_local_done(s, stmt);
  return rc == MSG_NOTFOUND ? MSG_OK : rc;
}

/* What is wanted of a lease's messages from `first` on, wherever they are. */
static int take_scattered(msg_local_session *s, struct batch *b, const struct held *h,
                          int64_t first, size_t *next, msg_err *err) {
  static const char sql[] = "SELECT seq FROM @.msg_store_claim WHERE lease = ?1"
                            " AND seq BETWEEN ?2 AND ?3 ORDER BY seq LIMIT ?4";
  sqlite3_stmt *stmt = NULL;
  msg_local_seqs of_lease = {0};
  int rc = msg_local_bound(s, sql, &stmt, err, "iiii", h->lease, first, h->last,
                           (int64_t)(2 * b->wanted_n));
  if (rc == MSG_OK)
    rc = msg_local_seqs_read(s, stmt, &of_lease, err);
  for (size_t i = 0, n; rc == MSG_OK && i < of_lease.n; i += n) {
    n = msg_local_seqs_run(&of_lease.at[i], of_lease.n - i);
    rc = take_run(s, b, h, of_lease.at[i], of_lease.at[i + n - 1], next, err);
  }
  msg_free(of_lease.at);
  return rc;
}

/* What else is wanted of the lease of the last one found, of what follows in it. */
static int find_rest(msg_local_session *s, const struct settling *w, struct batch *b,
                     msg_err *err) {
  const struct found *found = &b->at[b->n - 1];
  int64_t first = found->seq + 1, last = found->seq + (int64_t)(2 * b->wanted_n);
  size_t before = b->n, next = 0;
  struct held held;
  int rc = look_at_lease(s, w, found->lease, &held, err);
  last = last < held.last ? last : held.last;
  if (rc == MSG_OK && !held.whole)
    rc = take_scattered(s, b, &held, first, &next, err);
  else if (rc == MSG_OK && first <= last)
    rc = take_run(s, b, &held, first, last, &next, err);
  b->alone = b->n == before;
  return rc == MSG_NOTFOUND ? MSG_OK : rc;
}

/* Finds the rows that may be settled: by id, and those of the same lease with it. */
static int find_rows(msg_local_session *s, const struct settling *w, struct batch *b,
                     msg_err *err) {
  int rc = MSG_OK;
  for (size_t i = 0; rc == MSG_OK && i < b->wanted_n; i++) {
    if (b->wanted[i].found)
      continue;
    rc = find_one(s, w, b, &b->wanted[i], err);
    if (rc == MSG_OK && !b->alone && i + 1 < b->wanted_n)
      rc = find_rest(s, w, b, err);
    else if (rc == MSG_NOTFOUND)
      rc = MSG_OK;
  }
  return rc;
}

/* Sorted; an id given twice is settled by the first item. */
static void sort_rows(struct batch *b) {
  size_t n = 0;
  msg_sort(b->at, b->n, sizeof *b->at, by_seq);
  for (size_t i = 0; i < b->n; i++) {
    if (n > 0 && b->at[n - 1].seq == b->at[i].seq)
      continue;
    b->at[i].item->done = true;
    b->at[n++] = b->at[i];
  }
  b->n = n;
}

/* Every number from one to another is one of theirs. */
static int drop_run(msg_local_session *s, msg_local_seqs *run, msg_err *err) {
  static const char sql_one[] = "DELETE FROM @.msg_store_claim WHERE seq = ?1";
  static const char sql_run[] = "DELETE FROM @.msg_store_claim WHERE seq BETWEEN ?1 AND ?2";
  int rc = msg_local_seqs_delete(s, run, err);
  if (rc != MSG_OK)
    return rc;
  return run->n == 1 ? msg_local_exec(s, sql_one, NULL, err, "i", run->at[0])
                     : msg_local_exec(s, sql_run, NULL, err, "ii", run->at[0], run->at[run->n - 1]);
}

/* Where its messages follow each other, a lease is left once. */
static int leave_leases(msg_local_session *s, const struct batch *b, msg_err *err) {
  int rc = MSG_OK;
  for (size_t i = 0, n; rc == MSG_OK && i < b->n; i += n) {
    for (n = 1; i + n < b->n && b->at[i + n].lease == b->at[i].lease;)
      n++;
    rc = msg_local_lease_left(s, b->at[i].lease, (int64_t)n, err);
  }
  return rc;
}

static int drop_rows(msg_local_session *s, const struct batch *b, msg_err *err) {
  int64_t *seqs = b->n > 0 ? msg_alloc(b->n * sizeof *seqs) : NULL;
  int rc = MSG_OK;
  if (b->n == 0)
    return MSG_OK;
  if (!seqs)
    return msg_err_nomem(err);
  for (size_t i = 0; i < b->n; i++)
    seqs[i] = b->at[i].seq;
  for (size_t i = 0; rc == MSG_OK && i < b->n;) {
    msg_local_seqs run = {.at = &seqs[i], .n = msg_local_seqs_run(&seqs[i], b->n - i)};
    rc = drop_run(s, &run, err);
    i += run.n;
  }
  msg_free(seqs);
  return rc == MSG_OK ? leave_leases(s, b, err) : rc;
}

static int ack_found(msg_local_session *s, struct settling *w, struct batch *b, msg_err *err) {
  for (size_t i = 0; i < w->n; i++)
    b->wanted[i] = (struct wanted){.item = &w->items[i]};
  b->wanted_n = w->n;
  msg_sort(b->wanted, w->n, sizeof *b->wanted, by_id);
  int rc = find_rows(s, w, b, err);
  if (rc != MSG_OK)
    return rc;
  sort_rows(b);
  return drop_rows(s, b, err);
}

static int ack_batch(msg_local_session *s, struct settling *w, msg_err *err) {
  struct batch b = {.at = msg_alloc(w->n * sizeof *b.at),
                    .wanted = msg_alloc(w->n * sizeof *b.wanted)};
  int rc = b.at && b.wanted ? ack_found(s, w, &b, err) : msg_err_nomem(err);
  msg_free(b.at);
  msg_free(b.wanted);
  return rc;
}

/* ---- the verb ---- */

static int settle_work(msg_local_session *s, void *arg, msg_err *err) {
  struct settling *w = arg;
  int rc = MSG_OK;
  w->lease = w->extended = 0;
  for (size_t i = 0; i < w->n; i++)
    w->items[i].done = false;
  if (w->how->verb == MSG_SETTLE_ACK && w->n > 0)
    rc = ack_batch(s, w, err);
  for (size_t i = 0; rc == MSG_OK && i < w->n; i++)
    if (!w->items[i].done)
      rc = settle_item(s, w, &w->items[i], err);
  return rc;
}

int msg_local_settle(msg_session *base, const msg_actor *actor, const msg_settle *how,
                     msg_settle_item *items, size_t n, msg_err *err) {
  msg_local_session *s = (msg_local_session *)base;
  struct settling w = {
      .actor = actor, .how = how, .items = items, .n = n, .now_ms = msg_clock_now_ms()};
  bool backlog;
  int rc = msg_local_sweep(s, actor, w.now_ms, false, &backlog, err);
  return rc == MSG_OK ? msg_local_write(s, WHAT[how->verb], true, settle_work, &w, err) : rc;
}
