/* place.h - the collections that a queue's messages are in, and which of them a call looks at.
 *
 * The verbs know one collection: that of their session. A queue of more than one is worked by
 * sessions at its places, which are copies of the caller's (msg_mongo_session_at). Private to
 * store/mongo. */
#ifndef MSG_MONGO_PLACE_H
#define MSG_MONGO_PLACE_H

#include "store/mongo/lists.h"
#include "store/mongo/mongo.h"

/* A look that is not taken again for a while. */
typedef struct msg_mongo_turn {
  int64_t at_ms, pause_ms; /* the last, 0 never; what follows it */
} msg_mongo_turn;

/* One collection of messages, and what is known of it in this process. Lives as long as the
 * store. */
typedef struct msg_mongo_place {
  struct msg_mongo_place *next; /* of the store */
  msg_mongo_queue *queue;       /* immutable, as the next two */
  enum msg_mongo_goes kind;
  msg_mongo_at at;
  /* shared: guarded by the store's mtx */
  bool indexed;                           /* its indexes were seen or made */
  bool building;                          /* some that were seen could not be used */
  unsigned needs;                         /* which of them somebody needed */
  bool grouped;                           /* a message with a group was met */
  bool unnamed;                           /* a message with `name` alone was met */
  int64_t locked_at_ms;                   /* a lock of a Java node was met, monotonic; 0 never */
  msg_mongo_turn swept;                   /* for what is due */
  msg_mongo_turn passed;                  /* for heads that Java nodes took */
  msg_mongo_turn repaired;                /* for groups without head */
  struct msg_mongo_waiting *first, *last; /* combine.h: single sends to go out */
  size_t waiting;                         /* how many these are */
  int inserting;                          /* batches of them under way */
  size_t served;                          /* sends of the last batch, */
  int64_t served_at_ms;                   /* which was done then, monotonic */
  msg_cond *inserted;                     /* immutable; with the store's mtx */
  struct msg_mongo_seer *seers;           /* marks.h */
  msg_mongo_ids claiming;                 /* what claims of this process are at, in order */
  struct msg_mongo_lease *leases;         /* lease.h: the last of this process; NULL none */
  size_t lease_count;                     /* how many there have been */
  int unleased;                           /* so many claims go without one */
  bool leased;                            /* a lease of anybody's was met */
  msg_mongo_turn tidied;                  /* for leases that are over */
  bool admitted;                          /* of a topic's: who shares it was looked up */
  msg_texts topics;                       /* of a topic's: those met in it */
} msg_mongo_place;

/* Some of them, borrowed: they live as long as the store. */
typedef struct msg_mongo_places {
  msg_mongo_place **at;
  size_t n, cap;
} msg_mongo_places;
void msg_mongo_places_clear(msg_mongo_places *l);
/** Each once. */
int msg_mongo_places_add(msg_mongo_places *l, msg_mongo_place *p, msg_err *err);

/** The one of these collections, made at first use. NULL when memory is out. */
msg_mongo_place *msg_mongo_place_of(msg_mongo_store *store, msg_mongo_queue *queue,
                                    enum msg_mongo_goes kind, const msg_mongo_at *at);
/** Add one. Holds: the store's mtx. */
msg_mongo_place *msg_mongo_place_add_locked(msg_mongo_store *store, msg_mongo_queue *queue,
                                            enum msg_mongo_goes kind, const msg_mongo_at *at);
/** Free all of a store, whose threads are gone. */
void msg_mongo_places_free(msg_mongo_store *store);

/** Those that a message is put to: one, or the lanes of its recipients. `later`: it is hidden for
 *  now. No I/O. Errors: MSG_INVALID as msg_mongo_at_topic. */
int msg_mongo_places_put(const msg_mongo_session *s, const msg_message *m, bool later,
                         msg_mongo_places *out, msg_err *err);
/** Where a topic's are, be they there or not. Errors: as above. */
int msg_mongo_topic_at(const msg_mongo_session *s, const char *topic, msg_mongo_at *out,
                       msg_err *err);
/** A topic's. No I/O. Errors: as above. */
int msg_mongo_places_topic(const msg_mongo_session *s, const char *topic, msg_mongo_places *out,
                           msg_err *err);
/** The node's lane; NULL: there are none, or memory is out. */
msg_mongo_place *msg_mongo_place_lane(const msg_mongo_session *s, const char *node);

/** The session at a place: to be used within the call, never closed. */
msg_mongo_session msg_mongo_session_at(const msg_mongo_session *s, msg_mongo_place *place);

#endif
