/* candidates.c - see candidates.h. */
#include "store/local/candidates.h"

#include <string.h>

#include "base/mem.h"
#include "store/local/lane.h"
#include "store/local/move.h"
#include "store/local/reading.h"

/* More expired rows than this in front: not worth passing over one by one. */
#define EXPIRED_MANY 257
/* As many unexpired ones are worth sorting. */
#define SORT_MANY       4097
#define TEXT_OF(number) #number
#define TEXT(macro)     TEXT_OF(macro)

#define FIRST                                                                                      \
  "SELECT priority, deliver_at, seq FROM @.msg_store_message INDEXED BY msg_store_message_"
#define IN_ORDER " ORDER BY priority, deliver_at, seq LIMIT "

static const char SQL_READY[] =
    MSG_LOCAL_READY_ROWS " AND " MSG_LOCAL_MESSAGE("state", "r.seq") " = 1" MSG_LOCAL_READY_ORDER;
static const char SQL_MORTAL[] =
    FIRST "mortal WHERE state = 2 AND queue = ?1 AND topic = ?2 AND delete_at > ?4" IN_ORDER "?3";
/* Touches no expired row, but sorts. */
static const char SQL_MORTAL_END[] = FIRST
    "mortal_end WHERE state = 2 AND queue = ?1 AND topic = ?2 AND delete_at > ?4" IN_ORDER "?3";
#define COUNT_MORTAL(compare, limit)                                                               \
  "SELECT count(*) FROM (SELECT 1 FROM @.msg_store_message INDEXED BY "                            \
  "msg_store_message_mortal_end"                                                                   \
  " WHERE state = 2 AND queue = ?1 AND topic = ?2 AND delete_at " compare " ?3 LIMIT " limit ")"

/* What a search carries along. */
struct search {
  const msg_claim *claim;
  const char *node;
  int64_t count; /* wanted of each kind */
  int64_t now_ms;
  msg_local_candidates *out;
};

bool msg_local_claim_wants(const msg_claim *claim, const char *topic) {
  if (!msg_pattern_match(claim->pattern, topic))
    return false;
  for (size_t i = 0; i < claim->paused_count; i++)
    if (msg_pattern_match(claim->paused[i], topic))
      return false;
  return true;
}

static int add(msg_local_candidates *out, sqlite3_stmt *stmt, msg_err *err) {
  bool wanted;
  msg_rank one = msg_local_first_read(stmt);
  out->met++;
  return msg_local_firsts_add(&out->first, &one, &wanted, err);
}

int msg_local_candidates_read(msg_local_session *s, sqlite3_stmt *stmt, msg_local_candidates *out,
                              msg_err *err) {
  int rc;
  while ((rc = msg_local_row(s, stmt, err)) == MSG_OK && (rc = add(out, stmt, err)) == MSG_OK)
    ;
  msg_local_done(s, stmt);
  return rc == MSG_NOTFOUND ? MSG_OK : rc;
}

/* ---- by kind ---- */

static int find_ready(msg_local_session *s, struct search *f, const char *topic, msg_err *err) {
  sqlite3_stmt *stmt = NULL;
  int rc = msg_local_bound(s, SQL_READY, &stmt, err, "tti", s->queue, topic, f->count);
  return rc == MSG_OK ? msg_local_candidates_read(s, stmt, f->out, err) : rc;
}

static int count_mortal(msg_local_session *s, const char *sql, struct search *f, const char *topic,
                        int64_t *out, msg_err *err) {
  sqlite3_stmt *stmt = NULL;
  int rc = msg_local_bound(s, sql, &stmt, err, "tti", s->queue, topic, f->now_ms);
  if (rc == MSG_OK)
    rc = msg_local_row(s, stmt, err);
  if (rc == MSG_OK)
    *out = sqlite3_column_int64(stmt, 0);
  msg_local_done(s, stmt);
  return rc;
}

/* Which index costs less: the order with the expired in front, or those that live, sorted? */
static int choose_mortal(msg_local_session *s, struct search *f, const char *topic,
                         const char **sql, msg_err *err) {
  static const char sql_expired[] = COUNT_MORTAL("<=", TEXT(EXPIRED_MANY));
  static const char sql_living[] = COUNT_MORTAL(">", TEXT(SORT_MANY));
  int64_t expired = 0, living = 0;
  *sql = SQL_MORTAL;
  int rc = count_mortal(s, sql_expired, f, topic, &expired, err);
  if (rc != MSG_OK || expired < EXPIRED_MANY)
    return rc;
  rc = count_mortal(s, sql_living, f, topic, &living, err);
  if (rc == MSG_OK && living < SORT_MANY)
    *sql = SQL_MORTAL_END;
  return rc;
}

