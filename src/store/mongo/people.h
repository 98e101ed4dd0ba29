/* people.h - the queue's participants, as they are read. Private to store/mongo. */
#ifndef MSG_MONGO_PEOPLE_H
#define MSG_MONGO_PEOPLE_H

#include "store/mongo/mongo.h"

typedef struct msg_mongo_people {
  msg_participant *at; /* by node */
  size_t n, cap;
} msg_mongo_people;

/** All participants of the queue; the caller's (msg_mongo_people_clear), also on failure. */
int msg_mongo_people_load(msg_mongo_session *s, msg_mongo_use *u, msg_mongo_people *out,
                          msg_err *err);
/** And those that answered a status request lately, announced or not. */
int msg_mongo_people_add_answering(msg_mongo_session *s, msg_mongo_use *u, msg_mongo_people *people,
                                   msg_err *err);
void msg_mongo_people_clear(msg_mongo_people *p);
/** Is it the lane of one of them that lives? */
bool msg_mongo_people_own_lane(const msg_mongo_session *s, const msg_mongo_people *p,
                               const char *lane);
/** NULL: no such participant. */
const msg_participant *msg_mongo_people_find(const msg_mongo_people *p, const char *node);

/** Is the participant of this document alive? */
bool msg_mongo_is_alive(const msg_mongo_session *s, const bson_t *doc);

#endif
