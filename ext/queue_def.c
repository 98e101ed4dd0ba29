#include "ext/queue_def.h"

#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "base/str.h"
#include "model/topic.h"

static const struct {
  const char *name;
  enum msg_queue_type type;
} TYPES[] = {
    {"", MSG_QUEUE_ANY},
    {"ANY", MSG_QUEUE_ANY},
    {"TEXT", MSG_QUEUE_TEXT},
    {"REAL", MSG_QUEUE_REAL},
    {"INTEGER", MSG_QUEUE_INTEGER},
    {"INT", MSG_QUEUE_INTEGER},
    {"NUMERIC", MSG_QUEUE_NUMERIC},
};

const char *msg_queue_type_name(enum msg_queue_type type) {
  static const char *const NAMES[] = {"", "TEXT", "REAL", "INTEGER", "NUMERIC"};
  return NAMES[type];
}

void msg_queue_def_clear(msg_queue_def *def) {
  msg_free(def->topic);
  msg_free(def->node);
  for (size_t i = 0; i < def->n; i++)
    msg_free(def->columns[i].name);
  msg_free(def->columns);
  *def = (msg_queue_def){0};
}

/* --- words --------------------------------------------------------------------------------- */

static bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f';
}

static const char *skip_space(const char *s) {
  while (is_space(*s))
    s++;
  return s;
}

/* As in SQLite, every byte of a multi-byte character may be part of a name. */
static bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '$' || (unsigned char)c >= 0x80;
}

/* The character that ends what `open` begins, 0 if it begins nothing. */
static char closing(char open) {
  switch (open) {
  case '[': return ']';
  case '"':
  case '`':
  case '\'': return open;
  default: return '\0';
  }
}

static int bad(const char *argument, const char *why, msg_err *err) {
  return msg_err_set(err, MSG_INVALID, "msg_queue: argument '%s': %s", msg_show(argument).s, why);
}

/* Unquote from the opening character at *at; a doubled closing one stands for itself. */
static int take_quoted(const char *argument, const char **at, char **out, msg_err *err) {
  char end = closing(**at);
  msg_str s = MSG_STR_INIT;
  const char *p = *at + 1;
  msg_str_append(&s, "");
  for (; *p && (*p != end || (end != ']' && p[1] == end)); p++) {
    p += *p == end;
    msg_str_appendn(&s, p, 1);
  }
  if (!*p) {
    msg_str_clear(&s);
    return bad(argument, "a quote is not closed", err);
  }
  *at = p + 1;
  *out = msg_str_take(&s);
  return *out ? MSG_OK : msg_err_nomem(err);
}

/* A name, or (string) a literal, at *at. */
static int take(const char *argument, const char **at, bool string, char **out, msg_err *err) {
  const char *p = *at;
  if (*p == '\'' && !string)
    return bad(argument, "a column name is not a string: write it bare or in double quotes", err);
  if (closing(*p))
    return take_quoted(argument, at, out, err);
  while (is_word(*p))
    p++;
  if (p == *at)
    return bad(argument, "give a column, name TYPE, or an option, name=value", err);
  *out = msg_strndup(*at, (size_t)(p - *at));
  *at = p;
  return *out ? MSG_OK : msg_err_nomem(err);
}

/* --- options ------------------------------------------------------------------------------- */

static int set_text(const char *argument, char **slot, char *value, msg_err *err) {
  if (*slot) {
    msg_free(value);
    return bad(argument, "it is given twice: keep one", err);
  }
  *slot = value;
  return MSG_OK;
}

static int set_exclusive(msg_queue_def *def, const char *argument, const char *value,
                         msg_err *err) {
  if (def->exclusive_given)
    return bad(argument, "it is given twice: keep one", err);
  if (strcmp(value, "0") != 0 && strcmp(value, "1") != 0)
    return bad(argument, "exclusive takes 0 (to every listener) or 1 (to one owner)", err);
  def->exclusive = value[0] == '1';
  def->exclusive_given = true;
  return MSG_OK;
}

/* Takes value over. */
static int set_option(msg_queue_def *def, const char *argument, const char *name, char *value,
                      msg_err *err) {
  if (strcasecmp(name, "topic") == 0)
    return set_text(argument, &def->topic, value, err);
  if (strcasecmp(name, "node") == 0)
    return set_text(argument, &def->node, value, err);
  int rc = strcasecmp(name, "exclusive") == 0
               ? set_exclusive(def, argument, value, err)
               : bad(argument, "unknown option: known are topic, exclusive, node", err);
  msg_free(value);
  return rc;
}

