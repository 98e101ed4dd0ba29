/* schema.c - see schema.h. */
#include "store/local/schema.h"

#include <stddef.h>
#include <string.h>

#include "base/mem.h"
#include "base/process.h"
#include "base/str.h"
#include "store/local/session.h"

/* '@' stands for the quoted schema. */
static const char *const VERSION_1[] = {
    "CREATE TABLE @.msg_store(version INTEGER NOT NULL, store_id TEXT NOT NULL)",

    /* seq is commit-ordered and never reused (AUTOINCREMENT); a delayed broadcast gets a new one
     * when it becomes visible, so that a floor never passes something unseen. */
    "CREATE TABLE @.msg_store_message("
    " seq INTEGER PRIMARY KEY AUTOINCREMENT,"
    " id TEXT NOT NULL,"
    " queue TEXT NOT NULL,"
    " topic TEXT NOT NULL,"
    " state INTEGER NOT NULL,"
    " priority INTEGER NOT NULL,"
    " deliver_at INTEGER NOT NULL,"
    " due INTEGER,"
    " delete_at INTEGER,"
    " attempts INTEGER NOT NULL DEFAULT 0,"
    " grp TEXT,"
    " in_answer_to TEXT,"
    " moved INTEGER," /* 1: a broadcast whose delivery time is out of the order of seq */
    /* no index asks for what comes behind: it is not looked at when a row goes */
    " sender TEXT NOT NULL, sender_host TEXT,"
    " exclusive INTEGER NOT NULL,"
    " timestamp INTEGER NOT NULL, ttl INTEGER NOT NULL, timing_out INTEGER NOT NULL,"
    " delete_after INTEGER," /* NULL: delete_after_processing false; else
                                delete_after_processing_time, ms */
    " recipients TEXT,"      /* JSON array */
    " msg TEXT,"
    " value,"
    " json INTEGER," /* 1: value carries the JSON subtype */
    " map TEXT, additional TEXT, key TEXT, reason TEXT,"
    " redriven INTEGER)", /* how often; NULL: never */

    "CREATE UNIQUE INDEX @.msg_store_message_id ON msg_store_message(id)",
    /* delete_at, so that what is expired and not yet swept is passed over in the index alone */
    "CREATE INDEX @.msg_store_message_mortal"
    " ON msg_store_message(queue, topic, priority, deliver_at, seq, delete_at) WHERE state = 2",
    "CREATE INDEX @.msg_store_message_mortal_end"
    " ON msg_store_message(queue, topic, delete_at, priority, deliver_at) WHERE state = 2",
    "CREATE INDEX @.msg_store_message_delayed ON msg_store_message(due) WHERE state = 4",
    "CREATE INDEX @.msg_store_message_dead ON msg_store_message(queue, topic) WHERE state = 7",
    "CREATE INDEX @.msg_store_message_live ON msg_store_message(queue, topic, priority) WHERE "
    "state = 8",
    "CREATE INDEX @.msg_store_message_moved"
    " ON msg_store_message(queue, topic, priority, deliver_at) WHERE moved IS NOT NULL",
    "CREATE INDEX @.msg_store_message_expiry ON msg_store_message(delete_at)"
    " WHERE delete_at IS NOT NULL AND state <> 6",
    /* the head of a group has another state than its followers */
    "CREATE INDEX @.msg_store_message_grp ON msg_store_message(queue, topic, grp, state)"
    " WHERE grp IS NOT NULL AND state <> 7",
    /* what no other index finds by topic */
    "CREATE INDEX @.msg_store_message_other ON msg_store_message(queue, topic, state)"
    " WHERE " MSG_LOCAL_OTHER,
    "CREATE INDEX @.msg_store_message_answer ON msg_store_message(in_answer_to)"
    " WHERE in_answer_to IS NOT NULL",

    "CREATE TABLE @.msg_store_ready("
    " queue TEXT NOT NULL, topic TEXT NOT NULL, priority INTEGER NOT NULL,"
    " deliver_at INTEGER NOT NULL, seq INTEGER NOT NULL,"
    " PRIMARY KEY(queue, topic, priority, deliver_at, seq)) WITHOUT ROWID",
    "CREATE TABLE @.msg_store_claim("
    " seq INTEGER PRIMARY KEY," /* of a lease its number, which is negative: see lease.h */
    /* of a message */
    " lease INTEGER, attempts INTEGER,"
    /* of a lease */
    " owner TEXT, token TEXT, holder TEXT, since INTEGER,"
    " messages INTEGER,"             /* that it still has */
    " first INTEGER, last INTEGER)", /* none of them is outside */
    "CREATE TABLE @.msg_store_holder(process TEXT NOT NULL PRIMARY KEY) WITHOUT ROWID",

    "CREATE TABLE @.msg_store_lane("
    " queue TEXT NOT NULL, node TEXT NOT NULL, exclusive INTEGER NOT NULL,"
    " priority INTEGER NOT NULL, deliver_at INTEGER NOT NULL, seq INTEGER NOT NULL,"
    " topic TEXT NOT NULL,"
    " PRIMARY KEY(queue, node, exclusive, priority, deliver_at, seq)) WITHOUT ROWID",
    /* the same order within a topic: what waits for other topics is not read */
    "CREATE INDEX @.msg_store_lane_topic"
    " ON msg_store_lane(queue, node, exclusive, topic, priority, deliver_at, seq)",
    "CREATE INDEX @.msg_store_lane_seq ON msg_store_lane(seq)",

    "CREATE TABLE @.msg_store_listener("
    " queue TEXT NOT NULL, node TEXT NOT NULL, pattern TEXT NOT NULL, start INTEGER NOT NULL,"
    " PRIMARY KEY(queue, node, pattern)) WITHOUT ROWID",
    /* The topic is part of the key: one paused or unread topic must not hold up the floor of the
       others under a pattern. */
    "CREATE TABLE @.msg_store_floor("
    " queue TEXT NOT NULL, node TEXT NOT NULL, topic TEXT NOT NULL, priority INTEGER NOT NULL,"
    " pattern TEXT NOT NULL, floor INTEGER NOT NULL,"
    " PRIMARY KEY(queue, node, topic, priority, pattern)) WITHOUT ROWID",
    "CREATE TABLE @.msg_store_seen("
    " queue TEXT NOT NULL, node TEXT NOT NULL, seq INTEGER NOT NULL,"
    " PRIMARY KEY(queue, node, seq)) WITHOUT ROWID",

    "CREATE TABLE @.msg_store_key("
    " queue TEXT NOT NULL, topic TEXT NOT NULL, key TEXT NOT NULL,"
    " id TEXT NOT NULL, until INTEGER NOT NULL, PRIMARY KEY(queue, topic, key)) WITHOUT ROWID",
    "CREATE INDEX @.msg_store_key_until ON msg_store_key(until)",

    "CREATE TABLE @.msg_store_node("
    " queue TEXT NOT NULL, node TEXT NOT NULL, host TEXT, pid INTEGER, process TEXT,"
    " implementation TEXT, layout TEXT, automatic INTEGER NOT NULL,"
    " started_at INTEGER NOT NULL, last_seen INTEGER NOT NULL,"
    " PRIMARY KEY(queue, node)) WITHOUT ROWID",
};

