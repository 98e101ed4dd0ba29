#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "ext/nested.h"
#include "ext/values.h"

/* A setting given twice is noticed by its index in the table. */
#define SETTINGS_MAX 64

/* --- taking apart -------------------------------------------------------------------------- */

static int malformed(sqlite3_stmt *stmt, int sqlite_rc, const msg_value *text, const char *what,
                     bool object, msg_err *err) {
  if (sqlite_rc != SQLITE_ERROR)
    return msg_nested_fail(stmt, sqlite_rc, what, err);
  return msg_err_set(err, MSG_INVALID, "%s '%s' is not well-formed JSON: make it with %s", what,
                     msg_show(text->p).s, object ? "json_object()" : "json_array()");
}

/* json_type of the whole text, for texts without members; "" if malformed. (json_valid says no when
 * memory is out.) */
static int type_of(msg_connection *c, const msg_value *text, char *out, size_t size, msg_err *err) {
  sqlite3_stmt *stmt;
  int rc = msg_nested_take(c, MSG_NESTED_TYPE, &stmt, err);
  if (rc != MSG_OK)
    return rc;
  int step = sqlite3_bind_text64(stmt, 1, text->p, text->n, SQLITE_STATIC, SQLITE_UTF8);
  if (step == SQLITE_OK)
    step = sqlite3_step(stmt);
  const char *type = step == SQLITE_ROW ? (const char *)sqlite3_column_text(stmt, 0) : NULL;
  snprintf(out, size, "%s", type ? type : "");
  if (!type && step != SQLITE_ERROR)
    rc = msg_nested_fail(stmt, step == SQLITE_ROW ? SQLITE_NOMEM : step, "JSON", err);
  msg_nested_give(c, stmt);
  return rc;
}

static int wrong_type(msg_connection *c, const msg_value *text, const char *what, bool object,
                      msg_err *err) {
  char type[16];
  int rc = type_of(c, text, type, sizeof type, err);
  if (rc != MSG_OK)
    return rc;
  if (!type[0])
    return malformed(NULL, SQLITE_ERROR, text, what, object, err);
  if (strcmp(type, object ? "object" : "array") == 0)
    return MSG_OK; /* an empty one */
  return msg_err_set(err, MSG_INVALID, "%s '%s' is JSON %s: give it %s", what, msg_show(text->p).s,
                     type, object ? "an object, {...}" : "an array, [...]");
}

/* --- NUL ----------------------------------------------------------------------------------- */

static int holds_nul(const msg_value *text, const char *what, msg_err *err) {
  return msg_err_set(err, MSG_INVALID, "%s '%s' holds a NUL character: remove it", what,
                     msg_show(text->p).s);
}

int msg_json_whole(const msg_value *text, const char *what, msg_err *err) {
  return memchr(text->p, '\0', text->n) ? holds_nul(text, what, err) : MSG_OK;
}

/* SQLite cuts a key or text at an escaped NUL. What is deeper stays JSON, and is looked at when
 * taken apart. Malformed text is reported there, too. */
static int check_escapes(msg_connection *c, const msg_value *text, const char *what, msg_err *err) {
  sqlite3_stmt *stmt;
  if (!memchr(text->p, '\\', text->n))
    return MSG_OK;
  int rc = msg_nested_take(c, MSG_NESTED_NUL, &stmt, err);
  if (rc != MSG_OK)
    return rc;
  int step = sqlite3_bind_text64(stmt, 1, text->p, text->n, SQLITE_STATIC, SQLITE_UTF8);
  if (step == SQLITE_OK)
    step = sqlite3_step(stmt);
  if (step == SQLITE_ROW && sqlite3_column_int64(stmt, 0) > 0)
    rc = holds_nul(text, what, err);
  else if (step != SQLITE_ROW && step != SQLITE_ERROR)
    rc = msg_nested_fail(stmt, step, what, err);
  msg_nested_give(c, stmt);
  return rc;
}

/* --- members ------------------------------------------------------------------------------- */

/* One row of json_each: columns type, value. */
static int read_member(sqlite3_stmt *stmt, msg_value *out, bool *is_bool, msg_err *err) {
  const char *type = (const char *)sqlite3_column_text(stmt, 1);
  if (!type)
    return msg_err_nomem(err);
  int rc = msg_value_read(sqlite3_column_value(stmt, 2), out, err);
  *is_bool = strcmp(type, "true") == 0 || strcmp(type, "false") == 0;
  out->json = strcmp(type, "object") == 0 || strcmp(type, "array") == 0;
  return rc;
}

static int members(msg_connection *c, sqlite3_stmt *stmt, const msg_value *text, const char *what,
                   bool object, msg_json_fn fn, void *arg, msg_err *err) {
  int step, n = 0, key_type = object ? SQLITE_TEXT : SQLITE_INTEGER;
  while ((step = sqlite3_step(stmt)) == SQLITE_ROW) {
    msg_value v;
    bool is_bool = false;
    if (sqlite3_column_type(stmt, 0) != key_type)
      return wrong_type(c, text, what, object, err);
    const char *key = (const char *)sqlite3_column_text(stmt, 0);
    int rc = key ? read_member(stmt, &v, &is_bool, err) : msg_err_nomem(err);
    if (rc == MSG_OK)
      rc = fn(arg, object ? key : NULL, &v, is_bool, err);
    if (rc != MSG_OK)
      return rc;
    n++;
  }
  if (step != SQLITE_DONE)
    return malformed(stmt, step, text, what, object, err);
  return n > 0 ? MSG_OK : wrong_type(c, text, what, object, err);
}

