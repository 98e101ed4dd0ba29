/* move.c - see move.h. */
#include "store/local/move.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/sort.h"
#include "store/local/lease.h"
#include "store/local/reading.h"

enum msg_local_state msg_local_free_state(const msg_local_item *item, int64_t now_ms) {
  if (item->deliver_at_ms > now_ms)
    return MSG_LOCAL_DELAYED;
  if (!item->exclusive)
    return item->has_recipients ? MSG_LOCAL_DIRECT : MSG_LOCAL_LIVE;
  if (item->has_recipients)
    return MSG_LOCAL_ADDRESSED;
  return item->mortal ? MSG_LOCAL_MORTAL : MSG_LOCAL_READY;
}

/* ---- loading ---- */

static bool copy_name(sqlite3_stmt *stmt, int column, char *out, size_t size) {
  const char *text = (const char *)sqlite3_column_text(stmt, column);
  size_t n = text ? strlen(text) : 0;
  if (n >= size)
    return false;
  memcpy(out, text ? text : "", n + 1);
  return true;
}

static int read_item(sqlite3_stmt *stmt, msg_local_item *out, msg_err *err) {
  out->seq = sqlite3_column_int64(stmt, 0);
  out->state = (enum msg_local_state)sqlite3_column_int(stmt, 1);
  out->exclusive = sqlite3_column_int(stmt, 2) != 0;
  out->has_recipients = sqlite3_column_int(stmt, 3) != 0;
  out->mortal = sqlite3_column_int(stmt, 4) != 0;
  out->grouped = sqlite3_column_int(stmt, 5) != 0;
  out->attempts = sqlite3_column_int(stmt, 6);
  out->deliver_at_ms = sqlite3_column_int64(stmt, 7);
  out->lease = sqlite3_column_int64(stmt, 11);
  if (sqlite3_column_type(stmt, 11) != SQLITE_NULL) {
    out->state = MSG_LOCAL_CLAIMED;
    out->attempts = sqlite3_column_int(stmt, 12);
  }
  if (copy_name(stmt, 8, out->queue, sizeof out->queue) &&
      copy_name(stmt, 9, out->topic, sizeof out->topic) &&
      copy_name(stmt, 10, out->group, sizeof out->group))
    return MSG_OK;
  return msg_err_set(
      err, MSG_CORRUPT,
      "the message with seq %lld has a queue, topic or group longer than any that is "
      "accepted: delete the row from msg_store_message",
      (long long)out->seq);
}

int msg_local_item_read(msg_local_session *s, sqlite3_stmt *stmt, msg_local_item *out,
                        msg_err *err) {
  int rc = msg_local_row(s, stmt, err);
  if (rc == MSG_OK)
    rc = read_item(stmt, out, err);
  msg_local_done(s, stmt);
  return rc;
}

int msg_local_item_load(msg_local_session *s, int64_t seq, msg_local_item *out, msg_err *err) {
  static const char sql[] =
      "SELECT " MSG_LOCAL_ITEM_COLUMNS " FROM @.msg_store_message AS m WHERE m.seq = ?1";
  sqlite3_stmt *stmt = NULL;
  int rc = msg_local_bound(s, sql, &stmt, err, "i", seq);
  return rc == MSG_OK ? msg_local_item_read(s, stmt, out, err) : rc;
}

int msg_local_item_find(msg_local_session *s, const msg_oid *id, msg_local_item *out,
                        msg_err *err) {
  static const char sql[] = "SELECT " MSG_LOCAL_ITEM_COLUMNS
                            " FROM @.msg_store_message AS m WHERE m.id = ?1 AND m.queue = ?2";
  sqlite3_stmt *stmt = NULL;
  int rc = msg_local_bound(s, sql, &stmt, err, "dt", id, s->queue);
  return rc == MSG_OK ? msg_local_item_read(s, stmt, out, err) : rc;
}

int msg_local_seqs_read(msg_local_session *s, sqlite3_stmt *stmt, msg_local_seqs *out,
                        msg_err *err) {
  int rc;
  while ((rc = msg_local_row(s, stmt, err)) == MSG_OK) {
    if (msg_grow(&out->at, &out->cap, out->n + 1, sizeof *out->at) != MSG_OK) {
      rc = msg_err_nomem(err);
      break;
    }
    out->at[out->n++] = sqlite3_column_int64(stmt, 0);
  }
  msg_local_done(s, stmt);
  return rc == MSG_NOTFOUND ? MSG_OK : rc;
}

