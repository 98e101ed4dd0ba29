/* put.c - messages into the store. */
#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "store/local/move.h"
#include "store/local/reading.h"

/* Of a plain message every column that is not given is empty, it is delivered when it was sent, and
 * it times out if it is ever deleted. */
#define INSERT(columns, state, values)                                                             \
  "INSERT INTO @.msg_store_message(id, queue, topic, state, priority, deliver_at, delete_at,"      \
  " sender, sender_host, exclusive, ttl, value, json, timestamp, timing_out" columns ")"           \
  " VALUES(?1, ?2, ?3, " state ", ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, " values ")"
#define INSERT_ALL(state, moved)                                                                   \
  INSERT(", due, grp, delete_after, in_answer_to, recipients, msg, map, additional, key,"          \
         " attempts, reason, moved",                                                               \
         state, "?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26, " moved)

static const char SQL_INSERT_PLAIN[] = INSERT("", "?4", "?6, ?7 IS NOT NULL");
static const char SQL_INSERT[] = INSERT_ALL("?4", "NULL");
static const char SQL_INSERT_LATE[] =
    INSERT_ALL("?4", MSG_LOCAL_OUT_OF_PLACE("?2", "?3", "?5", "?6"));
/* A follower waits behind whatever of its group is not dead. */
static const char SQL_INSERT_GROUPED[] =
    INSERT_ALL("CASE WHEN EXISTS(SELECT 1 FROM @.msg_store_message INDEXED BY msg_store_message_grp"
               "  WHERE queue = ?2 AND topic = ?3 AND grp = ?17 AND state <> 7) THEN 5 "
               "ELSE ?4 END",
               "NULL");

struct batch {
  msg_put *items;
  size_t n;
  int64_t now_ms;
};

/* ---- recipients as JSON ---- */

static void append_json_string(msg_str *out, const char *text) {
  msg_str_append(out, "\"");
  for (; *text; text++) {
    unsigned char c = (unsigned char)*text;
    if (c == '"' || c == '\\')
      msg_str_appendf(out, "\\%c", c);
    else if (c < 0x20)
      msg_str_appendf(out, "\\u%04x", c);
    else
      msg_str_appendn(out, text, 1);
  }
  msg_str_append(out, "\"");
}

static void append_recipients(msg_str *out, const msg_message *m) {
  for (size_t i = 0; i < m->recipient_count; i++) {
    msg_str_append(out, i == 0 ? "[" : ",");
    append_json_string(out, m->recipients[i]);
  }
  msg_str_append(out, "]");
}

/* ---- one row ---- */

/* Remembers the first failure; NULL values stay unbound, which is NULL. */
struct binder {
  sqlite3_stmt *stmt;
  int rc;
};

static void bind_text(struct binder *b, int i, const char *text) {
  if (b->rc == SQLITE_OK && text)
    b->rc = msg_local_bind_text(b->stmt, i, text);
}

static void bind_int(struct binder *b, int i, int64_t value) {
  if (b->rc == SQLITE_OK)
    b->rc = sqlite3_bind_int64(b->stmt, i, value);
}

static bool has_recipients(const msg_message *m) {
  return m->recipient_count > 0;
}

/* Groups order exclusive messages only. */
static const char *group_of(const msg_message *m) {
  return m->exclusive ? m->group : NULL;
}

static bool is_dead(const msg_message *m) {
  return m->state == MSG_STATE_DEAD;
}

static enum msg_local_state state_of(const msg_message *m, int64_t now_ms) {
  if (is_dead(m))
    return MSG_LOCAL_DEAD;
  msg_local_item item; /* its names, which are large, stay unset */
  item.exclusive = m->exclusive;
  item.has_recipients = has_recipients(m);
  item.mortal = m->delete_at_ms != MSG_NEVER;
  item.deliver_at_ms = m->deliver_at_ms;
  return msg_local_free_state(&item, now_ms);
}

