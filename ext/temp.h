/* temp.h - the tables of ours in the schema temp. */
#ifndef MSG_EXT_TEMP_H
#define MSG_EXT_TEMP_H

#include "ext/connection.h"

/** Create the temp tables if they are missing and it is safe: their DDL would abort a running
 *  statement that still has tables to open, so it is left undone then; the eponymous modules serve.
 *  `created` not NULL: the caller is a table's xFilter, and returns SQLITE_SCHEMA when *created, by
 *  which SQLite compiles its statement anew, now on the temp table. */
int msg_temp_tables_make(msg_connection *c, bool *created, msg_err *err);

#endif
