/* marks.h - what this process handed out and the server does not know yet. A message is in here for
 * its node from the moment one of its threads takes it until a majority has the mark, which the
 * store's marker thread writes after the hand-out. If the process dies before, the message is
 * handed out once more. */
#ifndef MSG_MONGO_MARKS_H
#define MSG_MONGO_MARKS_H

#include "store/mongo/place.h"
#include "store/mongo/query.h"

/* A node at a place; one with nothing goes. */
typedef struct msg_mongo_seer {
  struct msg_mongo_seer *next;
  char *node;
  struct msg_mongo_mark {
    msg_oid id; /* first: msg_oid_place */
    enum msg_mongo_mark_state {
      MSG_MONGO_TAKEN,  /* by a thread, which looks at it */
      MSG_MONGO_HANDED, /* out: for the marker */
      MSG_MONGO_WRITING /* by the marker */
    } state;
    bool deletes;    /* the message goes after processing */
    uint64_t number; /* of the hand-out, in the store */
  } * at;            /* by their ids */
  size_t n, cap;
} msg_mongo_seer;

/** Take those that no other thread of the node has: mine[i]. Errors: MSG_NOMEM none was taken. */
int msg_mongo_marks_take(msg_mongo_session *s, const char *node, const msg_list *list, bool *mine,
                         msg_err *err);
/** Of those that were taken these are won, whose marks are to be written; the others are free
 *  again. */
void msg_mongo_marks_hand_out(msg_mongo_session *s, const char *node, const msg_list *list,
                              const bool *mine, const bool *won);
/** Those of a node now, by their ids, appended to what is empty. What a query finds that started
 *  later bears their marks or is one of them. Errors: MSG_NOMEM. */
int msg_mongo_marks_copy(msg_mongo_session *s, const char *node, msg_mongo_ids *out, msg_err *err);

/* Who has seen what. */
typedef struct msg_mongo_seen_by {
  msg_texts nodes;
  msg_mongo_ids ids;
  bool deletes;
} msg_mongo_seen_by;

typedef struct msg_mongo_seen_list {
  msg_mongo_place *place; /* NULL: empty */
  msg_mongo_seen_by *at;
  size_t n, cap;
} msg_mongo_seen_list;

/** The marks of one place to write next, at most `max` of a node; nodes that have seen the same are
 *  one. *full: there are more. Holds: the store's mtx. */
void msg_mongo_marks_gather_locked(msg_mongo_store *store, size_t max, msg_mongo_seen_list *out,
                                   bool *full);
/** They are written; or not, and wait again. Holds: the store's mtx. */
void msg_mongo_marks_written_locked(const msg_mongo_seen_list *l, bool written);
void msg_mongo_seen_list_clear(msg_mongo_seen_list *l);
void msg_mongo_seers_free(msg_mongo_place *p);

/* ---- marker.c ---- */

/** What the store's thread does, until it is stopped: chores.h. */
void msg_mongo_marker_run(void *store);

#endif
