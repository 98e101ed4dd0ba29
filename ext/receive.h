/* receive.h - the three table forms that receive: what differs between them. */
#ifndef MSG_EXT_RECEIVE_H
#define MSG_EXT_RECEIVE_H

#include "ext/tables.h"

enum { MSG_RECEIVE_ARGS_MAX = 5 };

typedef struct msg_receive_form msg_receive_form;

typedef struct msg_receive_table {
  msg_table table;
  const msg_receive_form *form;
} msg_receive_table;

/* The rows for one set of arguments. */
typedef struct msg_receive_run {
  struct msg_receive_run *next;
  sqlite3_value *args[MSG_RECEIVE_ARGS_MAX]; /* owned; NULL: not given, or SQL NULL */
  int64_t limit;                             /* -1: none */
  bool brief; /* the statement reads none of what a brief claim leaves out (store/types.h) */
  msg_list rows;
  size_t left; /* rows that an await may still look for, one by one */
} msg_receive_run;

struct msg_receive_form {
  const char *name;
  const char *args[MSG_RECEIVE_ARGS_MAX]; /* hidden columns */
  int arg_count;
  bool claims; /* its rows show token, attempts, until */
  /** The rows for the arguments, into r->rows. MSG_TIMEOUT: none. */
  int (*start)(msg_receive_table *t, msg_receive_run *r, msg_err *err);
  /** One row more, or MSG_TIMEOUT. NULL: never. */
  int (*more)(msg_receive_table *t, msg_receive_run *r, msg_err *err);
};

extern const msg_receive_form msg_receive_await, msg_receive_claim, msg_receive_request;

#endif
