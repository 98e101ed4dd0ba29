/* local_plans.h - how SQLite would run the statements of the local store, whatever an ANALYZE has
 * found in its tables. */
#ifndef MSG_TESTS_LOCAL_PLANS_H
#define MSG_TESTS_LOCAL_PLANS_H

/** Fails unless `sql` goes the same way without statistics, with those of tables with one row each,
 *  and with those of tables with a million rows that are all alike; and unless that way is by an
 *  index, without a sort or a temporary table, but for what local_plans.c names.
 *  `sql`: one statement, '@' for the schema or the schema "main" in quotes. */
void local_plans_check(const char *sql);
/** Once, at the end of what used it. */
void local_plans_close(void);

#endif
