/* habits.h - how an own connection writes for a host. Private to store/local.
 *
 * PRAGMAs of the host say how durable a commit is, who checkpoints and what stays in the file. The
 * host may change them at any time and tells nobody, and each costs a compilation to read: they are
 * read before each write that they matter to, and when a checkpoint is due. */
#ifndef MSG_LOCAL_HABITS_H
#define MSG_LOCAL_HABITS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

typedef struct msg_local_session msg_local_session;

enum msg_local_habit {
  MSG_LOCAL_SYNCHRONOUS,
  MSG_LOCAL_WAL_AUTOCHECKPOINT,
  MSG_LOCAL_JOURNAL_SIZE_LIMIT,
  MSG_LOCAL_FULLFSYNC,
  MSG_LOCAL_CHECKPOINT_FULLFSYNC,
  MSG_LOCAL_HABITS
};

typedef struct msg_local_habits {
  bool wal;                       /* a commit has gone into a WAL */
  int64_t host[MSG_LOCAL_HABITS]; /* as read last */
  int64_t set[MSG_LOCAL_HABITS];  /* of our own connection */
} msg_local_habits;

/** Of a new own connection: it checkpoints for nobody before it acts for a host, and overwrites
 *  what it deletes, for the host may want that. Errors: of the PRAGMA. */
int msg_local_habits_init(msg_local_session *s, msg_err *err);
/** Before each write of an own connection: as durable as the host's own commits. A claim need not
 *  reach the disk: in a power cut its owner is gone as well, and the message is ready again, as if
 *  nobody had claimed it. In WAL mode it is not waited for, and the host is not asked, but
 *  synchronous = NORMAL, so that checkpoints are whole; the next commit that is waited for takes
 *  the claim along. Errors: of reading or setting PRAGMAs. */
int msg_local_habits_keep(msg_local_session *s, msg_err *err);

#endif
