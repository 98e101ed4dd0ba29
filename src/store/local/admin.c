/* admin.c - an operator's verbs on what is in the store: remove, purge, redrive. */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/texts.h"
#include "store/local/candidates.h"
#include "store/local/move.h"
#include "store/local/reading.h"

#define REDRIVE_BATCH "256"

/* ---- remove ---- */

struct removing {
  const msg_oid *id;
  int64_t now_ms;
};

static int remove_work(msg_local_session *s, void *arg, msg_err *err) {
  const struct removing *r = arg;
  msg_local_item item;
  int rc = msg_local_item_find(s, r->id, &item, err);
  return rc == MSG_OK ? msg_local_item_drop(s, &item, r->now_ms, err) : rc;
}

int msg_local_remove(msg_session *base, const msg_actor *actor, const msg_oid *id, msg_err *err) {
  msg_local_session *s = (msg_local_session *)base;
  struct removing r = {.id = id, .now_ms = msg_clock_now_ms()};
  bool backlog;
  int rc = msg_local_sweep(s, actor, r.now_ms, false, &backlog, err);
  return rc == MSG_OK ? msg_local_write(s, "delete", true, remove_work, &r, err) : rc;
}

/* ---- topics ---- */

/* What a verb does by topic. */
struct pass {
  const msg_pattern *pattern;
  int64_t now_ms;
  int64_t count;
};

typedef int (*on_topic)(msg_local_session *s, struct pass *p, const char *sql, const char *topic,
                        msg_err *err);

/* The topics that `sql` gives and the pattern matches. Gathered first: the verb changes the index
 * they come from. */
static int topics(msg_local_session *s, const char *sql, const msg_pattern *pattern, msg_texts *out,
                  msg_err *err) {
  sqlite3_stmt *stmt = NULL;
  int rc = msg_local_bound(s, sql, &stmt, err, "t", s->queue);
  while (rc == MSG_OK && (rc = msg_local_row(s, stmt, err)) == MSG_OK) {
    const char *topic = (const char *)sqlite3_column_text(stmt, 0);
    if (topic && !msg_pattern_match(pattern, topic))
      continue;
    if (!topic || msg_texts_add(out, topic) != MSG_OK)
      rc = msg_err_nomem(err);
  }
  msg_local_done(s, stmt);
  return rc == MSG_NOTFOUND ? MSG_OK : rc;
}

/* `act` with `sql` for each topic that the pattern means; where it is not a name, out of those that
 * `sql_topics` gives. */
static int each_topic(msg_local_session *s, struct pass *p, const char *sql_topics, const char *sql,
                      on_topic act, msg_err *err) {
  if (msg_pattern_kind_of(p->pattern) == MSG_PATTERN_EXACT)
    return act(s, p, sql, msg_pattern_text(p->pattern), err);
  msg_texts found = {0};
  int rc = topics(s, sql_topics, p->pattern, &found, err);
  for (size_t i = 0; rc == MSG_OK && i < found.n; i++)
    rc = act(s, p, sql, found.at[i], err);
  msg_texts_clear(&found);
  return rc;
}

/* ---- purge ---- */

#define IN_TOPIC(index, where)                                                                     \
  "@.msg_store_message INDEXED BY msg_store_message_" index " WHERE " where                        \
  " AND queue = ?1 AND topic = ?2"

/* By state: together they are all but READY and CLAIMED. */
static const struct {
  const char *topics, *remove;
} PURGES[] = {
    {MSG_LOCAL_TOPICS("state = 2", "mortal"), "DELETE FROM " IN_TOPIC("mortal", "state = 2")},
    {MSG_LOCAL_TOPICS("state = 7", "dead"), "DELETE FROM " IN_TOPIC("dead", "state = 7")},
    {MSG_LOCAL_TOPICS("state = 8", "live"), "DELETE FROM " IN_TOPIC("live", "state = 8")},
    {MSG_LOCAL_TOPICS(MSG_LOCAL_OTHER, "other"), "DELETE FROM " IN_TOPIC("other", MSG_LOCAL_OTHER)},
};

static int purge_lanes(msg_local_session *s, struct pass *p, const char *sql, const char *topic,
                       msg_err *err) {
  sqlite3_stmt *stmt = NULL;
  msg_local_seqs seqs = {0};
  (void)p;
  int rc = msg_local_bound(s, sql, &stmt, err, "tt", s->queue, topic);
  if (rc == MSG_OK)
    rc = msg_local_seqs_read(s, stmt, &seqs, err);
  for (size_t i = 0; rc == MSG_OK && i < seqs.n; i++)
    rc = msg_local_lanes_drop(s, seqs.at[i], err);
  msg_free(seqs.at);
  return rc;
}

static int purge_topic(msg_local_session *s, struct pass *p, const char *sql, const char *topic,
                       msg_err *err) {
  int64_t gone = 0;
  int rc = msg_local_exec(s, sql, &gone, err, "tt", s->queue, topic);
  p->count += gone;
  return rc;
}

static int purge_ready(msg_local_session *s, struct pass *p, const char *sql, const char *topic,
                       msg_err *err) {
  static const char sql_seqs[] =
      "SELECT seq FROM @.msg_store_ready WHERE queue = ?1 AND topic = ?2";
  sqlite3_stmt *stmt = NULL;
  msg_local_seqs seqs = {0};
  int rc = msg_local_bound(s, sql_seqs, &stmt, err, "tt", s->queue, topic);
  if (rc == MSG_OK)
    rc = msg_local_seqs_read(s, stmt, &seqs, err);
  if (rc == MSG_OK)
    rc = msg_local_seqs_delete(s, &seqs, err);
  msg_free(seqs.at);
  return rc == MSG_OK ? purge_topic(s, p, sql, topic, err) : rc;
}

