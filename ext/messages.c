/* msg_messages: every message of the queue. INSERT sends, DELETE removes, UPDATE changes priority,
 * deliver_at and ttl, and adds to processed_by. Hidden columns: options (INSERT: the options of a
 * send, as JSON) and node (whose queue; default the current node's). */
#include <string.h>

#include "base/mem.h"
#include "ext/browse.h"
#include "ext/field.h"
#include "ext/insert.h"
#include "ext/marks.h"
#include "ext/plan.h"
#include "ext/values.h"

enum { COLUMN_OPTIONS = MSG_FIELD_COUNT, COLUMN_NODE, COLUMN_COUNT };

static const unsigned char PUSH[COLUMN_COUNT] = {
    [MSG_FIELD_ID] = MSG_PUSH_ID,
    [MSG_FIELD_TOPIC] = MSG_PUSH_TOPIC,
    [MSG_FIELD_SENDER] = MSG_PUSH_SENDER,
    [MSG_FIELD_STATE] = MSG_PUSH_STATE,
    [MSG_FIELD_TIMESTAMP] = MSG_PUSH_TIMESTAMP,
    [MSG_FIELD_DELIVER_AT] = MSG_PUSH_DELIVER_AT,
    [MSG_FIELD_PRIORITY] = MSG_PUSH_PRIORITY,
    [MSG_FIELD_SEQ] = MSG_PUSH_SEQ,
    [COLUMN_NODE] = MSG_PUSH_NODE,
};

/* --- life ---------------------------------------------------------------------------------- */

static char *declaration(void) {
  msg_str sql = MSG_STR_INIT;
  msg_str_append(&sql, "CREATE TABLE x(");
  for (int f = 0; f < MSG_FIELD_COUNT; f++) {
    msg_field_declare(&sql, (enum msg_field)f);
    msg_str_append(&sql, ", ");
  }
  msg_str_append(&sql, "options HIDDEN, node TEXT HIDDEN)");
  return msg_str_take(&sql);
}

static int messages_connect(sqlite3 *db, void *aux, int argc, const char *const *argv,
                            sqlite3_vtab **out, char **text) {
  msg_err err = MSG_ERR_INIT;
  if (msg_table_no_arguments(argc, argv, &err) != MSG_OK)
    return msg_table_refuse(text, &err);
  char *sql = declaration();
  if (!sql)
    return SQLITE_NOMEM;
  int rc = msg_table_connect(db, aux, sql, sizeof(msg_browse_table), MSG_TABLE_CONSTRAINT, out);
  msg_free(sql);
  return rc;
}

/* --- reading ------------------------------------------------------------------------------- */

static int messages_best_index(sqlite3_vtab *table, sqlite3_index_info *info) {
  (void)table;
  return msg_plan_best(info, PUSH, COLUMN_COUNT);
}

static int messages_open(sqlite3_vtab *table, sqlite3_vtab_cursor **out) {
  return msg_browse_open(table, sizeof(msg_browse), out);
}

static int start(msg_browse *b, const char *plan, int argc, sqlite3_value **argv, msg_err *err) {
  msg_table *t = (msg_table *)b->base.pVtab;
  msg_filter f;
  msg_opened *o;
  msg_call call;
  const char *node = NULL;
  msg_filter_init(&f);
  int rc = msg_plan_filter(plan, argc, argv, &f, &node, err);
  if (rc == MSG_OK)
    rc = msg_table_call(t, node, MSG_CALL_READ, &o, &call, err);
  if (rc == MSG_OK)
    rc = msg_browse_start(b, o, &call, &f, err);
  msg_filter_clear(&f);
  return rc;
}

static int messages_filter(sqlite3_vtab_cursor *cursor, int number, const char *plan, int argc,
                           sqlite3_value **argv) {
  msg_err err = MSG_ERR_INIT;
  (void)number;
  msg_browse_stop((msg_browse *)cursor);
  int rc = start((msg_browse *)cursor, plan, argc, argv, &err);
  return rc == MSG_OK ? SQLITE_OK : msg_vtab_error(cursor->pVtab, &err);
}

