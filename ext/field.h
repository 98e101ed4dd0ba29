/* field.h - the fields of a message as columns: name, declared type, value. One list for
 * msg_messages, the receiving tables and msg_queue. */
#ifndef MSG_EXT_FIELD_H
#define MSG_EXT_FIELD_H

#include "base/str.h"
#include "ext/connection.h"
#include "model/message.h"

/* In the column order of msg_messages. */
enum msg_field {
  MSG_FIELD_ID,
  MSG_FIELD_TOPIC,
  MSG_FIELD_VALUE,
  MSG_FIELD_MSG,
  MSG_FIELD_MAP,
  MSG_FIELD_ADDITIONAL,
  MSG_FIELD_SENDER,
  MSG_FIELD_SENDER_HOST,
  MSG_FIELD_RECIPIENTS,
  MSG_FIELD_IN_ANSWER_TO,
  MSG_FIELD_PROCESSED_BY,
  MSG_FIELD_EXCLUSIVE,
  MSG_FIELD_PRIORITY,
  MSG_FIELD_TIMESTAMP,
  MSG_FIELD_TTL,
  MSG_FIELD_TIMING_OUT,
  MSG_FIELD_DELETE_AT,
  MSG_FIELD_DELETE_AFTER_PROCESSING,
  MSG_FIELD_DELETE_AFTER_PROCESSING_TIME,
  MSG_FIELD_DELIVER_AT,
  MSG_FIELD_KEY,
  MSG_FIELD_GROUP,
  MSG_FIELD_STATE,
  MSG_FIELD_ATTEMPTS,
  MSG_FIELD_REASON,
  MSG_FIELD_OWNER,
  MSG_FIELD_TOKEN,
  MSG_FIELD_SINCE,
  MSG_FIELD_UNTIL,
  MSG_FIELD_SEQ,
  MSG_FIELD_COUNT
};

/** Unquoted column name. Static. */
const char *msg_field_name(enum msg_field f);

/** True for what only the store decides: an INSERT may not give it. */
bool msg_field_read_only(enum msg_field f);

/** Declared type, "" for any. Static. */
const char *msg_field_type(enum msg_field f);

/** Append `"name" TYPE` for CREATE TABLE. */
void msg_field_declare(msg_str *sql, enum msg_field f);

/** The value of one field, NULL where the message has none. JSON fields carry the JSON mark.
 *  Owns:   *out is the caller's (msg_value_clear); it may borrow from m.
 *  Errors: MSG_NOMEM, MSG_INTERRUPTED (*out NULL). */
int msg_field_value(msg_connection *c, const msg_message *m, enum msg_field f, msg_value *out,
                    msg_err *err);

/** The same as the result of an xColumn. */
void msg_result_field(sqlite3_context *ctx, msg_connection *c, const msg_message *m,
                      enum msg_field f);

#endif
