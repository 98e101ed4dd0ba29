/* names.h - collections as Morphium names them, and ours beside them. Pure: no I/O.
 *
 * A queue has collections of its own whatever its layout: participants, keys, listeners, leases.
 * Where its messages are is its layout's (layout.h). */
#ifndef MSG_MONGO_NAMES_H
#define MSG_MONGO_NAMES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

/* Longest collection name we make, NUL included: the server's limit of 255 bytes has the database
 * and a dot in it. */
#define MSG_MONGO_NAME_MAX 256

typedef struct msg_mongo_names {
  char messages[MSG_MONGO_NAME_MAX];     /* "msg", else "mmsg_<queue>" */
  char locks[MSG_MONGO_NAME_MAX];        /* <messages>_lck */
  char participants[MSG_MONGO_NAME_MAX]; /* <messages>_participants */
  char keys[MSG_MONGO_NAME_MAX];         /* <messages>_keys: de-duplication, ours */
  char listeners[MSG_MONGO_NAME_MAX];    /* <messages>_listeners: ours */
  char leases[MSG_MONGO_NAME_MAX];       /* <messages>_leases: ours, lease.h */
} msg_mongo_names;

/** Names for a queue.
 *  Errors: MSG_INVALID too long, or it ends like a collection of another queue ("_lck", ...),
 *  or has a lane's "_dm_" in it. */
int msg_mongo_names_of(const char *queue, msg_mongo_names *out, msg_err *err);

/** Is it a collection of messages, of participants or another one of a queue's? Its queue goes to
 *  `queue` (MSG_MONGO_NAME_MAX bytes). False: not one of ours. */
bool msg_mongo_queue_of_collection(const char *collection, char *queue);

/** Fold a sender id as Morphium does for a lane: lower case, "_x" becomes "X". out: as long as id.
 *  Ids that msg_node_name_check admits. ASCII only. */
void msg_mongo_fold(const char *id, char *out);

/** Fold a name as Morphium does for a topic's collection: blanks, '-' and '/' go, '.' becomes '_'.
 *  In place. */
void msg_mongo_fold_topic(char *name);

#endif
