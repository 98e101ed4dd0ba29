/* write.c - reads and writes as the host's transaction allows them, and waiting for locks. */
#include "base/patience.h"
#include "store/local/session.h"

#define UNWIND_MAX 8

static int wait_slice(msg_local_session *s, msg_patience *p, msg_err *err) {
  return msg_patience_wait(p, msg_local_interrupted(s), s->what, err);
}

/* May the same work be tried again? Only while this connection holds nothing of the schema: else
 * the lock it waits for may wait for ours, and a stale snapshot stays stale. */
static bool worth_waiting(const msg_local_session *s, const msg_err *e) {
  return e->rc == MSG_BUSY && sqlite3_txn_state(s->db, s->schema_raw) <= SQLITE_TXN_NONE;
}

/* ---- reading ---- */

int msg_local_readable(msg_local_session *s, bool *exists, msg_err *err) {
  s->what = "read";
  enum msg_schema_state state;
  int rc = msg_local_schema_state(s, &state, err);
  if (rc != MSG_OK)
    return rc;
  if (state == MSG_SCHEMA_OLD) {
    rc = msg_local_write(s, "migrate", true, NULL, NULL, err);
    if (rc != MSG_OK)
      return rc;
  }
  *exists = state != MSG_SCHEMA_NONE;
  return MSG_OK;
}

/* ---- writing ---- */

static int run(msg_local_session *s, const char *sql, msg_err *err) {
  sqlite3_stmt *stmt = NULL;
  int rc = msg_local_stmt(s, sql, &stmt, err);
  return rc == MSG_OK ? msg_local_run(s, stmt, err) : rc;
}

/* Ready before they are needed: undoing must not fail for want of memory, or for an interrupt. */
static const char SQL_ROLLBACK[] = "ROLLBACK", SQL_ROLLBACK_TO[] = "ROLLBACK TO msg_write",
                  SQL_RELEASE[] = "RELEASE msg_write", SQL_BEGIN[] = "BEGIN IMMEDIATE";

static int ready_to_undo(msg_local_session *s, msg_err *err) {
  static const char *const all[] = {SQL_ROLLBACK, SQL_ROLLBACK_TO, SQL_RELEASE, SQL_BEGIN};
  int rc = MSG_OK;
  for (size_t i = 0; rc == MSG_OK && i < sizeof all / sizeof *all; i++)
    rc = msg_local_ready(s, all[i], err);
  return rc;
}

/* Undoes the savepoint, if there is one; where it is the transaction, by ROLLBACK, since its
 * RELEASE could meet the readers again. After some errors SQLite has rolled everything back
 * already. While an interrupt is pending, or after memory ran out inside a statement of the host,
 * no statement runs, these neither; but any such one that would write makes SQLite roll everything
 * back, the host's transaction too, and nothing half done stays open. A progress handler of the
 * host's stops one of them and not the next: then again. */
static void unwind(msg_local_session *s, bool is_transaction) {
  for (int i = 0; i < UNWIND_MAX && !sqlite3_get_autocommit(s->db); i++) {
    msg_err e = MSG_ERR_INIT;
    int rc = run(s, is_transaction ? SQL_ROLLBACK : SQL_ROLLBACK_TO, &e);
    if (rc == MSG_OK && !is_transaction)
      rc = run(s, SQL_RELEASE, &e);
    if (rc != MSG_INTERRUPTED && rc != MSG_NOMEM)
      return;
    if (!sqlite3_get_autocommit(s->db))
      run(s, SQL_BEGIN, &e);
  }
}

/* *open stays false where SQLite refuses: a statement of the host is writing, and is the
 * transaction. SAVEPOINT takes no lock, so BUSY has no other meaning here. One that was interrupted
 * may be open. */
static int savepoint(msg_local_session *s, bool is_transaction, bool *open, msg_err *err) {
  msg_err e;
  int rc = ready_to_undo(s, &e);
  if (rc == MSG_OK) {
    rc = run(s, "SAVEPOINT msg_write", &e);
    if (rc == MSG_INTERRUPTED)
      unwind(s, is_transaction);
  }
  *open = rc == MSG_OK;
  if (rc == MSG_OK || rc == MSG_BUSY)
    return MSG_OK;
  if (err)
    *err = e;
  return rc;
}

