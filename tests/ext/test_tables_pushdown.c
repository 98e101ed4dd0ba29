/* What msg_messages leaves to the store gives the same rows as a full scan: every query runs on the
 * table and on an ordinary copy of its rows. Queries are made up from a fixed seed; each is
 * prepared once and run six times with other parameters. */
#include "support/cmocka_compat.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/host.h"

enum { MESSAGES = 160, QUERIES = 1000, RUNS = 6, PARAMETERS = 12, TEXT = 8192 };

#define COLUMNS                                                                                    \
  "id, topic, value, msg, map, additional, sender, sender_host, recipients, in_answer_to, "        \
  "processed_by, exclusive, priority, timestamp, ttl, timing_out, delete_at, "                     \
  "delete_after_processing, delete_after_processing_time, deliver_at, key, \"group\", state, "     \
  "attempts, reason, owner, token, since, until, seq"

/* ---- chance ---- */

static uint64_t seed;

static unsigned chance(unsigned n) {
  seed ^= seed << 13;
  seed ^= seed >> 7;
  seed ^= seed << 17;
  return (unsigned)(seed >> 20) % n;
}

#define PICK(array) (array)[chance((unsigned)(sizeof(array) / sizeof(array)[0]))]

/* ---- the messages ---- */

static void fill(sqlite3 *db) {
  host_run(db, "PRAGMA journal_mode = wal; SELECT msg_open('local', '{\"sender_id\": \"7\"}');"
               "SELECT msg_open('local', '{\"sender_id\": \"ann\"}')");
  host_run(db, "BEGIN");
  static const char *const TOPICS[] = {"a", "A", "b", "5", "05", "5.0", "\xc3\xa4", "orders.eu"};
  for (int i = 0; i < MESSAGES; i++) {
    char digits[40], hex[40]; /* some read as numbers, as integer and as real */
    snprintf(digits, sizeof digits, "'%024d'", 50 + i);
    snprintf(hex, sizeof hex, "'5e%022d'", i);
    host_run(db,
             "INSERT INTO msg_messages(topic, value, exclusive, priority, deliver_at, node, ttl, "
             "id, \"group\")"
             " VALUES ('%s', %d, %d, %d, iif(%d, 4000000000000 + %d, NULL), '%s', %d, %s, %s)",
             PICK(TOPICS), i, i % 3 != 0, (int)chance(7) - 2, chance(4) == 0, (int)chance(5),
             chance(2) ? "7" : "ann", chance(5) == 0 && i % 3 ? 1 : 100000000,
             i % 8 == 0 ? (i % 16 ? hex : digits) : "NULL",
             i % 3 && chance(6) == 0 ? "'g'" : "NULL");
  }
  host_run(db, "COMMIT");
}

/* Messages in every state. Nothing writes after this, so that they stay as they are. */
static void settle(sqlite3 *db) {
  host_run(db, "SELECT msg_enqueue('b', 'x'); SELECT msg_send('a', 1, '{\"recipient\": \"ann\", "
               "\"ttl_ms\": 100000000}')");
  host_run(db, "SELECT count(*) FROM msg_claim('b', 8, 100000000);"
               "SELECT msg_reject(id, 'no') FROM msg_claim('5', 5)");
  host_run(db, "SELECT count(*) FROM msg_messages WHERE state = 'expired'");
  host_sleep_ms(20);
}

