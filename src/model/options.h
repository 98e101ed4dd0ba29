/* options.h - the options object of a send, key by key. JSON is taken apart by the caller. */
#ifndef MSG_MODEL_OPTIONS_H
#define MSG_MODEL_OPTIONS_H

#include "base/err.h"
#include "model/message.h"
#include "model/value.h"

/* Bounds that keep every sum of times far from overflow, in Java nodes too. */
#define MSG_DURATION_MAX_MS INT64_C(3153600000000)   /* 100 years */
#define MSG_TIME_MAX_MS     INT64_C(253402300799999) /* end of the year 9999 */

/* What a send may be told beside topic and value. Unset: has_* false / NULL. */
typedef struct msg_options {
  msg_message m; /* the fields set so far, on top of msg_message_init */
  bool has_exclusive, has_priority, has_ttl, has_timing_out, has_delay, has_deliver_at;
  int64_t delay_ms;
  int32_t answers; /* msg_request: answers wanted; 0 unset */
  char *node;      /* option `node`: act as this node of the connection */
  uint32_t given;  /* private: one bit a key seen */
} msg_options;

/* The verb an options object belongs to: a key of another verb is an error that says so. */
enum msg_verb { MSG_VERB_SEND, MSG_VERB_ENQUEUE, MSG_VERB_REQUEST, MSG_VERB_REPLY };

void msg_options_init(msg_options *o);
void msg_options_clear(msg_options *o);
/** Set one key. Booleans come as MSG_INT 0/1 with `is_bool`; 0 and 1 themselves do too.
 *  Every verb:    priority (int32), ttl_ms (1 to 100 years), timing_out, msg (text), map (JSON
 *                 object text, value.json true), additional (JSON array text, value.json true),
 *                 delete_after_processing, delete_after_processing_ms (0..2147483647),
 *                 id (24 hex digits, to choose the message's id), node (text).
 *  Not reply:     exclusive (not false in enqueue), recipient (text), recipients (array of text, by
 *                 msg_options_add), group (text).
 *  Send, enqueue: delay_ms (0 to 100 years), deliver_at (ms since the epoch, to the year 9999; no
 *                 ISO 8601 text), key (text), in_answer_to (24 hex digits).
 *  Request:       answers (1..2147483647).
 *  Errors: MSG_INVALID: unknown key (names the nearest known one), key of another verb, given
 *          twice, wrong type, out of range, contradiction (delay_ms and deliver_at; recipient and
 *          recipients; ttl_ms with timing_out false). MSG_NOMEM. Nothing set on error. */
int msg_options_set(msg_options *o, enum msg_verb verb, const char *key, const msg_value *v,
                    bool is_bool, msg_err *err);
/** One element of an array-valued key (only `recipients`). Duplicates collapse. Call it once with v
 *  NULL where the array starts, so that msg_options_finish can tell an empty array from none. */
int msg_options_add(msg_options *o, enum msg_verb verb, const char *key, const msg_value *v,
                    msg_err *err);
/** True when the key takes an array, element by element. */
bool msg_options_is_array(const char *key);
/** After the last key: checks what only the whole shows (empty recipients; a group needs exclusive;
 *  delete_after_processing_ms needs delete_after_processing), and makes an enqueue exclusive. */
int msg_options_finish(msg_options *o, enum msg_verb verb, msg_err *err);

/** The known name nearest to `name`, the first of equals; NULL: none near enough. Counts edits of
 *  ASCII-folded text, a swap of neighbours as one: at most 3, and less than half the length. Where
 *  none is, the shortest that begins with the three letters or more of `name`. */
const char *msg_nearest(const char *name, const char *const *known, size_t n);

#endif
