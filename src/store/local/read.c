/* read.c - see reading.h: snapshots and listeners. */
#include "store/local/reading.h"

#include <stdarg.h>
#include <string.h>

#include "base/mem.h"
#include "base/patience.h"

/* One row; while it stays open, every statement of the verb reads the same snapshot. */
static const char sql_pin[] = "SELECT version FROM @.msg_store";

int msg_local_row(msg_local_session *s, sqlite3_stmt *stmt, msg_err *err) {
  bool row = false;
  int rc = msg_local_step(s, stmt, &row, err);
  if (rc == MSG_OK && !row)
    rc = MSG_NOTFOUND;
  return rc;
}

/* ---- parameters ---- */

static int bind_all(msg_local_session *s, sqlite3_stmt *stmt, msg_err *err, const char *types,
                    va_list args) {
  int rc = SQLITE_OK;
  for (int i = 1; rc == SQLITE_OK && types[i - 1]; i++) {
    if (types[i - 1] == 't') {
      rc = msg_local_bind_text(stmt, i, va_arg(args, const char *));
    } else if (types[i - 1] == 'i') {
      rc = sqlite3_bind_int64(stmt, i, va_arg(args, int64_t));
    } else {
      char hex[MSG_OID_HEX + 1];
      msg_oid_hex(va_arg(args, const msg_oid *), hex);
      rc = sqlite3_bind_text(stmt, i, hex, MSG_OID_HEX, SQLITE_TRANSIENT);
    }
  }
  return rc == SQLITE_OK ? MSG_OK : msg_local_fail(s, rc, "bind", err);
}

static int bound(msg_local_session *s, const char *sql, sqlite3_stmt **out, msg_err *err,
                 const char *types, va_list args) {
  sqlite3_stmt *stmt = NULL;
  int rc = msg_local_stmt(s, sql, &stmt, err);
  if (rc == MSG_OK)
    rc = bind_all(s, stmt, err, types, args);
  if (rc == MSG_OK)
    *out = stmt;
  else
    msg_local_done(s, stmt);
  return rc;
}

int msg_local_bound(msg_local_session *s, const char *sql, sqlite3_stmt **out, msg_err *err,
                    const char *types, ...) {
  va_list args;
  *out = NULL;
  va_start(args, types);
  int rc = bound(s, sql, out, err, types, args);
  va_end(args);
  return rc;
}

int msg_local_exec(msg_local_session *s, const char *sql, int64_t *changed, msg_err *err,
                   const char *types, ...) {
  sqlite3_stmt *stmt = NULL;
  va_list args;
  va_start(args, types);
  int rc = bound(s, sql, &stmt, err, types, args);
  va_end(args);
  if (rc == MSG_OK)
    rc = msg_local_run(s, stmt, err);
  if (rc == MSG_OK && changed)
    *changed = sqlite3_changes(s->db);
  return rc;
}

/* ---- one snapshot ---- */

/* Runs `work` in one snapshot of a store of this version. *other: another version, or none; it
 * did not run. */
static int read_pinned(msg_local_session *s, msg_local_work work, void *arg, bool *other,
                       msg_err *err) {
  sqlite3_stmt *pin = NULL;
  bool row = false;
  int rc = msg_local_stmt(s, sql_pin, &pin, err);
  if (rc == MSG_OK)
    rc = msg_local_step(s, pin, &row, err);
  *other = rc == MSG_OK && (!row || sqlite3_column_int64(pin, 0) != MSG_LOCAL_VERSION);
  if (rc == MSG_OK && !*other)
    rc = work(s, arg, err);
  msg_local_done(s, pin);
  return rc;
}

static int read_once(msg_local_session *s, msg_local_work work, void *arg, msg_err *err) {
  bool other = false, exists = false;
  const char *what = s->what;
  int rc = read_pinned(s, work, arg, &other, err);
  bool vanished = rc != MSG_OK && s->vanished;
  if (!other && !vanished)
    return rc;
  /* Judged, and migrated where it is older. No store: nothing to read. One that came meanwhile
   * is read. */
  s->vanished = false;
  rc = msg_local_readable(s, &exists, err);
  if (rc != MSG_OK || !exists)
    return rc;
  s->what = what;
  rc = read_pinned(s, work, arg, &other, err);
  s->vanished = false; /* once more: a table of it is missing, and *err says so */
  return rc;
}

int msg_local_read(msg_local_session *s, const char *what, msg_local_work work, void *arg,
                   msg_err *err) {
  msg_patience p = msg_patience_of(s->busy_timeout_ms);
  for (;;) {
    s->what = what;
    int rc = read_once(s, work, arg, err);
    if (rc != MSG_BUSY || sqlite3_txn_state(s->db, s->schema_raw) > SQLITE_TXN_NONE)
      return rc;
    int waited = msg_patience_wait(&p, msg_local_interrupted(s), what, err);
    if (waited != MSG_OK)
      return waited;
  }
}

