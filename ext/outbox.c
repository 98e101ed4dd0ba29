#include "ext/outbox.h"

#include <string.h>

#include "base/mem.h"
#include "ext/batch.h"
#include "ext/nested.h"
#include "ext/state.h"
#include "ext/tables.h"

#define NAME  "msg_outbox"
#define OWNER "msg_owner"

typedef struct outbox_table {
  sqlite3_vtab base;
  msg_connection *c; /* a reference */
  bool temp;
} outbox_table;

/* --- batches ------------------------------------------------------------------------------- */

static void batch_clear(msg_batch *b) {
  msg_registry_unref(b->store);
  msg_free(b->ids);
  msg_written_free(b->written);
  *b = (msg_batch){0};
}

static void batch_undone(msg_batch *b) {
  msg_opened *o = b->opened;
  switch (b->kind) {
  case MSG_BATCH_CLAIMED:
    if (!(b->store->ops->caps(b->store) & MSG_CAP_HOST_TXN)) {
      if (o)
        msg_batch_give_back(b);
    } else if (o)
      msg_node_undone(o->node, b->ids, b->n);
    else
      b->store->ops->claims_undone(b->store, b->ids, b->n);
    break;
  case MSG_BATCH_ANNOUNCED:
    if (o)
      o->announced = false;
    break;
  case MSG_BATCH_CHANGED:
    if (o)
      msg_node_forget(o->node);
    break;
  case MSG_BATCH_WRITTEN: break; /* all at once, before: msg_batch_undo */
  }
}

/* Newest first: the transaction is walked back. */
static void cut(msg_outbox *box, size_t n, bool undone) {
  while (box->n > n) {
    msg_batch *b = &box->at[--box->n];
    if (undone)
      batch_undone(b);
    batch_clear(b);
  }
}

static void finish(msg_outbox *box, bool undone) {
  cut(box, 0, undone);
  box->failed = false;
  box->mark_count = 0;
}

void msg_outbox_forget(msg_connection *c, const msg_opened *o) {
  for (size_t i = 0; i < c->outbox.n; i++)
    if (c->outbox.at[i].opened == o)
      c->outbox.at[i].opened = NULL;
}

void msg_outbox_clear(msg_connection *c) {
  finish(&c->outbox, false);
  msg_free(c->outbox.at);
  msg_free(c->outbox.marks);
  c->outbox = (msg_outbox){0};
}

/* Nests the marker. The batch stands behind the list's end until xUpdate lets it in. The statement is
 * not kept: it would hold the table, and a temp table that a ROLLBACK removed would not disconnect. */
static int insert_marker(msg_connection *c, msg_err *err) {
  sqlite3_stmt *stmt;
  int rc = msg_nested_prepare(c, "INSERT INTO temp." NAME "(marker) VALUES(1)", &stmt, err);
  if (rc != MSG_OK)
    return rc;
  c->outbox.open = true;
  int step = sqlite3_step(stmt);
  c->outbox.open = false;
  if (step != SQLITE_DONE)
    rc = msg_sqlite_fail(c->db, step, "transaction marker", err);
  msg_nested_give(c, stmt);
  return rc;
}

int msg_outbox_enter(msg_connection *c, msg_opened *o, enum msg_batch_kind kind, const msg_oid *ids,
                     size_t n, msg_err *err) {
  msg_outbox *box = &c->outbox;
  msg_batch b = {.kind = kind, .opened = o, .n = n, .store = msg_node_store(o->node)};
  if (msg_grow(&box->at, &box->cap, box->n + 1, sizeof *box->at) != MSG_OK)
    return msg_err_nomem(err);
  if (n > 0) {
    b.ids = msg_alloc(n * sizeof *b.ids);
    if (!b.ids)
      return msg_err_nomem(err);
    memcpy(b.ids, ids, n * sizeof *b.ids);
  }
  msg_registry_ref(b.store);
  size_t before = box->n;
  box->at[before] = b;
  int rc = insert_marker(c, err);
  if (box->n == before)
    batch_clear(&b);
  return rc;
}

int msg_outbox_keep(msg_connection *c, msg_opened *o, struct msg_written *w, msg_err *err) {
  msg_outbox *box = &c->outbox;
  msg_batch b = {
      .kind = MSG_BATCH_WRITTEN, .opened = o, .written = w, .store = msg_node_store(o->node)};
  if (msg_grow(&box->at, &box->cap, box->n + 1, sizeof *box->at) != MSG_OK) {
    msg_written_free(w);
    return msg_err_nomem(err);
  }
  msg_registry_ref(b.store);
  size_t before = box->n;
  box->at[before] = b;
  if (box->joined) {
    box->n++;
    return MSG_OK;
  }
  int rc = insert_marker(c, err);
  if (box->n == before)
    batch_clear(&b);
  else if (rc != MSG_OK)
    cut(box, before, false); /* the verb fails: it was not sent */
  return rc;
}

/* Compiling connects the table. It is not run: that would read main, which inside a statement of the host
 * stays read until that ends. Where it is refused (a locked file, an authorizer) nothing is kept; the verb
 * itself says why. */
