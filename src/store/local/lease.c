/* lease.c - see lease.h. */
#include "store/local/lease.h"

#include <string.h>

#include "store/local/reading.h"

#define INTO                                                                                       \
  "INSERT INTO @.msg_store_lease(owner, token, holder, since, due, messages, first, last) "

int msg_local_lease_new(msg_local_session *s, const msg_actor *actor, const char *token,
                        msg_local_lease *lease, msg_err *err) {
  static const char sql[] = INTO "VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
  int rc =
      msg_local_exec(s, sql, NULL, err, "tttiiiii", actor->node, token, actor->process,
                     lease->since_ms, lease->due_ms, lease->messages, lease->first, lease->last);
  if (rc == MSG_OK)
    lease->number = sqlite3_last_insert_rowid(s->db);
  return rc;
}

int msg_local_lease_copy(msg_local_session *s, int64_t from, int64_t due_ms, int64_t seq,
                         int64_t *number, msg_err *err) {
  static const char sql[] = INTO "SELECT owner, token, holder, since, ?2, 1, ?3, ?3"
                                 " FROM @.msg_store_lease WHERE number = ?1";
  int rc = msg_local_exec(s, sql, NULL, err, "iii", from, due_ms, seq);
  if (rc == MSG_OK)
    *number = sqlite3_last_insert_rowid(s->db);
  return rc;
}

int msg_local_lease_joined(msg_local_session *s, int64_t number, int64_t seq, msg_err *err) {
  static const char sql[] = "UPDATE @.msg_store_lease SET messages = messages + 1,"
                            " first = min(first, ?2), last = max(last, ?2) WHERE number = ?1";
  return msg_local_exec(s, sql, NULL, err, "ii", number, seq);
}

int msg_local_lease_left(msg_local_session *s, int64_t number, int64_t messages, msg_err *err) {
  static const char sql_last[] =
      "DELETE FROM @.msg_store_lease WHERE number = ?1 AND messages <= ?2";
  static const char sql_some[] =
      "UPDATE @.msg_store_lease SET messages = messages - ?2 WHERE number = ?1";
  int64_t gone = 0;
  int rc = msg_local_exec(s, sql_last, &gone, err, "ii", number, messages);
  return rc == MSG_OK && gone == 0 ? msg_local_exec(s, sql_some, NULL, err, "ii", number, messages)
                                   : rc;
}

int msg_local_lease_show(msg_local_session *s, int64_t number, msg_message *m, msg_err *err) {
  static const char sql[] =
      "SELECT owner, token, since, due FROM @.msg_store_lease WHERE number = ?1";
  sqlite3_stmt *stmt = NULL;
  bool nomem = false;
  int rc = msg_local_bound(s, sql, &stmt, err, "i", number);
  if (rc == MSG_OK && (rc = msg_local_row(s, stmt, err)) == MSG_OK) {
    const char *token = (const char *)sqlite3_column_text(stmt, 1);
    m->owner = msg_local_column_dup(stmt, 0, &nomem);
    if (token && strlen(token) <= MSG_OID_HEX)
      memcpy(m->token, token, strlen(token) + 1);
    m->since_ms = sqlite3_column_int64(stmt, 2);
    m->until_ms = sqlite3_column_int64(stmt, 3);
    if (nomem)
      rc = msg_err_nomem(err);
  }
  msg_local_done(s, stmt);
  return rc == MSG_NOTFOUND ? MSG_OK : rc;
}
