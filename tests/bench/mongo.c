#include "bench/mongo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *uri_of(const char *database, const char *options, char out[600]) {
  const char *uri = getenv("MSG_TEST_MONGODB_URI"), *query = uri ? strchr(uri, '?') : NULL;
  const char *host = uri ? strstr(uri, "://") : NULL, *path = host ? strchr(host + 3, '/') : NULL;
  if (!path)
    bench_die("MSG_TEST_MONGODB_URI", "needs a path");
  snprintf(out, 600, "%.*s/%s%s%s%s", (int)(path - uri), uri, database, query ? query : "",
           query ? "&" : "?", options);
  return out;
}

/* ---- the product ---- */

sqlite3 *mongo_node(const char *database, const char *options) {
  char uri[600], id[200];
  sqlite3 *db = NULL;
  if (sqlite3_open(":memory:", &db) != SQLITE_OK)
    bench_die("open", sqlite3_errmsg(db));
  bench_load(db);
  sqlite3_stmt *open = bench_prepare(db, "SELECT msg_open(?1, ?2)");
  sqlite3_bind_text(open, 1, uri_of(database, "", uri), -1, SQLITE_STATIC);
  sqlite3_bind_text(open, 2, options ? options : "{}", -1, SQLITE_STATIC);
  if (!mongo_text(open, id, sizeof id))
    bench_die("msg_open", sqlite3_errmsg(db));
  sqlite3_finalize(open);
  return db;
}

bool mongo_text(sqlite3_stmt *stmt, char *out, size_t size) {
  int rc = sqlite3_step(stmt);
  if (rc != SQLITE_ROW && rc != SQLITE_DONE)
    bench_die(sqlite3_sql(stmt), sqlite3_errmsg(sqlite3_db_handle(stmt)));
  const unsigned char *text = rc == SQLITE_ROW ? sqlite3_column_text(stmt, 0) : NULL;
  snprintf(out, size, "%s", text ? (const char *)text : "");
  sqlite3_reset(stmt);
  return text != NULL;
}

double mongo_stat(sqlite3 *const *nodes, int n, const char *counter) {
  double sum = 0;
  char sql[120];
  snprintf(sql, sizeof sql, "SELECT sum(value) FROM msg_stats WHERE name = '%s'", counter);
  for (int i = 0; i < n; i++)
    sum += (double)bench_int(nodes[i], sql);
  return sum;
}

/* ---- bare libmongoc ---- */

void bare_check(bool ok, const char *what, const bson_error_t *error) {
  if (!ok)
    bench_die(what, error->message);
}

static void connect_to(bare *b, const char *database) {
  char text[600];
  mongoc_init();
  snprintf(b->database, sizeof b->database, "%s", database);
  b->client = mongoc_client_new(uri_of(database, "w=majority&journal=true", text));
  if (!b->client)
    bench_die("connect", text);
  mongoc_client_set_error_api(b->client, MONGOC_ERROR_API_VERSION_2);
  bson_init(&b->like);
  b->messages = mongoc_client_get_collection(b->client, database, "msg");
  b->locks = mongoc_client_get_collection(b->client, database, "msg_lck");
}

static void drop(bare *b) {
  bson_t *command = BCON_NEW("dropDatabase", BCON_INT32(1));
  bson_error_t error;
  bare_check(mongoc_client_command_simple(b->client, b->database, command, NULL, NULL, &error),
             "drop", &error);
  bson_destroy(command);
}

void bare_like(bare *b, const bson_t *message) {
  bson_reinit(&b->like);
  bson_copy_to_excluding_noinit(message, &b->like, "_id", "timestamp", "in_answer_to", "recipients",
                                (char *)NULL);
}

static void read_like(bare *b) {
  bson_t all = BSON_INITIALIZER;
  const bson_t *doc;
  mongoc_cursor_t *cursor = mongoc_collection_find_with_opts(b->messages, &all, NULL, NULL);
  if (!mongoc_cursor_next(cursor, &doc))
    bench_die("read", "the message is not there");
  bare_like(b, doc);
  mongoc_cursor_destroy(cursor);
  bson_destroy(&all);
}

void bare_open(bare *b, const char *database, const char *topic, bool exclusive,
               const char *options) {
  connect_to(b, database);
  drop(b);
  sqlite3 *node = mongo_node(database, options);
  sqlite3_stmt *send =
      bench_prepare(node, exclusive ? "SELECT msg_enqueue(?1, ?2)" : "SELECT msg_send(?1, ?2)");
  sqlite3_bind_text(send, 1, topic, -1, SQLITE_STATIC);
  sqlite3_bind_text(send, 2, bench_payload(), -1, SQLITE_STATIC);
  bench_run(send);
  sqlite3_finalize(send);
  bench_close(node);
  read_like(b);
  bare_clear(b);
}

