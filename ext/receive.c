/* msg_await, msg_claim, msg_request in FROM: messages as rows, the arguments as hidden columns.
 *
 * What a cursor handed out stays with it: the planner may run it again with the same arguments (an
 * inner loop, a subquery), and gets the same rows. An await marks a message seen when its row is
 * stepped to; all at once only if a LIMIT says how many will be. LIMIT never gives more rows than
 * count or max do without it. */
#include <string.h>

#include "base/mem.h"
#include "ext/field.h"
#include "ext/tables.h"
#include "ext/values.h"

enum { MAX_ARGS = 5, LIMIT_BIT = 1 << MAX_ARGS, ROWS_MAX = 1000000 };

typedef struct receive_form receive_form;

typedef struct receive_table {
  msg_table table;
  const receive_form *form;
} receive_table;

/* The rows for one set of arguments. */
typedef struct receive_run {
  struct receive_run *next;
  sqlite3_value *args[MAX_ARGS]; /* owned; NULL: not given, or SQL NULL */
  int64_t limit;                 /* -1: none */
  msg_list rows;
  size_t left; /* rows that an await may still look for, one by one */
} receive_run;

typedef struct receive_cursor {
  sqlite3_vtab_cursor base;
  receive_run *runs; /* owned */
  receive_run *run;  /* the current one */
  size_t at;
} receive_cursor;

struct receive_form {
  const char *name;
  const char *args[MAX_ARGS]; /* hidden columns */
  int arg_count;
  bool claims; /* its rows show token, attempts, until */
  int (*start)(receive_table *t, receive_run *r, msg_err *err);
  int (*more)(receive_table *t, receive_run *r,
              msg_err *err); /* one row more, or MSG_TIMEOUT; NULL: never */
};

static const enum msg_field FIELDS[] = {
    MSG_FIELD_ID,         MSG_FIELD_TOPIC,        MSG_FIELD_VALUE,     MSG_FIELD_MSG,
    MSG_FIELD_MAP,        MSG_FIELD_ADDITIONAL,   MSG_FIELD_SENDER,    MSG_FIELD_SENDER_HOST,
    MSG_FIELD_RECIPIENTS, MSG_FIELD_IN_ANSWER_TO, MSG_FIELD_EXCLUSIVE, MSG_FIELD_PRIORITY,
    MSG_FIELD_TIMESTAMP,  MSG_FIELD_DELIVER_AT,   MSG_FIELD_DELETE_AT, MSG_FIELD_KEY,
    MSG_FIELD_GROUP,      MSG_FIELD_TOKEN,        MSG_FIELD_ATTEMPTS,  MSG_FIELD_UNTIL,
};
enum { CLAIM_FIELDS = 3, ALL_FIELDS = sizeof FIELDS / sizeof FIELDS[0] };

static int field_count(const receive_form *f) {
  return f->claims ? ALL_FIELDS : ALL_FIELDS - CLAIM_FIELDS;
}

/* --- arguments ----------------------------------------------------------------------------- */

static const char *what(const receive_table *t, const char *argument, char out[48]) {
  sqlite3_snprintf(48, out, "%s: %s", t->form->name, argument);
  return out;
}

static int int_arg(const receive_table *t, const receive_run *r, int i, int64_t lo, int64_t hi,
                   int64_t *out, msg_err *err) {
  char name[48];
  if (!r->args[i])
    return MSG_OK;
  return msg_arg_int(r->args[i], what(t, t->form->args[i], name), lo, hi, out, err);
}

/* topic: the pattern or topic, which is the first argument of every form. */
static int topic_arg(const receive_table *t, const receive_run *r, bool needed, const char **out,
                     msg_err *err) {
  char name[48];
  *out = NULL;
  if (r->args[0])
    return msg_arg_text(r->args[0], what(t, "topic", name), out, err);
  return needed ? msg_err_set(err, MSG_INVALID, "%s: topic is missing: name a topic", t->form->name)
                : MSG_OK;
}

static int node_arg(const receive_table *t, const receive_run *r, int i, const char **out,
                    msg_err *err) {
  char name[48];
  *out = NULL;
  return r->args[i] ? msg_arg_text(r->args[i], what(t, "node", name), out, err) : MSG_OK;
}

