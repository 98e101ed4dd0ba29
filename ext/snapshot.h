/* snapshot.h - tables whose rows are gathered at once: the inspection tables.
 *
 * A cursor reads when it is first run and shows the same rows from then on, however often it is
 * run. */
#ifndef MSG_EXT_SNAPSHOT_H
#define MSG_EXT_SNAPSHOT_H

#include "ext/tables.h"

/* Rows being gathered; the first failure to allocate sticks. */
typedef struct msg_rows {
  int columns;
  msg_value *cells; /* n * columns */
  size_t n, cap;
  bool nomem;
} msg_rows;

/** A row of NULLs; NULL when memory is, or was, out. */
msg_value *msg_rows_add(msg_rows *rows);
/** Copy a text into a cell; NULL gives NULL. */
void msg_rows_text(msg_rows *rows, msg_value *cell, const char *text);
/** What a listing callback returns after its row: MSG_OK or MSG_NOMEM. */
int msg_rows_status(const msg_rows *rows);

void msg_rows_clear(msg_rows *rows);

/* One table. */
typedef struct msg_snapshot_def {
  const char *name;
  const char *sql; /* CREATE TABLE x(...); with writes: WITHOUT ROWID, the first column the key */
  int columns;
  int (*load)(msg_table *t, msg_rows *rows, msg_err *err);
  /** DELETE by key. NULL with `update`: read only. MSG_NOTFOUND: gone already. */
  int (*remove)(msg_table *t, const char *key, msg_err *err);
  /** UPDATE of `value`, column `changing`, the only one that may be; NULL: none may. */
  int (*update)(msg_table *t, const char *key, sqlite3_value *value, msg_err *err);
  int changing;
} msg_snapshot_def;

/** def is static. Returns an SQLite code. */
int msg_snapshot_register(msg_connection *c, const msg_snapshot_def *def);

/* ---- the tables, for status.c ---- */
extern const msg_snapshot_def msg_process_tables[]; /* process.c: this process' own */
extern const size_t msg_process_table_count;

#endif
