/* presence.c - participants, and the lanes that hold what is addressed to them. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/process.h"
#include "base/str.h"
#include "store/local/reading.h"

static const char sql_put[] =
    "INSERT INTO @.msg_store_node(queue, node, host, pid, process, implementation, layout,"
    " automatic, started_at, last_seen) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)"
    " ON CONFLICT(queue, node) DO UPDATE SET host = excluded.host, pid = excluded.pid,"
    " process = excluded.process, implementation = excluded.implementation,"
    " layout = excluded.layout, automatic = excluded.automatic, started_at = excluded.started_at,"
    " last_seen = excluded.last_seen";
static const char sql_list[] =
    "SELECT node, host, coalesce(implementation, ''), coalesce(layout, ''), coalesce(process, ''),"
    " coalesce(pid, 0), automatic, started_at, last_seen FROM @.msg_store_node"
    " WHERE queue = ?1 ORDER BY node";
static const char sql_one[] =
    "SELECT coalesce(process, ''), last_seen, automatic FROM @.msg_store_node"
    " WHERE queue = ?1 AND node = ?2";
static const char sql_withdraw[] = "DELETE FROM @.msg_store_node WHERE queue = ?1 AND node = ?2";

/* Its process decides where that can be known, else its last sign of life. */
static bool is_alive(const msg_local_session *s, const char *process, int64_t last_seen_ms,
                     int64_t now_ms) {
  switch (msg_process_liveness(process)) {
  case MSG_ALIVE: return true;
  case MSG_DEAD: return false;
  case MSG_UNKNOWN: break;
  }
  return msg_clock_add(last_seen_ms, s->participant_timeout_ms) >= now_ms;
}

/* ---- participants ---- */

static int put_work(msg_local_session *s, void *arg, msg_err *err) {
  const msg_participant *p = arg;
  return msg_local_exec(s, sql_put, NULL, err, "tttitttiii", s->queue, p->node,
                        p->host ? p->host : "", (int64_t)p->pid, p->process, p->implementation,
                        p->layout ? p->layout : "local", (int64_t)p->automatic, p->started_at_ms,
                        p->last_seen_ms);
}

int msg_local_presence_put(msg_session *base, const msg_participant *p, msg_err *err) {
  msg_participant copy = *p;
  return msg_local_write((msg_local_session *)base, "announce", false, put_work, &copy, err);
}

struct people {
  msg_participant *at;
  size_t n, cap;
};

static void people_clear(struct people *p) {
  for (size_t i = 0; i < p->n; i++)
    msg_participant_clear(&p->at[i]);
  msg_free(p->at);
  memset(p, 0, sizeof *p);
}

static int people_add(msg_local_session *s, struct people *l, sqlite3_stmt *stmt, int64_t now_ms,
                      msg_err *err) {
  if (msg_grow(&l->at, &l->cap, l->n + 1, sizeof *l->at) != MSG_OK)
    return msg_err_nomem(err);
  msg_participant *p = &l->at[l->n++];
  bool nomem = false;
  memset(p, 0, sizeof *p);
  p->node = msg_local_column_dup(stmt, 0, &nomem);
  p->host = msg_local_column_dup(stmt, 1, &nomem);
  p->implementation = msg_local_column_dup(stmt, 2, &nomem);
  p->layout = msg_local_column_dup(stmt, 3, &nomem);
  p->process = msg_local_column_dup(stmt, 4, &nomem);
  p->pid = sqlite3_column_int(stmt, 5);
  p->automatic = sqlite3_column_int(stmt, 6) != 0;
  p->started_at_ms = sqlite3_column_int64(stmt, 7);
  p->last_seen_ms = sqlite3_column_int64(stmt, 8);
  if (nomem)
    return msg_err_nomem(err);
  p->alive = is_alive(s, p->process, p->last_seen_ms, now_ms);
  return MSG_OK;
}

static int people_load(msg_local_session *s, void *arg, msg_err *err) {
  sqlite3_stmt *stmt = NULL;
  int64_t now_ms = msg_clock_now_ms();
  people_clear(arg);
  int rc = msg_local_bound(s, sql_list, &stmt, err, "t", s->queue);
  while (rc == MSG_OK && (rc = msg_local_row(s, stmt, err)) == MSG_OK)
    rc = people_add(s, arg, stmt, now_ms, err);
  msg_local_done(s, stmt);
  return rc == MSG_NOTFOUND ? MSG_OK : rc;
}

int msg_local_presence_list(msg_session *base, msg_participant_fn fn, void *arg, msg_err *err) {
  struct people all = {0};
  int rc = msg_local_read((msg_local_session *)base, "participants", people_load, &all, err);
  for (size_t i = 0; rc == MSG_OK && i < all.n; i++)
    rc = fn(arg, &all.at[i]);
  people_clear(&all);
  return rc;
}

