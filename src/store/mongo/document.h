/* document.h - a message as Morphium's document and back. Pure: no I/O.
 *
 * Every document has Morphium's 21 fields with its types. What is ours is one sub-document, absent
 * from plain messages:
 *   sq.state     "delayed", "claimed", "blocked" (behind its group's head), "done", "dead"
 *   sq.token, owner, since, until   the claim; until is also the end of a delay
 *   sq.attempts, reason, key, group
 *   sq.head      true: the one of its group that may be claimed
 *   sq.sent      when it was sent, where that is not `timestamp`; always in a group
 *   sq.to        recipients of a delayed broadcast or direct (null: everybody)
 *   sq.life      delete_at before a claim moved it
 *   sq.type      of a value that is no text: "integer", "real", "blob", "json", "bytes"
 *   sq.lease     true: claimed by a lease, whose document may say that it is done (lease.h)
 *   sq.mark      the call that changed it last
 *   sq.at        when it was done
 * `timestamp` is the time from which it may be delivered: Java nodes count ttl from there.
 *
 * What Java nodes must not see is pre-marked: processed_by holds one name that no node can have.
 * A delayed message that is not exclusive has such a recipient, too. */
#ifndef MSG_MONGO_DOCUMENT_H
#define MSG_MONGO_DOCUMENT_H

#include "model/message.h"
#include "store/mongo/driver.h"

#define MSG_MONGO_CLASS   "de.caluga.morphium.messaging.Msg"
#define MSG_MONGO_DELAYED "~delayed"
#define MSG_MONGO_BLOCKED "~fifo"
#define MSG_MONGO_DEAD    "~dead"
/* Largest document: the server takes 16 MiB; marks and claims come on top. */
#define MSG_MONGO_DOCUMENT_MAX ((uint32_t)(16 * 1024 * 1024 - 64 * 1024))

/* Where a message stands when it is put. */
typedef struct msg_mongo_standing {
  bool head, blocked; /* of a group; at most one */
  int64_t now_ms;     /* later delivery: delayed */
  int64_t shift_ms;   /* server's clock minus the sender's: added to every time */
} msg_mongo_standing;

/** Append the fields of m to doc. Errors: MSG_TOOBIG; MSG_INVALID map or additional is no JSON
 *  that can be kept; MSG_NOMEM. */
int msg_mongo_document(const msg_message *m, const msg_mongo_standing *standing, bson_t *doc,
                       msg_err *err);

/** Read a document, whoever wrote it, into *out, which it initialises; state is as shown at
 *  `now_ms`. `bare`: processed_by stays NULL.
 *  Errors: MSG_NOMEM; MSG_CORRUPT no ObjectId as _id. */
int msg_mongo_message(const bson_t *doc, int64_t now_ms, bool bare, msg_message *out, msg_err *err);

/** Store order of an id: seconds and counter. Ids of one process follow each other. */
int64_t msg_mongo_seq(const msg_oid *id);

/* ---- small things for the other files ---- */

static inline void msg_mongo_oid_to(const msg_oid *id, bson_oid_t *out) {
  bson_oid_init_from_data(out, id->b);
}
static inline void msg_mongo_append_oid(bson_t *doc, const char *key, const msg_oid *id) {
  bson_oid_t oid;
  msg_mongo_oid_to(id, &oid);
  bson_append_oid(doc, key, -1, &oid);
}
/** The ObjectId of a field; false: absent or another type. */
bool msg_mongo_get_oid(const bson_t *doc, const char *key, msg_oid *out);
/** A number of any type, or a date, at a dotted path; dflt where there is none. */
int64_t msg_mongo_get_int(const bson_t *doc, const char *path, int64_t dflt);
/** Text at a dotted path, borrowed; NULL where there is none. */
const char *msg_mongo_get_text(const bson_t *doc, const char *path);

#endif
