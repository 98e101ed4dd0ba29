/* rights.c - what the host's authorizer makes of our statements. Where it answers SQLITE_IGNORE,
 * SQLite compiles them without the write, or with NULL for what is read, and reports nothing.
 * EXPLAIN asks it the same questions, runs nothing, and lists what was compiled. */
#include <string.h>

#include "base/str.h"
#include "store/local/host.h"
#include "store/local/session.h"

static const struct table {
  const char *name, *columns;
  int n;
} TABLES[] = {
    {"msg_store", "version,store_id", 2},
    {"msg_store_message",
     "seq,id,queue,topic,state,priority,deliver_at,due,delete_at,attempts,grp,sender,"
     "sender_host,exclusive,timestamp,ttl,timing_out,delete_after,in_answer_to,recipients,msg,"
     "value,"
     "json,map,additional,key,reason,moved,redriven",
     29},
    {"msg_store_ready", "queue,topic,priority,deliver_at,seq", 5},
    {"msg_store_claim", "seq,lease,attempts,owner,token,holder,since,messages,first,last", 10},
    {"msg_store_holder", "process", 1},
    {"msg_store_lane", "queue,node,exclusive,priority,deliver_at,seq,topic", 7},
    {"msg_store_listener", "queue,node,pattern,start", 4},
    {"msg_store_floor", "queue,node,topic,priority,pattern,floor", 6},
    {"msg_store_seen", "queue,node,seq", 3},
    {"msg_store_key", "queue,topic,key,id,until", 5},
    {"msg_store_node",
     "queue,node,host,pid,process,implementation,layout,automatic,started_at,last_seen", 10},
};
#define TABLE_COUNT (sizeof TABLES / sizeof TABLES[0])

/* ---- one statement ---- */

/* What EXPLAIN of a text shows. */
struct program {
  bool forbidden;            /* SQLITE_DENY: whoever runs it is told */
  bool missing;              /* no such table, or more variables than the host allows */
  int reads, binds, inserts; /* opcodes */
};

static bool is_compiled(const struct program *p) {
  return !p->forbidden && !p->missing;
}

static void count(struct program *p, const char *opcode) {
  p->reads += strcmp(opcode, "Column") == 0 || strcmp(opcode, "Rowid") == 0;
  p->binds += strcmp(opcode, "Variable") == 0;
  p->inserts += strcmp(opcode, "Insert") == 0 || strcmp(opcode, "IdxInsert") == 0;
}

static int prepare(sqlite3 *db, const char *schema, const char *sql, sqlite3_stmt **out,
                   struct program *p, msg_err *err) {
  int rc = sql ? sqlite3_prepare_v2(db, sql, -1, out, NULL) : SQLITE_NOMEM;
  if (rc == SQLITE_OK)
    return MSG_OK;
  p->forbidden = rc == SQLITE_AUTH;
  p->missing = rc == SQLITE_ERROR;
  if (!is_compiled(p))
    return MSG_OK;
  return msg_local_error(db, schema, msg_show(schema).s, rc, "ask for rights", err);
}

/* Takes `sql`, made by sqlite3_mprintf; NULL: memory is out. */
static int explain(sqlite3 *db, const char *schema, char *sql, struct program *p, msg_err *err) {
  sqlite3_stmt *stmt = NULL;
  *p = (struct program){false};
  int rc = prepare(db, schema, sql, &stmt, p, err), step = SQLITE_DONE;
  while (rc == MSG_OK && stmt && (step = sqlite3_step(stmt)) == SQLITE_ROW) {
    const char *opcode = (const char *)sqlite3_column_text(stmt, 1);
    if (opcode)
      count(p, opcode);
    else
      rc = msg_err_nomem(err);
  }
  if (rc == MSG_OK && step != SQLITE_DONE && step != SQLITE_ROW)
    rc = msg_local_error(db, schema, msg_show(schema).s, step, "ask for rights", err);
  sqlite3_finalize(stmt);
  sqlite3_free(sql);
  return rc;
}

