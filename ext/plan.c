#include "ext/plan.h"

#include "base/mem.h"
#include "base/str.h"

const char *const msg_push_names[MSG_PUSH_COUNT] = {
    [MSG_PUSH_ID] = "id",
    [MSG_PUSH_TOPIC] = "topic",
    [MSG_PUSH_SENDER] = "sender",
    [MSG_PUSH_STATE] = "state",
    [MSG_PUSH_TIMESTAMP] = "timestamp",
    [MSG_PUSH_DELIVER_AT] = "deliver_at",
    [MSG_PUSH_PRIORITY] = "priority",
    [MSG_PUSH_SEQ] = "seq",
    [MSG_PUSH_NODE] = "node",
};

bool msg_push_is_text(enum msg_push p) {
  return p == MSG_PUSH_ID || p == MSG_PUSH_TOPIC || p == MSG_PUSH_SENDER || p == MSG_PUSH_STATE ||
         p == MSG_PUSH_NODE;
}

/* --- xBestIndex ---------------------------------------------------------------------------- */

struct best {
  sqlite3_index_info *info;
  const unsigned char *push; /* by column */
  int columns;
  msg_str plan;
  int argc;
  bool exact; /* the store applies every term, if its value turns out to have the column's type */
  double rows;
  int limit;   /* constraint index, or -1 */
  bool offset; /* there is one */
};

static enum msg_push push_of(const struct best *b, int column) {
  return column >= 0 && column < b->columns ? (enum msg_push)b->push[column] : MSG_PUSH_NO;
}

static const char *op_word(unsigned char op) {
  switch (op) {
  case SQLITE_INDEX_CONSTRAINT_EQ: return "=";
  case SQLITE_INDEX_CONSTRAINT_LT: return "<";
  case SQLITE_INDEX_CONSTRAINT_LE: return "<=";
  case SQLITE_INDEX_CONSTRAINT_GT: return ">";
  case SQLITE_INDEX_CONSTRAINT_GE: return ">=";
  default: return NULL;
  }
}

static bool is_literal(sqlite3_index_info *info, int i) {
  sqlite3_value *v = NULL;
  return sqlite3_vtab_rhs_value(info, i, &v) == SQLITE_OK && v;
}

/* May the term narrow the filter, and (*exact) is it all of the term? A row value (a, b) < (x, y)
 * arrives as a <= x, and no flag tells, so a closed range is exact only with a literal. Text
 * against a column of numeric affinity compares as numbers: an upper bound could then lose rows, a
 * lower bound only gives too many, and equality is the same either way. */
static bool judge(sqlite3_index_info *info, int i, enum msg_push push, bool *exact) {
  unsigned char op = info->aConstraint[i].op;
  bool literal = is_literal(info, i);
  bool below = op == SQLITE_INDEX_CONSTRAINT_LT || op == SQLITE_INDEX_CONSTRAINT_LE;
  bool closed = op == SQLITE_INDEX_CONSTRAINT_LE || op == SQLITE_INDEX_CONSTRAINT_GE;
  if (op == SQLITE_INDEX_CONSTRAINT_EQ)
    return *exact = true;
  if (msg_push_is_text(push)) {
    *exact = literal && push == MSG_PUSH_ID;
    return push == MSG_PUSH_ID && (literal || !below);
  }
  *exact = literal || !closed;
  return true;
}

static double selectivity(enum msg_push push, unsigned char op, bool list) {
  if (op != SQLITE_INDEX_CONSTRAINT_EQ)
    return 1.0 / 4;
  switch (push) {
  case MSG_PUSH_ID:
  case MSG_PUSH_SEQ: return list ? 1e-4 : 1e-6;
  case MSG_PUSH_TOPIC:
  case MSG_PUSH_SENDER: return list ? 0.1 : 0.05;
  case MSG_PUSH_NODE: return 1;
  default: return list ? 0.4 : 0.2;
  }
}

