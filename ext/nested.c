#include "ext/nested.h"

#include <stdio.h>
#include <string.h>

#include "base/patience.h"
#include "ext/state.h"

#define BUSY_TIMEOUT_DEFAULT_MS 5000 /* while no node is open */

/* Escaped NULs of JSON text as json() spells it, times six: of all, less those that lie deeper. */
#define PLAIN(x) "replace(" x ", '\\\\', '')"
#define NULS(x)  "length(" PLAIN(x) ") - length(replace(" PLAIN(x) ", '\\u0000', ''))"
#define OWN_NULS                                                                                   \
  "SELECT " NULS("j") " - coalesce(sum(CASE WHEN type IN ('object', 'array') THEN " NULS(          \
      "value") " END), 0) FROM (SELECT json(json_remove(?1, '$.value')) AS j), json_each(j)"

static const char *const SQL[MSG_NESTED_COUNT] = {
    [MSG_NESTED_PROBE] = "SELECT 1",
    [MSG_NESTED_TEMP] = "SELECT 1 FROM temp.sqlite_schema LIMIT 1",
    [MSG_NESTED_EACH] = "SELECT key, type, value FROM json_each(?1)",
    [MSG_NESTED_NUL] = OWN_NULS,
    [MSG_NESTED_TYPE] = "SELECT json_type(?1)",
    [MSG_NESTED_QUOTE] = "SELECT json_quote(?1)",
    [MSG_NESTED_JSON] = "SELECT json(?1)",
    [MSG_NESTED_FACT] = "SELECT json_object('item', ?1, 'value', ?2, 'advice', ?3)",
};

static bool is_scratch(enum msg_nested_sql which) {
  return which >= MSG_NESTED_EACH;
}

/* --- preparing ----------------------------------------------------------------------------- */

static int prepare_once(msg_connection *c, const char *sql, sqlite3_stmt **out, msg_err *err) {
  sqlite3_stmt *stmt = NULL;
  int rc =
      sqlite3_prepare_v3(c->db, sql, -1, c->owner_up ? SQLITE_PREPARE_PERSISTENT : 0, &stmt, NULL);
  if (rc != SQLITE_OK)
    return msg_sqlite_fail(c->db, rc, "nested statement", err);
  *out = stmt;
  return MSG_OK;
}

static int64_t busy_timeout_ms(msg_connection *c) {
  msg_settings settings;
  if (!c->current || msg_node_settings(c->current->node, &settings, NULL) != MSG_OK)
    return BUSY_TIMEOUT_DEFAULT_MS;
  int64_t timeout_ms = settings.busy_timeout_ms;
  msg_settings_clear(&settings);
  return timeout_ms;
}

/* The schema must be read first, which a commit of another process forbids for a moment (rollback
 * journal). */
int msg_nested_prepare(msg_connection *c, const char *sql, sqlite3_stmt **out, msg_err *err) {
  msg_patience p = {0};
  for (;;) {
    int rc = prepare_once(c, sql, out, err);
    if (rc != MSG_BUSY)
      return rc;
    if (p.until_ms == 0)
      p = msg_patience_of(busy_timeout_ms(c));
    int waited = msg_patience_wait(&p, msg_nested_interrupted(c), "nested statement", err);
    if (waited != MSG_OK)
      return waited;
  }
}

static int open_scratch(msg_connection *c, msg_err *err) {
  int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_MEMORY |
              SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE;
  sqlite3 *db = NULL;
  int rc = sqlite3_open_v2(":memory:", &db, flags, NULL);
  if (rc == SQLITE_OK) {
    c->nested.scratch = db;
    return MSG_OK;
  }
  rc = db ? msg_sqlite_fail(db, rc, "scratch connection", err) : msg_err_nomem(err);
  sqlite3_close_v2(db);
  return rc;
}

static int prepare_scratch(msg_connection *c, const char *sql, sqlite3_stmt **out, msg_err *err) {
  sqlite3_stmt *stmt = NULL;
  int rc = c->nested.scratch ? MSG_OK : open_scratch(c, err);
  if (rc != MSG_OK)
    return rc;
  rc = sqlite3_prepare_v3(c->nested.scratch, sql, -1, SQLITE_PREPARE_PERSISTENT, &stmt, NULL);
  if (rc != SQLITE_OK)
    return msg_sqlite_fail(c->nested.scratch, rc, "JSON", err);
  *out = stmt;
  return MSG_OK;
}

/* The probe itself does not wait. */
static int prepare_fixed(msg_connection *c, enum msg_nested_sql which, sqlite3_stmt **out,
                         msg_err *err) {
  if (is_scratch(which))
    return prepare_scratch(c, SQL[which], out, err);
  return which == MSG_NESTED_PROBE ? prepare_once(c, SQL[which], out, err)
                                   : msg_nested_prepare(c, SQL[which], out, err);
}

/* --- keeping ------------------------------------------------------------------------------- */

int msg_nested_take(msg_connection *c, enum msg_nested_sql which, sqlite3_stmt **out,
                    msg_err *err) {
  msg_kept *kept = &c->nested.fixed[which];
  if (kept->busy)
    return prepare_fixed(c, which, out, err);
  if (!kept->stmt) {
    int rc = prepare_fixed(c, which, &kept->stmt, err);
    if (rc != MSG_OK)
      return rc;
  }
  kept->busy = true;
  *out = kept->stmt;
  return MSG_OK;
}

