/* aside.h - a connection of our own to the host's file, for looks that hold nothing of the host's:
 * inside BEGIN, or while a statement of the host reads. */
#ifndef MSG_EXT_ASIDE_H
#define MSG_EXT_ASIDE_H

#include "ext/connection.h"

/** May it act for the host's? Not where that may not write itself. */
bool msg_aside_allowed(msg_opened *o);
/** Give up what every node of `c` has open on a file that the host locks for itself (PRAGMA
 *  locking_mode), for it is in the way: asides and the watch. Before each verb. */
void msg_aside_yield(msg_connection *c);
/** Does the host lock, or mean to lock, the node's file for itself? */
bool msg_aside_exclusive(msg_connection *c, const msg_opened *o);
/** Make o->aside if it can be had; MSG_OK without one otherwise. Errors: MSG_NOMEM,
 *  MSG_INTERRUPTED. */
int msg_aside_open(msg_connection *c, msg_opened *o, msg_err *err);
/** Is a writing statement of the host active, which our writes are part of? */
bool msg_aside_host_writes(msg_connection *c, const msg_opened *o);
/** Would it see more than the host? In WAL mode, where no running statement of the host reads the
 *  schema itself. */
bool msg_aside_would_help(msg_connection *c, msg_opened *o);
/** PRAGMA schema.name as text, of the node's schema. */
int msg_aside_pragma(msg_connection *c, const msg_opened *o, const char *name, char *out,
                     size_t size, msg_err *err);

#endif
