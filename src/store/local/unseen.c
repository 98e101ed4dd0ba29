/* unseen.c - what a node may be handed now: broadcasts above its floors, directs in its lane.
 *
 * First only keys are gathered (bounded), then the rows of the first max of them are read. */
#include <string.h>

#include "base/clock.h"
#include "store/local/firsts.h"
#include "store/local/horizon.h"
#include "store/local/lane.h"
#include "store/local/reading.h"

#define SINCE_MAX  1000 /* messages read one by one rather than topic by topic */
#define TOPICS_FEW 4    /* topics looked at one by one rather than by number */

#define LIVE "@.msg_store_message AS m INDEXED BY msg_store_message_live"

/* Topics with something visible, by a loose scan of the live index: one seek a topic. */
static const char sql_live_topics[] =
    "WITH RECURSIVE t(x) AS ("
    "SELECT (SELECT topic FROM " LIVE " WHERE state = 8 AND queue = ?1 AND topic >= ?2"
    " ORDER BY topic LIMIT 1)"
    " UNION ALL SELECT (SELECT topic FROM " LIVE
    " WHERE state = 8 AND queue = ?1 AND topic > t.x ORDER BY topic LIMIT 1) FROM t WHERE t.x IS "
    "NOT NULL)"
    " SELECT x FROM t WHERE x IS NOT NULL";

/* Of one topic for one pattern: what its floors have not passed, nor the node has seen. */
#define LEFT_OF(priority)                                                                          \
  " AND m.seq > max(?5, coalesce((SELECT f.floor FROM @.msg_store_floor AS f WHERE f.queue = ?1"   \
  " AND f.node = ?3 AND f.topic = ?2 AND f.priority = " priority " AND f.pattern = ?4), 0))"       \
  " AND m.sender <> ?3 AND (m.delete_at IS NULL OR m.delete_at > ?6)"                              \
  " AND NOT EXISTS (SELECT 1 FROM @.msg_store_seen AS s WHERE s.queue = ?1 AND s.node = ?3"        \
  " AND s.seq = m.seq) AND NOT " MSG_LOCAL_PASSED(?1, ?3)

/* Priority by priority (loose scan again), */
static const char sql_priorities[] =
    "WITH RECURSIVE p(x) AS ("
    "SELECT (SELECT priority FROM " LIVE " WHERE state = 8 AND queue = ?1 AND topic = ?2"
    " ORDER BY priority LIMIT 1)"
    " UNION ALL SELECT (SELECT priority FROM " LIVE " WHERE state = 8 AND queue = ?1"
    " AND topic = ?2 AND priority > p.x ORDER BY priority LIMIT 1) FROM p WHERE p.x IS NOT NULL)"
    " SELECT x FROM p WHERE x IS NOT NULL";
/* each from its floor on. (A join might build a filter of all its rows first.) */
static const char sql_broadcasts[] =
    "SELECT m.priority, m.deliver_at, m.seq FROM " LIVE
    " WHERE m.state = 8 AND m.queue = ?1 AND m.topic = ?2 AND m.priority = ?8"
    " AND m.moved IS NULL" LEFT_OF("?8") " ORDER BY m.seq LIMIT ?7";
/* Those which are not in their place by number. Few: sent or changed with another time. */
static const char sql_moved[] =
    "SELECT m.priority, m.deliver_at, m.seq FROM @.msg_store_message AS m INDEXED BY"
    " msg_store_message_moved WHERE m.moved IS NOT NULL AND m.state = 8 AND m.queue = ?1"
    " AND m.topic = ?2" LEFT_OF("m.priority") " ORDER BY m.priority, m.deliver_at, m.seq LIMIT ?7";

/* What came since a look that found nothing, number by number. */
static const char sql_since[] =
    "SELECT m.priority, m.deliver_at, m.seq, m.topic FROM @.msg_store_message AS m"
    " WHERE m.seq = ?3 AND m.state = 8 AND m.queue = ?1 AND m.sender <> ?2"
    " AND (m.delete_at IS NULL OR m.delete_at > ?4)"
    " AND NOT EXISTS (SELECT 1 FROM @.msg_store_seen AS s WHERE s.queue = ?1 AND s.node = ?2"
    " AND s.seq = m.seq) AND NOT " MSG_LOCAL_PASSED(?1, ?2);
