/* mongo_claim.c - exclusive messages: claim a hundred and acknowledge, and claims with a million
 * waiting. The floor of the first: find, insert locks, settle, unlock. */
#include <stdio.h>
#include <stdlib.h>

#include "bench/mongo.h"

enum { ROUNDS = 7, HUNDREDS = 10, COUNT = 100, DEEP = 1000000, SHALLOW = 1000, CLAIMS = 30 };

/* ---- claim 100 + ack ---- */

typedef struct side {
  bare b;
  sqlite3 *db; /* NULL: bare */
  sqlite3_stmt *claim, *ack;
} side;

static double claim_and_ack(void *arg) {
  side *s = arg;
  static char ids[COUNT * 40];
  bare_clear(&s->b); /* neither side removes what is done within the round */
  bare_fill(&s->b, HUNDREDS * COUNT);
  double t = bench_now();
  for (int i = 0; i < HUNDREDS; i++) {
    if (!mongo_text(s->claim, ids, sizeof ids))
      bench_die("claim", "nothing there");
    sqlite3_bind_text(s->ack, 1, ids, -1, SQLITE_STATIC);
    bench_run(s->ack);
  }
  return HUNDREDS * COUNT / (bench_now() - t);
}

static int find(bare *b, bson_t *ids, bson_t **locks) {
  bson_t *filter = BCON_NEW("topic", "jobs", "exclusive", BCON_BOOL(true), "processed_by", "{",
                            "$in", "[", BCON_NULL, "[", "]", "]", "}");
  bson_t *opts = BCON_NEW("sort", "{", "priority", BCON_INT32(1), "timestamp", BCON_INT32(1), "_id",
                          BCON_INT32(1), "}", "limit", BCON_INT64(COUNT), "hint", "sq_claim");
  mongoc_cursor_t *cursor = mongoc_collection_find_with_opts(b->messages, filter, opts, NULL);
  const bson_t *doc;
  bson_iter_t it;
  int n = 0;
  for (; n < COUNT && mongoc_cursor_next(cursor, &doc) && bson_iter_init_find(&it, doc, "_id");
       n++) {
    char key[12];
    snprintf(key, sizeof key, "%d", n);
    BSON_APPEND_OID(ids, key, bson_iter_oid(&it));
    locks[n] = BCON_NEW("_id", BCON_OID(bson_iter_oid(&it)), "lock_id", "bare", "delete_at",
                        BCON_DATE_TIME(bench_epoch_ms() + 60000));
  }
  mongoc_cursor_destroy(cursor);
  bson_destroy(opts);
  bson_destroy(filter);
  return n;
}

static void work(bare *b) {
  bson_t ids = BSON_INITIALIZER, *locks[COUNT], *unordered = BCON_NEW("ordered", BCON_BOOL(false));
  bson_error_t error;
  if (find(b, &ids, locks) != COUNT)
    bench_die("find", "too few");
  bson_t *those = BCON_NEW("_id", "{", "$in", BCON_ARRAY(&ids), "}");
  bson_t *mine = BCON_NEW("_id", "{", "$in", BCON_ARRAY(&ids), "}", "lock_id", "bare");
  bson_t *mark = BCON_NEW("$addToSet", "{", "processed_by", "bare", "}");
  bare_check(mongoc_collection_insert_many(b->locks, (const bson_t **)locks, COUNT, unordered, NULL,
                                           &error) &&
                 mongoc_collection_update_many(b->messages, those, mark, NULL, NULL, &error) &&
                 mongoc_collection_delete_many(b->locks, mine, NULL, NULL, &error),
             "bare claim", &error);
  for (int i = 0; i < COUNT; i++)
    bson_destroy(locks[i]);
  bson_destroy(mark);
  bson_destroy(mine);
  bson_destroy(those);
  bson_destroy(&ids);
  bson_destroy(unordered);
}

static double bare_claim_and_ack(void *arg) {
  side *s = arg;
  bare_clear(&s->b);
  bare_fill(&s->b, HUNDREDS * COUNT);
  double t = bench_now();
  for (int i = 0; i < HUNDREDS; i++)
    work(&s->b);
  return HUNDREDS * COUNT / (bench_now() - t);
}

