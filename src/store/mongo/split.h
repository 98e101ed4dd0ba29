/* split.h - items of a settle, taken apart by where their messages are. Private to store/mongo. */
#ifndef MSG_MONGO_SPLIT_H
#define MSG_MONGO_SPLIT_H

#include "store/mongo/where.h"

/* Those of one place. */
typedef struct msg_mongo_piece {
  msg_mongo_place *place;
  msg_settle_item *items; /* copies, tokens borrowed */
  size_t *from;           /* number of each among the items */
  size_t n;
} msg_mongo_piece;

typedef struct msg_mongo_split {
  msg_mongo_piece *at;
  size_t n;
} msg_mongo_split;

/** What is nowhere is left out. *out is the caller's (msg_mongo_split_clear), also on failure. */
int msg_mongo_split_of(const msg_mongo_session *s, msg_mongo_use *u, const msg_settle_item *items,
                       size_t n, msg_mongo_split *out, msg_err *err);
void msg_mongo_split_clear(msg_mongo_split *l);
/** What became of the copies is what became of the items. */
void msg_mongo_split_done(const msg_mongo_split *l, msg_settle_item *items, size_t n);

#endif