static const char sql_last[] = "SELECT seq FROM @.sqlite_sequence WHERE name = 'msg_store_message'";

static const char sql_answers[] =
    "SELECT m.priority, m.deliver_at, m.seq, m.topic FROM @.msg_store_message AS m"
    " INDEXED BY msg_store_message_answer WHERE m.in_answer_to = ?4 AND m.queue = ?1 AND m.state = "
    "9"
    " AND (m.delete_at IS NULL OR m.delete_at > ?3)"
    " AND (SELECT 1 FROM @.msg_store_lane AS l WHERE l.queue = ?1 AND l.node = ?2"
    " AND l.exclusive = 0 AND l.priority = m.priority AND l.deliver_at = m.deliver_at"
    " AND l.seq = m.seq)";

static const char sql_row[] =
    "SELECT " MSG_LOCAL_COLUMNS " FROM @.msg_store_message AS m WHERE m.seq = ?1";

/* How often one call sweeps for more (256 rows each). */
#define ROUNDS_MAX 16

struct look {
  const msg_actor *actor;
  const msg_unseen *u;
  int64_t now_ms;
  msg_list *out;
  size_t before;  /* out->n before the call */
  bool committed; /* the snapshot holds nothing that may be rolled back */
  bool all_heard; /* no topic was skipped, and there was nothing new in any */
  msg_local_firsts first;
};

static int push_row(struct look *k, sqlite3_stmt *stmt, bool *wanted, msg_err *err) {
  msg_rank c = msg_local_first_read(stmt);
  return msg_local_firsts_add(&k->first, &c, wanted, err);
}

static bool paused(const msg_unseen *u, const char *topic) {
  for (size_t i = 0; i < u->paused_count; i++)
    if (msg_pattern_match(u->paused[i], topic))
      return true;
  return false;
}

/* ---- broadcasts, topic by topic ---- */

/* A statement on one topic for one pattern. */
static int bind_topic(msg_local_session *s, const char *sql, const struct look *k,
                      const msg_local_listener *l, const char *topic, sqlite3_stmt **out,
                      msg_err *err) {
  int64_t limit = k->u->max > INT32_MAX ? INT32_MAX : (int64_t)k->u->max;
  return msg_local_bound(s, sql, out, err, "ttttiii", s->queue, topic, k->actor->node, l->pattern,
                         l->start, k->now_ms, limit);
}

static int push_rows(msg_local_session *s, struct look *k, sqlite3_stmt *stmt, bool *wanted,
                     msg_err *err) {
  int rc = MSG_OK;
  while (rc == MSG_OK && *wanted && (rc = msg_local_row(s, stmt, err)) == MSG_OK) {
    k->all_heard = false;
    rc = push_row(k, stmt, wanted, err);
  }
  return rc == MSG_NOTFOUND ? MSG_OK : rc;
}

static int look_moved(msg_local_session *s, struct look *k, const msg_local_listener *l,
                      const char *topic, msg_err *err) {
  sqlite3_stmt *stmt = NULL;
  bool wanted = true;
  int rc = bind_topic(s, sql_moved, k, l, topic, &stmt, err);
  if (rc == MSG_OK)
    rc = push_rows(s, k, stmt, &wanted, err);
  msg_local_done(s, stmt);
  return rc;
}

