/* sweep.c - what time alone changes: delays, leases and lives that end, processes that end. */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/process.h"
#include "store/local/lease.h"
#include "store/local/move.h"
#include "store/local/reading.h"

#define LOOK_PAUSE_MS        5
#define WORK_SHARE           4 /* after work of t ms, none for that many times t */
#define LIVENESS_PAUSE_MS    50
#define ROWS_MAX             256
#define EXPIRED_MIN          64 /* share of ROWS_MAX that delays and leases leave to expired rows */
#define KEYS_MAX             64
#define HOLDERS_MAX          16
#define MAX_ATTEMPTS_DEFAULT 20

/* What a look found due. */
struct due {
  bool delayed, expired, keys, leases;
  char *dead[HOLDERS_MAX]; /* processes whose claims are to return */
  size_t dead_n;
};

/* Every index is named: statistics of an emptier table must not lead SQLite to scan a fuller one.
 * When the first of each kind is due. */
static const char SQL_LOOK[] =
    "SELECT (SELECT min(due) FROM @.msg_store_message"
    "  INDEXED BY msg_store_message_delayed WHERE state = 4),"
    " (SELECT min(delete_at) FROM @.msg_store_message"
    "  INDEXED BY msg_store_message_expiry WHERE delete_at IS NOT NULL AND state <> 6),"
    " (SELECT min(until) FROM @.msg_store_key INDEXED BY msg_store_key_until),"
    " " MSG_LOCAL_LEASE_END(MSG_LOCAL_FIRST_LEASE("@.msg_store_claim"));
static const char SQL_HOLDERS[] = "SELECT process FROM @.msg_store_holder WHERE process <> ?1";

/* ---- looking ---- */

static void due_clear(struct due *d) {
  for (size_t i = 0; i < d->dead_n; i++)
    msg_free(d->dead[i]);
  memset(d, 0, sizeof *d);
}

static bool due_any(const struct due *d) {
  return d->delayed || d->expired || d->keys || d->leases || d->dead_n > 0;
}

static bool is_over(sqlite3_stmt *stmt, int i, int64_t now_ms) {
  return sqlite3_column_type(stmt, i) != SQLITE_NULL && sqlite3_column_int64(stmt, i) <= now_ms;
}

/* Those beyond HOLDERS_MAX have their turn at the next look. */
static int look_at_holders(msg_local_session *s, struct due *d, msg_err *err) {
  sqlite3_stmt *stmt = NULL;
  int rc = msg_local_bound(s, SQL_HOLDERS, &stmt, err, "t", msg_process_self());
  while (rc == MSG_OK && d->dead_n < HOLDERS_MAX && (rc = msg_local_row(s, stmt, err)) == MSG_OK) {
    const char *process = (const char *)sqlite3_column_text(stmt, 0);
    if (process && msg_process_liveness(process) != MSG_DEAD)
      continue;
    char *copy = msg_strdup(process);
    if (copy)
      d->dead[d->dead_n++] = copy;
    else
      rc = msg_err_nomem(err);
  }
  msg_local_done(s, stmt);
  return rc == MSG_NOTFOUND ? MSG_OK : rc;
}

static int look(msg_local_session *s, int64_t now_ms, bool liveness, struct due *out,
                msg_err *err) {
  sqlite3_stmt *stmt = NULL;
  bool held = false;
  int rc = msg_local_stmt(s, SQL_LOOK, &stmt, err);
  if (rc == MSG_OK && (rc = msg_local_row(s, stmt, err)) == MSG_OK) {
    out->delayed = is_over(stmt, 0, now_ms);
    out->expired = is_over(stmt, 1, now_ms);
    out->keys = is_over(stmt, 2, now_ms);
    out->leases = is_over(stmt, 3, now_ms);
    held = sqlite3_column_type(stmt, 3) != SQLITE_NULL;
  }
  msg_local_done(s, stmt);
  return rc == MSG_OK && held && liveness ? look_at_holders(s, out, err) : rc;
}

/* ---- moving ---- */

struct sweep {
  const struct due *due;
  int64_t now_ms;
  int32_t max_attempts;
  int left;  /* rows it may still move */
  int moved; /* rows it moved */
};

typedef int (*mover)(msg_local_session *s, struct sweep *w, msg_local_item *item, msg_err *err);

/* Moves every row whose seq `stmt` gives. */
static int move_all(msg_local_session *s, struct sweep *w, sqlite3_stmt *stmt, mover move,
                    msg_err *err) {
  msg_local_seqs seqs = {0};
  int rc = msg_local_seqs_read(s, stmt, &seqs, err);
  for (size_t i = 0; rc == MSG_OK && i < seqs.n; i++) {
    msg_local_item item;
    rc = msg_local_item_load(s, seqs.at[i], &item, err);
    if (rc == MSG_OK)
      rc = move(s, w, &item, err);
    else if (rc == MSG_NOTFOUND)
      rc = MSG_OK;
    w->left--;
    w->moved++;
  }
  msg_free(seqs.at);
  return rc;
}