static int compare(const void *a, const void *b) {
  const int64_t *x = a, *y = b;
  return (*x > *y) - (*x < *y);
}

size_t msg_local_seqs_run(const int64_t *seqs, size_t n) {
  size_t k = 1;
  while (k < n && seqs[k] == seqs[k - 1] + 1)
    k++;
  return k;
}

bool msg_local_seqs_sort(msg_local_seqs *seqs) {
  return msg_sort(seqs->at, seqs->n, sizeof *seqs->at, compare);
}

int msg_local_seqs_delete(msg_local_session *s, msg_local_seqs *seqs, msg_err *err) {
  static const char sql_one[] = "DELETE FROM @.msg_store_message WHERE seq = ?1";
  static const char sql_run[] =
      "DELETE FROM @.msg_store_message NOT INDEXED WHERE seq BETWEEN ?1 AND ?2";
  int rc = MSG_OK;
  msg_local_seqs_sort(seqs);
  for (size_t i = 0, n; rc == MSG_OK && i < seqs->n; i += n) {
    n = msg_local_seqs_run(&seqs->at[i], seqs->n - i);
    rc = n == 1 ? msg_local_exec(s, sql_one, NULL, err, "i", seqs->at[i])
                : msg_local_exec(s, sql_run, NULL, err, "ii", seqs->at[i], seqs->at[i + n - 1]);
  }
  return rc;
}

/* ---- beside the row: ready, lanes, claims; numbers ---- */

int msg_local_ready_add(msg_local_session *s, int64_t seq, msg_err *err) {
  static const char sql[] =
      "INSERT INTO @.msg_store_ready(queue, topic, priority, deliver_at, seq)"
      " SELECT queue, topic, priority, deliver_at, seq FROM @.msg_store_message WHERE seq = ?1";
  return msg_local_exec(s, sql, NULL, err, "i", seq);
}

int msg_local_ready_remove(msg_local_session *s, const msg_local_item *item, msg_err *err) {
  static const char sql[] =
      "DELETE FROM @.msg_store_ready WHERE queue = ?1 AND topic = ?2 AND seq = ?3"
      " AND priority = " MSG_LOCAL_MESSAGE("priority", "?3") " AND deliver_at = " MSG_LOCAL_MESSAGE(
          "deliver_at", "?3");
  return msg_local_exec(s, sql, NULL, err, "tti", item->queue, item->topic, item->seq);
}

int msg_local_lanes_make(msg_local_session *s, int64_t seq, msg_err *err) {
  static const char sql[] =
      "INSERT OR IGNORE INTO @.msg_store_lane(queue, node, exclusive, priority, deliver_at, seq,"
      " topic) WITH one(queue, exclusive, priority, deliver_at, seq, topic, recipients)"
      " AS MATERIALIZED (SELECT queue, exclusive, priority, deliver_at, seq, topic, recipients"
      "  FROM @.msg_store_message WHERE seq = ?1)"
      " SELECT one.queue, r.value, one.exclusive, one.priority, one.deliver_at, one.seq, one.topic"
      " FROM one CROSS JOIN json_each(one.recipients) AS r";
  return msg_local_exec(s, sql, NULL, err, "i", seq);
}

int msg_local_lanes_drop(msg_local_session *s, int64_t seq, msg_err *err) {
  return msg_local_exec(s,
                        "DELETE FROM @.msg_store_lane INDEXED BY msg_store_lane_seq WHERE seq = ?1",
                        NULL, err, "i", seq);
}

int msg_local_next_seq(msg_local_session *s, int64_t *out, msg_err *err) {
  static const char sql[] = "UPDATE @.sqlite_sequence SET seq = seq + 1"
                            " WHERE name = 'msg_store_message' RETURNING seq";
  sqlite3_stmt *stmt = NULL;
  int rc = msg_local_stmt(s, sql, &stmt, err);
  if (rc == MSG_OK)
    rc = msg_local_row(s, stmt, err);
  if (rc == MSG_OK)
    *out = sqlite3_column_int64(stmt, 0);
  msg_local_done(s, stmt);
  if (rc == MSG_NOTFOUND)
    return msg_err_set(err, MSG_CORRUPT,
                       "sqlite_sequence has no row for msg_store_message: insert one with the "
                       "greatest seq of that table");
  return rc;
}

