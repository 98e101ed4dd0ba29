/* topics.h - the topics of a collection, of a pattern, of old nodes' messages. Private to
 * store/mongo. */
#ifndef MSG_MONGO_TOPICS_H
#define MSG_MONGO_TOPICS_H

#include "model/topic.h"
#include "store/mongo/place.h"
#include "store/mongo/query.h"

/** The topics that a pattern means, less the paused ones: the name itself, else out of those that
 *  the queue has. A NULL pattern: all. */
int msg_mongo_topics_of(msg_mongo_session *s, msg_mongo_use *u, const msg_pattern *pattern,
                        const msg_pattern *const *paused, size_t paused_count, msg_texts *out,
                        msg_err *err);
/** Topics a query takes at most. */
#define MSG_MONGO_TOPICS_MAX 60
/** topic: {$in: [...]}, and `name` where there is no topic. */
void msg_mongo_append_topics(bson_t *doc, char *const *topics, size_t n);
/** Has a document with `name` alone been met in this queue? */
bool msg_mongo_is_unnamed(msg_mongo_session *s);
/** One look whether there is one. */
int msg_mongo_look_unnamed(msg_mongo_session *s, msg_mongo_use *u, msg_err *err);

/* ---- of a topic's place ---- */

/** Is it the one of this topic? */
bool msg_mongo_place_is_of(const msg_mongo_place *p, const char *topic);
/** The topics known of it; it is sampled where none are. */
int msg_mongo_place_topics(const msg_mongo_session *s, msg_mongo_use *u, msg_mongo_place *p,
                           msg_texts *out, msg_err *err);
/** Before the first message of a topic is put to its place. MSG_INVALID: another topic has it, text
 *  names both. */
int msg_mongo_place_admit(const msg_mongo_session *at, msg_mongo_use *u, const char *topic,
                          msg_err *err);
/** A message of the topic was met there. */
void msg_mongo_place_note(msg_mongo_store *store, msg_mongo_place *p, const char *topic);

#endif
