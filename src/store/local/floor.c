/* floor.c - the floors that keep a node's marks few.
 *
 * A mark is a row (node, seq) above the floor. Compaction moves the floor of a (topic, priority,
 * pattern) to just below the first broadcast that is still to be handed out, and drops the marks
 * that every listening pattern of the node has passed: so the marks are few, whatever is live. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "store/local/reading.h"

#define COLLECT_EVERY 64 /* compactions between two clean-ups of floors without messages */

/* Marks whose message is gone, or not a visible broadcast any more. */
static const char sql_stale[] =
    "DELETE FROM @.msg_store_seen WHERE queue = ?1 AND node = ?2 AND NOT EXISTS"
    " (SELECT 1 FROM @.msg_store_message AS m WHERE m.seq = msg_store_seen.seq AND m.state = 8)";
static const char sql_marks[] =
    "SELECT s.seq, (SELECT m.priority FROM @.msg_store_message AS m WHERE m.seq = s.seq),"
    " (SELECT m.topic FROM @.msg_store_message AS m WHERE m.seq = s.seq)"
    " FROM @.msg_store_seen AS s WHERE s.queue = ?1 AND s.node = ?2 ORDER BY s.seq";
static const char sql_unmark[] =
    "DELETE FROM @.msg_store_seen WHERE queue = ?1 AND node = ?2 AND seq = ?3";
static const char sql_floor[] = "SELECT floor FROM @.msg_store_floor WHERE queue = ?1 AND node = ?2"
                                " AND topic = ?3 AND priority = ?4 AND pattern = ?5";
#define LIVE "@.msg_store_message AS m INDEXED BY msg_store_message_live WHERE m.state = 8"
/* Where the floor may go: one below the first that waits, else to the last there is. */
static const char sql_first[] =
    "SELECT coalesce((SELECT m.seq - 1 FROM " LIVE " AND m.queue = ?1 AND m.topic = ?3"
    " AND m.priority = ?4 AND m.seq > ?5 AND m.sender <> ?2"
    " AND (m.delete_at IS NULL OR m.delete_at > ?6)"
    " AND NOT EXISTS (SELECT 1 FROM @.msg_store_seen AS s WHERE s.queue = ?1 AND s.node = ?2"
    " AND s.seq = m.seq) AND NOT " MSG_LOCAL_PASSED(?1, ?2) " ORDER BY m.seq LIMIT 1),"
    " (SELECT m.seq FROM " LIVE " AND m.queue = ?1"
    " AND m.topic = ?3 AND m.priority = ?4 ORDER BY m.seq DESC LIMIT 1), 0)";
static const char sql_set_floor[] =
    "INSERT INTO @.msg_store_floor(queue, node, topic, priority, pattern, floor)"
    " VALUES(?1, ?2, ?3, ?4, ?5, ?6)"
    " ON CONFLICT(queue, node, topic, priority, pattern) DO UPDATE SET floor = excluded.floor";
static const char sql_collect[] =
    "DELETE FROM @.msg_store_floor WHERE queue = ?1 AND node = ?2 AND NOT EXISTS"
    " (SELECT 1 FROM " LIVE " AND m.queue = ?1 AND m.topic = msg_store_floor.topic"
    " AND m.priority = msg_store_floor.priority)";

/* Marks of nodes that were told of, as a bridge does, and never listened here. */
static const char sql_collect_marks[] =
    "DELETE FROM @.msg_store_seen WHERE queue = ?1"
    " AND node NOT IN (SELECT l.node FROM @.msg_store_listener AS l WHERE l.queue = ?1)"
    " AND NOT EXISTS (SELECT 1 FROM @.msg_store_message AS m WHERE m.seq = msg_store_seen.seq)";

struct mark {
  int64_t seq;
  int32_t priority;
  char *topic;
};

struct marks {
  struct mark *at;
  size_t n, cap;
};

static void marks_clear(struct marks *m) {
  for (size_t i = 0; i < m->n; i++)
    msg_free(m->at[i].topic);
  msg_free(m->at);
}

static int marks_load(msg_local_session *s, const char *node, struct marks *out, msg_err *err) {
  sqlite3_stmt *stmt = NULL;
  int rc = msg_local_bound(s, sql_marks, &stmt, err, "tt", s->queue, node);
  while (rc == MSG_OK && (rc = msg_local_row(s, stmt, err)) == MSG_OK) {
    bool nomem = msg_grow(&out->at, &out->cap, out->n + 1, sizeof *out->at) != MSG_OK;
    if (!nomem) {
      struct mark *m = &out->at[out->n++];
      m->seq = sqlite3_column_int64(stmt, 0);
      m->priority = sqlite3_column_int(stmt, 1);
      m->topic = msg_local_column_dup(stmt, 2, &nomem);
    }
    if (nomem)
      rc = msg_err_nomem(err);
  }
  msg_local_done(s, stmt);
  return rc == MSG_NOTFOUND ? MSG_OK : rc;
}

static int by_topic(const void *a, const void *b) {
  const struct mark *x = a, *y = b;
  int topics = strcmp(x->topic, y->topic);
  if (topics != 0)
    return topics;
  if (x->priority != y->priority)
    return x->priority < y->priority ? -1 : 1;
  return (x->seq > y->seq) - (x->seq < y->seq);
}

/* One number, or `dflt` when there is no row. */
static int one_number(msg_local_session *s, sqlite3_stmt *stmt, int64_t dflt, int64_t *out,
                      msg_err *err) {
  int rc = msg_local_row(s, stmt, err);
  *out = rc == MSG_OK ? sqlite3_column_int64(stmt, 0) : dflt;
  msg_local_done(s, stmt);
  return rc == MSG_NOTFOUND ? MSG_OK : rc;
}

