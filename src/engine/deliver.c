#include "engine/deliver.h"

#include <string.h>

#include "base/clock.h"
#include "engine/offer.h"

/* So long after the last look, what comes is kept for the next. */
#define KEPT_MS 5000
/* So long the word of a message may come behind a look that gave it. */
#define LATE_MS 60000

typedef struct delivery {
  msg_parcel *parcel;
  int64_t told_ms;
} delivery;

enum whose { OTHERS, OURS, UNSURE };

/* UNSURE: it may be from before the node began to listen, which the store can tell. */
static enum whose whose_locked(const msg_node *node, const msg_message *m, int64_t told_ms) {
  enum whose whose = OTHERS;
  if (m->recipient_count > 0)
    return msg_message_has_recipient(m, node->id) ? OURS : OTHERS;
  if (m->sender && strcmp(m->sender, node->id) == 0)
    return OTHERS;
  if (msg_reserve_has_locked(node, m))
    return OURS;
  for (size_t i = 0; i < node->listen_count && whose != OURS; i++)
    if (msg_pattern_match(node->listens[i].pattern, m->topic))
      whose = told_ms > node->listens[i].since_ms ? OURS : UNSURE;
  return whose;
}

static bool looks_locked(const msg_node *node) {
  return node->looks > 0 ||
         (node->looked_ms != 0 && msg_clock_mono_ms() - node->looked_ms < KEPT_MS);
}

/* A look at the store was faster than the word of it, by so much that its mark is written. */
static bool is_late_locked(const msg_node *node, const msg_oid *id) {
  return node->inbox.scanned_ms != 0 && msg_clock_mono_ms() - node->inbox.scanned_ms < LATE_MS &&
         msg_recent_has(&node->recent, id);
}

static void deliver_to(msg_node *node, void *arg) {
  const delivery *d = arg;
  msg_mutex_lock(node->mtx);
  const msg_message *m = msg_parcel_message(d->parcel);
  enum whose whose = whose_locked(node, m, d->told_ms);
  if (whose == OURS && is_late_locked(node, &m->id))
    whose = OTHERS;
  if (whose == OURS && looks_locked(node))
    msg_inbox_push(&node->inbox, d->parcel, msg_look_inbox_max(node->policy));
  else if (whose != OTHERS)
    msg_inbox_lose(&node->inbox);
  msg_mutex_unlock(node->mtx);
}

bool msg_deliver(msg_store *store, msg_event *event) {
  bool exclusive = event->message.exclusive;
  delivery d = {.told_ms = event->told_ms};
  d.parcel = msg_parcel_new(&event->message, d.told_ms);
  if (!d.parcel)
    return false;
  if (exclusive)
    msg_offer(store, d.parcel, msg_clock_mono_ms() + event->turn_ms);
  else
    msg_nodes_each(store, deliver_to, &d);
  msg_parcel_unref(d.parcel);
  return true;
}

typedef struct putting {
  const msg_put *puts;
  size_t n;
} putting;

static void note_put(msg_node *node, void *arg) {
  const putting *p = arg;
  msg_mutex_lock(node->mtx);
  for (size_t i = 0; i < p->n; i++)
    if (!p->puts[i].message->exclusive && whose_locked(node, p->puts[i].message, 0) != OTHERS)
      node->puts++;
  msg_mutex_unlock(node->mtx);
}

void msg_deliver_put(msg_store *store, const msg_put *puts, size_t n) {
  putting p = {puts, n};
  if (store->ops->caps(store) & MSG_CAP_PUSH)
    msg_nodes_each(store, note_put, &p);
}

static void doubt(msg_node *node, void *arg) {
  (void)arg;
  msg_mutex_lock(node->mtx);
  msg_inbox_doubt(&node->inbox);
  msg_mutex_unlock(node->mtx);
}

void msg_deliver_doubt(msg_store *store) {
  if (store->ops->caps(store) & MSG_CAP_PUSH)
    msg_nodes_each(store, doubt, NULL);
}

static void ring(msg_node *node, void *arg) {
  (void)arg;
  msg_mutex_lock(node->mtx);
  bool rung = node->inbox.rung;
  node->inbox.rung = false;
  msg_mutex_unlock(node->mtx);
  if (rung)
    msg_gate_move(node->changes);
}

void msg_deliver_ring(msg_store *store) {
  msg_nodes_each(store, ring, NULL);
}
