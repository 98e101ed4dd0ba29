/* msg_await, msg_claim, msg_request in FROM: messages as rows, the arguments as hidden columns.
 *
 * What a cursor handed out stays with it: the planner may run it again with the same arguments (an
 * inner loop, a subquery), and gets the same rows. An await marks a message seen when its row is
 * stepped to; all at once only if a LIMIT says how many will be. LIMIT never gives more rows than
 * count or max do without it. */
#include <string.h>

#include "base/mem.h"
#include "ext/field.h"
#include "ext/receive.h"
#include "ext/temp.h"
#include "ext/values.h"

enum {
  LIMIT_BIT = 1 << MSG_RECEIVE_ARGS_MAX,
  LATE_BIT = LIMIT_BIT << 1,
  BRIEF_BIT = LATE_BIT << 1 /* the statement reads none of what a brief claim leaves out */
};

typedef struct receive_cursor {
  sqlite3_vtab_cursor base;
  msg_receive_run *runs; /* owned */
  msg_receive_run *run;  /* the current one */
  size_t at;
} receive_cursor;

static const enum msg_field FIELDS[] = {
    MSG_FIELD_ID,         MSG_FIELD_TOPIC,        MSG_FIELD_VALUE,     MSG_FIELD_MSG,
    MSG_FIELD_MAP,        MSG_FIELD_ADDITIONAL,   MSG_FIELD_SENDER,    MSG_FIELD_SENDER_HOST,
    MSG_FIELD_RECIPIENTS, MSG_FIELD_IN_ANSWER_TO, MSG_FIELD_EXCLUSIVE, MSG_FIELD_PRIORITY,
    MSG_FIELD_TIMESTAMP,  MSG_FIELD_DELIVER_AT,   MSG_FIELD_DELETE_AT, MSG_FIELD_KEY,
    MSG_FIELD_GROUP,      MSG_FIELD_TOKEN,        MSG_FIELD_ATTEMPTS,  MSG_FIELD_UNTIL,
};
enum { CLAIM_FIELDS = 3, ALL_FIELDS = sizeof FIELDS / sizeof FIELDS[0] };

static int field_count(const msg_receive_form *f) {
  return f->claims ? ALL_FIELDS : ALL_FIELDS - CLAIM_FIELDS;
}

/* --- life ---------------------------------------------------------------------------------- */

static char *declaration(const msg_receive_form *f) {
  msg_str sql = MSG_STR_INIT;
  msg_str_append(&sql, "CREATE TABLE x(");
  for (int i = 0; i < field_count(f); i++) {
    msg_field_declare(&sql, FIELDS[i]);
    msg_str_append(&sql, ", ");
  }
  for (int i = 0; i < f->arg_count; i++)
    msg_str_appendf(&sql, "%s%s HIDDEN", i ? ", " : "", f->args[i]);
  msg_str_append(&sql, ")");
  return msg_str_take(&sql);
}

static int connect(sqlite3 *db, msg_connection *c, const msg_receive_form *form, int argc,
                   const char *const *argv, sqlite3_vtab **out, char **text) {
  msg_err err = MSG_ERR_INIT;
  if (msg_table_no_arguments(argc, argv, &err) != MSG_OK)
    return msg_table_refuse(text, &err);
  char *sql = declaration(form);
  if (!sql)
    return SQLITE_NOMEM;
  int rc = msg_table_connect(db, c, sql, sizeof(msg_receive_table), MSG_TABLE_DIRECT, out);
  msg_free(sql);
  if (rc == SQLITE_OK)
    ((msg_receive_table *)*out)->form = form;
  return rc;
}

static int await_connect(sqlite3 *db, void *aux, int argc, const char *const *argv,
                         sqlite3_vtab **out, char **text) {
  return connect(db, aux, &msg_receive_await, argc, argv, out, text);
}

static int claim_connect(sqlite3 *db, void *aux, int argc, const char *const *argv,
                         sqlite3_vtab **out, char **text) {
  return connect(db, aux, &msg_receive_claim, argc, argv, out, text);
}

