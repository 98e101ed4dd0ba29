/* fail.c - what SQLite's errors mean to the caller, and what to do about them. */
#include <string.h>

#include "base/str.h"
#include "store/local/local.h"

/* Primary SQLite codes that always mean the same. */
static const struct meaning {
  int sqlite_rc;
  int rc;
  const char *cure;
} MEANINGS[] = {
    {SQLITE_FULL, MSG_IO, "free space on the disk, or raise PRAGMA max_page_count"},
    {SQLITE_IOERR, MSG_IO, "check the disk and the permissions of the file and its directory"},
    {SQLITE_CANTOPEN, MSG_IO, "check that the file and its directory exist and may be opened"},
    {SQLITE_NOLFS, MSG_IO, "move the file to a file system with large files"},
    {SQLITE_CORRUPT, MSG_CORRUPT, "run PRAGMA integrity_check and restore from a copy"},
    {SQLITE_NOTADB, MSG_CORRUPT, "it is no SQLite database, or encrypted: check the path"},
    {SQLITE_AUTH, MSG_AUTH, "the host's authorizer forbids it: allow the msg_store tables"},
    {SQLITE_PERM, MSG_AUTH, "check the permissions of the file"},
    {SQLITE_TOOBIG, MSG_TOOBIG, "make the message smaller, or raise SQLITE_LIMIT_LENGTH"},
    {SQLITE_INTERRUPT, MSG_INTERRUPTED, "call again if it is still wanted"},
};

static const struct meaning *meaning_of(int primary) {
  for (size_t i = 0; i < sizeof MEANINGS / sizeof MEANINGS[0]; i++)
    if (MEANINGS[i].sqlite_rc == primary)
      return &MEANINGS[i];
  return NULL;
}

/* Waiting helps only where this connection holds nothing of the schema. */
static int busy(sqlite3 *db, const char *schema, const char *place, int code, const char *what,
                msg_err *err) {
  bool free = sqlite3_txn_state(db, schema) <= SQLITE_TXN_NONE;
  const char *cure;
  if (code == SQLITE_BUSY_SNAPSHOT)
    cure = "a reading statement or transaction of this connection went stale when another "
           "connection wrote: finish the reading statement first, or start with BEGIN IMMEDIATE";
  else if (free)
    cure = "another connection holds it for longer than busy_timeout_ms: commit there sooner, or "
           "raise the setting";
  else
    cure = "another connection writes, and an open reading statement or transaction of this one "
           "forbids to wait: finish it first, or start with BEGIN IMMEDIATE";
  int rc = msg_err_native(err, MSG_BUSY, MSG_DOMAIN_SQLITE, code, "%s: %s is locked: %s", what,
                          place, cure);
  if (err)
    err->retry = free && code != SQLITE_BUSY_SNAPSHOT;
  return rc;
}

static int readonly(sqlite3 *db, const char *schema, const char *place, int code, const char *what,
                    msg_err *err) {
  bool file = sqlite3_db_readonly(db, schema) == 1;
  return msg_err_native(err, MSG_READONLY, MSG_DOMAIN_SQLITE, code, "%s: %s is read-only: %s", what,
                        place,
                        file ? "open it writable"
                             : "set PRAGMA query_only = OFF, and check that the file and its "
                               "directory may be written");
}

int msg_local_error(sqlite3 *db, const char *schema, const char *place, int sqlite_rc,
                    const char *what, msg_err *err) {
  int code = sqlite3_extended_errcode(db);
  if ((code & 0xff) != (sqlite_rc & 0xff)) /* the error is not the connection's latest */
    code = sqlite_rc;
  if ((code & 0xff) == SQLITE_NOMEM || code == SQLITE_IOERR_NOMEM)
    return msg_err_nomem(err);
  switch (code & 0xff) {
  case SQLITE_BUSY:
  case SQLITE_LOCKED:
  case SQLITE_PROTOCOL: return busy(db, schema, place, code, what, err);
  case SQLITE_READONLY: return readonly(db, schema, place, code, what, err);
  default: break;
  }
  if (code == SQLITE_CONSTRAINT_COMMITHOOK)
    return msg_err_native(err, MSG_BACKEND, MSG_DOMAIN_SQLITE, code,
                          "%s: the host's commit hook refuses it (%s)", what, place);
  const struct meaning *m = meaning_of(code & 0xff);
  if (m)
    return msg_err_native(err, m->rc, MSG_DOMAIN_SQLITE, code, "%s: %s (%s): %s", what,
                          sqlite3_errstr(code), place, m->cure);
  /* A verb inside this one, called by a trigger of the schema, has said it all:
   * "msg: NAME: text". */
  const char *text = sqlite3_errmsg(db),
             *inner = strncmp(text, "msg: ", 5) ? NULL : strstr(text + 5, ": ");
  if (inner)
    return msg_err_native(err, MSG_BACKEND, MSG_DOMAIN_SQLITE, code, "%s", inner + 2);
  return msg_err_native(err, MSG_BACKEND, MSG_DOMAIN_SQLITE, code,
                        "%s: SQLite refused it in %s: %s", what, place, text);
}

/* Ours: "no such table: main.msg_store...". */
static bool no_table(sqlite3 *db) {
  const char *text = sqlite3_errmsg(db);
  return strncmp(text, "no such table: ", 15) == 0 && strstr(text, "msg_store");
}

int msg_local_fail(msg_local_session *s, int sqlite_rc, const char *what, msg_err *err) {
  if (sqlite_rc == SQLITE_ERROR && no_table(s->db)) {
    s->vanished = true;
    s->schema_known = false;
  }
  char place[160];
  sqlite3_snprintf((int)sizeof place, place, "schema %s of %s", msg_show(s->schema_raw).s,
                   s->store->path[0] ? msg_show(s->store->path).s : "a database in memory");
  return msg_local_error(s->db, s->schema_raw, place, sqlite_rc, what, err);
}

bool msg_local_passes(int sqlite_rc) {
  switch (sqlite_rc & 0xff) {
  case SQLITE_BUSY:
  case SQLITE_LOCKED:
  case SQLITE_PROTOCOL:
  case SQLITE_READONLY:
  case SQLITE_CANTOPEN:
  case SQLITE_SCHEMA: return true;
  default: return false;
  }
}
