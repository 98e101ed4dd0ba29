/* presence.h - participants, as Morphium writes them, with ours in `sq`. Private to store/mongo. */
#ifndef MSG_MONGO_PRESENCE_H
#define MSG_MONGO_PRESENCE_H

#include "store/mongo/mongo.h"

/** A node of this process listens, or does not any more: its participant says so. */
void msg_mongo_presence_tell(msg_mongo_session *s, const char *node, const char *pattern,
                             bool listens);
/** The own nodes live on, those long dead are removed: one bulk write. Then the implementation
 *  check of what the others say. */
int msg_mongo_heartbeat(msg_mongo_session *s, msg_mongo_use *u, msg_err *err);
/** How often, by the settings of the process's nodes. */
int64_t msg_mongo_beat_ms(const msg_mongo_session *s);

#endif
