/* msg_ack, msg_release, msg_extend, msg_reject: of one id, or of a JSON array in one batch. */
#include <stdio.h>
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

static int append(struct batch *b, const msg_oid *id, const msg_oid *token, msg_err *err) {
  if (msg_grow(&b->items, &b->item_cap, b->n + 1, sizeof *b->items) != MSG_OK ||
      msg_grow(&b->tokens, &b->token_cap, b->n + 1, sizeof *b->tokens) != MSG_OK)
    return msg_err_nomem(err);
  b->items[b->n] = (msg_settle_item){.id = *id};
  b->tokens[b->n][0] = '\0';
  if (token)
    msg_oid_hex(token, b->tokens[b->n]);
  b->n++;
  return MSG_OK;
}

static bool is_id(const char *text, msg_oid *out) {
  return msg_oid_parse(text, out) && !msg_oid_is_zero(out);
}

static int add(struct batch *b, const char *id, const char *token, const char *what, msg_err *err) {
  msg_oid oid, parsed;
  if (!is_id(id, &oid))
    return msg_err_set(err, MSG_INVALID, "%s: id %zu is '%s', no message id: give it 24 hex digits",
                       what, b->n + 1, msg_show(id).s);
  if (token && !msg_oid_parse(token, &parsed))
    return msg_err_set(err, MSG_INVALID,
                       "%s: token '%s' is none: give the token that msg_claim returned, or leave "
                       "it out",
                       what, msg_show(token).s);
  return append(b, &oid, token ? &parsed : NULL, err);
}

/* The storage has stopped moving: point into it. */
static void link_tokens(struct batch *b) {
  for (size_t i = 0; i < b->n; i++)
    b->items[i].token = b->tokens[i][0] ? b->tokens[i] : NULL;
}

/* --- a JSON array -------------------------------------------------------------------------- */

/* One element being read: an object with id and token. */
struct element {
  const char *what; /* the function */
  size_t number;
  char id[64], token[64]; /* cut where too long: then they are none anyway */
};

static int copy_text(struct element *e, const char *key, const msg_value *v, char out[64],
                     msg_err *err) {
  if (v->type != MSG_TEXT || v->json)
    return msg_err_set(err, MSG_INVALID, "%s: %s of element %zu is %s: give it text", e->what, key,
                       e->number, v->json ? "JSON" : msg_type_name(v->type));
  snprintf(out, 64, "%s", v->p);
  return MSG_OK;
}

/* What msg_claim returned may be given whole; any other key is a slip. */
static int read_member(void *arg, const char *key, const msg_value *v, bool is_bool, msg_err *err) {
  struct element *e = arg;
  (void)is_bool;
  if (strcmp(key, "id") == 0)
    return copy_text(e, key, v, e->id, err);
  if (strcmp(key, "token") == 0)
    return v->type == MSG_NULL ? MSG_OK : copy_text(e, key, v, e->token, err);
  if (msg_message_key(key))
    return MSG_OK;
  return msg_err_set(err, MSG_INVALID,
                     "%s: unknown key '%s' of element %zu: give id and token, or what msg_claim "
                     "returned",
                     e->what, msg_show(key).s, e->number);
}

/* Adding to a batch, element by element. */
struct reading {
  msg_connection *c;
  struct batch *b;
  const char *what;
};

static int read_element(void *arg, const char *key, const msg_value *v, bool is_bool,
                        msg_err *err) {
  struct reading *r = arg;
  struct element e = {.what = r->what, .number = r->b->n + 1};
  (void)key, (void)is_bool;
  if (v->type == MSG_TEXT && !v->json)
    return add(r->b, v->p, NULL, r->what, err);
  if (!v->json || v->p[0] != '{')
    return msg_err_set(err, MSG_INVALID,
                       "%s: element %zu is %s: give an id, or an object with id and token", r->what,
                       e.number, v->json ? "an array" : msg_type_name(v->type));
  int rc = msg_json_object(r->c, v, r->what, read_member, &e, err);
  if (rc == MSG_OK && !e.id[0])
    rc = msg_err_set(err, MSG_INVALID, "%s: element %zu has no id", r->what, e.number);
  return rc == MSG_OK ? add(r->b, e.id, e.token[0] ? e.token : NULL, r->what, err) : rc;
}

/* --- ids alone ------------------------------------------------------------------------------ */

enum { STRIDE = 1 + MSG_OID_HEX + 2 }; /* quote, id, quote, comma or the end */

/* Reads an array of nothing but ids, as SQLite spells it: without spaces, all elements are of one
 * length. *plain false: it is something else, or not JSON, and nothing was added. */
static int read_plain(struct batch *b, const char *json, size_t n, bool *plain, msg_err *err) {
  int rc = MSG_OK;
  *plain = n > STRIDE && (n - 1) % STRIDE == 0 && json[0] == '[';
  for (const char *at = json + 1; rc == MSG_OK && *plain && at < json + n; at += STRIDE) {
    char text[MSG_OID_HEX + 1];
    msg_oid id;
    memcpy(text, at + 1, MSG_OID_HEX);
    text[MSG_OID_HEX] = '\0';
    *plain = at[0] == '"' && at[STRIDE - 2] == '"' &&
             at[STRIDE - 1] == (at + STRIDE == json + n ? ']' : ',') && is_id(text, &id);
    rc = *plain ? append(b, &id, NULL, err) : MSG_OK;
  }
  if (!*plain)
    b->n = 0;
  return rc;
}

/* The same of other spellings. */
static int read_spelled(struct reading *r, const char *text, bool *plain, msg_err *err) {
  sqlite3_stmt *stmt;
  int rc = msg_nested_take(r->c, MSG_NESTED_JSON, &stmt, err);
  if (rc != MSG_OK)
    return rc;
  const char *json = NULL;
  if (sqlite3_bind_text(stmt, 1, text, -1, SQLITE_STATIC) == SQLITE_OK &&
      sqlite3_step(stmt) == SQLITE_ROW)
    json = (const char *)sqlite3_column_text(stmt, 0);
  *plain = false;
  if (json)
    rc = read_plain(r->b, json, (size_t)sqlite3_column_bytes(stmt, 0), plain, err);
  msg_nested_give(r->c, stmt);
  return rc;
}

/* An array of ids, which is what is mostly given, is read at once. */
static int read_array(struct reading *r, const char *text, msg_err *err) {
  msg_value json = msg_value_text(text);
  bool plain;
  int rc = read_plain(r->b, text, strlen(text), &plain, err);
  if (rc == MSG_OK && !plain)
    rc = read_spelled(r, text, &plain, err);
  return rc == MSG_OK && !plain ? msg_json_array(r->c, &json, r->what, read_element, r, err) : rc;
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
  struct reading r = {in->c, b, in->name};
  return read_array(&r, text, err);
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
  if (rc == MSG_OK && !how.reason[0])
    rc = msg_err_set(err, MSG_INVALID, "%s: reason is empty: say why", in->name);
  return run(in, rc, 2, &how, err);
}