static void copy(sqlite3 *db) {
  host_run(db,
           "CREATE TEMP TABLE copy(id TEXT, topic TEXT, value, msg TEXT, map TEXT, additional TEXT,"
           " sender TEXT, sender_host TEXT, recipients TEXT, in_answer_to TEXT, processed_by TEXT,"
           " exclusive INTEGER, priority INTEGER, timestamp INTEGER, ttl INTEGER,"
           " timing_out INTEGER, delete_at INTEGER, delete_after_processing INTEGER,"
           " delete_after_processing_time INTEGER, deliver_at INTEGER, key TEXT, \"group\" TEXT,"
           " state TEXT, attempts INTEGER, reason TEXT, owner TEXT, token TEXT, since INTEGER,"
           " until INTEGER, seq INTEGER);"
           "INSERT INTO copy(rowid, " COLUMNS ") SELECT rowid, " COLUMNS " FROM msg_messages;"
           "CREATE TEMP TABLE vals(k INTEGER PRIMARY KEY, i INTEGER, t TEXT, n, r REAL);"
           "INSERT INTO vals(i, t, n, r) VALUES (1, 'a', 5, 2.5), ('abc', 'A', '5', 0), (0, '5', "
           "5.0, 3),"
           " (5, '05', 'b', 1e19), (NULL, NULL, NULL, NULL), ('3', 'ready', x'61', -1),"
           " (4000000000001, 'dead', 'claimed', 4000000000002.5), (' 5', ' 5', ' 5', 5)");
  host_run(
      db, "INSERT INTO vals(i, t, n, r) SELECT seq, id, id, priority FROM copy WHERE seq %% 40 = 0;"
          "INSERT INTO vals(i, t, n) SELECT id, substr(id, 1, 5), timestamp FROM copy WHERE seq %% "
          "80 = 0");
}

/* ---- making up queries ---- */

struct query {
  char text[TEXT];
  size_t n;
  int parameters; /* ?1.. */
  bool ordered;   /* the order of rows is part of the result */
};

