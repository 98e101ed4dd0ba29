/* invocation.c - the arguments of a function call, read by the rules of its verb. */
#include <stdio.h>

#include "ext/functions.h"
#include "ext/state.h"
#include "ext/values.h"

bool msg_in_has(const msg_invocation *in, int i) {
  return i < in->argc && sqlite3_value_type(in->argv[i]) != SQLITE_NULL;
}

static void name_argument(const msg_invocation *in, const char *what, char *out, size_t size) {
  snprintf(out, size, "%s: %s", in->name, what);
}

int msg_in_text(const msg_invocation *in, int i, const char *what, const char **out, msg_err *err) {
  char name[48];
  if (msg_arg_text(in->argv[i], what, out, NULL) == MSG_OK)
    return MSG_OK;
  name_argument(in, what, name, sizeof name);
  return msg_arg_text(in->argv[i], name, out, err);
}

int msg_in_int(const msg_invocation *in, int i, const char *what, int64_t lo, int64_t hi,
               int64_t *out, msg_err *err) {
  char name[48];
  if (!msg_in_has(in, i))
    return MSG_OK;
  name_argument(in, what, name, sizeof name);
  return msg_arg_int(in->argv[i], name, lo, hi, out, err);
}

int msg_in_value(const msg_invocation *in, int i, msg_value *out, msg_err *err) {
  return msg_value_read(in->argv[i], out, err);
}

int msg_in_call(const msg_invocation *in, const char *node, enum msg_call_kind kind, msg_opened **o,
                msg_call *call, msg_err *err) {
  int rc = msg_connection_node(in->c, node, o, err);
  return rc == MSG_OK ? msg_connection_call(in->c, *o, kind, call, err) : rc;
}