int msg_local_alive_nodes(msg_local_session *s, msg_local_names *out, msg_err *err) {
  struct people all = {0};
  int rc = people_load(s, &all, err);
  if (rc == MSG_OK && all.n && !(out->at = msg_alloc(all.n * sizeof *out->at)))
    rc = msg_err_nomem(err);
  for (size_t i = 0; rc == MSG_OK && i < all.n; i++) {
    if (!all.at[i].alive)
      continue;
    out->at[out->n++] = all.at[i].node;
    all.at[i].node = NULL;
  }
  people_clear(&all);
  return rc;
}

void msg_local_names_clear(msg_local_names *l) {
  for (size_t i = 0; i < l->n; i++)
    msg_free(l->at[i]);
  msg_free(l->at);
  memset(l, 0, sizeof *l);
}

static int by_name(const void *key, const void *element) {
  return strcmp(key, *(char *const *)element);
}

bool msg_local_names_have(const msg_local_names *l, const char *name) {
  return l->n && bsearch(name, l->at, l->n, sizeof *l->at, by_name) != NULL;
}

/* ---- leaving ---- */

struct leaving {
  const char *node;
  bool only_dead;
  bool found, automatic, alive;
};

static int leaving_look(msg_local_session *s, struct leaving *l, msg_err *err) {
  sqlite3_stmt *stmt = NULL;
  int rc = msg_local_bound(s, sql_one, &stmt, err, "tt", s->queue, l->node);
  l->found = false;
  if (rc == MSG_OK && (rc = msg_local_row(s, stmt, err)) == MSG_OK) {
    const char *process = (const char *)sqlite3_column_text(stmt, 0);
    l->found = true;
    l->alive =
        is_alive(s, process ? process : "", sqlite3_column_int64(stmt, 1), msg_clock_now_ms());
    l->automatic = sqlite3_column_int(stmt, 2) != 0;
  }
  msg_local_done(s, stmt);
  return rc == MSG_NOTFOUND ? MSG_OK : rc;
}

/* A node with a given id comes back: what it listens to, and what it has seen, stays. */
static int leave(msg_local_session *s, const struct leaving *l, msg_err *err) {
  int rc = msg_local_exec(s, sql_withdraw, NULL, err, "tt", s->queue, l->node);
  return rc == MSG_OK && l->automatic ? msg_local_forget_node(s, l->node, err) : rc;
}

static int withdraw_work(msg_local_session *s, void *arg, msg_err *err) {
  struct leaving *l = arg;
  int rc = leaving_look(s, l, err);
  if (rc != MSG_OK || !l->found)
    return rc;
  if (l->only_dead && l->alive)
    return msg_err_set(err, MSG_MISUSE,
                       "participant '%s' is alive: close it there, or end its process first",
                       msg_show(l->node).s);
  return leave(s, l, err);
}

static int no_participant(const char *node, msg_err *err) {
  return msg_err_set(err, MSG_NOTFOUND, "no participant '%s': see table msg_participants",
                     msg_show(node).s);
}

int msg_local_presence_withdraw(msg_session *base, const char *node, bool only_dead, msg_err *err) {
  msg_local_session *s = (msg_local_session *)base;
  struct leaving l = {.node = node, .only_dead = only_dead};
  bool exists = false;
  int rc = msg_local_lock(s, "withdraw", err);
  if (rc == MSG_OK)
    rc = msg_local_exists(s, "withdraw", &exists, err);
  if (rc == MSG_OK && exists)
    rc = msg_local_write(s, "withdraw", true, withdraw_work, &l, err);
  return rc == MSG_OK && !l.found ? no_participant(node, err) : rc;
}

/* ---- lanes ---- */

#define OF_QUEUE " FROM @.msg_store_lane AS l INDEXED BY msg_store_lane_topic WHERE l.queue = ?1"
#define OF_LANE  OF_QUEUE " AND l.node = "
/* Of the message of a row; NULL when it is gone, or its life over. */
#define ALIVE(column, now)                                                                         \
  "(SELECT " column " FROM @.msg_store_message AS m WHERE m.seq = l.seq"                           \
  " AND (m.delete_at IS NULL OR m.delete_at > " now "))"

/* Every participant has one, and so has every name that something waits for. */
static const char sql_lanes[] = "SELECT node, (SELECT count(" ALIVE(
    "1", "?2") ")" OF_LANE "x.node),"
               " coalesce((SELECT min(" ALIVE(
                   "m.timestamp", "?2") ")" OF_LANE "x.node), 0)"
                                        " FROM (SELECT node FROM @.msg_store_node WHERE queue = ?1"
                                        " UNION SELECT node" OF_QUEUE ") AS x ORDER BY node";