/* STEPS[v] leads from version v to v + 1; 0 is nothing. */
static const struct step {
  const char *const *sql;
  size_t n;
} STEPS[MSG_LOCAL_VERSION] = {
    {VERSION_1, sizeof VERSION_1 / sizeof VERSION_1[0]},
};

int msg_schema_judge(sqlite3_int64 version, enum msg_schema_state *out, msg_err *err) {
  if (version > MSG_LOCAL_VERSION)
    return msg_err_set(err, MSG_UNSUPPORTED,
                       "the message store has version %lld, this msg.so knows up to %d: load a "
                       "newer msg.so",
                       (long long)version, MSG_LOCAL_VERSION);
  if (version < 1)
    return msg_err_set(err, MSG_CORRUPT,
                       "the message store has version %lld, which never existed: restore table "
                       "msg_store from a copy",
                       (long long)version);
  *out = version == MSG_LOCAL_VERSION ? MSG_SCHEMA_CURRENT : MSG_SCHEMA_OLD;
  return MSG_OK;
}

/* ---- without a session ---- */

/* "schema NAME" for texts. */
struct place {
  char s[120];
};

static struct place place_of(const char *schema) {
  struct place p;
  sqlite3_snprintf((int)sizeof p.s, p.s, "schema %s", msg_show(schema).s);
  return p;
}

char *msg_schema_quote(const char *name) {
  msg_str text = MSG_STR_INIT;
  msg_str_append(&text, "\"");
  for (; *name; name++)
    msg_str_appendn(&text, *name == '"' ? "\"\"" : name, *name == '"' ? 2 : 1);
  msg_str_append(&text, "\"");
  return msg_str_take(&text);
}

char *msg_schema_expand(const char *quoted, const char *sql) {
  msg_str text = MSG_STR_INIT;
  for (const char *at; (at = strchr(sql, '@')) != NULL; sql = at + 1) {
    msg_str_appendn(&text, sql, (size_t)(at - sql));
    msg_str_append(&text, quoted);
  }
  msg_str_append(&text, sql);
  return msg_str_take(&text);
}