static void put(struct query *q, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(struct query *q, const char *format, ...) {
  va_list ap;
  va_start(ap, format);
  q->n += (size_t)vsnprintf(q->text + q->n, TEXT - q->n, format, ap);
  va_end(ap);
  assert_true(q->n < TEXT);
}

static const char *const TEXT_COLUMNS[] = {"id", "id", "topic", "topic", "sender", "state"};
static const char *const INT_COLUMNS[] = {"priority", "deliver_at", "timestamp", "seq"};
static const char *const TEXT_VALUES[] = {"'a'",
                                          "'A'",
                                          "'b'",
                                          "'5'",
                                          "'05'",
                                          "5",
                                          "5.0",
                                          "NULL",
                                          "x'61'",
                                          "'ready'",
                                          "'READY'",
                                          "'dead'",
                                          "'claimed'",
                                          "'7'",
                                          "7",
                                          "'ann'",
                                          "''",
                                          "'\xc3\xa4'",
                                          "'0'",
                                          "'00000'",
                                          "'6'",
                                          "'zz'",
                                          "'000000000000000000000064'",
                                          "'000000000000000000000070'",
                                          "64",
                                          "'a' || 'b'",
                                          "'expired'",
                                          "'delayed'",
                                          "' 5'",
                                          "(SELECT max(id) FROM copy)",
                                          "(SELECT min(substr(id, 1, 7)) FROM copy WHERE id > '1')",
                                          "(SELECT upper(max(id)) FROM copy)",
                                          "CAST('5' AS INTEGER)",
                                          "(SELECT i FROM vals WHERE i = 'abc')"};
static const char *const INT_VALUES[] = {"0",
                                         "1",
                                         "3",
                                         "5",
                                         "-1",
                                         "'3'",
                                         "'03'",
                                         "' 3 '",
                                         "3.0",
                                         "2.5",
                                         "-0.5",
                                         "NULL",
                                         "'abc'",
                                         "x'33'",
                                         "''",
                                         "9223372036854775807",
                                         "-9223372036854775808",
                                         "1e19",
                                         "-1e19",
                                         "9223372036854775807.0",
                                         "4000000000002",
                                         "4000000000001.5",
                                         "100",
                                         "120.5",
                                         "1.7e12",
                                         "(SELECT max(timestamp) FROM copy)",
                                         "CAST(3 AS TEXT)",
                                         "(SELECT t FROM vals WHERE t = '5')",
                                         "+3"};
static const char *const RANGE[] = {"<", "<=", ">", ">="};

static void put_value(struct query *q, bool text) {
  if (q->parameters < PARAMETERS && chance(3) == 0)
    put(q, "?%d", ++q->parameters);
  else
    put(q, "%s", text ? PICK(TEXT_VALUES) : PICK(INT_VALUES));
}

static void put_list(struct query *q, bool text) {
  static const char *const SELECTS[] = {"SELECT t FROM vals",
                                        "SELECT i FROM vals",
                                        "SELECT n FROM vals",
                                        "SELECT r FROM vals",
                                        "SELECT topic FROM copy WHERE priority = 1",
                                        "VALUES ('a'), (5), (NULL)"};
  put(q, " IN (");
  if (chance(4) == 0) {
    put(q, "%s", PICK(SELECTS));
  } else {
    int n = (int)chance(4);
    for (int i = 0; i <= n; i++) {
      put(q, "%s", i ? ", " : "");
      put_value(q, text);
    }
  }
  put(q, ")");
}

/* outer: a table whose columns may be compared with, or NULL. */
static void put_term(struct query *q, const char *alias, const char *outer) {
  static const char *const OUTER[] = {"t", "i", "n", "r"};
  bool text = chance(2);
  const char *column = text ? PICK(TEXT_COLUMNS) : PICK(INT_COLUMNS);
  switch (chance(16)) {
  case 0: put(q, "%s.%s COLLATE NOCASE = ", alias, column); break;
  case 1: put(q, "%s.%s IS ", alias, column); break;
  case 2:
    put(q, "%s.%s BETWEEN ", alias, column);
    put_value(q, text);
    put(q, " AND ");
    break;
  case 3:
    put(q, "(%s.priority, %s.seq) %s (", alias, alias, PICK(RANGE));
    put_value(q, false);
    put(q, ", ");
    put_value(q, false);
    put(q, ")");
    return;
  case 4: put(q, "%s.%s <> ", alias, column); break;
  case 5:
    put(q, "(%s.topic, %s.state) IN (SELECT topic, state FROM copy WHERE seq %% 9 = 0)", alias,
        alias);
    return;
  case 6:
  case 7:
    put(q, "%s.%s", alias, column);
    put_list(q, text);
    return;
  case 8: put(q, "%s.%s %s", alias, column, chance(2) ? "NOT NULL" : "LIKE '0%'"); return;
  case 9:
  case 10:
  case 11: put(q, "%s.%s %s ", alias, column, PICK(RANGE)); break;
  default: put(q, "%s.%s = ", alias, column);
  }
  if (outer && chance(2))
    put(q, "%s.%s", outer, PICK(OUTER));
  else
    put_value(q, text);
}

static void put_where(struct query *q, const char *alias, const char *outer) {
  int n = (int)chance(3);
  put_term(q, alias, outer);
  for (int i = 0; i < n; i++) {
    bool either = chance(5) == 0;
    put(q, either ? " OR " : " AND ");
    put_term(q, alias, outer);
  }
}

static void put_limit(struct query *q) {
  if (chance(2) == 0)
    put(q, " LIMIT %d", (int)chance(12) - 1);
  else if (q->parameters < PARAMETERS)
    put(q, " LIMIT abs(coalesce(CAST(?%d AS INTEGER), 3) %% 9)", ++q->parameters);
  else
    put(q, " LIMIT 5");
  if (chance(2))
    put(q, " OFFSET %d", (int)chance(6));
}

/* Orders that leave nothing open, so that LIMIT has one meaning. */
static const char *const TOTAL[] = {"priority, deliver_at, seq",
                                    "seq",
                                    "seq DESC",
                                    "priority DESC, seq",
                                    "value, seq DESC",
                                    "priority, seq",
                                    "deliver_at DESC, priority, seq"};

static void simple(struct query *q) {
  put(q, "SELECT %s FROM @ AS m", chance(2) ? "id, topic, state" : "*");
  if (chance(8)) {
    put(q, " WHERE ");
    put_where(q, "m", NULL);
  }
  if (chance(3)) {
    q->ordered = true;
    put(q, " ORDER BY %s", PICK(TOTAL));
    if (chance(2))
      put_limit(q);
  }
}

static void partly_ordered(struct query *q) {
  q->ordered = true;
  put(q, chance(2) ? "SELECT priority FROM @ AS m WHERE "
                   : "SELECT priority, deliver_at FROM @ AS m WHERE ");
  put_where(q, "m", NULL);
  put(q,
      strstr(q->text, "deliver_at FROM") ? " ORDER BY priority, deliver_at" : " ORDER BY priority");
  put_limit(q);
}

static void unordered_limit(struct query *q) {
  put(q, "SELECT count(*), count(DISTINCT seq) FROM (SELECT seq FROM @ AS m WHERE ");
  put_where(q, "m", NULL);
  put_limit(q);
  put(q, ")");
}

static void join(struct query *q) {
  static const char *const KINDS[] = {"JOIN", "LEFT JOIN", "CROSS JOIN"};
  put(q, "SELECT v.k, m.id FROM vals AS v %s @ AS m ON ", PICK(KINDS));
  put_where(q, "m", "v");
  if (chance(3) == 0) {
    put(q, " WHERE ");
    put_term(q, "m", "v");
  }
}

static void self_join(struct query *q) {
  put(q, "SELECT a.seq, b.seq FROM @ AS a JOIN @ AS b ON b.%s = a.%s AND b.seq < a.seq WHERE ",
      chance(2) ? "priority" : "topic", chance(2) ? "priority" : "topic");
  put_where(q, "a", NULL);
  put(q, " AND ");
  put_term(q, "b", NULL);
}

static void correlated(struct query *q) {
  switch (chance(3)) {
  case 0: put(q, "SELECT v.k, (SELECT count(*) FROM @ AS m WHERE "); break;
  case 1: put(q, "SELECT v.k, EXISTS (SELECT 1 FROM @ AS m WHERE "); break;
  default: put(q, "SELECT v.k, (SELECT id FROM @ AS m WHERE "); break;
  }
  put_where(q, "m", "v");
  if (strstr(q->text, "(SELECT id"))
    put(q, " ORDER BY seq%s LIMIT 1 OFFSET %d", chance(2) ? " DESC" : "", (int)chance(3));
  put(q, ") FROM vals AS v");
}

static void compound(struct query *q) {
  put(q, "SELECT seq FROM @ AS m WHERE ");
  put_where(q, "m", NULL);
  put(q, chance(2) ? " UNION ALL " : " UNION ");
  put(q, "SELECT seq FROM @ AS m WHERE ");
  put_where(q, "m", NULL);
  if (chance(2)) {
    q->ordered = true;
    put(q, " ORDER BY 1");
    put_limit(q);
  }
}

static void unordered_compound(struct query *q) {
  put(q, "SELECT count(*) FROM (SELECT seq FROM @ AS m WHERE ");
  put_where(q, "m", NULL);
  put(q, " UNION ALL SELECT seq FROM @ AS m WHERE ");
  put_where(q, "m", NULL);
  put_limit(q);
  put(q, ")");
}

static void grouped(struct query *q) {
  static const char *const WHAT[] = {
      "SELECT topic, state, count(*), min(seq) FROM @ AS m WHERE %",
      "SELECT DISTINCT priority FROM @ AS m WHERE %",
      "SELECT DISTINCT priority FROM @ AS m WHERE %",
      "SELECT seq, row_number() OVER (ORDER BY seq) FROM @ AS m WHERE %",
      "SELECT max(seq), min(priority) FROM @ AS m WHERE %",
  };
  const char *what = PICK(WHAT);
  put(q, "%.*s", (int)strcspn(what, "%"), what);
  put_where(q, "m", NULL);
  if (strstr(what, "count"))
    put(q, " GROUP BY topic, state");
  if (strstr(what, "DISTINCT")) {
    q->ordered = true;
    put(q, " ORDER BY priority");
    put_limit(q);
  } else if (strstr(what, "OVER")) {
    q->ordered = true;
    put(q, " ORDER BY seq");
    put_limit(q);
  }
}

static void make(struct query *q) {
  static void (*const SHAPES[])(struct query *) = {
      simple,    simple,     simple,   partly_ordered, unordered_limit,   join,
      self_join, correlated, compound, grouped,        unordered_compound};
  *q = (struct query){0};
  PICK(SHAPES)(q);
}

/* ---- comparing ---- */

/* The query on `table`. */
static sqlite3_stmt *prepare(sqlite3 *db, const struct query *q, const char *table) {
  static char text[2 * TEXT];
  size_t n = 0;
  for (const char *p = q->text; *p; p++) {
    char one[] = {*p, '\0'};
    n += (size_t)snprintf(text + n, sizeof text - n, "%s", *p == '@' ? table : one);
  }
  sqlite3_stmt *stmt;
  if (sqlite3_prepare_v2(db, text, -1, &stmt, NULL) != SQLITE_OK)
    fail_msg("%s: %s", text, sqlite3_errmsg(db));
  return stmt;
}

static void bind(sqlite3_stmt *a, sqlite3_stmt *b, int parameters, sqlite3_stmt *values) {
  for (int i = 1; i <= parameters; i++) {
    int row = (int)chance(40);
    sqlite3_reset(values);
    sqlite3_bind_int(values, 1, row);
    assert_int_equal(sqlite3_step(values), SQLITE_ROW);
    sqlite3_bind_value(a, i, sqlite3_column_value(values, 0));
    sqlite3_bind_value(b, i, sqlite3_column_value(values, 0));
  }
}

struct rows {
  char **at;
  int n, cap;
};

static void add_row(struct rows *r, sqlite3_stmt *stmt) {
  sqlite3_str *s = sqlite3_str_new(NULL);
  for (int i = 0; i < sqlite3_column_count(stmt); i++) {
    int type = sqlite3_column_type(stmt, i);
    const char *v = (const char *)sqlite3_column_text(stmt, i);
    sqlite3_str_appendf(s, "%d:%s|", type, v ? v : "");
  }
  if (r->n == r->cap)
    r->at = realloc(r->at, (size_t)(r->cap = r->cap * 2 + 64) * sizeof *r->at);
  r->at[r->n++] = sqlite3_str_finish(s);
}

static int by_text(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

static void run(sqlite3_stmt *stmt, struct rows *out, bool ordered) {
  int rc;
  while ((rc = sqlite3_step(stmt)) == SQLITE_ROW)
    add_row(out, stmt);
  if (rc != SQLITE_DONE)
    fail_msg("%s: %s", sqlite3_expanded_sql(stmt), sqlite3_errmsg(sqlite3_db_handle(stmt)));
  sqlite3_reset(stmt);
  if (!ordered && out->n)
    qsort(out->at, (size_t)out->n, sizeof *out->at, by_text);
}

static void rows_free(struct rows *r) {
  for (int i = 0; i < r->n; i++)
    sqlite3_free(r->at[i]);
  free(r->at);
}

static void print_plan(sqlite3 *db, sqlite3_stmt *of) {
  char *sql = sqlite3_mprintf("EXPLAIN QUERY PLAN %s", sqlite3_sql(of));
  sqlite3_stmt *plan;
  sqlite3_prepare_v2(db, sql, -1, &plan, NULL);
  while (sqlite3_step(plan) == SQLITE_ROW)
    print_error("%s\n", (const char *)sqlite3_column_text(plan, 3));
  sqlite3_finalize(plan);
  sqlite3_free(sql);
}

static void compare(sqlite3 *db, sqlite3_stmt *a, sqlite3_stmt *b, bool ordered) {
  struct rows x = {0}, y = {0};
  run(a, &x, ordered);
  run(b, &y, ordered);
  bool same = x.n == y.n;
  for (int i = 0; same && i < x.n; i++)
    same = strcmp(x.at[i], y.at[i]) == 0;
  if (!same) {
    char *sql = sqlite3_expanded_sql(a);
    print_plan(db, a);
    for (int i = 0; i < x.n || i < y.n; i++)
      if (i < 20)
        print_error("%-60s %s\n", i < x.n ? x.at[i] : "-", i < y.n ? y.at[i] : "-");
    fail_msg("%d rows, the full scan has %d: %s", x.n, y.n, sql);
  }
  rows_free(&x);
  rows_free(&y);
}

/* How much was left to the store, so that the test does not pass by pushing nothing. */
struct coverage {
  int terms, lists, limits, orders;
};

static void look_at_plan(sqlite3 *db, sqlite3_stmt *stmt, struct coverage *c) {
  char *sql = sqlite3_mprintf("EXPLAIN QUERY PLAN %s", sqlite3_sql(stmt));
  sqlite3_stmt *plan;
  assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &plan, NULL), SQLITE_OK);
  while (sqlite3_step(plan) == SQLITE_ROW) {
    const char *detail = (const char *)sqlite3_column_text(plan, 3);
    if (!strstr(detail, "VIRTUAL TABLE INDEX"))
      continue;
    const char *words = strchr(detail, ':');
    c->terms += strpbrk(words, "=<>[") != NULL;
    c->lists += strstr(words, "[]") != NULL;
    c->limits += strstr(words, "limit") != NULL;
    c->orders += strstr(words, "order") || strstr(words, "newest") || strstr(words, "oldest");
  }
  sqlite3_finalize(plan);
  sqlite3_free(sql);
}

