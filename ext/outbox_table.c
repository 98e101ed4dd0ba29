/* The two virtual tables by which SQLite tells of its transactions and of its end: msg_outbox,
 * which has no rows, and msg_owner, which nobody reads. */
#include "base/mem.h"
#include "ext/state.h"
#include "ext/tables.h"
#include "ext/unit.h"

#define NAME  "msg_outbox"
#define OWNER "msg_owner"

typedef struct outbox_table {
  sqlite3_vtab base;
  msg_connection *c; /* a reference */
  bool temp;
} outbox_table;

static int table_new(sqlite3 *db, msg_connection *c, const char *columns, outbox_table **out) {
  int rc = sqlite3_declare_vtab(db, columns);
  if (rc != SQLITE_OK)
    return rc;
  outbox_table *t = msg_zalloc(sizeof *t);
  if (!t)
    return SQLITE_NOMEM;
  t->c = c;
  msg_connection_ref(c);
  *out = t;
  return SQLITE_OK;
}

/* --- msg_outbox ---------------------------------------------------------------------------- */

static int outbox_connect(sqlite3 *db, void *aux, int argc, const char *const *argv,
                          sqlite3_vtab **out, char **error) {
  msg_connection *c = aux;
  bool temp = sqlite3_stricmp(argv[1], "temp") == 0;
  (void)argc;
  if (sqlite3_stricmp(argv[2], NAME) != 0 || (!temp && sqlite3_stricmp(argv[1], "main") != 0)) {
    *error = sqlite3_mprintf("msg: INVALID: module " NAME " is private: it makes no other table");
    return SQLITE_ERROR;
  }
  outbox_table *t;
  int rc = table_new(db, c, "CREATE TABLE x(marker)", &t);
  if (rc != SQLITE_OK)
    return rc;
  t->temp = temp;
  if (temp)
    c->temp_up = true;
  msg_connection_table_up(c);
  *out = &t->base;
  return SQLITE_OK;
}

static int outbox_disconnect(sqlite3_vtab *vtab) {
  outbox_table *t = (outbox_table *)vtab;
  msg_connection *c = t->c;
  if (t->temp)
    c->temp_up = false;
  msg_free(t);
  msg_connection_table_down(c);
  msg_connection_unref(c);
  return SQLITE_OK;
}

static int outbox_best_index(sqlite3_vtab *vtab, sqlite3_index_info *info) {
  (void)vtab;
  info->estimatedCost = 1;
  info->estimatedRows = 1;
  return SQLITE_OK;
}

static int outbox_open(sqlite3_vtab *vtab, sqlite3_vtab_cursor **out) {
  (void)vtab;
  *out = msg_zalloc(sizeof **out);
  return *out ? SQLITE_OK : SQLITE_NOMEM;
}

static int outbox_close(sqlite3_vtab_cursor *cursor) {
  msg_free(cursor);
  return SQLITE_OK;
}

static int outbox_filter(sqlite3_vtab_cursor *cursor, int num, const char *str, int argc,
                         sqlite3_value **argv) {
  (void)cursor, (void)num, (void)str, (void)argc, (void)argv;
  return SQLITE_OK;
}

static int outbox_next(sqlite3_vtab_cursor *cursor) {
  (void)cursor;
  return SQLITE_OK;
}

static int outbox_eof(sqlite3_vtab_cursor *cursor) {
  (void)cursor;
  return 1;
}

static int outbox_column(sqlite3_vtab_cursor *cursor, sqlite3_context *ctx, int i) {
  (void)cursor, (void)ctx, (void)i;
  return SQLITE_OK;
}

static int outbox_rowid(sqlite3_vtab_cursor *cursor, sqlite3_int64 *out) {
  (void)cursor;
  *out = 0;
  return SQLITE_OK;
}

/* A marker of ours: what stands behind the list's end is in. */
static int outbox_update(sqlite3_vtab *vtab, int argc, sqlite3_value **argv, sqlite3_int64 *rowid) {
  msg_connection *c = ((outbox_table *)vtab)->c;
  (void)argc, (void)argv;
  if (!msg_outbox_let_in(&c->outbox)) {
    msg_err err = MSG_ERR_INIT;
    msg_err_set(&err, MSG_INVALID, "table " NAME " is private: send by msg_send");
    return msg_vtab_error(vtab, &err);
  }
  *rowid = sqlite3_last_insert_rowid(c->db); /* so the host's own stays */
  return SQLITE_OK;
}

