/* processed.c - who has taken a message: computed when it is looked at, never stored.
 *
 * Broadcast: nodes with a mark, or with a pattern whose floor passed it. Direct:
 * recipients without a lane row. Claims have an owner instead. */
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "store/local/reading.h"

static const char sql_floor[] = "SELECT floor FROM @.msg_store_floor WHERE queue = ?1 AND node = ?2"
                                " AND topic = ?3 AND priority = ?4 AND pattern = ?5";
static const char sql_marked[] =
    "SELECT 1 FROM @.msg_store_seen WHERE queue = ?1 AND node = ?2 AND seq = ?3";
static const char sql_waiting[] = "SELECT " MSG_LOCAL_WAITING("?1");
static const char sql_recipients[] = "SELECT " MSG_LOCAL_WAITING(
    "m.seq") ","
             " (SELECT json_group_array(j.value) FROM json_each(m.recipients) AS j WHERE NOT EXISTS"
             " (SELECT 1 FROM @.msg_store_lane AS l INDEXED BY msg_store_lane_seq WHERE l.seq = "
             "m.seq AND l.node = j.value))"
             " FROM @.msg_store_message AS m WHERE m.seq = ?1";

/* What the patterns of every listener have passed, of one topic and priority. */
struct msg_local_floors {
  int32_t priority;
  char *topic;
  int64_t at[]; /* one a listener */
};

#define FLOORS_KEPT 512

void msg_local_takers_clear(msg_local_takers *t) {
  for (size_t i = 0; t->floors && i < FLOORS_KEPT; i++)
    if (t->floors[i])
      msg_free(t->floors[i]->topic);
  for (size_t i = 0; t->floors && i < FLOORS_KEPT; i++)
    msg_free(t->floors[i]);
  msg_free(t->floors);
  msg_local_audience_clear(&t->listeners);
  memset(t, 0, sizeof *t);
}

static int floor_of(msg_local_session *s, const msg_local_listener *l, const msg_message *m,
                    int64_t *out, msg_err *err) {
  *out = 0;
  if (!msg_local_listener_match(l, m->topic))
    return MSG_OK;
  sqlite3_stmt *stmt = NULL;
  int rc = msg_local_bound(s, sql_floor, &stmt, err, "tttit", s->queue, l->node, m->topic,
                           (int64_t)m->priority, l->pattern);
  if (rc == MSG_OK && (rc = msg_local_row(s, stmt, err)) == MSG_OK)
    *out = sqlite3_column_int64(stmt, 0);
  msg_local_done(s, stmt);
  return rc == MSG_NOTFOUND ? MSG_OK : rc;
}

static int load(msg_local_session *s, msg_local_takers *t, msg_err *err) {
  msg_local_audience_clear(&t->listeners);
  int rc = msg_local_audience_load(s, NULL, &t->listeners, err);
  if (rc == MSG_OK)
    rc = msg_local_audience_add_strangers(s, &t->listeners, err);
  if (rc == MSG_OK && !t->floors && !(t->floors = msg_zalloc(FLOORS_KEPT * sizeof *t->floors)))
    rc = msg_err_nomem(err);
  t->loaded = rc == MSG_OK;
  return rc;
}

static size_t slot_of(const msg_message *m) {
  size_t hash = (size_t)m->priority;
  for (const char *c = m->topic; *c; c++)
    hash = hash * 31 + (unsigned char)*c;
  return hash % FLOORS_KEPT;
}

static int read_floors(msg_local_session *s, msg_local_takers *t, const msg_message *m,
                       struct msg_local_floors **out, msg_err *err) {
  struct msg_local_floors *f = msg_zalloc(sizeof *f + t->listeners.n * sizeof f->at[0]);
  if (!f || !(f->topic = msg_strdup(m->topic))) {
    msg_free(f);
    return msg_err_nomem(err);
  }
  f->priority = m->priority;
  int rc = MSG_OK;
  for (size_t i = 0; rc == MSG_OK && i < t->listeners.n; i++)
    rc = floor_of(s, &t->listeners.at[i], m, &f->at[i], err);
  if (rc != MSG_OK) {
    msg_free(f->topic);
    msg_free(f);
    return rc;
  }
  *out = f;
  return MSG_OK;
}

