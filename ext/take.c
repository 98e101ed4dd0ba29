/* msg_await and msg_claim in their scalar forms: one message as JSON. */
#include "ext/functions.h"
#include "ext/values.h"

/* The scalar forms take the table forms' count, where other arguments follow it, but only as 1. */
static int check_one(const msg_invocation *in, int i, const char *what, msg_err *err) {
  int64_t n = 1;
  int rc = msg_in_int(in, i, what, 1, INT32_MAX, &n, err);
  if (rc != MSG_OK || n == 1)
    return rc;
  return msg_err_set(err, MSG_INVALID,
                     "%s: the scalar form returns one message: use SELECT * FROM %s(...)", in->name,
                     in->name);
}

static int await_timeout(msg_opened *o, int64_t *timeout_ms, msg_err *err) {
  msg_settings settings;
  if (*timeout_ms >= 0)
    return MSG_OK;
  int rc = msg_node_settings(o->node, &settings, err);
  if (rc == MSG_OK) {
    *timeout_ms = settings.await_timeout_ms;
    msg_settings_clear(&settings);
  }
  return rc;
}

static int give(msg_invocation *in, int rc, const msg_list *list, bool claimed, msg_err *err) {
  if (rc == MSG_OK && list->n > 0)
    return msg_result_message(in->ctx, in->c, &list->at[0], claimed, err);
  return rc == MSG_TIMEOUT ? MSG_OK : rc;
}

int msg_run_await(msg_invocation *in, msg_err *err) {
  const char *pattern = NULL;
  int64_t timeout_ms = -1;
  msg_opened *o;
  msg_call call;
  msg_list list = MSG_LIST_INIT;
  int rc = msg_in_has(in, 0) ? msg_in_text(in, 0, "topic", &pattern, err) : MSG_OK;
  if (rc == MSG_OK)
    rc = msg_in_int(in, 1, "timeout_ms", 0, MSG_DURATION_MAX_MS, &timeout_ms, err);
  if (rc == MSG_OK)
    rc = check_one(in, 2, "max", err);
  if (rc == MSG_OK)
    rc = msg_in_call(in, NULL, timeout_ms == 0 ? MSG_CALL_LOOK : MSG_CALL_WAIT, &o, &call, err);
  if (rc == MSG_OK)
    rc = await_timeout(o, &timeout_ms, err);
  if (rc == MSG_OK)
    rc = msg_connection_await(in->c, o, &call, pattern, timeout_ms, 1, &list, err);
  rc = give(in, rc, &list, false, err);
  msg_list_clear(&list);
  return rc;
}

int msg_run_claim(msg_invocation *in, msg_err *err) {
  const char *pattern;
  int64_t lease_ms = 0, wait_ms = 0;
  msg_opened *o;
  msg_call call;
  msg_list list = MSG_LIST_INIT;
  int rc = msg_in_text(in, 0, "topic", &pattern, err);
  if (rc == MSG_OK)
    rc = check_one(in, 1, "count", err);
  if (rc == MSG_OK)
    rc = msg_in_int(in, 2, "lease_ms", 1, MSG_DURATION_MAX_MS, &lease_ms, err);
  if (rc == MSG_OK)
    rc = msg_in_int(in, 3, "wait_ms", 0, MSG_DURATION_MAX_MS, &wait_ms, err);
  if (rc == MSG_OK)
    rc = msg_in_call(in, NULL, wait_ms == 0 ? MSG_CALL_LOOK : MSG_CALL_WAIT, &o, &call, err);
  if (rc == MSG_OK)
    rc = msg_node_claim(o->node, &call, pattern, 1, lease_ms, wait_ms, &list, err);
  if (rc == MSG_OK)
    rc = msg_connection_claimed(in->c, o, &list, err);
  rc = give(in, rc, &list, true, err);
  msg_list_clear(&list);
  return rc;
}
