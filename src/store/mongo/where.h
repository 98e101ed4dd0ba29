/* where.h - at which of a queue's places messages are, by their ids. In a queue of one place
 * nothing is asked. Private to store/mongo. */
#ifndef MSG_MONGO_WHERE_H
#define MSG_MONGO_WHERE_H

#include "store/mongo/catalog.h"
#include "store/mongo/place.h"

/* Which of the ids are at a place; by their numbers. */
typedef struct msg_mongo_spot {
  msg_mongo_place *place;
  msg_mongo_ids ids;
} msg_mongo_spot;

typedef struct msg_mongo_spots {
  msg_mongo_spot *at;
  size_t n, cap;
} msg_mongo_spots;

/** Find all of them, and each in every lane that has it. What is nowhere is left out, but in a
 *  queue of one place. Who was met lately is not looked for, unless there are copies in several
 *  lanes, or one in a lane that is not `node`'s (NULL: any is right). u NULL: without I/O;
 *  MSG_UNSUPPORTED: some were not. *out is the caller's (msg_mongo_spots_clear), also after a
 *  failure. */
int msg_mongo_recall(const msg_mongo_session *s, msg_mongo_use *u, const char *node,
                     const msg_oid *ids, size_t n, msg_mongo_spots *out, msg_err *err);
void msg_mongo_spots_clear(msg_mongo_spots *l);
/** Run `fn` on one message wherever it is; MSG_NOTFOUND: nowhere, or that is what `fn` says
 *  everywhere. */
int msg_mongo_where_each(msg_mongo_session *s, const char *what, const msg_oid *id,
                         msg_mongo_at_fn fn, void *arg, msg_err *err);
/** Where this process has met it lately; NULL: it does not know, or in several lanes. */
msg_mongo_place *msg_mongo_last_met(const msg_mongo_session *s, const msg_oid *id);
/** This process has met it there. */
void msg_mongo_met(const msg_mongo_session *at, const msg_oid *id);

#endif
