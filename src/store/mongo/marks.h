/* marks.h - what this process handed out and the server does not know yet: a node's message is in
 * here from the moment one of its threads takes it until the mark is written, by that thread or,
 * later, by the store's marker thread. If the process dies before, the message is handed out once
 * more. */
#ifndef MSG_MONGO_MARKS_H
#define MSG_MONGO_MARKS_H

#include "store/mongo/place.h"
#include "store/mongo/query.h"

struct msg_mongo_mark {
  msg_oid id;
  char *node;
  bool later;   /* the marker's to write */
  bool writing; /* it is at it */
};

/** Take it for the node: false when another thread has it. nomem: *nomem. */
bool msg_mongo_marks_take(msg_mongo_session *s, const char *node, const msg_oid *id, bool *nomem);
void msg_mongo_marks_drop(msg_mongo_session *s, const char *node, const msg_oid *id);
bool msg_mongo_marks_have(msg_mongo_session *s, const char *node, const msg_oid *id);
/** Those of a node now, appended. What a query finds that started later bears their marks or is one
 *  of them. Errors: MSG_NOMEM. */
int msg_mongo_marks_copy(msg_mongo_session *s, const char *node, msg_mongo_ids *out);

/* A mark whose outcome is not known: it is taken back, by its token. */
typedef struct msg_mongo_unmark {
  struct msg_mongo_unmark *next;
  char *node;
  msg_mongo_ids ids;
  char token[MSG_OID_HEX + 1];
  int64_t since_ms, at_ms; /* monotonic; not before */
  bool again;              /* it was done once: looks for the write that was under way */
} msg_mongo_unmark;

/* ---- marker.c ---- */

/** Their mark may have been written, and its caller knows nothing: it is taken back once the server
 *  is there, and until then they stay taken. Owns: ids, which is emptied. False: no memory. */
bool msg_mongo_marks_regret(msg_mongo_session *s, const char *node, msg_mongo_ids *ids,
                            const char *token);

/** There is something to do for it. False: no thread can be had. Thread: holds the store's mtx. */
bool msg_mongo_marker_rouse_locked(msg_mongo_store *store);
/** The marks of these, which were taken, are to be written soon. False: no thread can be had, the
 *  caller has to write them. */
bool msg_mongo_marks_later(msg_mongo_session *s, const char *node, const msg_mongo_ids *ids);
/** Write what is left, at most for some seconds, and end the marker thread. Before the pools go. */
void msg_mongo_marks_stop(msg_mongo_store *store);

/* ---- seen.c ---- */

/** Take `node` out of processed_by of those that bear the token in sq.by. */
int msg_mongo_unmark_seen(msg_mongo_use *u, const char *collection, const msg_mongo_unmark *x,
                          msg_err *err);

/* Who has seen what. */
typedef struct msg_mongo_seen_by {
  char *node;
  msg_mongo_ids ids;
} msg_mongo_seen_by;

/** Append each node to processed_by of its messages where it is not there yet: one call.
 *  Idempotent. n > 0. */
int msg_mongo_mark_seen(msg_mongo_use *u, const char *collection, const msg_mongo_seen_by *nodes,
                        size_t n, msg_err *err);

#endif
