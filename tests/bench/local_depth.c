/* local_depth.c - a claim of 10 with a thousand and with a million messages waiting, in four
 * shapes. */
#include <stdio.h>

#include "bench/bench.h"

enum { CLAIMS = 200, READY = 10000 };

typedef struct shape {
  const char *name;
  /* %d: how many stand in front; the columns state, priority, deliver_at, due, delete_at, grp */
  const char *rows;
} shape;

#define FRONT(state, deliver_at, due, delete_at, grp)                                              \
  "WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i + 1 FROM n WHERE i < %d)"                  \
  " INSERT INTO msg_store_message(id, queue, topic, state, priority, deliver_at, due, delete_at, " \
  "grp, sender,"                                                                                   \
  " exclusive, timestamp, ttl, timing_out, value) SELECT printf('aa%%022x', i), 'msg', "           \
  "'orders', " state ", 1, " deliver_at ", " due ", " delete_at ", " grp                           \
  ", 'bench', 1, 1000000 + i, 0, 0, '%s' FROM n"

static const shape shapes[] = {
    {"all ready", FRONT("1", "1000000 + i", "NULL", "NULL", "NULL")},
    {"delayed in front", FRONT("4", "4000000000000 + i", "4000000000000 + i", "NULL", "NULL")},
    {"expired in front", FRONT("2", "1000000 + i", "NULL", "2000000 + i", "NULL")},
    {"one busy group in front",
     FRONT("CASE WHEN i = 1 THEN 6 ELSE 5 END", "1000000 + i", "NULL", "NULL", "'g'")},
};

/* Behind them: enough ready ones for every claim. */
static void fill(sqlite3 *db, const shape *s, int front) {
  char *sql = sqlite3_mprintf(s->rows, front, bench_payload());
  bench_exec(db, sql);
  sqlite3_free(sql);
  sql = sqlite3_mprintf(
      "WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i + 1 FROM n WHERE i < %d)"
      " INSERT INTO msg_store_message(id, queue, topic, state, priority, deliver_at, sender, "
      "exclusive,"
      " timestamp, ttl, timing_out, value)"
      " SELECT printf('bb%%022x', i), 'msg', 'orders', 1, 1000, 1000000 + i, 'bench', 1, 1000000 + "
      "i, 0, 0, '%s' FROM n",
      READY, bench_payload());
  bench_exec(db, sql);
  sqlite3_free(sql);
  bench_exec(db,
             "INSERT INTO msg_store_claim VALUES((1 << 63) | (4000000000000 << 16), NULL, NULL, "
             "'elsewhere', 'x', 'elsewhere', 0, 1, 1, 1)");
  bench_exec(db, "INSERT INTO msg_store_claim(seq, lease, attempts) SELECT seq, "
                 "(1 << 63) | (4000000000000 << 16), 1 FROM msg_store_message WHERE state = 6");
  bench_exec(db, "INSERT INTO msg_store_ready SELECT queue, topic, priority, deliver_at, seq FROM "
                 "msg_store_message WHERE state = 1");
  bench_exec(db, "PRAGMA wal_checkpoint(TRUNCATE)");
}

/* One claim of ten, in us. */
static double claim(sqlite3_stmt *claim) {
  double t = bench_now();
  int rows = bench_run(claim);
  return rows == 10 ? (bench_now() - t) * 1e6 : 1e12;
}

/* In turn on either, so that what else runs tells on both. */
static void compare(const shape *s, const char *figure) {
  static double at[2][CLAIMS];
  sqlite3 *db[2];
  sqlite3_stmt *stmt[2];
  for (int big = 0; big < 2; big++) {
    char name[64];
    snprintf(name, sizeof name, "depth-%d.db", big);
    db[big] = bench_open(name, "NORMAL", true);
    fill(db[big], s, big ? 1000000 : 1000);
    stmt[big] = bench_prepare(db[big], "SELECT id, value FROM msg_claim('orders', 10)");
  }
  for (int i = -20; i < CLAIMS; i++)
    for (int big = 0; big < 2; big++) {
      double us = claim(stmt[big]);
      if (i >= 0)
        at[big][i] = us;
    }
  bench_ratio(figure, bench_median(at[1], CLAIMS), bench_median(at[0], CLAIMS), "us", BENCH_AT_MOST,
              1.5);
  for (int big = 0; big < 2; big++) {
    char name[64];
    sqlite3_finalize(stmt[big]);
    bench_close(db[big]);
    snprintf(name, sizeof name, "depth-%d.db", big);
    remove(bench_path(name));
  }
}

void bench_local_depth(void) {
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    char figure[96];
    snprintf(figure, sizeof figure, "claim of 10: 1,000,000 against 1,000, %s", shapes[i].name);
    compare(&shapes[i], figure);
  }
}
