/* insert.h - a row of a table becomes a message to send. */
#ifndef MSG_EXT_INSERT_H
#define MSG_EXT_INSERT_H

#include "ext/field.h"
#include "model/options.h"

/** Read what an INSERT says about the sending: `options`, a JSON object or SQL NULL, and over it
 *  the columns.
 *  Args:   fields: a value for each enum msg_field; SQL NULL is "not given". topic and value are
 *          not read.
 *          A timestamp makes the message a copy (msg_message.copied).
 *          verb: MSG_VERB_SEND, or MSG_VERB_ENQUEUE for a message with one owner.
 *  Owns:   *o, initialised before, is the caller's (msg_options_clear), also after a failure.
 *          *delete_at_ms: the end of life that the row gives, else MSG_NEVER.
 *  Errors: MSG_INVALID names the column or option. */
int msg_insert_read(msg_connection *c, enum msg_verb verb, sqlite3_value **fields,
                    sqlite3_value *options, msg_options *o, int64_t *delete_at_ms, msg_err *err);

/** Send o->m, with topic and value set by now, as msg_send does. node: by name, NULL: what the
 *  options say.
 *  Errors: MSG_EXISTS the id is taken. */
int msg_insert_send(msg_connection *c, const char *node, msg_options *o, int64_t delete_at_ms,
                    msg_err *err);

#endif