/* An UPDATE asks for all columns and says so of those it will not change: these stay unread. */
static int messages_column(sqlite3_vtab_cursor *cursor, sqlite3_context *ctx, int column) {
  msg_browse *b = (msg_browse *)cursor;
  if (sqlite3_vtab_nochange(ctx) || column == COLUMN_OPTIONS)
    return SQLITE_OK;
  if (column == COLUMN_NODE)
    msg_result_text(ctx, msg_node_id(b->opened->node));
  else
    msg_result_field(ctx, ((msg_table *)cursor->pVtab)->c, &b->m, (enum msg_field)column);
  return SQLITE_OK;
}

/* --- writing ------------------------------------------------------------------------------- */

static int refuse_change(const char *column, msg_err *err) {
  return msg_err_set(err, MSG_INVALID,
                     "column %s of a message cannot be changed: only priority, deliver_at, ttl and "
                     "processed_by can",
                     column);
}

static bool may_change(int f) {
  return f == MSG_FIELD_PRIORITY || f == MSG_FIELD_DELIVER_AT || f == MSG_FIELD_TTL;
}

static int holds_already(msg_connection *c, const msg_message *m, int f, sqlite3_value *v,
                         bool *out, msg_err *err) {
  msg_value now;
  int rc = msg_field_value(c, m, (enum msg_field)f, &now, err);
  if (rc != MSG_OK)
    return rc;
  rc = msg_value_holds(&now, v, out, err);
  msg_value_clear(&now);
  return rc;
}

/* Setting a column to what it holds already is no change. */
static int check_unchanged(msg_connection *c, const msg_message *m, int f, sqlite3_value *v,
                           msg_err *err) {
  bool is_same;
  int rc = holds_already(c, m, f, v, &is_same, err);
  return rc != MSG_OK || is_same ? rc : refuse_change(msg_field_name((enum msg_field)f), err);
}

static int set_change(msg_update *u, int f, sqlite3_value *v, msg_err *err) {
  int64_t i = 0;
  int rc;
  sqlite3_value_numeric_type(v);
  if (f == MSG_FIELD_PRIORITY) {
    rc = msg_arg_int(v, "column priority", INT32_MIN, INT32_MAX, &i, err);
    u->has_priority = true;
    u->priority = (int32_t)i;
  } else if (f == MSG_FIELD_DELIVER_AT) {
    rc = msg_arg_int(v, "column deliver_at", 0, MSG_TIME_MAX_MS, &i, err);
    u->has_deliver_at = true;
    u->deliver_at_ms = i;
  } else {
    rc = sqlite3_value_type(v) == SQLITE_NULL
             ? MSG_OK
             : msg_arg_int(v, "column ttl", 0, MSG_DURATION_MAX_MS, &i, err);
    u->has_ttl = true;
    u->ttl_ms = i;
  }
  return rc;
}

/* A ttl that is named begins anew, though it is the same; but an UPDATE ... FROM gives every
 * column, whether it names it or not. */
static int read_change(msg_connection *c, const msg_message *m, int f, sqlite3_value **columns,
                       msg_update *u, msg_err *err) {
  bool is_same = false, from = !sqlite3_value_nochange(columns[MSG_FIELD_ID]);
  int rc = MSG_OK;
  if (!may_change(f))
    return check_unchanged(c, m, f, columns[f], err);
  if (f != MSG_FIELD_TTL || from)
    rc = holds_already(c, m, f, columns[f], &is_same, err);
  return rc != MSG_OK || is_same ? rc : set_change(u, f, columns[f], err);
}

/* columns: the values of the row's columns, hidden ones included. */
static int read_changes(msg_connection *c, const msg_target *target, sqlite3_value **columns,
                        msg_update *u, msg_err *err) {
  int rc = MSG_OK;
  for (int f = 0; rc == MSG_OK && f < MSG_FIELD_COUNT; f++) {
    if (sqlite3_value_nochange(columns[f]) || f == MSG_FIELD_PROCESSED_BY)
      continue;
    rc = read_change(c, &target->m, f, columns, u, err);
  }
  sqlite3_value *node = columns[COLUMN_NODE];
  msg_value id = msg_value_text(msg_node_id(target->opened->node));
  bool is_same = true;
  if (rc == MSG_OK && !sqlite3_value_nochange(node))
    rc = msg_value_holds(&id, node, &is_same, err);
  if (rc == MSG_OK && !is_same)
    rc = refuse_change("node", err);
  if (rc == MSG_OK && sqlite3_value_type(columns[COLUMN_OPTIONS]) != SQLITE_NULL)
    rc = refuse_change("options", err);
  return rc;
}

