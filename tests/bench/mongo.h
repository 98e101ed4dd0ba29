/* mongo.h - what the MongoDB benchmarks share: nodes of the product, and the bare side of them. */
#ifndef BENCH_MONGO_H
#define BENCH_MONGO_H

#include <mongoc/mongoc.h>

#include "bench/bench.h"

#define MONGO_LEAN "{\"indexes\": \"lean\"}"

/* ---- the product ---- */

/** A connection in memory whose node is in `database`; options: JSON of msg_open, NULL none. Any
 *  thread. */
sqlite3 *mongo_node(const char *database, const char *options);
/** Step to the first row, copy column 0 into out, reset; false: no row, or NULL. */
bool mongo_text(sqlite3_stmt *stmt, char *out, size_t size);
/** The sum of a counter of msg_stats over connections of this process. */
double mongo_stat(sqlite3 *const *nodes, int n, const char *counter);

/* ---- bare libmongoc ---- */

/* A client with the write concern of the product. Documents are copies of one that the product
 * sent. One thread's. */
typedef struct bare {
  char database[64];
  mongoc_client_t *client;
  mongoc_collection_t *messages, *locks;
  bson_t like; /* a message less its id, timestamp and what is of an answer */
} bare;

/** `database` anew, with the product's indexes, empty; copies are exclusive or not. options: as
 *  above. */
void bare_open(bare *b, const char *database, const char *topic, bool exclusive,
               const char *options);
/** Another client of it, whose documents are like `like`; NULL: bare_like says it later. */
void bare_join(bare *b, const char *database, const bson_t *like);
void bare_like(bare *b, const bson_t *message);
void bare_close(bare *b);
/** Append a message with a new id, which *id (may be NULL) gets; request NULL: no answer. */
void bare_message(const bare *b, const bson_oid_t *request, bson_t *doc, bson_oid_t *id);
/** Insert `count`, `batch` a call. */
void bare_insert(bare *b, int count, int batch);
/** To fill a queue: not waiting for a majority, but in the end for all three. */
void bare_fill(bare *b, int count);
void bare_clear(bare *b);
/** A stream of events that match. Takes a second to open: nothing may come yet. */
mongoc_change_stream_t *bare_watch(bare *b, const bson_t *match);
/** The next document, waited for; of the stream until the next call. */
void bare_next(mongoc_change_stream_t *stream, bson_t *document);
/** Dies when `ok` is false. */
void bare_check(bool ok, const char *what, const bson_error_t *error);

#endif
