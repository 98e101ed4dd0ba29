/* session.c - a session's life, and its statements. */
#include "store/local/local.h"

#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "store/local/horizon.h"

/* ---- statements ---- */

/* The slot that holds `sql`, else the free one it would take, else MSG_LOCAL_SLOTS. */
static size_t slot_of(const msg_local_session *s, const char *sql) {
  size_t at = ((uintptr_t)sql >> 3) % MSG_LOCAL_SLOTS;
  for (size_t i = 0; i < MSG_LOCAL_SLOTS; i++) {
    if (s->slot_sql[at] == sql || !s->slot_sql[at])
      return at;
    at = (at + 1) % MSG_LOCAL_SLOTS;
  }
  return MSG_LOCAL_SLOTS;
}

static int prepare(msg_local_session *s, const char *sql, unsigned flags, sqlite3_stmt **out,
                   msg_err *err) {
  char *text = strchr(sql, '@') ? msg_schema_expand(s->schema, sql) : NULL;
  if (!text && strchr(sql, '@'))
    return msg_err_nomem(err);
  sqlite3_stmt *stmt = NULL;
  int rc = sqlite3_prepare_v3(s->db, text ? text : sql, -1, flags, &stmt, NULL);
  msg_free(text);
  if (rc != SQLITE_OK)
    return msg_local_fail(s, rc, s->what, err);
  *out = stmt;
  return MSG_OK;
}

static void check_out(msg_local_session *s, size_t at) {
  s->slot_busy[at] = true;
  s->slots_busy++;
  s->slot_last = at;
}

int msg_local_stmt(msg_local_session *s, const char *sql, sqlite3_stmt **out, msg_err *err) {
  size_t at = slot_of(s, sql);
  bool keep = at < MSG_LOCAL_SLOTS && !s->slot_busy[at];
  if (keep && s->slot[at]) {
    check_out(s, at);
    *out = s->slot[at];
    return MSG_OK;
  }
  int rc = prepare(s, sql, keep ? SQLITE_PREPARE_PERSISTENT : 0, out, err);
  if (rc == MSG_OK && keep) {
    s->slot[at] = *out;
    s->slot_sql[at] = sql;
    s->newest = NULL;
    check_out(s, at);
  }
  return rc;
}

/* A host without the deprecated function shows it by running the statement; one that may not run is
 * taken to be expired. */
static bool is_expired(sqlite3_stmt *stmt, bool may_run) {
  (void)may_run;
#ifndef SQLITE_CORE
  if (!sqlite3_api->expired) {
    if (!may_run)
      return true;
    bool ran = sqlite3_step(stmt) == SQLITE_ROW;
    sqlite3_reset(stmt);
    return !ran || sqlite3_stmt_status(stmt, SQLITE_STMTSTATUS_REPREPARE, 1) > 0;
  }
#endif
  return sqlite3_expired(stmt) != 0;
}

static void drop(msg_local_session *s, size_t at) {
  sqlite3_finalize(s->slot[at]);
  s->slot[at] = NULL;
  s->newest = NULL;
}

static bool is_kept(const msg_local_session *s, const sqlite3_stmt *stmt) {
  size_t i = 0;
  while (i < MSG_LOCAL_SLOTS && s->slot[i] != stmt)
    i++;
  return i < MSG_LOCAL_SLOTS;
}

void msg_local_find_kept(msg_local_session *s) {
  size_t n = 0, most = 0;
  sqlite3_stmt *first = NULL, *at = NULL;
  while ((at = sqlite3_next_stmt(s->db, at)) != NULL) {
    n = is_kept(s, at) ? n + 1 : 0;
    if (n == 1)
      first = at;
    if (n > most) {
      most = n;
      s->newest = first;
      s->oldest = at;
    }
  }
}

