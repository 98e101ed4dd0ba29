/* local_wait.c - waiting: wake of another process, and what an idle waiter costs. */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "bench/bench.h"

enum { WAKES = 200, IDLE_S = 10, IDLE_RUNS = 3, IDLE_WAITERS = 50 };

/* ---- wake: the sender puts its monotonic time into the message ---- */
int bench_role_waiter(int argc, char **argv) {
  (void)argc;
  sqlite3 *db = bench_open(argv[0], "NORMAL", true);
  sqlite3_stmt *await = bench_prepare(db, "SELECT value FROM msg_await('wake', 5000, 1)");
  bench_exec(db, "SELECT msg_listen('wake')");
  puts("ready");
  fflush(stdout);
  for (int i = 0; i < WAKES; i++) {
    if (sqlite3_step(await) != SQLITE_ROW)
      return 1;
    printf("%.9f\n", bench_now() - sqlite3_column_double(await, 0));
    fflush(stdout);
    sqlite3_reset(await);
  }
  sqlite3_finalize(await);
  bench_close(db);
  return 0;
}

/* The floor: inotify on the WAL by hand, then one statement. */
int bench_role_bare_waiter(int argc, char **argv) {
  (void)argc;
  sqlite3 *db = bench_open(argv[0], "NORMAL", false);
  sqlite3_stmt *get =
      bench_prepare(db, "SELECT value FROM msg_store_message ORDER BY seq DESC LIMIT 1");
  char wal[600], events[4096];
  snprintf(wal, sizeof wal, "%s-wal", argv[0]);
  bench_run(get);
  int fd = inotify_init();
  if (inotify_add_watch(fd, wal, IN_MODIFY) < 0)
    return 1;
  puts("ready");
  fflush(stdout);
  double last = 0;
  for (int i = 0; i < WAKES;) {
    struct pollfd word = {.fd = fd, .events = POLLIN};
    /* The commit shows after the last word of it: look again. */
    if (poll(&word, 1, 1) > 0 && read(fd, events, sizeof events) <= 0)
      return 1;
    double sent = sqlite3_step(get) == SQLITE_ROW ? sqlite3_column_double(get, 0) : 0;
    sqlite3_reset(get);
    if (sent <= last)
      continue;
    last = sent;
    i++;
    printf("%.9f\n", bench_now() - sent);
    fflush(stdout);
  }
  sqlite3_finalize(get);
  bench_close(db);
  return 0;
}

static double wake(const char *role, double *worst) {
  static double at[WAKES];
  char path[512], text[64];
  snprintf(path, sizeof path, "%s", bench_path("wake.db"));
  sqlite3 *db = bench_open(path, "NORMAL", true);
  sqlite3_stmt *send = bench_prepare(db, "SELECT msg_send('wake', ?1)");
  int fd, pid = bench_spawn(&fd, role, path, NULL);
  FILE *in = fdopen(fd, "r");
  if (!in || !fgets(text, sizeof text, in))
    return -1;
  for (int i = 0; i < WAKES; i++) {
    usleep(5000);
    sqlite3_bind_double(send, 1, bench_now());
    bench_run(send);
    at[i] = fgets(text, sizeof text, in) ? strtod(text, NULL) * 1e3 : 1e9;
  }
  bench_wait(pid);
  fclose(in);
  sqlite3_finalize(send);
  bench_close(db);
  double median = bench_median(at, WAKES);
  *worst = at[WAKES * 99 / 100];
  return median;
}

/* ---- idle ---- */
typedef struct idling {
  char *path;
  int seconds;
  sqlite3 *db; /* open when the thread ends */
} idling;

static void *idle_waiter(void *arg) {
  idling *i = arg;
  char sql[64];
  i->db = bench_open(i->path, "NORMAL", true);
  snprintf(sql, sizeof sql, "SELECT msg_await('idle', %d)", i->seconds * 1000);
  bench_exec(i->db, "SELECT msg_await('idle', 0)");
  bench_exec(i->db, sql);
  return NULL;
}

/* Of one that has been waiting for a second, by a thread that only sleeps. */
int bench_role_idle(int argc, char **argv) {
  pthread_t thread;
  idling one = {.path = argv[0], .seconds = IDLE_S + 2};
  (void)argc;
  if (pthread_create(&thread, NULL, idle_waiter, &one) != 0)
    bench_die("idle", "no thread");
  sleep(1);
  double cpu = bench_cpu();
  sleep(IDLE_S);
  printf("%.6f\n", (bench_cpu() - cpu) * 1000 / IDLE_S);
  pthread_join(thread, NULL);
  bench_close(one.db);
  return 0;
}

