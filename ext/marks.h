/* marks.h - who has seen a message, told by hand: UPDATE msg_messages SET processed_by. */
#ifndef MSG_EXT_MARKS_H
#define MSG_EXT_MARKS_H

#include "ext/browse.h"

/** Mark the message seen by every node that the JSON array names. Nobody is taken out: those who
 *  have seen it and are not named stay.
 *  Errors: MSG_INVALID no array of sender ids; the message is exclusive. */
int msg_marks_add(msg_connection *c, const msg_target *target, const msg_actor *actor,
                  sqlite3_value *array, msg_err *err);

#endif
