/* json.h - JSON text to BSON and back, so that what was sent as JSON comes back as the same JSON.
 * No extended JSON on the way in: "$oid" is a key like any other. */
#ifndef MSG_MONGO_JSON_H
#define MSG_MONGO_JSON_H

#include "base/err.h"
#include "base/str.h"
#include "store/mongo/driver.h"

/** Append the object or array in `text` (valid JSON of SQLite's making) to doc under `key`.
 *  Integers become int32 where they fit, else int64; others doubles.
 *  Errors: MSG_INVALID not an object or array, malformed, nested too deep, or a key with NUL. */
int msg_mongo_json_append(bson_t *doc, const char *key, const char *text, msg_err *err);

/** Append the value under the iterator as minified JSON. ObjectIds, dates, binary and the like come
 *  in MongoDB's extended JSON ({"$oid": "..."}); a date is {"$date": ms}. */
void msg_mongo_json_value(msg_str *out, const bson_iter_t *it);

#endif
