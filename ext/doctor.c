#include "ext/doctor.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/process.h"
#include "base/str.h"
#include "engine/cursors.h"
#include "ext/functions.h"
#include "ext/nested.h"
#include "ext/state.h"

/* One listing under way. */
struct examination {
  msg_connection *c;
  msg_opened *o; /* the node looked at; NULL */
  msg_doctor_fn fn;
  void *arg;
};

static int tell(const struct examination *x, const char *item, const char *value,
                const char *advice) {
  return x->fn(x->arg, item, value, advice);
}

/* --- the process --------------------------------------------------------------------------- */

static int tell_threading(const struct examination *x) {
  if (sqlite3_threadsafe() == 1)
    return tell(x, "threading", "serialized", NULL);
  return tell(x, "threading", "multi-thread", "use each connection in one thread at a time");
}

/* What was left out of this SQLite. */
static int tell_compile_options(const struct examination *x, msg_err *err) {
  msg_str list = MSG_STR_INIT;
  const char *option;
  for (int i = 0; (option = sqlite3_compileoption_get(i)); i++)
    if (strncmp(option, "OMIT_", 5) == 0 || strncmp(option, "DISABLE_", 8) == 0)
      msg_str_appendf(&list, "%s%s", list.n ? ", " : "", option);
  if (list.n == 0)
    msg_str_append(&list, "nothing");
  char *text = msg_str_take(&list);
  if (!text)
    return msg_err_nomem(err);
  int rc = tell(x, "sqlite leaves out", text, NULL);
  msg_free(text);
  return rc;
}

static int tell_process(const struct examination *x, msg_err *err) {
  char text[160];
  int rc = tell(x, "msg", MSG_VERSION, NULL);
  if (rc == MSG_OK) {
    snprintf(text, sizeof text, "%s (msg was built for %s)", sqlite3_libversion(), SQLITE_VERSION);
    rc = tell(x, "sqlite", text, NULL);
  }
  if (rc == MSG_OK)
    rc = tell_threading(x);
  if (rc == MSG_OK)
    rc = tell_compile_options(x, err);
  if (rc != MSG_OK)
    return rc;
  snprintf(text, sizeof text, "%s, program %s, pid %d", msg_process_host(), msg_process_program(),
           msg_process_pid());
  return tell(x, "process", text, NULL);
}

/* --- the connection ------------------------------------------------------------------------ */

static int tell_trust(const struct examination *x, msg_err *err) {
  char value[8];
  int rc = msg_nested_text(x->c, "PRAGMA trusted_schema", value, sizeof value, err);
  if (rc != MSG_OK)
    return rc;
  bool off = strcmp(value, "0") == 0;
  return tell(x, "trusted schema", off ? "off" : "on",
              off ? "triggers and views of the file may not use msg: use TEMP triggers and views"
                  : NULL);
}

static int tell_connection(const struct examination *x, msg_err *err) {
  int rc = tell_trust(x, err);
  if (rc != MSG_OK)
    return rc;
  return tell(x, "temp tables", x->c->temp_up ? "made" : "not made yet",
              x->c->temp_up ? NULL
                            : "waits in SELECT * FROM msg_await(...) hold a read transaction: run "
                              "SELECT msg_open('local') as a statement of its own first");
}

/* --- the node ------------------------------------------------------------------------------ */

static int tell_node(const struct examination *x) {
  msg_settings settings;
  char text[256];
  int rc = msg_node_settings(x->o->node, &settings, NULL);
  if (rc != MSG_OK)
    return rc;
  snprintf(text, sizeof text, "%s, queue %s", msg_node_id(x->o->node),
           msg_settings_queue(&settings));
  msg_settings_clear(&settings);
  rc = tell(x, "node", text, NULL);
  if (rc == MSG_OK && x->o->aside_refused)
    rc = tell(x, "own connection", "refused",
              "waits inside BEGIN see nothing new: COMMIT before msg_await, msg_claim with a wait "
              "and msg_request");
  return rc;
}

/* A claim that finds only broadcasts will never find anything. */
static int tell_vain(void *arg, const msg_count *row) {
  struct examination *x = arg;
  if (!msg_node_claimed_in_vain(x->o->node, row->name) || row->ready == 0 ||
      row->broadcasts != row->ready)
    return MSG_OK;
  return tell(x, "claimed in vain", row->name,
              "only broadcasts wait on this topic, which msg_await takes: send with msg_enqueue, "
              "or await");
}