static int look_in_order(msg_local_session *s, struct look *k, const msg_local_listener *l,
                         const char *topic, msg_err *err) {
  sqlite3_stmt *priorities = NULL, *stmt = NULL;
  bool wanted = true;
  int rc = msg_local_bound(s, sql_priorities, &priorities, err, "tt", s->queue, topic);
  if (rc == MSG_OK)
    rc = bind_topic(s, sql_broadcasts, k, l, topic, &stmt, err);
  while (rc == MSG_OK && wanted && (rc = msg_local_row(s, priorities, err)) == MSG_OK) {
    sqlite3_bind_int64(stmt, 8, sqlite3_column_int64(priorities, 0));
    rc = push_rows(s, k, stmt, &wanted, err);
    sqlite3_reset(stmt);
  }
  msg_local_done(s, stmt);
  msg_local_done(s, priorities);
  return rc == MSG_NOTFOUND ? MSG_OK : rc;
}

static int look_topic(msg_local_session *s, struct look *k, const msg_local_listener *l,
                      const char *topic, msg_err *err) {
  if (paused(k->u, topic)) {
    k->all_heard = false;
    return MSG_OK;
  }
  int rc = look_moved(s, k, l, topic, err);
  return rc == MSG_OK ? look_in_order(s, k, l, topic, err) : rc;
}

static bool is_exact(const msg_local_listener *l) {
  return l->compiled && msg_pattern_kind_of(l->compiled) == MSG_PATTERN_EXACT;
}

static int look_matching(msg_local_session *s, struct look *k, const msg_local_listener *l,
                         msg_err *err) {
  sqlite3_stmt *stmt = NULL;
  size_t prefix = l->compiled ? msg_pattern_prefix(l->compiled) : 0;
  int rc = msg_local_bound(s, sql_live_topics, &stmt, err, "t", s->queue);
  if (rc == MSG_OK &&
      sqlite3_bind_text(stmt, 2, l->pattern, (int)prefix, SQLITE_STATIC) != SQLITE_OK)
    rc = msg_err_nomem(err);
  while (rc == MSG_OK && (rc = msg_local_row(s, stmt, err)) == MSG_OK) {
    const char *topic = (const char *)sqlite3_column_text(stmt, 0);
    if (!topic)
      rc = msg_err_nomem(err);
    else if (strncmp(topic, l->pattern, prefix) != 0)
      break;
    else if (msg_local_listener_match(l, topic))
      rc = look_topic(s, k, l, topic, err);
  }
  msg_local_done(s, stmt);
  return rc == MSG_NOTFOUND ? MSG_OK : rc;
}

/* ---- broadcasts, by number ---- */

/* Is it for one of the node's patterns that are looked for? */
static bool heard(const msg_local_audience *mine, const char *only, const char *topic,
                  int64_t seq) {
  for (size_t i = 0; i < mine->n; i++) {
    const msg_local_listener *l = &mine->at[i];
    if (l->start < seq && (!only || strcmp(only, l->pattern) == 0) &&
        msg_local_listener_match(l, topic))
      return true;
  }
  return false;
}

static int push_heard(struct look *k, const msg_local_audience *mine, const char *only,
                      sqlite3_stmt *stmt, msg_err *err) {
  const char *topic = (const char *)sqlite3_column_text(stmt, 3);
  bool wanted;
  if (!topic)
    return msg_err_nomem(err);
  if (!heard(mine, only, topic, sqlite3_column_int64(stmt, 2)))
    return MSG_OK;
  k->all_heard = false;
  return paused(k->u, topic) ? MSG_OK : push_row(k, stmt, &wanted, err);
}

static int look_since(msg_local_session *s, struct look *k, const msg_local_audience *mine,
                      const char *only, int64_t horizon, int64_t last, msg_err *err) {
  sqlite3_stmt *stmt = NULL;
  int rc = msg_local_bound(s, sql_since, &stmt, err, "ttii", s->queue, k->actor->node, horizon,
                           k->now_ms);
  for (int64_t seq = horizon + 1; rc == MSG_OK && seq <= last; seq++) {
    sqlite3_bind_int64(stmt, 3, seq);
    if ((rc = msg_local_row(s, stmt, err)) == MSG_OK)
      rc = push_heard(k, mine, only, stmt, err);
    sqlite3_reset(stmt);
    if (rc == MSG_NOTFOUND)
      rc = MSG_OK;
  }
  msg_local_done(s, stmt);
  return rc;
}

