/* settle.c - what an owner does with a claim: ack, release, extend, reject; and an operator: free.
 *
 * A token fences: who lost the lease, or shares only the node's name with its later owner, changes
 * nothing. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "store/local/move.h"
#include "store/local/reading.h"

/* Acks further apart than this number of messages are removed by statements of their own. */
#define GAP_MAX 64

/* Theirs, while the lease holds: by token, else by the node's own name. */
#define THEIRS                                                                                     \
  "id = ?1 AND queue = ?2 AND state = 6 AND due > ?3"                                              \
  " AND (token = ?4 OR (?4 IS NULL AND owner = ?5))"

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
  bool grouped; /* a message alone that its one statement may have missed */
};

/* A statement on one message of theirs, by THEIRS. ?6, if any, is `extra`. */
static int theirs(msg_local_session *s, const char *sql, const struct settling *w,
                  const msg_settle_item *item, const int64_t *extra, sqlite3_stmt **out,
                  msg_err *err) {
  if (extra)
    return msg_local_bound(s, sql, out, err, "dtitti", &item->id, s->queue, w->now_ms, item->token,
                           w->actor->node, *extra);
  return msg_local_bound(s, sql, out, err, "dtitt", &item->id, s->queue, w->now_ms, item->token,
                         w->actor->node);
}

static int change(msg_local_session *s, const char *sql, const struct settling *w,
                  msg_settle_item *item, const int64_t *extra, msg_err *err) {
  sqlite3_stmt *stmt = NULL;
  int rc = theirs(s, sql, w, item, extra, &stmt, err);
  if (rc == MSG_OK)
    rc = msg_local_run(s, stmt, err);
  if (rc == MSG_OK)
    item->done = sqlite3_changes(s->db) > 0;
  return rc;
}

/* ---- one statement ---- */

/* While it is claimed a message has no lanes: outside a group nothing else is to do. */
static int ack_plain(msg_local_session *s, struct settling *w, msg_settle_item *item,
                     msg_err *err) {
  static const char sql[] = "DELETE FROM @.msg_store_message WHERE " THEIRS " AND grp IS NULL";
  return change(s, sql, w, item, NULL, err);
}

static int extend(msg_local_session *s, struct settling *w, msg_settle_item *item, msg_err *err) {
  static const char sql[] = "UPDATE @.msg_store_message SET due = ?6 WHERE " THEIRS;
  int64_t due_ms = msg_clock_add(w->now_ms, w->how->lease_ms);
  return change(s, sql, w, item, &due_ms, err);
}

/* ---- more than one ---- */

/* The message, if the claim may be settled by this caller. */
static int owned(msg_local_session *s, const struct settling *w, const msg_settle_item *item,
                 msg_local_item *out, msg_err *err) {
  static const char sql[] = "SELECT seq FROM @.msg_store_message WHERE " THEIRS;
  static const char sql_any[] =
      "SELECT seq FROM @.msg_store_message WHERE id = ?1 AND queue = ?2 AND state = 6";
  sqlite3_stmt *stmt = NULL;
  int64_t seq = 0;
  int rc = w->how->verb == MSG_SETTLE_FREE
               ? msg_local_bound(s, sql_any, &stmt, err, "dt", &item->id, s->queue)
               : theirs(s, sql, w, item, NULL, &stmt, err);
  if (rc == MSG_OK)
    rc = msg_local_row(s, stmt, err);
  if (rc == MSG_OK)
    seq = sqlite3_column_int64(stmt, 0);
  msg_local_done(s, stmt);
  return rc == MSG_OK ? msg_local_item_load(s, seq, out, err) : rc;
}

static int release(msg_local_session *s, struct settling *w, msg_local_item *item, msg_err *err) {
  if (item->attempts >= w->actor->settings->max_attempts)
    return msg_local_item_bury(s, item, "max_attempts", w->now_ms, err);
  if (w->how->delay_ms > 0)
    item->deliver_at_ms = msg_clock_add(w->now_ms, w->how->delay_ms);
  return msg_local_item_free(s, item, w->now_ms, err);
}

