/* undone.h - deliveries whose transaction was rolled back: `attempts` went back with the claim, and
 * yet they count, so that poison dies. Private to store/local. Any thread.
 *
 * What a message has come to in one of its lives (from the send or a redrive to the next redrive)
 * is remembered beside the row and never lowered: the greater of both is right, whatever becomes of
 * the transaction in which it is asked for. The row says which life it is in. */
#ifndef MSG_LOCAL_UNDONE_H
#define MSG_LOCAL_UNDONE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/oid.h"
#include "base/thread.h"

typedef struct msg_local_undone msg_local_undone;

/** NULL: memory is out. */
msg_local_undone *msg_local_undone_new(void);
void msg_local_undone_free(msg_local_undone *u);

/** The last claim of each id was rolled back; once for each claim. Memory being out forgets it: the
 *  message gets a try more. */
void msg_local_undone_add(msg_local_undone *u, const msg_oid *ids, size_t n);
/** Is anything remembered? Cheap. */
bool msg_local_undone_any(msg_local_undone *u);
/** Is anything remembered of the message? */
bool msg_local_undone_knows(msg_local_undone *u, const msg_oid *id);
/** Deliveries in life `life` of a message whose row says `attempts`. Below `max` it is about to be
 *  delivered once more. */
int32_t msg_local_undone_attempts(msg_local_undone *u, const msg_oid *id, int64_t life,
                                  int32_t attempts, int64_t max);
/** They are in the stored attempts for good. */
void msg_local_undone_forget(msg_local_undone *u, const msg_oid *id);

#endif
