/* nested.h - SQL that ext/ itself runs inside a function or table of ours.
 *
 * On the host connection: probes, pragmas, DDL, the outbox's marker. What is kept there is
 * finalized by msg_owner's xDisconnect, in time for sqlite3_close.
 * On a scratch connection of ours, in memory: JSON. On the host json_each would take a read
 * transaction on main, ask the authorizer, and meet locks.
 * A kept statement is checked out; a second user of the same text gets one of its own. */
#ifndef MSG_EXT_NESTED_H
#define MSG_EXT_NESTED_H

#include "ext/connection.h"

/* The fixed texts, by slot. */
enum msg_nested_sql {
  /* on the host */
  MSG_NESTED_PROBE, /* SELECT 1 */
  MSG_NESTED_TEMP,  /* reads temp */
  /* on the scratch connection */
  MSG_NESTED_EACH,  /* key, type, value of json_each(?1) */
  MSG_NESTED_NUL,   /* escaped NULs of ?1 itself: in keys and texts, but for a member "value" */
  MSG_NESTED_TYPE,  /* json_type of ?1, NULL if malformed */
  MSG_NESTED_QUOTE, /* json_quote(?1) */
  MSG_NESTED_JSON,  /* json(?1) */
  MSG_NESTED_FACT,  /* a fact of the doctor as an object */
  MSG_NESTED_COUNT
};

/* Kept statements for message objects, one a set of present keys. */
enum { MSG_NESTED_SHAPES = 8 };

typedef struct msg_kept {
  sqlite3_stmt *stmt;
  bool busy;
} msg_kept;

typedef struct msg_nested {
  sqlite3 *scratch; /* NULL until needed */
  msg_kept fixed[MSG_NESTED_COUNT];
  msg_kept shape[MSG_NESTED_SHAPES];
  unsigned shape_mask[MSG_NESTED_SHAPES];
  unsigned shape_next; /* slot to replace next */
} msg_nested;

/** Check a statement out. Errors: as msg_nested_fail. */
int msg_nested_take(msg_connection *c, enum msg_nested_sql which, sqlite3_stmt **out, msg_err *err);
/** Reset, unbind, give back. NULL allowed. */
void msg_nested_give(msg_connection *c, sqlite3_stmt *stmt);
/** The error of stepping or binding `stmt`; `what` begins the text. Returns err->rc. */
int msg_nested_fail(sqlite3_stmt *stmt, int sqlite_rc, const char *what, msg_err *err);

/** The statement kept for a message object's shape, checked out; NULL: none, or in use. */
sqlite3_stmt *msg_nested_shape(msg_connection *c, unsigned mask);
/** Make it of `sql`, and keep it as that shape when given back. */
int msg_nested_new_shape(msg_connection *c, unsigned mask, const char *sql, sqlite3_stmt **out,
                         msg_err *err);

/** A statement on the host for one use. Waits for a locked schema as the node's settings say.
 *  Errors: as msg_sqlite_fail; MSG_INTERRUPTED. */
int msg_nested_prepare(msg_connection *c, const char *sql, sqlite3_stmt **out, msg_err *err);
/** Run a text without rows on the host; does not wait. */
int msg_nested_exec(msg_connection *c, const char *sql, msg_err *err);
/** One text column of the first row into out, "" if NULL or no row. On the host. */
int msg_nested_text(msg_connection *c, const char *sql, char *out, size_t size, msg_err *err);

/** Probe for sqlite3_interrupt; void *, as a callback. */
bool msg_nested_interrupted(void *connection);

/** Finalize what is kept on the host and not in use. */
void msg_nested_release(msg_connection *c);
/** The rest too. */
void msg_nested_close(msg_connection *c);

#endif
