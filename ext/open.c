#include <string.h>

#include "base/str.h"
#include "ext/functions.h"
#include "ext/state.h"
#include "ext/values.h"

/* --- msg_open, msg_close ------------------------------------------------------------------- */

/* A node that was open already takes over what the options change; the journal mode is the file's,
 * and was switched by opening. */
static int take_over(msg_opened *o, const msg_settings *before, const msg_settings *after,
                     bool runtime, msg_err *err) {
  for (size_t i = 0; i < msg_settings_count(); i++) {
    const char *name = msg_settings_info(i)->name;
    msg_value was, is;
    if (msg_settings_info(i)->runtime != runtime || strcmp(name, "journal_mode") == 0 ||
        !msg_settings_get(before, name, &was) || !msg_settings_get(after, name, &is))
      continue;
    if (was.type == is.type && was.i == is.i && (is.type != MSG_TEXT || strcmp(was.p, is.p) == 0))
      continue;
    int rc = msg_node_configure(o->node, name, &is, false, err);
    if (rc != MSG_OK)
      return rc;
  }
  return MSG_OK;
}

static int reconfigure(msg_invocation *in, msg_opened *o, msg_err *err) {
  msg_settings before, after;
  int rc = msg_node_settings(o->node, &before, err);
  if (rc != MSG_OK)
    return rc;
  rc = msg_settings_copy(&after, &before) == MSG_OK
           ? msg_settings_read(in->c, in->argv[1], &after, err)
           : msg_err_nomem(err);
  if (rc == MSG_OK)
    rc = take_over(o, &before, &after, false, err); /* refused, while nothing has changed */
  if (rc == MSG_OK)
    rc = take_over(o, &before, &after, true, err);
  msg_settings_clear(&before);
  msg_settings_clear(&after);
  return rc;
}

/* A locked file does not keep the node from being open: the first write announces it. */
static int announce(msg_invocation *in, msg_err *err) {
  msg_opened *o;
  msg_call call;
  int rc = msg_in_call(in, NULL, MSG_CALL_WRITE, &o, &call, err);
  return rc == MSG_BUSY ? MSG_OK : rc;
}

/* A node that the queue refuses is not open, and can be opened otherwise. */
static int open_node(msg_invocation *in, const msg_settings *settings, msg_err *err) {
  msg_opening opening;
  const char *target = NULL;
  int rc = MSG_OK;
  if (msg_in_has(in, 0))
    rc = msg_in_text(in, 0, "target", &target, err);
  if (rc == MSG_OK)
    rc = msg_connection_open(in->c, target, settings, &opening, err);
  if (rc != MSG_OK)
    return rc;
  if (msg_in_has(in, 1))
    rc = reconfigure(in, opening.o, err);
  if (rc == MSG_OK)
    rc = announce(in, err);
  if (rc == MSG_OK)
    msg_result_text(in->ctx, msg_node_id(opening.o->node));
  else
    msg_connection_refuse(in->c, &opening);
  return rc;
}

int msg_run_open(msg_invocation *in, msg_err *err) {
  msg_settings settings;
  msg_settings_init(&settings);
  int rc = in->argc > 1 ? msg_settings_read(in->c, in->argv[1], &settings, err) : MSG_OK;
  if (rc == MSG_OK)
    rc = open_node(in, &settings, err);
  msg_settings_clear(&settings);
  return rc;
}

int msg_run_close(msg_invocation *in, msg_err *err) {
  const char *name = NULL;
  bool closed;
  int rc = msg_in_has(in, 0) ? msg_in_text(in, 0, "node", &name, err) : MSG_OK;
  if (rc == MSG_OK)
    rc = msg_connection_close_node(in->c, name, &closed, err);
  if (rc == MSG_OK)
    sqlite3_result_int(in->ctx, closed);
  return rc;
}

/* --- msg_config, msg_version --------------------------------------------------------------- */

static int configure(msg_invocation *in, msg_opened *o, const char *key, msg_err *err) {
  msg_value v;
  int64_t whole;
  int rc = msg_in_value(in, 1, &v, err);
  if (rc == MSG_OK && v.type == MSG_REAL &&
      msg_in_int(in, 1, "value", INT64_MIN, INT64_MAX, &whole, NULL) == MSG_OK)
    v = msg_value_int(whole);
  return rc == MSG_OK ? msg_node_configure(o->node, key, &v, false, err) : rc;
}

static int show_setting(msg_invocation *in, msg_opened *o, const char *key, msg_err *err) {
  msg_settings settings;
  msg_value v;
  int rc = msg_node_settings(o->node, &settings, err);
  if (rc != MSG_OK)
    return rc;
  if (msg_settings_get(&settings, key, &v)) {
    v.owned = false;
    msg_result_value(in->ctx, &v);
  } else {
    msg_value none = {0};
    rc = msg_settings_set(&settings, key, &none, false, false, err); /* names the nearest */
  }
  msg_settings_clear(&settings);
  return rc;
}

int msg_run_config(msg_invocation *in, msg_err *err) {
  const char *key;
  msg_opened *o;
  int rc = msg_in_text(in, 0, "key", &key, err);
  if (rc == MSG_OK)
    rc = msg_connection_node(in->c, NULL, &o, err);
  if (rc == MSG_OK && in->argc > 1)
    rc = configure(in, o, key, err);
  return rc == MSG_OK ? show_setting(in, o, key, err) : rc;
}

int msg_run_version(msg_invocation *in, msg_err *err) {
  (void)err;
  msg_result_text(in->ctx, MSG_VERSION);
  return MSG_OK;
}
