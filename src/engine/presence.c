/* presence.c - a node says that it is there, and that it goes. */
#include "base/clock.h"
#include "base/process.h"
#include "engine/follow.h"
#include "engine/node_int.h"

int msg_node_announce(msg_node *node, msg_call *call, msg_err *err) {
  msg_use u;
  int rc = msg_use_begin(&u, node, err);
  if (rc != MSG_OK)
    return rc;
  char implementation[] = "sqlite-msg";
  msg_participant me = {
      .node = node->id,
      .host = (char *)msg_process_host(), /* the row is borrowed and only read */
      .implementation = implementation,
      .process = (char *)msg_process_self(),
      .pid = msg_process_pid(),
      .automatic = node->automatic,
      .alive = true,
      .started_at_ms = node->opened_at_ms,
      .last_seen_ms = msg_clock_now_ms(),
  };
  rc = MSG_STORE(&u, msg_call_looks(call), presence_put, &me, err);
  if (rc == MSG_OK && (node->store->ops->caps(node->store) & MSG_CAP_TEND))
    msg_cursor_rouse(node->cursor, &u.policy->settings, msg_follow);
  msg_use_end(&u);
  return rc;
}

int msg_node_withdraw(msg_node *node, msg_call *call, msg_err *err) {
  int rc = msg_node_check(node, err);
  if (rc != MSG_OK)
    return rc;
  msg_cursor_leaves(node->cursor);
  msg_node_count(node, MSG_STAT_STORE_CALLS, 1);
  rc = call->session->ops->presence_withdraw(call->session, node->id, false, err);
  return rc == MSG_NOTFOUND ? MSG_OK : rc;
}
