/* upcoming.h - what will change in a file without a commit: the store's next deadline, and the
 * processes that own claims. Private to store/local. Everything runs on the cursor thread. */
#ifndef MSG_LOCAL_UPCOMING_H
#define MSG_LOCAL_UPCOMING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "store/local/sqlite.h"

#define MSG_LOCAL_HOLDERS_MAX 256

typedef struct msg_local_holder {
  char *process;
  bool dead; /* reported */
  bool current;
} msg_local_holder;

typedef struct msg_local_upcoming {
  sqlite3_stmt *stmt;
  bool stale;                /* the last read met a lock: what is here is older */
  int64_t due_ms, passed_ms; /* wall: next deadline; the last one reported */
  int64_t liveness_ms;       /* mono: the next look at the processes */
  msg_local_holder holder[MSG_LOCAL_HOLDERS_MAX]; /* of other processes */
  size_t holders;
} msg_local_upcoming;

void msg_local_upcoming_init(msg_local_upcoming *u);
/** Before its connection is closed. */
void msg_local_upcoming_clear(msg_local_upcoming *u);
/** Ask the file, always on the same connection. No store there, or a lock: MSG_OK. `path`: for
 *  texts. */
int msg_local_upcoming_read(msg_local_upcoming *u, sqlite3 *db, const char *path, msg_err *err);
/** Has a deadline passed, or a process that owns claims ended, since the last call? */
bool msg_local_upcoming_came(msg_local_upcoming *u, int64_t now_mono_ms);
/** How long until it is worth asking that; MSG_NEVER. */
int64_t msg_local_upcoming_wait_ms(const msg_local_upcoming *u, int64_t now_mono_ms);

#endif
