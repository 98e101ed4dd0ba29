/* What msg_await, msg_claim and msg_request do with their arguments in FROM. */
#include "base/mem.h"
#include "ext/receive.h"
#include "ext/values.h"

enum { ROWS_MAX = 1000000 };

/* --- arguments ----------------------------------------------------------------------------- */

static const char *what(const msg_receive_table *t, const char *argument, char out[48]) {
  sqlite3_snprintf(48, out, "%s: %s", t->form->name, argument);
  return out;
}

static int int_arg(const msg_receive_table *t, const msg_receive_run *r, int i, int64_t lo,
                   int64_t hi, int64_t *out, msg_err *err) {
  char name[48];
  if (!r->args[i])
    return MSG_OK;
  return msg_arg_int(r->args[i], what(t, t->form->args[i], name), lo, hi, out, err);
}

/* topic: the pattern or topic, which is the first argument of every form. */
static int topic_arg(const msg_receive_table *t, const msg_receive_run *r, bool needed,
                     const char **out, msg_err *err) {
  char name[48];
  *out = NULL;
  if (r->args[0])
    return msg_arg_text(r->args[0], what(t, "topic", name), out, err);
  return needed ? msg_err_set(err, MSG_INVALID, "%s: topic is missing: name a topic", t->form->name)
                : MSG_OK;
}

static int node_arg(const msg_receive_table *t, const msg_receive_run *r, int i, const char **out,
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
static int await_rows(msg_receive_table *t, msg_receive_run *r, size_t n, int64_t timeout_ms,
                      bool goes_on, msg_err *err) {
  const char *pattern, *node;
  msg_opened *o;
  msg_call call;
  int rc = topic_arg(t, r, false, &pattern, err);
  if (rc == MSG_OK)
    rc = node_arg(t, r, 3, &node, err);
  if (rc == MSG_OK)
    rc =
        msg_table_call(&t->table, node, timeout_ms ? MSG_CALL_WAIT : MSG_CALL_LOOK, &o, &call, err);
  if (rc != MSG_OK)
    return rc;
  call.goes_on = goes_on;
  return msg_connection_await(t->table.c, o, &call, pattern, timeout_ms, n, &r->rows, err);
}

/* What the node's settings say where the arguments do not. */
static int await_defaults(msg_receive_table *t, const msg_receive_run *r, int64_t *timeout_ms,
                          int64_t *max, msg_err *err) {
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

static int await_start(msg_receive_table *t, msg_receive_run *r, msg_err *err) {
  int64_t timeout_ms, max;
  int rc = await_defaults(t, r, &timeout_ms, &max, err);
  if (rc == MSG_OK)
    rc = int_arg(t, r, 1, 0, MSG_DURATION_MAX_MS, &timeout_ms, err);
  if (rc == MSG_OK)
    rc = int_arg(t, r, 2, 1, ROWS_MAX, &max, err);
  if (rc != MSG_OK || r->limit == 0)
    return rc;
  if (r->limit > 0)
    return await_rows(t, r, at_most(max, r->limit), timeout_ms, false, err);
  rc = await_rows(t, r, 1, timeout_ms, false, err);
  r->left = rc == MSG_OK ? (size_t)max - r->rows.n : 0;
  return rc;
}

static int await_more(msg_receive_table *t, msg_receive_run *r, msg_err *err) {
  return await_rows(t, r, 1, 0, true, err);
}

const msg_receive_form msg_receive_await = {
    "msg_await", {"pattern", "timeout_ms", "max", "node"}, 4, false, await_start, await_more};

/* --- msg_claim(pattern, count, lease_ms, wait_ms, node) ------------------------------------ */

static int claim_start(msg_receive_table *t, msg_receive_run *r, msg_err *err) {
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
  call.brief = rc == MSG_OK && r->brief;
  if (rc == MSG_OK)
    rc = msg_node_claim(o->node, &call, pattern, at_most(count, r->limit), lease_ms, wait_ms,
                        &r->rows, err);
  return rc == MSG_OK ? msg_connection_claimed(t->table.c, o, &r->rows, err) : rc;
}

const msg_receive_form msg_receive_claim = {
    "msg_claim", {"pattern", "count", "lease_ms", "wait_ms", "node"}, 5, true, claim_start, NULL};

/* --- msg_request(topic, value, timeout_ms, options) ------------------------------- */

static int request_args(msg_receive_table *t, const msg_receive_run *r, msg_options *o,
                        int64_t *timeout_ms, int64_t *answers, msg_err *err) {
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

static int ask(msg_receive_table *t, msg_receive_run *r, msg_options *options, int64_t timeout_ms,
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

static int request_start(msg_receive_table *t, msg_receive_run *r, msg_err *err) {
  msg_options options;
  int64_t timeout_ms = 0, answers = 1;
  msg_options_init(&options);
  int rc = request_args(t, r, &options, &timeout_ms, &answers, err);
  if (rc == MSG_OK && r->limit != 0)
    rc = ask(t, r, &options, timeout_ms, answers, err);
  msg_options_clear(&options);
  return rc;
}

const msg_receive_form msg_receive_request = {
    "msg_request",
    {"request_topic", "request_value", "timeout_ms", "options"},
    4,
    false,
    request_start,
    NULL};