static msg_outbox *box_of(sqlite3_vtab *vtab) {
  return &((outbox_table *)vtab)->c->outbox;
}

static int outbox_begin(sqlite3_vtab *vtab) {
  box_of(vtab)->joined = true;
  return SQLITE_OK;
}

/* The last step before SQLite's own commit, which may still fail. */
static int outbox_sync(sqlite3_vtab *vtab) {
  msg_err err = MSG_ERR_INIT;
  if (msg_unit_sync(((outbox_table *)vtab)->c, &err) == MSG_OK)
    return SQLITE_OK;
  return msg_vtab_error(vtab, &err);
}

static int outbox_commit(sqlite3_vtab *vtab) {
  box_of(vtab)->joined = false;
  msg_outbox_finish(box_of(vtab), false);
  return SQLITE_OK;
}

static int outbox_rollback(sqlite3_vtab *vtab) {
  box_of(vtab)->joined = false;
  msg_unit_undo(((outbox_table *)vtab)->c, 0);
  msg_outbox_finish(box_of(vtab), true);
  return SQLITE_OK;
}

static int outbox_savepoint(sqlite3_vtab *vtab, int level) {
  return msg_outbox_savepoint(box_of(vtab), level) == MSG_OK ? SQLITE_OK : SQLITE_NOMEM;
}

static int outbox_release(sqlite3_vtab *vtab, int level) {
  msg_outbox_release(box_of(vtab), level);
  return SQLITE_OK;
}

static int outbox_rollback_to(sqlite3_vtab *vtab, int level) {
  msg_outbox *box = box_of(vtab);
  msg_unit_undo(((outbox_table *)vtab)->c, msg_outbox_left(box, level));
  msg_outbox_rollback_to(box, level);
  return SQLITE_OK;
}

static const sqlite3_module OUTBOX = {
    .iVersion = 2,
    .xCreate = outbox_connect, /* the same: eponymous as well */
    .xConnect = outbox_connect,
    .xBestIndex = outbox_best_index,
    .xDisconnect = outbox_disconnect,
    .xDestroy = outbox_disconnect,
    .xOpen = outbox_open,
    .xClose = outbox_close,
    .xFilter = outbox_filter,
    .xNext = outbox_next,
    .xEof = outbox_eof,
    .xColumn = outbox_column,
    .xRowid = outbox_rowid,
    .xUpdate = outbox_update,
    .xBegin = outbox_begin,
    .xSync = outbox_sync,
    .xCommit = outbox_commit,
    .xRollback = outbox_rollback,
    .xSavepoint = outbox_savepoint,
    .xRelease = outbox_release,
    .xRollbackTo = outbox_rollback_to,
};

/* --- the owner of what is kept ------------------------------------------------------------- */

static int owner_connect(sqlite3 *db, void *aux, int argc, const char *const *argv,
                         sqlite3_vtab **out, char **error) {
  msg_connection *c = aux;
  (void)argc, (void)argv, (void)error;
  outbox_table *t;
  int rc = table_new(db, c, "CREATE TABLE x(unused)", &t);
  if (rc != SQLITE_OK)
    return rc;
  c->owner_up = true;
  *out = &t->base;
  return SQLITE_OK;
}

/* Where sqlite3_close disconnects it, it still asks whether statements are left. */
static int owner_disconnect(sqlite3_vtab *vtab) {
  msg_connection *c = ((outbox_table *)vtab)->c;
  msg_free(vtab);
  c->owner_up = false;
  msg_connection_release(c);
  msg_connection_unref(c);
  return SQLITE_OK;
}

/* Eponymous only, so that no schema reset touches it, and read by nobody. */
static const sqlite3_module OWNER_MODULE = {
    .xConnect = owner_connect,
    .xBestIndex = outbox_best_index,
    .xDisconnect = owner_disconnect,
    .xOpen = outbox_open,
    .xClose = outbox_close,
    .xFilter = outbox_filter,
    .xNext = outbox_next,
    .xEof = outbox_eof,
    .xColumn = outbox_column,
    .xRowid = outbox_rowid,
};

int msg_table_outbox_register(msg_connection *c) {
  int rc = msg_table_register(c, NAME, &OUTBOX);
  return rc == SQLITE_OK ? msg_table_register(c, OWNER, &OWNER_MODULE) : rc;
}
