#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "ext/errors.h"

/* What SQLite is told. A code that SQLite acts on itself, such as SQLITE_SCHEMA, is never passed
 * on. */
static int code_of(const msg_err *err) {
  bool native = err->domain == MSG_DOMAIN_SQLITE && err->native != 0;
  switch (err->rc) {
  case MSG_NOMEM: return SQLITE_NOMEM;
  case MSG_TOOBIG: return SQLITE_TOOBIG;
  case MSG_INTERRUPTED: return SQLITE_INTERRUPT;
  case MSG_BUSY: return native && (err->native & 0xFF) == SQLITE_BUSY ? err->native : SQLITE_BUSY;
  case MSG_CORRUPT: return native ? err->native : SQLITE_CORRUPT_VTAB;
  case MSG_IO: return native ? err->native : SQLITE_IOERR;
  case MSG_AUTH: return SQLITE_AUTH;
  case MSG_READONLY: return native ? err->native : SQLITE_READONLY;
  default: return SQLITE_ERROR;
  }
}

static void text_of(const msg_err *err, char *out, size_t size) {
  snprintf(out, size, "msg: %s: %s", msg_rc_name(err->rc), err->text);
}

void msg_result_error(sqlite3_context *ctx, const msg_err *err) {
  int code = code_of(err);
  char text[sizeof err->text + 32];
  if (code == SQLITE_NOMEM) {
    sqlite3_result_error_nomem(ctx);
  } else if (code == SQLITE_TOOBIG && err->domain == MSG_DOMAIN_SQLITE) {
    sqlite3_result_error_toobig(ctx);
  } else {
    text_of(err, text, sizeof text);
    sqlite3_result_error(ctx, text, -1);
    sqlite3_result_error_code(ctx, code); /* after the text, which resets it */
  }
}

int msg_vtab_error(sqlite3_vtab *vtab, const msg_err *err) {
  char text[sizeof err->text + 32];
  text_of(err, text, sizeof text);
  sqlite3_free(vtab->zErrMsg);
  vtab->zErrMsg = sqlite3_mprintf("%s", text);
  return vtab->zErrMsg ? code_of(err) : SQLITE_NOMEM;
}

static int rc_of(int sqlite_rc) {
  switch (sqlite_rc & 0xFF) {
  case SQLITE_NOMEM: return MSG_NOMEM;
  case SQLITE_TOOBIG: return MSG_TOOBIG;
  case SQLITE_INTERRUPT: return MSG_INTERRUPTED;
  case SQLITE_BUSY:
  case SQLITE_LOCKED: return MSG_BUSY;
  case SQLITE_READONLY: return MSG_READONLY;
  case SQLITE_IOERR:
  case SQLITE_FULL:
  case SQLITE_CANTOPEN: return MSG_IO;
  case SQLITE_CORRUPT:
  case SQLITE_NOTADB: return MSG_CORRUPT;
  case SQLITE_AUTH: return MSG_AUTH;
  default: return MSG_BACKEND;
  }
}

int msg_sqlite_fail(sqlite3 *db, int sqlite_rc, const char *what, msg_err *err) {
  int rc = rc_of(sqlite_rc);
  if (rc == MSG_NOMEM)
    return msg_err_nomem(err);
  int native = sqlite3_extended_errcode(db);
  if ((native & 0xFF) != (sqlite_rc & 0xFF))
    native = sqlite_rc;
  msg_err_native(err, rc, MSG_DOMAIN_SQLITE, native, "%s: %s", what, sqlite3_errmsg(db));
  if (err)
    err->retry = rc == MSG_BUSY;
  return rc;
}