/* In autocommit RELEASE commits, and may meet readers (rollback journal): the work stays as it is
 * meanwhile. */
static int release(msg_local_session *s, msg_patience *p, msg_err *err) {
  for (;;) {
    msg_err e;
    int rc = run(s, SQL_RELEASE, &e);
    if (rc == MSG_OK)
      return MSG_OK;
    int waited = rc == MSG_BUSY ? wait_slice(s, p, err) : MSG_BUSY;
    if (waited == MSG_INTERRUPTED)
      return waited;
    if (waited != MSG_OK) {
      if (err)
        *err = e;
      return rc;
    }
  }
}

/* Takes the write lock by a statement that changes nothing. *missing: there is no store to lock. */
static int lock(msg_local_session *s, bool *missing, msg_err *err) {
  int rc = run(s, "UPDATE @.msg_store SET version = version WHERE 0", err);
  if (rc != MSG_OK && s->vanished) {
    s->vanished = false;
    *missing = true;
    return MSG_OK;
  }
  return rc;
}

/* Passes over the statements from `newest` to `oldest`. */
static bool is_writing(sqlite3 *db, const sqlite3_stmt *newest, sqlite3_stmt *oldest) {
  sqlite3_stmt *stmt = sqlite3_next_stmt(db, NULL);
  while (stmt && (stmt == newest || !sqlite3_stmt_busy(stmt) || sqlite3_stmt_readonly(stmt)))
    stmt = sqlite3_next_stmt(db, stmt == newest ? oldest : stmt);
  return stmt != NULL;
}

/* A writing statement begins with the write lock of some schema. */
static bool nobody_writes(sqlite3 *db) {
  return sqlite3_txn_state(db, NULL) < SQLITE_TXN_WRITE;
}

bool msg_local_host_writes(sqlite3 *db) {
  return !nobody_writes(db) && is_writing(db, NULL, NULL);
}

/* The same; the session's own need no look, but one that runs further up the stack. */
static bool host_writes(msg_local_session *s) {
  if (s->slots_busy > 0)
    return msg_local_host_writes(s->db);
  if (!s->newest)
    msg_local_find_kept(s);
  return is_writing(s->db, s->newest, s->oldest);
}

/* Inside BEGIN a failed statement of the host goes back to its own savepoint, which SQLite opens
 * only in the schema it writes itself. An INSERT into a table of ours in temp would leave its first
 * rows here. A nested statement that has a savepoint of its own opens the outer one as well, and
 * only the nested is closed after it. */
static int mark(msg_local_session *s, msg_err *err) {
  if (sqlite3_get_autocommit(s->db) || !host_writes(s))
    return MSG_OK;
  return run(s,
             "INSERT INTO @.msg_store(version, store_id) SELECT version, store_id FROM @.msg_store "
             "WHERE 0",
             err);
}

/* CREATE INDEX expires the statements that undo, and once memory has run out they cannot be made
 * again. A reading statement that SQLite then finds under way makes it roll everything back. */
static int make_schema(msg_local_session *s, msg_err *err) {
  sqlite3_stmt *reading = NULL;
  bool row;
  int rc = msg_local_stmt(s, "SELECT 1 UNION ALL SELECT 1 FROM @.sqlite_schema", &reading, err);
  if (rc == MSG_OK)
    rc = msg_local_step(s, reading, &row, err);
  if (rc == MSG_OK)
    rc = msg_schema_make(s->db, s->schema_raw, err);
  int ready = ready_to_undo(s, rc == MSG_OK ? err : NULL);
  msg_local_done(s, reading);
  return rc == MSG_OK ? ready : rc;
}

/* Under the write lock (or, where nothing is there, about to take it by the first CREATE). */
static int ensure_schema(msg_local_session *s, bool missing, msg_err *err) {
  enum msg_schema_state state = MSG_SCHEMA_NONE;
  int rc = missing ? MSG_OK : msg_local_schema_state(s, &state, err);
  if (rc == MSG_OK && state != MSG_SCHEMA_CURRENT)
    rc = make_schema(s, err);
  if (rc == MSG_OK)
    s->schema_known = true;
  return rc;
}