int msg_outbox_own(msg_connection *c, msg_err *err) {
  msg_err own = MSG_ERR_INIT;
  sqlite3_stmt *stmt = NULL;
  if (c->owner_up)
    return MSG_OK;
  int rc = sqlite3_prepare_v2(c->db, "SELECT 1 FROM main." OWNER, -1, &stmt, NULL);
  rc = rc == SQLITE_OK ? MSG_OK : msg_sqlite_fail(c->db, rc, "nested statement", &own);
  sqlite3_finalize(stmt);
  if (rc != MSG_NOMEM && rc != MSG_INTERRUPTED)
    return MSG_OK;
  if (err)
    *err = own;
  return rc;
}

/* --- the table ----------------------------------------------------------------------------- */

static int outbox_connect(sqlite3 *db, void *aux, int argc, const char *const *argv,
                          sqlite3_vtab **out, char **error) {
  msg_connection *c = aux;
  bool temp = sqlite3_stricmp(argv[1], "temp") == 0;
  (void)argc;
  if (sqlite3_stricmp(argv[2], NAME) != 0 || (!temp && sqlite3_stricmp(argv[1], "main") != 0)) {
    *error = sqlite3_mprintf("msg: INVALID: module " NAME " is private: it makes no other table");
    return SQLITE_ERROR;
  }
  int rc = sqlite3_declare_vtab(db, "CREATE TABLE x(marker)");
  if (rc != SQLITE_OK)
    return rc;
  outbox_table *t = msg_zalloc(sizeof *t);
  if (!t)
    return SQLITE_NOMEM;
  t->c = c;
  t->temp = temp;
  if (temp)
    c->temp_up = true;
  msg_connection_ref(c);
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
  if (!c->outbox.open) {
    msg_err err = MSG_ERR_INIT;
    msg_err_set(&err, MSG_INVALID, "table " NAME " is private: send by msg_send");
    return msg_vtab_error(vtab, &err);
  }
  c->outbox.open = false;
  c->outbox.n++;
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
  if (msg_batch_sync(((outbox_table *)vtab)->c, &err) == MSG_OK)
    return SQLITE_OK;
  return msg_vtab_error(vtab, &err);
}

static int outbox_commit(sqlite3_vtab *vtab) {
  box_of(vtab)->joined = false;
  finish(box_of(vtab), false);
  return SQLITE_OK;
}

static int outbox_rollback(sqlite3_vtab *vtab) {
  box_of(vtab)->joined = false;
  msg_batch_undo(((outbox_table *)vtab)->c, 0);
  finish(box_of(vtab), true);
  return SQLITE_OK;
}

/* The temp and the eponymous table may both take part and both report a level. */
static int outbox_savepoint(sqlite3_vtab *vtab, int level) {
  msg_outbox *box = box_of(vtab);
  if (box->mark_count > 0 && box->marks[box->mark_count - 1].level >= level)
    return SQLITE_OK;
  if (msg_grow(&box->marks, &box->mark_cap, box->mark_count + 1, sizeof *box->marks) != MSG_OK)
    return SQLITE_NOMEM;
  box->marks[box->mark_count++] = (msg_outbox_mark){level, box->n};
  return SQLITE_OK;
}

/* Index of the lowest mark at `level` or above. */
static size_t find_mark(const msg_outbox *box, int level) {
  size_t i = 0;
  while (i < box->mark_count && box->marks[i].level < level)
    i++;
  return i;
}

static int outbox_release(sqlite3_vtab *vtab, int level) {
  msg_outbox *box = box_of(vtab);
  box->mark_count = find_mark(box, level);
  return SQLITE_OK;
}

/* A savepoint without a mark was opened before the first batch. It stays open, and so does its mark. */
static int outbox_rollback_to(sqlite3_vtab *vtab, int level) {
  msg_outbox *box = box_of(vtab);
  size_t i = find_mark(box, level);
  bool found = i < box->mark_count && box->marks[i].level == level;
  size_t kept = found ? box->marks[i].batches : 0;
  msg_batch_undo(((outbox_table *)vtab)->c, kept);
  cut(box, kept, true);
  box->mark_count = found ? i + 1 : i;
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
  int rc = sqlite3_declare_vtab(db, "CREATE TABLE x(unused)");
  if (rc != SQLITE_OK)
    return rc;
  outbox_table *t = msg_zalloc(sizeof *t);
  if (!t)
    return SQLITE_NOMEM;
  t->c = c;
  c->owner_up = true;
  msg_connection_ref(c);
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

static int register_module(msg_connection *c, const char *name, const sqlite3_module *module) {
  msg_connection_ref(c);
  return sqlite3_create_module_v2(msg_connection_db(c), name, module, c, msg_connection_unref);
}

int msg_table_outbox_register(msg_connection *c) {
  int rc = register_module(c, NAME, &OUTBOX);
  return rc == SQLITE_OK ? register_module(c, OWNER, &OWNER_MODULE) : rc;
}
