/* audience.h - whom a send would reach: asked before it is put, where the registry's settings say
 * so. Private to engine/. */
#ifndef MSG_ENGINE_AUDIENCE_H
#define MSG_ENGINE_AUDIENCE_H

#include "base/err.h"
#include "model/message.h"
#include "store/store.h"

#define MSG_REACHED_MAX 64
#define MSG_MISSED_MAX  16

/* A topic or a recipient. */
typedef struct msg_whom {
  char *name; /* NULL: free */
  bool topic;
  int64_t until_ms; /* monotonic: taken for granted until then */
} msg_whom;

/* What a node knows of it. Zeroed at first; guarded by the node's mutex. */
typedef struct msg_audience {
  msg_whom reached[MSG_REACHED_MAX]; /* where asking the store costs more than it is worth */
  msg_whom missed[MSG_MISSED_MAX];   /* that a warning told of */
  size_t reached_next, missed_next;  /* the oldest are overwritten */
} msg_audience;

struct msg_use;
struct msg_call;

/** Before these are put by `session`: does somebody else alive listen to each broadcast's topic,
 *  and is each recipient alive? An exclusive message without recipients waits for whoever claims
 *  it, an answer for who asked: they have no topic to be checked.
 *  Blocks: where the store has to ask, for registry_update_interval_s or write_timeout_ms, the
 *          shorter. Hold none.
 *  Errors: MSG_MISUSE `throw`; MSG_INTERRUPTED, MSG_SHUTDOWN; the store's. */
int msg_audience_check(struct msg_use *u, const struct msg_call *call, msg_session *session,
                       const msg_message *messages, size_t n, msg_err *err);
void msg_audience_clear(msg_audience *a);

#endif