/* In a savepoint, the write lock taken first. */
static int attempt_many(msg_local_session *s, msg_local_work work, void *arg, msg_patience *p,
                        msg_err *err) {
  bool open = false, missing = false;
  bool is_transaction = sqlite3_get_autocommit(s->db) != 0;
  int rc = savepoint(s, is_transaction, &open, err);
  if (rc != MSG_OK)
    return rc;
  if (!s->schema_known || sqlite3_txn_state(s->db, s->schema_raw) != SQLITE_TXN_WRITE)
    rc = lock(s, &missing, err);
  if (rc == MSG_OK && (missing || !s->schema_known))
    rc = ensure_schema(s, missing, err);
  if (rc == MSG_OK && !open)
    rc = mark(s, err);
  if (rc == MSG_OK && work)
    rc = work(s, arg, err);
  if (rc == MSG_OK && open)
    rc = release(s, p, err);
  if (rc != MSG_OK) {
    s->schema_known = false; /* its creation may be undone with the rest */
    if (open)
      unwind(s, is_transaction);
  }
  return rc;
}

static int attempt(msg_local_session *s, bool many, msg_local_work work, void *arg, msg_patience *p,
                   msg_err *err) {
  int rc = s->own ? msg_local_habits_keep(s, err) : MSG_OK;
  if (rc == MSG_OK && (many || !s->schema_known))
    return attempt_many(s, work, arg, p, err);
  if (rc == MSG_OK)
    rc = mark(s, err);
  return rc == MSG_OK ? work(s, arg, err) : rc;
}

/* Retries until it worked, is hopeless or time is out. Fills *e on failure. */
static int persist(msg_local_session *s, bool many, msg_local_work work, void *arg, msg_patience *p,
                   msg_err *e) {
  bool made_again = false;
  for (;;) {
    int rc = attempt(s, many, work, arg, p, e);
    if (rc == MSG_OK)
      return MSG_OK;
    if (s->vanished && !made_again) {
      s->vanished = false;
      made_again = true;
      continue;
    }
    s->vanished = false;
    int waited = worth_waiting(s, e) ? wait_slice(s, p, e) : MSG_BUSY;
    if (waited != MSG_OK)
      return waited == MSG_INTERRUPTED ? waited : rc;
  }
}

static int write_with(msg_local_session *s, const char *what, bool many, msg_local_work work,
                      void *arg, msg_patience *p, msg_err *err) {
  s->what = what;
  /* An interrupt inside the write would roll the host's whole transaction back. */
  if (msg_local_interrupted(s))
    return msg_err_set(err, MSG_INTERRUPTED, "%s: interrupted before anything was written", what);
  sqlite3_int64 rowid = sqlite3_last_insert_rowid(s->db);
  msg_err e;
  int rc = persist(s, many, work, arg, p, &e);
  sqlite3_set_last_insert_rowid(s->db, rowid);
  if (rc != MSG_OK && err)
    *err = e;
  return rc;
}

int msg_local_write(msg_local_session *s, const char *what, bool many, msg_local_work work,
                    void *arg, msg_err *err) {
  msg_patience p = msg_patience_of(s->busy_timeout_ms);
  return write_with(s, what, many, work, arg, &p, err);
}

int msg_local_try_write(msg_local_session *s, const char *what, bool many, msg_local_work work,
                        void *arg, msg_err *err) {
  return write_with(s, what, many, work, arg, &(msg_patience){0}, err);
}

bool msg_local_pinned(msg_local_session *s) {
  return !sqlite3_get_autocommit(s->db) || (!nobody_writes(s->db) && host_writes(s));
}

int msg_local_lock(msg_local_session *s, const char *what, msg_err *err) {
  if (!msg_local_pinned(s) || sqlite3_txn_state(s->db, s->schema_raw) == SQLITE_TXN_WRITE)
    return MSG_OK;
  return msg_local_write(s, what, true, NULL, NULL, err);
}

int msg_local_lock_now(msg_session *base, msg_err *err) {
  return msg_local_lock((msg_local_session *)base, "write", err);
}