int msg_local_ready(msg_local_session *s, const char *sql, msg_err *err) {
  sqlite3_stmt *stmt = NULL;
  size_t at = slot_of(s, sql);
  if (at < MSG_LOCAL_SLOTS && s->slot[at] && !s->slot_busy[at]) {
    if (!is_expired(s->slot[at], false))
      return MSG_OK;
    drop(s, at);
  }
  int rc = msg_local_stmt(s, sql, &stmt, err);
  msg_local_done(s, stmt);
  return rc;
}

bool msg_local_unchanged(msg_session *lent) {
  static const char sql[] = "SELECT 'as it was compiled'";
  msg_local_session *s = (msg_local_session *)lent;
  sqlite3_stmt *stmt = NULL;
  size_t at = slot_of(s, sql);
  if (at == MSG_LOCAL_SLOTS)
    return false;
  if (s->slot[at] && !is_expired(s->slot[at], true))
    return true;
  drop(s, at);
  if (msg_local_stmt(s, sql, &stmt, NULL) == MSG_OK)
    msg_local_done(s, stmt);
  return false;
}

void msg_local_done(msg_local_session *s, sqlite3_stmt *stmt) {
  if (!stmt)
    return;
  size_t i = s->slot_last; /* mostly what was taken last comes back first */
  if (s->slot[i] != stmt)
    for (i = 0; i < MSG_LOCAL_SLOTS && s->slot[i] != stmt;)
      i++;
  if (i == MSG_LOCAL_SLOTS) {
    sqlite3_finalize(stmt);
    return;
  }
  sqlite3_reset(stmt);
  if (sqlite3_bind_parameter_count(stmt) > 0)
    sqlite3_clear_bindings(stmt);
  s->slot_busy[i] = false;
  s->slots_busy--;
}

/* A progress handler of the host's may stop a statement behind its last instruction: SQLite reports
 * an interrupt of what is done, and stays. Any other interrupt of a statement that runs and writes
 * rolls the whole transaction back. */
static bool is_done(sqlite3 *db, sqlite3_stmt *stmt, int runs_before) {
  return !sqlite3_stmt_readonly(stmt) && sqlite3_column_count(stmt) == 0 &&
         !sqlite3_get_autocommit(db) &&
         sqlite3_stmt_status(stmt, SQLITE_STMTSTATUS_RUN, 0) != runs_before;
}

int msg_local_step(msg_local_session *s, sqlite3_stmt *stmt, bool *row, msg_err *err) {
  int runs = sqlite3_stmt_status(stmt, SQLITE_STMTSTATUS_RUN, 0);
  int rc = sqlite3_step(stmt);
  if (rc == SQLITE_INTERRUPT && is_done(s->db, stmt, runs))
    rc = SQLITE_DONE;
  if (rc != SQLITE_ROW && rc != SQLITE_DONE)
    return msg_local_fail(s, rc, s->what, err);
  *row = rc == SQLITE_ROW;
  return MSG_OK;
}

int msg_local_run(msg_local_session *s, sqlite3_stmt *stmt, msg_err *err) {
  bool row = true;
  int rc = MSG_OK;
  while (rc == MSG_OK && row)
    rc = msg_local_step(s, stmt, &row, err);
  msg_local_done(s, stmt);
  return rc;
}

/* ---- binding ---- */

int msg_local_bind_text(sqlite3_stmt *stmt, int i, const char *text) {
  if (!text)
    return sqlite3_bind_null(stmt, i);
  return sqlite3_bind_text64(stmt, i, text, strlen(text), SQLITE_STATIC, SQLITE_UTF8);
}

int msg_local_bind_oid(sqlite3_stmt *stmt, int i, const msg_oid *id, char hex[MSG_OID_HEX + 1]) {
  msg_oid_hex(id, hex);
  return sqlite3_bind_text(stmt, i, hex, MSG_OID_HEX, SQLITE_STATIC);
}