static int settle_owned(msg_local_session *s, struct settling *w, msg_local_item *item,
                        msg_err *err) {
  switch (w->how->verb) {
  case MSG_SETTLE_ACK: return msg_local_item_drop(s, item, w->now_ms, err);
  case MSG_SETTLE_RELEASE: return release(s, w, item, err);
  case MSG_SETTLE_REJECT: return msg_local_item_bury(s, item, w->how->reason, w->now_ms, err);
  case MSG_SETTLE_FREE: return msg_local_item_free(s, item, w->now_ms, err);
  case MSG_SETTLE_EXTEND: break;
  }
  return msg_err_set(err, MSG_INVALID, "unknown way to settle: %d", (int)w->how->verb);
}

static int settle_item(msg_local_session *s, struct settling *w, msg_settle_item *item,
                       msg_err *err) {
  msg_local_item found;
  item->done = false;
  int rc = owned(s, w, item, &found, err);
  if (rc == MSG_NOTFOUND)
    return MSG_OK;
  if (rc == MSG_OK)
    rc = settle_owned(s, w, &found, err);
  item->done = rc == MSG_OK;
  return rc;
}

/* ---- many acks ---- */

/* An item's row. */
struct found {
  int64_t seq;
  msg_settle_item *item;
};

struct batch {
  struct found *at;
  size_t n;
};

static int by_seq(const void *a, const void *b) {
  const struct found *x = a, *y = b;
  if (x->seq != y->seq)
    return x->seq < y->seq ? -1 : 1;
  return (x->item > y->item) - (x->item < y->item);
}

/* The row of one item; the rest of `stmt` is bound. MSG_NOTFOUND: not to settle by this way. */
static int find_row(msg_local_session *s, sqlite3_stmt *stmt, const msg_settle_item *item,
                    int64_t *seq, msg_err *err) {
  char hex[MSG_OID_HEX + 1];
  int rc = msg_local_bind_oid(stmt, 1, &item->id, hex);
  if (rc == SQLITE_OK)
    rc = msg_local_bind_text(stmt, 4, item->token);
  rc = rc == SQLITE_OK ? msg_local_row(s, stmt, err) : msg_local_fail(s, rc, s->what, err);
  if (rc == MSG_OK)
    *seq = sqlite3_column_int64(stmt, 0);
  sqlite3_reset(stmt);
  return rc;
}

/* Finds the rows that may be settled. Those of groups are left to settle_item. */
static int find_rows(msg_local_session *s, struct settling *w, struct batch *b, msg_err *err) {
  static const char sql[] = "SELECT seq FROM @.msg_store_message WHERE " THEIRS " AND grp IS NULL";
  sqlite3_stmt *stmt = NULL;
  int rc = theirs(s, sql, w, w->items, NULL, &stmt, err);
  for (size_t i = 0; rc == MSG_OK && i < w->n; i++) {
    int64_t seq = 0;
    rc = find_row(s, stmt, &w->items[i], &seq, err);
    if (rc == MSG_OK)
      b->at[b->n++] = (struct found){seq, &w->items[i]};
    else if (rc == MSG_NOTFOUND)
      rc = MSG_OK;
  }
  msg_local_done(s, stmt);
  return rc;
}

/* Sorted; an id given twice is settled by the first item. */
static void sort_rows(struct batch *b) {
  size_t n = 0;
  if (b->n > 1)
    qsort(b->at, b->n, sizeof *b->at, by_seq);
  for (size_t i = 0; i < b->n; i++) {
    if (n > 0 && b->at[n - 1].seq == b->at[i].seq)
      continue;
    b->at[i].item->done = true;
    b->at[n++] = b->at[i];
  }
  b->n = n;
}

static int drop_one(msg_local_session *s, int64_t seq, msg_err *err) {
  return msg_local_exec(s, "DELETE FROM @.msg_store_message WHERE seq = ?1", NULL, err, "i", seq);
}

/* One statement for many neighbours. The range bounds what it reads should stale statistics make
 * SQLite scan it. */
static int drop_range(msg_local_session *s, const struct found *at, size_t n, msg_err *err) {
  static const char sql[] = "DELETE FROM @.msg_store_message WHERE seq BETWEEN ?1 AND ?2"
                            " AND seq IN (SELECT value FROM json_each(?3))";
  msg_str seqs = MSG_STR_INIT;
  for (size_t i = 0; i < n; i++)
    msg_str_appendf(&seqs, "%c%lld", i == 0 ? '[' : ',', (long long)at[i].seq);
  msg_str_append(&seqs, "]");
  int rc = seqs.nomem ? msg_err_nomem(err)
                      : msg_local_exec(s, sql, NULL, err, "iit", at[0].seq, at[n - 1].seq, seqs.s);
  msg_str_clear(&seqs);
  return rc;
}

