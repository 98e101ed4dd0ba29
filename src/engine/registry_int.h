/* registry_int.h - the registry as engine/ sees it. */
#ifndef MSG_ENGINE_REGISTRY_INT_H
#define MSG_ENGINE_REGISTRY_INT_H

#include "engine/cursor.h"
#include "engine/registry.h"

/** The cursor of a registered store, with one more reference to the store. NULL: not registered, or
 *  by another process. */
msg_cursor *msg_registry_cursor(msg_store *store);

#endif