static int move_free(msg_local_session *s, struct sweep *w, msg_local_item *item, msg_err *err) {
  return msg_local_item_free(s, item, w->now_ms, err);
}

/* In the order in which they were to become visible. */
static int sweep_delayed(msg_local_session *s, struct sweep *w, msg_err *err) {
  static const char sql[] =
      "SELECT seq FROM @.msg_store_message INDEXED BY msg_store_message_delayed"
      " WHERE state = 4 AND due <= ?1 ORDER BY due, seq LIMIT ?2";
  sqlite3_stmt *stmt = NULL;
  int rc = msg_local_bound(s, sql, &stmt, err, "ii", w->now_ms, (int64_t)(w->left - EXPIRED_MIN));
  return rc == MSG_OK ? move_all(s, w, stmt, move_free, err) : rc;
}

static int move_return(msg_local_session *s, struct sweep *w, msg_local_item *item, msg_err *err) {
  if (item->attempts >= w->max_attempts)
    return msg_local_item_bury(s, item, "max_attempts", w->now_ms, err);
  return msg_local_item_free(s, item, w->now_ms, err);
}

static void read_lease(sqlite3_stmt *stmt, msg_local_lease *out) {
  *out = (msg_local_lease){.number = sqlite3_column_int64(stmt, 0),
                           .first = sqlite3_column_int64(stmt, 1),
                           .last = sqlite3_column_int64(stmt, 2)};
}

/* Its claims, and when no more are left of them, itself. What has no message any more (somebody has
 * deleted it by hand) goes with it. */
static int sweep_lease(msg_local_session *s, struct sweep *w, const msg_local_lease *l,
                       msg_err *err) {
  static const char sql[] = "SELECT seq FROM @.msg_store_claim WHERE lease = ?1"
                            " AND seq BETWEEN ?2 AND ?3 ORDER BY seq LIMIT ?4";
  static const char sql_claims[] =
      "DELETE FROM @.msg_store_claim WHERE lease = ?1 AND seq BETWEEN ?2 AND ?3";
  static const char sql_lease[] = "DELETE FROM @.msg_store_claim WHERE seq = ?1";
  sqlite3_stmt *stmt = NULL;
  int limit = w->left - EXPIRED_MIN, moved = w->moved;
  int rc =
      msg_local_bound(s, sql, &stmt, err, "iiii", l->number, l->first, l->last, (int64_t)limit);
  if (rc == MSG_OK)
    rc = move_all(s, w, stmt, move_return, err);
  if (rc != MSG_OK || w->moved - moved == limit)
    return rc;
  w->left--; /* for the lease */
  rc = msg_local_exec(s, sql_claims, NULL, err, "iii", l->number, l->first, l->last);
  return rc == MSG_OK ? msg_local_exec(s, sql_lease, NULL, err, "i", l->number) : rc;
}

/* The lease that ends first. MSG_NOTFOUND: there is none. */
static int first_lease(msg_local_session *s, msg_local_lease *out, msg_err *err) {
  static const char sql[] = "SELECT seq, first, last FROM @.msg_store_claim"
                            " WHERE seq = " MSG_LOCAL_FIRST_LEASE("@.msg_store_claim");
  sqlite3_stmt *stmt = NULL;
  int rc = msg_local_stmt(s, sql, &stmt, err);
  if (rc == MSG_OK && (rc = msg_local_row(s, stmt, err)) == MSG_OK)
    read_lease(stmt, out);
  msg_local_done(s, stmt);
  return rc;
}

static int sweep_ended(msg_local_session *s, struct sweep *w, msg_err *err) {
  msg_local_lease lease;
  int rc = MSG_OK;
  while (rc == MSG_OK && w->left > EXPIRED_MIN) {
    rc = first_lease(s, &lease, err);
    if (rc == MSG_OK && msg_local_lease_end_ms(lease.number) > w->now_ms)
      break;
    if (rc == MSG_OK)
      rc = sweep_lease(s, w, &lease, err);
  }
  return rc == MSG_NOTFOUND ? MSG_OK : rc;
}

