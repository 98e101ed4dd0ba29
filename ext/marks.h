/* marks.h - who has seen a message, told by hand: the column processed_by of msg_messages. */
#ifndef MSG_EXT_MARKS_H
#define MSG_EXT_MARKS_H

#include "base/texts.h"
#include "ext/browse.h"

/** Add the sender ids of a JSON array to *out, each once. On failure some may be there.
 *  Errors: MSG_INVALID no such array; MSG_NOMEM. */
int msg_marks_read(msg_connection *c, const msg_value *array, msg_texts *out, msg_err *err);
/** Mark the message seen by every node that the JSON array names. Nobody is taken out: those who
 *  have seen it and are not named stay.
 *  Errors: MSG_INVALID no array of sender ids; the message is exclusive. */
int msg_marks_add(msg_connection *c, const msg_target *target, const msg_actor *actor,
                  sqlite3_value *array, msg_err *err);

#endif
