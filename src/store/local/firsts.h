/* firsts.h - the first of many messages in delivery order, as they are met in any. Private to
 * store/local. */
#ifndef MSG_LOCAL_FIRSTS_H
#define MSG_LOCAL_FIRSTS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "model/message.h"
#include "store/local/sqlite.h"

/* Zeroed at first, but for max. */
typedef struct msg_local_firsts {
  size_t max;   /* so many are wanted */
  msg_rank *at; /* without ids: a seq is one message's alone */
  size_t n, cap;
  bool full; /* at[0..max) are sorted: what comes after the last of them is not wanted */
} msg_local_firsts;

/** From columns 0 to 2 of a row: priority, deliver_at, seq. */
msg_rank msg_local_first_read(sqlite3_stmt *stmt);
/** *wanted false: there is enough that comes before it. Errors: MSG_NOMEM. */
int msg_local_firsts_add(msg_local_firsts *f, const msg_rank *one, bool *wanted, msg_err *err);
/** Sort, drop doubles and everything past max. */
void msg_local_firsts_trim(msg_local_firsts *f);
/** Begin anew. */
void msg_local_firsts_clear(msg_local_firsts *f);

#endif
