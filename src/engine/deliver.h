/* deliver.h - what a store's watch pushes, into the inboxes of the nodes of this process. Private
 * to engine/. Thread: the store's cursor thread. */
#ifndef MSG_ENGINE_DELIVER_H
#define MSG_ENGINE_DELIVER_H

#include "store/store.h"

/** To every node that wants it; an exclusive one to a claim that waits. Owns: event->message, which
 *  is emptied. False: no memory, everybody shall look at the store. */
bool msg_deliver(msg_store *store, msg_event *event);
/** Wake the waits of the nodes that got something. */
void msg_deliver_ring(msg_store *store);

#endif
