/* lane.c - see lane.h. */
#include "store/local/lane.h"

#include <string.h>

#include "store/local/reading.h"

/* More of other topics than this in between: go topic by topic. */
#define OTHERS_MAX 256

#define WAITING(index, where)                                                                      \
  "SELECT priority, deliver_at, seq, topic FROM @.msg_store_lane INDEXED BY " index                \
  " WHERE queue = ?1 AND node = ?2 AND exclusive = ?3" where " ORDER BY priority, deliver_at, seq"

static const char sql_any[] = WAITING(MSG_LOCAL_LANE_ORDER, "");
/* What follows (?5, ?6, ?7) in delivery order. */
static const char sql_topic[] = WAITING(
    "msg_store_lane_topic", " AND topic = ?4 AND (priority, deliver_at, seq) > (?5, ?6, ?7)");
/* Its message, if it is to be had. */
static const char sql_message[] =
    "SELECT in_answer_to FROM @.msg_store_message WHERE seq = ?1 AND state = ?2"
    " AND (delete_at IS NULL OR delete_at > ?3)";
/* The topics from ?4 on, one seek each. */
static const char sql_topics[] =
    "WITH RECURSIVE t(x) AS (SELECT min(topic) FROM @.msg_store_lane INDEXED BY"
    " msg_store_lane_topic WHERE queue = ?1 AND node = ?2 AND exclusive = ?3 AND topic >= ?4"
    " UNION ALL SELECT (SELECT min(topic) FROM @.msg_store_lane INDEXED BY msg_store_lane_topic"
    " WHERE queue = ?1 AND node = ?2 AND exclusive = ?3 AND topic > t.x)"
    " FROM t WHERE t.x IS NOT NULL) SELECT x FROM t WHERE x IS NOT NULL";

struct walk {
  const msg_local_lane *lane;
  msg_local_waiting_fn take;
  void *arg;
  /* where the walk in delivery order ended */
  int64_t priority, deliver_at_ms, seq;
  bool done;
  size_t n; /* handed in this part */
};

static bool wants(const msg_local_lane *lane, const char *topic) {
  if (lane->pattern && !msg_pattern_match(lane->pattern, topic))
    return false;
  for (size_t i = 0; i < lane->paused_count; i++)
    if (msg_pattern_match(lane->paused[i], topic))
      return false;
  return true;
}

static int hand(msg_local_session *s, struct walk *w, sqlite3_stmt *stmt, bool *more,
                msg_err *err) {
  msg_local_waiting row = {.nth = w->n + 1, .first = msg_local_first_read(stmt)};
  int64_t state = w->lane->exclusive ? MSG_LOCAL_ADDRESSED : MSG_LOCAL_DIRECT;
  sqlite3_stmt *message = NULL;
  int rc =
      msg_local_bound(s, sql_message, &message, err, "iii", row.first.seq, state, w->lane->now_ms);
  if (rc == MSG_OK && (rc = msg_local_row(s, message, err)) == MSG_OK) {
    w->n++;
    row.in_answer_to = (const char *)sqlite3_column_text(message, 0);
    rc = w->take(w->arg, &row, more, err);
  } else if (rc == MSG_NOTFOUND) {
    rc = MSG_OK;
  }
  msg_local_done(s, message);
  return rc;
}

static int walk_topic(msg_local_session *s, struct walk *w, const char *topic, msg_err *err) {
  const msg_local_lane *lane = w->lane;
  sqlite3_stmt *stmt = NULL;
  bool more = true;
  w->n = 0;
  int rc = msg_local_bound(s, sql_topic, &stmt, err, "ttitiii", s->queue, lane->node,
                           (int64_t)lane->exclusive, topic, w->priority, w->deliver_at_ms, w->seq);
  while (rc == MSG_OK && more && (rc = msg_local_row(s, stmt, err)) == MSG_OK)
    rc = hand(s, w, stmt, &more, err);
  msg_local_done(s, stmt);
  return rc == MSG_NOTFOUND ? MSG_OK : rc;
}

/* In delivery order, until it is enough or too many others were passed. */
static int walk_any(msg_local_session *s, struct walk *w, msg_err *err) {
  sqlite3_stmt *stmt = NULL;
  bool more = true;
  int others = 0;
  int rc = msg_local_bound(s, sql_any, &stmt, err, "tti", s->queue, w->lane->node,
                           (int64_t)w->lane->exclusive);
  while (rc == MSG_OK && more && others <= OTHERS_MAX &&
         (rc = msg_local_row(s, stmt, err)) == MSG_OK) {
    const char *topic = (const char *)sqlite3_column_text(stmt, 3);
    w->priority = sqlite3_column_int64(stmt, 0);
    w->deliver_at_ms = sqlite3_column_int64(stmt, 1);
    w->seq = sqlite3_column_int64(stmt, 2);
    if (!topic)
      rc = msg_err_nomem(err);
    else if (wants(w->lane, topic))
      rc = hand(s, w, stmt, &more, err);
    else
      others++;
  }
  msg_local_done(s, stmt);
  w->done = !more || rc == MSG_NOTFOUND;
  return rc == MSG_NOTFOUND ? MSG_OK : rc;
}

static int walk_topics(msg_local_session *s, struct walk *w, msg_err *err) {
  const msg_local_lane *lane = w->lane;
  const char *text = lane->pattern ? msg_pattern_text(lane->pattern) : "";
  size_t prefix = lane->pattern ? msg_pattern_prefix(lane->pattern) : 0;
  sqlite3_stmt *stmt = NULL;
  int rc = msg_local_bound(s, sql_topics, &stmt, err, "tti", s->queue, lane->node,
                           (int64_t)lane->exclusive);
  if (rc == MSG_OK && sqlite3_bind_text(stmt, 4, text, (int)prefix, SQLITE_STATIC) != SQLITE_OK)
    rc = msg_err_nomem(err);
  while (rc == MSG_OK && (rc = msg_local_row(s, stmt, err)) == MSG_OK) {
    const char *topic = (const char *)sqlite3_column_text(stmt, 0);
    if (!topic)
      rc = msg_err_nomem(err);
    else if (strncmp(topic, text, prefix) != 0)
      break;
    else if (wants(lane, topic))
      rc = walk_topic(s, w, topic, err);
  }
  msg_local_done(s, stmt);
  return rc == MSG_NOTFOUND ? MSG_OK : rc;
}

int msg_local_lane_walk(msg_local_session *s, const msg_local_lane *lane, msg_local_waiting_fn take,
                        void *arg, msg_err *err) {
  struct walk w = {
      .lane = lane, .take = take, .arg = arg, .priority = INT64_MIN, .deliver_at_ms = INT64_MIN};
  if (lane->pattern && msg_pattern_kind_of(lane->pattern) == MSG_PATTERN_EXACT) {
    const char *topic = msg_pattern_text(lane->pattern);
    return wants(lane, topic) ? walk_topic(s, &w, topic, err) : MSG_OK;
  }
  int rc = walk_any(s, &w, err);
  return rc == MSG_OK && !w.done ? walk_topics(s, &w, err) : rc;
}
