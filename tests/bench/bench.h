/* bench.h - what the benchmarks share: databases, clocks, and the report that sets each figure
 * beside its floor.
 *
 * A floor is the same work in bare SQLite statements on a table of the same columns and indexes
 * (bare.h), or in bare libmongoc calls on the product's own collections and indexes, measured in
 * turn with the product in the same run. */
#ifndef BENCH_H
#define BENCH_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

#define BENCH_PAYLOAD 256 /* bytes of a message's value */

/* ---- clocks ---- */
double bench_now(void); /* monotonic seconds */
double bench_cpu(void); /* CPU seconds of this process, user and system */
int64_t bench_epoch_ms(void);

/* ---- databases (a fresh file each; WAL) ---- */
/** Open `name` in the run's directory. product: load msg.so and open the node; else bare. Dies with
 *  a message on failure. */
sqlite3 *bench_open(const char *name, const char *synchronous, bool product);
void bench_load(sqlite3 *db); /* msg.so */
/** Make `name` with the product's schema and leave it closed. */
void bench_make(const char *name);
/** The same for a floor: of the shape of bare.h. */
void bench_make_bare(const char *name);
void bench_close(sqlite3 *db);
const char *bench_path(const char *name);
void bench_exec(sqlite3 *db, const char *sql);
sqlite3_stmt *bench_prepare(sqlite3 *db, const char *sql);
/** Step to completion and reset; returns the number of rows. */
int bench_run(sqlite3_stmt *stmt);
int64_t bench_int(sqlite3 *db, const char *sql);
/** The next id for bare rows: 24 hex digits, static. */
const char *bench_id(void);
const char *bench_payload(void);

/* ---- children: this program again, in a role ---- */
typedef int (*bench_role)(int argc, char **argv);
/** Start `bench --role NAME args...`; its standard output is read from *fd. */
int bench_spawn(int *fd, const char *role, const char *a, const char *b);
void bench_wait(int pid);
/** End it by SIGTERM, and wait. */
void bench_stop(int pid);
/** An error ends the run. */
_Noreturn void bench_die(const char *what, const char *why);

/* ---- report ---- */
enum bench_sense { BENCH_AT_LEAST, BENCH_AT_MOST };
/** One line: figure, ours, floor, ratio and what to reach (as a ratio; 0: none). unit e.g. "/s". */
void bench_ratio(const char *figure, double ours, double floor, const char *unit, enum bench_sense,
                 double target);
/** A figure whose target is absolute; floor is printed beside it. */
void bench_absolute(const char *figure, double ours, double floor, const char *unit,
                    enum bench_sense, double target);
double bench_median(double *at, int n);
/** The two in turn, once to warm up and then `rounds` (at most 32) times: the line of the median
 *  ratio and the floor's median. */
typedef double (*bench_work)(void *arg);
void bench_pair(const char *figure, bench_work ours, void *a, bench_work bare, void *b, int rounds,
                const char *unit, enum bench_sense, double target);

/* ---- the benchmarks ---- */
void bench_local_send(void);
void bench_local_claim(void);
void bench_local_depth(void);
void bench_local_await(void);
void bench_local_wait(void);
int bench_role_waiter(int argc, char **argv);
int bench_role_bare_waiter(int argc, char **argv);
int bench_role_idle(int argc, char **argv);
int bench_role_bare_idle(int argc, char **argv);
int bench_role_memory(int argc, char **argv);
void bench_mongo_request(void);
void bench_mongo_callers(void);
void bench_mongo_send(void);
void bench_mongo_threads(void);
void bench_mongo_claim(void);
void bench_mongo_calls(void);
void bench_mongo_idle(void);
void bench_mongo_depth(void);
void bench_mongo_topics(void);
int bench_role_mongo_answerer(int argc, char **argv);
int bench_role_mongo_bare_answerer(int argc, char **argv);
int bench_role_mongo_receiver(int argc, char **argv);
int bench_role_mongo_topics(int argc, char **argv);
int bench_role_mongo_bare_topics(int argc, char **argv);

#endif
