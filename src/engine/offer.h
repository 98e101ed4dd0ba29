/* offer.h - exclusive messages that a store's watch pushed. Each is offered to one claim that waits
 * in this process, so that the others need not even look; it starts with them, and what it leaves
 * goes to the next. Private to engine/. */
#ifndef MSG_ENGINE_OFFER_H
#define MSG_ENGINE_OFFER_H

#include "engine/node_int.h"

/* A waiting claim. Owner: its caller, on whose stack it is; guarded by the node's mutex from open
 * to close. */
typedef struct msg_bid {
  struct msg_bid *next;
  msg_node *node;
  const msg_pattern *pattern;
  size_t most; /* offers it takes */
  struct msg_offer {
    msg_parcel *parcel;
    int64_t at_ms; /* monotonic: others go first until then */
  } * at;
  size_t n, cap;
  bool look; /* there was one more: only a look at the store tells */
} msg_bid;

/** Before the first look at the store. Args: pattern outlives the bid. */
void msg_bid_open(msg_bid *b, msg_node *node, const msg_pattern *pattern, size_t count);
/** What was not taken is offered to others. `got`: what was claimed meanwhile. */
void msg_bid_close(msg_bid *b, const msg_list *got, size_t from);
/** Must the claim look at the store? Asked once: then it does. */
bool msg_bid_look(msg_bid *b);
/** When the first offer is due, MSG_NEVER if there is none. Monotonic. */
int64_t msg_bid_due(msg_bid *b);
/** Take the ids of those due at `now_ms`: msg_free. *n 0: none. Errors: MSG_NOMEM, they are lost
 *  and the claim is to look. */
int msg_bid_take(msg_bid *b, int64_t now_ms, msg_oid **ids, size_t *n);

/** Offer one of the store's messages at `at_ms`. Owns nothing. Thread: any, no lock held. */
void msg_offer(msg_store *store, msg_parcel *parcel, int64_t at_ms);

#endif