/* Rows from at[0] on, at least one, that lie close enough together. */
static size_t neighbours(const struct found *at, size_t n) {
  size_t k = 1;
  while (k < n && at[k].seq - at[k - 1].seq <= GAP_MAX)
    k++;
  return k;
}

static int drop_rows(msg_local_session *s, const struct batch *b, msg_err *err) {
  int rc = MSG_OK;
  for (size_t i = 0, n; rc == MSG_OK && i < b->n; i += n) {
    n = neighbours(&b->at[i], b->n - i);
    rc = n == 1 ? drop_one(s, b->at[i].seq, err) : drop_range(s, &b->at[i], n, err);
  }
  return rc;
}

static int ack_batch(msg_local_session *s, struct settling *w, msg_err *err) {
  struct batch b = {.at = msg_alloc(w->n * sizeof *b.at)};
  int rc = b.at ? find_rows(s, w, &b, err) : msg_err_nomem(err);
  if (rc == MSG_OK) {
    sort_rows(&b);
    rc = drop_rows(s, &b, err);
  }
  msg_free(b.at);
  return rc;
}

/* ---- the verb ---- */

static int one_work(msg_local_session *s, void *arg, msg_err *err) {
  struct settling *w = arg;
  return w->how->verb == MSG_SETTLE_EXTEND ? extend(s, w, w->items, err)
                                           : ack_plain(s, w, w->items, err);
}

static int many_work(msg_local_session *s, void *arg, msg_err *err) {
  struct settling *w = arg;
  int rc = MSG_OK;
  for (size_t i = 0; i < w->n; i++)
    w->items[i].done = false;
  if (w->how->verb == MSG_SETTLE_ACK)
    rc = ack_batch(s, w, err);
  for (size_t i = 0; rc == MSG_OK && i < w->n; i++) {
    msg_settle_item *item = &w->items[i];
    if (w->how->verb == MSG_SETTLE_EXTEND)
      rc = extend(s, w, item, err);
    else if (!item->done)
      rc = settle_item(s, w, item, err);
  }
  return rc;
}

/* Could the statement for one message alone have missed it? Reads only. */
static int is_grouped(msg_local_session *s, void *arg, msg_err *err) {
  struct settling *w = arg;
  static const char sql[] =
      "SELECT 1 FROM @.msg_store_message WHERE " THEIRS " AND grp IS NOT NULL";
  sqlite3_stmt *stmt = NULL;
  int rc = theirs(s, sql, w, w->items, NULL, &stmt, err);
  if (rc == MSG_OK)
    rc = msg_local_row(s, stmt, err);
  msg_local_done(s, stmt);
  w->grouped = rc == MSG_OK;
  return rc == MSG_NOTFOUND ? MSG_OK : rc;
}

int msg_local_settle(msg_session *base, const msg_actor *actor, const msg_settle *how,
                     msg_settle_item *items, size_t n, msg_err *err) {
  msg_local_session *s = (msg_local_session *)base;
  struct settling w = {
      .actor = actor, .how = how, .items = items, .n = n, .now_ms = msg_clock_now_ms()};
  const char *what = WHAT[how->verb];
  bool single = n == 1 && (how->verb == MSG_SETTLE_ACK || how->verb == MSG_SETTLE_EXTEND);
  bool backlog;
  int rc = msg_local_sweep(s, actor, w.now_ms, false, &backlog, err);
  if (rc == MSG_OK && single)
    rc = msg_local_write(s, what, false, one_work, &w, err);
  if (rc == MSG_OK && single && (items[0].done || how->verb == MSG_SETTLE_EXTEND))
    return MSG_OK;
  if (rc == MSG_OK && single)
    rc = msg_local_read(s, what, is_grouped, &w, err);
  return rc == MSG_OK && (!single || w.grouped) ? msg_local_write(s, what, true, many_work, &w, err)
                                                : rc;
}
