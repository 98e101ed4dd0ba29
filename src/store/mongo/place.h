/* place.h - the collections that a queue's messages are in, and which of them a call looks at.
 *
 * The verbs know one collection: that of their session. A queue of more than one is worked by
 * sessions at its places, which are copies of the caller's (msg_mongo_session_at). Private to
 * store/mongo. */
#ifndef MSG_MONGO_PLACE_H
#define MSG_MONGO_PLACE_H

#include "store/mongo/mongo.h"

/* One collection of messages, and what is known of it in this process. Lives as long as the
 * store. */
typedef struct msg_mongo_place {
  struct msg_mongo_place *next; /* of the store */
  msg_mongo_queue *queue;       /* immutable, as the next two */
  enum msg_mongo_goes kind;
  msg_mongo_at at;
  /* shared: guarded by the store's mtx */
  bool indexed;                           /* its indexes were seen or made */
  bool grouped;                           /* a message with a group was met */
  bool unnamed;                           /* a message with `name` alone was met */
  int64_t locked_at_ms;                   /* a lock of a Java node was met, monotonic; 0 never */
  int64_t swept_at_ms;                    /* last look of a sweep, 0 never */
  int64_t passed_at_ms;                   /* last look for heads that Java nodes took */
  int64_t repaired_at_ms;                 /* last look for groups without head */
  struct msg_mongo_waiting *first, *last; /* combine.h: single sends to go out */
  int inserting;                          /* batches of them under way */
  msg_cond *inserted;                     /* immutable; with the store's mtx */
  struct msg_mongo_unmark *unmarks;       /* marks.h */
  struct msg_mongo_mark *marks;           /* marks.h */
  size_t mark_count, mark_cap;
} msg_mongo_place;

/** The one of these collections, made at first use. NULL when memory is out. */
msg_mongo_place *msg_mongo_place_of(msg_mongo_store *store, msg_mongo_queue *queue,
                                    enum msg_mongo_goes kind, const msg_mongo_at *at);
/** Free all of a store, whose threads are gone. */
void msg_mongo_places_free(msg_mongo_store *store);

/** The session at a place: to be used within the call, never closed. */
msg_mongo_session msg_mongo_session_at(const msg_mongo_session *s, msg_mongo_place *place);

#endif
