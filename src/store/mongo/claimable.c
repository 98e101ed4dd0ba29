/* claimable.c - could a claim have something now? Reads only. */
#include "store/mongo/claiming.h"
#include "store/mongo/group.h"
#include "store/mongo/query.h"
#include "store/mongo/topics.h"

/* One row by an index of ours; by any while they are not known to be there. */
static int any(msg_mongo_claiming *c, const bson_t *filter, const char *index, bool *out,
               msg_err *err) {
  return msg_mongo_any(c->u, c->s->names.messages, "look for messages", filter,
                       msg_mongo_is_indexed(c->s) ? index : NULL, 0, out, err);
}

/* What a sweep would make ready. */
static int any_due(msg_mongo_claiming *c, char *const *topics, size_t n, bool *out, msg_err *err) {
  bson_t due = BSON_INITIALIZER;
  msg_mongo_append_texts(&due, "topic", "$in", topics, n, false);
  BSON_APPEND_BOOL(&due, "exclusive", true);
  BCON_APPEND(&due, "sq.until", "{", "$lte", BCON_DATE_TIME(c->now_ms), "}", "$or", "[", "{",
              "sq.state", "{", "$ne", BCON_UTF8("done"), "}", "}", "{", "sq.group", "{", "$exists",
              BCON_BOOL(true), "}", "}", "]");
  int rc = any(c, &due, "sq_due", out, err);
  bson_destroy(&due);
  return rc;
}

/* Heads that let go: their life is over, or a Java node took them. */
static int any_passed(msg_mongo_claiming *c, char *const *topics, size_t n, bool *out,
                      msg_err *err) {
  bson_t passed = BSON_INITIALIZER;
  msg_mongo_append_texts(&passed, "topic", "$in", topics, n, false);
  BCON_APPEND(&passed, "sq.head", BCON_BOOL(true), "$or", "[", "{", "delete_at", "{", "$lte",
              BCON_DATE_TIME(c->now_ms), "}", "}", "{", "sq.state", BCON_NULL, "processed_by.0",
              "{", "$exists", BCON_BOOL(true), "}", "}", "]");
  int rc = any(c, &passed, "sq_head", out, err);
  bson_destroy(&passed);
  return rc;
}

/* What old nodes wrote. */
static int any_unnamed(msg_mongo_claiming *c, char *const *topics, size_t n, bool *out,
                       msg_err *err) {
  bson_t ready = BSON_INITIALIZER;
  int rc = msg_mongo_look_unnamed(c->s, c->u, err);
  if (rc == MSG_OK && msg_mongo_is_unnamed(c->s)) {
    msg_mongo_append_ready(&ready, c, topics, n);
    rc = any(c, &ready, "sq_claim", out, err);
  }
  bson_destroy(&ready);
  return rc;
}

static int any_of(msg_mongo_claiming *c, char *const *topics, size_t n, bool *out, msg_err *err) {
  bson_t ready = BSON_INITIALIZER;
  msg_mongo_append_ready(&ready, c, topics, n);
  int rc = any(c, &ready, "sq_claim", out, err);
  if (rc == MSG_OK && !*out)
    rc = any_due(c, topics, n, out, err);
  if (rc == MSG_OK && !*out && !msg_mongo_is_unnamed(c->s))
    rc = any_unnamed(c, topics, n, out, err);
  if (rc == MSG_OK && !*out && msg_mongo_is_grouped(c->s))
    rc = any_passed(c, topics, n, out, err);
  bson_destroy(&ready);
  return rc;
}

static int any_at(msg_mongo_claiming *c, bool *found, msg_err *err) {
  int rc = MSG_OK;
  for (size_t i = 0; rc == MSG_OK && !*found && i < c->topics.n; i += MSG_MONGO_TOPICS_MAX) {
    size_t n = c->topics.n - i;
    rc = any_of(c, c->topics.at + i, n < MSG_MONGO_TOPICS_MAX ? n : MSG_MONGO_TOPICS_MAX, found,
                err);
  }
  return rc;
}

static int any_of_all(msg_mongo_session *s, msg_mongo_claiming *c, void *found, msg_err *err) {
  bool *any = found;
  c->now_ms = msg_mongo_now_ms(s->store);
  int rc = msg_mongo_claiming_find(s, c, err);
  for (size_t i = 0; rc == MSG_OK && !*any && i < c->spot_count; i++) {
    msg_mongo_claiming_go(c, i);
    rc = any_at(c, any, err);
  }
  return rc;
}

int msg_mongo_claimable(msg_session *base, const msg_actor *actor, const msg_claim *claim,
                        bool *out, msg_err *err) {
  msg_mongo_claiming c = {.actor = actor, .claim = claim};
  bool found = false;
  int rc = msg_mongo_claiming_run(base, &c, "look for messages", any_of_all, &found, err);
  if (rc == MSG_OK)
    *out = found;
  return rc;
}