static int exists_work(msg_local_session *s, void *arg, msg_err *err) {
  (void)s;
  (void)err;
  *(bool *)arg = true;
  return MSG_OK;
}

int msg_local_exists(msg_local_session *s, const char *what, bool *exists, msg_err *err) {
  *exists = false;
  return msg_local_read(s, what, exists_work, exists, err);
}

/* ---- listeners ---- */

static const char sql_listeners_of[] =
    "SELECT node, json_quote(node), pattern, start FROM @.msg_store_listener"
    " WHERE queue = ?1 AND node = ?2 ORDER BY node, pattern";
static const char sql_listeners[] =
    "SELECT node, json_quote(node), pattern, start FROM @.msg_store_listener"
    " WHERE queue = ?1 ORDER BY node, pattern";

static const char sql_next_marked[] =
    "SELECT node, json_quote(node), '', 0 FROM @.msg_store_seen WHERE queue = ?1 AND node > ?2"
    " ORDER BY node LIMIT 1";

static int listener_read(sqlite3_stmt *stmt, msg_local_listener *l, msg_err *err) {
  bool nomem = false;
  memset(l, 0, sizeof *l);
  l->node = msg_local_column_dup(stmt, 0, &nomem);
  l->quoted = msg_local_column_dup(stmt, 1, &nomem);
  l->pattern = msg_local_column_dup(stmt, 2, &nomem);
  l->start = sqlite3_column_int64(stmt, 3);
  if (nomem)
    return msg_err_nomem(err);
  if (msg_pattern_new(l->pattern, &l->compiled, NULL) == MSG_NOMEM)
    return msg_err_nomem(err);
  return MSG_OK;
}

static void listener_clear(msg_local_listener *l) {
  msg_free(l->node);
  msg_free(l->quoted);
  msg_free(l->pattern);
  msg_pattern_free(l->compiled);
}

static int listeners_read(msg_local_session *s, sqlite3_stmt *stmt, msg_local_audience *out,
                          msg_err *err) {
  int rc = MSG_OK;
  while (rc == MSG_OK && (rc = msg_local_row(s, stmt, err)) == MSG_OK) {
    if (msg_grow(&out->at, &out->cap, out->n + 1, sizeof *out->at) != MSG_OK)
      rc = msg_err_nomem(err);
    else
      rc = listener_read(stmt, &out->at[out->n++], err);
  }
  return rc == MSG_NOTFOUND ? MSG_OK : rc;
}

int msg_local_audience_load(msg_local_session *s, const char *node, msg_local_audience *out,
                            msg_err *err) {
  sqlite3_stmt *stmt = NULL;
  int rc = node ? msg_local_bound(s, sql_listeners_of, &stmt, err, "tt", s->queue, node)
                : msg_local_bound(s, sql_listeners, &stmt, err, "t", s->queue);
  if (rc == MSG_OK)
    rc = listeners_read(s, stmt, out, err);
  msg_local_done(s, stmt);
  return rc;
}

static bool listens(const msg_local_audience *l, size_t n, const char *node) {
  for (size_t i = 0; i < n; i++)
    if (strcmp(l->at[i].node, node) == 0)
      return true;
  return false;
}

/* Of the table's key only the first row of each node is looked at. */
int msg_local_audience_add_strangers(msg_local_session *s, msg_local_audience *out, msg_err *err) {
  const size_t listeners = out->n;
  size_t before;
  int rc = MSG_OK;
  do {
    sqlite3_stmt *stmt = NULL;
    const char *last = out->n > listeners ? out->at[out->n - 1].node : "";
    before = out->n;
    rc = msg_local_bound(s, sql_next_marked, &stmt, err, "tt", s->queue, last);
    if (rc == MSG_OK)
      rc = listeners_read(s, stmt, out, err);
    msg_local_done(s, stmt);
  } while (rc == MSG_OK && out->n > before);
  if (rc != MSG_OK)
    return rc;
  size_t kept = listeners;
  for (size_t i = listeners; i < out->n; i++) {
    if (listens(out, listeners, out->at[i].node))
      listener_clear(&out->at[i]);
    else
      out->at[kept++] = out->at[i];
  }
  out->n = kept;
  return MSG_OK;
}

void msg_local_audience_clear(msg_local_audience *l) {
  for (size_t i = 0; i < l->n; i++)
    listener_clear(&l->at[i]);
  msg_free(l->at);
  memset(l, 0, sizeof *l);
}

bool msg_local_listener_match(const msg_local_listener *l, const char *topic) {
  return l->compiled && msg_pattern_match(l->compiled, topic);
}