static const char sql_lane_depth[] = "SELECT count(*), count(" ALIVE("1", "?3") ")" OF_LANE "?2";
static const char sql_lane_empty[] =
    "DELETE FROM @.msg_store_lane INDEXED BY msg_store_lane_topic WHERE queue = ?1 AND node = ?2";

struct lanes {
  msg_lane *at;
  size_t n, cap;
};

static void lanes_clear(struct lanes *l) {
  for (size_t i = 0; i < l->n; i++)
    msg_free(l->at[i].lane);
  msg_free(l->at);
  memset(l, 0, sizeof *l);
}

static int lanes_load(msg_local_session *s, void *arg, msg_err *err) {
  struct lanes *l = arg;
  sqlite3_stmt *stmt = NULL;
  msg_local_names alive = {0};
  lanes_clear(l);
  int rc = msg_local_alive_nodes(s, &alive, err);
  if (rc == MSG_OK)
    rc = msg_local_bound(s, sql_lanes, &stmt, err, "ti", s->queue, msg_clock_now_ms());
  while (rc == MSG_OK && (rc = msg_local_row(s, stmt, err)) == MSG_OK) {
    bool nomem = msg_grow(&l->at, &l->cap, l->n + 1, sizeof *l->at) != MSG_OK;
    if (!nomem) {
      msg_lane *lane = &l->at[l->n++];
      lane->owner = lane->lane = msg_local_column_dup(stmt, 0, &nomem);
      lane->depth = sqlite3_column_int64(stmt, 1);
      lane->oldest_ms = sqlite3_column_int64(stmt, 2);
      lane->owner_alive = !nomem && msg_local_names_have(&alive, lane->lane);
      lane->orphan = !lane->owner_alive;
      lane->indexed = true;
    }
    if (nomem)
      rc = msg_err_nomem(err);
  }
  msg_local_done(s, stmt);
  msg_local_names_clear(&alive);
  return rc == MSG_NOTFOUND ? MSG_OK : rc;
}

int msg_local_lanes(msg_session *base, msg_lane_fn fn, void *arg, msg_err *err) {
  struct lanes all = {0};
  int rc = msg_local_read((msg_local_session *)base, "lanes", lanes_load, &all, err);
  for (size_t i = 0; rc == MSG_OK && i < all.n; i++)
    rc = fn(arg, &all.at[i]);
  lanes_clear(&all);
  return rc;
}

static int lane_depth(msg_local_session *s, const char *lane, int64_t *rows, int64_t *waiting,
                      msg_err *err) {
  sqlite3_stmt *stmt = NULL;
  int rc =
      msg_local_bound(s, sql_lane_depth, &stmt, err, "tti", s->queue, lane, msg_clock_now_ms());
  if (rc == MSG_OK && (rc = msg_local_row(s, stmt, err)) == MSG_OK) {
    *rows = sqlite3_column_int64(stmt, 0);
    *waiting = sqlite3_column_int64(stmt, 1);
  }
  msg_local_done(s, stmt);
  return rc;
}

static int drop_work(msg_local_session *s, void *arg, msg_err *err) {
  struct leaving *l = arg;
  int64_t rows = 0, waiting = 0;
  int rc = leaving_look(s, l, err);
  if (rc == MSG_OK)
    rc = lane_depth(s, l->node, &rows, &waiting, err);
  if (rc != MSG_OK)
    return rc;
  if (l->found && l->alive)
    return msg_err_set(err, MSG_MISUSE,
                       "the owner of lane '%s' is alive: close it there, or end its process first",
                       msg_show(l->node).s);
  if (waiting > 0)
    return msg_err_set(err, MSG_MISUSE,
                       "lane '%s' holds %lld messages: let '%s' take them, or delete them first",
                       msg_show(l->node).s, (long long)waiting, msg_show(l->node).s);
  if (rows > 0)
    rc = msg_local_exec(s, sql_lane_empty, NULL, err, "tt", s->queue, l->node);
  if (rc == MSG_OK && l->found)
    rc = leave(s, l, err);
  l->found = l->found || rows > 0;
  return rc;
}

int msg_local_lane_drop(msg_session *base, const char *lane, msg_err *err) {
  msg_local_session *s = (msg_local_session *)base;
  struct leaving l = {.node = lane};
  bool exists = false;
  int rc = msg_local_lock(s, "drop lane", err);
  if (rc == MSG_OK)
    rc = msg_local_exists(s, "drop lane", &exists, err);
  if (rc == MSG_OK && exists)
    rc = msg_local_write(s, "drop lane", true, drop_work, &l, err);
  if (rc == MSG_OK && !l.found)
    rc = msg_err_set(err, MSG_NOTFOUND, "no lane '%s': see table msg_lanes", msg_show(lane).s);
  return rc;
}
