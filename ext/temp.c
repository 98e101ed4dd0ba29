#include "ext/temp.h"

#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "ext/program.h"
#include "ext/state.h"

/* Modules that get a table of the same name in temp. */
static const char *const TABLES[] = {
    "msg_messages", "msg_await", "msg_claim",    "msg_request",   "msg_queues",
    "msg_topics",   "msg_locks", "msg_lanes",    "msg_listeners", "msg_participants",
    "msg_cursors",  "msg_stats", "msg_settings", "msg_doctor",    NULL,
};

/* FNV-1a: a statement that was looked into is known again by its text. */
static uint64_t hash_of(const char *text) {
  uint64_t h = UINT64_C(14695981039346656037);
  for (; *text; text++)
    h = (h ^ (unsigned char)*text) * UINT64_C(1099511628211);
  return h;
}

/* A running statement that temp DDL may break. `restart`: it is the one to be run anew. */
static bool is_noisy(msg_connection *c, sqlite3_stmt *s, bool restart, bool *opens) {
  msg_program program = {0};
  const char *sql = sqlite3_sql(s);
  if (!sql || !sqlite3_stmt_readonly(s) || sqlite3_stmt_isexplain(s))
    return true;
  uint64_t hash = hash_of(sql) + restart;
  if (c->noisy == hash)
    return true;
  if (msg_program_look(c->db, s, &program) && (program.results <= 1 || !restart) &&
      (!program.opens || restart)) {
    *opens = *opens || program.opens;
    return false;
  }
  c->noisy = hash;
  return true;
}

/* Would temp DDL disturb nobody? It expires every statement, and a running one that then opens a
 * table fails. `restart`: the only running one will be run anew, so what it opens does not matter;
 * but it must not have given rows. */
static bool is_quiet(msg_connection *c, bool restart) {
  int busy = 0;
  bool opens = false;
  for (sqlite3_stmt *s = sqlite3_next_stmt(c->db, NULL); s; s = sqlite3_next_stmt(c->db, s)) {
    if (!sqlite3_stmt_busy(s))
      continue;
    if (is_noisy(c, s, restart, &opens))
      return false;
    busy++;
  }
  return !opens || busy == 1;
}

static int create_tables(msg_connection *c, msg_err *err) {
  msg_str sql = MSG_STR_INIT;
  for (const char *const *name = TABLES; *name; name++)
    msg_str_appendf(&sql, "CREATE VIRTUAL TABLE IF NOT EXISTS temp.%s USING %s;", *name, *name);
  /* Last: that it is connected tells that all are there. */
  msg_str_append(&sql, "CREATE VIRTUAL TABLE IF NOT EXISTS temp.msg_outbox USING msg_outbox;"
                       "SELECT 1 FROM temp.msg_outbox");
  char *text = msg_str_take(&sql);
  if (!text)
    return msg_err_nomem(err);
  int rc = msg_nested_exec(c, text, err);
  msg_free(text);
  return rc;
}

int msg_temp_tables_make(msg_connection *c, bool *created, msg_err *err) {
  if (created)
    *created = false;
  if (c->temp_up || !is_quiet(c, created != NULL))
    return MSG_OK;
  msg_err own = MSG_ERR_INIT;
  int rc = create_tables(c, &own);
  /* Refused (query_only, an authorizer, a table of that name): the eponymous modules serve. */
  if (rc != MSG_OK && rc != MSG_NOMEM && rc != MSG_INTERRUPTED)
    return MSG_OK;
  if (rc != MSG_OK) {
    if (err)
      *err = own;
    return rc;
  }
  if (created)
    *created = c->temp_up;
  return MSG_OK;
}