/* Move the floor of one pattern; *passed: everything up to there is done with for it. */
static int raise_floor(msg_local_session *s, const msg_local_listener *l, const struct mark *m,
                       int64_t now_ms, int64_t *passed, msg_err *err) {
  sqlite3_stmt *stmt = NULL;
  int64_t old = 0, next = 0;
  int rc = msg_local_bound(s, sql_floor, &stmt, err, "tttit", s->queue, l->node, m->topic,
                           (int64_t)m->priority, l->pattern);
  if (rc == MSG_OK)
    rc = one_number(s, stmt, 0, &old, err);
  if (rc != MSG_OK)
    return rc;
  int64_t from = old > l->start ? old : l->start < 0 ? 0 : l->start;
  rc = msg_local_bound(s, sql_first, &stmt, err, "tttiii", s->queue, l->node, m->topic,
                       (int64_t)m->priority, from, now_ms);
  if (rc == MSG_OK)
    rc = one_number(s, stmt, 0, &next, err);
  if (rc == MSG_OK && next > from)
    rc = msg_local_exec(s, sql_set_floor, NULL, err, "tttiti", s->queue, l->node, m->topic,
                        (int64_t)m->priority, l->pattern, next);
  *passed = next > from ? next : from;
  return rc;
}

/* The marks m[0..n) of one topic and priority, in order of seq. */
static int compact_topic(msg_local_session *s, const char *node, const msg_local_audience *mine,
                         const struct mark *m, size_t n, int64_t now_ms, int64_t *left,
                         msg_err *err) {
  int64_t passed = INT64_MAX;
  for (size_t i = 0; i < mine->n; i++) {
    int64_t one;
    if (!msg_local_listener_match(&mine->at[i], m->topic))
      continue;
    int rc = raise_floor(s, &mine->at[i], m, now_ms, &one, err);
    if (rc != MSG_OK)
      return rc;
    if (one < passed)
      passed = one;
  }
  if (passed == INT64_MAX) { /* it does not listen: who does later has seen them */
    *left += (int64_t)n;
    return MSG_OK;
  }
  for (size_t i = 0; i < n; i++) {
    if (m[i].seq > passed) {
      *left += (int64_t)(n - i);
      break;
    }
    int rc = msg_local_exec(s, sql_unmark, NULL, err, "tti", s->queue, node, m[i].seq);
    if (rc != MSG_OK)
      return rc;
  }
  return MSG_OK;
}

static int compact_marks(msg_local_session *s, const char *node, struct marks *marks,
                         int64_t now_ms, int64_t *left, msg_err *err) {
  msg_local_audience mine = MSG_LOCAL_AUDIENCE_INIT;
  int rc = msg_local_audience_load(s, node, &mine, err);
  if (marks->n > 1)
    qsort(marks->at, marks->n, sizeof *marks->at, by_topic);
  for (size_t i = 0, n; rc == MSG_OK && i < marks->n; i += n) {
    const struct mark *m = &marks->at[i];
    for (n = 1; i + n < marks->n && m[n].priority == m->priority && !strcmp(m[n].topic, m->topic);)
      n++;
    rc = compact_topic(s, node, &mine, m, n, now_ms, left, err);
  }
  msg_local_audience_clear(&mine);
  return rc;
}

int msg_local_compact(msg_local_session *s, const char *node, int64_t now_ms, int64_t *left,
                      msg_err *err) {
  struct marks marks = {0};
  int64_t stay = 0;
  int rc = msg_local_exec(s, sql_stale, NULL, err, "tt", s->queue, node);
  if (rc == MSG_OK)
    rc = marks_load(s, node, &marks, err);
  if (rc == MSG_OK)
    rc = compact_marks(s, node, &marks, now_ms, &stay, err);
  if (rc == MSG_OK && s->compactions++ % COLLECT_EVERY == 0) {
    rc = msg_local_exec(s, sql_collect, NULL, err, "tt", s->queue, node);
    if (rc == MSG_OK)
      rc = msg_local_exec(s, sql_collect_marks, NULL, err, "t", s->queue);
  }
  marks_clear(&marks);
  if (rc == MSG_OK && left)
    *left = stay;
  return rc;
}

static const char sql_forget_floors[] =
    "DELETE FROM @.msg_store_floor WHERE queue = ?1 AND node = ?2 AND pattern = ?3";
static const char sql_forget_listeners[] =
    "DELETE FROM @.msg_store_listener WHERE queue = ?1 AND node = ?2";
static const char sql_forget_all_floors[] =
    "DELETE FROM @.msg_store_floor WHERE queue = ?1 AND node = ?2";
static const char sql_forget_marks[] =
    "DELETE FROM @.msg_store_seen WHERE queue = ?1 AND node = ?2";

int msg_local_forget_pattern(msg_local_session *s, const char *node, const char *pattern,
                             int64_t now_ms, msg_err *err) {
  int rc = msg_local_exec(s, sql_forget_floors, NULL, err, "ttt", s->queue, node, pattern);
  return rc == MSG_OK ? msg_local_compact(s, node, now_ms, NULL, err) : rc;
}

int msg_local_forget_node(msg_local_session *s, const char *node, msg_err *err) {
  static const char *const all[] = {sql_forget_listeners, sql_forget_all_floors, sql_forget_marks};
  int rc = MSG_OK;
  for (size_t i = 0; rc == MSG_OK && i < sizeof all / sizeof *all; i++)
    rc = msg_local_exec(s, all[i], NULL, err, "tt", s->queue, node);
  return rc;
}