static int request_connect(sqlite3 *db, void *aux, int argc, const char *const *argv,
                           sqlite3_vtab **out, char **text) {
  return connect(db, aux, &msg_receive_request, argc, argv, out, text);
}

/* --- planning ------------------------------------------------------------------------------ */

/* Which constraint gives each argument. False: one depends on a table further in. */
static bool find_arguments(const sqlite3_index_info *info, int first, int count,
                           int given[MSG_RECEIVE_ARGS_MAX], int *limit, bool *all) {
  for (int i = 0; i < info->nConstraint; i++) {
    const struct sqlite3_index_constraint *term = &info->aConstraint[i];
    int arg = term->iColumn - first;
    if (term->op == SQLITE_INDEX_CONSTRAINT_LIMIT) {
      *limit = term->usable ? i : -1;
    } else if (term->op == SQLITE_INDEX_CONSTRAINT_OFFSET ||
               term->op != SQLITE_INDEX_CONSTRAINT_EQ || arg < 0 || arg >= count) {
      *all = false;
    } else if (!term->usable) {
      return false;
    } else if (given[arg] >= 0) {
      *all = false; /* SQLite compares the second value */
    } else {
      given[arg] = i;
    }
  }
  return true;
}

static bool is_brief(const sqlite3_index_info *info, const msg_receive_form *form) {
  for (int i = 0; i < field_count(form); i++) {
    switch (FIELDS[i]) {
    case MSG_FIELD_SENDER:
    case MSG_FIELD_SENDER_HOST:
    case MSG_FIELD_IN_ANSWER_TO:
    case MSG_FIELD_MAP:
    case MSG_FIELD_ADDITIONAL:
    case MSG_FIELD_KEY:
    case MSG_FIELD_GROUP:
      if (info->colUsed & UINT64_C(1) << i)
        return false;
      break;
    default: break;
    }
  }
  return form->claims;
}

/* So dear that any other order of the tables is taken; if there is none, xFilter says why. */
static int best_of_none(sqlite3_index_info *info) {
  info->idxNum = LATE_BIT;
  info->estimatedRows = 1000000;
  info->estimatedCost = 1e60;
  return SQLITE_OK;
}

static int receive_best_index(sqlite3_vtab *table, sqlite3_index_info *info) {
  const msg_receive_form *form = ((msg_receive_table *)table)->form;
  int given[MSG_RECEIVE_ARGS_MAX] = {-1, -1, -1, -1, -1};
  int limit = -1, argc = 0;
  bool all = info->nOrderBy == 0;
  if (!find_arguments(info, field_count(form), form->arg_count, given, &limit, &all))
    return best_of_none(info);
  for (int i = 0; i < MSG_RECEIVE_ARGS_MAX; i++) {
    if (given[i] < 0)
      continue;
    info->idxNum |= 1 << i;
    info->aConstraintUsage[given[i]].argvIndex = ++argc;
    info->aConstraintUsage[given[i]].omit = 1;
  }
  if (all && limit >= 0) {
    info->idxNum |= LIMIT_BIT;
    info->aConstraintUsage[limit].argvIndex = ++argc;
    info->aConstraintUsage[limit].omit = 1;
  }
  if (is_brief(info, form))
    info->idxNum |= BRIEF_BIT;
  info->estimatedRows = 10;
  info->estimatedCost = 1000;
  return SQLITE_OK;
}

/* --- runs ---------------------------------------------------------------------------------- */

static void run_free(msg_receive_run *r) {
  for (int i = 0; i < MSG_RECEIVE_ARGS_MAX; i++)
    sqlite3_value_free(r->args[i]);
  msg_list_clear(&r->rows);
  msg_free(r);
}

