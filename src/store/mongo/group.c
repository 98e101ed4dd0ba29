#include "store/mongo/group.h"
#include "store/mongo/place.h"
#include "store/mongo/query.h"

#include <string.h>

#include "base/mem.h"

#define REPAIR_MAX 256
#define REPAIR_MS  2000

/* ---- the list ---- */

struct msg_mongo_group *msg_mongo_groups_add(msg_mongo_groups *g, const char *topic,
                                             const char *group) {
  for (size_t i = 0; i < g->n; i++)
    if (strcmp(g->at[i].topic, topic) == 0 && strcmp(g->at[i].group, group) == 0)
      return &g->at[i];
  struct msg_mongo_group one = {msg_strdup(topic), msg_strdup(group), false};
  if (!one.topic || !one.group || msg_grow(&g->at, &g->cap, g->n + 1, sizeof *g->at) != MSG_OK) {
    msg_free(one.topic);
    msg_free(one.group);
    return NULL;
  }
  g->at[g->n] = one;
  return &g->at[g->n++];
}

void msg_mongo_groups_clear(msg_mongo_groups *g) {
  for (size_t i = 0; i < g->n; i++) {
    msg_free(g->at[i].topic);
    msg_free(g->at[i].group);
  }
  msg_free(g->at);
  *g = (msg_mongo_groups){0};
}

int msg_mongo_groups_add_of(msg_mongo_groups *g, const bson_t *doc, msg_err *err) {
  const char *group = msg_mongo_get_text(doc, "sq.group");
  const char *topic = msg_mongo_get_text(doc, "topic");
  if (!group || !topic || msg_mongo_groups_add(g, topic, group))
    return MSG_OK;
  return msg_err_nomem(err);
}

void msg_mongo_append_groups(bson_t *doc, const msg_mongo_groups *g) {
  bson_t any, one;
  char buffer[16];
  const char *k;
  BSON_APPEND_ARRAY_BEGIN(doc, "$or", &any);
  for (size_t i = 0; i < g->n; i++) {
    bson_uint32_to_string((uint32_t)i, &k, buffer, sizeof buffer);
    BSON_APPEND_DOCUMENT_BEGIN(&any, k, &one);
    BSON_APPEND_UTF8(&one, "topic", g->at[i].topic);
    BSON_APPEND_UTF8(&one, "sq.group", g->at[i].group);
    bson_append_document_end(&any, &one);
  }
  bson_append_array_end(doc, &any);
}

void msg_mongo_note_grouped(msg_mongo_session *s) {
  msg_mutex_lock(s->store->mtx);
  s->place->grouped = true;
  msg_mutex_unlock(s->store->mtx);
}

bool msg_mongo_is_grouped(msg_mongo_session *s) {
  msg_mutex_lock(s->store->mtx);
  bool is = s->place->grouped;
  msg_mutex_unlock(s->store->mtx);
  return is;
}

int msg_mongo_look_grouped(msg_mongo_session *s, msg_mongo_use *u, msg_err *err) {
  if (msg_mongo_is_grouped(s))
    return MSG_OK;
  bool any = false;
  bson_t *filter = BCON_NEW("sq.head", BCON_BOOL(true));
  int rc = msg_mongo_any(u, s->names.messages, "look at groups", filter, "sq_head", 0, &any, err);
  bson_destroy(filter);
  if (any)
    msg_mongo_note_grouped(s);
  return rc;
}

/* ---- promotion ---- */

static int note_id(void *arg, const bson_t *doc, msg_err *err) {
  msg_oid id;
  if (msg_mongo_get_oid(doc, "id", &id) && msg_mongo_ids_add(arg, &id) != MSG_OK)
    return msg_err_nomem(err);
  return MSG_OK;
}

/* The oldest follower of each group; some may have a head. */
static int oldest(msg_mongo_session *s, msg_mongo_use *u, const msg_mongo_groups *g,
                  msg_mongo_ids *out, msg_err *err) {
  bson_t match = BSON_INITIALIZER;
  msg_mongo_append_groups(&match, g);
  BSON_APPEND_UTF8(&match, "sq.state", "blocked");
  msg_mongo_append_alive(&match, msg_mongo_now_ms(s->store));
  bson_t *pipeline =
      BCON_NEW("pipeline", "[", "{", "$match", BCON_DOCUMENT(&match), "}", "{", "$sort", "{",
               "sq.sent", BCON_INT32(1), "_id", BCON_INT32(1), "}", "}", "{", "$group", "{", "_id",
               "{", "t", BCON_UTF8("$topic"), "g", BCON_UTF8("$sq.group"), "}", "id", "{", "$first",
               BCON_UTF8("$_id"), "}", "}", "}", "]");
  int rc =
      msg_mongo_aggregate_each(u, s->names.messages, "look at groups", pipeline, note_id, out, err);
  bson_destroy(pipeline);
  bson_destroy(&match);
  return rc;
}

