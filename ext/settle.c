/* msg_ack, msg_release, msg_extend, msg_reject: of one id, or of a JSON array in one batch. */
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "ext/functions.h"
#include "ext/nested.h"
#include "ext/values.h"

typedef char token_text[MSG_OID_HEX + 1];

/* What is to be settled. tokens[i] is the storage behind items[i].token. */
struct batch {
  msg_settle_item *items;
  token_text *tokens;
  size_t n, item_cap, token_cap;
};

static void batch_free(struct batch *b) {
  msg_free(b->items);
  msg_free(b->tokens);
}

static int add(struct batch *b, const char *id, const char *token, const char *what, msg_err *err) {
  msg_oid oid, parsed;
  if (!id || !msg_oid_parse(id, &oid) || msg_oid_is_zero(&oid))
    return msg_err_set(err, MSG_INVALID,
                       "%s: id %zu is '%s', no message id: give it 24 hex digits", what, b->n + 1,
                       msg_show(id).s);
  if (token && !msg_oid_parse(token, &parsed))
    return msg_err_set(err, MSG_INVALID,
                       "%s: token '%s' is none: give the token that msg_claim returned, or leave "
                       "it out",
                       what, msg_show(token).s);
  if (msg_grow(&b->items, &b->item_cap, b->n + 1, sizeof *b->items) != MSG_OK ||
      msg_grow(&b->tokens, &b->token_cap, b->n + 1, sizeof *b->tokens) != MSG_OK)
    return msg_err_nomem(err);
  b->items[b->n] = (msg_settle_item){.id = oid};
  b->tokens[b->n][0] = '\0';
  if (token)
    msg_oid_hex(&parsed, b->tokens[b->n]);
  b->n++;
  return MSG_OK;
}

/* The storage has stopped moving: point into it. */
static void link_tokens(struct batch *b) {
  for (size_t i = 0; i < b->n; i++)
    b->items[i].token = b->tokens[i][0] ? b->tokens[i] : NULL;
}

/* --- a JSON array -------------------------------------------------------------------------- */

/* Columns: type, value, id, token. */
static int add_element(struct batch *b, sqlite3_stmt *stmt, const char *what, msg_err *err) {
  const char *type = (const char *)sqlite3_column_text(stmt, 0);
  if (!type)
    return msg_err_nomem(err);
  bool object = strcmp(type, "object") == 0;
  if (!object && strcmp(type, "text") != 0)
    return msg_err_set(err, MSG_INVALID,
                       "%s: element %zu is %s: give an id, or an object with id and token", what,
                       b->n + 1, type);
  if (object && sqlite3_column_type(stmt, 3) != SQLITE_TEXT &&
      sqlite3_column_type(stmt, 3) != SQLITE_NULL)
    return msg_err_set(err, MSG_INVALID, "%s: token of element %zu is not text", what, b->n + 1);
  const char *id = (const char *)sqlite3_column_text(stmt, object ? 2 : 1);
  const char *token = object ? (const char *)sqlite3_column_text(stmt, 3) : NULL;
  return add(b, id, token, what, err);
}

static int read_elements(sqlite3_stmt *stmt, const msg_value *text, const char *what,
                         struct batch *b, msg_err *err) {
  int step = sqlite3_bind_text64(stmt, 1, text->p, text->n, SQLITE_STATIC, SQLITE_UTF8);
  if (step == SQLITE_OK)
    while ((step = sqlite3_step(stmt)) == SQLITE_ROW) {
      int rc = add_element(b, stmt, what, err);
      if (rc != MSG_OK)
        return rc;
    }
  if (step == SQLITE_DONE)
    return MSG_OK;
  if (step != SQLITE_ERROR)
    return msg_nested_fail(stmt, step, what, err);
  return msg_err_set(err, MSG_INVALID, "%s: '%s' is not well-formed JSON", what,
                     msg_show(text->p).s);
}

static int read_array(msg_invocation *in, const msg_value *text, struct batch *b, msg_err *err) {
  sqlite3_stmt *stmt;
  int rc = msg_nested_take(in->c, MSG_NESTED_ITEMS, &stmt, err);
  if (rc != MSG_OK)
    return rc;
  rc = read_elements(stmt, text, in->name, b, err);
  msg_nested_give(in->c, stmt);
  return rc;
}

/* --- the verbs ----------------------------------------------------------------------------- */

static int read_ids(msg_invocation *in, int token_at, struct batch *b, msg_err *err) {
  const char *text, *token = NULL;
  int rc = msg_in_text(in, 0, "id", &text, err);
  if (rc == MSG_OK && msg_in_has(in, token_at))
    rc = msg_in_text(in, token_at, "token", &token, err);
  if (rc != MSG_OK)
    return rc;
  if (text[strspn(text, " \t\r\n")] != '[')
    return add(b, text, token, in->name, err);
  if (token)
    return msg_err_set(err, MSG_INVALID,
                       "%s: one token for an array of ids: give [{\"id\":..., \"token\":...}, ...]",
                       in->name);
  msg_value json = msg_value_text(text);
  return read_array(in, &json, b, err);
}

static int settle(msg_invocation *in, const msg_settle *how, struct batch *b, msg_err *err) {
  msg_opened *o;
  msg_call call;
  int done = 0, rc = msg_in_call(in, NULL, MSG_CALL_WRITE, &o, &call, err);
  link_tokens(b);
  if (rc == MSG_OK && b->n > 0)
    rc = msg_node_settle(o->node, &call, how, b->items, b->n, err);
  if (rc != MSG_OK)
    return rc;
  for (size_t i = 0; i < b->n; i++)
    done += b->items[i].done;
  sqlite3_result_int(in->ctx, done);
  return MSG_OK;
}

/* `rc`: of the arguments read so far. */
static int run(msg_invocation *in, int rc, int token_at, const msg_settle *how, msg_err *err) {
  struct batch b = {0};
  if (rc == MSG_OK)
    rc = read_ids(in, token_at, &b, err);
  if (rc == MSG_OK)
    rc = settle(in, how, &b, err);
  batch_free(&b);
  return rc;
}

int msg_run_ack(msg_invocation *in, msg_err *err) {
  msg_settle how = {.verb = MSG_SETTLE_ACK};
  return run(in, MSG_OK, 1, &how, err);
}

int msg_run_release(msg_invocation *in, msg_err *err) {
  msg_settle how = {.verb = MSG_SETTLE_RELEASE};
  int rc = msg_in_int(in, 2, "delay_ms", 0, MSG_DURATION_MAX_MS, &how.delay_ms, err);
  return run(in, rc, 1, &how, err);
}

int msg_run_extend(msg_invocation *in, msg_err *err) {
  msg_settle how = {.verb = MSG_SETTLE_EXTEND};
  int rc = msg_in_int(in, 1, "lease_ms", 1, MSG_DURATION_MAX_MS, &how.lease_ms, err);
  if (rc == MSG_OK && how.lease_ms == 0)
    rc = msg_err_set(err, MSG_INVALID, "%s: lease_ms is null: give it an integer", in->name);
  return run(in, rc, 2, &how, err);
}

int msg_run_reject(msg_invocation *in, msg_err *err) {
  msg_settle how = {.verb = MSG_SETTLE_REJECT};
  int rc = msg_in_text(in, 1, "reason", &how.reason, err);
  return run(in, rc, 2, &how, err);
}
