/* local_claim.c - claim and acknowledge, one and a hundred at a time. */
#include <stdio.h>
#include <string.h>

#include "bench/bare.h"
#include "bench/bench.h"

enum { ROUNDS = 9, SINGLES = 400, HUNDREDS = 40, LEASE = 20000000 };

static const char *const fill =
    "WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i + 1 FROM n WHERE i < %d)"
    " INSERT INTO msg_store_message(id, queue, topic, state, priority, deliver_at, sender, "
    "sender_host, exclusive,"
    " timestamp, ttl, timing_out, value) SELECT printf('%%024x', i), 'msg', 'orders', 1, 1000, "
    "1000000 + i, 'bench',"
    " 'host', 1, 1000000 + i, 0, 0, '%s' FROM n";

static const char *const ready = "INSERT INTO msg_store_ready SELECT queue, topic, priority, "
                                 "deliver_at, seq FROM msg_store_message";

#define CLAIM_ROWS "SELECT id, value FROM msg_claim('orders', ?3)"
#define CLAIM_JSON "SELECT msg_claim('orders')"
#define JSON_ID    "{\"id\":\"" /* how its result begins */

typedef struct side {
  sqlite3 *db;
  sqlite3_stmt *claim, *ack;
  bool product;
} side;

/* claim: the product's statement, NULL for the floor's. */
static void open_side(side *s, const char *name, const char *synchronous, const char *claim,
                      int rows) {
  bool product = claim != NULL;
  char *sql = sqlite3_mprintf(fill, rows, bench_payload());
  (product ? bench_make : bench_make_bare)(name);
  s->product = product;
  s->db = bench_open(name, synchronous, product);
  bench_exec(s->db, sql);
  if (product)
    bench_exec(s->db, ready);
  sqlite3_free(sql);
  s->claim = bench_prepare(s->db, product ? claim : BARE_CLAIM);
  s->ack = bench_prepare(s->db, product ? "SELECT msg_ack(?1)" : BARE_ACK);
}

static void close_side(side *s) {
  sqlite3_finalize(s->claim);
  sqlite3_finalize(s->ack);
  bench_close(s->db);
}

static int claim(side *s, int count, char *ids) {
  int n = 0, rc;
  if (!s->product) {
    sqlite3_bind_text(s->claim, 1, "orders", -1, SQLITE_STATIC);
    sqlite3_bind_int64(s->claim, 2, LEASE);
  }
  sqlite3_bind_int(s->claim, 3, count);
  while ((rc = sqlite3_step(s->claim)) == SQLITE_ROW) {
    const char *id = (const char *)sqlite3_column_text(s->claim, 0);
    if (strncmp(id, JSON_ID, sizeof JSON_ID - 1) == 0)
      id += sizeof JSON_ID - 1;
    ids += snprintf(ids, 32, "%s\"%.24s\"", n++ ? "," : "[", id);
  }
  strcpy(ids, "]");
  sqlite3_reset(s->claim);
  return rc == SQLITE_DONE ? n : -1;
}

/* Both sides settle singly; a batch is the product's own (the floor of the batch is the insert
 * rate). */
static double singles(side *s, int count) {
  char ids[64];
  double t = bench_now();
  for (int i = 0; i < count; i++) {
    if (claim(s, 1, ids) != 1)
      return 0;
    ids[26] = 0;
    sqlite3_bind_text(s->ack, 1, ids + 2, 24, SQLITE_STATIC);
    if (!s->product)
      sqlite3_bind_int64(s->ack, 2, LEASE);
    bench_run(s->ack);
  }
  return count / (bench_now() - t);
}

static double hundreds(side *s, int batches) {
  char ids[100 * 32];
  double t = bench_now();
  for (int i = 0; i < batches; i++) {
    if (claim(s, 100, ids) != 100)
      return 0;
    sqlite3_bind_text(s->ack, 1, ids, -1, SQLITE_STATIC);
    bench_run(s->ack);
  }
  return batches * 100 / (bench_now() - t);
}

static double inserts(sqlite3 *db, int count) {
  sqlite3_stmt *insert = bench_prepare(db, BARE_INSERT);
  double t = bench_now();
  bench_exec(db, "BEGIN IMMEDIATE");
  for (int i = 0; i < count; i++) {
    sqlite3_bind_text(insert, 1, bench_id(), -1, SQLITE_TRANSIENT);
    sqlite3_bind_text(insert, 2, "other", -1, SQLITE_STATIC);
    sqlite3_bind_int(insert, 3, 1);
    sqlite3_bind_int64(insert, 4, bench_epoch_ms());
    sqlite3_bind_int(insert, 5, 1);
    sqlite3_bind_text(insert, 7, bench_payload(), BENCH_PAYLOAD, SQLITE_STATIC);
    bench_run(insert);
  }
  bench_exec(db, "COMMIT");
  t = bench_now() - t;
  sqlite3_finalize(insert);
  return count / t;
}

static void single_pair(const char *synchronous, const char *statement, const char *form) {
  double a[ROUNDS], b[ROUNDS], ratio[ROUNDS];
  char figure[96];
  side ours, bare;
  snprintf(figure, sizeof figure, "claim-%s-%s.db", form, synchronous);
  open_side(&ours, figure, synchronous, statement, (ROUNDS + 1) * SINGLES);
  snprintf(figure, sizeof figure, "bare-claim-%s-%s.db", form, synchronous);
  open_side(&bare, figure, synchronous, NULL, (ROUNDS + 1) * SINGLES);
  singles(&ours, SINGLES);
  singles(&bare, SINGLES);
  for (int i = 0; i < ROUNDS; i++) {
    a[i] = singles(&ours, SINGLES);
    b[i] = singles(&bare, SINGLES);
    ratio[i] = a[i] / b[i];
  }
  double floor = bench_median(b, ROUNDS);
  snprintf(figure, sizeof figure, "claim + ack singly (%s), synchronous=%s", form, synchronous);
  bench_ratio(figure, bench_median(ratio, ROUNDS) * floor, floor, "/s", BENCH_AT_LEAST, 0.7);
  close_side(&ours);
  close_side(&bare);
}

static void batch_pair(const char *synchronous) {
  double b[ROUNDS], ratio[ROUNDS];
  char figure[96];
  side ours, bare;
  snprintf(figure, sizeof figure, "claim100-%s.db", synchronous);
  open_side(&ours, figure, synchronous, CLAIM_ROWS, (ROUNDS + 1) * HUNDREDS * 100);
  snprintf(figure, sizeof figure, "bare-claim100-%s.db", synchronous);
  open_side(&bare, figure, synchronous, NULL, 1);
  hundreds(&ours, HUNDREDS);
  inserts(bare.db, HUNDREDS * 100);
  for (int i = 0; i < ROUNDS; i++) {
    double rate = hundreds(&ours, HUNDREDS);
    b[i] = inserts(bare.db, HUNDREDS * 100);
    ratio[i] = rate / b[i];
  }
  double floor = bench_median(b, ROUNDS);
  snprintf(figure, sizeof figure, "claim + ack by 100, synchronous=%s (floor: inserts)",
           synchronous);
  bench_ratio(figure, bench_median(ratio, ROUNDS) * floor, floor, "/s", BENCH_AT_LEAST,
              50.0 / 80.0);
  close_side(&ours);
  close_side(&bare);
}

void bench_local_claim(void) {
  for (int full = 1; full >= 0; full--) {
    const char *synchronous = full ? "FULL" : "NORMAL";
    single_pair(synchronous, CLAIM_JSON, "function");
    single_pair(synchronous, CLAIM_ROWS, "table");
    batch_pair(synchronous);
  }
}
