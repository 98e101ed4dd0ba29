#include "engine/offer.h"

#include <string.h>

#include "base/mem.h"

#define OFFERS_MAX 100

void msg_bid_open(msg_bid *b, msg_node *node, const msg_pattern *pattern, size_t count) {
  *b = (msg_bid){.node = node, .pattern = pattern};
  b->most = count < OFFERS_MAX ? count : OFFERS_MAX;
  msg_mutex_lock(node->mtx);
  b->next = node->bids;
  node->bids = b;
  msg_mutex_unlock(node->mtx);
}

void msg_bid_close(msg_bid *b, const msg_list *got, size_t from) {
  msg_node *node = b->node;
  msg_mutex_lock(node->mtx);
  msg_bid **link = &node->bids;
  while (*link != b)
    link = &(*link)->next;
  *link = b->next;
  msg_mutex_unlock(node->mtx);
  for (size_t i = 0; i < b->n; i++) {
    if (!msg_list_has(got, from, &msg_parcel_message(b->at[i].parcel)->id))
      msg_offer(node->store, b->at[i].parcel, b->at[i].at_ms);
    msg_parcel_unref(b->at[i].parcel);
  }
  msg_free(b->at);
}

bool msg_bid_look(msg_bid *b) {
  msg_mutex_lock(b->node->mtx);
  bool look = b->look;
  b->look = false;
  msg_mutex_unlock(b->node->mtx);
  return look;
}

int64_t msg_bid_due(msg_bid *b) {
  int64_t at_ms = MSG_NEVER;
  msg_mutex_lock(b->node->mtx);
  for (size_t i = 0; i < b->n; i++)
    at_ms = b->at[i].at_ms < at_ms ? b->at[i].at_ms : at_ms;
  msg_mutex_unlock(b->node->mtx);
  return at_ms;
}

int msg_bid_take(msg_bid *b, int64_t now_ms, msg_oid **ids, size_t *n) {
  size_t kept = 0, taken = 0;
  msg_mutex_lock(b->node->mtx);
  msg_oid *out = b->n > 0 ? msg_alloc(b->n * sizeof *out) : NULL;
  bool nomem = b->n > 0 && !out;
  for (size_t i = 0; i < b->n; i++) {
    if (!nomem && b->at[i].at_ms > now_ms) {
      b->at[kept++] = b->at[i];
      continue;
    }
    if (out)
      out[taken++] = msg_parcel_message(b->at[i].parcel)->id;
    msg_parcel_unref(b->at[i].parcel);
  }
  b->n = kept;
  b->look = b->look || nomem;
  msg_mutex_unlock(b->node->mtx);
  *ids = out;
  *n = taken;
  return nomem ? MSG_NOMEM : MSG_OK;
}

/* --- offering ------------------------------------------------------------------------------ */

typedef struct offering {
  msg_parcel *parcel;
  int64_t at_ms;
  bool taken;
} offering;

static bool wants_locked(const msg_node *node, const msg_bid *b, const msg_message *m) {
  return msg_pattern_match(b->pattern, m->topic) && !msg_policy_pauses(node->policy, m->topic) &&
         (m->recipient_count == 0 || msg_message_has_recipient(m, node->id));
}

static bool put_locked(msg_bid *b, const offering *o) {
  if (b->n >= b->most || msg_grow(&b->at, &b->cap, b->n + 1, sizeof *b->at) != MSG_OK)
    return false;
  msg_parcel_ref(o->parcel);
  b->at[b->n++] = (struct msg_offer){o->parcel, o->at_ms};
  return true;
}

/* Whoever has no room for it looks for itself: what it has may be another's. */
static void offer_to(msg_node *node, void *arg) {
  offering *o = arg;
  bool rings = false;
  if (o->taken)
    return;
  msg_mutex_lock(node->mtx);
  for (msg_bid *b = node->bids; b && !o->taken; b = b->next) {
    if (!wants_locked(node, b, msg_parcel_message(o->parcel)))
      continue;
    o->taken = put_locked(b, o);
    b->look = b->look || !o->taken;
    rings = true;
  }
  msg_mutex_unlock(node->mtx);
  if (rings)
    msg_gate_move(node->changes);
}

void msg_offer(msg_store *store, msg_parcel *parcel, int64_t at_ms) {
  offering o = {.parcel = parcel, .at_ms = at_ms};
  msg_nodes_each(store, offer_to, &o);
}
