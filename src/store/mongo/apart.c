#include "store/mongo/apart.h"

#include <string.h>

#include "base/mem.h"
#include "store/mongo/catalog.h"
#include "store/mongo/query.h"
#include "store/mongo/route.h"
#include "store/mongo/topics.h"
#include "store/mongo/transaction.h"

/* One that goes out. */
struct leaving {
  msg_oid id;
  bson_t *doc; /* NULL: gone */
  msg_message m;
  msg_mongo_places to;
};

static void leaving_drop(struct leaving *l) {
  if (l->doc)
    bson_destroy(l->doc);
  l->doc = NULL;
  msg_message_clear(&l->m);
}

static int read_row(void *arg, const bson_t *doc, msg_err *err) {
  struct leaving *l = arg;
  leaving_drop(l);
  int rc = msg_mongo_message(doc, INT64_MAX, true, &l->m, err);
  if (rc == MSG_OK)
    l->doc = bson_copy(doc);
  return rc == MSG_CORRUPT ? MSG_OK : rc;
}

/* If its time has come. */
static void append_due(bson_t *filter, const msg_oid *id) {
  bson_t now;
  msg_mongo_now_expr(&now, 0);
  msg_mongo_append_oid(filter, "_id", id);
  BCON_APPEND(filter, "sq.state", BCON_UTF8("delayed"), "$expr", "{", "$lte", "[",
              BCON_UTF8("$sq.until"), BCON_DOCUMENT(&now), "]", "}");
  bson_destroy(&now);
}

/* The same document without its hiding: recipients from sq.to, no state, nobody's mark. */
static void append_sq(bson_t *out, bson_iter_t *sq) {
  static const char *const GONE[] = {"state", "until", "to"};
  bson_t kept;
  BSON_APPEND_DOCUMENT_BEGIN(out, "sq", &kept);
  while (bson_iter_next(sq)) {
    bool gone = false;
    for (size_t i = 0; i < sizeof GONE / sizeof GONE[0]; i++)
      gone = gone || strcmp(bson_iter_key(sq), GONE[i]) == 0;
    if (!gone)
      bson_append_iter(&kept, NULL, -1, sq);
  }
  bson_append_document_end(out, &kept);
}

static bson_t *shown(const bson_t *doc) {
  bson_t *out = bson_new();
  bson_iter_t it, sq, to;
  bool hidden = bson_iter_init(&it, doc) && bson_iter_find_descendant(&it, "sq.to", &to);
  if (!bson_iter_init(&it, doc))
    return out;
  while (bson_iter_next(&it)) {
    const char *key = bson_iter_key(&it);
    if (strcmp(key, "recipients") == 0 && hidden)
      bson_append_iter(out, "recipients", -1, &to);
    else if (strcmp(key, "processed_by") == 0)
      BCON_APPEND(out, "processed_by", "[", "]");
    else if (strcmp(key, "sq") == 0 && BSON_ITER_HOLDS_DOCUMENT(&it) && bson_iter_recurse(&it, &sq))
      append_sq(out, &sq);
    else
      bson_append_iter(out, key, -1, &it);
  }
  return out;
}

static int delete_it(msg_mongo_txn *t, const bson_t *filter, msg_err *err) {
  bson_error_t error;
  bson_t reply;
  mongoc_collection_t *c = msg_mongo_collection(t->u, t->s->names.messages);
  int rc = MSG_OK;
  if (!mongoc_collection_delete_one(c, filter, &t->opts, &reply, &error))
    rc = msg_mongo_txn_fail(t, "sweep", &error, &reply, err);
  bson_destroy(&reply);
  mongoc_collection_destroy(c);
  return rc;
}

static int insert_at(msg_mongo_txn *t, const msg_mongo_place *p, const bson_t *doc, msg_err *err) {
  bson_error_t error;
  bson_t reply;
  mongoc_collection_t *c = msg_mongo_collection(t->u, p->at.messages);
  int rc = MSG_OK;
  if (!mongoc_collection_insert_one(c, doc, &t->opts, &reply, &error))
    rc = msg_mongo_txn_fail(t, "sweep", &error, &reply, err);
  bson_destroy(&reply);
  mongoc_collection_destroy(c);
  return rc;
}

/* As it is now: who was faster has moved it, or put it off. */
static int move(msg_mongo_txn *t, void *arg, msg_err *err) {
  struct leaving *l = arg;
  bson_t filter = BSON_INITIALIZER;
  append_due(&filter, &l->id);
  leaving_drop(l);
  int rc = msg_mongo_txn_each(t, t->s->names.messages, "sweep", &filter, NULL, read_row, l, err);
  if (rc == MSG_OK && l->doc) {
    bson_t *doc = shown(l->doc);
    rc = delete_it(t, &filter, err);
    for (size_t i = 0; rc == MSG_OK && i < l->to.n; i++)
      rc = insert_at(t, l->to.at[i], doc, err);
    bson_destroy(doc);
  }
  bson_destroy(&filter);
  return rc;
}

static int ready(msg_mongo_session *at, msg_mongo_use *u, void *arg, msg_err *err) {
  (void)arg;
  return msg_mongo_indexes(at, u, err);
}

/* Its topic and its recipients never change: where it goes is known before. */
static int out(msg_mongo_session *at, msg_mongo_use *u, struct leaving *l, msg_err *err) {
  int rc = msg_mongo_places_put(at, &l->m, false, &l->to, err);
  if (rc == MSG_OK)
    rc = msg_mongo_places_each(at, u, &l->to, ready, NULL, err);
  for (size_t i = 0; rc == MSG_OK && i < l->to.n; i++)
    if (l->to.at[i]->kind == MSG_MONGO_TOPIC)
      msg_mongo_place_note(at->store, l->to.at[i], l->m.topic);
  return rc == MSG_OK ? msg_mongo_transact(at, u, "sweep", move, l, err) : rc;
}

int msg_mongo_apart_out(msg_mongo_session *at, msg_mongo_use *u, const msg_mongo_ids *ids,
                        msg_err *err) {
  int rc = MSG_OK;
  for (size_t i = 0; rc == MSG_OK && i < ids->n; i++) {
    struct leaving l = {.id = ids->at[i]};
    bson_t filter = BSON_INITIALIZER;
    msg_message_init(&l.m);
    append_due(&filter, &l.id);
    rc = msg_mongo_each(u, at->names.messages, "sweep", &filter, NULL, read_row, &l, err);
    if (rc == MSG_OK && l.doc)
      rc = out(at, u, &l, err);
    bson_destroy(&filter);
    msg_mongo_places_clear(&l.to);
    leaving_drop(&l);
  }
  return rc;
}