/* ---- asking ---- */

static int ignored(const char *what, const char *table, msg_err *err) {
  return msg_err_set(err, MSG_AUTH,
                     "the host's authorizer answers SQLITE_IGNORE to %s %s, so that SQLite leaves "
                     "it out without a word: allow or deny the msg_store tables",
                     what, table);
}

/* Every column of every table in one statement: one a table would take as many times as long. */
static int check_reading(sqlite3 *db, const char *schema, msg_rights *out, msg_err *err) {
  struct program p;
  int columns = 0;
  sqlite3_str *sql = sqlite3_str_new(db);
  for (size_t i = 0; i < TABLE_COUNT; i++) {
    sqlite3_str_appendf(sql, "%s\"%w\".%s", i ? " CROSS JOIN " : "EXPLAIN SELECT * FROM ", schema,
                        TABLES[i].name);
    columns += TABLES[i].n;
  }
  int rc = explain(db, schema, sqlite3_str_finish(sql), &p, err);
  out->known = !p.missing;
  out->all = out->all && !p.forbidden;
  if (rc == MSG_OK && is_compiled(&p) && p.reads < columns)
    return ignored("reading", "the messages' tables", err);
  return rc;
}

/* Without tables, only whether they may be made. */
static int check_making(sqlite3 *db, const char *schema, msg_rights *out, msg_err *err) {
  struct program p;
  int rc = explain(db, schema, sqlite3_mprintf("EXPLAIN CREATE TABLE \"%w\".msg_store(x)", schema),
                   &p, err);
  out->all = !p.forbidden;
  return rc;
}

static char *update_all(sqlite3 *db, const char *schema, const struct table *t) {
  sqlite3_str *sql = sqlite3_str_new(db);
  sqlite3_str_appendf(sql, "EXPLAIN UPDATE \"%w\".%s SET ", schema, t->name);
  for (const char *c = t->columns; *c; c += strcspn(c, ","), c += *c == ',')
    sqlite3_str_appendf(sql, "%s\"%.*s\" = ?", c == t->columns ? "" : ",", (int)strcspn(c, ","), c);
  return sqlite3_str_finish(sql);
}

static int check_writing(sqlite3 *db, const char *schema, const struct table *t, msg_rights *out,
                         msg_err *err) {
  struct program p;
  int rc = explain(db, schema, update_all(db, schema, t), &p, err);
  out->all = out->all && !p.forbidden;
  if (rc == MSG_OK && is_compiled(&p) && p.binds < t->n)
    return ignored("updating table", t->name, err);
  if (rc == MSG_OK)
    rc = explain(db, schema,
                 sqlite3_mprintf("EXPLAIN INSERT INTO \"%w\".%s DEFAULT VALUES", schema, t->name),
                 &p, err);
  out->all = out->all && !p.forbidden;
  if (rc == MSG_OK && is_compiled(&p) && p.inserts == 0)
    return ignored("inserting into table", t->name, err);
  return rc;
}

/* To DELETE, SQLITE_IGNORE means yes. */
static int check_deleting(sqlite3 *db, const char *schema, const struct table *t, msg_rights *out,
                          msg_err *err) {
  struct program p;
  int rc = explain(db, schema, sqlite3_mprintf("EXPLAIN DELETE FROM \"%w\".%s", schema, t->name),
                   &p, err);
  out->all = out->all && !p.forbidden;
  return rc;
}

int msg_local_rights(sqlite3 *db, const char *schema, msg_rights *out, msg_err *err) {
  *out = (msg_rights){.known = true, .all = true};
  int rc = check_reading(db, schema, out, err);
  if (rc == MSG_OK && !out->known)
    return check_making(db, schema, out, err);
  for (size_t i = 0; rc == MSG_OK && out->known && i < TABLE_COUNT; i++) {
    rc = check_writing(db, schema, &TABLES[i], out, err);
    if (rc == MSG_OK)
      rc = check_deleting(db, schema, &TABLES[i], out, err);
  }
  return rc;
}
