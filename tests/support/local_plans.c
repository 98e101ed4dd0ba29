#include "support/local_plans.h"

#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "store/local/schema.h"
#include "support/cmocka_compat.h"

/* ---- stores with statistics ---- */

/* What an ANALYZE has found: nothing, as none was made; one row in everything; one row, of which
 * partial indexes know nothing (SQLite 3.40) or that they are empty (3.53); a million rows that are
 * all alike. */
enum { NONE, ONE_ROW, PARTS_UNKNOWN, PARTS_EMPTY, ALIKE, KINDS };

static sqlite3 *store[KINDS];

static void run(sqlite3 *db, const char *sql) {
  char *text = NULL;
  if (sqlite3_exec(db, sql, NULL, NULL, &text) != SQLITE_OK)
    fail_msg("%s: %s", sql, text);
}

/* Written by hand, so that every index has some: the primary key of a table without rowid, which
 * goes by the table's name, and one number too many for each, which SQLite ignores. */
#define ONES "1 1 1 1 1 1 1 1 1 1 1"
#define MANY                                                                                       \
  "1000000 1000000 1000000 1000000 1000000 1000000 1000000 1000000 1000000 1000000 1000000"
#define WRITE(numbers)                                                                             \
  "INSERT INTO sqlite_stat1 SELECT tbl_name, name, " numbers " FROM sqlite_schema"                 \
  " WHERE tbl_name GLOB 'msg_store*' AND sql NOT NULL"
static const char *const STATISTICS[KINDS] = {
    [ONE_ROW] = WRITE("'" ONES "'"),
    [PARTS_UNKNOWN] = WRITE("'" ONES "'") " AND sql NOT LIKE '% WHERE %'",
    [PARTS_EMPTY] = WRITE("iif(sql LIKE '% WHERE %', '0 0 0 0 0 0 0 0', '" ONES "')"),
    [ALIKE] = WRITE("'" MANY "'"),
};

static void open_store(int kind) {
  msg_err err = MSG_ERR_INIT;
  sqlite3 *db = NULL;
  assert_int_equal(sqlite3_open(":memory:", &db), SQLITE_OK);
  store[kind] = db;
  if (msg_schema_make(db, "main", &err) != MSG_OK)
    fail_msg("%s", err.text);
  if (kind == NONE)
    return;
  run(db, "ANALYZE");
  run(db, "DELETE FROM sqlite_stat1");
  run(db, STATISTICS[kind]);
  run(db, "ANALYZE sqlite_schema"); /* reads them */
}

void local_plans_close(void) {
  for (int i = 0; i < KINDS; i++) {
    sqlite3_close(store[i]);
    store[i] = NULL;
  }
}

/* ---- what is allowed ---- */

static const struct allowed {
  const char *sql, *line; /* parts of the statement and of the line */
} ALLOWED[] = {
    /* one row; as many as the host has AUTOINCREMENT tables; as there are processes */
    {"", "SCAN main.msg_store"},
    {"", "SCAN main.sqlite_sequence"},
    {"", "SCAN main.msg_store_holder"},
    {"", "SCAN msg_store_holder"},
    /* once a process: what a dead one leaves; who holds nothing, when a new one comes */
    {"FROM \"main\".msg_store_claim WHERE holder = ?1", "SCAN main.msg_store_claim"},
    {"FROM main.msg_store_claim WHERE holder = ?1", "SCAN main.msg_store_claim"},
    {"process NOT IN (SELECT holder", "SCAN main.msg_store_claim"},
    /* the first or last entry */
    {"min(seq)", "SEARCH main.msg_store_claim"},
    {"min(seq)", "SEARCH msg_store_claim"},
    {"max(seq)", "SEARCH main.msg_store_message"},
    {"min(due)", "SEARCH m USING INDEX msg_store_message_delayed"},
    {"min(due)", "SEARCH main.msg_store_message USING INDEX msg_store_message_delayed"},
    {"min(until)", "SEARCH main.msg_store_key USING INDEX msg_store_key_until"},
    /* the doctor counts */
    {"SELECT count(*) FROM ", "SCAN msg_store_message USING INDEX msg_store_message_id"},
    {"SELECT count(*) FROM ", "SCAN m USING INDEX msg_store_message_dead"},
    /* the first row will do */
    {"SELECT 1 FROM msg_store_message INDEXED BY msg_store_message_grp WHERE grp IS NOT NULL",
     "SCAN msg_store_message USING INDEX msg_store_message_grp"},
    /* what is claimed, of every queue */
    {"SELECT topic, r, d, c,", "SCAN c"},
    {"SELECT x FROM (WITH RECURSIVE q", "SCAN c"},
    {"FROM \"main\".msg_store_claim AS c WHERE (SELECT w.queue FROM", "SCAN c"},
    /* by topic and state, a row each; queues; lanes */
    {"SELECT topic, r, d, c,", "USE TEMP B-TREE FOR GROUP BY"},
    {"SELECT topic, r, d, c,", "USE TEMP B-TREE FOR ORDER BY"},
    {"SELECT x FROM (WITH RECURSIVE q", "USE TEMP B-TREE FOR ORDER BY"},
    {"SELECT node, (SELECT count(", "USE TEMP B-TREE FOR ORDER BY"},
    {"SELECT node, (SELECT count(", "UNION USING TEMP B-TREE"},
    /* chosen where there are few: see candidates.c */
    {"INDEXED BY msg_store_message_mortal_end", "USE TEMP B-TREE FOR ORDER BY"},
};

