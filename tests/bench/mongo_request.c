/* mongo_request.c - a request and its answer, to and from another process. The floor: insert ->
 * stream -> insert -> stream. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "bench/mongo.h"

enum { ROUNDS = 7, REQUESTS = 30, PAUSE_US = 10000, CALLERS = 64, CALLS = 8, ANSWERERS = 16 };
enum { RATE, P95, VALUES }; /* of a turn of callers */
enum { TURNS = 16 /* of each layout; even */, SETTLE_US = 600000 };

/* How: awaiting or claiming, or many that await; "dual" before it: in that layout. */
static const char *how_of(const char *how) {
  return strncmp(how, "dual", 4) == 0 ? how + 4 : how;
}

/* id: NULL for one of its own. */
static sqlite3 *node(const char *database, const char *how, const char *id) {
  char options[80], sender[40] = "";
  if (id)
    snprintf(sender, sizeof sender, ", \"sender_id\": \"%s\"", id);
  snprintf(options, sizeof options, "{\"layout\": \"%s\"%s}",
           how == how_of(how) ? "standard" : "dual", sender);
  return mongo_node(database, options);
}

/* ---- who answers: argv DATABASE HOW ---- */

/* An await that ends with nothing looks through all that its topic still holds: those of a pair
 * that is idle would take as much of the primary as the pair at work. */
static void *answer(void *arg) {
  char **argv = arg, id[64];
  bool claims = strcmp(how_of(argv[1]), "claim") == 0;
  sqlite3 *db = node(argv[0], argv[1], "answerer");
  sqlite3_stmt *get = bench_prepare(db, claims ? "SELECT id FROM msg_claim('ask', 1, 30000, 1000)"
                                               : "SELECT id FROM msg_await('ask', 600000, 1)");
  sqlite3_stmt *reply = bench_prepare(db, "SELECT msg_reply(?1, ?2)");
  sqlite3_stmt *ack = bench_prepare(db, "SELECT msg_ack(?1)");
  if (!claims)
    bench_exec(db, "SELECT msg_listen('ask')");
  puts("ready");
  fflush(stdout);
  for (;;) {
    if (!mongo_text(get, id, sizeof id))
      continue;
    sqlite3_bind_text(reply, 1, id, -1, SQLITE_STATIC);
    sqlite3_bind_text(reply, 2, bench_payload(), -1, SQLITE_STATIC);
    bench_run(reply);
    sqlite3_bind_text(ack, 1, id, -1, SQLITE_STATIC);
    if (claims)
      bench_run(ack);
  }
  return NULL;
}

int bench_role_mongo_answerer(int argc, char **argv) {
  pthread_t thread[ANSWERERS];
  (void)argc;
  int n = strcmp(how_of(argv[1]), "many") == 0 ? ANSWERERS : 1;
  for (int i = 0; i < n; i++)
    if (pthread_create(&thread[i], NULL, answer, argv) != 0)
      return 1;
  for (int i = 0; i < n; i++)
    pthread_join(thread[i], NULL);
  return 0;
}

static mongoc_change_stream_t *watch(bare *b, bool answers) {
  bson_t *match = answers ? BCON_NEW("operationType", "insert", "fullDocument.in_answer_to", "{",
                                     "$ne", BCON_NULL, "}")
                          : BCON_NEW("operationType", "insert", "fullDocument.topic", "ask",
                                     "fullDocument.in_answer_to", BCON_NULL);
  mongoc_change_stream_t *stream = bare_watch(b, match);
  bson_destroy(match);
  return stream;
}

static void post(bare *b, const bson_oid_t *request, bson_oid_t *id) {
  bson_t doc = BSON_INITIALIZER;
  bson_error_t error;
  bare_message(b, request, &doc, id);
  bare_check(mongoc_collection_insert_one(b->messages, &doc, NULL, NULL, &error), "insert", &error);
  bson_destroy(&doc);
}

int bench_role_mongo_bare_answerer(int argc, char **argv) {
  bare b;
  (void)argc;
  bare_join(&b, argv[0], NULL);
  mongoc_change_stream_t *stream = watch(&b, false);
  puts("ready");
  fflush(stdout);
  for (;;) {
    bson_t doc;
    bson_iter_t it;
    bare_next(stream, &doc);
    bare_like(&b, &doc);
    if (bson_iter_init_find(&it, &doc, "_id"))
      post(&b, bson_iter_oid(&it), NULL);
  }
}

