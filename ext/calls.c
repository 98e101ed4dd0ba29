#include <string.h>

#include "base/mem.h"
#include "base/process.h"
#include "base/str.h"
#include "ext/batch.h"
#include "ext/beside.h"
#include "ext/state.h"
#include "ext/tables.h"

/* --- the temp tables ----------------------------------------------------------------------- */

/* What a statement's program holds. */
struct program {
  bool opens; /* it may open a table, which fails once temp DDL has expired it */
  int results;
  uint64_t schemas; /* one bit a schema that it reads, by number */
};

static bool is_opening(const char *opcode) {
  static const char *const OPENING[] = {"OpenRead", "OpenWrite", "ReopenIdx", "Program"};
  for (size_t i = 0; i < sizeof OPENING / sizeof OPENING[0]; i++)
    if (strcmp(opcode, OPENING[i]) == 0)
      return true;
  return false;
}

/* By EXPLAIN, which lists the program without running it. False: could not look. */
static bool look_into(sqlite3 *db, sqlite3_stmt *running, struct program *out) {
  char *sql = sqlite3_mprintf("EXPLAIN %s", sqlite3_sql(running));
  sqlite3_stmt *stmt = NULL;
  bool ok = sql && sqlite3_prepare_v2(db, sql, -1, &stmt, NULL) == SQLITE_OK && stmt;
  int rc = SQLITE_DONE;
  while (ok && (rc = sqlite3_step(stmt)) == SQLITE_ROW) {
    const char *opcode = (const char *)sqlite3_column_text(stmt, 1);
    if (!opcode)
      break;
    out->opens = out->opens || is_opening(opcode);
    out->results += strcmp(opcode, "ResultRow") == 0;
    if (strcmp(opcode, "Transaction") == 0)
      out->schemas |= UINT64_C(1) << (sqlite3_column_int(stmt, 2) & 63);
  }
  sqlite3_finalize(stmt);
  sqlite3_free(sql);
  return ok && rc == SQLITE_DONE;
}

/* FNV-1a: a statement that was looked into is known again by its text. */
static uint64_t hash_of(const char *text) {
  uint64_t h = UINT64_C(14695981039346656037);
  for (; *text; text++)
    h = (h ^ (unsigned char)*text) * UINT64_C(1099511628211);
  return h;
}

/* A running statement that temp DDL may break. `restart`: it is the one to be run anew. */
static bool is_noisy(msg_connection *c, sqlite3_stmt *s, bool restart, bool *opens) {
  struct program program = {0};
  const char *sql = sqlite3_sql(s);
  if (!sql || !sqlite3_stmt_readonly(s) || sqlite3_stmt_isexplain(s))
    return true;
  uint64_t hash = hash_of(sql) + restart;
  if (c->noisy == hash)
    return true;
  if (look_into(c->db, s, &program) && (program.results <= 1 || !restart) &&
      (!program.opens || restart)) {
    *opens = *opens || program.opens;
    return false;
  }
  c->noisy = hash;
  return true;
}

/* Would temp DDL disturb nobody? It expires every statement, and a running one that then opens a
 * table fails. `restart`: the only running one will be run anew, so what it opens does not matter;
 * but it must not have given rows. */
static bool is_quiet(msg_connection *c, bool restart) {
  int busy = 0;
  bool opens = false;
  for (sqlite3_stmt *s = sqlite3_next_stmt(c->db, NULL); s; s = sqlite3_next_stmt(c->db, s)) {
    if (!sqlite3_stmt_busy(s))
      continue;
    if (is_noisy(c, s, restart, &opens))
      return false;
    busy++;
  }
  return !opens || busy == 1;
}

static int create_tables(msg_connection *c, msg_err *err) {
  msg_str sql = MSG_STR_INIT;
  for (const char *const *name = msg_temp_tables; *name; name++)
    msg_str_appendf(&sql, "CREATE VIRTUAL TABLE IF NOT EXISTS temp.%s USING %s;", *name, *name);
  /* Last: that it is connected tells that all are there. */
  msg_str_append(&sql, "CREATE VIRTUAL TABLE IF NOT EXISTS temp.msg_outbox USING msg_outbox;"
                       "SELECT 1 FROM temp.msg_outbox");
  char *text = msg_str_take(&sql);
  if (!text)
    return msg_err_nomem(err);
  int rc = msg_nested_exec(c, text, err);
  msg_free(text);
  return rc;
}

