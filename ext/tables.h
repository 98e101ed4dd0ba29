/* tables.h - the virtual tables and table-valued functions, and what they share.
 *
 * Each is eponymous (but for msg_queue and msg_outbox) and also made in temp by the first verb,
 * with the same name and no arguments. A table object belongs to its connection; everything runs on
 * the thread inside that connection. */
#ifndef MSG_EXT_TABLES_H
#define MSG_EXT_TABLES_H

#include "ext/calls.h"

/* ---- registering: one function a file; each returns an SQLite code ---- */
/* messages.c: msg_messages */
int msg_table_messages_register(msg_connection *c);
/* queue.c: CREATE VIRTUAL TABLE ... USING msg_queue(...) */
int msg_table_queue_register(msg_connection *c);
/* receive.c: msg_await, msg_claim, msg_request; DIRECTONLY */
int msg_table_receive_register(msg_connection *c);
/* status.c: msg_queues, msg_topics, msg_locks, msg_participants, msg_lanes, msg_listeners;
 * process.c: msg_cursors, msg_stats, msg_settings, msg_doctor */
int msg_table_status_register(msg_connection *c);
/* outbox_table.c: msg_outbox, msg_owner */
int msg_table_outbox_register(msg_connection *c);
/* functions.c: the scalar functions */
int msg_functions_register(msg_connection *c);

/** Register a module whose xConnect gets c. */
int msg_table_register(msg_connection *c, const char *name, const sqlite3_module *module);

/* ---- for the modules ---- */
/* First member of every table. */
typedef struct msg_table {
  sqlite3_vtab base;
  msg_connection *c; /* outlives the table: the module holds a reference */
} msg_table;

enum {
  MSG_TABLE_DIRECT = 1,    /* may not be used from a schema: views, triggers */
  MSG_TABLE_CONSTRAINT = 2 /* xUpdate refuses before it changes anything: OR IGNORE works */
};

/** xConnect: declare `sql` and make a zeroed object of `size` bytes that begins with a msg_table.
 *  Owns: *out is SQLite's until xDisconnect. Returns an SQLite code. */
int msg_table_connect(sqlite3 *db, msg_connection *c, const char *sql, size_t size, unsigned flags,
                      sqlite3_vtab **out);
/** xDisconnect and xDestroy of a table without anything else to free. */
int msg_table_disconnect(sqlite3_vtab *table);
/** Text for the pzErr of xConnect, and its code. */
int msg_table_refuse(char **text, const msg_err *err);
/** MSG_INVALID if CREATE VIRTUAL TABLE gave arguments. */
int msg_table_no_arguments(int argc, const char *const *argv, msg_err *err);

/** The node to act through (NULL: the current one) and the call for it. */
int msg_table_call(msg_table *t, const char *node, enum msg_call_kind kind, msg_opened **o,
                   msg_call *call, msg_err *err);

/** xBegin of a table that is written to: SQLite calls it before the statement reads its first row.
 *  Takes the store's write lock then, so that what the statement reads cannot grow stale before it
 *  writes. */
int msg_table_begin(sqlite3_vtab *table);
/** The same where the table belongs to a node; NULL: the current one. */
int msg_table_begin_on(msg_table *t, const char *node);
/* What an xUpdate does, without the rules that are the same for all. MSG_NOTFOUND: no such row any
 * more, which is no error. */
typedef int (*msg_table_write)(sqlite3_vtab *table, int argc, sqlite3_value **argv, msg_err *err);
/** xUpdate: run `write`; the host's last_insert_rowid() stays as it was. */
int msg_table_update(sqlite3_vtab *table, int argc, sqlite3_value **argv, sqlite3_int64 *rowid,
                     msg_table_write write);

/** Stable number of a row. It is seq; where the store has none, what the id holds of time, machine
 *  and counter, from which msg_table_find gets the id back. */
sqlite3_int64 msg_table_rowid(const msg_message *m);
/** The message behind a rowid into *m, initialised by this. Errors: MSG_NOTFOUND. */
int msg_table_find(msg_session *session, sqlite3_int64 rowid, msg_message *m, msg_err *err);

#endif
