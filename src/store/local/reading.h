/* reading.h - what the reading verbs share: one snapshot a verb, the listeners of a queue, who
 * is alive. Private to store/local. Everything runs on the session's thread. */
#ifndef MSG_LOCAL_READING_H
#define MSG_LOCAL_READING_H

#include "store/local/local.h"

/** Run `work` on one snapshot of the store. A schema without a store: MSG_OK and `work` is not run.
 *  BUSY is tried again in interruptible slices of at most 50 ms up to busy_timeout_ms while no
 *  transaction of the host is open. `what` begins error texts.
 *  Errors: of work; MSG_INTERRUPTED. */
int msg_local_read(msg_local_session *s, const char *what, msg_local_work work, void *arg,
                   msg_err *err);

/** Is there a store to read? Waits for locks as msg_local_read does. */
int msg_local_exists(msg_local_session *s, const char *what, bool *exists, msg_err *err);

/** Step `stmt` and count it done: MSG_NOTFOUND when there is no row. */
int msg_local_row(msg_local_session *s, sqlite3_stmt *stmt, msg_err *err);

/** A statement as msg_local_stmt gives it, with its parameters 1.. bound as `types` says, one
 *  letter each: t text (NULL allowed), i int64_t, d msg_oid *. Texts are borrowed until the
 *  statement is given back.
 *  Errors: as msg_local_stmt; then *out is NULL. */
int msg_local_bound(msg_local_session *s, const char *sql, sqlite3_stmt **out, msg_err *err,
                    const char *types, ...);
/** The same for a statement without rows, run. *changed (may be NULL): rows it changed. */
int msg_local_exec(msg_local_session *s, const char *sql, int64_t *changed, msg_err *err,
                   const char *types, ...);

/* ---- listeners ---- */
typedef struct msg_local_listener {
  char *node;
  char *quoted; /* node as JSON string */
  char *pattern;
  msg_pattern *compiled; /* NULL: matches nothing here (another libc's regular expression) */
  int64_t start;         /* hears what has a higher number; negative: catches up */
} msg_local_listener;

/* Ordered by node; strangers come last. */
typedef struct msg_local_audience {
  msg_local_listener *at;
  size_t n, cap;
} msg_local_audience;
#define MSG_LOCAL_AUDIENCE_INIT                                                                    \
  { 0 }

/** Of one node, or (NULL) of the whole queue. *out: empty before; the caller's, also after a
 *  failure. */
int msg_local_audience_load(msg_local_session *s, const char *node, msg_local_audience *out,
                            msg_err *err);
/** Append the nodes of the queue that have marks and listen to nothing: said to have seen something
 *  elsewhere, or listeners once. Their pattern matches no topic. */
int msg_local_audience_add_strangers(msg_local_session *s, msg_local_audience *out, msg_err *err);
void msg_local_audience_clear(msg_local_audience *l);
bool msg_local_listener_match(const msg_local_listener *l, const char *topic);

/* ---- statements ---- */
/* They must not depend on the statistics of an ANALYZE, which may have met a table that was nearly
 * empty: then SQLite scans it later. So every index is named, and a message whose number another
 * table gives is read by a scalar subquery of its own, which always seeks; a join may scan, and so
 * may EXISTS, which newer versions make a join. Nothing names the way by a range of numbers. */
/* SQL: somebody has not taken the direct message `seq` yet. */
#define MSG_LOCAL_WAITING(seq)                                                                     \
  "EXISTS (SELECT 1 FROM @.msg_store_lane AS l INDEXED BY msg_store_lane_seq WHERE l.seq = " seq ")"

/* ---- floor.c ---- */
/* SQL: a floor of the node has passed message m. A pattern that began to listen after the
 * message says nothing of it. */
#define MSG_LOCAL_PASSED(queue, node)                                                              \
  "EXISTS (SELECT 1 FROM @.msg_store_floor AS f CROSS JOIN @.msg_store_listener AS l"              \
  " ON l.queue = f.queue AND l.node = f.node AND l.pattern = f.pattern"                            \
  " WHERE f.queue = " #queue " AND f.node = " #node " AND f.topic = m.topic"                       \
  " AND f.priority = m.priority AND f.floor >= m.seq AND l.start < m.seq)"
/** Move the floors of `node` over what is done with and drop the marks below them. Inside a
 *  msg_local_write. *left (may be NULL): marks that stay. */
int msg_local_compact(msg_local_session *s, const char *node, int64_t now_ms, int64_t *left,
                      msg_err *err);
/** A pattern's listener is gone: so are its floors, and marks nobody needs. Inside a
 *  msg_local_write. */
int msg_local_forget_pattern(msg_local_session *s, const char *node, const char *pattern,
                             int64_t now_ms, msg_err *err);
/** Every listener, floor and mark of a node. Inside a msg_local_write. */
int msg_local_forget_node(msg_local_session *s, const char *node, msg_err *err);

/* ---- processed.c ---- */
/* Who has taken a message: kept over the rows of one browse. Zeroed at first. */
typedef struct msg_local_takers {
  bool bare; /* only the state is wanted */
  bool loaded;
  msg_local_audience listeners;
  struct msg_local_floors **floors; /* by hash of topic and priority */
} msg_local_takers;
void msg_local_takers_clear(msg_local_takers *t);
/** Fill processed_by of *m (unless bare), and its state where recipients decide it. stored: its
 *  code in the table. */
int msg_local_takers_fill(msg_local_session *s, msg_local_takers *t, int stored, msg_message *m,
                          msg_err *err);

/* ---- presence.c ---- */
/* Sorted. */
typedef struct msg_local_names {
  char **at;
  size_t n;
} msg_local_names;
/** Participants of the queue that are alive now. *out: empty before; the caller's, also after a
 *  failure. */
int msg_local_alive_nodes(msg_local_session *s, msg_local_names *out, msg_err *err);
void msg_local_names_clear(msg_local_names *l);
bool msg_local_names_have(const msg_local_names *l, const char *name);

#endif