static int change(msg_browse_table *t, sqlite3_value **argv, msg_err *err) {
  sqlite3_value *seen_by = argv[2 + MSG_FIELD_PROCESSED_BY];
  msg_update u = {0};
  msg_target target;
  msg_settings settings;
  msg_actor actor;
  if (sqlite3_value_int64(argv[0]) != sqlite3_value_int64(argv[1]))
    return refuse_change("rowid", err);
  int rc = msg_browse_target(t, argv[0], &target, err);
  if (rc != MSG_OK)
    return rc;
  msg_settings_init(&settings);
  rc = read_changes(t->table.c, &target, argv + 2, &u, err);
  if (rc == MSG_OK)
    rc = msg_opened_actor(target.opened, &settings, &actor, err);
  if (rc == MSG_OK && !sqlite3_value_nochange(seen_by))
    rc = msg_marks_add(t->table.c, &target, &actor, seen_by, err);
  if (rc == MSG_OK && (u.has_priority || u.has_deliver_at || u.has_ttl))
    rc = target.call.session->ops->update(target.call.session, &actor, &target.m.id, &u, err);
  if (rc == MSG_OK)
    msg_node_doubt(target.opened->node);
  msg_settings_clear(&settings);
  msg_message_clear(&target.m);
  return rc;
}

static int read_topic(msg_options *o, sqlite3_value *v, msg_err *err) {
  const char *topic;
  int rc = msg_arg_text(v, "column topic", &topic, err);
  if (rc != MSG_OK)
    return rc;
  o->m.topic = msg_strdup(topic);
  return o->m.topic ? MSG_OK : msg_err_nomem(err);
}

static int read_node(sqlite3_value *v, const char **out, msg_err *err) {
  *out = NULL;
  return sqlite3_value_type(v) == SQLITE_NULL ? MSG_OK : msg_arg_text(v, "column node", out, err);
}

static int insert(msg_browse_table *t, sqlite3_value **columns, msg_err *err) {
  msg_options o;
  const char *node;
  int64_t delete_at_ms;
  msg_options_init(&o);
  int rc = msg_insert_read(t->table.c, MSG_VERB_SEND, columns, columns[COLUMN_OPTIONS], &o,
                           &delete_at_ms, err);
  if (rc == MSG_OK)
    rc = read_topic(&o, columns[MSG_FIELD_TOPIC], err);
  if (rc == MSG_OK)
    rc = read_node(columns[COLUMN_NODE], &node, err);
  if (rc == MSG_OK)
    rc = msg_value_read(columns[MSG_FIELD_VALUE], &o.m.value, err);
  if (rc == MSG_OK)
    rc = msg_insert_send(t->table.c, node, &o, delete_at_ms, err);
  msg_options_clear(&o);
  return rc;
}

static int write(sqlite3_vtab *table, int argc, sqlite3_value **argv, msg_err *err) {
  msg_browse_table *t = (msg_browse_table *)table;
  if (argc == 1)
    return msg_browse_remove(t, argv[0], err);
  if (sqlite3_value_type(argv[0]) != SQLITE_NULL)
    return change(t, argv, err);
  return insert(t, argv + 2, err);
}

static int messages_update(sqlite3_vtab *table, int argc, sqlite3_value **argv,
                           sqlite3_int64 *rowid) {
  return msg_table_update(table, argc, argv, rowid, write);
}

static const sqlite3_module MODULE = {
    .xCreate = messages_connect, /* the same as xConnect: eponymous */
    .xConnect = messages_connect,
    .xBestIndex = messages_best_index,
    .xDisconnect = msg_table_disconnect,
    .xDestroy = msg_table_disconnect,
    .xOpen = messages_open,
    .xClose = msg_browse_close,
    .xFilter = messages_filter,
    .xNext = msg_browse_next,
    .xEof = msg_browse_eof,
    .xColumn = messages_column,
    .xRowid = msg_browse_rowid,
    .xUpdate = messages_update,
    .xBegin = msg_table_begin,
};

int msg_table_messages_register(msg_connection *c) {
  return msg_table_register(c, "msg_messages", &MODULE);
}
