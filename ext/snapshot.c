#include "ext/snapshot.h"

#include <string.h>

#include "base/mem.h"
#include "ext/values.h"

typedef struct snapshot_table {
  msg_table table;
  const msg_snapshot_def *def;
} snapshot_table;

typedef struct snapshot_cursor {
  sqlite3_vtab_cursor base;
  msg_rows rows;
  bool loaded;
  size_t at;
} snapshot_cursor;

/* What the module carries. */
typedef struct registration {
  msg_connection *c; /* a reference */
  const msg_snapshot_def *def;
} registration;

/* --- rows ---------------------------------------------------------------------------------- */

msg_value *msg_rows_add(msg_rows *rows) {
  size_t columns = (size_t)rows->columns, need = (rows->n + 1) * columns;
  if (rows->nomem || msg_grow(&rows->cells, &rows->cap, need, sizeof *rows->cells) != MSG_OK) {
    rows->nomem = true;
    return NULL;
  }
  msg_value *row = rows->cells + rows->n++ * columns;
  memset(row, 0, columns * sizeof *row);
  return row;
}

void msg_rows_text(msg_rows *rows, msg_value *cell, const char *text) {
  msg_value v = msg_value_text(text);
  if (msg_value_copy(cell, &v) != MSG_OK)
    rows->nomem = true;
}

int msg_rows_status(const msg_rows *rows) {
  return rows->nomem ? MSG_NOMEM : MSG_OK;
}

void msg_rows_clear(msg_rows *rows) {
  for (size_t i = 0; i < rows->n * (size_t)rows->columns; i++)
    msg_value_clear(&rows->cells[i]);
  msg_free(rows->cells);
  *rows = (msg_rows){.columns = rows->columns};
}

/* --- life ---------------------------------------------------------------------------------- */

static int snapshot_connect(sqlite3 *db, void *aux, int argc, const char *const *argv,
                            sqlite3_vtab **out, char **text) {
  const registration *r = aux;
  msg_err err = MSG_ERR_INIT;
  if (msg_table_no_arguments(argc, argv, &err) != MSG_OK)
    return msg_table_refuse(text, &err);
  int rc = msg_table_connect(db, r->c, r->def->sql, sizeof(snapshot_table), 0, out);
  if (rc == SQLITE_OK)
    ((snapshot_table *)*out)->def = r->def;
  return rc;
}

static int snapshot_best_index(sqlite3_vtab *table, sqlite3_index_info *info) {
  (void)table;
  info->estimatedRows = 50;
  info->estimatedCost = 1000;
  return SQLITE_OK;
}

/* --- reading ------------------------------------------------------------------------------- */

static int snapshot_open(sqlite3_vtab *table, sqlite3_vtab_cursor **out) {
  snapshot_cursor *c = msg_zalloc(sizeof *c);
  if (!c)
    return SQLITE_NOMEM;
  c->rows.columns = ((snapshot_table *)table)->def->columns;
  *out = &c->base;
  return SQLITE_OK;
}

static int snapshot_close(sqlite3_vtab_cursor *cursor) {
  msg_rows_clear(&((snapshot_cursor *)cursor)->rows);
  msg_free(cursor);
  return SQLITE_OK;
}

static int load(snapshot_cursor *c, msg_err *err) {
  snapshot_table *t = (snapshot_table *)c->base.pVtab;
  int rc = t->def->load(&t->table, &c->rows, err);
  if (c->rows.nomem)
    rc = msg_err_nomem(err);
  c->loaded = rc == MSG_OK;
  if (rc != MSG_OK)
    msg_rows_clear(&c->rows);
  return rc;
}

static int snapshot_filter(sqlite3_vtab_cursor *cursor, int number, const char *plan, int argc,
                           sqlite3_value **argv) {
  snapshot_cursor *c = (snapshot_cursor *)cursor;
  msg_err err = MSG_ERR_INIT;
  (void)number, (void)plan, (void)argc, (void)argv;
  c->at = 0;
  int rc = c->loaded ? MSG_OK : load(c, &err);
  err.rc = rc;
  return rc == MSG_OK ? SQLITE_OK : msg_vtab_error(cursor->pVtab, &err);
}

static int snapshot_next(sqlite3_vtab_cursor *cursor) {
  ((snapshot_cursor *)cursor)->at++;
  return SQLITE_OK;
}

static int snapshot_eof(sqlite3_vtab_cursor *cursor) {
  const snapshot_cursor *c = (const snapshot_cursor *)cursor;
  return c->at >= c->rows.n;
}

static int snapshot_column(sqlite3_vtab_cursor *cursor, sqlite3_context *ctx, int column) {
  const snapshot_cursor *c = (const snapshot_cursor *)cursor;
  if (!sqlite3_vtab_nochange(ctx))
    msg_result_value(ctx, &c->rows.cells[c->at * (size_t)c->rows.columns + (size_t)column]);
  return SQLITE_OK;
}

