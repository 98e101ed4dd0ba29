/* candidates.h - which messages a claim may take, in delivery order. Reads only. Private to
 * store/local. */
#ifndef MSG_LOCAL_CANDIDATES_H
#define MSG_LOCAL_CANDIDATES_H

#include "store/local/session.h"

/* Text of a statement that gives the topics of queue ?1 with rows in a table, or a partial index of
 * messages, on (queue, topic, ...): skips from one to the next, one seek a topic. */
#define MSG_LOCAL_TOPICS_IN(table, where)                                                          \
  "WITH RECURSIVE topics(x) AS ("                                                                  \
  " SELECT min(topic) FROM " table " WHERE " where "queue = ?1"                                    \
  " UNION ALL SELECT (SELECT min(topic) FROM " table " WHERE " where                               \
  "queue = ?1 AND topic > t.x) FROM topics AS t WHERE t.x IS NOT NULL)"                            \
  " SELECT x FROM topics WHERE x IS NOT NULL"
#define MSG_LOCAL_TOPICS(where, index)                                                             \
  MSG_LOCAL_TOPICS_IN("@.msg_store_message INDEXED BY msg_store_message_" index, where " AND ")
#define MSG_LOCAL_TOPICS_READY MSG_LOCAL_TOPICS_IN("@.msg_store_ready", "")

typedef struct msg_local_candidate {
  int64_t priority, deliver_at_ms, seq;
} msg_local_candidate;

typedef struct msg_local_candidates {
  msg_local_candidate *at;
  size_t n, cap;
  bool wide;      /* there are such with expiry or recipients */
  bool unchecked; /* all said to be ready: the message of one may be gone, or in another state */
} msg_local_candidates;

/* SQL: what is said to be ready of queue ?1 and topic ?2: somebody may have deleted its message, or
 * changed it by hand. */
#define MSG_LOCAL_READY_ROWS                                                                       \
  "SELECT priority, deliver_at, seq FROM @.msg_store_ready AS r WHERE queue = ?1 AND topic = ?2"
#define MSG_LOCAL_READY_ORDER " ORDER BY priority, deliver_at, seq LIMIT ?3"

/** Append what a bound statement gives (priority, deliver_at, seq), and give it back. */
int msg_local_candidates_read(msg_local_session *s, sqlite3_stmt *stmt, msg_local_candidates *out,
                              msg_err *err);
/** The first `count` messages that `node` may claim by `claim` now; *out empty before,
 * msg_free(out->at) after, also after a failure. */
int msg_local_candidates_find(msg_local_session *s, const char *node, const msg_claim *claim,
                              size_t count, int64_t now_ms, msg_local_candidates *out,
                              msg_err *err);
/** Append their messages in delivery order, without those that are no more there, or not what
 *  `unchecked` says. topic: all are of it, and READY, and need be read as far as
 *  msg_local_read_brief does; NULL: read whole. */
int msg_local_candidates_messages(msg_local_session *s, const msg_local_candidates *c,
                                  const char *topic, int64_t now_ms, msg_list *out, msg_err *err);
/** Are there messages with expiry or recipients that `node` may claim on `topic` (or, with
 * recipients, on any)? */
int msg_local_candidates_wide(msg_local_session *s, const char *node, const char *topic,
                              int64_t now_ms, bool *out, msg_err *err);
/** Does the claim want this topic? */
bool msg_local_claim_wants(const msg_claim *claim, const char *topic);

#endif