/* A head whose time has not come is delayed. */
static bson_t *promotion(void) {
  bson_t now, late;
  msg_mongo_now_expr(&now, 0);
  bson_init(&late);
  BCON_APPEND(&late, "$gt", "[", "{", "$toDate", "{", "$toLong", BCON_UTF8("$timestamp"), "}", "}",
              BCON_DOCUMENT(&now), "]");
  bson_t *p = BCON_NEW(
      "0", "{", "$set", "{", "processed_by", "{", "$cond", "[", BCON_DOCUMENT(&late), "[",
      BCON_UTF8(MSG_MONGO_DELAYED), "]", "[", "]", "]", "}", "sq.head", BCON_BOOL(true), "sq.state",
      "{", "$cond", "[", BCON_DOCUMENT(&late), BCON_UTF8("delayed"), BCON_UTF8("$$REMOVE"), "]",
      "}", "sq.until", "{", "$cond", "[", BCON_DOCUMENT(&late), "{", "$toDate", "{", "$toLong",
      BCON_UTF8("$timestamp"), "}", "}", BCON_UTF8("$$REMOVE"), "]", "}", "}", "}");
  bson_destroy(&late);
  bson_destroy(&now);
  return p;
}

/* A group that has a head refuses a second one (11000). */
static int crown(msg_mongo_session *s, msg_mongo_use *u, const msg_mongo_ids *ids, msg_err *err) {
  mongoc_collection_t *c = msg_mongo_collection(u, s->names.messages);
  bson_t *opts = BCON_NEW("ordered", BCON_BOOL(false)), *change = promotion(), reply;
  mongoc_bulk_operation_t *bulk = mongoc_collection_create_bulk_operation_with_opts(c, opts);
  bson_error_t error;
  int rc = MSG_OK;
  for (size_t i = 0; i < ids->n; i++) {
    bson_t filter = BSON_INITIALIZER;
    msg_mongo_append_oid(&filter, "_id", &ids->at[i]);
    BSON_APPEND_UTF8(&filter, "sq.state", "blocked");
    if (!mongoc_bulk_operation_update_one_with_opts(bulk, &filter, change, NULL, &error))
      rc = msg_mongo_fail(s->store, "promote in groups", &error, NULL, err);
    bson_destroy(&filter);
  }
  if (rc == MSG_OK) {
    if (!mongoc_bulk_operation_execute(bulk, &reply, &error) &&
        !msg_mongo_is_duplicate(&error, &reply))
      rc = msg_mongo_fail(s->store, "promote in groups", &error, &reply, err);
    bson_destroy(&reply);
  }
  mongoc_bulk_operation_destroy(bulk);
  mongoc_collection_destroy(c);
  bson_destroy(opts);
  bson_destroy(change);
  return rc;
}

int msg_mongo_groups_promote(msg_mongo_session *s, msg_mongo_use *u, const msg_mongo_groups *g,
                             msg_err *err) {
  msg_mongo_ids ids = {0};
  int rc = g->n ? oldest(s, u, g, &ids, err) : MSG_OK;
  if (rc == MSG_OK && ids.n)
    rc = crown(s, u, &ids, err);
  msg_mongo_ids_clear(&ids);
  return rc;
}

/* ---- after a change ---- */

static int note_group(void *arg, const bson_t *doc, msg_err *err) {
  return msg_mongo_groups_add_of(arg, doc, err);
}

int msg_mongo_groups_after(msg_mongo_session *s, msg_mongo_use *u, const msg_oid *ids, size_t n,
                           msg_err *err) {
  bson_t filter = BSON_INITIALIZER;
  bson_t *opts =
      BCON_NEW("projection", "{", "topic", BCON_INT32(1), "sq.group", BCON_INT32(1), "}");
  msg_mongo_groups g = {0};
  msg_mongo_append_ids(&filter, "_id", "$in", ids, n);
  BCON_APPEND(&filter, "sq.group", "{", "$exists", BCON_BOOL(true), "}");
  int rc =
      msg_mongo_each(u, s->names.messages, "look at groups", &filter, opts, note_group, &g, err);
  if (rc == MSG_OK)
    rc = msg_mongo_groups_promote(s, u, &g, err);
  msg_mongo_groups_clear(&g);
  bson_destroy(opts);
  bson_destroy(&filter);
  return rc;
}

/* ---- heads that Java nodes took ---- */

struct passing {
  msg_mongo_ids ids;
  msg_mongo_ids held; /* still locked: at work */
};

static int note_passed(void *arg, const bson_t *doc, msg_err *err) {
  msg_oid id;
  if (msg_mongo_get_oid(doc, "_id", &id) && msg_mongo_ids_add(arg, &id) != MSG_OK)
    return msg_err_nomem(err);
  return MSG_OK;
}

/* A head with a mark and no state of ours. */
static void append_passed(bson_t *filter) {
  BCON_APPEND(filter, "sq.head", BCON_BOOL(true), "sq.state", BCON_NULL, "processed_by.0", "{",
              "$exists", BCON_BOOL(true), "}");
}