/* At most `max` of what a process holds. */
static int find_held(msg_local_session *s, const char *process, msg_local_lease *out, size_t max,
                     size_t *n, msg_err *err) {
  static const char sql[] =
      "SELECT seq, first, last FROM @.msg_store_claim WHERE holder = ?1 LIMIT ?2";
  sqlite3_stmt *stmt = NULL;
  int rc = msg_local_bound(s, sql, &stmt, err, "ti", process, (int64_t)max);
  for (*n = 0; rc == MSG_OK && *n < max && (rc = msg_local_row(s, stmt, err)) == MSG_OK;)
    read_lease(stmt, &out[(*n)++]);
  msg_local_done(s, stmt);
  return rc == MSG_NOTFOUND ? MSG_OK : rc;
}

/* All claims are read, once: a process that is dead takes no more. */
static int sweep_dead(msg_local_session *s, struct sweep *w, const char *process, msg_err *err) {
  static const char sql[] = "DELETE FROM @.msg_store_holder WHERE process = ?1";
  msg_local_lease held[ROWS_MAX];
  size_t n = 0;
  int rc = find_held(s, process, held, (size_t)(w->left - EXPIRED_MIN), &n, err);
  for (size_t i = 0; rc == MSG_OK && i < n && w->left > EXPIRED_MIN; i++)
    rc = sweep_lease(s, w, &held[i], err);
  if (rc != MSG_OK || w->left <= EXPIRED_MIN) /* there may be more */
    return rc;
  return msg_local_exec(s, sql, NULL, err, "t", process);
}

static int move_drop(msg_local_session *s, struct sweep *w, msg_local_item *item, msg_err *err) {
  return msg_local_item_drop(s, item, w->now_ms, err);
}

/* Up to the row that is the `left`th from the front of the expiry index, so that the statement
 * reads a range of it: to pick them by IN (SELECT ...) would scan the table where statistics are
 * stale. */
static int find_last(msg_local_session *s, const struct sweep *w, int64_t *at_ms, int64_t *seq,
                     msg_err *err) {
  static const char sql[] =
      "SELECT delete_at, seq FROM @.msg_store_message INDEXED BY msg_store_message_expiry"
      " WHERE delete_at IS NOT NULL AND state <> 6 AND delete_at <= ?1"
      " ORDER BY delete_at, seq LIMIT 1 OFFSET ?2";
  sqlite3_stmt *stmt = NULL;
  int rc = msg_local_bound(s, sql, &stmt, err, "ii", w->now_ms, (int64_t)w->left - 1);
  if (rc == MSG_OK)
    rc = msg_local_row(s, stmt, err);
  *at_ms = rc == MSG_OK ? sqlite3_column_int64(stmt, 0) : w->now_ms;
  *seq = rc == MSG_OK ? sqlite3_column_int64(stmt, 1) : INT64_MAX;
  msg_local_done(s, stmt);
  return rc == MSG_NOTFOUND ? MSG_OK : rc;
}

/* Those without group or lanes in one statement. */
static int sweep_expired(msg_local_session *s, struct sweep *w, msg_err *err) {
  static const char sql_plain[] =
      "DELETE FROM @.msg_store_message INDEXED BY msg_store_message_expiry"
      " WHERE delete_at IS NOT NULL AND state <> 6 AND (delete_at, seq) <= (?1, ?2)"
      " AND grp IS NULL AND recipients IS NULL";
  static const char sql_rest[] =
      "SELECT seq FROM @.msg_store_message INDEXED BY msg_store_message_expiry"
      " WHERE delete_at IS NOT NULL AND state <> 6 AND delete_at <= ?1"
      " ORDER BY delete_at, seq LIMIT ?2";
  int64_t gone = 0, at_ms, seq;
  int rc = find_last(s, w, &at_ms, &seq, err);
  if (rc == MSG_OK)
    rc = msg_local_exec(s, sql_plain, &gone, err, "ii", at_ms, seq);
  w->moved += (int)gone;
  w->left -= (int)gone;
  sqlite3_stmt *stmt = NULL;
  if (rc == MSG_OK && w->left > 0)
    rc = msg_local_bound(s, sql_rest, &stmt, err, "ii", w->now_ms, (int64_t)w->left);
  return rc == MSG_OK && stmt ? move_all(s, w, stmt, move_drop, err) : rc;
}

/* All of one millisecond at once: keys are light. */
static int sweep_keys(msg_local_session *s, struct sweep *w, msg_err *err) {
  static const char sql[] =
      "DELETE FROM @.msg_store_key INDEXED BY msg_store_key_until WHERE until <= ?1"
      " AND until <= coalesce((SELECT until FROM @.msg_store_key INDEXED BY msg_store_key_until"
      "  WHERE until <= ?1 ORDER BY until LIMIT 1 OFFSET ?2), ?1)";
  int64_t gone = 0;
  int rc = msg_local_exec(s, sql, &gone, err, "ii", w->now_ms, (int64_t)KEYS_MAX - 1);
  w->moved += (int)gone;
  return rc;
}

