/* connection.h - what one host connection has open: its nodes, their sessions, the tables that own
 * what is kept on it.
 *
 * One msg_connection per sqlite3*, shared by every registration of ours there; the last xDestroy,
 * at sqlite3_close, frees it. It is used only by the thread that is inside the connection, which
 * SQLite serialises. */
#ifndef MSG_EXT_CONNECTION_H
#define MSG_EXT_CONNECTION_H

#include "engine/node.h"
#include "ext/errors.h"
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
  bool rights_known;         /* the authorizer could be asked */
  bool all_rights;           /* it forbids us nothing, as far as that could be asked */
  bool query_only;           /* PRAGMA query_only is on */
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
  /** Ask the host's authorizer, if its answers may have changed: set o->rights_known, all_rights,
   *  query_only (SQLite compiles everything anew after each change of either).
   *  Errors: MSG_AUTH what it answers would go unnoticed. Called before every verb. NULL: none. */
  int (*rights)(msg_opened *o, msg_err *err);
  /** Is a writing statement of the host active, which our writes are part of? NULL: never. */
  bool (*host_writes)(msg_connection *c);
  /** May a connection of our own act for the host's? Not where the host's own may not write, or its
   *  authorizer would refuse. NULL: always. */
  bool (*allows_aside)(msg_opened *o);
  /** Make o->aside act for the host. Called once it is open. NULL: nothing to do. */
  void (*bind_aside)(msg_opened *o);
  /** Free host and schema; session and node are gone by then. Accepts half-filled. */
  void (*close)(msg_opened *o);
} msg_adapter;

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
/** The statements alone; they come back one by one. */
void msg_connection_drop_kept(msg_connection *c);
/** At the end of a verb: gives back what no table of ours owns. */
void msg_connection_settle_down(msg_connection *c);

#endif
