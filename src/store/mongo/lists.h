/* lists.h - growable lists of ids. Private to store/mongo. */
#ifndef MSG_MONGO_LISTS_H
#define MSG_MONGO_LISTS_H

#include "base/err.h"
#include "base/oid.h"
#include "base/texts.h"

/* A growable list of ids. */
typedef struct msg_mongo_ids {
  msg_oid *at;
  size_t n, cap;
} msg_mongo_ids;
int msg_mongo_ids_add(msg_mongo_ids *l, const msg_oid *id); /* MSG_OK or MSG_NOMEM */
bool msg_mongo_ids_have(const msg_mongo_ids *l, const msg_oid *id);
void msg_mongo_ids_clear(msg_mongo_ids *l);
/** Add copies, in the order of msg_oid_cmp. MSG_OK or MSG_NOMEM. */
int msg_mongo_ids_order(msg_mongo_ids *l, const msg_oid *ids, size_t n);
/** Has a list in that order it? */
bool msg_mongo_ids_hold(const msg_mongo_ids *l, const msg_oid *id);
/** Of a list in that order: add one that is not there. False: it is, or memory is
 *  out. */
bool msg_mongo_ids_insert(msg_mongo_ids *l, const msg_oid *id);
void msg_mongo_ids_remove(msg_mongo_ids *l, const msg_oid *id);

#endif
