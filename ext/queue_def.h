/* queue_def.h - what CREATE VIRTUAL TABLE ... USING msg_queue(...) says. */
#ifndef MSG_EXT_QUEUE_DEF_H
#define MSG_EXT_QUEUE_DEF_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

/* json_object() takes two arguments a column, and an older SQLite at most 127. */
enum { MSG_QUEUE_COLUMNS_MAX = 60 };

/* Affinities. */
enum msg_queue_type {
  MSG_QUEUE_ANY,
  MSG_QUEUE_TEXT,
  MSG_QUEUE_REAL,
  MSG_QUEUE_INTEGER,
  MSG_QUEUE_NUMERIC
};

typedef struct msg_queue_column {
  char *name; /* the payload's key, as it is spelled; without '"', '\' and control characters */
  enum msg_queue_type type;
} msg_queue_column;

typedef struct msg_queue_def {
  char *topic;
  char *node; /* NULL: the current one */
  bool exclusive;
  bool exclusive_given;
  msg_queue_column *columns;
  size_t n, cap;
} msg_queue_def;

/** Read the arguments after the first three: `topic='...'`, `exclusive=0|1`, `node='...'` and
 *  columns `name [TYPE]`.
 *  Owns:   *out, zeroed before, is the caller's (msg_queue_def_clear), also after a failure.
 *  Errors: MSG_INVALID names the argument. */
int msg_queue_def_read(int argc, const char *const *argv, msg_queue_def *out, msg_err *err);
void msg_queue_def_clear(msg_queue_def *def);

/** Name of a type in a declaration, "" for MSG_QUEUE_ANY. */
const char *msg_queue_type_name(enum msg_queue_type type);

#endif