static size_t at_most(int64_t wanted, int64_t limit) {
  return (size_t)(limit >= 0 && limit < wanted ? limit : wanted);
}

/* --- msg_await(pattern, timeout_ms, max, node) --------------------------------------------- */

/* Up to `n` rows, waiting for the first. */
static int await_rows(receive_table *t, receive_run *r, size_t n, int64_t timeout_ms,
                      msg_err *err) {
  const char *pattern, *node;
  msg_opened *o;
  msg_call call;
  int rc = topic_arg(t, r, false, &pattern, err);
  if (rc == MSG_OK)
    rc = node_arg(t, r, 3, &node, err);
  if (rc == MSG_OK)
    rc =
        msg_table_call(&t->table, node, timeout_ms ? MSG_CALL_WAIT : MSG_CALL_LOOK, &o, &call, err);
  return rc == MSG_OK
             ? msg_connection_await(t->table.c, o, &call, pattern, timeout_ms, n, &r->rows, err)
             : rc;
}

/* What the node's settings say where the arguments do not. */
static int await_defaults(receive_table *t, const receive_run *r, int64_t *timeout_ms, int64_t *max,
                          msg_err *err) {
  const char *node;
  msg_opened *o;
  msg_settings settings;
  int rc = node_arg(t, r, 3, &node, err);
  if (rc == MSG_OK)
    rc = msg_connection_node(t->table.c, node, &o, err);
  if (rc == MSG_OK)
    rc = msg_node_settings(o->node, &settings, err);
  if (rc != MSG_OK)
    return rc;
  *timeout_ms = settings.await_timeout_ms;
  *max = settings.window_size;
  msg_settings_clear(&settings);
  return MSG_OK;
}

static int await_start(receive_table *t, receive_run *r, msg_err *err) {
  int64_t timeout_ms, max;
  int rc = await_defaults(t, r, &timeout_ms, &max, err);
  if (rc == MSG_OK)
    rc = int_arg(t, r, 1, 0, MSG_DURATION_MAX_MS, &timeout_ms, err);
  if (rc == MSG_OK)
    rc = int_arg(t, r, 2, 1, ROWS_MAX, &max, err);
  if (rc != MSG_OK || r->limit == 0)
    return rc;
  if (r->limit > 0)
    return await_rows(t, r, at_most(max, r->limit), timeout_ms, err);
  rc = await_rows(t, r, 1, timeout_ms, err);
  r->left = rc == MSG_OK ? (size_t)max - r->rows.n : 0;
  return rc;
}

static int await_more(receive_table *t, receive_run *r, msg_err *err) {
  return await_rows(t, r, 1, 0, err);
}

static const receive_form AWAIT = {
    "msg_await", {"pattern", "timeout_ms", "max", "node"}, 4, false, await_start, await_more};

/* --- msg_claim(pattern, count, lease_ms, wait_ms, node) ------------------------------------ */

static int claim_start(receive_table *t, receive_run *r, msg_err *err) {
  const char *pattern, *node;
  int64_t count = 1, lease_ms = 0, wait_ms = 0;
  msg_opened *o;
  msg_call call;
  int rc = topic_arg(t, r, true, &pattern, err);
  if (rc == MSG_OK)
    rc = int_arg(t, r, 1, 1, ROWS_MAX, &count, err);
  if (rc == MSG_OK)
    rc = int_arg(t, r, 2, 1, MSG_DURATION_MAX_MS, &lease_ms, err);
  if (rc == MSG_OK)
    rc = int_arg(t, r, 3, 0, MSG_DURATION_MAX_MS, &wait_ms, err);
  if (rc == MSG_OK)
    rc = node_arg(t, r, 4, &node, err);
  if (rc != MSG_OK || r->limit == 0)
    return rc;
  rc = msg_table_call(&t->table, node, wait_ms ? MSG_CALL_WAIT : MSG_CALL_LOOK, &o, &call, err);
  if (rc == MSG_OK)
    rc = msg_node_claim(o->node, &call, pattern, at_most(count, r->limit), lease_ms, wait_ms,
                        &r->rows, err);
  return rc == MSG_OK ? msg_connection_claimed(t->table.c, o, &r->rows, err) : rc;
}

