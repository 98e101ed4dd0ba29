/* presence.h - participants, as Morphium writes them, with ours in `sq`. Private to store/mongo. */
#ifndef MSG_MONGO_PRESENCE_H
#define MSG_MONGO_PRESENCE_H

#include "store/mongo/mongo.h"

/* Morphium's registry asks and announces every 30 s. */
#define MSG_MONGO_HEARTBEAT_MS 30000

typedef struct msg_mongo_people {
  msg_participant *at; /* by node */
  size_t n, cap;
} msg_mongo_people;

/** All participants of the queue; the caller's (msg_mongo_people_clear), also on failure. */
int msg_mongo_people_load(msg_mongo_session *s, msg_mongo_use *u, msg_mongo_people *out,
                          msg_err *err);
void msg_mongo_people_clear(msg_mongo_people *p);
/** NULL: no such participant. */
const msg_participant *msg_mongo_people_find(const msg_mongo_people *p, const char *node);

/** The own nodes live on, those long dead are removed: one bulk write. Then the implementation
 *  check of what the others say. */
int msg_mongo_heartbeat(msg_mongo_session *s, msg_mongo_use *u, msg_err *err);

#endif
