/* regret.h - what calls left behind that failed for their callers: undone as soon as the server is
 * there, by the store's own thread. What was under way may arrive after that: it is looked for
 * again, ever more seldom, for some minutes. Private to store/mongo. */
#ifndef MSG_MONGO_REGRET_H
#define MSG_MONGO_REGRET_H

#include "store/mongo/query.h"

typedef struct msg_mongo_regret msg_mongo_regret;

/** These may have been put. */
void msg_mongo_regret_puts(msg_mongo_session *s, const msg_put *items, size_t n);
/** These may have been claimed. */
void msg_mongo_regret_claim(msg_mongo_session *s, const msg_mongo_ids *ids, const char *token);

/** The transaction of this session, which nobody else uses, may be open on the server: it would be
 *  in the way of others until the server ends it, after a minute. */
void msg_mongo_regret_session(msg_mongo_session *s, const bson_t *lsid);

/** Before these ids are put or settled anew: what is regretted of them is undone now. Costs nothing
 *  where nothing is regretted. Errors: as msg_mongo_fail. */
int msg_mongo_regrets_recall(msg_mongo_session *s, const msg_unit *unit, msg_err *err);

/** undo, for as long as it takes; what is out of reach is regretted. */
int msg_mongo_undo_now(msg_session *, const msg_actor *, msg_unit *, msg_err *);

/* ---- for the store's thread: marker.c ---- */

/** Undo one whose time has come; else *next_ms becomes the time of the next, monotonic. False: none
 *  was. Thread: holds the store's mtx, which is let go meanwhile. */
bool msg_mongo_regret_try_locked(msg_mongo_store *store, int64_t *next_ms);
void msg_mongo_regrets_free(msg_mongo_queue *q);

#endif