static void bind_plain(struct binder *b, const char *queue, const msg_message *m,
                       enum msg_local_state state) {
  bind_text(b, 2, queue);
  bind_text(b, 3, m->topic);
  bind_int(b, 4, state);
  bind_int(b, 5, m->priority);
  bind_int(b, 6, m->deliver_at_ms);
  if (m->delete_at_ms != MSG_NEVER)
    bind_int(b, 7, m->delete_at_ms);
  bind_text(b, 8, m->sender);
  bind_text(b, 9, m->sender_host);
  bind_int(b, 10, m->exclusive);
  bind_int(b, 11, m->ttl_ms);
  if (b->rc == SQLITE_OK && m->value.type != MSG_NULL)
    b->rc = msg_local_bind_value(b->stmt, 12, &m->value);
  if (m->value.json)
    bind_int(b, 13, 1);
}

static bool is_plain(const msg_message *m, enum msg_local_state state) {
  bool texts = m->group || m->msg || m->map || m->additional || m->key || m->reason;
  bool times = state == MSG_LOCAL_DELAYED || m->timestamp_ms != m->deliver_at_ms ||
               m->timing_out != (m->delete_at_ms != MSG_NEVER);
  return !texts && !times && !has_recipients(m) && !m->delete_after_processing && !m->attempts &&
         msg_oid_is_zero(&m->in_answer_to);
}

/* answered, recipients: storage until reset. */
static void bind_more(struct binder *b, const msg_message *m, enum msg_local_state state,
                      char answered[MSG_OID_HEX + 1], msg_str *recipients) {
  bind_int(b, 14, m->timestamp_ms);
  bind_int(b, 15, m->timing_out);
  if (state == MSG_LOCAL_DELAYED && !group_of(m))
    bind_int(b, 16, m->deliver_at_ms);
  bind_text(b, 17, group_of(m));
  if (m->delete_after_processing)
    bind_int(b, 18, m->delete_after_processing_ms);
  if (b->rc == SQLITE_OK && !msg_oid_is_zero(&m->in_answer_to))
    b->rc = msg_local_bind_oid(b->stmt, 19, &m->in_answer_to, answered);
  if (has_recipients(m))
    append_recipients(recipients, m);
  bind_text(b, 20, recipients->s);
  bind_text(b, 21, m->msg);
  bind_text(b, 22, m->map);
  bind_text(b, 23, m->additional);
  bind_text(b, 24, m->key);
  bind_int(b, 25, m->attempts);
  bind_text(b, 26, m->reason);
}

/* ---- the insert ---- */

static int step_insert(msg_local_session *s, sqlite3_stmt *stmt, const char *id, msg_err *err) {
  bool row;
  int rc = msg_local_step(s, stmt, &row, err), code = sqlite3_extended_errcode(s->db);
  if (rc != MSG_OK && (code & 0xFF) == SQLITE_CONSTRAINT &&
      strstr(sqlite3_errmsg(s->db), "msg_store_message.id"))
    return msg_err_native(err, MSG_EXISTS, MSG_DOMAIN_SQLITE, code,
                          "send: a message with id %s exists already: leave the id out, or choose "
                          "another",
                          id);
  return rc;
}

/* A broadcast of an earlier time than now may come behind later ones. */
static const char *insert_of(const msg_message *m, enum msg_local_state state) {
  if (state != MSG_LOCAL_DEAD && group_of(m))
    return SQL_INSERT_GROUPED;
  bool broadcast = state != MSG_LOCAL_DEAD && !m->exclusive && !has_recipients(m);
  if (broadcast && m->deliver_at_ms < msg_clock_now_ms())
    return SQL_INSERT_LATE;
  return is_plain(m, state) ? SQL_INSERT_PLAIN : SQL_INSERT;
}

