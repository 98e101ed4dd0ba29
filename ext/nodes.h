/* nodes.h - the nodes that one host connection has open: opening, finding, closing. */
#ifndef MSG_EXT_NODES_H
#define MSG_EXT_NODES_H

#include "ext/connection.h"

/** The table stays the caller's. Thread: at load, before the first connection. */
void msg_connection_set_adapters(const msg_adapter *adapters, size_t n);

/* A node that was opened: the current one now. */
typedef struct msg_opening {
  msg_opened *o;
  bool is_new;        /* this connection did not have it */
  msg_opened *before; /* the current one before; NULL: none */
} msg_opening;

/** msg_open: open `target` (NULL or "": MSG_TARGET from the environment, else "local") and make it
 *  the current node. A node this connection has open already stays as it is. */
int msg_connection_open(msg_connection *c, const char *target, const msg_settings *settings,
                        msg_opening *out, msg_err *err);
/** What followed the opening has failed: undoes it. Others that share the node keep it. Where no
 *  node was current before, none is, and no verb opens one by default. */
void msg_connection_refuse(msg_connection *c, const msg_opening *opening);
/** The node a verb acts on: `name` of this connection, or (NULL) the current one, opened by default
 *  if there never was one. Checks fork and file replacement, and (re)creates the temp tables where
 *  that is safe. Errors: MSG_INVALID an unknown name, or one that is open on two stores or queues;
 *  MSG_MISUSE a closed node. */
int msg_connection_node(msg_connection *c, const char *name, msg_opened **out, msg_err *err);
/** The same for a node found before, which may be gone. Errors: MSG_MISUSE it was closed. */
int msg_connection_again(msg_connection *c, msg_opened *o, msg_err *err);
/** msg_close: NULL is the current node. *closed false: there was none. */
int msg_connection_close_node(msg_connection *c, const char *name, bool *closed, msg_err *err);
/** Are both on one queue of one store? False when that cannot be told. */
bool msg_opened_same_queue(const msg_opened *a, const msg_opened *b);
/** Who acts, for verbs that go to the session itself. settings: storage, msg_settings_clear it. */
int msg_opened_actor(msg_opened *o, msg_settings *settings, msg_actor *out, msg_err *err);
/** Iterate over the open nodes: NULL starts. */
msg_opened *msg_connection_next(msg_connection *c, msg_opened *after);

#endif
