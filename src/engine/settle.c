/* settle.c - what becomes of claims. */
#include "engine/node_int.h"

static void count_settled(msg_node *node, enum msg_settle_verb verb, const msg_settle_item *items,
                          size_t n) {
  static const enum msg_stat STATS[] = {
      [MSG_SETTLE_ACK] = MSG_STAT_ACKED,       [MSG_SETTLE_RELEASE] = MSG_STAT_RELEASED,
      [MSG_SETTLE_EXTEND] = MSG_STAT_EXTENDED, [MSG_SETTLE_REJECT] = MSG_STAT_REJECTED,
      [MSG_SETTLE_FREE] = MSG_STAT_RELEASED,
  };
  int64_t done = 0;
  for (size_t i = 0; i < n; i++)
    done += items[i].done;
  msg_node_count(node, STATS[verb], done);
  msg_node_count(node, MSG_STAT_LATE, (int64_t)n - done);
}

static int check_settle(const msg_settle *how, msg_err *err) {
  if (how->verb == MSG_SETTLE_RELEASE && how->delay_ms < 0)
    return msg_err_set(err, MSG_INVALID, "release: a delay of %lld ms is negative",
                       (long long)how->delay_ms);
  if (how->verb == MSG_SETTLE_EXTEND && how->lease_ms <= 0)
    return msg_err_set(err, MSG_INVALID, "extend: a lease of %lld ms: give 1 or more",
                       (long long)how->lease_ms);
  return MSG_OK;
}

int msg_node_settle(msg_node *node, msg_call *call, const msg_settle *how, msg_settle_item *items,
                    size_t n, msg_err *err) {
  msg_use u;
  int rc = check_settle(how, err);
  if (rc == MSG_OK)
    rc = msg_use_begin(&u, node, err);
  if (rc != MSG_OK)
    return rc;
  if (n > 0)
    rc = MSG_STORE(&u, msg_call_writes(call), settle, &u.actor, how, items, n, err);
  if (rc == MSG_OK)
    count_settled(node, how->verb, items, n);
  msg_use_end(&u);
  return rc;
}

void msg_node_undone(msg_node *node, const msg_oid *ids, size_t n) {
  if (n == 0 || msg_node_check(node, NULL) != MSG_OK)
    return;
  node->store->ops->claims_undone(node->store, ids, n);
  msg_node_count(node, MSG_STAT_UNDONE, (int64_t)n);
}