/* Rows of a browse share topics and priorities: look their floors up once. */
static int floors_of(msg_local_session *s, msg_local_takers *t, const msg_message *m,
                     const struct msg_local_floors **out, msg_err *err) {
  int rc = t->loaded ? MSG_OK : load(s, t, err);
  if (rc != MSG_OK)
    return rc;
  struct msg_local_floors **kept = &t->floors[slot_of(m)], *f = *kept;
  if (!f || f->priority != m->priority || strcmp(f->topic, m->topic) != 0) {
    if ((rc = read_floors(s, t, m, &f, err)) != MSG_OK)
      return rc;
    if (*kept)
      msg_free((*kept)->topic);
    msg_free(*kept);
    *kept = f;
  }
  *out = f;
  return MSG_OK;
}

static int is_marked(msg_local_session *s, const char *node, int64_t seq, bool *out, msg_err *err) {
  sqlite3_stmt *stmt = NULL;
  int rc = msg_local_bound(s, sql_marked, &stmt, err, "tti", s->queue, node, seq);
  if (rc == MSG_OK)
    rc = msg_local_step(s, stmt, out, err);
  msg_local_done(s, stmt);
  return rc;
}

static int fill_broadcast(msg_local_session *s, msg_local_takers *t, msg_message *m, msg_err *err) {
  msg_str json = MSG_STR_INIT;
  const struct msg_local_floors *floors = NULL;
  int rc = floors_of(s, t, m, &floors, err);
  msg_str_append(&json, "[");
  for (size_t i = 0, n; rc == MSG_OK && i < t->listeners.n; i += n) {
    const msg_local_listener *l = &t->listeners.at[i]; /* n patterns of one node */
    bool took = false;
    for (n = 0; i + n < t->listeners.n && strcmp(l[n].node, l->node) == 0; n++)
      took = took || (l[n].start < m->seq && m->seq <= floors->at[i + n]);
    if (strcmp(l->node, m->sender) == 0)
      continue;
    if (!took)
      rc = is_marked(s, l->node, m->seq, &took, err);
    if (took && rc == MSG_OK)
      msg_str_appendf(&json, "%s%s", json.n > 1 ? "," : "", l->quoted);
  }
  msg_str_append(&json, "]");
  if (rc == MSG_OK && !(m->processed_by = msg_str_take(&json)))
    rc = msg_err_nomem(err);
  msg_str_clear(&json);
  return rc;
}

static int fill_direct(msg_local_session *s, bool bare, msg_message *m, msg_err *err) {
  sqlite3_stmt *stmt = NULL;
  bool nomem = false;
  int rc = msg_local_bound(s, bare ? sql_waiting : sql_recipients, &stmt, err, "i", m->seq);
  if (rc == MSG_OK && (rc = msg_local_row(s, stmt, err)) == MSG_OK) {
    if (!sqlite3_column_int(stmt, 0) && m->state == MSG_STATE_READY)
      m->state = MSG_STATE_PROCESSED;
    if (!bare)
      m->processed_by = msg_local_column_dup(stmt, 1, &nomem);
  }
  msg_local_done(s, stmt);
  if (nomem)
    return msg_err_nomem(err);
  return rc == MSG_NOTFOUND ? MSG_OK : rc; /* taken away while the browse was open */
}

int msg_local_takers_fill(msg_local_session *s, msg_local_takers *t, int stored, msg_message *m,
                          msg_err *err) {
  int rc = MSG_OK;
  if (stored == MSG_LOCAL_DIRECT)
    rc = fill_direct(s, t->bare, m, err);
  else if (stored == MSG_LOCAL_LIVE && !t->bare)
    rc = fill_broadcast(s, t, m, err);
  if (rc == MSG_OK && !t->bare && !m->processed_by && !(m->processed_by = msg_strdup("[]")))
    rc = msg_err_nomem(err);
  return rc;
}
