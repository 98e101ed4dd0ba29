/* state.h - inside a msg_connection: for the files that keep its parts. */
#ifndef MSG_EXT_STATE_H
#define MSG_EXT_STATE_H

#include "ext/connection.h"
#include "ext/nested.h"
#include "ext/outbox.h"

/* Closed nodes remembered for the text of an error. */
enum { MSG_CLOSED_NAMES = 8 };

struct msg_connection {
  /* immutable after new */
  sqlite3 *db;
  int generation;              /* msg_fork_generation() of the process that made it */
  struct msg_connection *next; /* guarded by the global lock */
  /* the rest: the thread inside the connection */
  int refs;
  int depth;      /* verbs running inside one another */
  int up;         /* connected tables of ours, eponymous ones included */
  bool owner_up;  /* msg_owner is connected: statements may be kept */
  bool temp_up;   /* temp.msg_outbox is connected: the temp tables exist */
  uint64_t noisy; /* hash of the last statement found unsafe for DDL */
  msg_opened *nodes;
  msg_opened *current;
  bool current_closed; /* by msg_close: no default is opened behind it */
  char *closed[MSG_CLOSED_NAMES];
  unsigned closed_next;
  msg_nested nested;
  msg_outbox outbox;
};

/** What was filled of a node, half-built ones too. */
void msg_opened_free(msg_opened *o);
/** MSG_OK, or MSG_FORKED. */
int msg_connection_check_fork(msg_connection *c, msg_err *err);

#endif