static void add_term(struct best *b, int i, enum msg_push push) {
  unsigned char op = b->info->aConstraint[i].op;
  bool list = msg_push_is_text(push) && push != MSG_PUSH_NODE && op == SQLITE_INDEX_CONSTRAINT_EQ &&
              sqlite3_vtab_in(b->info, i, 1);
  msg_str_appendf(&b->plan, "%s%s%s", b->argc ? " " : "", msg_push_names[push],
                  list ? "[]" : op_word(op));
  b->info->aConstraintUsage[i].argvIndex = ++b->argc;
  b->info->aConstraintUsage[i].omit = push == MSG_PUSH_NODE;
  b->rows *= selectivity(push, op, list);
}

static int look_at(struct best *b, int i) {
  const struct sqlite3_index_constraint *term = &b->info->aConstraint[i];
  if (term->op == SQLITE_INDEX_CONSTRAINT_LIMIT || term->op == SQLITE_INDEX_CONSTRAINT_OFFSET) {
    if (term->op == SQLITE_INDEX_CONSTRAINT_OFFSET)
      b->offset = true;
    else if (term->usable)
      b->limit = i;
    return SQLITE_OK;
  }
  enum msg_push push = op_word(term->op) ? push_of(b, term->iColumn) : MSG_PUSH_NO;
  if (push == MSG_PUSH_NODE && term->op == SQLITE_INDEX_CONSTRAINT_EQ) {
    if (!term->usable)
      return SQLITE_CONSTRAINT;
    add_term(b, i, push);
    return SQLITE_OK;
  }
  bool exact = false;
  if (push != MSG_PUSH_NO && push != MSG_PUSH_NODE && term->usable &&
      sqlite3_stricmp(sqlite3_vtab_collation(b->info, i), "BINARY") == 0 &&
      judge(b->info, i, push, &exact))
    add_term(b, i, push);
  b->exact = b->exact && exact;
  return SQLITE_OK;
}

/* The word for the ORDER BY, NULL if the store has no such order. */
static const char *order_word(const struct best *b) {
  static const enum msg_push DELIVERY[] = {MSG_PUSH_PRIORITY, MSG_PUSH_DELIVER_AT, MSG_PUSH_SEQ};
  const sqlite3_index_info *info = b->info;
  int n = info->nOrderBy;
  if (n == 1 && push_of(b, info->aOrderBy[0].iColumn) == MSG_PUSH_SEQ)
    return info->aOrderBy[0].desc ? "newest" : "oldest";
  for (int i = 0; i < n; i++)
    if (i >= 3 || info->aOrderBy[i].desc || push_of(b, info->aOrderBy[i].iColumn) != DELIVERY[i])
      return NULL;
  return "order";
}

static void add_word(struct best *b, const char *word) {
  msg_str_appendf(&b->plan, "%s%s", b->plan.n ? " " : "", word);
}

/* SQLite counts LIMIT again by itself, so one that turns out not to be exact may be dropped. An
 * OFFSET may not, and in an arm of a UNION ALL it would not be the arm's own: it stays with SQLite,
 * and so does the LIMIT beside it. */
static void add_limit(struct best *b) {
  if (b->limit < 0 || b->offset || !b->exact)
    return;
  add_word(b, "limit");
  b->info->aConstraintUsage[b->limit].argvIndex = ++b->argc;
}

int msg_plan_best(sqlite3_index_info *info, const unsigned char *push, int columns) {
  struct best b = {
      .info = info, .push = push, .columns = columns, .exact = true, .rows = 1e6, .limit = -1};
  for (int i = 0; i < info->nConstraint; i++) {
    int rc = look_at(&b, i);
    if (rc != SQLITE_OK) {
      msg_str_clear(&b.plan);
      return rc;
    }
  }
  const char *order = info->nOrderBy > 0 ? order_word(&b) : NULL;
  if (info->nOrderBy == 0 || order)
    add_limit(&b);
  if (order) {
    add_word(&b, order);
    info->orderByConsumed = 1;
  }
  msg_str_append(&b.plan, "");
  char *plan = msg_str_take(&b.plan);
  info->idxStr = plan ? sqlite3_mprintf("%s", plan) : NULL;
  msg_free(plan);
  if (!info->idxStr)
    return SQLITE_NOMEM;
  info->needToFreeIdxStr = 1;
  info->estimatedRows = b.rows < 1 ? 1 : (sqlite3_int64)b.rows;
  info->estimatedCost = 30 + 2 * b.rows;
  return SQLITE_OK;
}
