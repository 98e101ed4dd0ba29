#include "ext/tables.h"

#include "base/mem.h"
#include "ext/aside.h"

int msg_table_register(msg_connection *c, const char *name, const sqlite3_module *module) {
  msg_connection_ref(c); /* given back in any case, now or when the module goes */
  return sqlite3_create_module_v2(msg_connection_db(c), name, module, c, msg_connection_unref);
}

/* --- life ---------------------------------------------------------------------------------- */

static int configure(sqlite3 *db, unsigned flags) {
  int rc = SQLITE_OK;
  if (flags & MSG_TABLE_DIRECT)
    rc = sqlite3_vtab_config(db, SQLITE_VTAB_DIRECTONLY);
  if (rc == SQLITE_OK && (flags & MSG_TABLE_CONSTRAINT))
    rc = sqlite3_vtab_config(db, SQLITE_VTAB_CONSTRAINT_SUPPORT, 1);
  return rc;
}

int msg_table_connect(sqlite3 *db, msg_connection *c, const char *sql, size_t size, unsigned flags,
                      sqlite3_vtab **out) {
  int rc = sqlite3_declare_vtab(db, sql);
  if (rc == SQLITE_OK)
    rc = configure(db, flags);
  if (rc != SQLITE_OK)
    return rc;
  msg_table *t = msg_zalloc(size);
  if (!t)
    return SQLITE_NOMEM;
  t->c = c;
  msg_connection_table_up(c);
  *out = &t->base;
  return SQLITE_OK;
}

int msg_table_disconnect(sqlite3_vtab *table) {
  msg_table *t = (msg_table *)table;
  msg_connection *c = t->c;
  msg_free(t);
  msg_connection_table_down(c);
  return SQLITE_OK;
}

int msg_table_refuse(char **text, const msg_err *err) {
  sqlite3_vtab scratch = {0};
  int code = msg_vtab_error(&scratch, err);
  sqlite3_free(*text);
  *text = scratch.zErrMsg;
  return code;
}

int msg_table_no_arguments(int argc, const char *const *argv, msg_err *err) {
  if (argc <= 3)
    return MSG_OK;
  return msg_err_set(err, MSG_INVALID,
                     "%s takes no arguments: CREATE VIRTUAL TABLE temp.%s USING %s", argv[0],
                     argv[0], argv[0]);
}

/* --- acting -------------------------------------------------------------------------------- */

int msg_table_call(msg_table *t, const char *node, enum msg_call_kind kind, msg_opened **o,
                   msg_call *call, msg_err *err) {
  int rc = msg_connection_node(t->c, node, o, err);
  return rc == MSG_OK ? msg_connection_call(t->c, *o, kind, call, err) : rc;
}

int msg_table_begin(sqlite3_vtab *table) {
  return msg_table_begin_on((msg_table *)table, NULL);
}

int msg_table_begin_on(msg_table *t, const char *node) {
  msg_err err = MSG_ERR_INIT;
  msg_opened *o;
  int rc = msg_connection_node(t->c, node, &o, &err);
  msg_aside_yield(t->c);
  if (rc == MSG_OK)
    rc = msg_connection_rights(t->c, o, &err);
  if (rc == MSG_OK && o->session->ops->lock)
    rc = o->session->ops->lock(o->session, &err);
  if (rc == MSG_OK || rc == MSG_READONLY || rc == MSG_AUTH)
    return SQLITE_OK; /* what cannot be written is the write's own to report */
  err.rc = rc;
  return msg_vtab_error(&t->base, &err);
}

int msg_table_update(sqlite3_vtab *table, int argc, sqlite3_value **argv, sqlite3_int64 *rowid,
                     msg_table_write write) {
  sqlite3 *db = msg_connection_db(((msg_table *)table)->c);
  sqlite3_int64 last = sqlite3_last_insert_rowid(db);
  msg_err err = MSG_ERR_INIT;
  int rc = write(table, argc, argv, &err);
  sqlite3_set_last_insert_rowid(db, last);
  *rowid = last;
  if (rc == MSG_OK || rc == MSG_NOTFOUND)
    return SQLITE_OK;
  err.rc = rc;
  int code = msg_vtab_error(table, &err);
  return rc == MSG_EXISTS ? SQLITE_CONSTRAINT : code;
}

/* --- rowids -------------------------------------------------------------------------------- */

/* Of a 12-byte id: 4 bytes of seconds, the first of 5 random ones, 3 of counter. */
static sqlite3_int64 number_of(const msg_oid *id) {
  static const int BYTES[] = {0, 1, 2, 3, 4, 9, 10, 11};
  uint64_t n = 0;
  for (int i = 0; i < 8; i++)
    n = n << 8 | id->b[BYTES[i]];
  return (sqlite3_int64)n;
}

sqlite3_int64 msg_table_rowid(const msg_message *m) {
  return m->seq ? m->seq : number_of(&m->id);
}

static void filter_for(msg_filter *f, sqlite3_int64 rowid, bool by_seq) {
  if (by_seq) {
    msg_range_cut(&f->seq, rowid, rowid);
    return;
  }
  uint64_t n = (uint64_t)rowid;
  f->has_id_lo = f->has_id_hi = true;
  f->id_lo = (msg_oid){{0}};
  for (int i = 0; i < 5; i++)
    f->id_lo.b[i] = (uint8_t)(n >> (56 - 8 * i));
  f->id_hi = f->id_lo;
  for (int i = 5; i < 12; i++)
    f->id_hi.b[i] = 0xFF;
}

/* Two ids with one number are possible in theory: then nothing is touched. */
static int find_by(msg_session *session, sqlite3_int64 rowid, bool by_seq, msg_message *m,
                   msg_err *err) {
  msg_filter f;
  msg_find *find;
  msg_message next;
  msg_filter_init(&f);
  f.bare = true;
  filter_for(&f, rowid, by_seq);
  int found = 0, rc = session->ops->find(session, &f, &find, err);
  msg_filter_clear(&f);
  if (rc != MSG_OK)
    return rc;
  while ((rc = find->ops->find_next(find, &next, err)) == MSG_OK) {
    if (msg_table_rowid(&next) != rowid || found++ > 0)
      msg_message_clear(&next);
    else
      *m = next;
  }
  find->ops->find_close(find);
  if (rc == MSG_NOTFOUND && found == 1)
    return MSG_OK;
  if (found > 0)
    msg_message_clear(m);
  if (rc == MSG_NOTFOUND && found > 1)
    return msg_err_set(err, MSG_UNSUPPORTED,
                       "two messages share row number %lld: name the one by its id and seq",
                       (long long)rowid);
  return rc;
}

int msg_table_find(msg_session *session, sqlite3_int64 rowid, msg_message *m, msg_err *err) {
  int rc = find_by(session, rowid, true, m, err);
  return rc == MSG_NOTFOUND ? find_by(session, rowid, false, m, err) : rc;
}
