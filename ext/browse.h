/* browse.h - a table that shows messages of the store, row by row: msg_messages and msg_queue.
 *
 * A cursor reads through the node's session, so its node cannot be closed meanwhile. */
#ifndef MSG_EXT_BROWSE_H
#define MSG_EXT_BROWSE_H

#include "ext/tables.h"

/* First member of such a table. A write gets a row number only, which means something in the queue
 * it was read from; so the table remembers through which node its open cursors read. */
typedef struct msg_browse_table {
  msg_table table;
  unsigned cursors;
  msg_opened *through; /* of the latest cursor; NULL before the first. It may have been closed */
  bool mixed;          /* cursors open at the same time read through different nodes */
} msg_browse_table;

/* First member of its cursors. */
typedef struct msg_browse {
  sqlite3_vtab_cursor base;
  msg_opened *opened; /* pinned by its `readers`; NULL: nothing is being read */
  msg_find *find;
  msg_message m; /* the current row, unless eof */
  bool eof;
} msg_browse;

/** xOpen, xClose, xNext, xEof, xRowid. */
int msg_browse_open(sqlite3_vtab *table, size_t size, sqlite3_vtab_cursor **out);
int msg_browse_close(sqlite3_vtab_cursor *cursor);
int msg_browse_next(sqlite3_vtab_cursor *cursor);
int msg_browse_eof(sqlite3_vtab_cursor *cursor);
int msg_browse_rowid(sqlite3_vtab_cursor *cursor, sqlite3_int64 *out);

/** Stop what the cursor was reading and let go of its node. */
void msg_browse_stop(msg_browse *b);
/** Begin to read through `o` and stand on the first row, or at the end. */
int msg_browse_start(msg_browse *b, msg_opened *o, msg_call *call, const msg_filter *f,
                     msg_err *err);

/** What an UPDATE or DELETE acts on: the message of a row, through the node it was read by. */
typedef struct msg_target {
  msg_opened *opened;
  msg_call call;
  msg_message m;
} msg_target;
/** Owns:   target->m is the caller's. Errors: MSG_NOTFOUND the message is gone; MSG_MISUSE it is
 *          not clear which node it was read by, or that was closed. */
int msg_browse_target(msg_browse_table *t, sqlite3_value *rowid, msg_target *target, msg_err *err);
/** DELETE of one row. MSG_NOTFOUND when it is gone already. */
int msg_browse_remove(msg_browse_table *t, sqlite3_value *rowid, msg_err *err);

#endif
