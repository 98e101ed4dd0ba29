#include "store/mongo/interest.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"

#define BATCH 100 /* events in one reply, as Morphium asks for */
/* A reply of fewer than BATCH events that is no larger ends where the stream did. */
#define FULL_BYTES (4u << 20)

#define WHOLE "$cmd.aggregate"

static bool is_whole(const msg_mongo_stream *s) {
  return strcmp(s->collection, WHOLE) == 0;
}

/* For texts. */
static const char *label(const msg_mongo_stream *s) {
  return is_whole(s) ? s->store->db : s->collection;
}

/* MSG_UNAVAILABLE would say that the place is gone for good. */
static int fail(msg_mongo_stream *s, const bson_error_t *error, const bson_t *reply, msg_err *err) {
  char what[MSG_MONGO_NAME_MAX + 16];
  s->broken = true;
  snprintf(what, sizeof what, "watch '%s'", label(s));
  int rc = msg_mongo_fail(s->store, what, error, reply, err);
  if (rc != MSG_UNAVAILABLE)
    return rc;
  if (err)
    err->rc = MSG_IO;
  return MSG_IO;
}

/* Runs a command on the stream's server and in its session, without which a getMore is refused. */
static int run(msg_mongo_stream *s, const bson_t *command, bson_t *reply, msg_err *err) {
  bson_error_t error = {0};
  bson_t opts = BSON_INITIALIZER;
  BSON_APPEND_INT32(&opts, "serverId", (int32_t)s->server_id);
  bool ok = mongoc_client_session_append(s->session, &opts, &error);
  if (ok)
    ok = mongoc_client_command_with_opts(s->use.client, s->store->db, command, NULL, &opts, reply,
                                         &error);
  else
    bson_init(reply);
  bson_destroy(&opts);
  return ok ? MSG_OK : fail(s, &error, reply, err);
}

/* --- opening ------------------------------------------------------------------------------- */

static int choose_server(msg_mongo_stream *s, msg_err *err) {
  bson_error_t error = {0};
  mongoc_read_prefs_t *primary = mongoc_read_prefs_new(MONGOC_READ_PRIMARY);
  mongoc_server_description_t *server =
      mongoc_client_select_server(s->use.client, false, primary, &error);
  mongoc_read_prefs_destroy(primary);
  if (!server)
    return fail(s, &error, NULL, err);
  s->server_id = mongoc_server_description_id(server);
  mongoc_server_description_destroy(server);
  return MSG_OK;
}

static int start_session(msg_mongo_stream *s, msg_err *err) {
  bson_error_t error = {0};
  mongoc_session_opt_t *opts = mongoc_session_opts_new();
  mongoc_session_opts_set_causal_consistency(opts, false);
  s->session = mongoc_client_start_session(s->use.client, opts, &error);
  mongoc_session_opts_destroy(opts);
  return s->session ? MSG_OK : fail(s, &error, NULL, err);
}

/* The cursor's array of events, and its id. False: no reply of a cursor. */
static bool read_cursor(msg_mongo_stream *s, const bson_t *reply, const char *batch,
                        bson_iter_t *events) {
  bson_iter_t it, cursor;
  bool found = false;
  if (!bson_iter_init_find(&it, reply, "cursor") || !BSON_ITER_HOLDS_DOCUMENT(&it) ||
      !bson_iter_recurse(&it, &cursor))
    return false;
  while (bson_iter_next(&cursor)) {
    const char *key = bson_iter_key(&cursor);
    if (strcmp(key, "id") == 0)
      s->cursor_id = bson_iter_as_int64(&cursor);
    else if (strcmp(key, "postBatchResumeToken") == 0)
      atomic_store(&s->token_ms, msg_clock_mono_ms());
    else if (strcmp(key, batch) == 0 && BSON_ITER_HOLDS_ARRAY(&cursor))
      found = bson_iter_recurse(&cursor, events);
  }
  atomic_store(&s->replied_ms, msg_clock_mono_ms());
  return found;
}

static int refuse_reply(msg_mongo_stream *s, msg_err *err) {
  s->broken = true;
  return msg_err_set(err, MSG_BACKEND, "watch '%s': a reply without events (MongoDB at %s)",
                     label(s), s->store->hosts);
}

/* A stream from where a majority is now. By itself one begins behind the last write, also where no
 * majority has that yet: it would be told by no stream and found by no look. */
static int append_stage(msg_mongo_stream *s, const char *collection, bson_t *stage, msg_err *err) {
  bson_t reply, how;
  uint32_t seconds, number;
  bson_t *find = BCON_NEW("find", BCON_UTF8(collection), "projection", "{", "_id", BCON_INT32(1),
                          "}", "limit", BCON_INT32(1), "singleBatch", BCON_BOOL(true),
                          "readConcern", "{", "level", "majority", "}");
  int rc = run(s, find, &reply, err);
  mongoc_client_session_get_operation_time(s->session, &seconds, &number);
  BSON_APPEND_DOCUMENT_BEGIN(stage, "$changeStream", &how);
  BSON_APPEND_UTF8(&how, "fullDocument", "default");
  BSON_APPEND_TIMESTAMP(&how, "startAtOperationTime", seconds, number + 1);
  bson_append_document_end(stage, &how);
  bson_destroy(&reply);
  bson_destroy(find);
  return rc;
}