/* ---- broadcasts ---- */

static int last_seq(msg_local_session *s, int64_t *out, msg_err *err) {
  sqlite3_stmt *stmt = NULL;
  int rc = msg_local_bound(s, sql_last, &stmt, err, "");
  if (rc == MSG_OK)
    rc = msg_local_row(s, stmt, err);
  *out = rc == MSG_OK ? sqlite3_column_int64(stmt, 0) : 0;
  msg_local_done(s, stmt);
  return rc == MSG_NOTFOUND ? MSG_OK : rc;
}

static int look_each(msg_local_session *s, struct look *k, const msg_local_audience *mine,
                     const char *only, msg_err *err) {
  int rc = MSG_OK;
  for (size_t i = 0; rc == MSG_OK && i < mine->n; i++) {
    const msg_local_listener *l = &mine->at[i];
    if (only && strcmp(only, l->pattern) != 0)
      continue;
    rc = is_exact(l) ? look_topic(s, k, l, l->pattern, err) : look_matching(s, k, l, err);
  }
  return rc;
}

/* As look_each, but from the horizon on where that is known and near. */
static int look_beyond(msg_local_session *s, struct look *k, const msg_local_audience *mine,
                       const char *only, msg_err *err) {
  int64_t starts = 0, last = 0;
  for (size_t i = 0; i < mine->n; i++)
    if (mine->at[i].start < 0)
      starts ^= mine->at[i].start;
  int64_t horizon = msg_local_horizon_get(s, k->actor->node, only ? only : "", starts);
  int rc = last_seq(s, &last, err);
  if (rc != MSG_OK)
    return rc;
  bool near = horizon >= 0 && last >= horizon && last - horizon <= SINCE_MAX;
  k->all_heard = true;
  rc = near ? look_since(s, k, mine, only, horizon, last, err) : look_each(s, k, mine, only, err);
  if (rc == MSG_OK && k->committed && k->all_heard)
    msg_local_horizon_set(s, k->actor->node, only ? only : "", starts, last);
  return rc;
}

static int look_broadcasts(msg_local_session *s, struct look *k, msg_err *err) {
  msg_local_audience mine = MSG_LOCAL_AUDIENCE_INIT;
  const char *only = k->u->pattern ? msg_pattern_text(k->u->pattern) : NULL;
  int rc = msg_local_audience_load(s, k->actor->node, &mine, err);
  size_t costly = 0; /* one topic is one seek */
  for (size_t i = 0; rc == MSG_OK && i < mine.n; i++)
    if (!only || strcmp(only, mine.at[i].pattern) == 0)
      costly += is_exact(&mine.at[i]) ? 1 : TOPICS_FEW;
  if (rc == MSG_OK)
    rc = costly < TOPICS_FEW ? look_each(s, k, &mine, only, err)
                             : look_beyond(s, k, &mine, only, err);
  msg_local_audience_clear(&mine);
  return rc;
}

/* ---- directs ---- */

static bool reserved(const msg_unseen *u, const char *in_answer_to) {
  msg_oid id;
  if (u->reserved_count == 0 || !in_answer_to || !msg_oid_parse(in_answer_to, &id))
    return false;
  return msg_oid_index(u->reserved, u->reserved_count, &id) < u->reserved_count;
}

static int look_answers(msg_local_session *s, struct look *k, msg_err *err) {
  sqlite3_stmt *stmt = NULL;
  int rc = msg_local_bound(s, sql_answers, &stmt, err, "ttid", s->queue, k->actor->node, k->now_ms,
                           k->u->answers_to);
  while (rc == MSG_OK && (rc = msg_local_row(s, stmt, err)) == MSG_OK) {
    const char *topic = (const char *)sqlite3_column_text(stmt, 3);
    bool ignored; /* they come unsorted */
    if (topic && !paused(k->u, topic))
      rc = push_row(k, stmt, &ignored, err);
  }
  msg_local_done(s, stmt);
  return rc == MSG_NOTFOUND ? MSG_OK : rc;
}

