/* mongo_topics.c - a thousand topics listened to in the layout `multi` by one node: what they take
 * of memory and of the server. The floor: a change stream a topic, in bare libmongoc. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/mongo.h"

enum { TOPICS = 1000, STREAMS = 50 };

/* KiB of this process. */
static double resident(void) {
  long pages = 0, all = 0;
  FILE *f = fopen("/proc/self/statm", "r");
  if (!f || fscanf(f, "%ld %ld", &all, &pages) != 2)
    bench_die("/proc/self/statm", "not there");
  fclose(f);
  return (double)pages * (double)sysconf(_SC_PAGESIZE) / 1024;
}

static double server_cursors(bare *b) {
  bson_t *command = BCON_NEW("serverStatus", BCON_INT32(1)), reply;
  bson_error_t error;
  bson_iter_t it, at;
  double open = -1;
  bare_check(mongoc_client_command_simple(b->client, "admin", command, NULL, &reply, &error),
             "serverStatus", &error);
  if (bson_iter_init(&it, &reply) &&
      bson_iter_find_descendant(&it, "metrics.cursor.open.total", &at))
    open = (double)bson_iter_as_int64(&at);
  bson_destroy(&reply);
  bson_destroy(command);
  return open;
}

/* Each of the two takes what it can measure of itself: memory and the server's cursors a topic. */
static void ours(bare *b, double *memory, double *cursors) {
  double open = server_cursors(b);
  sqlite3 *db = mongo_node("bench_topics", "{\"layout\": \"multi\", \"indexes\": \"lean\"}");
  bench_exec(db, "SELECT msg_await('first', 500)");
  double before = resident();
  sqlite3_stmt *listen = bench_prepare(db, "SELECT msg_listen('topic-' || ?1)");
  for (int i = 0; i < TOPICS; i++) {
    sqlite3_bind_int(listen, 1, i);
    bench_run(listen);
  }
  bench_exec(db, "SELECT msg_await(NULL, 1000)");
  *memory = (resident() - before) / TOPICS;
  *cursors = (server_cursors(b) - open) / TOPICS;
  sqlite3_finalize(listen);
  bench_close(db);
}

static void bare_streams(bare *b, double *memory, double *cursors) {
  static mongoc_change_stream_t *stream[STREAMS];
  static bare each[STREAMS];
  double open = server_cursors(b), before = resident();
  bson_t *match = BCON_NEW("operationType", "insert");
  for (int i = 0; i < STREAMS; i++) {
    bare_join(&each[i], "bench_topics_bare", NULL);
    mongoc_collection_destroy(each[i].messages);
    char name[40];
    snprintf(name, sizeof name, "topic_%d", i);
    each[i].messages = mongoc_client_get_collection(each[i].client, "bench_topics_bare", name);
    stream[i] = bare_watch(&each[i], match);
  }
  *memory = (resident() - before) / STREAMS;
  *cursors = (server_cursors(b) - open) / STREAMS;
  for (int i = 0; i < STREAMS; i++) {
    mongoc_change_stream_destroy(stream[i]);
    bare_close(&each[i]);
  }
  bson_destroy(match);
}

void bench_mongo_topics(void) {
  double memory, cursors, floor_memory, floor_cursors;
  bare b;
  bare_join(&b, "bench_topics", NULL);
  ours(&b, &memory, &cursors);
  bare_streams(&b, &floor_memory, &floor_cursors);
  bench_ratio("1,000 topics on multi: memory a topic", memory, floor_memory, "KiB", BENCH_AT_MOST,
              0.5);
  bench_ratio("1,000 topics on multi: server cursors a topic", cursors, floor_cursors, "",
              BENCH_AT_MOST, 0.01);
  bare_close(&b);
}
