/* indexes.c - Morphium's indexes under their exact names, which Java nodes expect, and ours. */
#include <stdlib.h>
#include <string.h>

#include "store/mongo/document.h"
#include "store/mongo/mongo.h"
#include "store/mongo/place.h"
#include "store/mongo/query.h"

#define CREATE_MS 10000

enum { MORPHIUM = 1, UNIQUE = 2, TTL = 4, NARROW = 8, WIDE = 16 };
/* Of who needs it: made then, and what is not there costs nobody. */
enum { OF_GROUPS = 32, OF_DIRECTS = 64, OF_ANSWERS = 128, ON_DEMAND = 32 + 64 + 128 };

struct index {
  const char *name;
  const char *keys[7];
  unsigned flags;
  const char *partial; /* field of the partial filter, or NULL */
};

/* The names of 2 and 3 come from before `msgId` became `_id`. Before MongoDB 6.0 sq_claim cannot be
 * narrow, and a mark moves its message there. */
static const struct index of_messages[] = {
    {"sender_1_processed_by_1_in_answer_to_1",
     {"sender", "processed_by", "in_answer_to"},
     MORPHIUM,
     NULL},
    {"msgId_1_sender_1_processed_by_1_topic_1_priority_1_timestamp_1",
     {"_id", "sender", "processed_by", "topic", "priority", "timestamp"},
     MORPHIUM,
     NULL},
    {"msgId_1_processed_by_1_topic_1", {"_id", "processed_by", "topic"}, MORPHIUM, NULL},
    {"processed_by_1_priority_1_timestamp_1",
     {"processed_by", "priority", "timestamp"},
     MORPHIUM,
     NULL},
    {"processed_by_1", {"processed_by"}, MORPHIUM, NULL},
    {"ttl_1", {"ttl"}, MORPHIUM, NULL},
    {"topic_1", {"topic"}, MORPHIUM, NULL},
    {"timestamp_1", {"timestamp"}, MORPHIUM, NULL},
    {"delete_at_1", {"delete_at"}, TTL, NULL},
    {"sq_claim", {"topic", "priority", "timestamp", "_id"}, NARROW, "processed_by"},
    {"sq_claim",
     {"topic", "exclusive", "processed_by", "priority", "timestamp", "_id"},
     WIDE,
     NULL},
    {"sq_topic", {"topic", "exclusive"}, 0, NULL},
    {"sq_due", {"sq.until"}, 0, "sq.until"},
    {"sq_head", {"topic", "sq.group"}, UNIQUE, "sq.head"},
    {"sq_group", {"topic", "sq.group", "sq.sent", "_id"}, OF_GROUPS, "sq.group"},
    {"sq_direct", {"recipients", "priority", "timestamp", "_id"}, OF_DIRECTS, "recipients"},
    {"sq_answer", {"in_answer_to"}, OF_ANSWERS, "in_answer_to"},
};
static const struct index of_locks[] = {
    {"delete_at_1", {"delete_at"}, TTL, NULL},
    {"lock_id_1", {"lock_id"}, MORPHIUM, NULL},
};
static const struct index of_keys[] = {{"until_1", {"until"}, TTL, NULL}};

/* ---- what there is ---- */

/* Bit i of *there: index i is there already, under its name. */
static int look(msg_mongo_use *u, const char *collection, const char *what,
                const struct index *want, size_t n, uint64_t *there, msg_err *err) {
  mongoc_collection_t *c = msg_mongo_collection(u, collection);
  mongoc_cursor_t *cursor = mongoc_collection_find_indexes_with_opts(c, NULL);
  const bson_t *doc;
  bson_error_t error;
  int rc = MSG_OK;
  *there = 0;
  while (mongoc_cursor_next(cursor, &doc)) {
    bson_iter_t it;
    if (!bson_iter_init_find(&it, doc, "name") || !BSON_ITER_HOLDS_UTF8(&it))
      continue;
    for (size_t i = 0; i < n; i++)
      if (strcmp(bson_iter_utf8(&it, NULL), want[i].name) == 0)
        *there |= (uint64_t)1 << i;
  }
  if (mongoc_cursor_error(cursor, &error) && error.code != 26) /* no such collection */
    rc = msg_mongo_fail(u->store, what, &error, NULL, err);
  mongoc_cursor_destroy(cursor);
  mongoc_collection_destroy(c);
  return rc;
}