int bench_role_bare_idle(int argc, char **argv) {
  (void)argc;
  sqlite3 *db = bench_open(argv[0], "NORMAL", false);
  double cpu = bench_cpu();
  for (int i = 0; i < IDLE_S * 20; i++)
    usleep(50000);
  printf("%.6f\n", (bench_cpu() - cpu) * 1000 / IDLE_S);
  bench_close(db);
  return 0;
}

static double resident_mib(void) {
  long pages = 0;
  FILE *f = fopen("/proc/self/statm", "r");
  if (!f || fscanf(f, "%*d %ld", &pages) != 1)
    return -1;
  fclose(f);
  return (double)pages * (double)sysconf(_SC_PAGESIZE) / 1048576;
}

/* argv[1] "bare" or "node": resident memory of a process with the file open, after one read. */
int bench_role_memory(int argc, char **argv) {
  (void)argc;
  bool node = !strcmp(argv[1], "node");
  sqlite3 *db = bench_open(argv[0], "NORMAL", node);
  if (node) {
    bench_exec(db, "SELECT msg_listen('idle')");
    bench_exec(db, "SELECT msg_await('idle', 300)");
  } else {
    bench_exec(db, "SELECT count(*) FROM msg_store_message; SELECT * FROM msg_store_node");
    bench_exec(db, "BEGIN IMMEDIATE; UPDATE msg_store SET version = version; COMMIT");
  }
  printf("%.6f\n", resident_mib());
  bench_close(db);
  return 0;
}

static double child_figure(const char *role, const char *path, const char *arg) {
  char text[64] = "";
  int fd, pid = bench_spawn(&fd, role, path, arg);
  FILE *in = fdopen(fd, "r");
  if (in && fgets(text, sizeof text, in))
    text[sizeof text - 1] = 0;
  bench_wait(pid);
  if (in)
    fclose(in);
  return strtod(text, NULL);
}

/* Commits seen by another connection while 50 waiters of one process wait. */
static double idle_writes(char *path) {
  pthread_t thread[IDLE_WAITERS];
  idling waiter[IDLE_WAITERS];
  for (int i = 0; i < IDLE_WAITERS; i++) {
    waiter[i] = (idling){.path = path, .seconds = 4};
    if (pthread_create(&thread[i], NULL, idle_waiter, &waiter[i]) != 0)
      abort();
  }
  sleep(2);
  sqlite3 *db = bench_open(path, "NORMAL", false);
  int64_t before = bench_int(db, "PRAGMA data_version");
  sleep(2);
  int64_t after = bench_int(db, "PRAGMA data_version");
  for (int i = 0; i < IDLE_WAITERS; i++) {
    pthread_join(thread[i], NULL);
    bench_close(waiter[i].db);
  }
  bench_close(db);
  return (double)(after - before);
}

void bench_local_wait(void) {
  double worst, bare_worst, floor = wake("bare-waiter", &bare_worst), ours = wake("waiter", &worst);
  bench_absolute("wake of another process, p50", ours, floor, "ms", BENCH_AT_MOST, 2);
  bench_ratio("wake of another process, p99", worst, bare_worst, "ms", BENCH_AT_MOST, 0);
  char path[512];
  snprintf(path, sizeof path, "%s", bench_path("idle.db"));
  bench_make(path);
  double idle[IDLE_RUNS], bare_idle[IDLE_RUNS]; /* in turn: what else runs tells on both */
  for (int i = 0; i < IDLE_RUNS; i++) {
    bare_idle[i] = child_figure("bare-idle", path, NULL);
    idle[i] = child_figure("idle", path, NULL);
  }
  bench_absolute("idle waiter, CPU", bench_median(idle, IDLE_RUNS),
                 bench_median(bare_idle, IDLE_RUNS), "ms/s", BENCH_AT_MOST, 1);
  double bare_memory = child_figure("memory", path, "bare"),
         memory = child_figure("memory", path, "node");
  bench_absolute("idle node, memory beyond a bare connection", memory - bare_memory, bare_memory,
                 "MiB", BENCH_AT_MOST, 2);
  bench_absolute("50 idle waiters, commits in 2 s", idle_writes(path), 0, "", BENCH_AT_MOST, 1e-9);
}
