/* plan.h - which part of a WHERE, ORDER BY and LIMIT the store answers.
 *
 * xBestIndex writes the plan as words, one for each value that xFilter gets, in order, then words
 * without a value: "topic=", "state[]" (a whole IN list), "timestamp>=", "limit", "order",
 * "newest", "oldest". EXPLAIN QUERY PLAN shows it. The filter may give more rows than asked for,
 * never fewer: SQLite checks every row again. Comparisons whose meaning hangs on a collation or on
 * an affinity that is not known here stay with SQLite. */
#ifndef MSG_EXT_PLAN_H
#define MSG_EXT_PLAN_H

#include "ext/sqlite.h"
#include "model/filter.h"

/* What a column means to the store. */
enum msg_push {
  MSG_PUSH_NO,
  MSG_PUSH_ID,
  MSG_PUSH_TOPIC,
  MSG_PUSH_SENDER,
  MSG_PUSH_STATE,
  MSG_PUSH_TIMESTAMP,
  MSG_PUSH_DELIVER_AT,
  MSG_PUSH_PRIORITY,
  MSG_PUSH_SEQ,
  MSG_PUSH_NODE, /* the hidden column that names the node to look through */
  MSG_PUSH_COUNT
};

/* ---- for plan.c, plan_filter.c ---- */
/** As the plan's words name them. */
extern const char *const msg_push_names[MSG_PUSH_COUNT];
/** Is it compared as text? */
bool msg_push_is_text(enum msg_push p);

/* ---- for the tables ---- */

/** xBestIndex. push: an enum msg_push for each column. */
int msg_plan_best(sqlite3_index_info *info, const unsigned char *push, int columns);

/** xFilter: narrow *f, which is initialised, by the plan's values. *node: borrowed from argv, NULL
 *  if not named.
 *  Errors: MSG_NOMEM, MSG_INVALID a node that is not text, MSG_BACKEND. */
int msg_plan_filter(const char *plan, int argc, sqlite3_value **argv, msg_filter *f,
                    const char **node, msg_err *err);

#endif