static const receive_form CLAIM = {
    "msg_claim", {"pattern", "count", "lease_ms", "wait_ms", "node"}, 5, true, claim_start, NULL};

/* --- msg_request(topic, value, timeout_ms, options) ------------------------------- */

static int request_args(receive_table *t, const receive_run *r, msg_options *o, int64_t *timeout_ms,
                        int64_t *answers, msg_err *err) {
  const char *topic;
  int rc = topic_arg(t, r, true, &topic, err);
  if (rc == MSG_OK && !r->args[2])
    rc = msg_err_set(err, MSG_INVALID, "msg_request: timeout_ms is missing: give it milliseconds");
  if (rc == MSG_OK)
    rc = int_arg(t, r, 2, 0, MSG_DURATION_MAX_MS, timeout_ms, err);
  if (rc == MSG_OK && r->args[3])
    rc = msg_options_read(t->table.c, r->args[3], MSG_VERB_REQUEST, o, err);
  *answers = o->answers ? o->answers : 1;
  if (rc == MSG_OK && r->args[1])
    rc = msg_value_read(r->args[1], &o->m.value, err);
  if (rc == MSG_OK && !(o->m.topic = msg_strdup(topic)))
    rc = msg_err_nomem(err);
  return rc;
}

static int ask(receive_table *t, receive_run *r, msg_options *options, int64_t timeout_ms,
               int64_t answers, msg_err *err) {
  msg_opened *o;
  msg_call call;
  int rc = msg_connection_node(t->table.c, options->node, &o, err);
  if (rc == MSG_OK)
    rc = msg_node_fill(o->node, &options->m, options, err);
  if (rc == MSG_OK)
    rc = msg_connection_call(t->table.c, o, MSG_CALL_REQUEST, &call, err);
  if (rc == MSG_OK)
    rc = msg_node_request(o->node, &call, &options->m, timeout_ms, at_most(answers, r->limit), NULL,
                          &r->rows, err);
  return rc;
}

static int request_start(receive_table *t, receive_run *r, msg_err *err) {
  msg_options options;
  int64_t timeout_ms = 0, answers = 1;
  msg_options_init(&options);
  int rc = request_args(t, r, &options, &timeout_ms, &answers, err);
  if (rc == MSG_OK && r->limit != 0)
    rc = ask(t, r, &options, timeout_ms, answers, err);
  msg_options_clear(&options);
  return rc;
}

static const receive_form REQUEST = {"msg_request",
                                     {"request_topic", "request_value", "timeout_ms", "options"},
                                     4,
                                     false,
                                     request_start,
                                     NULL};

/* --- life ---------------------------------------------------------------------------------- */

