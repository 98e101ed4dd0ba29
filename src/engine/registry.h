/* registry.h - the stores and nodes of this process. */
#ifndef MSG_ENGINE_REGISTRY_H
#define MSG_ENGINE_REGISTRY_H

#include "store/store.h"

/* What a process opened is not usable in a child made by fork(): the child's registry starts empty,
 * and it may open anew. Nothing of the parent's is freed there. All functions: any thread, hold no
 * lock. */

/** The store known under `key`, with a reference; NULL if none. */
msg_store *msg_registry_find(const char *key);
/** Register `store` under `key` (copied) and take a reference; if another thread was faster,
 *  `store` is closed and *out is the other.
 *  Errors: MSG_NOMEM (store closed). */
int msg_registry_add(const char *key, msg_store *store, msg_store **out, msg_err *err);
/** One more reference. */
void msg_registry_ref(msg_store *store);
/** Give a reference back; the last closes the store. Blocks: up to 2 s when a cursor thread has to
 *  end first; what takes longer is closed later. */
void msg_registry_unref(msg_store *store);
/** Forget the key (its file was replaced): who holds it keeps it, a new open makes a new one. */
void msg_registry_forget(msg_store *store);

/** Once per process: fork guard, orderly stop at exit (bounded: 2 s). Errors: MSG_NOMEM. */
int msg_engine_start(msg_err *err);
/** Exit handlers that were registered since (a driver's, its TLS library's) run before that stop:
 *  register it behind them once more. Errors: MSG_NOMEM. */
int msg_engine_stop_first(msg_err *err);

#endif