static void same_rows_as_a_full_scan(void **state) {
  (void)state;
  sqlite3 *db = host_open(host_path());
  struct coverage c = {0};
  const char *given = getenv("MSG_PUSHDOWN"); /* "SEED QUERIES": look longer, elsewhere */
  int queries = QUERIES;
  seed = 20240117;
  if (given && *given)
    assert_int_equal(sscanf(given, "%" SCNu64 " %d", &seed, &queries), 2);
  fill(db);
  settle(db);
  copy(db);
  host_run(db, "CREATE TEMP TABLE pool(k INTEGER PRIMARY KEY, v)");
  for (int i = 0; i < 40; i++)
    host_run(db, "INSERT INTO pool VALUES (%d, %s)", i,
             chance(2) ? PICK(TEXT_VALUES) : PICK(INT_VALUES));
  sqlite3_stmt *values;
  assert_int_equal(sqlite3_prepare_v2(db, "SELECT v FROM pool WHERE k = ?1", -1, &values, NULL),
                   SQLITE_OK);
  for (int i = 0; i < queries; i++) {
    struct query q;
    make(&q);
    sqlite3_stmt *a = prepare(db, &q, "msg_messages"), *b = prepare(db, &q, "copy");
    look_at_plan(db, a, &c);
    for (int run_ = 0; run_ < (q.parameters ? RUNS : 1); run_++) {
      bind(a, b, q.parameters, values);
      compare(db, a, b, q.ordered);
    }
    sqlite3_finalize(a);
    sqlite3_finalize(b);
  }
  sqlite3_finalize(values);
  print_message("plans with terms %d, lists %d, limit %d, order %d\n", c.terms, c.lists, c.limits,
                c.orders);
  assert_true(c.terms > QUERIES / 2 && c.lists > 50 && c.limits > 20 && c.orders > 100);
  host_close(db);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(same_rows_as_a_full_scan)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