/* What statements make up on their way, beginnings and names: neither tables nor their aliases. */
static const char *const MADE_UP[] = {"CONSTANT ROW", "(subquery-", "json_each ", "r VIRTUAL",
                                      "j VIRTUAL"};
static const char *const NAMES[] = {"t", "p", "q", "x", "o", "topics", "one"};

/* A range of numbers: the way of it cannot be named, and where an ANALYZE met a table with one or
 * two messages SQLite (3.40 and 3.53) goes from end to end of it. */
static const char *const RANGES[] = {
    "seq BETWEEN ?1 AND ?2",
    "seq BETWEEN ?2 AND ?3",
    "m.seq >= ?3",
    "seq >= ?2 AND seq < 0",
};

static bool is_range(const char *sql) {
  for (size_t i = 0; i < sizeof RANGES / sizeof *RANGES; i++)
    if (strstr(sql, RANGES[i]))
      return true;
  return false;
}

/* What is claimed has no partial index. */
static bool is_nearly_empty(int kind, const char *sql) {
  return kind == ONE_ROW || kind == PARTS_EMPTY ||
         (kind == PARTS_UNKNOWN && strstr(sql, "msg_store_claim"));
}

static bool is_made_up(const char *name) {
  for (size_t i = 0; i < sizeof MADE_UP / sizeof *MADE_UP; i++)
    if (strncmp(name, MADE_UP[i], strlen(MADE_UP[i])) == 0)
      return true;
  for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
    if (strcmp(name, NAMES[i]) == 0)
      return true;
  return false;
}

static bool is_good(const char *sql, const char *line) {
  bool scan = strncmp(line, "SCAN ", 5) == 0 && !is_made_up(line + 5);
  /* SQLite says SEARCH for the least or greatest of a column, even where it reads all. */
  bool all = strncmp(line, "SEARCH ", 7) == 0 && !strchr(line, '(');
  if (!scan && !all && !strstr(line, "TEMP B-TREE") && !strstr(line, "AUTOMATIC") &&
      !strstr(line, "BLOOM FILTER ON"))
    return true;
  for (size_t i = 0; i < sizeof ALLOWED / sizeof *ALLOWED; i++)
    if (strstr(sql, ALLOWED[i].sql) && strcmp(line, ALLOWED[i].line) == 0)
      return true;
  return false;
}

/* ---- plans ---- */

struct plan {
  char text[16384]; /* its lines, each with its end */
  size_t n;
};

/* Newer versions know that more of our indexes cover a statement. */
static void copy_line(char *out, size_t size, const char *line) {
  const char *at = strstr(line, "COVERING ");
  int n = at ? snprintf(out, size, "%.*s%s", (int)(at - line), line, at + strlen("COVERING "))
             : snprintf(out, size, "%s", line);
  assert_true(n >= 0 && (size_t)n < size);
}

static void plan_read(int kind, const char *sql, struct plan *out) {
  sqlite3_stmt *stmt = NULL;
  char *explain = sqlite3_mprintf("EXPLAIN QUERY PLAN %s", sql);
  if (sqlite3_prepare_v2(store[kind], explain, -1, &stmt, NULL) != SQLITE_OK)
    fail_msg("%s\n  of: %s", sqlite3_errmsg(store[kind]), sql);
  for (out->n = 0; sqlite3_step(stmt) == SQLITE_ROW;) {
    char line[1024];
    copy_line(line, sizeof line, (const char *)sqlite3_column_text(stmt, 3));
    if (!is_good(sql, line) && !(is_nearly_empty(kind, sql) && is_range(sql)))
      fail_msg("%s\n  with statistics %d, in: %s", line, kind, sql);
    out->n += (size_t)snprintf(out->text + out->n, sizeof out->text - out->n, "%s\n", line);
    assert_true(out->n < sizeof out->text);
  }
  out->text[out->n] = '\0';
  sqlite3_finalize(stmt);
  sqlite3_free(explain);
}

void local_plans_check(const char *sql) {
  static struct plan plan[KINDS];
  char *text = msg_schema_expand("main", sql);
  assert_non_null(text);
  for (int i = 0; i < KINDS; i++) {
    if (!store[i])
      open_store(i);
    plan_read(i, text, &plan[i]);
    if (strcmp(plan[i].text, plan[NONE].text) != 0 && !is_range(text))
      fail_msg("without statistics:\n%swith statistics %d:\n%sof: %s", plan[NONE].text, i,
               plan[i].text, text);
  }
  msg_free(text);
}
