/* status.h - answers to morphium.status_info, by which Java registries know who lives. Private to
 * store/mongo. */
#ifndef MSG_MONGO_STATUS_H
#define MSG_MONGO_STATUS_H

#include "store/mongo/mongo.h"

#define MSG_MONGO_STATUS_TOPIC MSG_TOPIC_STATUS
#define MSG_MONGO_STATUS_CLASS "sqlite-msg" /* where Java nodes name the class of a listener */

/** The message `id` asks for the status: every node of this process on the queue answers and marks
 *  it, but for its sender. `settings` as the watch has them. */
int msg_mongo_status_answer(msg_mongo_session *s, const msg_settings *settings, const msg_oid *id,
                            msg_err *err);

#endif