static int find_mortal(msg_local_session *s, struct search *f, const char *topic, msg_err *err) {
  const char *sql;
  sqlite3_stmt *stmt = NULL;
  size_t before = f->out->met;
  int rc = choose_mortal(s, f, topic, &sql, err);
  if (rc == MSG_OK)
    rc = msg_local_bound(s, sql, &stmt, err, "ttii", s->queue, topic, f->count, f->now_ms);
  if (rc == MSG_OK)
    rc = msg_local_candidates_read(s, stmt, f->out, err);
  f->out->wide = f->out->wide || f->out->met > before;
  return rc;
}

/* ---- by topic ---- */

typedef int (*finder)(msg_local_session *s, struct search *f, const char *topic, msg_err *err);

/* `find` for every wanted topic that `sql` gives. */
static int each_topic(msg_local_session *s, const char *sql, struct search *f, finder find,
                      msg_err *err) {
  sqlite3_stmt *stmt = NULL;
  int rc = msg_local_bound(s, sql, &stmt, err, "t", s->queue);
  while (rc == MSG_OK && (rc = msg_local_row(s, stmt, err)) == MSG_OK) {
    const char *topic = (const char *)sqlite3_column_text(stmt, 0);
    if (!topic)
      rc = msg_err_nomem(err);
    else if (msg_local_claim_wants(f->claim, topic))
      rc = find(s, f, topic, err);
  }
  msg_local_done(s, stmt);
  return rc == MSG_NOTFOUND ? MSG_OK : rc;
}

static int find_by_pattern(msg_local_session *s, struct search *f, msg_err *err) {
  static const char sql_ready[] = MSG_LOCAL_TOPICS_READY;
  static const char sql_mortal[] = MSG_LOCAL_TOPICS("state = 2", "mortal");
  int rc = each_topic(s, sql_ready, f, find_ready, err);
  return rc == MSG_OK ? each_topic(s, sql_mortal, f, find_mortal, err) : rc;
}

static int find_by_name(msg_local_session *s, struct search *f, const char *topic, msg_err *err) {
  if (!msg_local_claim_wants(f->claim, topic))
    return MSG_OK;
  int rc = find_ready(s, f, topic, err);
  return rc == MSG_OK ? find_mortal(s, f, topic, err) : rc;
}

/* ---- in the lane ---- */

static int add_waiting(void *arg, const msg_local_waiting *row, bool *more, msg_err *err) {
  struct search *f = arg;
  bool wanted;
  f->out->wide = true;
  *more = row->nth < (size_t)f->count;
  return msg_local_firsts_add(&f->out->first, &row->first, &wanted, err);
}

static int find_addressed(msg_local_session *s, struct search *f, msg_err *err) {
  msg_local_lane lane = {.node = f->node,
                         .exclusive = true,
                         .pattern = f->claim->pattern,
                         .paused = f->claim->paused,
                         .paused_count = f->claim->paused_count,
                         .now_ms = f->now_ms};
  return msg_local_lane_walk(s, &lane, add_waiting, f, err);
}

int msg_local_candidates_find(msg_local_session *s, const char *node, const msg_claim *claim,
                              size_t count, int64_t now_ms, msg_local_candidates *out,
                              msg_err *err) {
  struct search f = {
      .claim = claim, .node = node, .count = (int64_t)count, .now_ms = now_ms, .out = out};
  out->first.max = count;
  int rc = msg_pattern_kind_of(claim->pattern) == MSG_PATTERN_EXACT
               ? find_by_name(s, &f, msg_pattern_text(claim->pattern), err)
               : find_by_pattern(s, &f, err);
  if (rc == MSG_OK)
    rc = find_addressed(s, &f, err);
  msg_local_firsts_trim(&out->first);
  return rc;
}

/* ---- their messages ---- */

/* The messages themselves, one or a run of numbers, in a state or (0) in any. */
#define ROW(columns)                                                                               \
  "SELECT " columns " FROM @.msg_store_message AS m WHERE m.seq = ?1 AND (?2 = 0 OR m.state = ?2)"
#define RUN(columns)                                                                               \
  "SELECT " columns " FROM @.msg_store_message AS m NOT INDEXED WHERE m.seq BETWEEN ?1 AND ?2"     \
  " AND (?3 = 0 OR m.state = ?3) ORDER BY m.seq"
