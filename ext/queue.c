/* msg_queue: one topic as a typed table.
 *
 *   CREATE VIRTUAL TABLE orders USING msg_queue(topic='orders', total REAL, customer TEXT);
 *   INSERT INTO orders(total, customer) VALUES (9.5, 'Ada'); -- {"total":9.5,"customer":"Ada"}
 *   SELECT msg_id, total FROM orders WHERE msg_state = 'ready';
 *
 * Columns are keys of the payload, a JSON object; a payload of another kind shows NULLs. Messages
 * go to one owner unless exclusive=0. An INSERT may set msg_id, the hidden msg_priority,
 * msg_deliver_at, msg_key, msg_group, and msg_options, the options of a send as JSON. DELETE
 * removes. A payload is not changed once sent. */

#include "base/mem.h"
#include "ext/browse.h"
#include "ext/field.h"
#include "ext/insert.h"
#include "ext/payload.h"
#include "ext/plan.h"
#include "ext/values.h"

/* Columns after msg_id and the payload, all hidden. */
static const struct {
  const char *name;
  enum msg_field field;
  enum msg_push push;
} HIDDEN[] = {
    {"msg_state", MSG_FIELD_STATE, MSG_PUSH_STATE},
    {"msg_priority", MSG_FIELD_PRIORITY, MSG_PUSH_PRIORITY},
    {"msg_timestamp", MSG_FIELD_TIMESTAMP, MSG_PUSH_TIMESTAMP},
    {"msg_deliver_at", MSG_FIELD_DELIVER_AT, MSG_PUSH_DELIVER_AT},
    {"msg_sender", MSG_FIELD_SENDER, MSG_PUSH_SENDER},
    {"msg_attempts", MSG_FIELD_ATTEMPTS, MSG_PUSH_NO},
    {"msg_owner", MSG_FIELD_OWNER, MSG_PUSH_NO},
    {"msg_key", MSG_FIELD_KEY, MSG_PUSH_NO},
    {"msg_group", MSG_FIELD_GROUP, MSG_PUSH_NO},
    {"msg_seq", MSG_FIELD_SEQ, MSG_PUSH_SEQ},
};
enum { HIDDEN_COUNT = sizeof HIDDEN / sizeof HIDDEN[0] };

typedef struct queue_table {
  msg_browse_table browse;
  msg_queue_def def;
  unsigned char push[1 + MSG_QUEUE_COLUMNS_MAX + HIDDEN_COUNT + 1];
  msg_payload_builder builder;
} queue_table;

typedef struct queue_cursor {
  msg_browse browse;
  sqlite3_stmt *read; /* the payload's keys as columns; NULL until first needed */
  bool loaded;        /* read stands on the current row's payload */
  bool empty;         /* the current payload is no JSON object */
} queue_cursor;

/* --- life ---------------------------------------------------------------------------------- */

/* msg_id is 0, the payload follows, then the hidden ones, then msg_options. */
static int hidden_at(const queue_table *t, int column) {
  return column - 1 - (int)t->def.n;
}

static int column_count(const msg_queue_def *def) {
  return 1 + (int)def->n + HIDDEN_COUNT + 1;
}

static char *declaration(const msg_queue_def *def) {
  msg_str sql = MSG_STR_INIT;
  msg_str_append(&sql, "CREATE TABLE x(msg_id TEXT");
  for (size_t i = 0; i < def->n; i++)
    msg_str_appendf(&sql, ", \"%s\" %s", def->columns[i].name,
                    msg_queue_type_name(def->columns[i].type));
  for (size_t i = 0; i < HIDDEN_COUNT; i++)
    msg_str_appendf(&sql, ", %s %s HIDDEN", HIDDEN[i].name, msg_field_type(HIDDEN[i].field));
  msg_str_append(&sql, ", msg_options HIDDEN)");
  return msg_str_take(&sql);
}

static void fill_push(queue_table *t) {
  t->push[0] = MSG_PUSH_ID;
  for (size_t i = 0; i < HIDDEN_COUNT; i++)
    t->push[1 + t->def.n + i] = (unsigned char)HIDDEN[i].push;
}

static int make(sqlite3 *db, msg_connection *c, msg_queue_def *def, sqlite3_vtab **out) {
  char *sql = declaration(def);
  if (!sql)
    return SQLITE_NOMEM;
  int rc = msg_table_connect(db, c, sql, sizeof(queue_table), MSG_TABLE_CONSTRAINT, out);
  msg_free(sql);
  if (rc != SQLITE_OK)
    return rc;
  queue_table *t = (queue_table *)*out;
  t->def = *def;
  *def = (msg_queue_def){0};
  fill_push(t);
  return SQLITE_OK;
}

