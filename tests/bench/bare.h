/* bare.h - the floor's statements: the same work written by hand. Sends write the product's tables;
 * claims are what anybody would write, on one table. */
#ifndef BENCH_BARE_H
#define BENCH_BARE_H

/* Turns a database of the product's into one where a message is one row of one table and claims
 * change that row: the plain queue that anybody would write. */
#define BARE_SHAPE                                                                                 \
  "DROP TABLE msg_store_ready;"                                                                    \
  " CREATE INDEX msg_store_message_ready ON msg_store_message(queue, topic, priority, deliver_at)" \
  " WHERE state = 1;"                                                                              \
  " CREATE INDEX msg_store_message_claimed ON msg_store_message(due) WHERE state = 6"

/* ?1 id, ?2 topic, ?3 state, ?4 now, ?5 exclusive, ?6 delete_at, ?7 value */
#define BARE_INSERT                                                                                \
  "INSERT INTO msg_store_message(id, queue, topic, state, priority, deliver_at, delete_at, "       \
  "sender,"                                                                                        \
  " sender_host, exclusive, timestamp, ttl, timing_out, value)"                                    \
  " VALUES(?1, 'msg', ?2, ?3, 1000, ?4, ?6, 'bench', 'host', ?5, ?4, 0, ?6 IS NOT NULL, ?7)"

/* ?1 topic, ?2 deliver_at, ?3 seq */
#define BARE_READY                                                                                 \
  "INSERT INTO msg_store_ready(queue, topic, priority, deliver_at, seq)"                           \
  " VALUES('msg', ?1, 1000, ?2, ?3)"

/* ?1 topic, ?2 lease, ?3 count */
#define BARE_CLAIM                                                                                 \
  "UPDATE msg_store_message SET state = 6, due = ?2, attempts = attempts + 1"                      \
  " WHERE seq IN (SELECT seq FROM msg_store_message WHERE state = 1 AND queue = 'msg' AND topic "  \
  "= ?1"                                                                                           \
  " ORDER BY priority, deliver_at LIMIT ?3)"                                                       \
  " RETURNING id, value"

/* ?1 id, ?2 lease */
#define BARE_ACK "DELETE FROM msg_store_message WHERE id = ?1 AND state = 6 AND due = ?2"

#endif