void bare_join(bare *b, const char *database, const bson_t *like) {
  connect_to(b, database);
  if (like)
    bare_like(b, like);
}

void bare_close(bare *b) {
  bson_destroy(&b->like);
  mongoc_collection_destroy(b->messages);
  mongoc_collection_destroy(b->locks);
  mongoc_client_destroy(b->client);
}

void bare_message(const bare *b, const bson_oid_t *request, bson_t *doc, bson_oid_t *id) {
  bson_oid_t own;
  bson_oid_init(&own, NULL);
  BSON_APPEND_OID(doc, "_id", &own);
  bson_concat(doc, &b->like);
  BSON_APPEND_INT64(doc, "timestamp", bench_epoch_ms());
  if (request) {
    BCON_APPEND(doc, "recipients", "[", "asker", "]");
    BSON_APPEND_OID(doc, "in_answer_to", request);
  } else {
    BSON_APPEND_NULL(doc, "recipients");
    BSON_APPEND_NULL(doc, "in_answer_to");
  }
  if (id)
    *id = own;
}

static void insert_some(bare *b, int n, const bson_t *opts) {
  bson_t **docs = calloc((size_t)n, sizeof *docs);
  bson_error_t error;
  for (int i = 0; i < n; i++)
    bare_message(b, NULL, docs[i] = bson_new(), NULL);
  bare_check(mongoc_collection_insert_many(b->messages, (const bson_t **)docs, (size_t)n, opts,
                                           NULL, &error),
             "insert", &error);
  for (int i = 0; i < n; i++)
    bson_destroy(docs[i]);
  free(docs);
}

static void insert(bare *b, int count, int batch, const bson_t *opts) {
  for (int i = 0; i < count; i += batch)
    insert_some(b, count - i < batch ? count - i : batch, opts);
}

void bare_insert(bare *b, int count, int batch) {
  insert(b, count, batch, NULL);
}

/* The oplog is small: the others must keep up. And what is measured next has no work of this. */
void bare_fill(bare *b, int count) {
  bson_t *opts =
      BCON_NEW("ordered", BCON_BOOL(false), "writeConcern", "{", "w", BCON_INT32(1), "}");
  bson_t *all = BCON_NEW("writeConcern", "{", "w", BCON_INT32(3), "}");
  for (int i = 0, n; i < count; i += n) {
    n = count - i < 50000 ? count - i : 50000;
    insert(b, n - 1, 5000, opts);
    insert(b, 1, 1, all);
  }
  bson_destroy(all);
  bson_destroy(opts);
}

void bare_clear(bare *b) {
  bson_t all = BSON_INITIALIZER;
  bson_error_t error;
  bare_check(mongoc_collection_delete_many(b->messages, &all, NULL, NULL, &error), "clear", &error);
  bson_destroy(&all);
}

mongoc_change_stream_t *bare_watch(bare *b, const bson_t *match) {
  bson_t *pipeline = BCON_NEW("pipeline", "[", "{", "$match", BCON_DOCUMENT(match), "}", "]");
  bson_t *opts = BCON_NEW("maxAwaitTimeMS", BCON_INT64(1000));
  mongoc_change_stream_t *stream = mongoc_collection_watch(b->messages, pipeline, opts);
  const bson_t *doc, *reply;
  bson_error_t error;
  if (mongoc_change_stream_next(stream, &doc)) /* opens it */
    bench_die("watch", "an event of before");
  bare_check(!mongoc_change_stream_error_document(stream, &error, &reply), "watch", &error);
  bson_destroy(pipeline);
  bson_destroy(opts);
  return stream;
}

void bare_next(mongoc_change_stream_t *stream, bson_t *document) {
  const bson_t *event, *reply;
  const uint8_t *data;
  uint32_t len;
  bson_error_t error;
  bson_iter_t it;
  while (!mongoc_change_stream_next(stream, &event))
    bare_check(!mongoc_change_stream_error_document(stream, &error, &reply), "stream", &error);
  if (!bson_iter_init_find(&it, event, "fullDocument") || !BSON_ITER_HOLDS_DOCUMENT(&it))
    bench_die("stream", "an event without document");
  bson_iter_document(&it, &len, &data);
  if (!bson_init_static(document, data, len))
    bench_die("stream", "no BSON");
}