static void open_side(side *s, const char *database, const char *options, int count) {
  bare_open(&s->b, database, "jobs", true, options);
  s->db = mongo_node(database, options);
  s->claim = bench_prepare(s->db, "SELECT json_group_array(id) FROM msg_claim('jobs', ?1)");
  s->ack = bench_prepare(s->db, "SELECT msg_ack(?1)");
  sqlite3_bind_int(s->claim, 1, count);
}

static void close_side(side *s) {
  sqlite3_finalize(s->claim);
  sqlite3_finalize(s->ack);
  bench_close(s->db);
  bare_clear(&s->b);
  bare_close(&s->b);
}

void bench_mongo_claim(void) {
  side ours, lean, floor;
  bare_open(&floor.b, "bench_claim_bare", "jobs", true, NULL);
  open_side(&ours, "bench_claim", NULL, COUNT);
  bench_pair("claim 100 + ack", claim_and_ack, &ours, bare_claim_and_ack, &floor, ROUNDS, "/s",
             BENCH_AT_LEAST, 1.2);
  close_side(&ours);
  open_side(&lean, "bench_claim_lean", MONGO_LEAN, COUNT);
  bench_pair("claim 100 + ack, lean", claim_and_ack, &lean, bare_claim_and_ack, &floor, ROUNDS,
             "/s", BENCH_AT_LEAST, 1.8);
  close_side(&lean);
  bare_close(&floor.b);
}

/* ---- a million waiting ---- */

/* They are filled in before the indexes: a third of the time. */
static void fill_deep(bare *b) {
  bson_t indexes = BSON_INITIALIZER, reply;
  bson_error_t error;
  const bson_t *doc;
  mongoc_cursor_t *cursor = mongoc_collection_find_indexes_with_opts(b->messages, NULL);
  for (int n = 0; mongoc_cursor_next(cursor, &doc);) {
    bson_t one = BSON_INITIALIZER;
    char key[12];
    bson_iter_t it;
    if (bson_iter_init_find(&it, doc, "name") && !strcmp(bson_iter_utf8(&it, NULL), "_id_"))
      continue;
    snprintf(key, sizeof key, "%d", n++);
    bson_copy_to_excluding_noinit(doc, &one, "v", "ns", (char *)NULL);
    BSON_APPEND_DOCUMENT(&indexes, key, &one);
    bson_destroy(&one);
  }
  mongoc_cursor_destroy(cursor);
  bson_t *drop = BCON_NEW("dropIndexes", "msg", "index", "*");
  bson_t *create = BCON_NEW("createIndexes", "msg", "indexes", BCON_ARRAY(&indexes));
  bare_check(mongoc_client_command_simple(b->client, b->database, drop, NULL, NULL, &error), "drop",
             &error);
  bare_fill(b, DEEP);
  bare_check(mongoc_client_command_simple(b->client, b->database, create, NULL, &reply, &error),
             "create", &error);
  bson_destroy(&reply);
  bson_destroy(create);
  bson_destroy(drop);
  bson_destroy(&indexes);
}

static double median_claim(void *arg) {
  side *s = arg;
  double at[CLAIMS];
  static char ids[COUNT * 40];
  for (int i = 0; i < CLAIMS; i++) {
    double t = bench_now();
    if (!mongo_text(s->claim, ids, sizeof ids))
      bench_die("claim", "nothing there");
    at[i] = (bench_now() - t) * 1e3;
  }
  return bench_median(at, CLAIMS);
}

static double median_shallow_claim(void *arg) {
  side *s = arg;
  bare_fill(&s->b, CLAIMS * 10);
  return median_claim(arg);
}

void bench_mongo_depth(void) {
  side deep, shallow;
  open_side(&shallow, "bench_shallow", NULL, 10);
  open_side(&deep, "bench_deep", NULL, 10);
  bare_fill(&shallow.b, SHALLOW);
  fill_deep(&deep.b);
  bench_pair("claim of 10: 1,000,000 against 1,000 waiting", median_claim, &deep,
             median_shallow_claim, &shallow, ROUNDS, "ms", BENCH_AT_MOST, 1.5);
  close_side(&shallow);
  close_side(&deep);
}