/* ---- states ---- */

static bool has_lanes(enum msg_local_state state) {
  return state == MSG_LOCAL_ADDRESSED || state == MSG_LOCAL_DIRECT;
}

static int leave_claim(msg_local_session *s, const msg_local_item *item, msg_err *err) {
  int rc =
      msg_local_exec(s, "DELETE FROM @.msg_store_claim WHERE seq = ?1", NULL, err, "i", item->seq);
  return rc == MSG_OK ? msg_local_lease_left(s, item->lease, 1, err) : rc;
}

/* What there is beside the row in this state goes. The row is as it was. */
static int leave(msg_local_session *s, const msg_local_item *item, msg_err *err) {
  if (item->state == MSG_LOCAL_CLAIMED)
    return leave_claim(s, item, err);
  if (item->state == MSG_LOCAL_READY)
    return msg_local_ready_remove(s, item, err);
  return has_lanes(item->state) ? msg_local_lanes_drop(s, item->seq, err) : MSG_OK;
}

static int enter(msg_local_session *s, const msg_local_item *item, msg_err *err) {
  if (item->state == MSG_LOCAL_READY)
    return msg_local_ready_add(s, item->seq, err);
  return has_lanes(item->state) ? msg_local_lanes_make(s, item->seq, err) : MSG_OK;
}

/* A broadcast becomes visible at a number that no floor has passed. */
static int renumber(msg_local_session *s, msg_local_item *item, msg_err *err) {
  static const char sql[] =
      "UPDATE @.msg_store_message AS m SET seq = ?2, moved = " MSG_LOCAL_OUT_OF_PLACE(
          "m.queue", "m.topic", "m.priority", "?3") " WHERE seq = ?1";
  int64_t seq = 0;
  int rc = msg_local_next_seq(s, &seq, err);
  if (rc == MSG_OK)
    rc = msg_local_exec(s, sql, NULL, err, "iii", item->seq, seq, item->deliver_at_ms);
  if (rc == MSG_OK)
    item->seq = seq;
  return rc;
}

/* Without an owner, in `state`. */
static int set_state(msg_local_session *s, msg_local_item *item, enum msg_local_state state,
                     msg_err *err) {
  static const char sql_due[] = "UPDATE @.msg_store_message SET state = ?2, deliver_at = ?3, due = "
                                "?3, attempts = ?4 WHERE seq = ?1";
  static const char sql_plain[] = "UPDATE @.msg_store_message SET state = ?2, deliver_at = ?3, due "
                                  "= NULL, attempts = ?4 WHERE seq = ?1";
  int rc = leave(s, item, err);
  if (rc == MSG_OK && state == MSG_LOCAL_LIVE && item->state != MSG_LOCAL_LIVE)
    rc = renumber(s, item, err);
  if (rc == MSG_OK)
    rc = msg_local_exec(s, state == MSG_LOCAL_DELAYED ? sql_due : sql_plain, NULL, err, "iiii",
                        item->seq, (int64_t)state, item->deliver_at_ms, (int64_t)item->attempts);
  if (rc != MSG_OK)
    return rc;
  item->state = state;
  return enter(s, item, err);
}

/* ---- groups ---- */

#define OF_GROUP                                                                                   \
  " FROM @.msg_store_message AS m INDEXED BY msg_store_message_grp WHERE queue = ?1 AND topic = "  \
  "?2"                                                                                             \
  " AND grp = ?3 AND state <> 7"

/* Has the group no older follower? */
static int is_first(msg_local_session *s, const msg_local_item *item, bool *out, msg_err *err) {
  static const char sql[] = "SELECT 1" OF_GROUP " AND state = 5 AND seq < ?4 LIMIT 1";
  sqlite3_stmt *stmt = NULL;
  int rc =
      msg_local_bound(s, sql, &stmt, err, "ttti", item->queue, item->topic, item->group, item->seq);
  if (rc == MSG_OK)
    rc = msg_local_row(s, stmt, err);
  msg_local_done(s, stmt);
  *out = rc == MSG_NOTFOUND;
  return rc == MSG_NOTFOUND ? MSG_OK : rc;
}