static char *declaration(const receive_form *f) {
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

static int connect(sqlite3 *db, msg_connection *c, const receive_form *form, int argc,
                   const char *const *argv, sqlite3_vtab **out, char **text) {
  msg_err err = MSG_ERR_INIT;
  if (msg_table_no_arguments(argc, argv, &err) != MSG_OK)
    return msg_table_refuse(text, &err);
  char *sql = declaration(form);
  if (!sql)
    return SQLITE_NOMEM;
  int rc = msg_table_connect(db, c, sql, sizeof(receive_table), MSG_TABLE_DIRECT, out);
  msg_free(sql);
  if (rc == SQLITE_OK)
    ((receive_table *)*out)->form = form;
  return rc;
}

static int await_connect(sqlite3 *db, void *aux, int argc, const char *const *argv,
                         sqlite3_vtab **out, char **text) {
  return connect(db, aux, &AWAIT, argc, argv, out, text);
}

static int claim_connect(sqlite3 *db, void *aux, int argc, const char *const *argv,
                         sqlite3_vtab **out, char **text) {
  return connect(db, aux, &CLAIM, argc, argv, out, text);
}

static int request_connect(sqlite3 *db, void *aux, int argc, const char *const *argv,
                           sqlite3_vtab **out, char **text) {
  return connect(db, aux, &REQUEST, argc, argv, out, text);
}

/* --- planning ------------------------------------------------------------------------------ */

/* Which constraint gives each argument. False: one depends on a table further in, so this plan is
 * impossible. */
static bool find_arguments(const sqlite3_index_info *info, int first, int count,
                           int given[MAX_ARGS], int *limit, bool *all) {
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

static int receive_best_index(sqlite3_vtab *table, sqlite3_index_info *info) {
  const receive_form *form = ((receive_table *)table)->form;
  int given[MAX_ARGS] = {-1, -1, -1, -1, -1};
  int limit = -1, argc = 0;
  bool all = info->nOrderBy == 0;
  if (!find_arguments(info, field_count(form), form->arg_count, given, &limit, &all))
    return SQLITE_CONSTRAINT;
  for (int i = 0; i < MAX_ARGS; i++) {
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
  info->estimatedRows = 10;
  info->estimatedCost = 1000;
  return SQLITE_OK;
}

/* --- runs ---------------------------------------------------------------------------------- */

static void run_free(receive_run *r) {
  for (int i = 0; i < MAX_ARGS; i++)
    sqlite3_value_free(r->args[i]);
  msg_list_clear(&r->rows);
  msg_free(r);
}

static int run_new(int bits, sqlite3_value **argv, receive_run **out) {
  receive_run *r = msg_zalloc(sizeof *r);
  if (!r)
    return MSG_NOMEM;
  r->limit = -1;
  for (int i = 0; i < MAX_ARGS; i++) {
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
  const void *p = sqlite3_value_blob(a), *q = sqlite3_value_blob(b);
  int n = sqlite3_value_bytes(a);
  return n == sqlite3_value_bytes(b) && (n == 0 || (p && q && memcmp(p, q, (size_t)n) == 0));
}

static receive_run *find_run(const receive_cursor *c, const receive_run *like) {
  receive_run *r = c->runs;
  for (; r; r = r->next) {
    bool same = r->limit == like->limit;
    for (int i = 0; same && i < MAX_ARGS; i++)
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
    receive_run *r = c->runs;
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
static int start(receive_cursor *c, receive_run *r, msg_err *err) {
  receive_table *t = (receive_table *)c->base.pVtab;
  int rc = t->form->start(t, r, err);
  if (rc != MSG_OK && rc != MSG_TIMEOUT) {
    run_free(r);
    return rc;
  }
  r->next = c->runs;
  c->runs = c->run = r;
  return MSG_OK;
}

static int receive_filter(sqlite3_vtab_cursor *cursor, int bits, const char *plan, int argc,
                          sqlite3_value **argv) {
  receive_cursor *c = (receive_cursor *)cursor;
  receive_run *r = NULL;
  msg_err err = MSG_ERR_INIT;
  bool created;
  (void)plan, (void)argc;
  c->run = NULL;
  c->at = 0;
  int rc = msg_connection_tables(((msg_table *)cursor->pVtab)->c, &created, &err);
  if (rc == MSG_OK && created)
    return SQLITE_SCHEMA; /* compiled anew, it means the table in temp, which reads nothing of main */
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
  receive_table *t = (receive_table *)cursor->pVtab;
  receive_run *r = c->run;
  msg_err err = MSG_ERR_INIT;
  c->at++;
  if (c->at < r->rows.n || r->left == 0)
    return SQLITE_OK;
  int rc = t->form->more(t, r, &err);
  r->left = rc == MSG_OK ? r->left - 1 : 0;
  if (rc == MSG_OK || rc == MSG_TIMEOUT)
    return SQLITE_OK;
  /* What was handed out is marked, and must reach the caller: many throw rows away when the statement
   * fails. A store out of reach is told by the next statement. */
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
  const receive_table *t = (const receive_table *)cursor->pVtab;
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
  int rc = msg_table_register(c, AWAIT.name, &AWAIT_MODULE);
  if (rc == SQLITE_OK)
    rc = msg_table_register(c, CLAIM.name, &CLAIM_MODULE);
  if (rc == SQLITE_OK)
    rc = msg_table_register(c, REQUEST.name, &REQUEST_MODULE);
  return rc;
}
