#include "ext/browse.h"

#include <string.h>

#include "base/mem.h"
#include "base/str.h"

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

void msg_browse_clear(msg_browse_table *t) {
  msg_free(t->node);
  t->node = NULL;
}

static int remember_node(msg_browse_table *t, const char *id, msg_err *err) {
  bool same = t->node && strcmp(t->node, id) == 0;
  if (same)
    return MSG_OK;
  char *copy = msg_strdup(id);
  if (!copy)
    return msg_err_nomem(err);
  if (t->node && t->cursors > 1)
    t->mixed = true;
  msg_free(t->node);
  t->node = copy;
  return MSG_OK;
}

int msg_browse_start(msg_browse *b, msg_opened *o, msg_call *call, const msg_filter *f,
                     msg_err *err) {
  msg_browse_stop(b);
  int rc = remember_node((msg_browse_table *)b->base.pVtab, msg_node_id(o->node), err);
  if (rc != MSG_OK || f->none)
    return rc;
  rc = call->session->ops->find(call->session, f, &b->find, err);
  if (rc != MSG_OK)
    return rc;
  b->opened = o;
  o->readers++;
  return advance(b, err);
}

int msg_browse_node(const msg_browse_table *t, const char **node, msg_err *err) {
  *node = t->node;
  if (!t->mixed)
    return MSG_OK;
  return msg_err_set(
      err, MSG_MISUSE,
      "rows are being read through two nodes at once, so it is not clear whose row to "
      "change: finish the other statement, or collect the ids first");
}

/* --- writing ------------------------------------------------------------------------------- */

int msg_browse_target(msg_browse_table *t, sqlite3_value *rowid, msg_target *target, msg_err *err) {
  const char *node;
  int rc = msg_browse_node(t, &node, err);
  if (rc == MSG_OK)
    rc = msg_table_call(&t->table, node, MSG_CALL_WRITE, &target->opened, &target->call, err);
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
  rc = msg_connection_actor(target.opened, &settings, &actor, err);
  if (rc == MSG_OK)
    rc = target.call.session->ops->remove(target.call.session, &actor, &target.m.id, err);
  msg_settings_clear(&settings);
  msg_message_clear(&target.m);
  return rc;
}
