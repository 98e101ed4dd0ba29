#include "ext/aside.h"

#include <string.h>

#include "ext/nested.h"
#include "ext/program.h"
#include "ext/state.h"

int msg_aside_pragma(msg_connection *c, const msg_opened *o, const char *name, char *out,
                     size_t size, msg_err *err) {
  char *sql = sqlite3_mprintf("PRAGMA \"%w\".%s", o->schema, name);
  if (!sql)
    return msg_err_nomem(err);
  int rc = msg_nested_text(c, sql, out, size, err);
  sqlite3_free(sql);
  return rc;
}

static void close_aside(msg_opened *o) {
  if (o->aside)
    o->aside->ops->session_close(o->aside);
  o->aside = NULL;
}

bool msg_aside_exclusive(msg_connection *c, const msg_opened *o) {
  char mode[16];
  return o->schema && msg_aside_pragma(c, o, "locking_mode", mode, sizeof mode, NULL) == MSG_OK &&
         strcmp(mode, "normal") != 0;
}

/* Not inside a write, which a verb may have begun that uses them. */
void msg_aside_yield(msg_connection *c) {
  for (msg_opened *o = c->nodes; o; o = o->next) {
    if ((!o->aside && !o->attached) || sqlite3_txn_state(c->db, NULL) == SQLITE_TXN_WRITE ||
        !msg_aside_exclusive(c, o))
      continue;
    close_aside(o);
    if (o->attached)
      msg_node_detach(o->node);
    o->attached = false;
  }
}

/* One that could never read the file (encrypted, locked for good by the host itself) is of no use.
 * A busy one is: the wait will say so. */
static int try_aside(msg_opened *o, msg_err *err) {
  int64_t at_ms;
  int rc = o->aside->ops->deadline(o->aside, &at_ms, err);
  return rc == MSG_BUSY ? MSG_OK : rc;
}

bool msg_aside_allowed(msg_opened *o) {
  return !o->adapter->allows_aside || o->adapter->allows_aside(o);
}

static int open_aside(msg_opened *o, msg_err *err) {
  msg_store *store = msg_node_store(o->node);
  msg_settings settings;
  int rc = msg_node_settings(o->node, &settings, err);
  if (rc != MSG_OK)
    return rc;
  rc = store->ops->session_open(store, NULL, msg_settings_queue(&settings), &settings, &o->aside,
                                err);
  msg_settings_clear(&settings);
  if (rc == MSG_OK && o->adapter->bind_aside)
    o->adapter->bind_aside(o);
  return rc == MSG_OK ? try_aside(o, err) : rc;
}

int msg_aside_open(msg_connection *c, msg_opened *o, msg_err *err) {
  char mode[16];
  if (o->aside_refused ||
      !(msg_node_store(o->node)->ops->caps(msg_node_store(o->node)) & MSG_CAP_OWN) || o->aside)
    return MSG_OK;
  int rc = msg_aside_pragma(c, o, "locking_mode", mode, sizeof mode, err);
  if (rc != MSG_OK || strcmp(mode, "normal") != 0)
    return rc;
  rc = open_aside(o, err);
  if (rc == MSG_OK)
    return MSG_OK;
  close_aside(o);
  if (rc == MSG_NOMEM || rc == MSG_INTERRUPTED)
    return rc;
  /* What it cannot read (encrypted, forbidden) stays so. Anything else may pass, such as the
   * journal of a process that was killed: do without it this time. */
  o->aside_refused = rc == MSG_CORRUPT || rc == MSG_AUTH || rc == MSG_UNSUPPORTED;
  return MSG_OK;
}

bool msg_aside_host_writes(msg_connection *c, const msg_opened *o) {
  return o->adapter->host_writes && o->adapter->host_writes(c);
}

/* Number of the node's schema, as programs name it; -1 unknown. */
static int schema_number(msg_connection *c, const msg_opened *o) {
  sqlite3_stmt *stmt = NULL;
  int number = -1;
  if (msg_nested_prepare(c, "PRAGMA database_list", &stmt, NULL) != MSG_OK)
    return -1;
  while (number < 0 && sqlite3_step(stmt) == SQLITE_ROW)
    if (sqlite3_stricmp((const char *)sqlite3_column_text(stmt, 1), o->schema) == 0)
      number = sqlite3_column_int(stmt, 0);
  sqlite3_finalize(stmt);
  return number;
}

bool msg_aside_would_help(msg_connection *c, msg_opened *o) {
  char mode[16];
  int number = schema_number(c, o);
  if (number < 0 || number > 63 ||
      msg_aside_pragma(c, o, "journal_mode", mode, sizeof mode, NULL) != MSG_OK ||
      strcmp(mode, "wal") != 0)
    return false;
  for (sqlite3_stmt *s = sqlite3_next_stmt(c->db, NULL); s; s = sqlite3_next_stmt(c->db, s)) {
    msg_program program = {0};
    if (sqlite3_stmt_busy(s) && (!sqlite3_sql(s) || !msg_program_look(c->db, s, &program) ||
                                 (program.schemas & UINT64_C(1) << number)))
      return false;
  }
  return true;
}
