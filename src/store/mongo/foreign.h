/* foreign.h - nodes that lay the queue out otherwise: messages get lost between layouts. Private to
 * store/mongo. */
#ifndef MSG_MONGO_FOREIGN_H
#define MSG_MONGO_FOREIGN_H

#include "store/mongo/mongo.h"

/** The implementation check, as the session's setting says. `node`: who joins; NULL: a heartbeat,
 *  which only warns. Errors: MSG_MISUSE `throw`, and there is one. */
int msg_mongo_foreign_check(msg_mongo_session *s, msg_mongo_use *u, const char *node, msg_err *err);

#endif
