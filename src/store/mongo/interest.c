#include "store/mongo/interest.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/process.h"
#include "base/str.h"
#include "store/mongo/query.h"
#include "store/mongo/status.h"
#include "store/mongo/tend.h"
#include "store/mongo/topics.h"

/* --- the filter ---------------------------------------------------------------------------- */

/* The topics of one kind of messages. */
struct topics {
  char *at[MSG_MONGO_TOPICS_MAX];
  size_t n;
  bool all; /* a pattern, or too many */
};

static void add_topic(struct topics *t, const msg_pattern *p) {
  const char *text = msg_pattern_text(p);
  bool exact = msg_pattern_kind_of(p) == MSG_PATTERN_EXACT;
  for (size_t i = 0; exact && i < t->n; i++)
    if (strcmp(t->at[i], text) == 0)
      return;
  if (exact && t->n < MSG_MONGO_TOPICS_MAX)
    t->at[t->n++] = (char *)text;
  else
    t->all = true;
}

static void add_claimed_locked(const msg_mongo_tend *t, const msg_mongo_queue *queue,
                               struct topics *topics) {
  for (size_t i = 0; i < t->claimed_count; i++)
    if (t->claimed[i].queue == queue && t->claimed[i].waited)
      add_topic(topics, t->claimed[i].pattern);
}

static void begin_one(bson_t *array, int *n, bson_t *one) {
  char key[16];
  snprintf(key, sizeof key, "%d", (*n)++);
  bson_append_document_begin(array, key, -1, one);
}

/* Old nodes have `name` alone. */
static void append_of_topics(bson_t *any, int *n, const struct topics *t, bool exclusive) {
  bson_t one;
  if (!t->all && t->n == 0)
    return;
  for (int old = 0; old < (t->all ? 1 : 2); old++) {
    begin_one(any, n, &one);
    if (exclusive)
      BSON_APPEND_BOOL(&one, "fullDocument.exclusive", true);
    else
      BSON_APPEND_NULL(&one, "fullDocument.recipients");
    if (old)
      BSON_APPEND_NULL(&one, "fullDocument.topic");
    if (!t->all)
      msg_mongo_append_texts(&one, old ? "fullDocument.name" : "fullDocument.topic", "$in", t->at,
                             t->n, false);
    bson_append_document_end(any, &one);
  }
}

/* The automatic names of this process, as a regular expression. */
static void append_automatic(bson_t *in, const char *key) {
  msg_str s = MSG_STR_INIT;
  char prefix[512];
  snprintf(prefix, sizeof prefix, "%s-%s-%d-", msg_process_host(), msg_process_program(),
           msg_process_pid());
  msg_str_append(&s, "^");
  msg_mongo_append_quoted(&s, prefix);
  char *regex = msg_str_take(&s);
  bson_append_regex(in, key, -1, regex ? regex : ".", "");
  msg_free(regex);
}

static void append_name(bson_t *in, int *n, const char *name) {
  char key[16];
  snprintf(key, sizeof key, "%d", (*n)++);
  BSON_APPEND_UTF8(in, key, name);
}

/* What is addressed to a node of this process. */
static void append_directs(const msg_mongo_tend *t, const msg_mongo_queue *queue, bson_t *any,
                           int *n) {
  bson_t one, to, in;
  int names = 1;
  begin_one(any, n, &one);
  BSON_APPEND_DOCUMENT_BEGIN(&one, "fullDocument.recipients", &to);
  BSON_APPEND_ARRAY_BEGIN(&to, "$in", &in);
  append_automatic(&in, "0");
  for (size_t i = 0; i < t->own_count; i++)
    if (t->own[i].queue == queue && !t->own[i].row.automatic)
      append_name(&in, &names, t->own[i].row.node);
  for (size_t i = 0; i < t->heard_count; i++)
    if (t->heard[i].queue == queue)
      append_name(&in, &names, t->heard[i].node);
  bson_append_array_end(&to, &in);
  bson_append_document_end(&one, &to);
  bson_append_document_end(any, &one);
}