static int run_new(int bits, sqlite3_value **argv, msg_receive_run **out) {
  msg_receive_run *r = msg_zalloc(sizeof *r);
  if (!r)
    return MSG_NOMEM;
  r->limit = -1;
  r->brief = (bits & BRIEF_BIT) != 0;
  for (int i = 0; i < MSG_RECEIVE_ARGS_MAX; i++) {
    if (!(bits & 1 << i))
      continue;
    sqlite3_value *v = *argv++;
    if (sqlite3_value_type(v) == SQLITE_NULL)
      continue;
    r->args[i] = sqlite3_value_dup(v);
    if (!r->args[i]) {
      run_free(r);
      return MSG_NOMEM;
    }
  }
  if (bits & LIMIT_BIT)
    r->limit = sqlite3_value_int64(*argv);
  *out = r;
  return MSG_OK;
}

/* Text in UTF-8, as it was read once, whatever the encoding of the database. */
static const void *bytes_of(sqlite3_value *v) {
  return sqlite3_value_type(v) == SQLITE_TEXT ? sqlite3_value_text(v) : sqlite3_value_blob(v);
}

static bool same_value(sqlite3_value *a, sqlite3_value *b) {
  if (!a || !b)
    return a == b;
  int type = sqlite3_value_type(a);
  if (type != sqlite3_value_type(b))
    return false;
  if (type == SQLITE_INTEGER)
    return sqlite3_value_int64(a) == sqlite3_value_int64(b);
  if (type == SQLITE_FLOAT) {
    double x = sqlite3_value_double(a), y = sqlite3_value_double(b);
    return memcmp(&x, &y, sizeof x) == 0;
  }
  const void *p = bytes_of(a), *q = bytes_of(b);
  int n = sqlite3_value_bytes(a);
  return n == sqlite3_value_bytes(b) && (n == 0 || (p && q && memcmp(p, q, (size_t)n) == 0));
}

static msg_receive_run *find_run(const receive_cursor *c, const msg_receive_run *like) {
  msg_receive_run *r = c->runs;
  for (; r; r = r->next) {
    bool same = r->limit == like->limit && r->brief == like->brief;
    for (int i = 0; same && i < MSG_RECEIVE_ARGS_MAX; i++)
      same = same_value(r->args[i], like->args[i]);
    if (same)
      break;
  }
  return r;
}

/* --- cursors ------------------------------------------------------------------------------- */

static int receive_open(sqlite3_vtab *table, sqlite3_vtab_cursor **out) {
  (void)table;
  receive_cursor *c = msg_zalloc(sizeof *c);
  if (!c)
    return SQLITE_NOMEM;
  *out = &c->base;
  return SQLITE_OK;
}

static int receive_close(sqlite3_vtab_cursor *cursor) {
  receive_cursor *c = (receive_cursor *)cursor;
  while (c->runs) {
    msg_receive_run *r = c->runs;
    c->runs = r->next;
    run_free(r);
  }
  msg_free(c);
  return SQLITE_OK;
}

static int fail(sqlite3_vtab *table, int rc, msg_err *err) {
  err->rc = rc;
  return msg_vtab_error(table, err);
}

/* A run is kept only if it succeeded. */
static int start(receive_cursor *c, msg_receive_run *r, msg_err *err) {
  msg_receive_table *t = (msg_receive_table *)c->base.pVtab;
  int rc = t->form->start(t, r, err);
  if (rc != MSG_OK && rc != MSG_TIMEOUT) {
    run_free(r);
    return rc;
  }
  r->next = c->runs;
  c->runs = c->run = r;
  return MSG_OK;
}

static int too_late(const msg_receive_table *t, msg_err *err) {
  return msg_err_set(err, MSG_INVALID,
                     "%s: an argument comes from a table that is joined later: name that table "
                     "before it in FROM",
                     t->form->name);
}