static int insert(msg_local_session *s, const msg_message *m, enum msg_local_state state,
                  msg_err *err) {
  char id[MSG_OID_HEX + 1], answered[MSG_OID_HEX + 1];
  msg_str recipients = MSG_STR_INIT;
  struct binder b = {.rc = SQLITE_OK};
  const char *sql = insert_of(m, state);
  int rc = msg_local_stmt(s, sql, &b.stmt, err);
  if (rc != MSG_OK)
    return rc;
  b.rc = msg_local_bind_oid(b.stmt, 1, &m->id, id);
  bind_plain(&b, s->queue, m, state);
  if (sql != SQL_INSERT_PLAIN)
    bind_more(&b, m, state, answered, &recipients);
  if (recipients.nomem)
    rc = msg_err_nomem(err);
  else if (b.rc != SQLITE_OK)
    rc = msg_local_fail(s, b.rc, "send", err);
  else
    rc = step_insert(s, b.stmt, id, err);
  msg_local_done(s, b.stmt);
  msg_str_clear(&recipients);
  return rc;
}

/* Who has seen a copy already: a broadcast is marked, a direct leaves their lanes. */
static int mark_seen(msg_local_session *s, const msg_message *m, int64_t seq, msg_err *err) {
  static const char sql_mark[] = "INSERT OR IGNORE INTO @.msg_store_seen(queue, node, seq)"
                                 " SELECT ?1, j.value, ?2 FROM json_each(?3) AS j";
  static const char sql_take[] = "DELETE FROM @.msg_store_lane INDEXED BY msg_store_lane_seq"
                                 " WHERE queue = ?1 AND seq = ?2"
                                 " AND node IN (SELECT j.value FROM json_each(?3) AS j)";
  return msg_local_exec(s, has_recipients(m) ? sql_take : sql_mark, NULL, err, "tit", s->queue, seq,
                        m->processed_by);
}

/* What belongs beside the row. A grouped message learns its state by the insert: the delay of a
 * head is noted afterwards. */
static int finish(msg_local_session *s, const msg_message *m, enum msg_local_state state,
                  msg_err *err) {
  int64_t seq = sqlite3_last_insert_rowid(s->db);
  if (group_of(m)) {
    msg_local_item item;
    int rc = msg_local_item_load(s, seq, &item, err);
    if (rc != MSG_OK)
      return rc;
    state = item.state;
    if (state == MSG_LOCAL_DELAYED)
      return msg_local_exec(s, "UPDATE @.msg_store_message SET due = deliver_at WHERE seq = ?1",
                            NULL, err, "i", seq);
  }
  if (state == MSG_LOCAL_READY)
    return msg_local_ready_add(s, seq, err);
  int rc = MSG_OK;
  if (state == MSG_LOCAL_ADDRESSED || state == MSG_LOCAL_DIRECT)
    rc = msg_local_lanes_make(s, seq, err);
  return rc == MSG_OK && m->processed_by ? mark_seen(s, m, seq, err) : rc;
}

/* Is there more to do once its state is known? */
static bool needs_finish(const msg_message *m) {
  return !is_dead(m) && (has_recipients(m) || group_of(m) || m->processed_by);
}

/* READY, whatever else is in the store. */
static bool is_ready(const msg_message *m, enum msg_local_state state) {
  return !group_of(m) && state == MSG_LOCAL_READY;
}

/* The message, and its row in msg_store_ready by a statement that is bound before: between the two
 * nothing can fail that leaves the first alone. (Where a single row cannot be written, SQLite rolls
 * the transaction back.) */
static int insert_ready(msg_local_session *s, const msg_message *m, enum msg_local_state state,
                        msg_err *err) {
  static const char sql[] = "INSERT INTO @.msg_store_ready(queue, topic, priority, deliver_at, seq)"
                            " VALUES(?1, ?2, ?3, ?4, ?5)";
  sqlite3_stmt *stmt = NULL;
  int rc = msg_local_bound(s, sql, &stmt, err, "ttiii", s->queue, m->topic, (int64_t)m->priority,
                           m->deliver_at_ms, INT64_C(0));
  if (rc == MSG_OK)
    rc = insert(s, m, state, err);
  if (rc != MSG_OK) {
    msg_local_done(s, stmt);
    return rc;
  }
  sqlite3_bind_int64(stmt, 5, sqlite3_last_insert_rowid(s->db));
  return msg_local_run(s, stmt, err);
}