int msg_mongo_has_index(msg_mongo_use *u, const char *collection, const char *what,
                        const char *name, bool *out, msg_err *err) {
  uint64_t there = 0;
  int rc = look(u, collection, what, &(struct index){.name = name}, 1, &there, err);
  *out = there != 0;
  return rc;
}

/* ---- what is missing ---- */

static void append_partial(bson_t *doc, const char *field) {
  bson_t filter, condition;
  BSON_APPEND_DOCUMENT_BEGIN(doc, "partialFilterExpression", &filter);
  if (strcmp(field, "sq.head") == 0) {
    BSON_APPEND_BOOL(&filter, field, true);
  } else if (strcmp(field, "processed_by") == 0) { /* as claims ask */
    BSON_APPEND_BOOL(&filter, "exclusive", true);
    msg_mongo_append_untaken(&filter);
  } else {
    BSON_APPEND_DOCUMENT_BEGIN(&filter, field, &condition);
    if (strcmp(field, "recipients") == 0)
      BSON_APPEND_UTF8(&condition, "$gt", ""); /* any name */
    else if (strcmp(field, "in_answer_to") == 0)
      msg_mongo_append_oid(&condition, "$gt", &(msg_oid){0}); /* any id */
    else
      BSON_APPEND_BOOL(&condition, "$exists", true);
    bson_append_document_end(&filter, &condition);
  }
  bson_append_document_end(doc, &filter);
}

static void append_index(bson_t *array, const char *key, const struct index *x) {
  bson_t doc, keys;
  BSON_APPEND_DOCUMENT_BEGIN(array, key, &doc);
  BSON_APPEND_DOCUMENT_BEGIN(&doc, "key", &keys);
  for (size_t i = 0; i < sizeof x->keys / sizeof x->keys[0] && x->keys[i]; i++)
    BSON_APPEND_INT32(&keys, x->keys[i], 1);
  bson_append_document_end(&doc, &keys);
  BSON_APPEND_UTF8(&doc, "name", x->name);
  if (x->flags & TTL)
    BSON_APPEND_INT32(&doc, "expireAfterSeconds", 0);
  if (x->flags & UNIQUE)
    BSON_APPEND_BOOL(&doc, "unique", true);
  if (x->partial)
    append_partial(&doc, x->partial);
  bson_append_document_end(array, &doc);
}

/* A node that is down must not hold it up: a majority of the voting ones builds, in bounded
 * time. *narrow: it can make such. */
static int create(msg_mongo_use *u, const char *collection, const struct index *want, size_t n,
                  uint64_t missing, bool *narrow, msg_err *err) {
  bson_t cmd = BSON_INITIALIZER, array, reply;
  bson_error_t error;
  char buffer[16];
  const char *key;
  uint32_t k = 0;
  BSON_APPEND_UTF8(&cmd, "createIndexes", collection);
  BSON_APPEND_ARRAY_BEGIN(&cmd, "indexes", &array);
  for (size_t i = 0; i < n; i++) {
    if (!(missing >> i & 1))
      continue;
    bson_uint32_to_string(k++, &key, buffer, sizeof buffer);
    append_index(&array, key, &want[i]);
  }
  bson_append_array_end(&cmd, &array);
  if (u->store->replicated && !u->store->sharded && strncmp(u->store->version, "4.2", 3) != 0)
    BSON_APPEND_UTF8(&cmd, "commitQuorum", "majority");
  BSON_APPEND_INT32(&cmd, "maxTimeMS", CREATE_MS);
  bool ok =
      mongoc_client_write_command_with_opts(u->client, u->store->db, &cmd, NULL, &reply, &error);
  *narrow = ok || error.code != 67;
  /* 85, 86: a like index under another name or with other options. Theirs stays, as Morphium
   * leaves it. */
  int rc = ok || error.code == 85 || error.code == 86
               ? MSG_OK
               : msg_mongo_fail(u->store, "create indexes", &error, &reply, err);
  bson_destroy(&reply);
  bson_destroy(&cmd);
  return rc;
}

static bool is_ours(const struct index *x) {
  return strncmp(x->name, "sq_", 3) == 0;
}

