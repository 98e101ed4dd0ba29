/* bench.c - `make bench`: every figure beside its floor. `bench NAME...` runs some: a store, or a
 * name of the table below. The MongoDB part starts three nodes, unless $MSG_TEST_MONGODB_URI has
 * some; they end with it. */
#include "bench/bench.h"

#include "bench/bare.h"

#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char directory[256];
static const char *self;
static int missed;

void bench_die(const char *what, const char *why) {
  fprintf(stderr, "bench: %s: %s\n", what, why);
  exit(1);
}

static void die(const char *what, sqlite3 *db) {
  bench_die(what, db ? sqlite3_errmsg(db) : "failed");
}

double bench_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

double bench_cpu(void) {
  struct rusage u;
  getrusage(RUSAGE_SELF, &u);
  return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
         (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

int64_t bench_epoch_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

const char *bench_path(const char *name) {
  static char path[512];
  if (name[0] == '/')
    return name;
  snprintf(path, sizeof path, "%s/%s", directory, name);
  return path;
}

void bench_exec(sqlite3 *db, const char *sql) {
  if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
    die(sql, db);
}

void bench_load(sqlite3 *db) {
  char *text = NULL;
  sqlite3_enable_load_extension(db, 1);
  if (sqlite3_load_extension(db, MSG_SO_PATH, NULL, &text) != SQLITE_OK)
    die(text ? text : "load", db);
}

sqlite3 *bench_open(const char *name, const char *synchronous, bool product) {
  sqlite3 *db = NULL;
  char sql[96];
  if (sqlite3_open(bench_path(name), &db) != SQLITE_OK)
    die(name, db);
  snprintf(sql, sizeof sql, "PRAGMA journal_mode = wal; PRAGMA synchronous = %s", synchronous);
  bench_exec(db, sql);
  sqlite3_busy_timeout(db, 5000);
  if (!product)
    return db;
  bench_load(db);
  bench_exec(db, "SELECT msg_open('local')");
  return db;
}

void bench_close(sqlite3 *db) {
  if (sqlite3_close(db) != SQLITE_OK)
    die("close", db);
}

void bench_make(const char *name) {
  bench_close(bench_open(name, "NORMAL", true));
}

void bench_make_bare(const char *name) {
  bench_make(name);
  sqlite3 *db = bench_open(name, "NORMAL", false);
  bench_exec(db, BARE_SHAPE);
  bench_close(db);
}

sqlite3_stmt *bench_prepare(sqlite3 *db, const char *sql) {
  sqlite3_stmt *stmt = NULL;
  if (sqlite3_prepare_v3(db, sql, -1, SQLITE_PREPARE_PERSISTENT, &stmt, NULL) != SQLITE_OK)
    die(sql, db);
  return stmt;
}

int bench_run(sqlite3_stmt *stmt) {
  int rc, rows = 0;
  while ((rc = sqlite3_step(stmt)) == SQLITE_ROW)
    rows++;
  if (rc != SQLITE_DONE)
    die(sqlite3_sql(stmt), sqlite3_db_handle(stmt));
  sqlite3_reset(stmt);
  return rows;
}

int64_t bench_int(sqlite3 *db, const char *sql) {
  sqlite3_stmt *stmt = bench_prepare(db, sql);
  if (sqlite3_step(stmt) != SQLITE_ROW)
    die(sql, db);
  int64_t i = sqlite3_column_int64(stmt, 0);
  sqlite3_finalize(stmt);
  return i;
}

const char *bench_id(void) {
  static char id[25];
  static unsigned next;
  snprintf(id, sizeof id, "%08x%08x%08x", (unsigned)time(NULL), 0xbe9c4000u, next++);
  return id;
}

const char *bench_payload(void) {
  static char payload[BENCH_PAYLOAD + 1];
  if (!payload[0])
    memset(payload, 'x', BENCH_PAYLOAD);
  return payload;
}

int bench_spawn(int *fd, const char *role, const char *a, const char *b) {
  int ends[2];
  if (pipe(ends) != 0)
    die("pipe", NULL);
  int pid = fork();
  if (pid < 0)
    die("fork", NULL);
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(ends[1], 1);
    close(ends[0]);
    close(ends[1]);
    execl(self, self, "--role", role, a, b, (char *)NULL);
    _exit(127);
  }
  close(ends[1]);
  *fd = ends[0];
  return pid;
}

void bench_wait(int pid) {
  int status = 0;
  if (waitpid(pid, &status, 0) != pid || status != 0)
    die("child", NULL);
}

void bench_stop(int pid) {
  kill(pid, SIGTERM);
  waitpid(pid, NULL, 0);
}

static const char *verdict(double value, enum bench_sense sense, double target) {
  if (target <= 0)
    return "";
  bool ok = sense == BENCH_AT_LEAST ? value >= target : value <= target;
  missed += !ok;
  return ok ? "ok" : "MISSED";
}

static void line(const char *figure, double ours, double floor, const char *unit, double ratio,
                 const char *want) {
  printf("%-58s %12.6g %12.6g %-6s %7.2f  %s\n", figure, ours, floor, unit, ratio, want);
  fflush(stdout);
}

void bench_ratio(const char *figure, double ours, double floor, const char *unit,
                 enum bench_sense sense, double target) {
  char want[64];
  double ratio = floor > 0 ? ours / floor : 0;
  snprintf(want, sizeof want, "%s %.3g x  %s", sense == BENCH_AT_LEAST ? ">=" : "<=", target,
           verdict(ratio, sense, target));
  line(figure, ours, floor, unit, ratio, target > 0 ? want : "");
}

void bench_absolute(const char *figure, double ours, double floor, const char *unit,
                    enum bench_sense sense, double target) {
  char want[64];
  snprintf(want, sizeof want, "%s %.3g %s  %s", sense == BENCH_AT_LEAST ? ">=" : "<=", target, unit,
           verdict(ours, sense, target));
  line(figure, ours, floor, unit, floor > 0 ? ours / floor : 0, want);
}

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

double bench_median(double *at, int n) {
  qsort(at, (size_t)n, sizeof *at, compare);
  return n % 2 ? at[n / 2] : (at[n / 2 - 1] + at[n / 2]) / 2;
}

void bench_pair(const char *figure, bench_work ours, void *a, bench_work bare, void *b, int rounds,
                const char *unit, enum bench_sense sense, double target) {
  double floor[32], ratio[32];
  ours(a);
  bare(b);
  for (int i = 0; i < rounds; i++) {
    double x = ours(a);
    floor[i] = bare(b);
    ratio[i] = x / floor[i];
  }
  double f = bench_median(floor, rounds);
  bench_ratio(figure, bench_median(ratio, rounds) * f, f, unit, sense, target);
}

/* ---- which ---- */

#ifdef MSG_HAVE_MONGODB
#define MONGO(f) f
enum { HAVE_MONGODB = 1 };
#else
#define MONGO(f) NULL
enum { HAVE_MONGODB = 0 };
#endif

static const struct {
  const char *store, *name;
  void (*run)(void); /* NULL: built without */
} benches[] = {{"local", "local_send", bench_local_send},
               {"local", "local_claim", bench_local_claim},
               {"local", "local_depth", bench_local_depth},
               {"local", "local_await", bench_local_await},
               {"local", "local_wait", bench_local_wait},
               {"mongo", "mongo_request", MONGO(bench_mongo_request)},
               {"mongo", "mongo_callers", MONGO(bench_mongo_callers)},
               {"mongo", "mongo_send", MONGO(bench_mongo_send)},
               {"mongo", "mongo_threads", MONGO(bench_mongo_threads)},
               {"mongo", "mongo_claim", MONGO(bench_mongo_claim)},
               {"mongo", "mongo_calls", MONGO(bench_mongo_calls)},
               {"mongo", "mongo_idle", MONGO(bench_mongo_idle)},
               {"mongo", "mongo_topics", MONGO(bench_mongo_topics)},
               {"mongo", "mongo_depth", MONGO(bench_mongo_depth)}};

static const struct {
  const char *name;
  bench_role run;
} roles[] = {{"waiter", bench_role_waiter},
             {"bare-waiter", bench_role_bare_waiter},
             {"idle", bench_role_idle},
             {"bare-idle", bench_role_bare_idle},
             {"memory", bench_role_memory},
             {"mongo-answerer", MONGO(bench_role_mongo_answerer)},
             {"mongo-bare-answerer", MONGO(bench_role_mongo_bare_answerer)},
             {"mongo-receiver", MONGO(bench_role_mongo_receiver)},
             {"mongo-topics", MONGO(bench_role_mongo_topics)},
             {"mongo-bare-topics", MONGO(bench_role_mongo_bare_topics)}};

static int play(int argc, char **argv) {
  for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
    if (!strcmp(argv[2], roles[i].name) && roles[i].run)
      return roles[i].run(argc - 3, argv + 3);
  return 127;
}

static bool is_wanted(size_t bench, int argc, char **argv) {
  for (int i = 1; i < argc; i++)
    if (!strcmp(argv[i], benches[bench].name) || !strcmp(argv[i], benches[bench].store))
      return true;
  return argc < 2;
}

/* The first argument that names none. */
static const char *unknown(int argc, char **argv) {
  for (int i = 1; i < argc; i++) {
    char *alone[] = {argv[0], argv[i]};
    size_t n = sizeof benches / sizeof *benches, bench = 0;
    while (bench < n && !is_wanted(bench, 2, alone))
      bench++;
    if (bench == n)
      return argv[i];
  }
  return NULL;
}

static int refuse(const char *name) {
  fprintf(stderr, "no bench '%s': there are local, mongo", name);
  for (size_t i = 0; i < sizeof benches / sizeof *benches; i++)
    fprintf(stderr, ", %s", benches[i].name);
  fputs("\n", stderr);
  return 2;
}

static bool any_wanted(const char *store, int argc, char **argv) {
  for (size_t i = 0; i < sizeof benches / sizeof *benches; i++)
    if (!strcmp(benches[i].store, store) && is_wanted(i, argc, argv))
      return true;
  return false;
}

static void run(const char *store, int argc, char **argv) {
  for (size_t i = 0; i < sizeof benches / sizeof *benches; i++)
    if (!strcmp(benches[i].store, store) && is_wanted(i, argc, argv))
      benches[i].run();
}

/* ---- the servers ---- */

static void leave_out(const char *why, int argc, char **argv) {
  printf("left out, %s:", why);
  for (size_t i = 0; i < sizeof benches / sizeof *benches; i++)
    if (!strcmp(benches[i].store, "mongo") && is_wanted(i, argc, argv))
      printf(" %s", benches[i].name);
  puts("");
}

/* Three nodes, which end with this process, on the disk as a user's are. Their URI goes into the
 * environment; false: none. */
static bool start_servers(int *pid) {
  int ends[2];
  char uri[512] = "";
  if (pipe(ends) != 0 || (*pid = fork()) < 0)
    die("start servers", NULL);
  if (*pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    dup2(ends[1], 1);
    close(ends[0]);
    close(ends[1]);
    setenv("MSG_BUILD", BENCH_BUILD, 1);
    execl(BENCH_PYTHON, BENCH_PYTHON, BENCH_MONGOD, "serve", "--nodes", "3", "--data", directory,
          (char *)NULL);
    _exit(127);
  }
  close(ends[1]);
  FILE *in = fdopen(ends[0], "r");
  bool up = in && fgets(uri, sizeof uri, in);
  uri[strcspn(uri, "\n")] = 0;
  return up && setenv("MSG_TEST_MONGODB_URI", uri, 1) == 0;
}

static void run_mongo(int argc, char **argv) {
  int pid = 0;
  if (!HAVE_MONGODB)
    leave_out("built without libmongoc", argc, argv);
  else if (getenv("MSG_TEST_MONGODB_URI"))
    run("mongo", argc, argv);
  else if (!start_servers(&pid))
    leave_out("no mongod", argc, argv);
  else
    run("mongo", argc, argv);
  if (pid)
    bench_stop(pid);
}

static void head(const char *where, const char *floor) {
  printf("\nsqlite-msg %s; %d-byte payloads; floor: %s, same run\n\n", where, BENCH_PAYLOAD, floor);
  printf("%-58s %12s %12s %-6s %7s  %s\n", "figure", "ours", "floor", "", "ratio", "to reach");
}

static void run_wanted(int argc, char **argv) {
  if (any_wanted("local", argc, argv)) {
    head("on SQLite " SQLITE_VERSION, "bare statements (bare.h)");
    run("local", argc, argv);
  }
  if (any_wanted("mongo", argc, argv)) {
    head("on MongoDB, 3 nodes", "bare libmongoc with the same documents and indexes");
    run_mongo(argc, argv);
  }
}

int main(int argc, char **argv) {
  self = "/proc/self/exe";
  if (argc >= 3 && !strcmp(argv[1], "--role"))
    return play(argc, argv);
  if (unknown(argc, argv))
    return refuse(unknown(argc, argv));
  /* Where malloc gives its top back to the system and takes it again with every statement that has
   * a temporary table, which is luck of the layout, the bare claim takes twice as long. */
  mallopt(M_TRIM_THRESHOLD, 64 << 20);
  const char *root = getenv("BENCH_DIR") ? getenv("BENCH_DIR")
                     : getenv("TMPDIR")  ? getenv("TMPDIR")
                                         : "/tmp";
  snprintf(directory, sizeof directory, "%s/msg-bench-XXXXXX", root);
  if (!mkdtemp(directory))
    die("mkdtemp", NULL);
  run_wanted(argc, argv);
  printf("\n%d missed\n", missed);
  char command[300];
  snprintf(command, sizeof command, "rm -rf '%s'", directory);
  return system(command) == 0 ? 0 : 1;
}
