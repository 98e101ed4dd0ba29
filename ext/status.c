/* The inspection tables of the store: msg_queues, msg_topics, msg_locks, msg_participants,
 * msg_lanes, msg_listeners. */
#include <string.h>

#include "base/mem.h"
#include "base/process.h"
#include "ext/snapshot.h"

/* The current node, its session, and where rows go. */
struct reading {
  msg_rows *rows;
  msg_opened *o;
  msg_call call;
  int64_t now_ms;
};

static int begin(msg_table *t, msg_rows *rows, struct reading *r, msg_err *err) {
  *r = (struct reading){.rows = rows, .now_ms = msg_clock_now_ms()};
  return msg_table_call(t, NULL, MSG_CALL_READ, &r->o, &r->call, err);
}

/* The same for a DELETE. */
static int begin_write(msg_table *t, msg_opened **o, msg_call *call, msg_err *err) {
  return msg_table_call(t, NULL, MSG_CALL_WRITE, o, call, err);
}

static msg_value age(int64_t now_ms, int64_t then_ms) {
  if (then_ms == 0)
    return (msg_value){0};
  return msg_value_int(now_ms > then_ms ? now_ms - then_ms : 0);
}

static msg_value time_of(int64_t ms) {
  return ms == 0 || ms == MSG_NEVER ? (msg_value){0} : msg_value_int(ms);
}

/* --- msg_topics, msg_queues ---------------------------------------------------------------- */

enum { COUNT_CELLS = 10 };

/* What both show, in the first ten columns. */
static msg_value *add_count(struct reading *r, const msg_count *count) {
  msg_value *row = msg_rows_add(r->rows);
  if (!row)
    return NULL;
  msg_rows_text(r->rows, &row[0], count->name);
  const int64_t numbers[] = {count->depth,   count->ready, count->delayed,   count->claimed,
                             count->blocked, count->dead,  count->broadcasts};
  for (int i = 0; i < 7; i++)
    row[1 + i] = msg_value_int(numbers[i]);
  row[8] = age(r->now_ms, count->oldest_ms);
  row[9] = msg_value_int(count->listeners);
  return row;
}

static int add_queue(void *arg, const msg_count *count) {
  struct reading *r = arg;
  add_count(r, count);
  return msg_rows_status(r->rows);
}

static int add_topic(void *arg, const msg_count *count) {
  struct reading *r = arg;
  msg_value *row = add_count(r, count);
  if (!row)
    return MSG_NOMEM;
  row[COUNT_CELLS] = msg_value_int(msg_node_is_paused(r->o->node, count->name));
  if (count->broadcasts > 0 && count->ready == count->broadcasts &&
      msg_node_claimed_in_vain(r->o->node, count->name))
    msg_rows_text(r->rows, &row[COUNT_CELLS + 1],
                  "claimed here, but only broadcasts wait: use msg_await");
  return msg_rows_status(r->rows);
}

static int load_queues(msg_table *t, msg_rows *rows, msg_err *err) {
  struct reading r;
  int rc = begin(t, rows, &r, err);
  return rc == MSG_OK ? r.call.session->ops->queues(r.call.session, add_queue, &r, err) : rc;
}

static int load_topics(msg_table *t, msg_rows *rows, msg_err *err) {
  struct reading r;
  int rc = begin(t, rows, &r, err);
  return rc == MSG_OK ? r.call.session->ops->topics(r.call.session, add_topic, &r, err) : rc;
}

/* --- msg_locks ----------------------------------------------------------------------------- */

static void add_lock(msg_rows *rows, const msg_message *m) {
  char hex[MSG_OID_HEX + 1];
  msg_value *row = msg_rows_add(rows);
  if (!row)
    return;
  msg_oid_hex(&m->id, hex);
  msg_rows_text(rows, &row[0], hex);
  msg_rows_text(rows, &row[1], m->topic);
  msg_rows_text(rows, &row[2], m->owner);
  msg_rows_text(rows, &row[3], m->token[0] ? m->token : NULL);
  row[4] = time_of(m->since_ms);
  row[5] = time_of(m->until_ms);
}

