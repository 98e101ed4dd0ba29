/* marks.h - what this process handed out and the server does not know yet: a node's message is in
 * here from the moment one of its threads takes it until the mark is written. */
#ifndef MSG_MONGO_MARKS_H
#define MSG_MONGO_MARKS_H

#include "store/mongo/mongo.h"

/** Take it for the node: false when another thread has it. nomem: *nomem. */
bool msg_mongo_marks_take(msg_mongo_session *s, const char *node, const msg_oid *id, bool *nomem);
void msg_mongo_marks_drop(msg_mongo_session *s, const char *node, const msg_oid *id);
bool msg_mongo_marks_have(msg_mongo_session *s, const char *node, const msg_oid *id);
/** How many of a node. */
size_t msg_mongo_marks_count(msg_mongo_session *s, const char *node);

#endif