/* A group whose head is claimed keeps its head alone; any other goes whole: no head is missing
 * afterwards. */
static int purge_work(msg_local_session *s, void *arg, msg_err *err) {
  static const char sql_topics[] = MSG_LOCAL_TOPICS(MSG_LOCAL_OTHER, "other");
  static const char sql_topics_ready[] = MSG_LOCAL_TOPICS_READY;
  static const char sql_ready[] = "DELETE FROM @.msg_store_ready WHERE queue = ?1 AND topic = ?2";
  static const char sql_lanes[] =
      "SELECT seq FROM " IN_TOPIC("other", MSG_LOCAL_OTHER) " AND state IN (3, 9)";
  struct pass *p = arg;
  p->count = 0;
  int rc = each_topic(s, p, sql_topics, sql_lanes, purge_lanes, err);
  if (rc == MSG_OK)
    rc = each_topic(s, p, sql_topics_ready, sql_ready, purge_ready, err);
  for (size_t i = 0; rc == MSG_OK && i < sizeof PURGES / sizeof PURGES[0]; i++)
    rc = each_topic(s, p, PURGES[i].topics, PURGES[i].remove, purge_topic, err);
  return rc;
}

static int run_pass(msg_session *base, const msg_actor *actor, const char *what,
                    msg_local_work work, const msg_pattern *pattern, int64_t *count, msg_err *err) {
  msg_local_session *s = (msg_local_session *)base;
  struct pass p = {.pattern = pattern, .now_ms = msg_clock_now_ms()};
  bool backlog;
  int rc = msg_local_sweep(s, actor, p.now_ms, false, &backlog, err);
  if (rc == MSG_OK)
    rc = msg_local_write(s, what, true, work, &p, err);
  if (rc == MSG_OK)
    *count = p.count;
  return rc;
}

int msg_local_purge(msg_session *base, const msg_actor *actor, const msg_pattern *pattern,
                    int64_t *count, msg_err *err) {
  return run_pass(base, actor, "purge", purge_work, pattern, count, err);
}

/* ---- redrive ---- */

/* What was rolled back so far belongs to the life that ends. */
static int end_life(msg_local_session *s, int64_t seq, msg_err *err) {
  static const char sql[] = "SELECT id, redriven, attempts FROM @.msg_store_message WHERE seq = ?1";
  sqlite3_stmt *stmt = NULL;
  msg_oid id;
  if (!msg_local_undone_any(s->store->undone))
    return MSG_OK;
  int rc = msg_local_bound(s, sql, &stmt, err, "i", seq);
  if (rc == MSG_OK)
    rc = msg_local_row(s, stmt, err);
  if (rc == MSG_OK && msg_oid_parse((const char *)sqlite3_column_text(stmt, 0), &id))
    msg_local_undone_attempts(s->store->undone, &id, sqlite3_column_int64(stmt, 1),
                              sqlite3_column_int(stmt, 2), 0);
  msg_local_done(s, stmt);
  return rc;
}

/* It starts anew: its attempts and its time to live. */
static int redrive_one(msg_local_session *s, struct pass *p, int64_t seq, msg_err *err) {
  static const char sql[] =
      "UPDATE @.msg_store_message SET attempts = 0, redriven = coalesce(redriven, 0) + 1,"
      " reason = NULL, delete_at = CASE"
      " WHEN timing_out AND ttl > 0 THEN ?2 + min(ttl, 9000000000000000000 - ?2) END"
      " WHERE seq = ?1";
  msg_local_item item;
  int rc = end_life(s, seq, err);
  if (rc == MSG_OK)
    rc = msg_local_exec(s, sql, NULL, err, "ii", seq, p->now_ms);
  if (rc == MSG_OK)
    rc = msg_local_item_load(s, seq, &item, err);
  if (rc == MSG_OK)
    rc = msg_local_item_free(s, &item, p->now_ms, err);
  p->count += rc == MSG_OK;
  return rc;
}

static int redrive_topic(msg_local_session *s, struct pass *p, const char *sql, const char *topic,
                         msg_err *err) {
  msg_local_seqs seqs = {0};
  int rc;
  do {
    sqlite3_stmt *stmt = NULL;
    seqs.n = 0;
    rc = msg_local_bound(s, sql, &stmt, err, "tt", s->queue, topic);
    if (rc == MSG_OK)
      rc = msg_local_seqs_read(s, stmt, &seqs, err);
    for (size_t i = 0; rc == MSG_OK && i < seqs.n; i++)
      rc = redrive_one(s, p, seqs.at[i], err);
  } while (rc == MSG_OK && seqs.n > 0);
  msg_free(seqs.at);
  return rc;
}

static int redrive_work(msg_local_session *s, void *arg, msg_err *err) {
  static const char sql_topics[] = MSG_LOCAL_TOPICS("state = 7", "dead");
  static const char sql[] =
      "SELECT seq FROM " IN_TOPIC("dead", "state = 7") " ORDER BY seq LIMIT " REDRIVE_BATCH;
  struct pass *p = arg;
  p->count = 0;
  return each_topic(s, p, sql_topics, sql, redrive_topic, err);
}

int msg_local_redrive(msg_session *base, const msg_actor *actor, const msg_pattern *pattern,
                      int64_t *count, msg_err *err) {
  return run_pass(base, actor, "redrive", redrive_work, pattern, count, err);
}
