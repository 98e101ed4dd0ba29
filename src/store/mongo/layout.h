/* layout.h - how a queue is laid out in MongoDB: Morphium's three ways, as a table. It decides what
 * is announced, and which collection a message goes to; nothing else differs. Pure: no I/O.
 *
 *   standard  all in one collection
 *   multi     each topic has a collection, and locks, of its own; each node has a lane
 *   dual      as standard, but each node has a lane
 *
 * A lane takes what is addressed to one node and nobody has to lock: directs and answers. Lanes of
 * multi are the database's: nodes of two queues with one id share theirs. */
#ifndef MSG_MONGO_LAYOUT_H
#define MSG_MONGO_LAYOUT_H

#include "model/message.h"
#include "store/mongo/names.h"

typedef struct msg_mongo_layout {
  const char *name;           /* of the setting */
  const char *implementation; /* announced, as Morphium registers it */
  bool topics;                /* a collection a topic */
  bool lanes;                 /* a collection a recipient */
  bool apart; /* what is hidden until later waits where no Java node looks: its streams hand out
               * whatever is inserted */
} msg_mongo_layout;

/** By its name; NULL or "": standard. NULL: there is none such. */
const msg_mongo_layout *msg_mongo_layout_of(const char *name);
/** What a node announces; what is not known is standard, as Morphium falls back. */
const msg_mongo_layout *msg_mongo_layout_announced(const char *implementation);

/* A collection of messages, and where Java nodes lock them. */
typedef struct msg_mongo_at {
  char messages[MSG_MONGO_NAME_MAX], locks[MSG_MONGO_NAME_MAX];
} msg_mongo_at;

enum msg_mongo_goes { MSG_MONGO_MAIN, MSG_MONGO_TOPIC, MSG_MONGO_LANES, MSG_MONGO_APART };

/** Where a message goes. `later`: it is hidden for now. */
enum msg_mongo_goes msg_mongo_goes(const msg_mongo_layout *layout, const msg_message *m,
                                   bool later);

/** Do nodes of `of` get this request, and does what they answer reach one who asks by `asker`? */
bool msg_mongo_layout_answers(const msg_mongo_layout *of, const msg_mongo_layout *asker,
                              const msg_message *request);

/** The one collection of a queue without collections by topic. */
void msg_mongo_at_main(const msg_mongo_names *names, msg_mongo_at *out);
/** A topic's. `room`: bytes that a collection's name may have in this database.
 *  Errors: MSG_INVALID too long, or it would be another one of the queue's: text names both. */
int msg_mongo_at_topic(const char *queue, const char *topic, size_t room, msg_mongo_at *out,
                       msg_err *err);
/** The locks of a topic's collection. */
void msg_mongo_at_topic_locks(const char *queue, const char *collection, msg_mongo_at *out);
/** A node's lane. */
void msg_mongo_at_lane(const msg_mongo_layout *layout, const msg_mongo_names *names,
                       const char *node, msg_mongo_at *out);
/** Where what is hidden waits. */
void msg_mongo_at_apart(const msg_mongo_names *names, msg_mongo_at *out);

/** Is it a lane? *owner: its owner's folded id, within `collection`. */
bool msg_mongo_is_lane(const msg_mongo_layout *layout, const msg_mongo_names *names,
                       const char *collection, const char **owner);
/** May it be a topic's collection of this queue? Only a message in it tells: its topic is to lead
 *  there. */
bool msg_mongo_may_be_topic(const char *queue, const msg_mongo_names *names,
                            const char *collection);

#endif
