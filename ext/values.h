/* values.h - between sqlite3_value and msg_value, JSON in and out.
 * JSON is taken apart and put together by SQLite's own functions, nested on the host. */
#ifndef MSG_EXT_VALUES_H
#define MSG_EXT_VALUES_H

#include "ext/connection.h"
#include "ext/sqlite.h"
#include "model/message.h"

/** Borrow: valid as long as v, and until v is converted. The JSON subtype is carried over.
 *  Errors: MSG_NOMEM. */
int msg_value_read(sqlite3_value *v, msg_value *out, msg_err *err);
/** Is v what `now` is already? Their JSON subtypes do not matter. Errors: MSG_NOMEM. */
int msg_value_holds(const msg_value *now, sqlite3_value *v, bool *out, msg_err *err);
/** Copies; sets the JSON subtype when json. */
void msg_result_value(sqlite3_context *ctx, const msg_value *v);
/** Copies; NULL gives NULL. */
void msg_result_text(sqlite3_context *ctx, const char *s);
/** The zero id gives NULL. */
void msg_result_oid(sqlite3_context *ctx, const msg_oid *id);

/* Arguments with clear errors; `what` is e.g. "msg_claim: count". Return MSG_OK, MSG_INVALID or
 * MSG_NOMEM. */
/** Text without NUL; SQL NULL and other types are refused. Borrowed from v. */
int msg_arg_text(sqlite3_value *v, const char *what, const char **out, msg_err *err);
/** An integer, or a real without fraction: JavaScript hosts bind no others. */
int msg_arg_int(sqlite3_value *v, const char *what, int64_t lo, int64_t hi, int64_t *out,
                msg_err *err);
/** 24 hex digits. */
int msg_arg_oid(sqlite3_value *v, const char *what, msg_oid *out, msg_err *err);

/* Receives one member of an object, borrowed. JSON true and false come as MSG_INT with is_bool,
 * objects and arrays as MSG_TEXT with json. No key or text holds a NUL; a member "value" that does
 * may be cut at its first. */
typedef int (*msg_json_fn)(void *arg, const char *key, const msg_value *v, bool is_bool,
                           msg_err *err);
/** MSG_INVALID if the JSON text holds a NUL, at which SQLite would cut it without a word. */
int msg_json_whole(const msg_value *text, const char *what, msg_err *err);
/** Every member of the JSON object in `text`. `what` begins texts, e.g. "options".
 *  Errors: MSG_INVALID malformed, not an object, a NUL; what fn returns. */
int msg_json_object(msg_connection *c, const msg_value *text, const char *what, msg_json_fn fn,
                    void *arg, msg_err *err);
/** Every element of the JSON array in `text`; key is NULL. */
int msg_json_array(msg_connection *c, const msg_value *text, const char *what, msg_json_fn fn,
                   void *arg, msg_err *err);

/** Options object (JSON text or SQL NULL) into *o, which is initialised, and finish it. */
int msg_options_read(msg_connection *c, sqlite3_value *json, enum msg_verb verb, msg_options *o,
                     msg_err *err);
/** Settings object (JSON text or SQL NULL) onto *s. */
int msg_settings_read(msg_connection *c, sqlite3_value *json, msg_settings *s, msg_err *err);
int msg_settings_read_text(msg_connection *c, const msg_value *json, msg_settings *s, msg_err *err);

/** The message as the JSON object of the scalar forms, with JSON subtype. Keys: id, topic, value
 *  (always there), msg, map, additional, sender, sender_host, recipients, in_answer_to, exclusive,
 *  priority, timestamp, deliver_at, delete_at, key, group (absent when null), and for claims token,
 *  attempts, until. A text value is a string, a JSON-subtyped one nests, a blob is
 *  {"$binary": base64}. */
int msg_result_message(sqlite3_context *ctx, msg_connection *c, const msg_message *m, bool claimed,
                       msg_err *err);
/** Is `key` one of those? */
bool msg_message_key(const char *key);

#endif
