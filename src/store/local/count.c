/* count.c - how much waits where, when something is due next, and facts for the doctor. */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "store/local/lease.h"
#include "store/local/reading.h"

/* ---- counts ---- */

#define KIND      "CASE state WHEN 4 THEN 'd' WHEN 5 THEN 'b' WHEN 7 THEN 'x' ELSE 'r' END"
#define WAITING   MSG_LOCAL_WAITING("m.seq")
#define OF(index) " FROM @.msg_store_message AS m INDEXED BY msg_store_message_" index " WHERE "

/* One arm a stored state, each on an index alone that is ordered by topic. What is past its life or
 * its delay and not swept yet is taken off again, and what is past its delay counted as ready;
 * `first` is the lowest number, whose time is that of the oldest. */
/* clang-format off */
#define DUE                                                                                        \
  OF("delayed") "state = 4 AND due <= ?2 AND queue = ?1"                                           \
                " AND (delete_at IS NULL OR delete_at > ?2) GROUP BY topic"
static const char sql_topics[] =
    "SELECT topic, r, d, c, b, x, live,"
    " coalesce((SELECT m.timestamp FROM @.msg_store_message AS m WHERE m.seq = first), 0) FROM ("
    "SELECT topic, sum(n * (kind = 'r')) AS r, sum(n * (kind = 'd')) AS d,"
    " sum(n * (kind = 'c')) AS c, sum(n * (kind = 'b')) AS b, sum(n * (kind = 'x')) AS x,"
    " sum(n * live) AS live, min(first) AS first FROM ("
    "SELECT topic, 'r' AS kind, 0 AS live, count(*) AS n, min(seq) AS first"
    "  FROM @.msg_store_ready WHERE queue = ?1 GROUP BY topic"
    " UNION ALL SELECT topic, 'r', 0, count(*), min(seq)"
        OF("mortal") "state = 2 AND queue = ?1 GROUP BY topic"
    " UNION ALL SELECT topic, 'r', 1, count(*), min(seq)"
        OF("live") "state = 8 AND queue = ?1 GROUP BY topic"
    " UNION ALL SELECT topic, " KIND ", state = 9, count(*), min(seq)"
        OF("other") MSG_LOCAL_OTHER " AND queue = ?1"
    "  AND (state <> 9 OR " WAITING ") GROUP BY topic, state"
    " UNION ALL SELECT " MSG_LOCAL_MESSAGE("topic", "c.seq") " AS of, 'c', 0, count(*), min(seq)"
    "  FROM @.msg_store_claim AS c WHERE c.lease NOT NULL"
    "  AND " MSG_LOCAL_MESSAGE("queue", "c.seq") " = ?1 GROUP BY of"
    " UNION ALL SELECT topic, 'x', 0, count(*), NULL"
        OF("dead") "state = 7 AND queue = ?1 GROUP BY topic"
    " UNION ALL SELECT topic, " KIND ", state IN (8, 9), -count(*), NULL"
        OF("expiry") "delete_at IS NOT NULL AND state <> 6 AND delete_at <= ?2 AND queue = ?1"
    "  AND (state <> 9 OR " WAITING ") GROUP BY topic, state"
    " UNION ALL SELECT topic, 'd', 0, -count(*), NULL" DUE
    " UNION ALL SELECT topic, 'r', NOT exclusive, count(*), NULL" DUE ", exclusive"
    ") GROUP BY topic"
    " HAVING max(abs(r), abs(d), abs(c), abs(b), abs(x)) > 0) ORDER BY topic";
/* clang-format on */

/* The queues in a table (or partial index), by skipping through it. */
#define QUEUES_IN(table, where)                                                                    \
  "SELECT x FROM (WITH RECURSIVE q(x) AS ("                                                        \
  "SELECT (SELECT queue FROM @." table " WHERE " where " ORDER BY queue LIMIT 1)"                  \
  " UNION ALL SELECT (SELECT queue FROM @." table " WHERE " where " AND queue > q.x"               \
  " ORDER BY queue LIMIT 1) FROM q WHERE q.x IS NOT NULL) SELECT x FROM q WHERE x IS NOT NULL)"

