/* topic.h - topic names and listen patterns. */
#ifndef MSG_MODEL_TOPIC_H
#define MSG_MODEL_TOPIC_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

#define MSG_TOPIC_MAX   255 /* bytes */
#define MSG_NODE_MAX    128 /* bytes of a sender id */
#define MSG_KEY_MAX     512 /* bytes of a de-duplication key or group */
#define MSG_QUEUE_MAX   64
#define MSG_PATTERN_MAX 512 /* bytes, slashes included */

/* By which Java nodes ask each other what they listen to: each listens to it by itself. */
#define MSG_TOPIC_STATUS "morphium.status_info"

/** MSG_OK, or MSG_INVALID: empty, too long, not UTF-8, a control character, a GLOB character
 *  (* ? [), or between slashes, which a listen would read as a regular expression.
 *  Text names the topic and the cure. */
int msg_topic_check(const char *topic, msg_err *err);
/** Sender ids: 1..128 bytes of UTF-8 without control characters; no leading '_', no "__" (Morphium
 *  cannot fold those), not "self" in any case. */
int msg_node_name_check(const char *name, msg_err *err);
/** Queue names: 1..64 bytes, letters, digits, '_', '-', '.'; first a letter or digit. */
int msg_queue_check(const char *queue, msg_err *err);
/** Keys and groups (`what` names which): 1..512 bytes of UTF-8. */
int msg_key_check(const char *what, const char *key, msg_err *err);
/** Any other name (`what` names which): 1..max bytes of UTF-8 without control characters. */
int msg_name_check(const char *what, const char *name, unsigned long max, msg_err *err);
/** True when s[0..n) is well-formed UTF-8 without NUL. */
bool msg_utf8_valid(const char *s, unsigned long n);

/** SQLite's GLOB, given by ext/ at load: 0 means match. Before that no GLOB pattern matches. */
void msg_pattern_set_glob(int (*glob)(const char *pattern, const char *text));

enum msg_pattern_kind { MSG_PATTERN_EXACT, MSG_PATTERN_GLOB, MSG_PATTERN_REGEX };

typedef struct msg_pattern msg_pattern; /* immutable, shareable between threads */

/** Compile: exact name, GLOB if it has * ? or [, POSIX extended regular expression (libc, host's
 *  locale) if between slashes (matches anywhere unless anchored).
 *  Owns:   on OK *out is the caller's (msg_pattern_free).
 *  Errors: MSG_INVALID: bad name, a '[' never closed, regerror's text, a back-reference (not POSIX,
 *          and exponential in libc), repetitions that libc would blow up; MSG_NOMEM. */
int msg_pattern_new(const char *text, msg_pattern **out, msg_err *err);
void msg_pattern_free(msg_pattern *p);
const char *msg_pattern_text(const msg_pattern *p);
enum msg_pattern_kind msg_pattern_kind_of(const msg_pattern *p);
/** How many bytes of its text every topic that matches begins with; of a regular expression
 *  none. */
size_t msg_pattern_prefix(const msg_pattern *p);
/** Thread: any, any number at once. */
bool msg_pattern_match(const msg_pattern *p, const char *topic);

#endif