/* What a check of the registry warned of. */
static int tell_missed(const struct examination *x) {
  char name[256];
  bool topic;
  int rc = MSG_OK;
  for (size_t i = 0; rc == MSG_OK && msg_node_missed(x->o->node, i, name, sizeof name, &topic); i++)
    rc = topic ? tell(x, "nobody listens", name,
                      "sent all the same: let a node listen to the topic, or send what shall wait "
                      "by msg_enqueue")
               : tell(x, "not alive", name, "sent to it all the same: see table msg_participants");
  return rc;
}

static int tell_cursor(void *arg, const msg_cursor_info *row) {
  struct examination *x = arg;
  char text[600];
  snprintf(text, sizeof text, "%s: %s, %s, %d waiting", row->store, row->state,
           row->how ? row->how : "-", row->waiters);
  return tell(x, "cursor", text, row->last_error && row->last_error[0] ? row->last_error : NULL);
}

static int tell_store(struct examination *x, msg_err *err) {
  msg_call call;
  int rc = tell_node(x);
  if (rc == MSG_OK)
    rc = msg_connection_call(x->c, x->o, MSG_CALL_READ, &call, err);
  if (rc == MSG_OK)
    rc = call.session->ops->describe(call.session, x->fn, x->arg, err);
  if (rc == MSG_OK)
    rc = call.session->ops->topics(call.session, tell_vain, x, err);
  if (rc == MSG_OK)
    rc = tell_missed(x);
  return rc;
}

/* Is this failure the listing's own, or a fact to be listed? */
static bool is_fatal(int rc) {
  return rc == MSG_NOMEM || rc == MSG_INTERRUPTED || rc == MSG_FORKED;
}

int msg_doctor_rows(msg_connection *c, msg_doctor_fn fn, void *arg, msg_err *err) {
  struct examination x = {.c = c, .fn = fn, .arg = arg};
  msg_err found = MSG_ERR_INIT;
  int opened = msg_connection_node(c, NULL, &x.o, &found);
  if (is_fatal(opened)) {
    if (err)
      *err = found;
    return opened;
  }
  int rc = tell_process(&x, err);
  if (rc == MSG_OK)
    rc = tell_connection(&x, err);
  if (rc == MSG_OK)
    rc = opened == MSG_OK ? tell_store(&x, err) : tell(&x, "store", "not open", found.text);
  if (rc == MSG_OK)
    rc = msg_engine_cursors(tell_cursor, &x, err);
  return rc;
}

/* --- the scalar form ----------------------------------------------------------------------- */

/* A JSON array of objects, one a fact. */
struct report {
  msg_connection *c;
  msg_str text;
  sqlite3_stmt *stmt; /* one object */
  msg_err *err;
};

static int add_fact(void *arg, const char *item, const char *value, const char *advice) {
  struct report *r = arg;
  int rc = sqlite3_bind_text(r->stmt, 1, item, -1, SQLITE_STATIC);
  if (rc == SQLITE_OK)
    rc = sqlite3_bind_text(r->stmt, 2, value, -1, SQLITE_STATIC);
  if (rc == SQLITE_OK)
    rc = sqlite3_bind_text(r->stmt, 3, advice, -1, SQLITE_STATIC);
  if (rc == SQLITE_OK)
    rc = sqlite3_step(r->stmt);
  if (rc != SQLITE_ROW)
    return msg_nested_fail(r->stmt, rc, "msg_doctor", r->err);
  const char *object = (const char *)sqlite3_column_text(r->stmt, 0);
  msg_str_append(&r->text, r->text.n ? "," : "[");
  msg_str_append(&r->text, object);
  sqlite3_reset(r->stmt);
  return object ? MSG_OK : msg_err_nomem(r->err);
}

int msg_run_doctor(msg_invocation *in, msg_err *err) {
  struct report r = {.c = in->c, .err = err};
  int rc = msg_nested_take(in->c, MSG_NESTED_FACT, &r.stmt, err);
  if (rc == MSG_OK)
    rc = msg_doctor_rows(in->c, add_fact, &r, err);
  msg_nested_give(in->c, r.stmt);
  msg_str_append(&r.text, "]");
  if (rc == MSG_OK && r.text.nomem)
    rc = msg_err_nomem(err);
  if (rc == MSG_OK) {
    sqlite3_result_text64(in->ctx, r.text.s, r.text.n, SQLITE_TRANSIENT, SQLITE_UTF8);
    sqlite3_result_subtype(in->ctx, 'J');
  }
  msg_str_clear(&r.text);
  return rc;
}