static int find_passed(msg_mongo_session *s, msg_mongo_use *u, struct passing *p, msg_err *err) {
  bson_t filter = BSON_INITIALIZER, locks = BSON_INITIALIZER;
  bson_t *opts = BCON_NEW("projection", "{", "_id", BCON_INT32(1), "}", "limit",
                          BCON_INT64(REPAIR_MAX), "hint", BCON_UTF8("sq_head"));
  append_passed(&filter);
  int rc = msg_mongo_each(u, s->names.messages, "look at groups", &filter, opts, note_passed,
                          &p->ids, err);
  bson_destroy(opts);
  opts = BCON_NEW("projection", "{", "_id", BCON_INT32(1), "}");
  if (rc == MSG_OK && p->ids.n) {
    msg_mongo_append_ids(&locks, "_id", "$in", p->ids.at, p->ids.n);
    msg_mongo_append_alive(&locks, msg_mongo_now_ms(s->store));
    rc = msg_mongo_each(u, s->names.locks, "look at groups", &locks, opts, note_passed, &p->held,
                        err);
  }
  bson_destroy(opts);
  bson_destroy(&locks);
  bson_destroy(&filter);
  return rc;
}

static int pass_on(msg_mongo_session *s, msg_mongo_use *u, const msg_mongo_ids *ids, msg_err *err) {
  bson_t filter = BSON_INITIALIZER;
  bson_t *change = BCON_NEW("$unset", "{", "sq.head", BCON_INT32(1), "}");
  append_passed(&filter);
  msg_mongo_append_ids(&filter, "_id", "$in", ids->at, ids->n);
  int rc = msg_mongo_update(u, s->names.messages, "look at groups", &filter, change, NULL, err);
  bson_destroy(change);
  bson_destroy(&filter);
  return rc == MSG_OK ? msg_mongo_groups_after(s, u, ids->at, ids->n, err) : rc;
}

int msg_mongo_groups_pass(msg_mongo_session *s, msg_mongo_use *u, int *moved, msg_err *err) {
  struct passing p = {0};
  msg_mongo_ids free_ = {0};
  int rc = find_passed(s, u, &p, err);
  for (size_t i = 0; rc == MSG_OK && i < p.ids.n; i++)
    if (!msg_mongo_ids_have(&p.held, &p.ids.at[i]) &&
        msg_mongo_ids_add(&free_, &p.ids.at[i]) != MSG_OK)
      rc = msg_err_nomem(err);
  if (rc == MSG_OK && free_.n)
    rc = pass_on(s, u, &free_, err);
  *moved = rc == MSG_OK ? (int)free_.n : 0;
  msg_mongo_ids_clear(&free_);
  msg_mongo_ids_clear(&p.ids);
  msg_mongo_ids_clear(&p.held);
  return rc;
}

/* ---- repair ---- */

static int note_headless(msg_mongo_groups *g, const bson_t *doc, msg_err *err) {
  const char *topic = msg_mongo_get_text(doc, "_id.t"), *group = msg_mongo_get_text(doc, "_id.g");
  if (!topic || !group || msg_mongo_groups_add(g, topic, group))
    return MSG_OK;
  return msg_err_nomem(err);
}

int msg_mongo_groups_repair(msg_mongo_session *s, msg_mongo_use *u, msg_err *err) {
  bson_t *pipeline = BCON_NEW(
      "pipeline", "[", "{", "$match", "{", "sq.group", "{", "$exists", BCON_BOOL(true), "}", "}",
      "}", "{", "$group", "{", "_id", "{", "t", BCON_UTF8("$topic"), "g", BCON_UTF8("$sq.group"),
      "}", "heads", "{", "$sum", "{", "$cond", "[", BCON_UTF8("$sq.head"), BCON_INT32(1),
      BCON_INT32(0), "]", "}", "}", "waiting", "{", "$sum", "{", "$cond", "[", "{", "$eq", "[",
      BCON_UTF8("$sq.state"), BCON_UTF8("blocked"), "]", "}", BCON_INT32(1), BCON_INT32(0), "]",
      "}", "}", "}", "}", "{", "$match", "{", "heads", BCON_INT32(0), "waiting", "{", "$gt",
      BCON_INT32(0), "}", "}", "}", "{", "$limit", BCON_INT32(REPAIR_MAX), "}", "]");
  bson_t *opts = BCON_NEW("maxTimeMS", BCON_INT32(REPAIR_MS), "hint", BCON_UTF8("sq_group"));
  mongoc_collection_t *c = msg_mongo_collection(u, s->names.messages);
  mongoc_cursor_t *cursor = mongoc_collection_aggregate(c, MONGOC_QUERY_NONE, pipeline, opts, NULL);
  msg_mongo_groups g = {0};
  const bson_t *doc;
  int rc = MSG_OK;
  while (rc == MSG_OK && mongoc_cursor_next(cursor, &doc)) /* an error: next time */
    rc = note_headless(&g, doc, err);
  mongoc_cursor_destroy(cursor);
  mongoc_collection_destroy(c);
  bson_destroy(pipeline);
  bson_destroy(opts);
  if (rc == MSG_OK)
    rc = msg_mongo_groups_promote(s, u, &g, err);
  msg_mongo_groups_clear(&g);
  return rc;
}
