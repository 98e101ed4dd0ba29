/* program.h - what SQLite compiled a running statement of the host to. */
#ifndef MSG_EXT_PROGRAM_H
#define MSG_EXT_PROGRAM_H

#include <stdbool.h>
#include <stdint.h>

#include "ext/sqlite.h"

typedef struct msg_program {
  bool opens; /* it may open a table, which fails once DDL has expired it */
  int results;
  uint64_t schemas; /* one bit a schema that it reads, by number */
} msg_program;

/** By EXPLAIN, which lists the program without running it, into the zeroed *out. False: could not
 *  look. */
bool msg_program_look(sqlite3 *db, sqlite3_stmt *running, msg_program *out);

#endif