/* Delays of whoever are everybody's to watch, and so are requests for a status. */
static void append_common(bson_t *any, int *n) {
  bson_t one;
  begin_one(any, n, &one);
  BCON_APPEND(&one, "fullDocument.sq.until", "{", "$exists", BCON_BOOL(true), "}");
  bson_append_document_end(any, &one);
  begin_one(any, n, &one);
  BSON_APPEND_UTF8(&one, "fullDocument.topic", MSG_MONGO_STATUS_TOPIC);
  BSON_APPEND_NULL(&one, "fullDocument.recipients");
  bson_append_document_end(any, &one);
}

static void append_inserts_locked(const msg_mongo_tend *t, const msg_mongo_queue *queue,
                                  bson_t *inserts) {
  bson_t any;
  int n = 0;
  struct topics heard = {.n = 0}, claimed = {.n = 0};
  BSON_APPEND_UTF8(inserts, "operationType", "insert");
  if (t->own_count + t->heard_count == 0)
    return; /* who did not even announce itself may want anything */
  for (size_t i = 0; i < t->heard_count; i++)
    if (t->heard[i].queue == queue)
      add_topic(&heard, t->heard[i].compiled);
  add_claimed_locked(t, queue, &claimed);
  BSON_APPEND_ARRAY_BEGIN(inserts, "$or", &any);
  append_directs(t, queue, &any, &n);
  append_common(&any, &n);
  append_of_topics(&any, &n, &heard, false);
  append_of_topics(&any, &n, &claimed, true);
  bson_append_array_end(inserts, &any);
}

bson_t *msg_mongo_interest_match(const msg_mongo_session *s, uint64_t *version) {
  msg_mongo_tend *t = s->store->tend;
  bson_t inserts = BSON_INITIALIZER;
  *version = atomic_load(&t->interest);
  msg_mutex_lock(t->mtx);
  append_inserts_locked(t, s->queue, &inserts);
  msg_mutex_unlock(t->mtx);
  bson_t *match =
      BCON_NEW("$or", "[", "{", "operationType", "{", "$nin", "[", "insert", "update", "delete",
               "]", "}", "}", BCON_DOCUMENT(&inserts), "{", "operationType", "update",
               "updateDescription.updatedFields.processed_by", "{", "$in", "[", "[", "]", "[",
               BCON_UTF8(MSG_MONGO_DELAYED), "]", "]", "}", "}", "]");
  bson_destroy(&inserts);
  return match;
}

/* --- when it widens ------------------------------------------------------------------------ */

uint64_t msg_mongo_interest_version(const msg_mongo_store *store) {
  return atomic_load(&store->tend->interest);
}

void msg_mongo_interest_follow(msg_mongo_stream *stream) {
  msg_mongo_tend *t = stream->store->tend;
  msg_mutex_lock(t->mtx);
  stream->next = t->streams;
  t->streams = stream;
  msg_mutex_unlock(t->mtx);
}

void msg_mongo_interest_leave(msg_mongo_stream *stream) {
  msg_mongo_tend *t = stream->store->tend;
  msg_mutex_lock(t->mtx);
  msg_mongo_stream **link = &t->streams;
  while (*link && *link != stream)
    link = &(*link)->next;
  if (*link)
    *link = stream->next;
  msg_mutex_unlock(t->mtx);
}

/* What a stream's cursor is called, to end it. */
struct open_cursor {
  int64_t id;
  uint32_t server_id;
  char collection[MSG_MONGO_NAME_MAX];
};

/* All, or that of one stream. */
static size_t copy_cursors(msg_mongo_tend *t, const msg_mongo_stream *one, struct open_cursor *out,
                           size_t max) {
  size_t n = 0;
  msg_mutex_lock(t->mtx);
  for (msg_mongo_stream *s = t->streams; s && n < max; s = s->next) {
    if (one && s != one)
      continue;
    out[n] = (struct open_cursor){.id = s->cursor_id, .server_id = s->server_id};
    memcpy(out[n++].collection, s->collection, sizeof s->collection);
  }
  msg_mutex_unlock(t->mtx);
  return n;
}

/* Best effort: the stream's thread looks at the version between two rounds. */
static void end_cursor(msg_mongo_use *u, const struct open_cursor *c) {
  bson_t *opts = BCON_NEW("serverId", BCON_INT32((int32_t)c->server_id));
  bson_t *command =
      BCON_NEW("killCursors", BCON_UTF8(c->collection), "cursors", "[", BCON_INT64(c->id), "]");
  msg_mongo_bound(u);
  mongoc_client_command_with_opts(u->client, u->store->db, command, NULL, opts, NULL, NULL);
  bson_destroy(command);
  bson_destroy(opts);
}

