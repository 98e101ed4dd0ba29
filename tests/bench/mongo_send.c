/* mongo_send.c - sending: ten thousand by one INSERT, and singly from 16 threads. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "bench/mongo.h"

enum { BULK = 10000, BATCH = 1000, BULK_ROUNDS = 5, THREADS = 16, SINGLES = 100, ROUNDS = 5 };

/* ---- one INSERT, end to end ---- */

/* argv DATABASE OPTIONS: tells when each ten thousand were there. */
int bench_role_mongo_receiver(int argc, char **argv) {
  (void)argc;
  sqlite3 *db = mongo_node(argv[0], argv[1]);
  sqlite3_stmt *await = bench_prepare(db, "SELECT id FROM msg_await('bulk', 1000, 1000)");
  bench_exec(db, "SELECT msg_listen('bulk')");
  puts("ready");
  fflush(stdout);
  for (int got = 0;;) {
    got += bench_run(await);
    if (got < BULK)
      continue;
    printf("%.9f\n", bench_now());
    fflush(stdout);
    got -= BULK;
  }
}

typedef struct bulk {
  sqlite3_stmt *insert;
  FILE *receiver; /* NULL: none */
  bare b;
} bulk;

/* Until the receiver has marked all: that would slow what comes next. */
static void until_marked(bare *b) {
  bson_t *filter = BCON_NEW("processed_by", "[", "]");
  bson_error_t error;
  while (mongoc_collection_count_documents(b->messages, filter, NULL, NULL, NULL, &error) > 0)
    usleep(50000);
  bson_destroy(filter);
  bare_clear(b);
}

static double insert_select(void *arg) {
  bulk *k = arg;
  char line[64] = "";
  double t = bench_now();
  bench_run(k->insert);
  double sent = bench_now() - t;
  if (!k->receiver) {
    bare_clear(&k->b);
    return BULK / sent;
  }
  if (!fgets(line, sizeof line, k->receiver))
    bench_die("receiver", "gone");
  double rate = BULK / (strtod(line, NULL) - t);
  until_marked(&k->b);
  return rate;
}

static double insert_many(void *arg) {
  bulk *k = arg;
  double t = bench_now();
  bare_insert(&k->b, BULK, BATCH);
  double rate = BULK / (bench_now() - t);
  bare_clear(&k->b);
  return rate;
}

static int start_receiver(bulk *k, const char *database, const char *options) {
  char line[64];
  int fd, pid = bench_spawn(&fd, "mongo-receiver", database, options);
  k->receiver = fdopen(fd, "r");
  if (!k->receiver || !fgets(line, sizeof line, k->receiver))
    bench_die("receiver", "did not start");
  return pid;
}

static void bulk_pair(const char *figure, const char *options, bool received, double target) {
  bulk ours = {0}, floor = {0};
  bare_open(&floor.b, "bench_bulk_bare", "bulk", false, options);
  bare_open(&ours.b, "bench_bulk", "bulk", false, options);
  int pid = received ? start_receiver(&ours, "bench_bulk", options) : 0;
  sqlite3 *db = mongo_node("bench_bulk", options);
  ours.insert = bench_prepare(
      db, "WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i + 1 FROM n WHERE i < ?1)"
          " INSERT INTO msg_messages(topic, value) SELECT 'bulk', ?2 FROM n");
  sqlite3_bind_int(ours.insert, 1, BULK);
  sqlite3_bind_text(ours.insert, 2, bench_payload(), -1, SQLITE_STATIC);
  bench_pair(figure, insert_select, &ours, insert_many, &floor, BULK_ROUNDS, "/s", BENCH_AT_LEAST,
             target);
  if (received) {
    bench_stop(pid);
    fclose(ours.receiver);
  }
  sqlite3_finalize(ours.insert);
  bench_close(db);
  bare_close(&ours.b);
  bare_close(&floor.b);
}

void bench_mongo_send(void) {
  const char *full = "{\"write_timeout_ms\": 60000}",
             *lean = "{\"indexes\": \"lean\", \"write_timeout_ms\": 60000}";
  bulk_pair("INSERT of 10,000", full, false, 0.8);
  bulk_pair("INSERT of 10,000, lean", lean, false, 0.8);
  bulk_pair("INSERT of 10,000, to another process", full, true, 0.8);
  bulk_pair("INSERT of 10,000, to another process, lean", lean, true, 0.8);
}

/* ---- 16 threads ---- */

typedef struct sender {
  sqlite3_stmt *send; /* NULL: bare */
  bare b;
} sender;

static void *send_singly(void *arg) {
  sender *s = arg;
  bson_error_t error;
  for (int i = 0; i < SINGLES; i++) {
    if (s->send) {
      bench_run(s->send);
      continue;
    }
    bson_t doc = BSON_INITIALIZER;
    bare_message(&s->b, NULL, &doc, NULL);
    bare_check(mongoc_collection_insert_one(s->b.messages, &doc, NULL, NULL, &error), "insert",
               &error);
    bson_destroy(&doc);
  }
  return NULL;
}

static double rate(void *arg) {
  sender *senders = arg;
  pthread_t thread[THREADS];
  double t = bench_now();
  for (int i = 0; i < THREADS; i++)
    if (pthread_create(&thread[i], NULL, send_singly, &senders[i]) != 0)
      bench_die("threads", "none");
  for (int i = 0; i < THREADS; i++)
    pthread_join(thread[i], NULL);
  return THREADS * SINGLES / (bench_now() - t);
}

void bench_mongo_threads(void) {
  static sender ours[THREADS], floor[THREADS];
  bare_open(&floor[0].b, "bench_threads_bare", "single", false, NULL);
  for (int i = 1; i < THREADS; i++)
    bare_join(&floor[i].b, "bench_threads_bare", &floor[0].b.like);
  for (int i = 0; i < THREADS; i++) {
    sqlite3 *db = mongo_node("bench_threads", NULL);
    ours[i].send = bench_prepare(db, "SELECT msg_send('single', ?1)");
    sqlite3_bind_text(ours[i].send, 1, bench_payload(), -1, SQLITE_STATIC);
  }
  bench_pair("msg_send singly, 16 threads", rate, ours, rate, floor, ROUNDS, "/s", BENCH_AT_LEAST,
             2);
  for (int i = 0; i < THREADS; i++) {
    sqlite3 *db = sqlite3_db_handle(ours[i].send);
    sqlite3_finalize(ours[i].send);
    bench_close(db);
    bare_close(&floor[i].b);
  }
}
