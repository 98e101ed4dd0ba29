/* browse.h - a filter as one statement with bound parameters. Private to store/local. */
#ifndef MSG_LOCAL_BROWSE_H
#define MSG_LOCAL_BROWSE_H

#include "store/local/session.h"

/* Topics or senders bound one by one; where there are more the statement gives those of all. */
#define MSG_LOCAL_NAMES_MAX 100
#define MSG_LOCAL_ANY_STATE ((1u << MSG_STATE_COUNT) - 1)

/** The numbers (column 0) of what the filter means at `now`, in its order. limited: with its limit
 *  and offset. *out is the caller's to finalize.
 *  Errors: MSG_NOMEM; as msg_local_fail. */
int msg_local_browse_open(msg_local_session *s, const msg_filter *filter, int64_t now_ms,
                          bool limited, sqlite3_stmt **out, msg_err *err);

#endif
