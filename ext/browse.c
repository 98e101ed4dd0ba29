#include "ext/browse.h"

#include "base/mem.h"

/* --- cursors ------------------------------------------------------------------------------- */

int msg_browse_open(sqlite3_vtab *table, size_t size, sqlite3_vtab_cursor **out) {
  msg_browse_table *t = (msg_browse_table *)table;
  msg_browse *b = msg_zalloc(size);
  if (!b)
    return SQLITE_NOMEM;
  b->eof = true;
  if (t->cursors++ == 0)
    t->mixed = false;
  *out = &b->base;
  return SQLITE_OK;
}

static void drop_row(msg_browse *b) {
  if (!b->eof)
    msg_message_clear(&b->m);
  b->eof = true;
}

void msg_browse_stop(msg_browse *b) {
  drop_row(b);
  if (b->find)
    b->find->ops->find_close(b->find);
  b->find = NULL;
  if (b->opened)
    b->opened->readers--;
  b->opened = NULL;
}

int msg_browse_close(sqlite3_vtab_cursor *cursor) {
  msg_browse *b = (msg_browse *)cursor;
  ((msg_browse_table *)cursor->pVtab)->cursors--;
  msg_browse_stop(b);
  msg_free(b);
  return SQLITE_OK;
}

static int advance(msg_browse *b, msg_err *err) {
  drop_row(b);
  int rc = b->find ? b->find->ops->find_next(b->find, &b->m, err) : MSG_NOTFOUND;
  b->eof = rc != MSG_OK;
  return rc == MSG_NOTFOUND ? MSG_OK : rc;
}

int msg_browse_next(sqlite3_vtab_cursor *cursor) {
  msg_err err = MSG_ERR_INIT;
  int rc = advance((msg_browse *)cursor, &err);
  return rc == MSG_OK ? SQLITE_OK : msg_vtab_error(cursor->pVtab, &err);
}

int msg_browse_eof(sqlite3_vtab_cursor *cursor) {
  return ((msg_browse *)cursor)->eof;
}

int msg_browse_rowid(sqlite3_vtab_cursor *cursor, sqlite3_int64 *out) {
  *out = msg_table_rowid(&((msg_browse *)cursor)->m);
  return SQLITE_OK;
}

/* --- which node ---------------------------------------------------------------------------- */

static void remember(msg_browse_table *t, msg_opened *o) {
  if (t->through && t->through != o && t->cursors > 1)
    t->mixed = true;
  t->through = o;
}

int msg_browse_start(msg_browse *b, msg_opened *o, msg_call *call, const msg_filter *f,
                     msg_err *err) {
  msg_browse_stop(b);
  remember((msg_browse_table *)b->base.pVtab, o);
  if (f->none)
    return MSG_OK;
  int rc = call->session->ops->find(call->session, f, &b->find, err);
  if (rc != MSG_OK)
    return rc;
  b->opened = o;
  o->readers++;
  return advance(b, err);
}

/* --- writing ------------------------------------------------------------------------------- */

/* Through the node that the rows being written were read by; the current one where none was. */
static int find_through(msg_browse_table *t, msg_opened **out, msg_err *err) {
  if (t->mixed)
    return msg_err_set(
        err, MSG_MISUSE,
        "rows are being read through two nodes at once, so it is not clear whose row to "
        "change: finish the other statement, or collect the ids first");
  *out = t->through;
  return t->through ? msg_connection_again(t->table.c, t->through, err)
                    : msg_connection_node(t->table.c, NULL, out, err);
}

int msg_browse_target(msg_browse_table *t, sqlite3_value *rowid, msg_target *target, msg_err *err) {
  int rc = find_through(t, &target->opened, err);
  if (rc == MSG_OK)
    rc = msg_connection_call(t->table.c, target->opened, MSG_CALL_WRITE, &target->call, err);
  return rc == MSG_OK
             ? msg_table_find(target->call.session, sqlite3_value_int64(rowid), &target->m, err)
             : rc;
}

int msg_browse_remove(msg_browse_table *t, sqlite3_value *rowid, msg_err *err) {
  msg_target target;
  msg_settings settings;
  msg_actor actor;
  int rc = msg_browse_target(t, rowid, &target, err);
  if (rc != MSG_OK)
    return rc;
  msg_settings_init(&settings);
  rc = msg_opened_actor(target.opened, &settings, &actor, err);
  if (rc == MSG_OK)
    rc = target.call.session->ops->remove(target.call.session, &actor, &target.m.id, err);
  if (rc == MSG_OK)
    msg_node_doubt(target.opened->node);
  msg_settings_clear(&settings);
  msg_message_clear(&target.m);
  return rc;
}