static int queue_connect(sqlite3 *db, void *aux, int argc, const char *const *argv,
                         sqlite3_vtab **out, char **text) {
  msg_queue_def def = {0};
  msg_err err = MSG_ERR_INIT;
  int rc = msg_queue_def_read(argc, argv, &def, &err);
  rc = rc == MSG_OK ? make(db, aux, &def, out) : msg_table_refuse(text, &err);
  msg_queue_def_clear(&def);
  return rc;
}

/* Another function than xConnect, so that the module is not eponymous. Nothing is stored beside the
 * definition. */
static int queue_create(sqlite3 *db, void *aux, int argc, const char *const *argv,
                        sqlite3_vtab **out, char **text) {
  return queue_connect(db, aux, argc, argv, out, text);
}

static int queue_disconnect(sqlite3_vtab *table) {
  queue_table *t = (queue_table *)table;
  msg_payload_builder_clear(&t->builder);
  msg_queue_def_clear(&t->def);
  return msg_table_disconnect(table);
}

/* --- reading ------------------------------------------------------------------------------- */

static int queue_best_index(sqlite3_vtab *table, sqlite3_index_info *info) {
  const queue_table *t = (const queue_table *)table;
  return msg_plan_best(info, t->push, column_count(&t->def));
}

static int queue_open(sqlite3_vtab *table, sqlite3_vtab_cursor **out) {
  return msg_browse_open(table, sizeof(queue_cursor), out);
}

static int queue_close(sqlite3_vtab_cursor *cursor) {
  sqlite3_finalize(((queue_cursor *)cursor)->read);
  return msg_browse_close(cursor);
}

static void leave_row(queue_cursor *c) {
  if (c->read)
    sqlite3_reset(c->read);
  c->loaded = c->empty = false;
}

static int start(queue_cursor *c, const char *plan, int argc, sqlite3_value **argv, msg_err *err) {
  queue_table *t = (queue_table *)c->browse.base.pVtab;
  msg_filter f;
  msg_opened *o;
  msg_call call;
  const char *node = NULL;
  msg_filter_init(&f);
  f.bare = true;
  int rc = msg_plan_filter(plan, argc, argv, &f, &node, err);
  if (rc == MSG_OK && msg_filter_add_topic(&f, t->def.topic) != MSG_OK)
    rc = msg_err_nomem(err);
  if (rc == MSG_OK)
    rc = msg_table_call(&t->browse.table, t->def.node, MSG_CALL_READ, &o, &call, err);
  if (rc == MSG_OK)
    rc = msg_browse_start(&c->browse, o, &call, &f, err);
  msg_filter_clear(&f);
  return rc;
}

static int queue_filter(sqlite3_vtab_cursor *cursor, int number, const char *plan, int argc,
                        sqlite3_value **argv) {
  queue_cursor *c = (queue_cursor *)cursor;
  msg_err err = MSG_ERR_INIT;
  (void)number;
  leave_row(c);
  msg_browse_stop(&c->browse);
  int rc = start(c, plan, argc, argv, &err);
  err.rc = rc;
  return rc == MSG_OK ? SQLITE_OK : msg_vtab_error(cursor->pVtab, &err);
}

static int queue_next(sqlite3_vtab_cursor *cursor) {
  leave_row((queue_cursor *)cursor);
  return msg_browse_next(cursor);
}

/* --- payload to columns -------------------------------------------------------------------- */

static int load(queue_cursor *c, msg_err *err) {
  const queue_table *t = (const queue_table *)c->browse.base.pVtab;
  const msg_value *value = &c->browse.m.value;
  if (c->loaded || c->empty)
    return MSG_OK;
  if (value->type != MSG_TEXT) {
    c->empty = true;
    return MSG_OK;
  }
  int rc = c->read
               ? MSG_OK
               : msg_payload_reader(msg_connection_db(t->browse.table.c), &t->def, &c->read, err);
  if (rc != MSG_OK)
    return rc;
  int step = sqlite3_bind_text64(c->read, 1, value->p, value->n, SQLITE_STATIC, SQLITE_UTF8);
  if (step == SQLITE_OK)
    step = sqlite3_step(c->read);
  c->loaded = step == SQLITE_ROW;
  c->empty = step == SQLITE_DONE;
  if (c->loaded || c->empty)
    return MSG_OK;
  sqlite3_reset(c->read);
  return msg_sqlite_fail(msg_connection_db(t->browse.table.c), step, "payload", err);
}