static int read_option(msg_queue_def *def, const char *argument, const char *name, const char *at,
                       msg_err *err) {
  char *value = NULL;
  at = skip_space(at);
  if (!*at)
    return bad(argument, "a value is missing", err);
  int rc = take(argument, &at, true, &value, err);
  if (rc != MSG_OK)
    return rc;
  if (*skip_space(at)) {
    msg_free(value);
    return bad(argument, "give one value, a text in single quotes", err);
  }
  return set_option(def, argument, name, value, err);
}

/* --- columns ------------------------------------------------------------------------------- */

static int read_type(const char *argument, const char *at, enum msg_queue_type *out, msg_err *err) {
  size_t n = strlen(at);
  while (n > 0 && is_space(at[n - 1]))
    n--;
  for (size_t i = 0; i < sizeof TYPES / sizeof TYPES[0]; i++) {
    if (strlen(TYPES[i].name) == n && strncasecmp(TYPES[i].name, at, n) == 0) {
      *out = TYPES[i].type;
      return MSG_OK;
    }
  }
  return bad(argument, "unknown type: use TEXT, REAL, INTEGER, NUMERIC, ANY or none", err);
}

static int check_name(const msg_queue_def *def, const char *argument, const char *name,
                      msg_err *err) {
  static const char *const ROWIDS[] = {"rowid", "oid", "_rowid_"};
  if (!*name)
    return bad(argument, "a column needs a name", err);
  for (const char *p = name; *p; p++)
    if (*p == '"' || *p == '\\' || (unsigned char)*p < 0x20)
      return bad(argument, "a column name may hold no '\"', no '\\' and no control character", err);
  if (!msg_utf8_valid(name, strlen(name)))
    return bad(argument, "a column name is not valid UTF-8", err);
  if (strncasecmp(name, "msg_", 4) == 0)
    return bad(argument, "names that begin with msg_ are the message's own", err);
  for (size_t i = 0; i < sizeof ROWIDS / sizeof ROWIDS[0]; i++)
    if (strcasecmp(name, ROWIDS[i]) == 0)
      return bad(argument, "this name is the row number's", err);
  for (size_t i = 0; i < def->n; i++)
    if (strcasecmp(name, def->columns[i].name) == 0)
      return bad(argument, "the column is there already", err);
  if (def->n == MSG_QUEUE_COLUMNS_MAX)
    return bad(argument, "more than 60 columns: nest the rest as JSON in one", err);
  return MSG_OK;
}

/* Takes name over. */
static int add_column(msg_queue_def *def, const char *argument, char *name, const char *at,
                      msg_err *err) {
  enum msg_queue_type type = MSG_QUEUE_ANY;
  int rc = check_name(def, argument, name, err);
  if (rc == MSG_OK)
    rc = read_type(argument, at, &type, err);
  if (rc == MSG_OK &&
      msg_grow(&def->columns, &def->cap, def->n + 1, sizeof *def->columns) != MSG_OK)
    rc = msg_err_nomem(err);
  if (rc != MSG_OK) {
    msg_free(name);
    return rc;
  }
  def->columns[def->n++] = (msg_queue_column){name, type};
  return MSG_OK;
}

static int read_argument(msg_queue_def *def, const char *argument, msg_err *err) {
  const char *at = skip_space(argument);
  char *name = NULL;
  int rc = take(argument, &at, false, &name, err);
  if (rc != MSG_OK)
    return rc;
  at = skip_space(at);
  if (*at != '=')
    return add_column(def, argument, name, at, err);
  rc = read_option(def, argument, name, at + 1, err);
  msg_free(name);
  return rc;
}

int msg_queue_def_read(int argc, const char *const *argv, msg_queue_def *out, msg_err *err) {
  int rc = MSG_OK;
  out->exclusive = true;
  for (int i = 3; rc == MSG_OK && i < argc; i++)
    rc = read_argument(out, argv[i], err);
  if (rc != MSG_OK)
    return rc;
  if (!out->topic)
    return msg_err_set(
        err, MSG_INVALID,
        "msg_queue: no topic: CREATE VIRTUAL TABLE name USING msg_queue(topic='...', "
        "column TYPE, ...)");
  if (out->n == 0)
    return msg_err_set(err, MSG_INVALID,
                       "msg_queue: no column: name the keys of the payload, such as total REAL");
  rc = msg_topic_check(out->topic, err);
  return rc == MSG_OK && out->node ? msg_node_name_check(out->node, err) : rc;
}
