#include "store/mongo/keys.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"

struct entering {
  msg_put **at; /* those with a key, by topic, key and place */
  bool *known;  /* a document is there, though its time is over */
  bool *left;   /* of a copy, whose key is there or over: not entered */
  size_t n;
  int64_t now_ms;
};

static int cmp_key(const msg_message *a, const char *topic, const char *key) {
  int c = strcmp(a->topic, topic);
  return c ? c : strcmp(a->key, key);
}

static int by_key(const void *pa, const void *pb) {
  const msg_put *a = *(msg_put *const *)pa, *b = *(msg_put *const *)pb;
  int c = cmp_key(a->message, b->message->topic, b->message->key);
  return c ? c : (a > b) - (a < b);
}

static void append_key(bson_t *doc, const char *name, const msg_message *m) {
  BCON_APPEND(doc, name, "{", "t", BCON_UTF8(m->topic), "k", BCON_UTF8(m->key), "}");
}

/* It repeats another: nothing is added. A copy is, without its key. */
static void repeats(struct entering *e, size_t i, const msg_oid *id) {
  if (e->at[i]->message->copied) {
    e->left[i] = true;
    return;
  }
  e->at[i]->existed = true;
  e->at[i]->id = *id;
}

/* Is it the first of its key in the batch? */
static bool is_first(const struct entering *e, size_t i) {
  return i == 0 ||
         cmp_key(e->at[i]->message, e->at[i - 1]->message->topic, e->at[i - 1]->message->key) != 0;
}

static int note_known(void *arg, const bson_t *doc, msg_err *err) {
  struct entering *e = arg;
  const char *topic = msg_mongo_get_text(doc, "_id.t"), *key = msg_mongo_get_text(doc, "_id.k");
  msg_oid id;
  (void)err;
  if (!topic || !key || !msg_mongo_get_oid(doc, "msg", &id))
    return MSG_OK;
  bool over = msg_mongo_get_int(doc, "until", 0) <= e->now_ms;
  for (size_t i = 0; i < e->n; i++) {
    if (cmp_key(e->at[i]->message, topic, key) != 0)
      continue;
    e->known[i] = over;
    if (!over && (e->at[i]->message->copied || msg_oid_cmp(&id, &e->at[i]->message->id) != 0))
      repeats(e, i, &id);
  }
  return MSG_OK;
}

static int find_known(msg_mongo_txn *t, struct entering *e, msg_err *err) {
  bson_t filter = BSON_INITIALIZER, in, array;
  char buffer[16];
  const char *k;
  BSON_APPEND_DOCUMENT_BEGIN(&filter, "_id", &in);
  BSON_APPEND_ARRAY_BEGIN(&in, "$in", &array);
  for (size_t i = 0; i < e->n; i++) {
    bson_uint32_to_string((uint32_t)i, &k, buffer, sizeof buffer);
    append_key(&array, k, e->at[i]->message);
  }
  bson_append_array_end(&in, &array);
  bson_append_document_end(&filter, &in);
  int rc = msg_mongo_txn_each(t, t->s->names.keys, "send", &filter, NULL, note_known, e, err);
  bson_destroy(&filter);
  return rc;
}

/* Of equal keys in the batch the first counts. */
static void find_repeated(struct entering *e) {
  for (size_t i = 1; i < e->n; i++)
    if (!is_first(e, i))
      repeats(e, i, &e->at[i - 1]->id);
}

