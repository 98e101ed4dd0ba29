/* stream.h - a change stream by hand: one aggregate, then getMore after getMore on one server, each
 * no longer than its caller says. Nothing resumes by itself: whoever loses a stream opens a new one
 * and looks. Used by one thread. Private to store/mongo. */
#ifndef MSG_MONGO_STREAM_H
#define MSG_MONGO_STREAM_H

#include <stdatomic.h>

#include "store/mongo/mongo.h"

typedef struct msg_mongo_stream {
  struct msg_mongo_stream *next; /* interest.h */
  msg_mongo_store *store;
  msg_mongo_use use; /* kept while open */
  mongoc_client_session_t *session;
  char collection[MSG_MONGO_NAME_MAX]; /* "$cmd.aggregate": of the database */
  uint32_t server_id;
  int64_t cursor_id; /* 0: not open */
  bool broken;       /* a command failed: no farewell */
  /* what was durable before it was told by earlier rounds; and with this one; monotonic */
  int64_t told_ms, telling_ms;
  _Atomic int64_t replied_ms, token_ms; /* monotonic: last reply, last resume token; 0 never */
} msg_mongo_stream;

/** `whole`: of all of the database, `collection` is any of it. `match`: of the events wanted, the
 *  first $match behind $changeStream; `project` a $project. It tells what a majority did not have
 *  before it was open: a look at what a majority has, that begins now, finds the rest.
 *  Errors: as msg_mongo_fail, but MSG_IO instead of MSG_UNAVAILABLE: to be tried again. */
int msg_mongo_stream_open(msg_mongo_store *store, const char *collection, bool whole,
                          const bson_t *match, const bson_t *project, msg_mongo_stream *out,
                          msg_err *err);
/** The events of one round of at most `wait_ms` (1 or more), in *reply, the caller's even on
 *  failure; `events` is on its array. MSG_TIMEOUT: none came. MSG_CORRUPT: the stream has ended
 *  (the collection was dropped or renamed, history is lost). */
int msg_mongo_stream_next(msg_mongo_stream *s, int64_t wait_ms, bson_t *reply, bson_iter_t *events,
                          msg_err *err);
/** Allowed on one of zeroes. */
void msg_mongo_stream_close(msg_mongo_stream *s);

#endif