static int each(msg_connection *c, const msg_value *text, const char *what, bool object,
                msg_json_fn fn, void *arg, msg_err *err) {
  sqlite3_stmt *stmt;
  int rc = msg_json_whole(text, what, err);
  if (rc == MSG_OK)
    rc = check_escapes(c, text, what, err);
  if (rc != MSG_OK)
    return rc;
  rc = msg_nested_take(c, MSG_NESTED_EACH, &stmt, err);
  if (rc != MSG_OK)
    return rc;
  int bound = sqlite3_bind_text64(stmt, 1, text->p, text->n, SQLITE_STATIC, SQLITE_UTF8);
  rc = bound == SQLITE_OK ? members(c, stmt, text, what, object, fn, arg, err)
                          : msg_nested_fail(stmt, bound, what, err);
  msg_nested_give(c, stmt);
  return rc;
}

int msg_json_object(msg_connection *c, const msg_value *text, const char *what, msg_json_fn fn,
                    void *arg, msg_err *err) {
  return each(c, text, what, true, fn, arg, err);
}

int msg_json_array(msg_connection *c, const msg_value *text, const char *what, msg_json_fn fn,
                   void *arg, msg_err *err) {
  return each(c, text, what, false, fn, arg, err);
}

/* Text of an argument that holds a JSON object. *given false: SQL NULL. */
static int object_argument(sqlite3_value *json, const char *what, msg_value *out, bool *given,
                           msg_err *err) {
  int rc = msg_value_read(json, out, err);
  if (rc != MSG_OK)
    return rc;
  *given = out->type != MSG_NULL;
  if (out->type == MSG_TEXT || out->type == MSG_NULL)
    return MSG_OK;
  return msg_err_set(err, MSG_INVALID, "%s are %s: give a JSON object as text", what,
                     msg_type_name(out->type));
}

/* --- options of a send --------------------------------------------------------------------- */

struct options_reader {
  msg_connection *c;
  msg_options *o;
  enum msg_verb verb;
  const char *key; /* of the array being read */
};

static int read_element(void *arg, const char *key, const msg_value *v, bool is_bool,
                        msg_err *err) {
  struct options_reader *r = arg;
  (void)key, (void)is_bool;
  return msg_options_add(r->o, r->verb, r->key, v, err);
}

static int read_option(void *arg, const char *key, const msg_value *v, bool is_bool, msg_err *err) {
  struct options_reader *r = arg;
  if (!msg_options_is_array(key) || !v->json || v->p[0] != '[')
    return msg_options_set(r->o, r->verb, key, v, is_bool, err);
  r->key = key;
  int rc = msg_options_add(r->o, r->verb, key, NULL, err);
  return rc == MSG_OK ? msg_json_array(r->c, v, "options", read_element, r, err) : rc;
}

int msg_options_read(msg_connection *c, sqlite3_value *json, enum msg_verb verb, msg_options *o,
                     msg_err *err) {
  struct options_reader r = {c, o, verb, NULL};
  msg_value text;
  bool given;
  int rc = object_argument(json, "options", &text, &given, err);
  if (rc == MSG_OK && given)
    rc = msg_json_object(c, &text, "options", read_option, &r, err);
  return rc == MSG_OK ? msg_options_finish(o, verb, err) : rc;
}

/* --- settings ------------------------------------------------------------------------------ */

struct settings_reader {
  msg_settings *s;
  uint64_t given; /* one bit a row of the table */
};

static int note_given(struct settings_reader *r, const char *key, msg_err *err) {
  for (size_t i = 0; i < msg_settings_count() && i < SETTINGS_MAX; i++) {
    if (strcmp(msg_settings_info(i)->name, key) != 0)
      continue;
    if (r->given & (UINT64_C(1) << i))
      return msg_err_set(err, MSG_INVALID, "setting '%s' is given twice: keep one", key);
    r->given |= UINT64_C(1) << i;
  }
  return MSG_OK;
}

static int read_setting(void *arg, const char *key, const msg_value *v, bool is_bool,
                        msg_err *err) {
  struct settings_reader *r = arg;
  int rc = msg_settings_set(r->s, key, v, is_bool, false, err);
  return rc == MSG_OK ? note_given(r, key, err) : rc;
}

int msg_settings_read_text(msg_connection *c, const msg_value *json, msg_settings *s,
                           msg_err *err) {
  struct settings_reader r = {s, 0};
  return msg_json_object(c, json, "options", read_setting, &r, err);
}

int msg_settings_read(msg_connection *c, sqlite3_value *json, msg_settings *s, msg_err *err) {
  msg_value text;
  bool given;
  int rc = object_argument(json, "options", &text, &given, err);
  return rc == MSG_OK && given ? msg_settings_read_text(c, &text, s, err) : rc;
}
