/* owner.c - steps 4 and 5 of a claim: whose a marked message is. */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "store/mongo/claiming.h"

#define LOCK_WAIT_MS 200
#define LOCK_STEP_MS 10

void msg_mongo_append_mine(bson_t *filter, const msg_mongo_claiming *c, const msg_mongo_ids *ids) {
  msg_mongo_append_ids(filter, "_id", "$in", ids->at, ids->n);
  BSON_APPEND_UTF8(filter, "sq.token", c->token);
}

/* Reads those that bear my mark and no other. */
static int read_mine(msg_mongo_claiming *c, const msg_mongo_ids *ids, msg_list *out, msg_err *err) {
  bson_t filter = BSON_INITIALIZER;
  const bson_t *doc;
  int rc;
  msg_mongo_append_mine(&filter, c, ids);
  BCON_APPEND(&filter, "processed_by", "[", BCON_UTF8(c->actor->node), "]");
  mongoc_cursor_t *cursor = msg_mongo_query(c->u, c->s->names.messages, &filter, NULL);
  while ((rc = msg_mongo_next(c->u, cursor, "claim", &doc, err)) == MSG_OK) {
    msg_message m, *to;
    rc = msg_mongo_message(doc, msg_mongo_now_ms(c->s->store), true, &m, err);
    if (rc != MSG_OK)
      break;
    if (!(to = msg_list_add(out))) {
      msg_message_clear(&m);
      rc = msg_err_nomem(err);
      break;
    }
    *to = m;
  }
  mongoc_cursor_destroy(cursor);
  bson_destroy(&filter);
  return rc == MSG_NOTFOUND ? MSG_OK : rc;
}

/* Another's mark stands beside mine, or its lock will not go: mine goes. */
static int step_back(msg_mongo_claiming *c, const msg_mongo_ids *ids, msg_err *err) {
  bson_t filter = BSON_INITIALIZER;
  msg_mongo_append_mine(&filter, c, ids);
  bson_t *change = BCON_NEW(
      "0", "{", "$set", "{", "processed_by", "{", "$filter", "{", "input",
      BCON_UTF8("$processed_by"), "cond", "{", "$ne", "[", BCON_UTF8("$$this"), "{", "$literal",
      BCON_UTF8(c->actor->node), "}", "]", "}", "}", "}", "delete_at", "{", "$ifNull", "[",
      BCON_UTF8("$sq.life"), BCON_UTF8("$delete_at"), "]", "}", "sq.attempts", "{", "$subtract",
      "[", BCON_UTF8("$sq.attempts"), BCON_INT32(1), "]", "}", "}", "}", "1", "{", "$unset", "[",
      BCON_UTF8("sq.state"), BCON_UTF8("sq.token"), BCON_UTF8("sq.owner"), BCON_UTF8("sq.since"),
      BCON_UTF8("sq.until"), BCON_UTF8("sq.life"), "]", "}");
  int rc = msg_mongo_update(c->u, c->s->names.messages, "claim", &filter, change, NULL, err);
  bson_destroy(change);
  bson_destroy(&filter);
  return rc;
}

/* Those without lock are mine if they bear my mark alone. Of the others I wait for the lock to go,
 * or for its owner's mark. */
static int settle_conflicts(msg_mongo_claiming *c, msg_err *err) {
  int64_t deadline_ms = msg_clock_mono_ms() + LOCK_WAIT_MS;
  msg_mongo_ids doubt = c->locked, still = {0};
  int rc = MSG_OK;
  c->locked = (msg_mongo_ids){0};
  while (rc == MSG_OK && doubt.n && msg_clock_mono_ms() < deadline_ms) {
    msg_mongo_ids freed = {0};
    msg_clock_sleep_ms(LOCK_STEP_MS);
    rc = msg_mongo_read_locks(c, &doubt, &still, err);
    for (size_t i = 0; rc == MSG_OK && i < doubt.n; i++)
      if (!msg_mongo_ids_have(&still, &doubt.at[i]) &&
          msg_mongo_ids_add(&freed, &doubt.at[i]) != MSG_OK)
        rc = msg_err_nomem(err);
    if (rc == MSG_OK && freed.n)
      rc = read_mine(c, &freed, &c->got, err);
    if (rc == MSG_OK && freed.n) /* what of them is not mine alone */
      for (size_t i = 0; i < c->got.n; i++)
        for (size_t j = 0; j < freed.n; j++)
          if (msg_oid_cmp(&c->got.at[i].id, &freed.at[j]) == 0)
            freed.at[j] = freed.at[--freed.n];
    if (rc == MSG_OK && freed.n)
      rc = step_back(c, &freed, err);
    msg_mongo_ids_clear(&freed);
    msg_mongo_ids_clear(&doubt);
    doubt = still;
    still = (msg_mongo_ids){0};
  }
  if (rc == MSG_OK && doubt.n)
    rc = step_back(c, &doubt, err);
  msg_mongo_ids_clear(&doubt);
  msg_mongo_ids_clear(&still);
  return rc;
}

int msg_mongo_read_back(msg_mongo_claiming *c, msg_err *err) {
  msg_mongo_ids sure = {0};
  int rc = msg_mongo_read_locks(c, &c->ids, &c->locked, err);
  for (size_t i = 0; rc == MSG_OK && i < c->ids.n; i++)
    if (!msg_mongo_ids_have(&c->locked, &c->ids.at[i]) &&
        msg_mongo_ids_add(&sure, &c->ids.at[i]) != MSG_OK)
      rc = msg_err_nomem(err);
  if (rc == MSG_OK && sure.n)
    rc = read_mine(c, &sure, &c->got, err);
  if (rc == MSG_OK && c->locked.n)
    rc = settle_conflicts(c, err);
  msg_mongo_ids_clear(&sure);
  return rc;
}