static char *expand(const char *schema, const char *sql) {
  char *quoted = msg_schema_quote(schema);
  char *text = quoted ? msg_schema_expand(quoted, sql) : NULL;
  msg_free(quoted);
  return text;
}

/* The version row; false: no store. */
static int read_version(sqlite3 *db, const char *schema, bool *exists, sqlite3_int64 *version,
                        msg_err *err) {
  char *sql = expand(schema, "SELECT version FROM @.msg_store");
  if (!sql)
    return msg_err_nomem(err);
  sqlite3_stmt *stmt = NULL;
  int rc = sqlite3_prepare_v3(db, sql, -1, 0, &stmt, NULL);
  msg_free(sql);
  if (rc == SQLITE_ERROR && strncmp(sqlite3_errmsg(db), "no such table: ", 15) == 0) {
    *exists = false;
    return MSG_OK;
  }
  if (rc == SQLITE_OK)
    rc = sqlite3_step(stmt);
  int result = MSG_OK;
  *exists = true;
  if (rc == SQLITE_ROW)
    *version = sqlite3_column_int64(stmt, 0);
  else if (rc == SQLITE_DONE)
    result = msg_err_set(err, MSG_CORRUPT, "table msg_store of %s is empty: restore it from a copy",
                         place_of(schema).s);
  else
    result = msg_local_error(db, schema, place_of(schema).s, rc, "open", err);
  sqlite3_finalize(stmt);
  return result;
}

static int execute(sqlite3 *db, const char *schema, const char *sql, msg_err *err) {
  char *text = expand(schema, sql);
  if (!text)
    return msg_err_nomem(err);
  int rc = sqlite3_exec(db, text, NULL, NULL, NULL);
  msg_free(text);
  if (rc == SQLITE_OK)
    return MSG_OK;
  return msg_local_error(db, schema, place_of(schema).s, rc, "make the message tables", err);
}

/* The version row of the new version; a new store gets its id. */
static int write_version(sqlite3 *db, const char *schema, bool is_new, msg_err *err) {
  char sql[160];
  if (is_new) {
    unsigned char id[16];
    msg_process_random(id, sizeof id);
    char hex[sizeof id * 2 + 1];
    for (size_t i = 0; i < sizeof id; i++)
      sqlite3_snprintf(3, hex + i * 2, "%02x", id[i]);
    sqlite3_snprintf((int)sizeof sql, sql,
                     "INSERT INTO @.msg_store(version, store_id) VALUES(%d, '%s')",
                     MSG_LOCAL_VERSION, hex);
  } else {
    sqlite3_snprintf((int)sizeof sql, sql, "UPDATE @.msg_store SET version = %d",
                     MSG_LOCAL_VERSION);
  }
  return execute(db, schema, sql, err);
}

/* msg_store is made first: if it exists by now, another connection made it between our look and our
 * lock. */
static int make_first(sqlite3 *db, const char *schema, msg_err *err) {
  int rc = execute(db, schema, STEPS[0].sql[0], err);
  if (rc == MSG_BACKEND && strstr(sqlite3_errmsg(db), "already exists"))
    return msg_err_native(err, MSG_BUSY, MSG_DOMAIN_SQLITE, SQLITE_BUSY,
                          "make the message tables: %s: another connection makes them: try again",
                          place_of(schema).s);
  return rc;
}

int msg_schema_make(sqlite3 *db, const char *schema, msg_err *err) {
  sqlite3_int64 found = 0;
  bool exists = false;
  int rc = read_version(db, schema, &exists, &found, err);
  enum msg_schema_state state = MSG_SCHEMA_NONE;
  if (rc == MSG_OK && exists)
    rc = msg_schema_judge(found, &state, err);
  if (rc != MSG_OK || state == MSG_SCHEMA_CURRENT)
    return rc;
  for (sqlite3_int64 v = found; rc == MSG_OK && v < MSG_LOCAL_VERSION; v++) {
    size_t i = 0;
    if (v == 0) {
      rc = make_first(db, schema, err);
      i = 1;
    }
    for (; rc == MSG_OK && i < STEPS[v].n; i++)
      rc = execute(db, schema, STEPS[v].sql[i], err);
  }
  if (rc == MSG_OK)
    rc = write_version(db, schema, !exists, err);
  msg_rights rights; /* nothing half made where the authorizer ignores some of it */
  return rc == MSG_OK ? msg_local_rights(db, schema, &rights, err) : rc;
}
