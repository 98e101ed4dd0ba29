/* host.h - what a host lends to the local store, and the store's front door. */
#ifndef MSG_LOCAL_HOST_H
#define MSG_LOCAL_HOST_H

#include <stdbool.h>

#include "store/local/sqlite.h"
#include "store/store.h"

/* A connection and the schema of it that holds the messages. Lent by ext/ for the length of each
 * call. */
struct msg_host {
  sqlite3 *db;
  const char *schema;             /* "main" or an attached name */
  bool (*interrupted)(void *arg); /* probe between busy slices; NULL: never */
  void *arg;
};

/** Identity of the file behind host: "local:<device>:<inode>", or "local:memory:<pointer>" for a
 * database without a file (one per connection and schema). out: at least 96 bytes. Errors:
 * MSG_INVALID no such schema, or temp. */
int msg_local_identify(msg_host *host, char *out, msg_err *err);

/** A store on that file (path and VFS are read from the host; the host itself is not kept). Touches
 * nothing. */
int msg_local_open(msg_host *host, msg_store **out, msg_err *err);

/** A session of its own acts for a host from now on: it writes as durably as the host, checkpoints
 *  where the host would, leaves in the file what the host leaves, and is interrupted when the host
 *  is. `host` is borrowed until the session is closed. */
void msg_local_act_for(msg_session *own, msg_host *host);

/* What the host's authorizer says about our tables. */
typedef struct msg_rights {
  bool known; /* the tables are there: it could be asked */
  bool all;   /* it forbids nothing there: no READ, INSERT, UPDATE or DELETE */
} msg_rights;

/** Ask it, by compiling alone. What it forbids is a verb's own to report; what it ignores nobody
 *  would ever hear of. Errors: MSG_AUTH it ignores something; MSG_NOMEM; MSG_INTERRUPTED;
 *  MSG_BUSY the schema cannot be read now. */
int msg_local_rights(sqlite3 *db, const char *schema, msg_rights *out, msg_err *err);

/** Did SQLite keep what a lent session compiled, since the last call? Not after another authorizer
 *  was set, among other things. False at first, and after session_release. */
bool msg_local_unchanged(msg_session *lent);

/** Is a writing statement of the connection active, which our nested writes are part of? */
bool msg_local_host_writes(sqlite3 *db);

/** Is the store's own file still under the lent connection? *gone: it is not where it was, for
 *  nobody. Errors: MSG_UNAVAILABLE the file was replaced or moved, or the schema was detached, or
 *  attached again to another file. */
int msg_local_check(msg_host *host, const msg_store *store, bool *gone, msg_err *err);

#endif
