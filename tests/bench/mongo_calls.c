/* mongo_calls.c - store calls, as msg_stats counts them, with one and with fifty consumers of one
 * process, at work and idle. */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "bench/mongo.h"

enum { CONSUMERS = 50, IDLE_S = 5 };

typedef struct consumer {
  sqlite3 *db;
  sqlite3_stmt *take, *ack;
  int left; /* to be taken by this one, with `shared` NULL */
  _Atomic int *shared;
} consumer;

/* Takes until nothing is left; a batch may be had by another. */
static void *consume(void *arg) {
  consumer *c = arg;
  static _Thread_local char ids[100 * 40];
  while (c->shared ? *c->shared > 0 : c->left > 0) {
    if (!mongo_text(c->take, ids, sizeof ids) || ids[1] == ']')
      continue;
    int n = 1;
    for (const char *p = ids; *p; p++)
      n += *p == ',';
    if (c->shared)
      *c->shared -= n;
    c->left -= n;
    if (c->ack) {
      sqlite3_bind_text(c->ack, 1, ids, -1, SQLITE_STATIC);
      bench_run(c->ack);
    }
  }
  return NULL;
}

static void in_parallel(void *(*run)(void *), consumer *c, int n) {
  pthread_t thread[CONSUMERS];
  for (int i = 0; i < n; i++)
    if (pthread_create(&thread[i], NULL, run, &c[i]) != 0)
      bench_die("consumers", "no thread");
  for (int i = 0; i < n; i++)
    pthread_join(thread[i], NULL);
}

static double calls_of(const consumer *c, int n) {
  sqlite3 *nodes[CONSUMERS];
  for (int i = 0; i < n; i++)
    nodes[i] = c[i].db;
  return mongo_stat(nodes, n, "store_calls");
}

static void open_all(consumer *c, int n, const char *database, const char *take, bool acks) {
  for (int i = 0; i < n; i++) {
    c[i] = (consumer){.db = mongo_node(database, NULL)};
    c[i].take = bench_prepare(c[i].db, take);
    if (acks)
      c[i].ack = bench_prepare(c[i].db, "SELECT msg_ack(?1)");
    else
      bench_exec(c[i].db, "SELECT msg_listen('jobs')");
  }
}

static void close_all(consumer *c, int n) {
  for (int i = 0; i < n; i++) {
    sqlite3_finalize(c[i].take);
    sqlite3_finalize(c[i].ack);
    bench_close(c[i].db);
  }
}

/* Calls a message that was sent, of which `n` consumers take `batch` at a time: exclusive ones,
 * each by one; or broadcasts, each by all. */
static double calls(const char *database, bool exclusive, int n, int batch, int messages) {
  static consumer c[CONSUMERS];
  _Atomic int shared = messages;
  bare b;
  char take[120];
  snprintf(take, sizeof take,
           exclusive ? "SELECT json_group_array(id) FROM msg_claim('jobs', %d, 30000, 500)"
                     : "SELECT json_group_array(id) FROM msg_await('jobs', 500, %d)",
           batch);
  bare_open(&b, database, "jobs", exclusive, NULL);
  open_all(c, n, database, take, exclusive);
  for (int i = 0; i < n; i++) {
    c[i].shared = exclusive ? &shared : NULL;
    c[i].left = messages;
  }
  double before = calls_of(c, n);
  bare_insert(&b, messages, messages);
  in_parallel(consume, c, n);
  double made = calls_of(c, n) - before;
  close_all(c, n);
  bare_clear(&b);
  bare_close(&b);
  return made / messages;
}

void bench_mongo_calls(void) {
  bench_ratio("calls a claimed message, 50 consumers (floor: 1)",
              calls("bench_calls_50", true, CONSUMERS, 1, 2000),
              calls("bench_calls_1", true, 1, 1, 200), "", BENCH_AT_MOST, 1.1);
  bench_absolute("calls a broadcast, 50 listeners in all", /* a look each, at the beginning */
                 calls("bench_heard_50", false, CONSUMERS, 1, 1000), 0, "", BENCH_AT_MOST, 0.999);
  bench_absolute("calls a claimed message, by 100", calls("bench_calls_100", true, 1, 100, 2000), 0,
                 "", BENCH_AT_MOST, 0.999);
  bench_absolute("calls a broadcast, by 100", calls("bench_heard_100", false, 1, 100, 2000), 0, "",
                 BENCH_AT_MOST, 0.999);
}

/* ---- idle ---- */

static void *wait_idle(void *arg) {
  consumer *c = arg;
  bench_run(c->take);
  return NULL;
}

static double server_calls(bare *b) {
  static const char *const kinds[] = {"insert", "query", "update", "delete", "getmore", "command"};
  bson_t *command = BCON_NEW("serverStatus", BCON_INT32(1)), reply;
  bson_error_t error;
  bson_iter_t it, field;
  double sum = 0;
  bare_check(mongoc_client_command_simple(b->client, "admin", command, NULL, &reply, &error),
             "serverStatus", &error);
  if (bson_iter_init_find(&it, &reply, "opcounters") && bson_iter_recurse(&it, &field))
    while (bson_iter_next(&field))
      for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(bson_iter_key(&field), kinds[i]))
          sum += (double)bson_iter_as_int64(&field);
  bson_destroy(&reply);
  bson_destroy(command);
  return sum;
}

/* Calls of a second, of the store and of the server, while `n` wait. */
static void idle(const char *database, int n, double *store, double *server) {
  static consumer c[CONSUMERS];
  pthread_t thread[CONSUMERS];
  bare b;
  char take[60];
  bare_open(&b, database, "jobs", false, NULL);
  snprintf(take, sizeof take, "SELECT msg_await('jobs', %d)", (IDLE_S + 4) * 1000);
  open_all(c, n, database, take, false);
  for (int i = 0; i < n; i++)
    if (pthread_create(&thread[i], NULL, wait_idle, &c[i]) != 0)
      bench_die("idle", "no thread");
  sleep(2);
  *server = server_calls(&b);
  sleep(IDLE_S);
  *server = (server_calls(&b) - *server - 1) / IDLE_S;
  for (int i = 0; i < n; i++)
    pthread_join(thread[i], NULL);
  *store = calls_of(c, n);
  close_all(c, n);
  bare_close(&b);
}

void bench_mongo_idle(void) {
  double store, store_1, server, server_1;
  idle("bench_idle_1", 1, &store_1, &server_1);
  idle("bench_idle_50", CONSUMERS, &store, &server);
  bench_ratio("50 idle waiters, server's calls a second (floor: 1)", server, server_1, "/s",
              BENCH_AT_MOST, 1.1);
  bench_ratio("50 idle waiters, store calls a waiter (floor: 1)", store / CONSUMERS, store_1, "",
              BENCH_AT_MOST, 1.1);
}
