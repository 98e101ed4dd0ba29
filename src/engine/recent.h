/* recent.h - what a node handed out lately: enough of each message to answer it when the store has
 * it no more. Not thread-safe: the node's mutex guards it. Private to engine/. */
#ifndef MSG_ENGINE_RECENT_H
#define MSG_ENGINE_RECENT_H

#include "model/message.h"

#define MSG_RECENT_MAX       1024
#define MSG_RECENT_MAX_BYTES (1024 * 1024) /* of texts: the oldest go earlier when these are long */

typedef struct msg_recent_item msg_recent_item;

typedef struct msg_recent {
  msg_recent_item **at; /* ring of MSG_RECENT_MAX; made at the first use */
  size_t next;          /* where the next one goes */
  size_t n, bytes;
} msg_recent;

/** Remember the last of `list`, from index `from` on. Best effort: without memory nothing is
 *  remembered. */
void msg_recent_add(msg_recent *r, const msg_list *list, size_t from);
/** Is it one of them? */
bool msg_recent_has(const msg_recent *r, const msg_oid *id);
/** Copy id, topic, sender, msg, life and priority of one into *out (initialised; the caller's on
 *  MSG_OK).
 *  Errors: MSG_NOTFOUND, MSG_NOMEM. */
int msg_recent_get(const msg_recent *r, const msg_oid *id, msg_message *out);
void msg_recent_clear(msg_recent *r);

#endif