static bool is_building(msg_mongo_session *s) {
  msg_mutex_lock(s->store->mtx);
  bool is = s->place->building;
  msg_mutex_unlock(s->store->mtx);
  return is;
}

/* Java nodes look by Morphium's; into a lane looks its owner alone, for directs and answers. */
static bool is_wanted(msg_mongo_session *s, const struct index *x, bool narrow) {
  bool lane = s->place && s->place->kind == MSG_MONGO_LANES;
  unsigned needs = lane ? OF_DIRECTS | OF_ANSWERS : 0;
  if (s->place) {
    msg_mutex_lock(s->store->mtx);
    needs |= s->place->needs;
    msg_mutex_unlock(s->store->mtx);
  }
  return !(x->flags & MORPHIUM && (lane || s->lean)) && !(x->flags & (narrow ? WIDE : NARROW)) &&
         (!(x->flags & ON_DEMAND) || x->flags & needs);
}

/* The server lists what is still being built, too: to create such a one once more is to wait for
 * it. */
static int ensure_as(msg_mongo_session *s, msg_mongo_use *u, const char *collection,
                     const struct index *want, size_t n, uint64_t there, bool *narrow,
                     msg_err *err) {
  uint64_t missing = 0;
  bool building = is_building(s);
  for (size_t i = 0; i < n; i++)
    if (is_wanted(s, &want[i], *narrow) && (!(there >> i & 1) || (building && is_ours(&want[i]))))
      missing |= (uint64_t)1 << i;
  return missing ? create(u, collection, want, n, missing, narrow, err) : MSG_OK;
}

static int ensure(msg_mongo_session *s, msg_mongo_use *u, const char *collection,
                  const struct index *want, size_t n, msg_err *err) {
  uint64_t there = 0;
  bool narrow = true;
  int rc = look(u, collection, "look at indexes", want, n, &there, err);
  if (rc == MSG_OK)
    rc = ensure_as(s, u, collection, want, n, there, &narrow, err);
  if (rc != MSG_OK && !narrow)
    rc = ensure_as(s, u, collection, want, n, there, &narrow, err);
  return rc;
}

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

bool msg_mongo_is_indexed(msg_mongo_session *s) {
  msg_mutex_lock(s->store->mtx);
  bool is = s->place->indexed;
  msg_mutex_unlock(s->store->mtx);
  return is;
}

bool msg_mongo_lost_indexes(msg_mongo_session *s, const msg_err *err) {
  bool lost = err->rc == MSG_BACKEND && err->native == 2 && strstr(err->text, "hint");
  if (!lost)
    return false;
  msg_mongo_forget_indexes(s);
  msg_mutex_lock(s->store->mtx);
  s->place->building = true;
  msg_mutex_unlock(s->store->mtx);
  return lost;
}

static void need(msg_mongo_session *s, unsigned what) {
  msg_mutex_lock(s->store->mtx);
  if (~s->place->needs & what) {
    s->place->needs |= what;
    s->place->indexed = false;
  }
  msg_mutex_unlock(s->store->mtx);
}

void msg_mongo_need_groups(msg_mongo_session *s) {
  need(s, OF_GROUPS);
}

void msg_mongo_need_directs(msg_mongo_session *s) {
  need(s, OF_DIRECTS);
}

void msg_mongo_need_answers(msg_mongo_session *s) {
  need(s, OF_ANSWERS);
}

void msg_mongo_forget_indexes(msg_mongo_session *s) {
  msg_mutex_lock(s->store->mtx);
  s->place->indexed = false;
  msg_mutex_unlock(s->store->mtx);
}

int msg_mongo_indexes(msg_mongo_session *s, msg_mongo_use *u, msg_err *err) {
  if (msg_mongo_is_indexed(s))
    return MSG_OK;
  int rc = ensure(s, u, s->names.messages, of_messages, COUNT(of_messages), err);
  if (rc == MSG_OK)
    rc = ensure(s, u, s->names.locks, of_locks, COUNT(of_locks), err);
  if (rc == MSG_OK)
    rc = ensure(s, u, s->names.keys, of_keys, COUNT(of_keys), err);
  if (rc == MSG_OK) {
    msg_mutex_lock(s->store->mtx);
    s->place->indexed = true;
    s->place->building = false;
    msg_mutex_unlock(s->store->mtx);
  }
  return rc;
}
