/* merge.h - rows of a query over several places: a message to several lanes is one, and has been
 * processed by whoever processed a copy of it. Private to store/mongo. */
#ifndef MSG_MONGO_MERGE_H
#define MSG_MONGO_MERGE_H

#include "store/mongo/query.h"

typedef struct msg_mongo_rows {
  mongoc_cursor_t *cursor; /* NULL: at the end */
  bool merges, ended;
  bson_t *row, *ahead; /* the last one given, and the one behind it; owned */
} msg_mongo_rows;

/** Owns: the cursor. */
void msg_mongo_rows_begin(msg_mongo_rows *r, mongoc_cursor_t *cursor);
/** The same of a cursor that has given its first row, NULL if it had none: rows of one _id follow
 *  each other, and are one. */
void msg_mongo_rows_begin_merged(msg_mongo_rows *r, mongoc_cursor_t *cursor, const bson_t *first);
/** The next row, which lives until the next call. MSG_NOTFOUND at the end. */
int msg_mongo_rows_next(msg_mongo_rows *r, msg_mongo_use *u, const char *what, const bson_t **doc,
                        msg_err *err);
/** Allowed on one of zeroes, and twice. */
void msg_mongo_rows_end(msg_mongo_rows *r);

#endif
