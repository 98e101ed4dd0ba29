/* local_await.c - a broadcast await with 100,000 live messages: all unseen, and all seen but the
 * newest. */
#include <stdio.h>

#include "bench/bench.h"

enum { LIVE = 100000, AWAITS = 300 };

static void fill(sqlite3 *db) {
  char *sql = sqlite3_mprintf(
      "WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i + 1 FROM n WHERE i < %d)"
      " INSERT INTO msg_store_message(id, queue, topic, state, priority, deliver_at, delete_at, "
      "sender, exclusive, timestamp, ttl,"
      " timing_out, value) SELECT printf('%%024x', i), 'msg', 'news', 8, 1000, 1000000 + i, "
      "4000000000000, 'bench', 0, 1000000 + i,"
      " 0, 1, '%s' FROM n",
      LIVE, bench_payload());
  bench_exec(db, sql);
  sqlite3_free(sql);
}

/* The floor: read one row by its key and record that it was seen. */
static double bare(sqlite3 *db) {
  static double at[AWAITS];
  sqlite3_stmt *get =
      bench_prepare(db, "SELECT id, topic, value FROM msg_store_message WHERE seq = ?1");
  sqlite3_stmt *mark =
      bench_prepare(db, "INSERT INTO msg_store_seen(queue, node, seq) VALUES('msg', 'bench', ?1)");
  for (int i = 0; i < AWAITS; i++) {
    double t = bench_now();
    sqlite3_bind_int(get, 1, i + 1);
    bench_run(get);
    sqlite3_bind_int(mark, 1, i + 1);
    bench_run(mark);
    at[i] = (bench_now() - t) * 1e6;
  }
  sqlite3_finalize(get);
  sqlite3_finalize(mark);
  return bench_median(at, AWAITS);
}

static double awaits(sqlite3 *db, sqlite3 *sender) {
  static double at[AWAITS];
  sqlite3_stmt *await = bench_prepare(db, "SELECT id, topic, value FROM msg_await('news', 0, 1)");
  sqlite3_stmt *send = sender ? bench_prepare(sender, "SELECT msg_send('news', 'x')") : NULL;
  if (sender)
    bench_run(await); /* listens from here on */
  for (int i = 0; i < AWAITS; i++) {
    if (send)
      bench_run(send);
    double t = bench_now();
    int rows = bench_run(await);
    at[i] = rows == 1 ? (bench_now() - t) * 1e6 : 1e12;
  }
  sqlite3_finalize(await);
  sqlite3_finalize(send);
  return bench_median(at, AWAITS);
}

void bench_local_await(void) {
  sqlite3 *db = bench_open("await.db", "NORMAL", true);
  fill(db);
  sqlite3 *plain = bench_open("await.db", "NORMAL", false);
  double floor = bare(plain);
  bench_close(plain);
  bench_exec(db,
             "SELECT msg_open('local', '{\"sender_id\":\"reader\"}')"); /* a given id catches up */
  double unseen = awaits(db, NULL);
  bench_close(db);
  db = bench_open("await.db", "NORMAL", true);
  sqlite3 *sender = bench_open("await.db", "NORMAL", true);
  double seen = awaits(db, sender);
  bench_close(sender);
  bench_close(db);
  bench_absolute("await, 100,000 live, all unseen", unseen, floor, "us", BENCH_AT_MOST, 500);
  bench_absolute("await, 100,000 live, one new", seen, floor, "us", BENCH_AT_MOST, 500);
}
