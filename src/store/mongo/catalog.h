/* catalog.h - which places a queue has: by the names of collections, and the messages in them.
 * Private to store/mongo. */
#ifndef MSG_MONGO_CATALOG_H
#define MSG_MONGO_CATALOG_H

#include "model/topic.h"
#include "store/mongo/place.h"

/** Where messages of the pattern's topics are (NULL: of any topic), and what is addressed to
 *  `node` (NULL: to nobody). One call where there are many. */
int msg_mongo_places_of(const msg_mongo_session *s, msg_mongo_use *u, const msg_pattern *pattern,
                        const char *node, msg_mongo_places *out, msg_err *err);
/** All of the queue: topics, lanes, what waits apart. */
int msg_mongo_places_all(const msg_mongo_session *s, msg_mongo_use *u, msg_mongo_places *out,
                         msg_err *err);
/** The place of a collection that may be the queue's, NULL if it is none. */
msg_mongo_place *msg_mongo_place_named(const msg_mongo_session *s, const char *collection);

/* Works at one place. */
typedef int (*msg_mongo_at_fn)(msg_mongo_session *at, msg_mongo_use *u, void *arg, msg_err *err);
/** At each of these; the first failure ends it. */
int msg_mongo_places_each(const msg_mongo_session *s, msg_mongo_use *u, const msg_mongo_places *l,
                          msg_mongo_at_fn fn, void *arg, msg_err *err);
/** At all of the queue. */
int msg_mongo_everywhere(const msg_mongo_session *s, msg_mongo_use *u, msg_mongo_at_fn fn,
                         void *arg, msg_err *err);
/** At those of the queue where something matches, which one call tells of very many. One that is
 *  the only one is not asked. */
int msg_mongo_wherever(const msg_mongo_session *s, msg_mongo_use *u, const bson_t *match,
                       msg_mongo_at_fn fn, void *arg, msg_err *err);

#endif