#define QUEUES_OF(index, where)                                                                    \
  QUEUES_IN("msg_store_message INDEXED BY msg_store_message_" index, where " AND queue > ''")

/* Every queue with a message, a participant or a listener. */
/* clang-format off */
static const char sql_queues[] =
    QUEUES_IN("msg_store_node", "queue > ''")
    " UNION " QUEUES_IN("msg_store_listener", "queue > ''")
    " UNION " QUEUES_IN("msg_store_ready", "queue > ''")
    " UNION " QUEUES_OF("mortal", "state = 2")
    " UNION " QUEUES_OF("other", MSG_LOCAL_OTHER)
    " UNION " QUEUES_OF("dead", "state = 7")
    " UNION " QUEUES_OF("live", "state = 8")
    " UNION SELECT " MSG_LOCAL_MESSAGE("queue", "c.seq") " AS of FROM @.msg_store_claim AS c"
    "  WHERE c.lease NOT NULL AND of IS NOT NULL ORDER BY x";
/* clang-format on */

struct counts {
  msg_count *at;
  size_t n, cap;
  msg_local_audience audience;
  msg_local_names alive;
};

static void counts_clear(struct counts *c) {
  for (size_t i = 0; i < c->n; i++)
    msg_free(c->at[i].name);
  msg_free(c->at);
  msg_local_audience_clear(&c->audience);
  msg_local_names_clear(&c->alive);
  memset(c, 0, sizeof *c);
}

static msg_count *counts_add(struct counts *c, sqlite3_stmt *stmt, msg_err *err) {
  bool nomem = msg_grow(&c->at, &c->cap, c->n + 1, sizeof *c->at) != MSG_OK;
  if (!nomem) {
    msg_count *row = &c->at[c->n++];
    memset(row, 0, sizeof *row);
    row->name = msg_local_column_dup(stmt, 0, &nomem);
  }
  if (!nomem)
    return &c->at[c->n - 1];
  msg_err_nomem(err);
  return NULL;
}

static void count_read(sqlite3_stmt *stmt, msg_count *row) {
  row->ready += sqlite3_column_int64(stmt, 1);
  row->delayed += sqlite3_column_int64(stmt, 2);
  row->claimed += sqlite3_column_int64(stmt, 3);
  row->blocked += sqlite3_column_int64(stmt, 4);
  row->dead += sqlite3_column_int64(stmt, 5);
  row->broadcasts += sqlite3_column_int64(stmt, 6);
  row->depth = row->ready + row->delayed + row->claimed + row->blocked;
  int64_t oldest_ms = sqlite3_column_int64(stmt, 7);
  if (oldest_ms && (!row->oldest_ms || oldest_ms < row->oldest_ms))
    row->oldest_ms = oldest_ms;
}

/* Nodes alive that listen to `topic` (NULL: to anything). */
static int64_t listening(const struct counts *c, const char *topic) {
  const msg_local_audience *a = &c->audience;
  int64_t nodes = 0;
  for (size_t i = 0, n; i < a->n; i += n) {
    bool hears = false;
    for (n = 0; i + n < a->n && strcmp(a->at[i + n].node, a->at[i].node) == 0; n++)
      hears = hears || !topic || msg_local_listener_match(&a->at[i + n], topic);
    nodes += hears && msg_local_names_have(&c->alive, a->at[i].node);
  }
  return nodes;
}

static int people_load(msg_local_session *s, struct counts *c, msg_err *err) {
  msg_local_audience_clear(&c->audience);
  msg_local_names_clear(&c->alive);
  int rc = msg_local_audience_load(s, NULL, &c->audience, err);
  return rc == MSG_OK ? msg_local_alive_nodes(s, &c->alive, err) : rc;
}

