/* Verbs on topics: listen, unlisten, pause, resume, purge, redrive. */
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "ext/functions.h"
#include "ext/values.h"

/* --- msg_listen, msg_unlisten -------------------------------------------------------------- */

/* The options of msg_listen. */
struct listen_options {
  bool catch_up, catch_up_given;
  char *node;
};

static int read_listen_option(void *arg, const char *key, const msg_value *v, bool is_bool,
                              msg_err *err) {
  static const char *const KNOWN[] = {"catch_up", "node"};
  struct listen_options *o = arg;
  (void)is_bool;
  if (strcmp(key, "catch_up") == 0) {
    if (v->type != MSG_INT || (v->i != 0 && v->i != 1))
      return msg_err_set(err, MSG_INVALID, "option 'catch_up' takes true or false, not %s",
                         v->json ? "JSON" : msg_type_name(v->type));
    o->catch_up = v->i != 0;
    o->catch_up_given = true;
    return MSG_OK;
  }
  if (strcmp(key, "node") == 0) {
    if (v->type != MSG_TEXT || v->json || o->node)
      return msg_err_set(err, MSG_INVALID, "option 'node' takes one text");
    o->node = msg_strdup(v->p);
    return o->node ? MSG_OK : msg_err_nomem(err);
  }
  const char *nearest = msg_nearest(key, KNOWN, 2);
  if (nearest)
    return msg_err_set(err, MSG_INVALID, "unknown option '%s': did you mean '%s'?", msg_show(key).s,
                       nearest);
  return msg_err_set(err, MSG_INVALID, "unknown option '%s': known are catch_up, node",
                     msg_show(key).s);
}

static int read_listen_options(msg_invocation *in, struct listen_options *o, msg_err *err) {
  const char *text;
  if (!msg_in_has(in, 1))
    return MSG_OK;
  int rc = msg_in_text(in, 1, "options", &text, err);
  if (rc != MSG_OK)
    return rc;
  msg_value json = msg_value_text(text);
  return msg_json_object(in->c, &json, "options", read_listen_option, o, err);
}

static int listen(msg_invocation *in, const char *pattern, const struct listen_options *options,
                  msg_err *err) {
  msg_opened *o;
  msg_call call;
  int rc = msg_in_call(in, options->node, MSG_CALL_WRITE, &o, &call, err);
  if (rc != MSG_OK)
    return rc;
  rc = msg_node_listen(o->node, &call, pattern, options->catch_up_given ? &options->catch_up : NULL,
                       err);
  if (rc != MSG_OK && rc != MSG_EXISTS)
    return rc;
  sqlite3_result_int(in->ctx, rc == MSG_OK);
  return msg_connection_changed(in->c, o, err);
}

int msg_run_listen(msg_invocation *in, msg_err *err) {
  struct listen_options options = {0};
  const char *pattern;
  int rc = msg_in_text(in, 0, "topic", &pattern, err);
  if (rc == MSG_OK)
    rc = read_listen_options(in, &options, err);
  if (rc == MSG_OK)
    rc = listen(in, pattern, &options, err);
  msg_free(options.node);
  return rc;
}

int msg_run_unlisten(msg_invocation *in, msg_err *err) {
  const char *pattern;
  msg_opened *o;
  msg_call call;
  int rc = msg_in_text(in, 0, "topic", &pattern, err);
  if (rc == MSG_OK)
    rc = msg_in_call(in, NULL, MSG_CALL_WRITE, &o, &call, err);
  if (rc != MSG_OK)
    return rc;
  rc = msg_node_unlisten(o->node, &call, pattern, err);
  if (rc != MSG_OK && rc != MSG_NOTFOUND)
    return rc;
  sqlite3_result_int(in->ctx, rc == MSG_OK);
  return rc == MSG_OK ? msg_connection_changed(in->c, o, err) : MSG_OK;
}

/* --- msg_pause, msg_resume ----------------------------------------------------------------- */

typedef int (*pause_fn)(msg_node *node, const char *pattern, bool *changed, msg_err *err);

static int pause_or_resume(msg_invocation *in, pause_fn verb, msg_err *err) {
  const char *pattern;
  msg_opened *o;
  bool changed;
  int rc = msg_in_text(in, 0, "topic", &pattern, err);
  if (rc == MSG_OK)
    rc = msg_connection_node(in->c, NULL, &o, err);
  if (rc == MSG_OK)
    rc = verb(o->node, pattern, &changed, err);
  if (rc == MSG_OK)
    sqlite3_result_int(in->ctx, changed);
  return rc;
}

int msg_run_pause(msg_invocation *in, msg_err *err) {
  return pause_or_resume(in, msg_node_pause, err);
}

int msg_run_resume(msg_invocation *in, msg_err *err) {
  return pause_or_resume(in, msg_node_resume, err);
}

/* --- msg_purge, msg_redrive ---------------------------------------------------------------- */

typedef int (*sweep_fn)(msg_session *, const msg_actor *, const msg_pattern *, int64_t *,
                        msg_err *);

static int sweep(msg_invocation *in, const msg_pattern *pattern, bool purge, msg_err *err) {
  msg_opened *o;
  msg_call call;
  msg_settings settings;
  msg_actor actor;
  int64_t count;
  int rc = msg_in_call(in, NULL, MSG_CALL_WRITE, &o, &call, err);
  if (rc == MSG_OK)
    rc = msg_opened_actor(o, &settings, &actor, err);
  if (rc != MSG_OK)
    return rc;
  sweep_fn verb = purge ? call.session->ops->purge : call.session->ops->redrive;
  rc = verb(call.session, &actor, pattern, &count, err);
  msg_settings_clear(&settings);
  if (rc != MSG_OK)
    return rc;
  msg_node_doubt(o->node);
  sqlite3_result_int64(in->ctx, count);
  return rc;
}

static int purge_or_redrive(msg_invocation *in, bool purge, msg_err *err) {
  const char *text;
  msg_pattern *pattern;
  int rc = msg_in_text(in, 0, "topic", &text, err);
  if (rc == MSG_OK)
    rc = msg_pattern_new(text, &pattern, err);
  if (rc != MSG_OK)
    return rc;
  rc = sweep(in, pattern, purge, err);
  msg_pattern_free(pattern);
  return rc;
}

int msg_run_purge(msg_invocation *in, msg_err *err) {
  return purge_or_redrive(in, true, err);
}

int msg_run_redrive(msg_invocation *in, msg_err *err) {
  return purge_or_redrive(in, false, err);
}
