/* settle.h - a batch of claims to settle, taken apart: shared by settle and apply. */
#ifndef MSG_MONGO_SETTLE_H
#define MSG_MONGO_SETTLE_H

#include "store/mongo/change.h"

/* Items that one update settles: same token, or none. */
typedef struct msg_mongo_part {
  const char *token; /* borrowed; NULL: the owner's name */
  size_t first, n;   /* into ids */
} msg_mongo_part;

typedef struct msg_mongo_parts {
  msg_settle_item **items; /* distinct ids, by token and id */
  msg_settle_item **rest;  /* of ids given again, by id; in the memory of items */
  msg_oid *ids;            /* the same order */
  size_t item_count, rest_count;
  msg_mongo_part *at;
  size_t n;
} msg_mongo_parts;

/** Sort the items; of an id given twice the first counts, and none is done yet. Errors:
 *  MSG_NOMEM. */
int msg_mongo_parts_of(msg_settle_item *items, size_t n, msg_mongo_parts *out, msg_err *err);
/** Once they were settled: of ids given again those of which none is done yet, with their next
 *  item. False: none. */
bool msg_mongo_parts_next(msg_mongo_parts *p);
void msg_mongo_parts_clear(msg_mongo_parts *p);
/** The documents of one part: theirs while the claim holds, by a lease (lease.h) or not. */
void msg_mongo_append_held(bson_t *filter, const msg_mongo_parts *p, const msg_mongo_part *part,
                           const char *node, enum msg_settle_verb verb);
/** Which of them it may change: those of no lease. */
void msg_mongo_append_theirs(bson_t *filter, const msg_mongo_parts *p, const msg_mongo_part *part,
                             const char *node, enum msg_settle_verb verb);
/** What happens to them. */
bson_t *msg_mongo_change_of(const msg_settle *how, const char *mark, int64_t max_attempts);

#endif
