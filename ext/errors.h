/* errors.h - errors to SQLite and from it. */
#ifndef MSG_EXT_ERRORS_H
#define MSG_EXT_ERRORS_H

#include "base/err.h"
#include "ext/sqlite.h"

/** Report err on a function context: "msg: NAME: text", with SQLite's nearest code. */
void msg_result_error(sqlite3_context *ctx, const msg_err *err);
/** Same for a virtual table: sets vtab->zErrMsg and returns the code. */
int msg_vtab_error(sqlite3_vtab *vtab, const msg_err *err);
/** The error of a nested statement on the host. `what` begins the text. Returns err->rc. */
int msg_sqlite_fail(sqlite3 *db, int sqlite_rc, const char *what, msg_err *err);

#endif
