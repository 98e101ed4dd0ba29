/* lease.c - see lease.h. */
#include "store/local/lease.h"

#include <string.h>

#include "store/local/reading.h"

#define BITS         MSG_LOCAL_LEASE_BITS
#define MASK         ((INT64_C(1) << BITS) - 1)
#define END_MAX_MS   (INT64_MAX >> BITS)
#define HOLDERS_MANY 64

/* ---- numbers ---- */

int64_t msg_local_lease_end_ms(int64_t number) {
  return (number & INT64_MAX) >> BITS;
}

int64_t msg_local_lease_end_for(int64_t end_ms) {
  return end_ms < END_MAX_MS ? end_ms : END_MAX_MS - 1;
}

int64_t msg_local_lease_after(int64_t at_ms) {
  if (at_ms < 0)
    return INT64_MIN;
  return at_ms < END_MAX_MS ? INT64_MIN | (at_ms + 1) << BITS : 0;
}

/* No two leases have the same first message: mostly it is free. */
static int64_t first_number(int64_t end_ms, int64_t first) {
  return INT64_MIN | msg_local_lease_end_for(end_ms) << BITS | (first & MASK);
}

/* ---- making ---- */

/* Those that hold nothing go when there are many: of some it is never known whether they have
 * ended (before a boot, in another container). */
static int put_holder(msg_local_session *s, const char *process, msg_err *err) {
  static const char sql_put[] =
      "INSERT INTO @.msg_store_holder(process) VALUES(?1) ON CONFLICT(process) DO NOTHING";
  static const char sql_trim[] =
      "DELETE FROM @.msg_store_holder WHERE process <> ?1"
      " AND (SELECT count(*) FROM @.msg_store_holder) > ?2"
      " AND process NOT IN (SELECT holder FROM @.msg_store_claim WHERE holder NOT NULL)";
  int64_t is_new = 0;
  int rc = msg_local_exec(s, sql_put, &is_new, err, "t", process);
  if (rc != MSG_OK || is_new == 0)
    return rc;
  return msg_local_exec(s, sql_trim, NULL, err, "ti", process, (int64_t)HOLDERS_MANY);
}

#define INTO                                                                                       \
  "INSERT INTO @.msg_store_claim(seq, owner, token, holder, since, messages, first, last) "

/* Another lease may have the number. */
#define IF_FREE " ON CONFLICT(seq) DO NOTHING"

/* The number that was made, behind the last that was tried. */
static int made(int rc, int64_t count, int64_t *number, msg_err *err) {
  if (rc == MSG_OK && count == 0)
    return msg_err_set(err, MSG_CORRUPT,
                       "no number for a lease: see the leases of msg_store_claim, whose seq "
                       "is negative, and whether other rows of it name them");
  --*number;
  return rc;
}

int msg_local_lease_new(msg_local_session *s, const msg_actor *actor, const char *token,
                        int64_t end_ms, msg_local_lease *lease, msg_err *err) {
  static const char sql[] = INTO "VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)" IF_FREE;
  int64_t *number = &lease->number, count = 0;
  int rc = put_holder(s, actor->process, err);
  *number = first_number(end_ms, lease->first);
  for (int64_t end = *number + MASK; rc == MSG_OK && count == 0 && *number < end; ++*number)
    rc =
        msg_local_exec(s, sql, &count, err, "itttiiii", *number, actor->node, token, actor->process,
                       lease->since_ms, lease->messages, lease->first, lease->last);
  return made(rc, count, number, err);
}

int msg_local_lease_copy(msg_local_session *s, int64_t from, int64_t end_ms, int64_t seq,
                         int64_t *number, msg_err *err) {
  static const char sql[] = INTO "SELECT ?2, owner, token, holder, since, 1, ?3, ?3"
                                 " FROM @.msg_store_claim WHERE seq = ?1" IF_FREE;
  int64_t count = 0;
  int rc = MSG_OK;
  *number = first_number(end_ms, seq);
  for (int64_t end = *number + MASK; rc == MSG_OK && count == 0 && *number < end; ++*number)
    rc = msg_local_exec(s, sql, &count, err, "iii", from, *number, seq);
  return made(rc, count, number, err);
}

int msg_local_lease_joined(msg_local_session *s, int64_t number, int64_t seq, msg_err *err) {
  static const char sql[] = "UPDATE @.msg_store_claim SET messages = messages + 1,"
                            " first = min(first, ?2), last = max(last, ?2) WHERE seq = ?1";
  return msg_local_exec(s, sql, NULL, err, "ii", number, seq);
}

int msg_local_lease_left(msg_local_session *s, int64_t number, int64_t messages, msg_err *err) {
  static const char sql_last[] = "DELETE FROM @.msg_store_claim WHERE seq = ?1 AND messages <= ?2";
  static const char sql_some[] =
      "UPDATE @.msg_store_claim SET messages = messages - ?2 WHERE seq = ?1";
  int64_t gone = 0;
  int rc = msg_local_exec(s, sql_last, &gone, err, "ii", number, messages);
  return rc == MSG_OK && gone == 0 ? msg_local_exec(s, sql_some, NULL, err, "ii", number, messages)
                                   : rc;
}

int msg_local_lease_show(msg_local_session *s, int64_t number, msg_message *m, msg_err *err) {
  static const char sql[] = "SELECT owner, token, since FROM @.msg_store_claim WHERE seq = ?1";
  sqlite3_stmt *stmt = NULL;
  bool nomem = false;
  int rc = msg_local_bound(s, sql, &stmt, err, "i", number);
  if (rc == MSG_OK && (rc = msg_local_row(s, stmt, err)) == MSG_OK) {
    const char *token = (const char *)sqlite3_column_text(stmt, 1);
    m->owner = msg_local_column_dup(stmt, 0, &nomem);
    if (token && strlen(token) <= MSG_OID_HEX)
      memcpy(m->token, token, strlen(token) + 1);
    m->since_ms = sqlite3_column_int64(stmt, 2);
    m->until_ms = msg_local_lease_end_ms(number);
    if (nomem)
      rc = msg_err_nomem(err);
  }
  msg_local_done(s, stmt);
  return rc == MSG_NOTFOUND ? MSG_OK : rc;
}
