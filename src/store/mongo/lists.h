/* lists.h - growable lists of ids and of texts. Private to store/mongo. */
#ifndef MSG_MONGO_LISTS_H
#define MSG_MONGO_LISTS_H

#include "base/err.h"
#include "base/oid.h"

/* A growable list of ids. */
typedef struct msg_mongo_ids {
  msg_oid *at;
  size_t n, cap;
} msg_mongo_ids;
int msg_mongo_ids_add(msg_mongo_ids *l, const msg_oid *id); /* MSG_OK or MSG_NOMEM */
bool msg_mongo_ids_have(const msg_mongo_ids *l, const msg_oid *id);
void msg_mongo_ids_clear(msg_mongo_ids *l);
/** Of a list in the order of msg_oid_cmp: add one that is not there. False: it is, or memory is
 *  out. */
bool msg_mongo_ids_insert(msg_mongo_ids *l, const msg_oid *id);
void msg_mongo_ids_remove(msg_mongo_ids *l, const msg_oid *id);

/* A growable list of texts, copied. */
typedef struct msg_mongo_texts {
  char **at;
  size_t n, cap;
} msg_mongo_texts;
int msg_mongo_texts_add(msg_mongo_texts *l, const char *text); /* MSG_OK or MSG_NOMEM */
/** The same, unless it is there. */
int msg_mongo_texts_note(msg_mongo_texts *l, const char *text);
bool msg_mongo_texts_have(const msg_mongo_texts *l, const char *text);
void msg_mongo_texts_clear(msg_mongo_texts *l);

#endif