int msg_connection_tables(msg_connection *c, bool *created, msg_err *err) {
  msg_err own = MSG_ERR_INIT;
  if (created)
    *created = false;
  if (c->temp_up || !is_quiet(c, created != NULL))
    return MSG_OK;
  int rc = create_tables(c, &own);
  /* Refused (query_only, an authorizer, a table of that name): the eponymous modules serve. */
  if (rc != MSG_OK && rc != MSG_NOMEM && rc != MSG_INTERRUPTED)
    return MSG_OK;
  if (rc != MSG_OK) {
    if (err)
      *err = own;
    return rc;
  }
  if (created)
    *created = c->temp_up;
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

bool msg_connection_interrupted(void *connection) {
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

/* --- calls --------------------------------------------------------------------------------- */

/* Is what the node's session just did part of a transaction that the host may roll back? */
static bool in_host_transaction(msg_connection *c, const msg_opened *o) {
  if (o->schema)
    return sqlite3_txn_state(c->db, o->schema) == SQLITE_TXN_WRITE;
  return msg_batch_wanted(c, o);
}

/* PRAGMA schema.name as text. */
static int pragma(msg_connection *c, const msg_opened *o, const char *name, char *out, size_t size,
                  msg_err *err) {
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

/* One that could never read the file (encrypted, locked for good by the host itself) is of no use.
 * A busy one is: the wait will say so. */
static int try_aside(msg_opened *o, msg_err *err) {
  int64_t at_ms;
  int rc = o->aside->ops->deadline(o->aside, &at_ms, err);
  return rc == MSG_BUSY ? MSG_OK : rc;
}

bool msg_connection_may_aside(msg_connection *c, msg_opened *o) {
  return !o->adapter->allows_aside || o->adapter->allows_aside(c, o);
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
  return rc == MSG_OK ? try_aside(o, err) : rc;
}

static int tend_aside(msg_connection *c, msg_opened *o, msg_err *err) {
  return o->adapter->tend_aside ? o->adapter->tend_aside(c, o, err) : MSG_OK;
}

int msg_connection_aside(msg_connection *c, msg_opened *o, msg_err *err) {
  char mode[16];
  if (o->aside_refused ||
      !(msg_node_store(o->node)->ops->caps(msg_node_store(o->node)) & MSG_CAP_OWN))
    return MSG_OK;
  if (o->aside)
    return tend_aside(c, o, err);
  int rc = pragma(c, o, "locking_mode", mode, sizeof mode, err);
  if (rc != MSG_OK || strcmp(mode, "normal") != 0)
    return rc;
  rc = open_aside(o, err);
  if (rc == MSG_OK)
    rc = tend_aside(c, o, err);
  if (rc == MSG_OK)
    return MSG_OK;
  close_aside(o);
  if (rc == MSG_NOMEM || rc == MSG_INTERRUPTED)
    return rc;
  /* What it cannot read (encrypted, forbidden) stays so. Anything else may pass, such as the journal of a
   * process that was killed: do without it this time. */
  o->aside_refused = rc == MSG_CORRUPT || rc == MSG_AUTH || rc == MSG_UNSUPPORTED;
  return MSG_OK;
}

/* Is a reading statement of the host active? While one is, SQLite keeps every read transaction open
 * that a nested statement starts, in whatever schema. Asked of temp, where that does no harm. */
static int host_reads(msg_connection *c, bool *out, msg_err *err) {
  sqlite3_stmt *stmt;
  int rc = MSG_OK;
  *out = sqlite3_txn_state(c->db, "temp") > SQLITE_TXN_NONE;
  if (*out)
    return MSG_OK;
  rc = msg_nested_take(c, MSG_NESTED_TEMP, &stmt, err);
  if (rc != MSG_OK)
    return rc;
  int step = sqlite3_step(stmt);
  msg_nested_give(c, stmt);
  if (step != SQLITE_ROW && step != SQLITE_DONE)
    return msg_sqlite_fail(c->db, step, "nested statement", err);
  *out = sqlite3_txn_state(c->db, "temp") > SQLITE_TXN_NONE;
  return MSG_OK;
}

bool msg_connection_host_writes(msg_connection *c) {
  sqlite3_stmt *s = sqlite3_next_stmt(c->db, NULL);
  while (s && (!sqlite3_stmt_busy(s) || sqlite3_stmt_readonly(s)))
    s = sqlite3_next_stmt(c->db, s);
  return s != NULL;
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

bool msg_connection_pinned(msg_connection *c, msg_opened *o) {
  char mode[16];
  int number = schema_number(c, o);
  if (number < 0 || number > 63 ||
      pragma(c, o, "journal_mode", mode, sizeof mode, NULL) != MSG_OK || strcmp(mode, "wal") != 0)
    return false;
  for (sqlite3_stmt *s = sqlite3_next_stmt(c->db, NULL); s; s = sqlite3_next_stmt(c->db, s)) {
    struct program program = {0};
    if (sqlite3_stmt_busy(s) && (!sqlite3_sql(s) || !look_into(c->db, s, &program) ||
                                 (program.schemas & UINT64_C(1) << number)))
      return false;
  }
  return true;
}

static bool waits(enum msg_call_kind kind) {
  return kind == MSG_CALL_WAIT || kind == MSG_CALL_REQUEST;
}

/* Look by a connection of our own, take on the host. Without one: a host that may not write is told so
 * by its own session; in a database without a file, or locked for good, only deadlines change anything,
 * and the session sees those; but a request inside BEGIN needs somebody else's commit. */
static int look_aside(msg_connection *c, msg_opened *o, enum msg_call_kind kind, msg_call *call,
                      msg_err *err) {
  if (!msg_connection_may_aside(c, o))
    return MSG_OK;
  int rc = msg_connection_aside(c, o, err);
  if (rc != MSG_OK)
    return rc;
  call->aside = o->aside;
  bool begun = !sqlite3_get_autocommit(c->db);
  call->blind = !o->aside && (o->aside_refused || (begun && kind == MSG_CALL_REQUEST));
  return MSG_OK;
}

/* A SELECT of the host reads the messages' own schema. With WAL its snapshot grows old, but others
 * commit; with a rollback journal nobody can while it reads. */
static int wait_while_reading(msg_connection *c, msg_opened *o, enum msg_call_kind kind,
                              msg_call *call, msg_err *err) {
  char mode[16];
  int rc = pragma(c, o, "journal_mode", mode, sizeof mode, err);
  if (rc != MSG_OK)
    return rc;
  if (strcmp(mode, "wal") == 0)
    rc = look_aside(c, o, kind, call, err);
  else
    call->blind = strcmp(mode, "memory") != 0;
  return rc;
}

/* Inside BEGIN. One that looks once does so beside it too: a look that finds nothing shall not take
 * the write lock, or fix a snapshot in which the next finds nothing either. */
static int call_begun(msg_connection *c, msg_opened *o, enum msg_call_kind kind, msg_call *call,
                      msg_err *err) {
  if (kind == MSG_CALL_WRITE)
    return MSG_OK;
  if (sqlite3_txn_state(c->db, o->schema) == SQLITE_TXN_NONE)
    return look_aside(c, o, kind, call, err);
  call->blind = true;
  return MSG_OK;
}

/* A statement of the host reads something else meanwhile, so that whatever is read of the messages would
 * stay as it is until that statement ends. All of the verb is done beside it, and commits at once as it
 * would here. Not if the host's statement writes: then the verb is part of it. */
static int call_while_reading_elsewhere(msg_connection *c, msg_opened *o, enum msg_call_kind kind,
                                        msg_call *call, msg_err *err) {
  if (msg_connection_host_writes(c))
    return waits(kind) ? look_aside(c, o, kind, call, err) : MSG_OK;
  int rc = look_aside(c, o, kind, call, err);
  if (rc != MSG_OK || !call->aside)
    return rc;
  call->session = call->aside;
  call->aside = NULL;
  return MSG_OK;
}

/* In autocommit. */
static int call_in_autocommit(msg_connection *c, msg_opened *o, enum msg_call_kind kind,
                              msg_call *call, msg_err *err) {
  bool reads;
  int state = sqlite3_txn_state(c->db, o->schema);
  call->session = msg_beside_session(c, o);
  if (!call->session)
    return msg_err_nomem(err);
  if (kind == MSG_CALL_WRITE)
    return MSG_OK;
  if (state == SQLITE_TXN_WRITE) {
    call->blind = waits(kind);
    return MSG_OK;
  }
  if (state == SQLITE_TXN_READ)
    return waits(kind) ? wait_while_reading(c, o, kind, call, err) : MSG_OK;
  int rc = host_reads(c, &reads, err);
  return rc == MSG_OK && reads ? call_while_reading_elsewhere(c, o, kind, call, err) : rc;
}

/* What the verb will meet too is its own to report; but it shall not wait for a lock twice. */
static int announce(msg_connection *c, msg_opened *o, const msg_call *call, msg_err *err) {
  msg_err own = MSG_ERR_INIT;
  msg_call quiet = *call;
  if (quiet.aside)
    quiet.session = quiet.aside;
  quiet.aside = NULL;
  int rc = msg_node_announce(o->node, &quiet, &own);
  if (rc == MSG_OK) {
    o->announced = true;
    if (o->schema && quiet.session != o->aside && in_host_transaction(c, o))
      rc = msg_outbox_enter(c, o, MSG_BATCH_ANNOUNCED, NULL, 0, &own);
  }
  if (rc != MSG_NOMEM && rc != MSG_INTERRUPTED && rc != MSG_BUSY && o->schema)
    return MSG_OK;
  if (err)
    *err = own;
  return rc;
}

/* Through SQLite's own log: an extension has no terminal. */
static void pass_warnings(msg_opened *o) {
  char text[256];
  while (o->session->ops->warning && o->session->ops->warning(o->session, text, sizeof text))
    sqlite3_log(SQLITE_WARNING, "msg: %s", text);
}

int msg_connection_call(msg_connection *c, msg_opened *o, enum msg_call_kind kind, msg_call *out,
                        msg_err *err) {
  msg_call call = {.session = o->session, .interrupted = msg_connection_interrupted, .arg = c};
  int rc = MSG_OK;
  if ((waits(kind) || (kind != MSG_CALL_READ && !o->schema)) && !o->attached) {
    msg_node_attach(o->node);
    o->attached = true;
  }
  if (o->schema && kind != MSG_CALL_READ)
    rc = sqlite3_get_autocommit(c->db) ? call_in_autocommit(c, o, kind, &call, err)
                                       : call_begun(c, o, kind, &call, err);
  if (rc == MSG_OK && kind != MSG_CALL_READ && !call.blind && !o->announced)
    rc = announce(c, o, &call, err);
  pass_warnings(o);
  if (rc == MSG_OK && kind == MSG_CALL_WRITE && msg_batch_wanted(c, o)) {
    call.writes = msg_batch_session(c, o);
    rc = call.writes ? MSG_OK : msg_err_nomem(err);
  }
  if (rc == MSG_OK)
    *out = call;
  return rc;
}

int msg_connection_claimed(msg_connection *c, msg_opened *o, const msg_list *list, msg_err *err) {
  if (list->n == 0 || !in_host_transaction(c, o))
    return MSG_OK;
  msg_oid *ids = msg_alloc(list->n * sizeof *ids);
  if (!ids)
    return msg_err_nomem(err);
  for (size_t i = 0; i < list->n; i++)
    ids[i] = list->at[i].id;
  int rc = msg_outbox_enter(c, o, MSG_BATCH_CLAIMED, ids, list->n, err);
  msg_free(ids);
  return rc;
}

int msg_connection_changed(msg_connection *c, msg_opened *o, msg_err *err) {
  if (!o->schema || !in_host_transaction(c, o))
    return MSG_OK;
  return msg_outbox_enter(c, o, MSG_BATCH_CHANGED, NULL, 0, err);
}

int msg_connection_await(msg_connection *c, msg_opened *o, msg_call *call, const char *pattern,
                         int64_t timeout_ms, size_t max, msg_list *out, msg_err *err) {
  int rc = msg_node_await(o->node, call, pattern, timeout_ms, max, out, err);
  if (rc != MSG_OK && rc != MSG_TIMEOUT)
    return rc;
  int noted = msg_connection_changed(c, o, err);
  return noted == MSG_OK ? rc : noted;
}

int msg_connection_actor(msg_opened *o, msg_settings *settings, msg_actor *out, msg_err *err) {
  int rc = msg_node_settings(o->node, settings, err);
  if (rc == MSG_OK)
    *out = (msg_actor){msg_node_id(o->node), msg_process_self(), settings};
  return rc;
}
