/* connection.h - what one host connection has open: its nodes, their sessions, the tables that own
 * what is kept on it.
 *
 * One msg_connection per sqlite3*, shared by every registration of ours there; the last xDestroy,
 * at sqlite3_close, frees it. It is used only by the thread that is inside the connection, which
 * SQLite serialises. */
#ifndef MSG_EXT_CONNECTION_H
#define MSG_EXT_CONNECTION_H

#include "engine/node.h"
#include "ext/sqlite.h"
#include "model/options.h"

typedef struct msg_connection msg_connection;

/* One node opened by this connection. */
typedef struct msg_opened {
  struct msg_opened *next;
  const struct msg_adapter *adapter;
  msg_node *node;
  msg_session *session;      /* on the lent host */
  msg_session *aside;        /* a connection of our own, made when first needed; NULL */
  struct msg_beside *beside; /* session with a way to aside; owned, NULL until needed */
  struct msg_writes *writes; /* where a transaction that the store cannot join is kept; owned, NULL
                              * until needed */
  bool aside_refused;        /* it cannot be had (no file, encrypted): not tried again */
  bool attached;             /* msg_node_attach was called */
  bool announced;            /* as participant, as far as this connection knows */
  char *schema;              /* local: schema of the messages; NULL else. Owned */
  struct msg_host *host;     /* the adapter's; NULL where nothing is lent */
  unsigned readers; /* cursors of tables that read through session: until they are closed the
                          * node stays; msg_connection_close_node is MSG_MISUSE */
} msg_opened;

/* How a store is reached from a target text; msg_ext.c has the table. */
typedef struct msg_adapter {
  const char *scheme; /* "local", ...: the target up to its first ':' */
  /** Find or open the store, and fill node, session, schema and host of the zeroed `o`.
   *  On failure msg_adapter.close is called on what was filled. */
  int (*open)(msg_connection *c, const char *target, const msg_settings *settings, msg_opened *o,
              msg_err *err);
  /** Is the store still what was opened? Called before every verb. NULL: nothing to look at. */
  int (*check)(msg_opened *o, msg_err *err);
  /** May a connection of our own act for the host's? Not where the host's own may not write, or its
   *  authorizer would refuse. NULL: always. */
  bool (*allows_aside)(msg_connection *c, msg_opened *o);
  /** Make o->aside act for the host. Called before each use. NULL: nothing to do. */
  int (*tend_aside)(msg_connection *c, msg_opened *o, msg_err *err);
  /** Free host and schema; session and node are gone by then. Accepts half-filled. */
  void (*close)(msg_opened *o);
} msg_adapter;

/** The table stays the caller's. Thread: at load, before the first connection. */
void msg_connection_set_adapters(const msg_adapter *adapters, size_t n);

/* ---- life ---- */
/** Owns: *out has one reference, the caller's. */
int msg_connection_new(sqlite3 *db, msg_connection **out, msg_err *err);
/** The connection made for `db` in this process, without a reference; NULL: none. */
msg_connection *msg_connection_find(sqlite3 *db);
void msg_connection_ref(msg_connection *c);
/** A destructor of SQLite's registrations too, hence void *. NULL allowed. */
void msg_connection_unref(void *connection);
sqlite3 *msg_connection_db(msg_connection *c);

/** A virtual table of ours was connected / disconnected. */
void msg_connection_table_up(msg_connection *c);
void msg_connection_table_down(msg_connection *c);
/** Release everything kept on the host: statements finalized, asides closed, the watch left, the
 *  participant withdrawn. Called where SQLite closes; it all comes back at the next verb. */
void msg_connection_release(msg_connection *c);
/** At the end of a verb: gives back what no table of ours owns. */
void msg_connection_settle_down(msg_connection *c);

/* ---- nodes ---- */
/** msg_open: open `target` (NULL or "": MSG_TARGET from the environment, else "local") and make it
 *  the current node. A node this connection has open already stays as it is. */
int msg_connection_open(msg_connection *c, const char *target, const msg_settings *settings,
                        msg_opened **out, msg_err *err);
/** The node a verb acts on: `name` of this connection, or (NULL) the current one, opened by default
 *  if there never was one. Checks fork and file replacement, and (re)creates the temp tables where
 *  that is safe. Errors: MSG_INVALID an unknown name; MSG_MISUSE a closed node. */
int msg_connection_node(msg_connection *c, const char *name, msg_opened **out, msg_err *err);
/** msg_close: NULL is the current node. *closed false: there was none. */
int msg_connection_close_node(msg_connection *c, const char *name, bool *closed, msg_err *err);
/** Iterate over the open nodes: NULL starts. */
msg_opened *msg_connection_next(msg_connection *c, msg_opened *after);

/* ---- calls ---- */
enum msg_call_kind {
  MSG_CALL_READ,
  MSG_CALL_WRITE,
  MSG_CALL_LOOK,   /* await, claim that look once: time-out 0 */
  MSG_CALL_WAIT,   /* await, claim that may wait */
  MSG_CALL_REQUEST /* sends, and waits for what others commit */
};
/** Make the call for a verb: announces the node before its first write, finds out about BEGIN and
 *  snapshots, opens the aside for waits inside BEGIN. *out is valid until the verb returns. */
int msg_connection_call(msg_connection *c, msg_opened *o, enum msg_call_kind kind, msg_call *out,
                        msg_err *err);
/** After a claim. If it became part of a transaction of the host, nest the marker by which its
 *  ROLLBACK is noticed; nothing to do otherwise. */
int msg_connection_claimed(msg_connection *c, msg_opened *o, const msg_list *list, msg_err *err);
/** msg_node_await; its listening may be part of a transaction of the host, which is noted. */
int msg_connection_await(msg_connection *c, msg_opened *o, msg_call *call, const char *pattern,
                         int64_t timeout_ms, size_t max, msg_list *out, msg_err *err);
/** After a verb that changed what the engine remembers of the node (listen, unlisten). */
int msg_connection_changed(msg_connection *c, msg_opened *o, msg_err *err);
/** Probe for sqlite3_interrupt. */
bool msg_connection_interrupted(void *connection);
/** Who acts, for verbs that go to the session itself. settings: storage, msg_settings_clear it. */
int msg_connection_actor(msg_opened *o, msg_settings *settings, msg_actor *out, msg_err *err);

/** Create the temp tables if they are missing and it is safe: their DDL would abort a running
 *  statement that still has tables to open, so it is left undone then; the eponymous modules serve.
 *  `created` not NULL: the caller is a table's xFilter, and returns SQLITE_SCHEMA when *created, by
 *  which SQLite compiles its statement anew, now on the temp table. */
int msg_connection_tables(msg_connection *c, bool *created, msg_err *err);

/* ---- results ---- */
/** Report err on a function context: "msg: NAME: text", with the SQLite code of style.md 2.4. */
void msg_result_error(sqlite3_context *ctx, const msg_err *err);
/** Same for a virtual table: sets vtab->zErrMsg and returns the code. */
int msg_vtab_error(sqlite3_vtab *vtab, const msg_err *err);
/** The error of a nested statement on the host. `what` begins the text. Returns err->rc. */
int msg_sqlite_fail(sqlite3 *db, int sqlite_rc, const char *what, msg_err *err);

#endif