static int sweep_work(msg_local_session *s, void *arg, msg_err *err) {
  struct sweep *w = arg;
  int rc = MSG_OK;
  w->left = ROWS_MAX;
  w->moved = 0;
  if (w->due->delayed)
    rc = sweep_delayed(s, w, err);
  if (rc == MSG_OK && w->due->leases)
    rc = sweep_ended(s, w, err);
  for (size_t i = 0; rc == MSG_OK && i < w->due->dead_n && w->left > EXPIRED_MIN; i++)
    rc = sweep_dead(s, w, w->due->dead[i], err);
  if (rc == MSG_OK && w->due->expired)
    rc = sweep_expired(s, w, err);
  if (rc == MSG_OK && w->due->keys)
    rc = sweep_keys(s, w, err);
  return rc;
}

/* ---- when ---- */

static bool just(int64_t at_ms, int64_t now_ms, int64_t pause_ms) {
  return at_ms != 0 && now_ms >= at_ms && now_ms - at_ms < pause_ms;
}

/* Without the write lock a look would be a read that the verb must upgrade. */
static bool allowed(msg_local_session *s) {
  return !msg_local_pinned(s) || sqlite3_txn_state(s->db, s->schema_raw) == SQLITE_TXN_WRITE;
}

/* A sweep is a service to the verb that follows, which will meet the same lock itself. One that was
 * asked for after the verb found nothing is the verb's last word. */
static int forgive(int rc, bool force) {
  return (rc == MSG_BUSY && !force) || rc == MSG_READONLY ? MSG_OK : rc;
}

struct looking {
  int64_t now_ms;
  bool liveness;
  struct due *due;
};

static int look_work(msg_local_session *s, void *arg, msg_err *err) {
  struct looking *l = arg;
  due_clear(l->due);
  return look(s, l->now_ms, l->liveness, l->due, err);
}

static int sweep_now(msg_local_session *s, const msg_actor *actor, int64_t now_ms, bool force,
                     bool *backlog, msg_err *err) {
  struct due due = {0};
  bool liveness = force || !just(s->liveness_at_ms, now_ms, LIVENESS_PAUSE_MS);
  int64_t start_ms = msg_clock_mono_ms();
  struct looking l = {.now_ms = now_ms, .liveness = liveness, .due = &due};
  s->what = "look";
  /* Only one that was asked for is worth waiting for a lock. */
  int rc = force ? msg_local_read(s, "look", look_work, &l, err) : look_work(s, &l, err);
  if (rc == MSG_OK) {
    s->swept_at_ms = now_ms;
    if (liveness)
      s->liveness_at_ms = now_ms;
  }
  if (rc == MSG_OK && due_any(&due)) {
    struct sweep w = {.due = &due, .now_ms = now_ms, .max_attempts = MAX_ATTEMPTS_DEFAULT};
    if (actor && actor->settings)
      w.max_attempts = (int32_t)actor->settings->max_attempts;
    rc = (force ? msg_local_write : msg_local_try_write)(s, "sweep", true, sweep_work, &w, err);
    s->swept = rc == MSG_OK ? w.moved : 0;
    *backlog = rc != MSG_OK || w.left <= EXPIRED_MIN;
  }
  s->sweep_pause_ms = LOOK_PAUSE_MS + WORK_SHARE * (msg_clock_mono_ms() - start_ms);
  due_clear(&due);
  return rc;
}

/* True when there is nothing to look at: no store, or it has just been rolled back. */
static int nothing_there(msg_local_session *s, bool *nothing, msg_err *err) {
  bool exists = true;
  int rc = s->schema_known ? MSG_OK : msg_local_readable(s, &exists, err);
  *nothing = !exists;
  return rc;
}

int msg_local_sweep(msg_local_session *s, const msg_actor *actor, int64_t now_ms, bool force,
                    bool *backlog, msg_err *err) {
  bool nothing = false;
  *backlog = false;
  s->swept = 0;
  if ((!force && just(s->swept_at_ms, now_ms, s->sweep_pause_ms)) || !allowed(s))
    return MSG_OK;
  int rc = nothing_there(s, &nothing, err);
  if (rc == MSG_OK && !nothing)
    rc = sweep_now(s, actor, now_ms, force, backlog, err);
  if (rc != MSG_OK && s->vanished) {
    s->vanished = false;
    rc = MSG_OK;
  }
  return forgive(rc, force);
}

int msg_local_sweep_due(msg_local_session *s, int64_t now_ms, bool *due, msg_err *err) {
  struct due found = {0};
  int rc = look(s, now_ms, true, &found, err);
  *due = due_any(&found);
  due_clear(&found);
  return rc;
}