static int topics_load(msg_local_session *s, void *arg, msg_err *err) {
  struct counts *c = arg;
  sqlite3_stmt *stmt = NULL;
  counts_clear(c);
  int rc = people_load(s, c, err);
  if (rc == MSG_OK)
    rc = msg_local_bound(s, sql_topics, &stmt, err, "ti", s->queue, msg_clock_now_ms());
  while (rc == MSG_OK && (rc = msg_local_row(s, stmt, err)) == MSG_OK) {
    msg_count *row = counts_add(c, stmt, err);
    if (!row) {
      rc = MSG_NOMEM;
      break;
    }
    count_read(stmt, row);
    row->listeners = listening(c, row->name);
  }
  msg_local_done(s, stmt);
  return rc == MSG_NOTFOUND ? MSG_OK : rc;
}

/* The sum of its topics. */
static int queue_load(msg_local_session *s, struct counts *c, msg_count *row, msg_err *err) {
  sqlite3_stmt *stmt = NULL;
  char *own = s->queue;
  s->queue = row->name; /* who listens and lives is asked of that queue */
  int rc = people_load(s, c, err);
  s->queue = own;
  if (rc == MSG_OK)
    rc = msg_local_bound(s, sql_topics, &stmt, err, "ti", row->name, msg_clock_now_ms());
  while (rc == MSG_OK && (rc = msg_local_row(s, stmt, err)) == MSG_OK)
    count_read(stmt, row);
  msg_local_done(s, stmt);
  if (rc != MSG_NOTFOUND)
    return rc;
  row->listeners = listening(c, NULL);
  return MSG_OK;
}

static int queues_load(msg_local_session *s, void *arg, msg_err *err) {
  struct counts *c = arg;
  sqlite3_stmt *stmt = NULL;
  counts_clear(c);
  int rc = msg_local_bound(s, sql_queues, &stmt, err, "");
  while (rc == MSG_OK && (rc = msg_local_row(s, stmt, err)) == MSG_OK)
    if (!counts_add(c, stmt, err))
      rc = MSG_NOMEM;
  msg_local_done(s, stmt);
  if (rc != MSG_NOTFOUND)
    return rc;
  rc = MSG_OK;
  for (size_t i = 0; rc == MSG_OK && i < c->n; i++)
    rc = queue_load(s, c, &c->at[i], err);
  return rc;
}

static int give(struct counts *c, int rc, msg_count_fn fn, void *arg) {
  for (size_t i = 0; rc == MSG_OK && i < c->n; i++)
    rc = fn(arg, &c->at[i]);
  counts_clear(c);
  return rc;
}

int msg_local_topics(msg_session *base, msg_count_fn fn, void *arg, msg_err *err) {
  struct counts c = {0};
  int rc = msg_local_read((msg_local_session *)base, "topics", topics_load, &c, err);
  return give(&c, rc, fn, arg);
}

int msg_local_queues(msg_session *base, msg_count_fn fn, void *arg, msg_err *err) {
  struct counts c = {0};
  int rc = msg_local_read((msg_local_session *)base, "queues", queues_load, &c, err);
  return give(&c, rc, fn, arg);
}

/* ---- the next deadline ---- */

/* clang-format off */
static const char sql_deadline[] =
    "SELECT min(at) FROM (SELECT min(due) AS at" OF("delayed") "state = 4"
    " UNION ALL SELECT min(delete_at)" OF("expiry") "delete_at IS NOT NULL AND state <> 6"
    " UNION ALL SELECT " MSG_LOCAL_LEASE_END(MSG_LOCAL_FIRST_LEASE("@.msg_store_claim")) ")";
/* clang-format on */