static int load_locks(msg_table *t, msg_rows *rows, msg_err *err) {
  struct reading r;
  msg_filter f;
  msg_find *find;
  msg_message m;
  int rc = begin(t, rows, &r, err);
  if (rc != MSG_OK)
    return rc;
  msg_filter_init(&f);
  f.states = 1u << MSG_STATE_CLAIMED;
  f.bare = true;
  rc = r.call.session->ops->find(r.call.session, &f, &find, err);
  msg_filter_clear(&f);
  if (rc != MSG_OK)
    return rc;
  while (!rows->nomem && (rc = find->ops->find_next(find, &m, err)) == MSG_OK) {
    add_lock(rows, &m);
    msg_message_clear(&m);
  }
  find->ops->find_close(find);
  return rc == MSG_NOTFOUND ? MSG_OK : rc;
}

static int free_lock(msg_table *t, const char *key, msg_err *err) {
  const msg_settle how = {.verb = MSG_SETTLE_FREE};
  msg_settle_item item = {0};
  msg_opened *o;
  msg_call call;
  if (!msg_oid_parse(key, &item.id))
    return MSG_NOTFOUND;
  int rc = begin_write(t, &o, &call, err);
  return rc == MSG_OK ? msg_node_settle(o->node, &call, &how, &item, 1, err) : rc;
}

/* --- msg_participants ---------------------------------------------------------------------- */

static int add_participant(void *arg, const msg_participant *p) {
  struct reading *r = arg;
  msg_value *row = msg_rows_add(r->rows);
  if (!row)
    return MSG_NOMEM;
  msg_rows_text(r->rows, &row[0], p->node);
  msg_rows_text(r->rows, &row[1], p->host);
  row[2] = time_of(p->pid);
  msg_rows_text(r->rows, &row[3], p->implementation);
  msg_rows_text(r->rows, &row[4], p->layout);
  row[5] = time_of(p->started_at_ms);
  row[6] = time_of(p->last_seen_ms);
  row[7] = age(r->now_ms, p->last_seen_ms);
  row[8] = msg_value_int(p->alive);
  row[9] = msg_value_int(p->automatic);
  return msg_rows_status(r->rows);
}

static int load_participants(msg_table *t, msg_rows *rows, msg_err *err) {
  struct reading r;
  int rc = begin(t, rows, &r, err);
  return rc == MSG_OK ? r.call.session->ops->presence_list(r.call.session, add_participant, &r, err)
                      : rc;
}

static int withdraw_participant(msg_table *t, const char *key, msg_err *err) {
  msg_opened *o;
  msg_call call;
  int rc = begin_write(t, &o, &call, err);
  return rc == MSG_OK ? call.session->ops->presence_withdraw(call.session, key, true, err) : rc;
}

/* --- msg_lanes ----------------------------------------------------------------------------- */

static int add_lane(void *arg, const msg_lane *lane) {
  struct reading *r = arg;
  msg_value *row = msg_rows_add(r->rows);
  if (!row)
    return MSG_NOMEM;
  msg_rows_text(r->rows, &row[0], lane->lane);
  msg_rows_text(r->rows, &row[1], lane->owner);
  row[2] = msg_value_int(lane->depth);
  row[3] = age(r->now_ms, lane->oldest_ms);
  row[4] = msg_value_int(lane->owner_alive);
  row[5] = msg_value_int(lane->orphan);
  row[6] = msg_value_int(lane->indexed);
  return msg_rows_status(r->rows);
}

static int load_lanes(msg_table *t, msg_rows *rows, msg_err *err) {
  struct reading r;
  int rc = begin(t, rows, &r, err);
  return rc == MSG_OK ? r.call.session->ops->lanes(r.call.session, add_lane, &r, err) : rc;
}

static int drop_lane(msg_table *t, const char *key, msg_err *err) {
  msg_opened *o;
  msg_call call;
  int rc = begin_write(t, &o, &call, err);
  return rc == MSG_OK ? call.session->ops->lane_drop(call.session, key, err) : rc;
}

/* --- msg_listeners ------------------------------------------------------------------------- */

/* Nodes of this process: one column, the name. */
struct locals {
  msg_rows names;
};

static void add_local(struct locals *l, const char *node) {
  msg_value *row = msg_rows_add(&l->names);
  if (row)
    msg_rows_text(&l->names, row, node);
}

static int add_if_local(void *arg, const msg_participant *p) {
  struct locals *l = arg;
  if (p->process && strcmp(p->process, msg_process_self()) == 0)
    add_local(l, p->node);
  return msg_rows_status(&l->names);
}

static bool is_local(const struct locals *l, const char *node) {
  for (size_t i = 0; i < l->names.n; i++)
    if (l->names.cells[i].p && strcmp(l->names.cells[i].p, node) == 0)
      return true;
  return false;
}