#define STREAMS_MAX 16
#define ROUND_MS    500

static void end_cursors(msg_mongo_store *store, const msg_mongo_stream *one) {
  struct open_cursor open[STREAMS_MAX];
  msg_mongo_use u;
  size_t n = copy_cursors(store->tend, one, open, STREAMS_MAX);
  if (n == 0 || msg_mongo_take(store, "watch", &u, NULL) != MSG_OK)
    return;
  u.bounded = true; /* it only saves the rest of a round */
  u.until_ms = msg_clock_mono_ms() + ROUND_MS;
  for (size_t i = 0; i < n; i++)
    end_cursor(&u, &open[i]);
  msg_mongo_give(&u);
}

void msg_mongo_interest_widen(msg_mongo_store *store) {
  atomic_fetch_add(&store->tend->interest, 1);
  end_cursors(store, NULL);
}

/* A server that has been silent would only make it longer. */
void msg_mongo_interest_end(msg_mongo_store *store, const msg_mongo_stream *stream) {
  if (msg_clock_mono_ms() - atomic_load(&stream->replied_ms) < 2 * ROUND_MS)
    end_cursors(store, stream);
}

/* --- claims -------------------------------------------------------------------------------- */

static struct msg_mongo_claimed *claimed_locked(const msg_mongo_tend *t,
                                                const msg_mongo_queue *queue, const char *pattern) {
  for (size_t i = 0; i < t->claimed_count; i++)
    if (t->claimed[i].queue == queue &&
        strcmp(msg_pattern_text(t->claimed[i].pattern), pattern) == 0)
      return &t->claimed[i];
  return NULL;
}

/* Owns: *pattern, which becomes NULL where it is kept. */
static struct msg_mongo_claimed *add_locked(msg_mongo_tend *t, msg_mongo_queue *queue,
                                            msg_pattern **pattern) {
  if (msg_grow(&t->claimed, &t->claimed_cap, t->claimed_count + 1, sizeof *t->claimed) != MSG_OK)
    return NULL;
  t->claimed[t->claimed_count] = (struct msg_mongo_claimed){queue, *pattern, false};
  *pattern = NULL;
  return &t->claimed[t->claimed_count++];
}

/* Without memory they are not heard of: the claim looks now and then all the same. */
void msg_mongo_interest_claim(msg_mongo_session *s, const msg_pattern *pattern, bool waits) {
  msg_mongo_tend *t = s->store->tend;
  const char *text = msg_pattern_text(pattern);
  msg_pattern *copy = NULL;
  msg_mutex_lock(t->mtx);
  const struct msg_mongo_claimed *at = claimed_locked(t, s->queue, text);
  bool known = at && (at->waited || !waits);
  msg_mutex_unlock(t->mtx);
  if (known || msg_pattern_new(text, &copy, NULL) != MSG_OK)
    return;
  msg_mutex_lock(t->mtx);
  struct msg_mongo_claimed *c = claimed_locked(t, s->queue, text);
  c = c ? c : add_locked(t, s->queue, &copy);
  bool wider = c && waits && !c->waited;
  if (wider)
    c->waited = true;
  msg_mutex_unlock(t->mtx);
  msg_pattern_free(copy);
  if (wider)
    msg_mongo_interest_widen(s->store);
}

bool msg_mongo_interest_claimed(const msg_mongo_session *s, bson_t *filter) {
  msg_mongo_tend *t = s->store->tend;
  struct topics claimed = {.n = 0};
  msg_mutex_lock(t->mtx);
  add_claimed_locked(t, s->queue, &claimed);
  if (!claimed.all && claimed.n > 0)
    msg_mongo_append_texts(filter, "topic", "$in", claimed.at, claimed.n, false);
  msg_mutex_unlock(t->mtx);
  return claimed.all || claimed.n > 0;
}

bool msg_mongo_interest_claims(const msg_mongo_session *s) {
  const msg_mongo_tend *t = s->store->tend;
  bool claims = false;
  msg_mutex_lock(t->mtx);
  for (size_t i = 0; i < t->claimed_count && !claims; i++)
    claims = t->claimed[i].queue == s->queue && t->claimed[i].waited;
  msg_mutex_unlock(t->mtx);
  return claims;
}