/* ---- who asks ---- */

typedef struct asking {
  sqlite3 *db;
  sqlite3_stmt *request;
  int pid;              /* of the answerer */
  int calls;            /* of a thread, */
  double at[CALLS * 5]; /* and how long each took, ms */
} asking;

static int answerer(const char *role, const char *database, const char *how, int ready) {
  char line[64];
  int fd, pid = bench_spawn(&fd, role, database, how);
  FILE *in = fdopen(fd, "r");
  for (int i = 0; i < ready; i++)
    if (!in || !fgets(line, sizeof line, in))
      bench_die(role, "did not start");
  return pid;
}

static sqlite3_stmt *prepare(sqlite3 *db, bool exclusive) {
  sqlite3_stmt *s =
      bench_prepare(db, exclusive ? "SELECT msg_request('ask', ?1, 10000, '{\"exclusive\": true}')"
                                  : "SELECT msg_request('ask', ?1, 10000)");
  sqlite3_bind_text(s, 1, bench_payload(), -1, SQLITE_STATIC);
  return s;
}

static void start(asking *a, const char *database, const char *how) {
  a->db = node(database, how, NULL);
  a->pid = answerer("mongo-answerer", database, how, 1);
  a->request = prepare(a->db, strcmp(how, "claim") == 0);
}

static void stop(asking *a) {
  bench_stop(a->pid);
  sqlite3_finalize(a->request);
  bench_close(a->db);
}

static void ask(sqlite3_stmt *request) {
  char value[BENCH_PAYLOAD + 1];
  if (!mongo_text(request, value, sizeof value))
    bench_die("msg_request", "no answer");
}

static double p50(void *arg) {
  asking *a = arg;
  double at[REQUESTS];
  for (int i = 0; i < REQUESTS; i++) {
    usleep(PAUSE_US);
    double t = bench_now();
    ask(a->request);
    at[i] = (bench_now() - t) * 1e3;
  }
  return bench_median(at, REQUESTS);
}

typedef struct bare_asking {
  bare b;
  mongoc_change_stream_t *stream;
} bare_asking;

static double bare_p50(void *arg) {
  bare_asking *a = arg;
  double at[REQUESTS];
  for (int i = 0; i < REQUESTS; i++) {
    bson_oid_t id;
    bson_iter_t it;
    bson_t doc;
    usleep(PAUSE_US);
    double t = bench_now();
    post(&a->b, NULL, &id);
    do
      bare_next(a->stream, &doc);
    while (!bson_iter_init_find(&it, &doc, "in_answer_to") ||
           !bson_oid_equal(bson_iter_oid(&it), &id));
    at[i] = (bench_now() - t) * 1e3;
  }
  return bench_median(at, REQUESTS);
}

static void pair(const char *figure, const char *database, const char *how, bare_asking *floor,
                 double target) {
  asking a;
  start(&a, database, how);
  bench_pair(figure, p50, &a, bare_p50, floor, ROUNDS, "ms", BENCH_AT_MOST, target);
  stop(&a);
}

void bench_mongo_request(void) {
  bare_asking floor;
  bare_open(&floor.b, "bench_ask_bare", "ask", false, NULL);
  int pid = answerer("mongo-bare-answerer", "bench_ask_bare", NULL, 1);
  floor.stream = watch(&floor.b, true);
  pair("request and answer, idle, p50", "bench_ask", "await", &floor, 1.15);
  pair("exclusive request and answer, idle, p50", "bench_ask_exclusive", "claim", &floor, 1.7);
  pair("request and answer on dual, idle, p50", "bench_ask_dual", "dualawait", &floor, 1.15);
  bench_stop(pid);
  mongoc_change_stream_destroy(floor.stream);
  bare_close(&floor.b);
}

/* ---- many who ask ---- */

typedef struct crowd {
  asking caller[CALLERS];
  int n, calls; /* that call, and how often each */
  int pid;      /* of the answerers */
} crowd;