/* The head of item's group, if it is another message: MSG_NOTFOUND. */
static int other_head(msg_local_session *s, const msg_local_item *item, msg_local_item *out,
                      msg_err *err) {
  static const char sql[] = "SELECT * FROM (SELECT " MSG_LOCAL_ITEM_COLUMNS OF_GROUP
                            " AND state < 5 AND seq <> ?4 LIMIT 1)"
                            " UNION ALL SELECT * FROM (SELECT " MSG_LOCAL_ITEM_COLUMNS OF_GROUP
                            " AND state > 5 AND seq <> ?4"
                            " LIMIT 1)";
  sqlite3_stmt *stmt = NULL;
  int rc =
      msg_local_bound(s, sql, &stmt, err, "ttti", item->queue, item->topic, item->group, item->seq);
  return rc == MSG_OK ? msg_local_item_read(s, stmt, out, err) : rc;
}

/* The head has left: the oldest follower becomes it. */
static int promote(msg_local_session *s, const msg_local_item *gone, int64_t now_ms, msg_err *err) {
  static const char sql[] =
      "SELECT " MSG_LOCAL_ITEM_COLUMNS OF_GROUP " AND state = 5 ORDER BY seq LIMIT 1";
  sqlite3_stmt *stmt = NULL;
  msg_local_item next;
  int rc = msg_local_bound(s, sql, &stmt, err, "ttt", gone->queue, gone->topic, gone->group);
  if (rc == MSG_OK)
    rc = msg_local_item_read(s, stmt, &next, err);
  if (rc == MSG_OK)
    rc = set_state(s, &next, msg_local_free_state(&next, now_ms), err);
  return rc == MSG_NOTFOUND ? MSG_OK : rc;
}

/* The group's order decides: `item` waits behind an owned head and behind older ones; a head that
 * nobody owns steps back behind an older one (redriven). */
static int free_grouped(msg_local_session *s, msg_local_item *item, int64_t now_ms, msg_err *err) {
  msg_local_item head;
  bool first = false;
  int rc = is_first(s, item, &first, err);
  if (rc != MSG_OK)
    return rc;
  int found = other_head(s, item, &head, err);
  if (found != MSG_OK && found != MSG_NOTFOUND)
    return found;
  bool headless = found == MSG_NOTFOUND;
  bool behind = !headless && (head.state == MSG_LOCAL_CLAIMED || head.seq < item->seq);
  if (!first || behind) {
    rc = set_state(s, item, MSG_LOCAL_BLOCKED, err);
    return rc == MSG_OK && headless ? promote(s, item, now_ms, err) : rc;
  }
  if (!headless)
    rc = set_state(s, &head, MSG_LOCAL_BLOCKED, err);
  return rc == MSG_OK ? set_state(s, item, msg_local_free_state(item, now_ms), err) : rc;
}

static bool is_head(const msg_local_item *item) {
  return item->grouped && item->state != MSG_LOCAL_BLOCKED && item->state != MSG_LOCAL_DEAD;
}

/* ---- moves ---- */

int msg_local_item_place(msg_local_session *s, msg_local_item *item, int64_t now_ms, msg_err *err) {
  return set_state(s, item, msg_local_free_state(item, now_ms), err);
}

int msg_local_item_free(msg_local_session *s, msg_local_item *item, int64_t now_ms, msg_err *err) {
  return (item->grouped ? free_grouped : msg_local_item_place)(s, item, now_ms, err);
}

int msg_local_item_bury(msg_local_session *s, const msg_local_item *item, const char *reason,
                        int64_t now_ms, msg_err *err) {
  static const char sql[] = "UPDATE @.msg_store_message SET state = 7, due = NULL, delete_at = "
                            "NULL, reason = ?2, attempts = ?3 WHERE seq = ?1";
  int rc = leave(s, item, err);
  if (rc == MSG_OK)
    rc = msg_local_exec(s, sql, NULL, err, "iti", item->seq, reason, (int64_t)item->attempts);
  return rc == MSG_OK && is_head(item) ? promote(s, item, now_ms, err) : rc;
}

int msg_local_item_drop(msg_local_session *s, const msg_local_item *item, int64_t now_ms,
                        msg_err *err) {
  int rc = leave(s, item, err);
  if (rc == MSG_OK)
    rc = msg_local_exec(s, "DELETE FROM @.msg_store_message WHERE seq = ?1", NULL, err, "i",
                        item->seq);
  return rc == MSG_OK && is_head(item) ? promote(s, item, now_ms, err) : rc;
}
