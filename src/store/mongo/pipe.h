/* pipe.h - aggregations over the places of a queue, as one. Private to store/mongo. */
#ifndef MSG_MONGO_PIPE_H
#define MSG_MONGO_PIPE_H

#include "store/mongo/place.h"

/* True of what is in a lane, in expressions. */
#define MSG_MONGO_PIPE_LANE "$lane"

typedef struct msg_mongo_pipe {
  bson_t doc, stages; /* stages is within doc */
  uint32_t n;
  const msg_mongo_places *places;
  bool locks, one;
} msg_mongo_pipe;

/** What matches at each of the places, at least one. `project` may be NULL. Where there are
 *  several, "at" tells the place's number. To be run, which ends it. */
void msg_mongo_pipe_begin(msg_mongo_pipe *p, const msg_mongo_places *places, const bson_t *match,
                          const bson_t *project);
/** The same of their locks. */
void msg_mongo_pipe_begin_locks(msg_mongo_pipe *p, const msg_mongo_places *places,
                                const bson_t *match);
/** The same, but at most one of each place. */
void msg_mongo_pipe_begin_one(msg_mongo_pipe *p, const msg_mongo_places *places,
                              const bson_t *match, const bson_t *project);
/** One stage more: {name: what}. */
void msg_mongo_pipe_add(msg_mongo_pipe *p, const char *name, const bson_t *what);
/** msg_mongo_aggregate of it: from its first row on it reads no collection, if its last stage sorts
 *  or groups. */
int msg_mongo_pipe_run(msg_mongo_pipe *p, msg_mongo_use *u, const char *what, const bson_t *opts,
                       mongoc_cursor_t **cursor, const bson_t **first, msg_err *err);
/** msg_mongo_aggregate_each of it. */
int msg_mongo_pipe_each(msg_mongo_pipe *p, msg_mongo_use *u, const char *what, msg_mongo_row_fn row,
                        void *arg, msg_err *err);
/** The place that a row is from. */
msg_mongo_place *msg_mongo_pipe_place(const msg_mongo_places *places, const bson_t *doc);

#endif