/* One whose time is over is taken over, unless another was faster. */
static int take_over(msg_mongo_txn *t, const struct entering *e, const msg_put *item,
                     msg_err *err) {
  bson_t filter = BSON_INITIALIZER, set = BSON_INITIALIZER;
  int64_t matched = 0;
  append_key(&filter, "_id", item->message);
  BCON_APPEND(&filter, "until", "{", "$lte", BCON_DATE_TIME(e->now_ms), "}");
  msg_mongo_append_oid(&set, "msg", &item->message->id);
  BSON_APPEND_DATE_TIME(&set, "until", item->key_until_ms + t->s->store->clock_offset_ms);
  bson_t *change = BCON_NEW("$set", BCON_DOCUMENT(&set));
  int rc = msg_mongo_txn_update(t, t->s->names.keys, "send", &filter, change, &matched, err);
  if (rc == MSG_OK && matched == 0) {
    t->again = true;
    rc = msg_err_set(err, MSG_UNAVAILABLE, "send: key '%s' is being sent by others all the time",
                     msg_show(item->message->key).s);
  }
  bson_destroy(change);
  bson_destroy(&set);
  bson_destroy(&filter);
  return rc;
}

static int insert_new(msg_mongo_txn *t, const struct entering *e, msg_err *err) {
  mongoc_collection_t *c = msg_mongo_collection(t->u, t->s->names.keys);
  mongoc_bulk_operation_t *bulk = mongoc_collection_create_bulk_operation_with_opts(c, &t->opts);
  bson_error_t error;
  bson_t reply;
  size_t n = 0;
  int rc = MSG_OK;
  for (size_t i = 0; rc == MSG_OK && i < e->n; i++) {
    const msg_put *item = e->at[i];
    bson_t doc = BSON_INITIALIZER;
    if (item->existed || e->known[i] || e->left[i])
      continue;
    append_key(&doc, "_id", item->message);
    msg_mongo_append_oid(&doc, "msg", &item->message->id);
    BSON_APPEND_DATE_TIME(&doc, "until", item->key_until_ms + t->s->store->clock_offset_ms);
    if (!mongoc_bulk_operation_insert_with_opts(bulk, &doc, NULL, &error))
      rc = msg_mongo_txn_fail(t, "send", &error, NULL, err);
    bson_destroy(&doc);
    n++;
  }
  if (rc == MSG_OK && n) {
    if (!mongoc_bulk_operation_execute(bulk, &reply, &error)) {
      rc = msg_mongo_txn_fail(t, "send", &error, &reply, err);
      t->again = t->again || msg_mongo_is_duplicate(&error, &reply); /* another was faster */
    }
    bson_destroy(&reply);
  }
  mongoc_bulk_operation_destroy(bulk);
  mongoc_collection_destroy(c);
  return rc;
}

static int enter(msg_mongo_txn *t, struct entering *e, msg_err *err) {
  for (size_t i = 0; i < e->n; i++)
    e->left[i] = e->at[i]->message->copied &&
                 e->at[i]->key_until_ms + t->s->store->clock_offset_ms <= e->now_ms;
  int rc = find_known(t, e, err);
  if (rc == MSG_OK)
    find_repeated(e);
  for (size_t i = 0; rc == MSG_OK && i < e->n; i++)
    if (e->known[i] && !e->at[i]->existed && !e->left[i])
      rc = take_over(t, e, e->at[i], err);
  return rc == MSG_OK ? insert_new(t, e, err) : rc;
}

int msg_mongo_keys_enter(msg_mongo_txn *t, msg_put *items, size_t n, msg_err *err) {
  struct entering e = {.now_ms = msg_mongo_now_ms(t->s->store)};
  size_t keys = 0;
  for (size_t i = 0; i < n; i++)
    keys += items[i].message->key != NULL;
  if (keys == 0)
    return MSG_OK;
  e.at = msg_alloc(keys * sizeof *e.at);
  e.known = msg_zalloc(2 * keys * sizeof *e.known);
  int rc = e.at && e.known ? MSG_OK : msg_err_nomem(err);
  for (size_t i = 0; rc == MSG_OK && i < n; i++)
    if (items[i].message->key)
      e.at[e.n++] = &items[i];
  if (rc == MSG_OK) {
    e.left = e.known + keys;
    qsort(e.at, e.n, sizeof *e.at, by_key);
    rc = enter(t, &e, err);
  }
  msg_free(e.at);
  msg_free(e.known);
  return rc;
}