/* ---- de-duplication ---- */

/* MSG_OK: the key was used within its window, by *out. MSG_NOTFOUND: it is free. */
static int find_key(msg_local_session *s, const msg_message *m, int64_t now_ms, msg_oid *out,
                    msg_err *err) {
  static const char sql[] = "SELECT id FROM @.msg_store_key WHERE queue = ?1 AND topic = ?2"
                            " AND key = ?3 AND until > ?4";
  sqlite3_stmt *stmt = NULL;
  int rc = msg_local_bound(s, sql, &stmt, err, "ttti", s->queue, m->topic, m->key, now_ms);
  if (rc == MSG_OK)
    rc = msg_local_row(s, stmt, err);
  if (rc == MSG_OK && !msg_oid_parse((const char *)sqlite3_column_text(stmt, 0), out))
    rc = msg_err_set(err, MSG_CORRUPT,
                     "send: the row of key '%s' in msg_store_key holds no id: delete that row",
                     msg_show(m->key).s);
  msg_local_done(s, stmt);
  return rc;
}

static int remember_key(msg_local_session *s, const msg_put *item, msg_err *err) {
  static const char sql[] =
      "INSERT INTO @.msg_store_key(queue, topic, key, id, until) VALUES(?1, ?2, ?3, ?4, ?5)"
      " ON CONFLICT(queue, topic, key) DO UPDATE SET id = excluded.id, until = excluded.until";
  const msg_message *m = item->message;
  return msg_local_exec(s, sql, NULL, err, "tttdi", s->queue, m->topic, m->key, &m->id,
                        item->key_until_ms);
}

/* ---- the verb ---- */

/* The insert goes first: where it fails because the id is taken, nothing was written even if a
 * statement of the host's is the transaction and cannot be undone alone. */
static int put_one(msg_local_session *s, msg_put *item, int64_t now_ms, msg_err *err) {
  const msg_message *m = item->message;
  int found = m->key ? find_key(s, m, now_ms, &item->id, err) : MSG_NOTFOUND;
  bool remembers = m->key && found == MSG_NOTFOUND && item->key_until_ms > now_ms;
  if (found == MSG_OK && m->copied)
    found = MSG_NOTFOUND;
  item->existed = found == MSG_OK;
  if (found != MSG_NOTFOUND)
    return found;
  item->id = m->id;
  enum msg_local_state state = state_of(m, now_ms);
  int rc = (is_ready(m, state) ? insert_ready : insert)(s, m, state, err);
  if (rc == MSG_OK && needs_finish(m))
    rc = finish(s, m, state, err);
  return rc == MSG_OK && remembers ? remember_key(s, item, err) : rc;
}

static int put_work(msg_local_session *s, void *arg, msg_err *err) {
  struct batch *b = arg;
  int rc = MSG_OK;
  for (size_t i = 0; rc == MSG_OK && i < b->n; i++)
    rc = put_one(s, &b->items[i], b->now_ms, err);
  return rc;
}

int msg_local_put(msg_session *base, const msg_actor *actor, msg_put *items, size_t n,
                  msg_err *err) {
  msg_local_session *s = (msg_local_session *)base;
  struct batch b = {.items = items, .n = n, .now_ms = msg_clock_now_ms()};
  bool backlog = false;
  int rc = msg_local_sweep(s, actor, b.now_ms, false, &backlog, err);
  if (rc != MSG_OK)
    return rc;
  const msg_message *first = items[0].message;
  bool many = n > 1 || first->key || needs_finish(first) ||
              (is_ready(first, state_of(first, b.now_ms)) && sqlite3_get_autocommit(s->db));
  return msg_local_write(s, "send", many, put_work, &b, err);
}