static void result_payload(sqlite3_context *ctx, queue_cursor *c, int i) {
  const queue_table *t = (const queue_table *)c->browse.base.pVtab;
  msg_err err = MSG_ERR_INIT;
  if (load(c, &err) != MSG_OK)
    msg_result_error(ctx, &err);
  else if (c->loaded)
    msg_payload_result(ctx, c->read, i, t->def.columns[i].type);
}

static int queue_column(sqlite3_vtab_cursor *cursor, sqlite3_context *ctx, int column) {
  queue_cursor *c = (queue_cursor *)cursor;
  queue_table *t = (queue_table *)cursor->pVtab;
  int hidden = hidden_at(t, column);
  if (sqlite3_vtab_nochange(ctx) || hidden >= HIDDEN_COUNT)
    return SQLITE_OK;
  if (column > 0 && hidden < 0)
    result_payload(ctx, c, column - 1);
  else
    msg_result_field(ctx, t->browse.table.c, &c->browse.m,
                     column == 0 ? MSG_FIELD_ID : HIDDEN[hidden].field);
  return SQLITE_OK;
}

/* --- writing ------------------------------------------------------------------------------- */

/* null: an SQL NULL, for the fields that the table has no column for. */
static int read_row(queue_table *t, sqlite3_value *null, sqlite3_value **columns, msg_options *o,
                    int64_t *delete_at_ms, msg_err *err) {
  sqlite3_value *fields[MSG_FIELD_COUNT];
  sqlite3_value **hidden = columns + 1 + t->def.n;
  for (int f = 0; f < MSG_FIELD_COUNT; f++)
    fields[f] = null;
  fields[MSG_FIELD_ID] = columns[0];
  for (int i = 0; i < HIDDEN_COUNT; i++)
    fields[HIDDEN[i].field] = hidden[i];
  enum msg_verb verb = t->def.exclusive ? MSG_VERB_ENQUEUE : MSG_VERB_SEND;
  return msg_insert_read(t->browse.table.c, verb, fields, hidden[HIDDEN_COUNT], o, delete_at_ms,
                         err);
}

static int insert(queue_table *t, sqlite3_value *null, sqlite3_value **columns, msg_err *err) {
  msg_options o;
  int64_t delete_at_ms;
  msg_options_init(&o);
  int rc = read_row(t, null, columns, &o, &delete_at_ms, err);
  if (rc == MSG_OK && !(o.m.topic = msg_strdup(t->def.topic)))
    rc = msg_err_nomem(err);
  if (rc == MSG_OK)
    rc = msg_payload_build(&t->builder, msg_connection_db(t->browse.table.c), &t->def, columns + 1,
                           &o.m.value, err);
  if (rc == MSG_OK)
    rc = msg_insert_send(t->browse.table.c, t->def.node, &o, delete_at_ms, err);
  msg_options_clear(&o);
  return rc;
}

static int write(sqlite3_vtab *table, int argc, sqlite3_value **argv, msg_err *err) {
  queue_table *t = (queue_table *)table;
  if (argc == 1)
    return msg_browse_remove(&t->browse, argv[0], err);
  if (sqlite3_value_type(argv[0]) == SQLITE_NULL)
    return insert(t, argv[0], argv + 2, err);
  return msg_err_set(err, MSG_INVALID,
                     "a message of topic '%s' cannot be changed once sent: DELETE it and INSERT it "
                     "again; msg_messages can change priority, deliver_at and ttl",
                     t->def.topic);
}

static int queue_update(sqlite3_vtab *table, int argc, sqlite3_value **argv, sqlite3_int64 *rowid) {
  return msg_table_update(table, argc, argv, rowid, write);
}

static int queue_begin(sqlite3_vtab *table) {
  queue_table *t = (queue_table *)table;
  return msg_table_begin_on(&t->browse.table, t->def.node);
}

static int queue_rename(sqlite3_vtab *table, const char *name) {
  (void)table, (void)name;
  return SQLITE_OK;
}

static const sqlite3_module MODULE = {
    .xCreate = queue_create,
    .xConnect = queue_connect,
    .xBestIndex = queue_best_index,
    .xDisconnect = queue_disconnect,
    .xDestroy = queue_disconnect,
    .xOpen = queue_open,
    .xClose = queue_close,
    .xFilter = queue_filter,
    .xNext = queue_next,
    .xEof = msg_browse_eof,
    .xColumn = queue_column,
    .xRowid = msg_browse_rowid,
    .xUpdate = queue_update,
    .xBegin = queue_begin,
    .xRename = queue_rename,
};

int msg_table_queue_register(msg_connection *c) {
  return msg_table_register(c, "msg_queue", &MODULE);
}