/* The slot that holds stmt, NULL if it is for one use. */
static msg_kept *slot_of(msg_nested *n, const sqlite3_stmt *stmt) {
  for (size_t i = 0; i < MSG_NESTED_COUNT; i++)
    if (n->fixed[i].stmt == stmt)
      return &n->fixed[i];
  for (size_t i = 0; i < MSG_NESTED_SHAPES; i++)
    if (n->shape[i].stmt == stmt)
      return &n->shape[i];
  return NULL;
}

static void drop(msg_kept *kept) {
  sqlite3_finalize(kept->stmt);
  *kept = (msg_kept){0};
}

void msg_nested_give(msg_connection *c, sqlite3_stmt *stmt) {
  if (!stmt)
    return;
  msg_kept *kept = slot_of(&c->nested, stmt);
  if (!kept) {
    sqlite3_finalize(stmt);
    return;
  }
  kept->busy = false;
  bool on_host = sqlite3_db_handle(stmt) == c->db;
  if (on_host && !c->owner_up) {
    drop(kept);
    return;
  }
  sqlite3_reset(stmt);
  if (!on_host) /* the others have no parameters */
    sqlite3_clear_bindings(stmt);
}

int msg_nested_fail(sqlite3_stmt *stmt, int sqlite_rc, const char *what, msg_err *err) {
  return msg_sqlite_fail(sqlite3_db_handle(stmt), sqlite_rc, what, err);
}

sqlite3_stmt *msg_nested_shape(msg_connection *c, unsigned mask) {
  msg_nested *n = &c->nested;
  for (size_t i = 0; i < MSG_NESTED_SHAPES; i++) {
    if (!n->shape[i].stmt || n->shape_mask[i] != mask)
      continue;
    if (n->shape[i].busy)
      return NULL;
    n->shape[i].busy = true;
    return n->shape[i].stmt;
  }
  return NULL;
}

/* Makes room for a new shape; NULL when that one is in use. */
static msg_kept *free_shape(msg_nested *n, unsigned mask) {
  for (size_t i = 0; i < MSG_NESTED_SHAPES; i++)
    if (n->shape[i].stmt && n->shape_mask[i] == mask)
      return NULL;
  unsigned i = n->shape_next++ % MSG_NESTED_SHAPES;
  if (n->shape[i].busy)
    return NULL;
  drop(&n->shape[i]);
  n->shape_mask[i] = mask;
  return &n->shape[i];
}

int msg_nested_new_shape(msg_connection *c, unsigned mask, const char *sql, sqlite3_stmt **out,
                         msg_err *err) {
  sqlite3_stmt *stmt = NULL;
  int rc = prepare_scratch(c, sql, &stmt, err);
  if (rc != MSG_OK)
    return rc;
  msg_kept *kept = free_shape(&c->nested, mask);
  if (kept)
    *kept = (msg_kept){stmt, true};
  *out = stmt;
  return MSG_OK;
}

/* --- interrupt ----------------------------------------------------------------------------- */

#if SQLITE_VERSION_NUMBER >= 3041000
static bool has_is_interrupted(void) {
  return sqlite3_libversion_number() >= 3041000;
}
static bool is_interrupted(sqlite3 *db) {
  return sqlite3_is_interrupted(db) != 0;
}
#else
static bool has_is_interrupted(void) {
  return false;
}
static bool is_interrupted(sqlite3 *db) {
  (void)db;
  return false;
}
#endif

bool msg_nested_interrupted(void *connection) {
  msg_connection *c = connection;
  sqlite3_stmt *stmt;
  if (has_is_interrupted())
    return is_interrupted(c->db);
  int rc = msg_nested_take(c, MSG_NESTED_PROBE, &stmt, NULL);
  if (rc != MSG_OK)
    return rc == MSG_INTERRUPTED;
  rc = sqlite3_step(stmt);
  msg_nested_give(c, stmt);
  return rc == SQLITE_INTERRUPT;
}

/* --- on the host --------------------------------------------------------------------------- */

int msg_nested_exec(msg_connection *c, const char *sql, msg_err *err) {
  int rc = sqlite3_exec(c->db, sql, NULL, NULL, NULL);
  return rc == SQLITE_OK ? MSG_OK : msg_sqlite_fail(c->db, rc, "nested statement", err);
}

int msg_nested_text(msg_connection *c, const char *sql, char *out, size_t size, msg_err *err) {
  sqlite3_stmt *stmt = NULL;
  int rc = msg_nested_prepare(c, sql, &stmt, err);
  if (rc != MSG_OK)
    return rc;
  const char *text = NULL;
  int step = sqlite3_step(stmt);
  if (step == SQLITE_ROW)
    text = (const char *)sqlite3_column_text(stmt, 0);
  if (step == SQLITE_ROW && !text && sqlite3_errcode(c->db) == SQLITE_NOMEM)
    step = SQLITE_NOMEM;
  snprintf(out, size, "%s", text ? text : "");
  if (step != SQLITE_ROW && step != SQLITE_DONE)
    rc = msg_sqlite_fail(c->db, step, "nested statement", err);
  sqlite3_finalize(stmt);
  return rc;
}

/* --- releasing ----------------------------------------------------------------------------- */

void msg_nested_release(msg_connection *c) {
  for (int i = 0; i < MSG_NESTED_EACH; i++)
    if (!c->nested.fixed[i].busy)
      drop(&c->nested.fixed[i]);
}

void msg_nested_close(msg_connection *c) {
  for (size_t i = 0; i < MSG_NESTED_COUNT; i++)
    drop(&c->nested.fixed[i]);
  for (size_t i = 0; i < MSG_NESTED_SHAPES; i++)
    drop(&c->nested.shape[i]);
  sqlite3_close_v2(c->nested.scratch);
  c->nested.scratch = NULL;
}