static int deadline_work(msg_local_session *s, void *arg, msg_err *err) {
  int64_t *at_ms = arg;
  sqlite3_stmt *stmt = NULL;
  int rc = msg_local_bound(s, sql_deadline, &stmt, err, "");
  if (rc == MSG_OK && (rc = msg_local_row(s, stmt, err)) == MSG_OK &&
      sqlite3_column_type(stmt, 0) != SQLITE_NULL)
    *at_ms = sqlite3_column_int64(stmt, 0);
  msg_local_done(s, stmt);
  return rc;
}

int msg_local_deadline(msg_session *base, int64_t *at_ms, msg_err *err) {
  int64_t at = MSG_NEVER;
  int rc = msg_local_read((msg_local_session *)base, "deadline", deadline_work, &at, err);
  if (rc == MSG_OK)
    *at_ms = at;
  return rc;
}

/* ---- facts ---- */

/* Each gives one value; `bad`: the value that the advice is for, NULL: never. */
static const struct fact {
  const char *item, *sql, *bad, *advice;
} facts[] = {
    {"store version", "SELECT version FROM @.msg_store", NULL, NULL},
    {"store id", "SELECT store_id FROM @.msg_store", NULL, NULL},
    {"messages", "SELECT count(*) FROM @.msg_store_message", NULL, NULL},
    {"dead letters", "SELECT count(*)" OF("dead") "state = 7", NULL, NULL},
};
static const struct fact pragmas[] = {
    {"journal mode", "PRAGMA @.journal_mode", "delete",
     "PRAGMA journal_mode = wal (or option journal_mode of msg_open): readers and the writer no "
     "longer block each other, and a commit costs less"},
    {"locking mode", "PRAGMA @.locking_mode", "exclusive",
     "no other connection can send or receive: PRAGMA locking_mode = normal, then read once"},
    {"synchronous", "PRAGMA @.synchronous", "0",
     "a power loss can corrupt the file: PRAGMA synchronous = normal or full"},
    {"query only", "PRAGMA query_only", "1",
     "nothing can be sent, claimed or acknowledged: PRAGMA query_only = OFF"},
};

struct describing {
  msg_describe_fn fn;
  void *arg;
};

static int tell(msg_local_session *s, const struct describing *d, const struct fact *f,
                msg_err *err) {
  sqlite3_stmt *stmt = NULL;
  bool row = false, nomem = false;
  char *value = NULL;
  int rc = msg_local_stmt(s, f->sql, &stmt, err);
  if (rc == MSG_OK && (rc = msg_local_step(s, stmt, &row, err)) == MSG_OK && row)
    value = msg_local_column_dup(stmt, 0, &nomem);
  msg_local_done(s, stmt);
  if (nomem)
    rc = msg_err_nomem(err);
  if (rc == MSG_OK && value)
    rc = d->fn(d->arg, f->item, value, f->bad && strcmp(value, f->bad) == 0 ? f->advice : NULL);
  msg_free(value);
  return rc;
}

static int describe_work(msg_local_session *s, void *arg, msg_err *err) {
  int rc = MSG_OK;
  for (size_t i = 0; rc == MSG_OK && i < sizeof facts / sizeof *facts; i++)
    rc = tell(s, arg, &facts[i], err);
  return rc;
}

int msg_local_describe(msg_session *base, msg_describe_fn fn, void *arg, msg_err *err) {
  msg_local_session *s = (msg_local_session *)base;
  struct describing d = {.fn = fn, .arg = arg};
  bool exists = false;
  s->what = "doctor";
  int rc = fn(arg, "store", s->store->path[0] ? s->store->path : ":memory:", NULL);
  for (size_t i = 0; rc == MSG_OK && i < sizeof pragmas / sizeof *pragmas; i++)
    rc = tell(s, &d, &pragmas[i], err);
  if (rc == MSG_OK)
    rc = msg_local_exists(s, "doctor", &exists, err);
  if (rc == MSG_OK && !exists)
    return fn(arg, "store version", "none", "no message was sent or awaited here yet");
  return rc == MSG_OK ? msg_local_read(s, "doctor", describe_work, &d, err) : rc;
}