static int snapshot_rowid(sqlite3_vtab_cursor *cursor, sqlite3_int64 *out) {
  *out = (sqlite3_int64)((snapshot_cursor *)cursor)->at + 1;
  return SQLITE_OK;
}

/* --- writing ------------------------------------------------------------------------------- */

static const msg_value *find_row(const msg_rows *rows, const char *key) {
  for (size_t i = 0; i < rows->n; i++) {
    const msg_value *row = &rows->cells[i * (size_t)rows->columns];
    if (row->type == MSG_TEXT && strcmp(row->p, key) == 0)
      return row;
  }
  return NULL;
}

/* A column that an UPDATE does not name arrives as "no change"; in an UPDATE ... FROM every column
 * arrives as it is. */
static int check_others(snapshot_table *t, const char *key, sqlite3_value **columns, msg_err *err) {
  msg_rows rows = {.columns = t->def->columns};
  bool is_same = true;
  int rc = MSG_OK;
  for (int i = 0; rc == MSG_OK && is_same && i < t->def->columns; i++) {
    if (i == t->def->changing || sqlite3_value_nochange(columns[i]))
      continue;
    if (!rows.cells)
      rc = t->def->load(&t->table, &rows, err);
    if (rc == MSG_OK && rows.nomem)
      rc = msg_err_nomem(err);
    const msg_value *row = rc == MSG_OK ? find_row(&rows, key) : NULL;
    is_same = row != NULL;
    if (row)
      rc = msg_value_holds(&row[i], columns[i], &is_same, err);
  }
  msg_rows_clear(&rows);
  if (rc != MSG_OK || is_same)
    return rc;
  return msg_err_set(err, MSG_INVALID, "%s: only value can be changed", t->def->name);
}

static int update(snapshot_table *t, const char *key, sqlite3_value **columns, msg_err *err) {
  if (!t->def->update)
    return msg_err_set(err, MSG_INVALID, "%s shows what is there: rows cannot be changed",
                       t->def->name);
  int rc = check_others(t, key, columns, err);
  return rc == MSG_OK ? t->def->update(&t->table, key, columns[t->def->changing], err) : rc;
}

static int write(sqlite3_vtab *table, int argc, sqlite3_value **argv, msg_err *err) {
  snapshot_table *t = (snapshot_table *)table;
  if (sqlite3_value_type(argv[0]) == SQLITE_NULL)
    return msg_err_set(err, MSG_INVALID, "%s shows what is there: rows cannot be inserted",
                       t->def->name);
  const char *key = (const char *)sqlite3_value_text(argv[0]);
  if (!key)
    return msg_err_nomem(err);
  if (argc > 1)
    return update(t, key, argv + 2, err);
  if (t->def->remove)
    return t->def->remove(&t->table, key, err);
  return msg_err_set(err, MSG_INVALID, "rows of %s cannot be deleted", t->def->name);
}

static int snapshot_update(sqlite3_vtab *table, int argc, sqlite3_value **argv,
                           sqlite3_int64 *rowid) {
  return msg_table_update(table, argc, argv, rowid, write);
}

/* Only rows of the store are removed; what is updated is this process's own. */
static int snapshot_begin(sqlite3_vtab *table) {
  return ((snapshot_table *)table)->def->remove ? msg_table_begin(table) : SQLITE_OK;
}

#define MODULE(update, begin)                                                                      \
  {                                                                                                \
    .xCreate = snapshot_connect, .xConnect = snapshot_connect, .xBestIndex = snapshot_best_index,  \
    .xDisconnect = msg_table_disconnect, .xDestroy = msg_table_disconnect, .xOpen = snapshot_open, \
    .xClose = snapshot_close, .xFilter = snapshot_filter, .xNext = snapshot_next,                  \
    .xEof = snapshot_eof, .xColumn = snapshot_column, .xRowid = snapshot_rowid, .xUpdate = update, \
    .xBegin = begin                                                                                \
  }

static const sqlite3_module READ_ONLY = MODULE(NULL, NULL);
static const sqlite3_module WRITABLE = MODULE(snapshot_update, snapshot_begin);

static void registration_free(void *p) {
  registration *r = p;
  msg_connection_unref(r->c);
  msg_free(r);
}

int msg_snapshot_register(msg_connection *c, const msg_snapshot_def *def) {
  registration *r = msg_alloc(sizeof *r);
  if (!r)
    return SQLITE_NOMEM;
  *r = (registration){c, def};
  msg_connection_ref(c);
  const sqlite3_module *module = def->remove || def->update ? &WRITABLE : &READ_ONLY;
  return sqlite3_create_module_v2(msg_connection_db(c), def->name, module, r, registration_free);
}
