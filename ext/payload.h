/* payload.h - between the payload of a msg_queue table, a JSON object, and its typed columns. On
 * the host's connection. */
#ifndef MSG_EXT_PAYLOAD_H
#define MSG_EXT_PAYLOAD_H

#include "ext/queue_def.h"
#include "ext/sqlite.h"
#include "model/value.h"

/** A statement with a column a key, for the payload as its one parameter; no row if that is no
 *  JSON. Owns: *out is the caller's. */
int msg_payload_reader(sqlite3 *db, const msg_queue_def *def, sqlite3_stmt **out, msg_err *err);
/** Column i of the reader's row, as a column of this type would have stored it. */
void msg_payload_result(sqlite3_context *ctx, sqlite3_stmt *row, int i, enum msg_queue_type type);

/* Zeroed: empty. */
typedef struct msg_payload_builder {
  sqlite3_stmt *kept;
  bool busy; /* an INSERT inside an INSERT makes one of its own */
} msg_payload_builder;

/** The payload of an INSERT from its columns: owned text, marked as JSON.
 *  Errors: MSG_INVALID what JSON cannot hold. */
int msg_payload_build(msg_payload_builder *b, sqlite3 *db, const msg_queue_def *def,
                      sqlite3_value **payload, msg_value *out, msg_err *err);
void msg_payload_builder_clear(msg_payload_builder *b);

#endif