static int push_waiting(void *arg, const msg_local_waiting *row, bool *more, msg_err *err) {
  struct look *k = arg;
  if (reserved(k->u, row->in_answer_to))
    return MSG_OK;
  return msg_local_firsts_add(&k->first, &row->first, more, err);
}

static int look_directs(msg_local_session *s, struct look *k, msg_err *err) {
  msg_local_lane lane = {.node = k->actor->node,
                         .pattern = k->u->pattern,
                         .paused = k->u->paused,
                         .paused_count = k->u->paused_count,
                         .now_ms = k->now_ms};
  return k->u->answers_to ? look_answers(s, k, err)
                          : msg_local_lane_walk(s, &lane, push_waiting, k, err);
}

/* ---- both ---- */

static int read_rows(msg_local_session *s, struct look *k, msg_err *err) {
  sqlite3_stmt *stmt = NULL;
  int rc = k->first.n ? msg_local_stmt(s, sql_row, &stmt, err) : MSG_OK;
  for (size_t i = 0; rc == MSG_OK && i < k->first.n; i++) {
    sqlite3_bind_int64(stmt, 1, k->first.at[i].seq);
    if ((rc = msg_local_row(s, stmt, err)) == MSG_OK) {
      msg_message *m = msg_list_add(k->out);
      rc = m ? msg_local_read_row(stmt, k->now_ms, m, err) : msg_err_nomem(err);
    }
    sqlite3_reset(stmt);
    if (rc == MSG_NOTFOUND)
      rc = MSG_OK;
  }
  msg_local_done(s, stmt);
  return rc;
}

static void forget(struct look *k) {
  while (k->out->n > k->before)
    msg_message_clear(&k->out->at[--k->out->n]);
}

static int unseen_work(msg_local_session *s, void *arg, msg_err *err) {
  struct look *k = arg;
  forget(k);
  msg_local_firsts_clear(&k->first);
  int rc = k->u->answers_to ? MSG_OK : look_broadcasts(s, k, err);
  if (rc == MSG_OK)
    rc = look_directs(s, k, err);
  if (rc != MSG_OK)
    return rc;
  msg_local_firsts_trim(&k->first);
  return read_rows(s, k, err);
}

/* What became due since the last look must not be slept through: whoever comes back with less
 * than he may have forces a look. */
static int read_on(msg_local_session *s, const msg_actor *actor, struct look *k, bool backlog,
                   msg_err *err) {
  int rc = MSG_OK;
  bool looked = s->swept_at_ms == k->now_ms && !backlog;
  for (int round = 0; round < ROUNDS_MAX && !looked; round++) {
    if (k->out->n - k->before >= k->u->max)
      return MSG_OK;
    rc = msg_local_sweep(s, actor, k->now_ms, true, &backlog, err);
    if (rc == MSG_OK && s->swept > 0)
      rc = msg_local_read(s, "await", unseen_work, k, err);
    looked = rc != MSG_OK || s->swept == 0 || !backlog;
  }
  return rc;
}

int msg_local_unseen(msg_session *base, const msg_actor *actor, const msg_unseen *u, msg_list *out,
                     msg_err *err) {
  msg_local_session *s = (msg_local_session *)base;
  struct look k = {
      .actor = actor, .u = u, .now_ms = msg_clock_now_ms(), .out = out, .before = out->n};
  k.first.max = u->max;
  bool backlog;
  int rc = msg_local_sweep(s, actor, k.now_ms, false, &backlog, err);
  k.committed = sqlite3_txn_state(s->db, s->schema_raw) == SQLITE_TXN_NONE;
  if (rc == MSG_OK)
    rc = msg_local_read(s, "await", unseen_work, &k, err);
  if (rc == MSG_OK)
    rc = read_on(s, actor, &k, backlog, err);
  if (rc != MSG_OK)
    forget(&k);
  msg_local_firsts_clear(&k.first);
  return rc;
}
