/* query.h - pieces of filters and pipelines that more than one verb uses. */
#ifndef MSG_MONGO_QUERY_H
#define MSG_MONGO_QUERY_H

#include "base/str.h"
#include "store/mongo/document.h"
#include "store/mongo/lists.h"
#include "store/mongo/mongo.h"

/** key: [ids] */
void msg_mongo_append_oids(bson_t *doc, const char *key, const msg_oid *ids, size_t n);
/** key: {op: [ids]}, op "$in" or "$nin". */
void msg_mongo_append_ids(bson_t *doc, const char *key, const char *op, const msg_oid *ids,
                          size_t n);
/** key: {op: [texts]}. `null`: and null, which means missing, too. */
void msg_mongo_append_texts(bson_t *doc, const char *key, const char *op, char *const *texts,
                            size_t n, bool null);
/** Not expired at `now_ms`: delete_at: {$not: {$lte: now}}. */
void msg_mongo_append_alive(bson_t *doc, int64_t now_ms);
/** The same by the server's own clock: $expr. */
void msg_mongo_append_alive_now(bson_t *doc);
/** Nobody took it: processed_by: {$in: [null, []]}. */
void msg_mongo_append_untaken(bson_t *doc);
/** Not one that waits for its removal after an ack: "sq.state": {$ne: "done"}. */
void msg_mongo_append_there(bson_t *doc);
/** {$add: ["$$NOW", plus]}, to be destroyed. */
void msg_mongo_now_expr(bson_t *out, int64_t plus_ms);
/** A text as a regular expression that means itself. */
void msg_mongo_append_quoted(msg_str *regex, const char *text);

/** Does a document match? `hint`: by that index; NULL: any. `max_ms`: the server's time for it; 0:
 *  no limit. *out is false on failure. */
int msg_mongo_any(msg_mongo_use *u, const char *collection, const char *what, const bson_t *filter,
                  const char *hint, int64_t max_ms, bool *out, msg_err *err);

#endif
