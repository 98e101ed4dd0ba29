/* row.c - a stored row as a message. */
#include <string.h>

#include "base/mem.h"
#include "store/local/session.h"

/* In the order of MSG_LOCAL_COLUMNS. */
enum column {
  SEQ,
  ID,
  TOPIC,
  STATE,
  PRIORITY,
  DELIVER_AT,
  LEASE,
  DELETE_AT,
  ATTEMPTS,
  GRP,
  SENDER,
  SENDER_HOST,
  EXCLUSIVE,
  TIMESTAMP,
  TTL,
  TIMING_OUT,
  DELETE_AFTER,
  IN_ANSWER_TO,
  RECIPIENTS,
  MSG,
  VALUE,
  JSON,
  MAP,
  ADDITIONAL,
  KEY,
  REASON
};

static bool is_null(sqlite3_stmt *stmt, int i) {
  return sqlite3_column_type(stmt, i) == SQLITE_NULL;
}

/* False: not an id. NULL leaves *out zero. */
static bool read_oid(sqlite3_stmt *stmt, int i, msg_oid *out) {
  return is_null(stmt, i) || msg_oid_parse((const char *)sqlite3_column_text(stmt, i), out);
}

/* What time has changed counts before a sweep meets it. */
static bool read_state(int stored, bool claimed, int64_t now_ms, msg_message *m) {
  enum msg_state *out = &m->state;
  switch (claimed ? MSG_LOCAL_CLAIMED : (enum msg_local_state)stored) {
  case MSG_LOCAL_READY:
  case MSG_LOCAL_MORTAL:
  case MSG_LOCAL_ADDRESSED:
  case MSG_LOCAL_LIVE:
  case MSG_LOCAL_DIRECT: *out = MSG_STATE_READY; break;
  case MSG_LOCAL_DELAYED:
    *out = m->deliver_at_ms <= now_ms ? MSG_STATE_READY : MSG_STATE_DELAYED;
    break;
  case MSG_LOCAL_BLOCKED: *out = MSG_STATE_BLOCKED; break;
  case MSG_LOCAL_CLAIMED: *out = MSG_STATE_CLAIMED; return true;
  case MSG_LOCAL_DEAD: *out = MSG_STATE_DEAD; return true;
  default: return false;
  }
  if (m->delete_at_ms <= now_ms)
    *out = MSG_STATE_EXPIRED;
  return true;
}

/* Text and blob share their shape; *nomem as in msg_local_column_dup. */
static void read_bytes(sqlite3_stmt *stmt, int i, enum msg_type type, msg_value *out, bool *nomem) {
  const void *bytes =
      type == MSG_TEXT ? sqlite3_column_text(stmt, i) : sqlite3_column_blob(stmt, i);
  size_t n = (size_t)sqlite3_column_bytes(stmt, i);
  char *copy = (bytes || n == 0) ? msg_alloc(n + 1) : NULL;
  if (!copy) {
    *nomem = true;
    return;
  }
  if (n > 0)
    memcpy(copy, bytes, n);
  copy[n] = '\0';
  *out = (msg_value){.type = type, .owned = true, .p = copy, .n = n};
}

static void read_value(sqlite3_stmt *stmt, int i, int json, msg_value *out, bool *nomem) {
  switch (sqlite3_column_type(stmt, i)) {
  case SQLITE_INTEGER: *out = msg_value_int(sqlite3_column_int64(stmt, i)); break;
  case SQLITE_FLOAT:
    *out = (msg_value){.type = MSG_REAL, .r = sqlite3_column_double(stmt, i)};
    break;
  case SQLITE_TEXT:
    read_bytes(stmt, i, MSG_TEXT, out, nomem);
    out->json = sqlite3_column_int(stmt, json) != 0;
    break;
  case SQLITE_BLOB: read_bytes(stmt, i, MSG_BLOB, out, nomem); break;
  default: break;
  }
}

/* One name a line; names hold no control characters. */
static void read_recipients(sqlite3_stmt *stmt, msg_message *m, bool *nomem) {
  if (is_null(stmt, RECIPIENTS))
    return;
  char *text = msg_local_column_dup(stmt, RECIPIENTS, nomem);
  for (char *name = text, *end; name && !*nomem; name = end) {
    end = strchr(name, '\n');
    if (end)
      *end++ = '\0';
    if (msg_message_add_recipient(m, name) != MSG_OK)
      *nomem = true;
  }
  msg_free(text);
}