int msg_local_bind_value(sqlite3_stmt *stmt, int i, const msg_value *v) {
  switch (v->type) {
  case MSG_INT: return sqlite3_bind_int64(stmt, i, v->i);
  case MSG_REAL: return sqlite3_bind_double(stmt, i, v->r);
  case MSG_TEXT: return sqlite3_bind_text64(stmt, i, v->p, v->n, SQLITE_STATIC, SQLITE_UTF8);
  case MSG_BLOB:
    if (v->n == 0)
      return sqlite3_bind_zeroblob(stmt, i, 0);
    return sqlite3_bind_blob64(stmt, i, v->p, v->n, SQLITE_STATIC);
  case MSG_NULL: break;
  }
  return sqlite3_bind_null(stmt, i);
}

char *msg_local_column_dup(sqlite3_stmt *stmt, int i, bool *nomem) {
  if (sqlite3_column_type(stmt, i) == SQLITE_NULL)
    return NULL;
  const unsigned char *text = sqlite3_column_text(stmt, i);
  char *copy = text ? msg_strndup((const char *)text, (size_t)sqlite3_column_bytes(stmt, i)) : NULL;
  if (!copy)
    *nomem = true;
  return copy;
}

int msg_local_schema_state(msg_local_session *s, enum msg_schema_state *out, msg_err *err) {
  sqlite3_stmt *stmt = NULL;
  bool row = false;
  int rc = msg_local_stmt(s, "SELECT version FROM @.msg_store", &stmt, err);
  if (rc == MSG_OK)
    rc = msg_local_step(s, stmt, &row, err);
  if (rc == MSG_OK && row)
    rc = msg_schema_judge(sqlite3_column_int64(stmt, 0), out, err);
  else if (rc == MSG_OK)
    rc = msg_err_set(err, MSG_CORRUPT,
                     "table msg_store of schema %s is empty: restore it from a copy",
                     msg_show(s->schema_raw).s);
  msg_local_done(s, stmt);
  if (rc != MSG_OK && s->vanished) {
    s->vanished = false;
    *out = MSG_SCHEMA_NONE;
    return MSG_OK;
  }
  return rc;
}

/* ---- life ---- */

int msg_local_session_open(msg_store *store, msg_host *host, const char *queue,
                           const msg_settings *settings, msg_session **out, msg_err *err) {
  msg_local_session *s = msg_zalloc(sizeof *s);
  if (!s)
    return msg_err_nomem(err);
  s->base.ops = store->ops;
  s->store = (msg_local_store *)store;
  s->host = host;
  s->own = host == NULL;
  s->what = "open";
  s->busy_timeout_ms = settings->busy_timeout_ms;
  s->participant_timeout_ms = settings->participant_timeout_ms;
  s->schema_raw = msg_strdup(host ? host->schema : "main");
  s->schema = s->schema_raw ? msg_schema_quote(s->schema_raw) : NULL;
  s->queue = msg_strdup(queue);
  int rc = MSG_OK;
  if (!s->schema || !s->queue)
    rc = msg_err_nomem(err);
  else if (host)
    s->db = host->db;
  else
    rc = msg_local_connect(s->store, true, &s->db, err);
  if (rc == MSG_OK && s->own)
    rc = msg_local_habits_init(s, err);
  if (rc != MSG_OK) {
    msg_local_session_close(&s->base);
    return rc;
  }
  *out = &s->base;
  return MSG_OK;
}

void msg_local_session_release(msg_session *session) {
  msg_local_session *s = (msg_local_session *)session;
  for (size_t i = 0; i < MSG_LOCAL_SLOTS; i++) {
    if (s->slot_busy[i])
      continue; /* in use further up the stack: finalized by the next release */
    drop(s, i);
    s->slot_sql[i] = NULL;
  }
  s->schema_known = false;
}

void msg_local_session_close(msg_session *session) {
  msg_local_session *s = (msg_local_session *)session;
  if (!s)
    return;
  msg_local_session_release(session);
  msg_local_horizons_free(s);
  if (s->own)
    sqlite3_close_v2(s->db);
  msg_free(s->schema);
  msg_free(s->schema_raw);
  msg_free(s->queue);
  msg_free(s);
}

bool msg_local_interrupted(const msg_local_session *s) {
  return s->host && s->host->interrupted && s->host->interrupted(s->host->arg);
}