static bson_t *new_command(const msg_mongo_stream *s, const bson_t *stage, const bson_t *match,
                           const bson_t *project) {
  bson_t *command = bson_new();
  if (is_whole(s))
    BSON_APPEND_INT32(command, "aggregate", 1);
  else
    BSON_APPEND_UTF8(command, "aggregate", s->collection);
  BCON_APPEND(command, "pipeline", "[", BCON_DOCUMENT(stage), "{", "$match", BCON_DOCUMENT(match),
              "}", "{", "$project", BCON_DOCUMENT(project), "}", "]", "cursor", "{", "batchSize",
              BCON_INT32(0), "}", "readConcern", "{", "level", "majority", "}");
  return command;
}

/* What a majority had before stays unseen by it: the caller looks once it is open. */
static int aggregate(msg_mongo_stream *s, const char *collection, const bson_t *match,
                     const bson_t *project, msg_err *err) {
  bson_t reply, stage = BSON_INITIALIZER;
  bson_iter_t events;
  int rc = append_stage(s, collection, &stage, err);
  if (rc == MSG_OK) {
    bson_t *command = new_command(s, &stage, match, project);
    rc = run(s, command, &reply, err);
    if (rc == MSG_OK && (!read_cursor(s, &reply, "firstBatch", &events) || s->cursor_id == 0))
      rc = refuse_reply(s, err);
    bson_destroy(&reply);
    bson_destroy(command);
  }
  bson_destroy(&stage);
  return rc;
}

int msg_mongo_stream_open(msg_mongo_store *store, const char *collection, bool whole,
                          const bson_t *match, const bson_t *project, msg_mongo_stream *out,
                          msg_err *err) {
  msg_mongo_stream *s = out;
  memset(s, 0, sizeof *s);
  s->store = store;
  snprintf(s->collection, sizeof s->collection, "%s", whole ? WHOLE : collection);
  int rc = msg_mongo_take_cursor(store, "watch", &s->use, err);
  if (rc == MSG_OK)
    rc = choose_server(s, err);
  if (rc == MSG_OK)
    rc = start_session(s, err);
  if (rc == MSG_OK)
    rc = aggregate(s, collection, match, project, err);
  if (rc == MSG_OK)
    msg_mongo_interest_follow(s);
  else
    msg_mongo_stream_close(s);
  if (rc != MSG_UNAVAILABLE)
    return rc;
  if (err)
    err->rc = MSG_IO;
  return MSG_IO;
}

/* --- following ----------------------------------------------------------------------------- */

static bool is_full(const bson_t *reply, bson_iter_t events) {
  int n = 0;
  while (bson_iter_next(&events))
    n++;
  return n >= BATCH || reply->len > FULL_BYTES;
}

int msg_mongo_stream_next(msg_mongo_stream *s, int64_t wait_ms, bson_t *reply, bson_iter_t *events,
                          msg_err *err) {
  bson_t *command =
      BCON_NEW("getMore", BCON_INT64(s->cursor_id), "collection", BCON_UTF8(s->collection),
               "batchSize", BCON_INT32(BATCH), "maxTimeMS", BCON_INT64(wait_ms));
  int64_t asked_ms = msg_clock_mono_ms();
  int rc = run(s, command, reply, err);
  bson_destroy(command);
  s->told_ms = s->telling_ms;
  if (rc != MSG_OK)
    return rc;
  if (!read_cursor(s, reply, "nextBatch", events))
    return refuse_reply(s, err);
  if (!is_full(reply, *events))
    s->telling_ms = asked_ms;
  bson_iter_t any = *events;
  if (bson_iter_next(&any))
    return MSG_OK;
  if (s->cursor_id != 0)
    return MSG_TIMEOUT;
  s->broken = true;
  return msg_err_set(
      err, MSG_CORRUPT,
      "watch '%s': the stream has ended: was the collection dropped? (MongoDB at %s)", label(s),
      s->store->hosts);
}

void msg_mongo_stream_close(msg_mongo_stream *s) {
  if (s->session)
    msg_mongo_interest_leave(s);
  if (s->session && s->cursor_id != 0 && !s->broken) {
    bson_t reply;
    bson_t *command = BCON_NEW("killCursors", BCON_UTF8(s->collection), "cursors", "[",
                               BCON_INT64(s->cursor_id), "]");
    run(s, command, &reply, NULL);
    bson_destroy(&reply);
    bson_destroy(command);
  }
  if (s->session)
    mongoc_client_session_destroy(s->session);
  s->session = NULL;
  s->cursor_id = 0;
  msg_mongo_give(&s->use);
}
