/* answers.h - what nodes elsewhere say of themselves: answers to status requests, which live for as
 * long as the request. Private to store/mongo. */
#ifndef MSG_MONGO_ANSWERS_H
#define MSG_MONGO_ANSWERS_H

#include "store/mongo/mongo.h"

/* What a registry asks with; its answers repeat it, and are handed out to nobody. */
#define MSG_MONGO_REGISTRY_ASKS "status_request"

typedef struct msg_mongo_answer {
  const char *node;
  int64_t timestamp_ms;
  bson_iter_t topics; /* its keys are what the node listens to */
} msg_mongo_answer;
/** A return that is not MSG_OK ends the listing. */
typedef int (*msg_mongo_answer_fn)(void *arg, const msg_mongo_answer *a, msg_err *err);

/** The newest of each node that lists what it listens to; not of our own kind, which tell it as
 *  participants. asker: whom they answered, and *to what; NULL: anybody, anything. */
int msg_mongo_answers(msg_mongo_session *s, msg_mongo_use *u, const char *asker, const msg_oid *to,
                      msg_mongo_answer_fn fn, void *arg, msg_err *err);
/** Append what keeps a registry's answers out. */
void msg_mongo_append_no_registry(bson_t *filter);

#endif
