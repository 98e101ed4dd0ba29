#include <string.h>

#include "base/mem.h"
#include "engine/node_int.h"

/* Threads of one node that look at once may take everything from under each other's eyes, but one
 * of them always wins. */
#define LOST_LOOKS_MAX 100

/* Keeps what this call marked; the others were handed out elsewhere or are gone. */
static void keep_won(msg_list *found, const bool *won) {
  size_t n = 0;
  for (size_t i = 0; i < found->n; i++) {
    if (won[i])
      found->at[n++] = found->at[i];
    else
      msg_message_clear(&found->at[i]);
  }
  found->n = n;
}

/* Moves `found` behind what is in *out, which has room if it holds anything. */
static void move_to(msg_list *found, msg_list *out) {
  if (out->n == 0) {
    msg_list before = *out;
    *out = *found;
    *found = before;
    return;
  }
  memcpy(out->at + out->n, found->at, found->n * sizeof *out->at);
  out->n += found->n;
  found->n = 0;
}

/* Marks what was found, and moves what was won to *out. Whatever can fail comes before the mark. */
static int mark(msg_use *u, msg_call *call, msg_list *found, msg_list *out, msg_err *err) {
  bool *won = msg_zalloc(found->n * sizeof *won);
  int rc = won ? MSG_OK : MSG_NOMEM;
  if (rc == MSG_OK && out->n > 0)
    rc = msg_grow(&out->at, &out->cap, out->n + found->n, sizeof *out->at);
  if (rc != MSG_OK) {
    msg_free(won);
    return msg_err_nomem(err);
  }
  rc = MSG_STORE(u, call->session, seen, &u->actor, found, won, err);
  if (rc == MSG_OK) {
    keep_won(found, won);
    if (found->n > 0)
      move_to(found, out);
  }
  msg_free(won);
  return rc;
}

/* One find and one mark. *found_n: how many were there before the others were faster. */
static int look_once(msg_use *u, msg_call *call, const msg_unseen *query, size_t *found_n,
                     msg_list *out, msg_err *err) {
  msg_list found = MSG_LIST_INIT;
  int rc = MSG_STORE(u, msg_call_looks(call), unseen, &u->actor, query, &found, err);
  *found_n = found.n;
  if (rc == MSG_OK && found.n > 0)
    rc = mark(u, call, &found, out, err);
  msg_list_clear(&found);
  return rc;
}

int msg_look_take(msg_use *u, msg_call *call, const msg_unseen *query, msg_list *out,
                  msg_err *err) {
  const size_t before = out->n;
  const size_t window = (size_t)u->policy->settings.window_size;
  for (int lost = 0; lost < LOST_LOOKS_MAX;) {
    msg_unseen part = *query;
    size_t found = 0, had = out->n;
    part.max = query->max - (out->n - before);
    if (part.max > window && window > 0)
      part.max = window;
    int rc = look_once(u, call, &part, &found, out, err);
    if (rc != MSG_OK) /* what is marked must reach the caller; the failure will be met again */
      return out->n > before ? MSG_OK : rc;
    bool all_lost = found > 0 && out->n == had;
    if (out->n - before == query->max || (found < part.max && !all_lost))
      return MSG_OK;
    lost += all_lost;
  }
  return MSG_OK;
}

void msg_look_handed(msg_node *node, const msg_list *out, size_t from, enum msg_stat stat) {
  msg_mutex_lock(node->mtx);
  msg_recent_add(&node->recent, out, from);
  msg_mutex_unlock(node->mtx);
  msg_node_count(node, stat, (int64_t)(out->n - from));
  msg_cursor_handed(node->cursor);
}
