#include <string.h>

#include "base/mem.h"
#include "engine/node_int.h"

int msg_reserve_add(msg_node *node, const msg_oid *request, msg_err *err) {
  msg_mutex_lock(node->mtx);
  int rc = msg_grow(&node->reserved, &node->reserved_cap, node->reserved_count + 1,
                    sizeof *node->reserved);
  if (rc == MSG_OK)
    node->reserved[node->reserved_count++] = *request;
  msg_mutex_unlock(node->mtx);
  return rc == MSG_OK ? MSG_OK : msg_err_nomem(err);
}

/* Waiters look again: an answer that comes late is theirs now, and one that is there already if
 * they left it alone. */
void msg_reserve_drop(msg_node *node, const msg_oid *request) {
  msg_mutex_lock(node->mtx);
  size_t i = msg_oid_index(node->reserved, node->reserved_count, request);
  if (i < node->reserved_count)
    node->reserved[i] = node->reserved[--node->reserved_count];
  if (node->reserved_looked)
    msg_inbox_lose(&node->inbox);
  node->reserved_looked = false;
  msg_mutex_unlock(node->mtx);
  msg_gate_move(node->changes);
}

int msg_reserve_copy(msg_node *node, msg_oid **out, size_t *n, msg_err *err) {
  msg_oid *copy = NULL;
  msg_mutex_lock(node->mtx);
  size_t count = node->reserved_count;
  if (count > 0)
    copy = msg_alloc(count * sizeof *copy);
  if (copy)
    memcpy(copy, node->reserved, count * sizeof *copy);
  node->reserved_looked = node->reserved_looked || count > 0;
  msg_mutex_unlock(node->mtx);
  if (count > 0 && !copy)
    return msg_err_nomem(err);
  *out = copy;
  *n = count;
  return MSG_OK;
}

bool msg_reserve_has_locked(const msg_node *node, const msg_message *m) {
  return msg_oid_index(node->reserved, node->reserved_count, &m->in_answer_to) <
         node->reserved_count;
}

bool msg_reserve_leaves_locked(msg_node *node, const msg_message *m) {
  bool has = msg_reserve_has_locked(node, m);
  node->reserved_looked = node->reserved_looked || has;
  return has;
}

static bool is_unreserved(void *node, size_t i, const msg_message *m) {
  (void)i;
  return !msg_reserve_leaves_locked(node, m);
}

void msg_reserve_leave(msg_node *node, msg_list *found) {
  msg_mutex_lock(node->mtx);
  msg_list_keep(found, is_unreserved, node);
  msg_mutex_unlock(node->mtx);
}