static void *call(void *arg) {
  asking *a = arg;
  for (int i = 0; i < a->calls; i++) {
    double t = bench_now();
    ask(a->request);
    a->at[i] = (bench_now() - t) * 1e3;
  }
  return NULL;
}

static double rate(void *arg) {
  crowd *c = arg;
  pthread_t thread[CALLERS];
  double t = bench_now();
  for (int i = 0; i < c->n; i++) {
    c->caller[i].calls = c->calls;
    if (pthread_create(&thread[i], NULL, call, &c->caller[i]) != 0)
      bench_die("callers", "no thread");
  }
  for (int i = 0; i < c->n; i++)
    pthread_join(thread[i], NULL);
  return c->n * c->calls / (bench_now() - t);
}

/* Rate, and p95 of all calls. The marks of the turn before are written behind it. */
static void take_turn(crowd *c, double value[VALUES]) {
  static double at[CALLERS * CALLS];
  int n = 0;
  usleep(SETTLE_US);
  value[RATE] = rate(c);
  for (int i = 0; i < c->n; i++)
    for (int k = 0; k < c->calls; k++)
      at[n++] = c->caller[i].at[k];
  bench_median(at, n); /* sorts */
  value[P95] = at[n * 95 / 100];
}

/* As one node, the threads of an application, or (NULL) a node each. */
static void gather(crowd *c, const char *database, const char *how, const char *id) {
  *c = (crowd){.n = CALLERS, .calls = CALLS};
  c->pid = answerer("mongo-answerer", database, how, ANSWERERS);
  for (int i = 0; i < CALLERS; i++) {
    c->caller[i].db = node(database, how, id);
    c->caller[i].request = prepare(c->caller[i].db, false);
  }
}

static void scatter(crowd *c) {
  for (int i = 0; i < CALLERS; i++) {
    sqlite3_finalize(c->caller[i].request);
    bench_close(c->caller[i].db);
  }
  bench_stop(c->pid);
}

/* Dual beside standard, each as often first as second, for what a turn leaves to be done costs the
 * next: of each value the median of the ratios, and of standard's. */
static void compare(const char *id, double ratio[VALUES], double floor[VALUES]) {
  double of_standard[VALUES][TURNS], ratios[VALUES][TURNS], ours[VALUES], theirs[VALUES];
  crowd dual, standard;
  gather(&dual, "bench_callers_dual", "dualmany", id);
  gather(&standard, "bench_callers_standard", "many", id);
  take_turn(&dual, ours); /* to warm up */
  take_turn(&standard, theirs);
  for (int i = 0; i < TURNS; i++) {
    take_turn(i % 2 ? &standard : &dual, i % 2 ? theirs : ours);
    take_turn(i % 2 ? &dual : &standard, i % 2 ? ours : theirs);
    for (int k = 0; k < VALUES; k++) {
      of_standard[k][i] = theirs[k];
      ratios[k][i] = ours[k] / theirs[k];
    }
  }
  for (int k = 0; k < VALUES; k++) {
    floor[k] = bench_median(of_standard[k], TURNS);
    ratio[k] = bench_median(ratios[k], TURNS);
  }
  scatter(&dual);
  scatter(&standard);
}

void bench_mongo_callers(void) {
  double ratio[VALUES], floor[VALUES];
  crowd all, one = {.n = 1, .calls = CALLS * 5};
  gather(&all, "bench_callers", "many", NULL);
  one.caller[0] = all.caller[0];
  bench_pair("64 callers of msg_request (floor: one caller)", rate, &all, rate, &one, ROUNDS, "/s",
             BENCH_AT_LEAST, 8);
  scatter(&all);
  compare("caller", ratio, floor);
  bench_ratio("64 callers of one node on dual (floor: standard)", ratio[RATE] * floor[RATE],
              floor[RATE], "/s", BENCH_AT_LEAST, 1);
  bench_ratio("64 callers of one node on dual, p95 (floor: standard)", ratio[P95] * floor[P95],
              floor[P95], "ms", BENCH_AT_MOST, 1);
  compare(NULL, ratio, floor);
  bench_ratio("64 callers, a node each, on dual (floor: standard)", ratio[RATE] * floor[RATE],
              floor[RATE], "/s", BENCH_AT_LEAST, 0);
}
