/* arrival.h - what a queue's change stream tells, and whom it concerns. Private to store/mongo. */
#ifndef MSG_MONGO_ARRIVAL_H
#define MSG_MONGO_ARRIVAL_H

#include "store/mongo/mongo.h"

/* A message that was inserted, as far as it is told. Borrows from the event. */
typedef struct msg_mongo_arrival {
  const char *topic, *sender, *msg; /* NULL: missing */
  bson_iter_t recipients;
  bool addressed, exclusive, answer, has_id;
  msg_oid id;
  int64_t until_ms; /* hidden until then; 0 not */
} msg_mongo_arrival;

/** For the stream's $project. */
bson_t *msg_mongo_wanted_fields(void);
void msg_mongo_arrival_read(bson_iter_t *doc, msg_mongo_arrival *out);
/** May a node of this process want it? */
bool msg_mongo_arrival_concerns(const msg_mongo_session *s, const msg_mongo_arrival *a);

#endif
