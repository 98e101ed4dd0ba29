/* local_send.c - sending, one and a hundred a transaction. The floor writes the same rows of the
 * same tables: an exclusive message is a row of two. */
#include <stdio.h>

#include "bench/bare.h"
#include "bench/bench.h"

enum { ROUNDS = 9, SINGLES = 400, HUNDREDS = 40 };

typedef struct side {
  sqlite3 *db;
  sqlite3_stmt *send, *ready; /* ready: the floor's, of exclusive messages */
  bool product;
} side;

static void send_one(side *s, int exclusive) {
  if (s->product) {
    sqlite3_bind_text(s->send, 1, bench_payload(), BENCH_PAYLOAD, SQLITE_STATIC);
  } else {
    int64_t now = bench_epoch_ms();
    sqlite3_bind_text(s->send, 1, bench_id(), -1, SQLITE_TRANSIENT);
    sqlite3_bind_text(s->send, 2, "orders", -1, SQLITE_STATIC);
    sqlite3_bind_int(s->send, 3, exclusive ? 1 : 8);
    sqlite3_bind_int64(s->send, 4, now);
    sqlite3_bind_int(s->send, 5, exclusive);
    if (exclusive)
      sqlite3_bind_null(s->send, 6);
    else
      sqlite3_bind_int64(s->send, 6, now + 30000);
    sqlite3_bind_text(s->send, 7, bench_payload(), BENCH_PAYLOAD, SQLITE_STATIC);
  }
  bench_run(s->send);
  if (s->ready) {
    sqlite3_bind_text(s->ready, 1, "orders", -1, SQLITE_STATIC);
    sqlite3_bind_int64(s->ready, 2, bench_epoch_ms());
    sqlite3_bind_int64(s->ready, 3, sqlite3_last_insert_rowid(s->db));
    bench_run(s->ready);
  }
}

static double rate(side *s, int exclusive, int transactions, int batch) {
  double t = bench_now();
  for (int i = 0; i < transactions; i++) {
    if (batch > 1 || s->ready)
      bench_exec(s->db, "BEGIN IMMEDIATE");
    for (int j = 0; j < batch; j++)
      send_one(s, exclusive);
    if (batch > 1 || s->ready)
      bench_exec(s->db, "COMMIT");
  }
  return (double)transactions * batch / (bench_now() - t);
}

static void pair(const char *synchronous, int exclusive, int batch, double target) {
  char name[64], bare_name[80], figure[96];
  side ours, bare;
  snprintf(name, sizeof name, "send-%s-%d-%d.db", synchronous, exclusive, batch);
  snprintf(bare_name, sizeof bare_name, "bare-%s", name);
  bench_make(bare_name);
  ours = (side){.db = bench_open(name, synchronous, true), .product = true};
  bare = (side){.db = bench_open(bare_name, synchronous, false)};
  ours.send = bench_prepare(ours.db, exclusive ? "SELECT msg_enqueue('orders', ?1)"
                                               : "SELECT msg_send('orders', ?1)");
  bare.send = bench_prepare(bare.db, BARE_INSERT);
  bare.ready = exclusive ? bench_prepare(bare.db, BARE_READY) : NULL;
  int transactions = batch > 1 ? HUNDREDS : SINGLES;
  double a[ROUNDS], b[ROUNDS], ratio[ROUNDS];
  rate(&ours, exclusive, transactions, batch);
  rate(&bare, exclusive, transactions, batch);
  for (int i = 0; i < ROUNDS; i++) {
    a[i] = rate(&ours, exclusive, transactions, batch);
    b[i] = rate(&bare, exclusive, transactions, batch);
    ratio[i] = a[i] / b[i];
  }
  snprintf(figure, sizeof figure, "%s, %d a transaction, synchronous=%s",
           exclusive ? "msg_enqueue" : "msg_send", batch, synchronous);
  double median = bench_median(ratio, ROUNDS), floor = bench_median(b, ROUNDS);
  bench_ratio(figure, median * floor, floor, "/s", BENCH_AT_LEAST, target);
  sqlite3_finalize(ours.send);
  sqlite3_finalize(bare.send);
  sqlite3_finalize(bare.ready);
  bench_close(ours.db);
  bench_close(bare.db);
}

void bench_local_send(void) {
  for (int full = 1; full >= 0; full--)
    for (int exclusive = 1; exclusive >= 0; exclusive--) {
      pair(full ? "FULL" : "NORMAL", exclusive, 1, 0.9);
      pair(full ? "FULL" : "NORMAL", exclusive, 100, 0.8);
    }
}
