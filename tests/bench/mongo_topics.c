/* mongo_topics.c - a thousand topics listened to in the layout `multi` by one node: what each takes
 * of memory and of the server. The floor: a change stream a topic in bare libmongoc, by a handful
 * of threads. Each side is a process of its own, whose memory is nobody else's. */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "bench/mongo.h"

enum { TOPICS = 1000, THREADS = 4 };

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

/* ---- the two sides: argv DATABASE; each prints what it took a topic ---- */

static void tell(double memory, double cursors) {
  printf("%f %f\n", memory / TOPICS, cursors / TOPICS);
  fflush(stdout);
}

int bench_role_mongo_topics(int argc, char **argv) {
  bare b;
  (void)argc;
  bare_join(&b, argv[0], NULL);
  double open = server_cursors(&b);
  sqlite3 *db = mongo_node(argv[0], "{\"layout\": \"multi\", \"indexes\": \"lean\"}");
  bench_exec(db, "SELECT msg_await('first', 500)");
  double before = resident();
  sqlite3_stmt *listen = bench_prepare(db, "SELECT msg_listen('topic-' || ?1)");
  for (int i = 0; i < TOPICS; i++) {
    sqlite3_bind_int(listen, 1, i);
    bench_run(listen);
  }
  bench_exec(db, "SELECT msg_await(NULL, 1000)");
  tell(resident() - before, server_cursors(&b) - open);
  sqlite3_finalize(listen);
  bench_close(db);
  bare_close(&b);
  return 0;
}

/* A thread's streams, all of one client. */
typedef struct streams {
  const char *database;
  int first;
  bare b;
  mongoc_change_stream_t *at[TOPICS / THREADS];
} streams;

static void *follow(void *arg) {
  streams *s = arg;
  bson_t *match = BCON_NEW("pipeline", "[", "{", "$match", "{", "operationType",
                           BCON_UTF8("insert"), "}", "}", "]");
  bson_t *opts = BCON_NEW("maxAwaitTimeMS", BCON_INT64(1));
  for (int i = 0; i < TOPICS / THREADS; i++) {
    char name[40];
    const bson_t *doc, *reply;
    bson_error_t error;
    snprintf(name, sizeof name, "topic_%d", s->first + i);
    mongoc_collection_t *c = mongoc_client_get_collection(s->b.client, s->database, name);
    s->at[i] = mongoc_collection_watch(c, match, opts);
    mongoc_change_stream_next(s->at[i], &doc);
    bare_check(!mongoc_change_stream_error_document(s->at[i], &error, &reply), "watch", &error);
    mongoc_collection_destroy(c);
  }
  bson_destroy(opts);
  bson_destroy(match);
  return NULL;
}

int bench_role_mongo_bare_topics(int argc, char **argv) {
  static streams all[THREADS];
  pthread_t thread[THREADS];
  bare b;
  (void)argc;
  bare_join(&b, argv[0], NULL);
  double open = server_cursors(&b);
  for (int i = 0; i < THREADS; i++) {
    all[i] = (streams){.database = argv[0], .first = i * (TOPICS / THREADS)};
    bare_join(&all[i].b, argv[0], NULL);
  }
  double before = resident();
  for (int i = 0; i < THREADS; i++)
    if (pthread_create(&thread[i], NULL, follow, &all[i]) != 0)
      return 1;
  for (int i = 0; i < THREADS; i++)
    pthread_join(thread[i], NULL);
  tell(resident() - before, server_cursors(&b) - open);
  for (int i = 0; i < THREADS; i++) {
    for (int k = 0; k < TOPICS / THREADS; k++)
      mongoc_change_stream_destroy(all[i].at[k]);
    bare_close(&all[i].b);
  }
  bare_close(&b);
  return 0;
}

/* ---- both ---- */

static void measure(const char *role, const char *database, double *memory, double *cursors) {
  int fd, pid = bench_spawn(&fd, role, database, NULL);
  FILE *in = fdopen(fd, "r");
  if (!in || fscanf(in, "%lf %lf", memory, cursors) != 2)
    bench_die(role, "said nothing");
  bench_wait(pid);
  fclose(in);
}

void bench_mongo_topics(void) {
  double memory, cursors, bare_memory, bare_cursors;
  measure("mongo-topics", "bench_topics", &memory, &cursors);
  measure("mongo-bare-topics", "bench_topics_bare", &bare_memory, &bare_cursors);
  bench_ratio("1,000 topics on multi: memory a topic", memory, bare_memory, "KiB", BENCH_AT_MOST,
              0.5);
  bench_ratio("1,000 topics on multi: server cursors a topic", cursors, bare_cursors, "",
              BENCH_AT_MOST, 0.01);
}