struct listening {
  msg_rows *rows;
  const struct locals *locals;
  bool here; /* this pass takes this process' own, or the others */
};

static int add_listener(void *arg, const msg_listener *listener) {
  struct listening *l = arg;
  if (is_local(l->locals, listener->node) != l->here)
    return MSG_OK;
  msg_value *row = msg_rows_add(l->rows);
  if (!row)
    return MSG_NOMEM;
  msg_rows_text(l->rows, &row[0], listener->node);
  msg_rows_text(l->rows, &row[1], listener->pattern);
  row[2] = msg_value_int(l->here);
  return msg_rows_status(l->rows);
}

static int find_locals(msg_table *t, msg_session *session, struct locals *l, msg_err *err) {
  for (msg_opened *o = msg_connection_next(t->c, NULL); o; o = msg_connection_next(t->c, o))
    add_local(l, msg_node_id(o->node));
  int rc = session->ops->presence_list(session, add_if_local, l, err);
  return l->names.nomem ? msg_err_nomem(err) : rc;
}

static int load_listeners(msg_table *t, msg_rows *rows, msg_err *err) {
  struct reading r;
  struct locals locals = {{.columns = 1}};
  struct listening l = {rows, &locals, true};
  int rc = begin(t, rows, &r, err);
  if (rc == MSG_OK)
    rc = find_locals(t, r.call.session, &locals, err);
  if (rc == MSG_OK)
    rc = r.call.session->ops->listeners(r.call.session, add_listener, &l, err);
  l.here = false;
  if (rc == MSG_OK)
    rc = r.call.session->ops->listeners(r.call.session, add_listener, &l, err);
  msg_rows_clear(&locals.names);
  return rc;
}

/* --- registering --------------------------------------------------------------------------- */

#define COUNTS                                                                                     \
  "depth INTEGER, ready INTEGER, delayed INTEGER, claimed INTEGER, blocked INTEGER,"               \
  " dead INTEGER, broadcasts INTEGER, oldest_age_ms INTEGER, listeners INTEGER"

static const msg_snapshot_def TABLES[] = {
    {.name = "msg_queues",
     .sql = "CREATE TABLE x(queue TEXT, " COUNTS ")",
     .columns = COUNT_CELLS,
     .load = load_queues},
    {.name = "msg_topics",
     .sql = "CREATE TABLE x(topic TEXT, " COUNTS ", paused INTEGER, note TEXT)",
     .columns = COUNT_CELLS + 2,
     .load = load_topics},
    {.name = "msg_locks",
     .sql = "CREATE TABLE x(id TEXT PRIMARY KEY NOT NULL, topic TEXT, owner TEXT, token TEXT,"
            " since INTEGER, until INTEGER) WITHOUT ROWID",
     .columns = 6,
     .load = load_locks,
     .remove = free_lock},
    {.name = "msg_participants",
     .sql = "CREATE TABLE x(node TEXT PRIMARY KEY NOT NULL, host TEXT, pid INTEGER,"
            " implementation TEXT, layout TEXT, started_at INTEGER, last_seen INTEGER,"
            " heartbeat_age_ms INTEGER, alive INTEGER, automatic INTEGER) WITHOUT ROWID",
     .columns = 10,
     .load = load_participants,
     .remove = withdraw_participant},
    {.name = "msg_lanes",
     .sql = "CREATE TABLE x(lane TEXT PRIMARY KEY NOT NULL, owner TEXT, depth INTEGER,"
            " oldest_age_ms INTEGER, owner_alive INTEGER, orphan INTEGER, indexed INTEGER)"
            " WITHOUT ROWID",
     .columns = 7,
     .load = load_lanes,
     .remove = drop_lane},
    {.name = "msg_listeners",
     .sql = "CREATE TABLE x(node TEXT, pattern TEXT, here INTEGER)",
     .columns = 3,
     .load = load_listeners},
};

static int register_all(msg_connection *c, const msg_snapshot_def *defs, size_t n) {
  int rc = SQLITE_OK;
  for (size_t i = 0; rc == SQLITE_OK && i < n; i++)
    rc = msg_snapshot_register(c, &defs[i]);
  return rc;
}

int msg_table_status_register(msg_connection *c) {
  int rc = register_all(c, TABLES, sizeof TABLES / sizeof TABLES[0]);
  return rc == SQLITE_OK ? register_all(c, msg_process_tables, msg_process_table_count) : rc;
}
