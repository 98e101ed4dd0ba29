/* listen.c - who listens to what. The hand-out itself: unseen.c, seen.c. */
#include "base/clock.h"
#include "base/str.h"
#include "store/local/reading.h"

static const char sql_known[] =
    "SELECT 1 FROM @.msg_store_listener WHERE queue = ?1 AND node = ?2 AND pattern = ?3";
/* From now on = from the highest number given so far; what becomes visible later gets a higher one.
 * Catching up starts below every number, at one that no other listener had: see horizon.h. */
static const char sql_listen[] =
    "INSERT OR IGNORE INTO @.msg_store_listener(queue, node, pattern, start) VALUES(?1, ?2, ?3,"
    " CASE WHEN ?4 THEN -1 - (random() & 4611686018427387903) ELSE"
    " coalesce(?5, (SELECT seq FROM @.sqlite_sequence WHERE name = 'msg_store_message'), 0) END)";
static const char sql_unlisten[] =
    "DELETE FROM @.msg_store_listener WHERE queue = ?1 AND node = ?2 AND pattern = ?3";

struct listen {
  const char *node, *pattern;
  bool catch_up, known;
};

static int known_work(msg_local_session *s, void *arg, msg_err *err) {
  struct listen *l = arg;
  sqlite3_stmt *stmt = NULL;
  int rc = msg_local_bound(s, sql_known, &stmt, err, "ttt", s->queue, l->node, l->pattern);
  if (rc == MSG_OK)
    rc = msg_local_step(s, stmt, &l->known, err);
  msg_local_done(s, stmt);
  return rc;
}

/* A topic that a pattern of the node covers already has been listened to since then.
 * *found: there is one. */
static int earlier_start(msg_local_session *s, const struct listen *l, bool *found, int64_t *start,
                         msg_err *err) {
  msg_local_audience own = MSG_LOCAL_AUDIENCE_INIT;
  msg_pattern *pattern = NULL;
  *found = false;
  int rc = msg_pattern_new(l->pattern, &pattern, err);
  if (rc != MSG_OK || msg_pattern_kind_of(pattern) != MSG_PATTERN_EXACT) {
    msg_pattern_free(pattern);
    return rc;
  }
  msg_pattern_free(pattern);
  rc = msg_local_audience_load(s, l->node, &own, err);
  for (size_t i = 0; rc == MSG_OK && i < own.n; i++) {
    const msg_local_listener *at = &own.at[i];
    if (!at->compiled || !msg_pattern_match(at->compiled, l->pattern) ||
        (*found && at->start >= *start))
      continue;
    *found = true;
    *start = at->start;
  }
  msg_local_audience_clear(&own);
  return rc;
}

static int listen_work(msg_local_session *s, void *arg, msg_err *err) {
  struct listen *l = arg;
  sqlite3_stmt *stmt = NULL;
  bool covered = false;
  int64_t start = 0;
  int rc = l->catch_up ? MSG_OK : earlier_start(s, l, &covered, &start, err);
  if (rc == MSG_OK)
    rc = msg_local_bound(s, sql_listen, &stmt, err, "ttti", s->queue, l->node, l->pattern,
                         (int64_t)l->catch_up);
  if (rc != MSG_OK)
    return rc;
  if (covered)
    sqlite3_bind_int64(stmt, 5, start);
  rc = msg_local_run(s, stmt, err);
  l->known = rc == MSG_OK && sqlite3_changes(s->db) == 0;
  return rc;
}

int msg_local_listen(msg_session *base, const msg_actor *actor, const char *pattern, bool catch_up,
                     msg_err *err) {
  msg_local_session *s = (msg_local_session *)base;
  struct listen l = {.node = actor->node, .pattern = pattern, .catch_up = catch_up};
  /* Every start of a node says what it listens to: do not write what is there. Inside the host's
   * BEGIN a look would only spoil the write that follows. */
  int rc = MSG_OK;
  if (sqlite3_get_autocommit(s->db))
    rc = msg_local_read(s, "listen", known_work, &l, err);
  if (rc == MSG_OK && !l.known)
    rc = msg_local_write(s, "listen", true, listen_work, &l, err);
  if (rc == MSG_OK && l.known)
    rc = MSG_EXISTS;
  return rc;
}

static int unlisten_work(msg_local_session *s, void *arg, msg_err *err) {
  struct listen *l = arg;
  int64_t gone = 0;
  int rc = msg_local_exec(s, sql_unlisten, &gone, err, "ttt", s->queue, l->node, l->pattern);
  l->known = gone > 0;
  if (rc == MSG_OK && l->known)
    rc = msg_local_forget_pattern(s, l->node, l->pattern, msg_clock_now_ms(), err);
  return rc;
}

int msg_local_unlisten(msg_session *base, const msg_actor *actor, const char *pattern,
                       msg_err *err) {
  msg_local_session *s = (msg_local_session *)base;
  struct listen l = {.node = actor->node, .pattern = pattern};
  bool exists = false;
  int rc = msg_local_lock(s, "unlisten", err);
  if (rc == MSG_OK)
    rc = msg_local_exists(s, "unlisten", &exists, err);
  if (rc == MSG_OK && exists)
    rc = msg_local_write(s, "unlisten", true, unlisten_work, &l, err);
  if (rc == MSG_OK && !l.known)
    rc = msg_err_set(err, MSG_NOTFOUND, "node '%s' does not listen to '%s'",
                     msg_show(actor->node).s, msg_show(pattern).s);
  return rc;
}

struct listing {
  msg_local_audience all;
  msg_local_names alive;
};

static int listing_work(msg_local_session *s, void *arg, msg_err *err) {
  struct listing *l = arg;
  msg_local_audience_clear(&l->all);
  msg_local_names_clear(&l->alive);
  int rc = msg_local_audience_load(s, NULL, &l->all, err);
  return rc == MSG_OK ? msg_local_alive_nodes(s, &l->alive, err) : rc;
}

int msg_local_listeners(msg_session *base, msg_listener_fn fn, void *arg, msg_err *err) {
  struct listing l = {.all = MSG_LOCAL_AUDIENCE_INIT};
  int rc = msg_local_read((msg_local_session *)base, "read", listing_work, &l, err);
  for (size_t i = 0; rc == MSG_OK && i < l.all.n; i++) {
    msg_listener row = {.node = l.all.at[i].node,
                        .pattern = l.all.at[i].pattern,
                        .alive = msg_local_names_have(&l.alive, l.all.at[i].node)};
    rc = fn(arg, &row);
  }
  msg_local_names_clear(&l.alive);
  msg_local_audience_clear(&l.all);
  return rc;
}