static const char SQL_ROW[] = ROW(MSG_LOCAL_FREE_COLUMNS);
static const char SQL_RUN[] = RUN(MSG_LOCAL_FREE_COLUMNS);
static const char SQL_ROW_BRIEF[] = ROW(MSG_LOCAL_BRIEF_COLUMNS);
static const char SQL_RUN_BRIEF[] = RUN(MSG_LOCAL_BRIEF_COLUMNS);

/* Reading them. */
struct messages {
  char *topic;   /* not NULL: brief rows of it, lent */
  int64_t state; /* 0 any */
  int64_t now_ms;
  msg_list *out;
};

static int read_rows(msg_local_session *s, const struct messages *r, sqlite3_stmt *stmt,
                     msg_err *err) {
  int rc;
  while ((rc = msg_local_row(s, stmt, err)) == MSG_OK) {
    msg_message *m = msg_list_add(r->out);
    if (!m)
      rc = msg_err_nomem(err);
    else
      rc = r->topic ? msg_local_read_brief(stmt, r->topic, m, err)
                    : msg_local_read_row(stmt, r->now_ms, m, err);
    if (rc != MSG_OK)
      break;
  }
  msg_local_done(s, stmt);
  return rc == MSG_NOTFOUND ? MSG_OK : rc;
}

/* `seqs` in ascending order. */
static int read_runs(msg_local_session *s, const struct messages *r, const int64_t *seqs, size_t n,
                     msg_err *err) {
  int rc = MSG_OK;
  for (size_t i = 0, run; rc == MSG_OK && i < n; i += run) {
    sqlite3_stmt *stmt = NULL;
    run = msg_local_seqs_run(&seqs[i], n - i);
    if (run == 1)
      rc = msg_local_bound(s, r->topic ? SQL_ROW_BRIEF : SQL_ROW, &stmt, err, "ii", seqs[i],
                           r->state);
    else
      rc = msg_local_bound(s, r->topic ? SQL_RUN_BRIEF : SQL_RUN, &stmt, err, "iii", seqs[i],
                           seqs[i + run - 1], r->state);
    if (rc == MSG_OK)
      rc = read_rows(s, r, stmt, err);
  }
  return rc;
}

int msg_local_candidates_messages(msg_local_session *s, const msg_local_candidates *c,
                                  const char *topic, int64_t now_ms, msg_list *out, msg_err *err) {
  struct messages r = {.topic = topic ? msg_list_lend(out, topic) : NULL,
                       .state = c->unchecked ? MSG_LOCAL_READY : 0,
                       .now_ms = now_ms,
                       .out = out};
  size_t before = out->n;
  if ((topic && !r.topic) || msg_list_reserve(out, c->first.n) != MSG_OK)
    return msg_err_nomem(err);
  if (c->first.n == 0) /* an authorizer that forbids to read them is met even so */
    return msg_local_ready(s, SQL_ROW, err);
  msg_local_seqs seqs = {.at = msg_alloc(c->first.n * sizeof *seqs.at), .n = c->first.n};
  if (!seqs.at)
    return msg_err_nomem(err);
  for (size_t i = 0; i < seqs.n; i++)
    seqs.at[i] = c->first.at[i].seq;
  bool sorted = msg_local_seqs_sort(&seqs);
  int rc = read_runs(s, &r, seqs.at, seqs.n, err);
  if (rc == MSG_OK && !sorted && out->n > before)
    msg_list_sort(&(msg_list){.at = out->at + before, .n = out->n - before});
  msg_free(seqs.at);
  return rc;
}

int msg_local_candidates_wide(msg_local_session *s, const char *node, const char *topic,
                              int64_t now_ms, bool *out, msg_err *err) {
  static const char sql[] =
      "SELECT EXISTS(SELECT 1 FROM @.msg_store_message INDEXED BY msg_store_message_mortal_end"
      "  WHERE state = 2 AND queue = ?1 AND topic = ?2 AND delete_at > ?3)"
      " OR EXISTS(SELECT 1 FROM @.msg_store_lane WHERE queue = ?1 AND node = ?4 AND exclusive = 1)";
  sqlite3_stmt *stmt = NULL;
  int rc = msg_local_bound(s, sql, &stmt, err, "ttit", s->queue, topic, now_ms, node);
  if (rc == MSG_OK)
    rc = msg_local_row(s, stmt, err);
  if (rc == MSG_OK)
    *out = sqlite3_column_int(stmt, 0) != 0;
  msg_local_done(s, stmt);
  return rc;
}