static int receive_filter(sqlite3_vtab_cursor *cursor, int bits, const char *plan, int argc,
                          sqlite3_value **argv) {
  receive_cursor *c = (receive_cursor *)cursor;
  msg_receive_run *r = NULL;
  msg_err err = MSG_ERR_INIT;
  bool created;
  (void)plan, (void)argc;
  c->run = NULL;
  c->at = 0;
  if (bits & LATE_BIT)
    return fail(cursor->pVtab, too_late((msg_receive_table *)cursor->pVtab, &err), &err);
  int rc = msg_temp_tables_make(((msg_table *)cursor->pVtab)->c, &created, &err);
  if (rc == MSG_OK && created)
    return SQLITE_SCHEMA; /* compiled anew, it means the table in temp */
  if (rc == MSG_OK && run_new(bits, argv, &r) != MSG_OK)
    rc = msg_err_nomem(&err);
  if (rc != MSG_OK)
    return fail(cursor->pVtab, rc, &err);
  c->run = find_run(c, r);
  if (c->run) {
    run_free(r);
    return SQLITE_OK;
  }
  rc = start(c, r, &err);
  return rc == MSG_OK ? SQLITE_OK : fail(cursor->pVtab, rc, &err);
}

static int receive_next(sqlite3_vtab_cursor *cursor) {
  receive_cursor *c = (receive_cursor *)cursor;
  msg_receive_table *t = (msg_receive_table *)cursor->pVtab;
  msg_receive_run *r = c->run;
  msg_err err = MSG_ERR_INIT;
  c->at++;
  if (c->at < r->rows.n || r->left == 0)
    return SQLITE_OK;
  int rc = t->form->more(t, r, &err);
  r->left = rc == MSG_OK ? r->left - 1 : 0;
  if (rc == MSG_OK || rc == MSG_TIMEOUT)
    return SQLITE_OK;
  /* What was handed out is marked, and must reach the caller: many throw rows away when the
   * statement fails. A store out of reach is told by the next statement. */
  if (rc == MSG_UNAVAILABLE)
    return SQLITE_OK;
  return fail(cursor->pVtab, rc, &err);
}

static int receive_eof(sqlite3_vtab_cursor *cursor) {
  const receive_cursor *c = (const receive_cursor *)cursor;
  return !c->run || c->at >= c->run->rows.n;
}

static int receive_column(sqlite3_vtab_cursor *cursor, sqlite3_context *ctx, int column) {
  const receive_cursor *c = (const receive_cursor *)cursor;
  const msg_receive_table *t = (const msg_receive_table *)cursor->pVtab;
  int arg = column - field_count(t->form);
  if (arg < 0)
    msg_result_field(ctx, t->table.c, &c->run->rows.at[c->at], FIELDS[column]);
  else if (c->run->args[arg])
    sqlite3_result_value(ctx, c->run->args[arg]);
  return SQLITE_OK;
}

static int receive_rowid(sqlite3_vtab_cursor *cursor, sqlite3_int64 *out) {
  const receive_cursor *c = (const receive_cursor *)cursor;
  *out = msg_table_rowid(&c->run->rows.at[c->at]);
  return SQLITE_OK;
}

#define FORM(connect)                                                                              \
  {                                                                                                \
    .xCreate = connect, .xConnect = connect, .xBestIndex = receive_best_index,                     \
    .xDisconnect = msg_table_disconnect, .xDestroy = msg_table_disconnect, .xOpen = receive_open,  \
    .xClose = receive_close, .xFilter = receive_filter, .xNext = receive_next,                     \
    .xEof = receive_eof, .xColumn = receive_column, .xRowid = receive_rowid                        \
  }

static const sqlite3_module AWAIT_MODULE = FORM(await_connect);
static const sqlite3_module CLAIM_MODULE = FORM(claim_connect);
static const sqlite3_module REQUEST_MODULE = FORM(request_connect);

int msg_table_receive_register(msg_connection *c) {
  int rc = msg_table_register(c, msg_receive_await.name, &AWAIT_MODULE);
  if (rc == SQLITE_OK)
    rc = msg_table_register(c, msg_receive_claim.name, &CLAIM_MODULE);
  if (rc == SQLITE_OK)
    rc = msg_table_register(c, msg_receive_request.name, &REQUEST_MODULE);
  return rc;
}
