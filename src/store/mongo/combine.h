/* combine.h - single sends of a process's threads go out together: who comes while a batch is under
 * way goes with the next one. Who sends alone waits for nobody. */
#ifndef MSG_MONGO_COMBINE_H
#define MSG_MONGO_COMBINE_H

#include "store/mongo/mongo.h"

/** Insert one message's document. Blocks until it is there, or was refused.
 *  Errors: MSG_EXISTS its id is taken; as msg_mongo_fail. */
int msg_mongo_combine(msg_mongo_session *s, const msg_message *m, const bson_t *doc, msg_err *err);
/** "a message with id ... exists already". */
int msg_mongo_taken(const msg_oid *id, msg_err *err);

#endif
