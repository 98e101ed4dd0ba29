/* interest.h - what the nodes of this process want to hear of: the filter of its change streams,
 * which are opened anew when it widens. Private to store/mongo. Thread: any. */
#ifndef MSG_MONGO_INTEREST_H
#define MSG_MONGO_INTEREST_H

#include "store/mongo/stream.h"

/** For a stream's $match: inserts of what is wanted, requeues, and what ends it; marks of single
 *  nodes are nobody's business. *version: of the interest it is made of. */
bson_t *msg_mongo_interest_match(const msg_mongo_session *s, uint64_t *version);
uint64_t msg_mongo_interest_version(const msg_mongo_store *store);

/** It has widened: streams that are open end, as if they had failed. */
void msg_mongo_interest_widen(msg_mongo_store *store);
/** End the stream's round now, if it is open: the next fails. Blocks: some milliseconds, as long as
 *  a round where the server is gone. */
void msg_mongo_interest_end(msg_mongo_store *store, const msg_mongo_stream *stream);
/** The pattern is claimed from now on; `waits`: by a claim that waits, which streams tell. */
void msg_mongo_interest_claim(msg_mongo_session *s, const msg_pattern *pattern, bool waits);
/** Does or did a claim wait in this process? */
bool msg_mongo_interest_claims(const msg_mongo_session *s);
/** Append the topics that claims wait or waited for. False: none. */
bool msg_mongo_interest_claimed(const msg_mongo_session *s, bson_t *filter);

/** A stream is open; before it closes. Owner: who opened it. */
void msg_mongo_interest_follow(msg_mongo_stream *stream);
void msg_mongo_interest_leave(msg_mongo_stream *stream);

#endif