static void read_texts(sqlite3_stmt *stmt, msg_message *m, bool *nomem) {
  m->topic = msg_local_column_dup(stmt, TOPIC, nomem);
  m->msg = msg_local_column_dup(stmt, MSG, nomem);
  m->map = msg_local_column_dup(stmt, MAP, nomem);
  m->additional = msg_local_column_dup(stmt, ADDITIONAL, nomem);
  m->sender = msg_local_column_dup(stmt, SENDER, nomem);
  m->sender_host = msg_local_column_dup(stmt, SENDER_HOST, nomem);
  m->key = msg_local_column_dup(stmt, KEY, nomem);
  m->group = msg_local_column_dup(stmt, GRP, nomem);
  m->reason = msg_local_column_dup(stmt, REASON, nomem);
}

static void read_numbers(sqlite3_stmt *stmt, msg_message *m) {
  m->exclusive = sqlite3_column_int(stmt, EXCLUSIVE) != 0;
  m->timing_out = sqlite3_column_int(stmt, TIMING_OUT) != 0;
  m->delete_after_processing = !is_null(stmt, DELETE_AFTER);
  m->delete_after_processing_ms = sqlite3_column_int(stmt, DELETE_AFTER);
  m->priority = sqlite3_column_int(stmt, PRIORITY);
  m->timestamp_ms = sqlite3_column_int64(stmt, TIMESTAMP);
  m->ttl_ms = sqlite3_column_int64(stmt, TTL);
  m->delete_at_ms = is_null(stmt, DELETE_AT) ? MSG_NEVER : sqlite3_column_int64(stmt, DELETE_AT);
  m->seq = sqlite3_column_int64(stmt, SEQ);
  m->deliver_at_ms = sqlite3_column_int64(stmt, DELIVER_AT);
  m->attempts = sqlite3_column_int(stmt, ATTEMPTS);
}

static int corrupt(sqlite3_stmt *stmt, int64_t seq, msg_err *err) {
  if (sqlite3_errcode(sqlite3_db_handle(stmt)) == SQLITE_NOMEM)
    return msg_err_nomem(err);
  return msg_err_set(err, MSG_CORRUPT,
                     "the message with seq %lld has an id or state that cannot be: delete the row "
                     "from msg_store_message",
                     (long long)seq);
}

int msg_local_read_row(sqlite3_stmt *stmt, int64_t now_ms, msg_message *out, msg_err *err) {
  msg_message m;
  bool nomem = false;
  msg_message_init(&m);
  msg_message_init(out);
  read_numbers(stmt, &m);
  if (!read_oid(stmt, ID, &m.id) || !read_oid(stmt, IN_ANSWER_TO, &m.in_answer_to) ||
      !read_state(sqlite3_column_int(stmt, STATE), !is_null(stmt, LEASE), now_ms, &m))
    return corrupt(stmt, m.seq, err);
  read_texts(stmt, &m, &nomem);
  read_value(stmt, VALUE, JSON, &m.value, &nomem);
  read_recipients(stmt, &m, &nomem);
  if (nomem) {
    msg_message_clear(&m);
    return msg_err_nomem(err);
  }
  *out = m;
  return MSG_OK;
}

/* ---- brief ---- */

/* In the order of MSG_LOCAL_BRIEF_COLUMNS. */
enum brief {
  B_SEQ,
  B_ID,
  B_PRIORITY,
  B_DELIVER_AT,
  B_ATTEMPTS,
  B_TIMESTAMP,
  B_MSG,
  B_VALUE,
  B_JSON
};

int msg_local_read_brief(sqlite3_stmt *stmt, char *topic, msg_message *out, msg_err *err) {
  msg_message *m = out;
  bool nomem = false;
  m->seq = sqlite3_column_int64(stmt, B_SEQ);
  if (!msg_oid_parse((const char *)sqlite3_column_text(stmt, B_ID), &m->id))
    return corrupt(stmt, m->seq, err);
  m->topic = topic;
  m->lent = true;
  m->exclusive = true;
  m->priority = sqlite3_column_int(stmt, B_PRIORITY);
  m->deliver_at_ms = sqlite3_column_int64(stmt, B_DELIVER_AT);
  m->attempts = sqlite3_column_int(stmt, B_ATTEMPTS);
  m->timestamp_ms = sqlite3_column_int64(stmt, B_TIMESTAMP);
  m->msg = msg_local_column_dup(stmt, B_MSG, &nomem);
  read_value(stmt, B_VALUE, B_JSON, &m->value, &nomem);
  if (!nomem)
    return MSG_OK;
  msg_message_clear(m);
  return msg_err_nomem(err);
}
