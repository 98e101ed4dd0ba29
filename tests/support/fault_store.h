/* fault_store.h - wraps any store: errors, delays and lost events on chosen verbs, and counts of
 * calls. */
#ifndef MSG_TESTS_FAULT_STORE_H
#define MSG_TESTS_FAULT_STORE_H

#include "store/store.h"

enum fault_verb {
  FAULT_PUT,
  FAULT_GET,
  FAULT_LISTEN,
  FAULT_UNLISTEN,
  FAULT_UNSEEN,
  FAULT_SEEN,
  FAULT_SEEN_SOON,
  FAULT_STILL_UNSEEN,
  FAULT_CLAIM,
  FAULT_CLAIMABLE,
  FAULT_SETTLE,
  FAULT_PRESENCE_PUT,
  FAULT_PRESENCE_WITHDRAW,
  FAULT_DEADLINE,
  FAULT_WATCH_OPEN,
  FAULT_WATCH_NEXT,
  FAULT_VERBS
};

/** Owns: inner, also on failure (NULL, memory is out). */
msg_store *fault_store_new(msg_store *inner);

/* All: any thread, at any time; a watch_next under way obeys within 20 ms. */

/** Let the verb fail with rc `times` times (-1: until told otherwise), after `skip` more calls that
 *  do not. */
void fault_store_fail(msg_store *store, enum fault_verb verb, int rc, int skip, int times);
/** Sleep this long before every call of the verb. */
void fault_store_delay(msg_store *store, enum fault_verb verb, int64_t delay_ms);
/** Swallow this many events of watches; -1: all. */
void fault_store_lose_events(msg_store *store, int n);
/** Let a watch tell of the message next, as if it had just come. Owns: *m, which is emptied.
 *  Blocks: until a watch has it. */
void fault_store_tell(msg_store *store, msg_message *m);
/** Let every `seen` say that another was faster, this many times. */
void fault_store_lose_seen(msg_store *store, int n);
/** Before the registry knows the store: take these capabilities away. */
void fault_store_without(msg_store *store, unsigned caps);
/** Calls of the verb so far. */
long fault_store_calls(msg_store *store, enum fault_verb verb);
/** Watches open now. */
int fault_store_watches(msg_store *store);
/** Stores of this kind alive in the process. */
int fault_store_alive(void);

#endif
