/* doctor.h - facts about this connection, its files and its store, and what to do about them. */
#ifndef MSG_EXT_DOCTOR_H
#define MSG_EXT_DOCTOR_H

#include "ext/connection.h"

/* advice: NULL where all is well. Borrowed. A non-zero return stops. */
typedef int (*msg_doctor_fn)(void *arg, const char *item, const char *value, const char *advice);

/** Every fact in turn. A store that cannot be opened is a fact too.
 *  Errors: MSG_NOMEM, MSG_INTERRUPTED, MSG_FORKED; what fn returns. */
int msg_doctor_rows(msg_connection *c, msg_doctor_fn fn, void *arg, msg_err *err);

#endif
