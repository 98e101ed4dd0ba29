/* calls.h - what a verb does around its call of the engine: which session it goes to, and what the
 * host's open transaction must remember of it. */
#ifndef MSG_EXT_CALLS_H
#define MSG_EXT_CALLS_H

#include "ext/nodes.h"

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
/** Ask the host's authorizer if its answers may have changed; a part of msg_connection_call.
 *  Errors: MSG_AUTH what it answers would go unnoticed. */
int msg_connection_rights(msg_connection *c, msg_opened *o, msg_err *err);
/** After a claim. If it became part of a transaction of the host, nest the marker by which its
 *  ROLLBACK is noticed; nothing to do otherwise. */
int msg_connection_claimed(msg_connection *c, msg_opened *o, const msg_list *list, msg_err *err);
/** msg_node_await; its listening may be part of a transaction of the host, which is noted. */
int msg_connection_await(msg_connection *c, msg_opened *o, msg_call *call, const char *pattern,
                         int64_t timeout_ms, size_t max, msg_list *out, msg_err *err);
/** After a verb that changed what the engine remembers of the node (listen, unlisten). */
int msg_connection_changed(msg_connection *c, msg_opened *o, msg_err *err);

#endif
