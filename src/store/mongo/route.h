/* route.h - a batch of messages, taken apart by where they go. Private to store/mongo. */
#ifndef MSG_MONGO_ROUTE_H
#define MSG_MONGO_ROUTE_H

#include "store/mongo/place.h"

/* What goes to one place. */
typedef struct msg_mongo_route {
  msg_mongo_place *place;
  msg_put **items; /* borrowed, in order */
  size_t n, cap;
} msg_mongo_route;

typedef struct msg_mongo_routes {
  msg_mongo_route *at;
  size_t n, cap;
  int64_t now_ms; /* server's time by which they were routed: what is later is hidden */
} msg_mongo_routes;

/** Is it to be hidden for now? `now_ms` the server's. */
bool msg_mongo_is_later(const msg_mongo_session *s, const msg_message *m, int64_t now_ms);
/** Route the items. A message to several lanes is in several routes. No I/O.
 *  Errors: MSG_INVALID as msg_mongo_at_topic. */
int msg_mongo_routes_of(const msg_mongo_session *s, msg_put *items, size_t n, msg_mongo_routes *out,
                        msg_err *err);
void msg_mongo_routes_clear(msg_mongo_routes *r);
/** Make the places ready: indexes, and no topic in another's. Outside of a transaction. */
int msg_mongo_routes_ready(const msg_mongo_session *s, msg_mongo_use *u, const msg_mongo_routes *r,
                           msg_err *err);

#endif
