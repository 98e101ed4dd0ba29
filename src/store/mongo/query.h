/* query.h - pieces of filters and pipelines that more than one verb uses. */
#ifndef MSG_MONGO_QUERY_H
#define MSG_MONGO_QUERY_H

#include "base/str.h"
#include "model/topic.h"
#include "store/mongo/document.h"
#include "store/mongo/mongo.h"

/* A growable list of ids. */
typedef struct msg_mongo_ids {
  msg_oid *at;
  size_t n, cap;
} msg_mongo_ids;
int msg_mongo_ids_add(msg_mongo_ids *l, const msg_oid *id); /* MSG_OK or MSG_NOMEM */
bool msg_mongo_ids_have(const msg_mongo_ids *l, const msg_oid *id);
void msg_mongo_ids_clear(msg_mongo_ids *l);

/* A growable list of texts, copied. */
typedef struct msg_mongo_texts {
  char **at;
  size_t n, cap;
} msg_mongo_texts;
int msg_mongo_texts_add(msg_mongo_texts *l, const char *text); /* MSG_OK or MSG_NOMEM */
/** The same, unless it is there. */
int msg_mongo_texts_note(msg_mongo_texts *l, const char *text);
bool msg_mongo_texts_have(const msg_mongo_texts *l, const char *text);
void msg_mongo_texts_clear(msg_mongo_texts *l);

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

/** The topics of the messages in the session's collection, whatever it is. */
int msg_mongo_topics_in(const msg_mongo_session *at, msg_mongo_use *u, msg_mongo_texts *out,
                        msg_err *err);
/** The topics that a pattern means, less the paused ones: the name itself, else out of those that
 *  the queue has. A NULL pattern: all. */
int msg_mongo_topics_of(msg_mongo_session *s, msg_mongo_use *u, const msg_pattern *pattern,
                        const msg_pattern *const *paused, size_t paused_count, msg_mongo_texts *out,
                        msg_err *err);
/** Topics a query takes at most. */
#define MSG_MONGO_TOPICS_MAX 60
/** topic: {$in: [...]}, and `name` where there is no topic. */
void msg_mongo_append_topics(bson_t *doc, char *const *topics, size_t n);
/** Has a document with `name` alone been met in this queue? */
bool msg_mongo_is_unnamed(msg_mongo_session *s);
/** One look whether there is one. */
int msg_mongo_look_unnamed(msg_mongo_session *s, msg_mongo_use *u, msg_err *err);

#endif
