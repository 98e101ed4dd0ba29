#include "store/mongo/change.h"

#include "store/mongo/query.h"

/* What a claim, a delay and a death leave behind. */
#define UNSET_CLAIM                                                                                \
  BCON_UTF8("sq.token"), BCON_UTF8("sq.owner"), BCON_UTF8("sq.since"), BCON_UTF8("sq.life"),       \
      BCON_UTF8("sq.lease")

static bson_t *finish(bson_t *pipeline, bson_t *now) {
  bson_destroy(now);
  return pipeline;
}

/* delete_at is at least `at`, where there is one; sq.life keeps what it was. */
static void append_outlive(bson_t *set, const bson_t *at) {
  BCON_APPEND(set, "delete_at", "{", "$cond", "[", "{", "$gt", "[", BCON_UTF8("$delete_at"),
              BCON_NULL, "]", "}", "{", "$max", "[", BCON_UTF8("$delete_at"), BCON_DOCUMENT(at),
              "]", "}", BCON_UTF8("$delete_at"), "]", "}", "sq.life", "{", "$cond", "[", "{", "$gt",
              "[", BCON_UTF8("$delete_at"), BCON_NULL, "]", "}", "{", "$ifNull", "[",
              BCON_UTF8("$sq.life"), BCON_UTF8("$delete_at"), "]", "}", BCON_UTF8("$$REMOVE"), "]",
              "}");
}

bson_t *msg_mongo_change_claim(const char *node, const char *token, int64_t lease_ms, bool mortal,
                               bool leased) {
  bson_t now, until, outlive, life = BSON_INITIALIZER;
  msg_mongo_now_expr(&now, 0);
  msg_mongo_now_expr(&until, lease_ms);
  msg_mongo_now_expr(&outlive, lease_ms + MSG_MONGO_DONE_MS);
  /* sq as a whole: field by field costs the server more */
  bson_t *p = BCON_NEW("0", "{", "$set", "{", "processed_by", "[", "{", "$literal", BCON_UTF8(node),
                       "}", "]", "sq", "{", "$mergeObjects", "[", BCON_UTF8("$sq"), "{", "state",
                       BCON_UTF8("claimed"), "token", BCON_UTF8(token), "owner", "{", "$literal",
                       BCON_UTF8(node), "}", "since", BCON_DOCUMENT(&now), "until",
                       BCON_DOCUMENT(&until), "lease", "{", "$cond", "[", BCON_BOOL(leased),
                       BCON_BOOL(true), BCON_UTF8("$$REMOVE"), "]", "}", "attempts", "{", "$add",
                       "[", "{", "$ifNull", "[", BCON_UTF8("$sq.attempts"), BCON_INT32(0), "]", "}",
                       BCON_INT32(1), "]", "}", "}", "]", "}", "}", "}");
  if (mortal) {
    append_outlive(&life, &outlive);
    BCON_APPEND(p, "1", "{", "$set", BCON_DOCUMENT(&life), "}");
  }
  bson_destroy(&life);
  bson_destroy(&until);
  bson_destroy(&outlive);
  return finish(p, &now);
}

bson_t *msg_mongo_change_ack(const char *mark) {
  bson_t now;
  msg_mongo_now_expr(&now, 0);
  /* a head that is done is due at once: its group needs another */
  bson_t *p =
      BCON_NEW("0", "{", "$set", "{", "sq.state", BCON_UTF8("done"), "sq.mark", BCON_UTF8(mark),
               "sq.at", BCON_DOCUMENT(&now), "sq.until", "{", "$cond", "[", BCON_UTF8("$sq.head"),
               BCON_DOCUMENT(&now), BCON_UTF8("$sq.until"), "]", "}", "}", "}", "1", "{", "$unset",
               "[", BCON_UTF8("sq.head"), BCON_UTF8("sq.life"), "]", "}");
  return finish(p, &now);
}

/* {$eq: ["$sq.to", missing]} */
static void append_recipients(bson_t *set) {
  BCON_APPEND(set, "recipients", "{", "$cond", "[", "{", "$eq", "[", "{", "$type",
              BCON_UTF8("$sq.to"), "}", BCON_UTF8("missing"), "]", "}", BCON_UTF8("$recipients"),
              BCON_UTF8("$sq.to"), "]", "}");
}

/* Who beside its owner has marked what was claimed: a Java node that had its lock before the claim,
 * and has done it. */
static void append_others(bson_t *set) {
  BCON_APPEND(set, "sq.by", "{", "$cond", "[", "{", "$and", "[", "{", "$eq", "[",
              BCON_UTF8("$sq.state"), BCON_UTF8("claimed"), "]", "}", "{", "$isArray",
              BCON_UTF8("$processed_by"), "}", "]", "}", "{", "$filter", "{", "input",
              BCON_UTF8("$processed_by"), "cond", "{", "$ne", "[", BCON_UTF8("$$this"),
              BCON_UTF8("$sq.owner"), "]", "}", "}", "}", "[", "]", "]", "}");
}

bson_t *msg_mongo_change_free(const char *mark, int64_t delay_ms, int64_t max_attempts) {
  bson_t now, until, others = BSON_INITIALIZER, dead = BSON_INITIALIZER, set = BSON_INITIALIZER;
  bool delayed = delay_ms > 0;
  msg_mongo_now_expr(&now, 0);
  msg_mongo_now_expr(&until, delay_ms);
  append_others(&others);
  /* only a claim makes an attempt: what was delayed before its first is never dead */
  BCON_APPEND(&dead, "$and", "[", "{", "$eq", "[", BCON_UTF8("$sq.state"), BCON_UTF8("claimed"),
              "]", "}", "{", "$gte", "[", BCON_UTF8("$sq.attempts"), BCON_INT64(max_attempts), "]",
              "}", "{", "$eq", "[", BCON_UTF8("$sq.by"), "[", "]", "]", "}", "]");
  append_recipients(&set);
  BCON_APPEND(&set, "processed_by", "{", "$cond", "[", BCON_UTF8("$sq.dies"), "[",
              BCON_UTF8(MSG_MONGO_DEAD), "]", BCON_UTF8("$sq.by"), "]", "}");
  BCON_APPEND(&set, "delete_at", "{", "$cond", "[", BCON_UTF8("$sq.dies"), BCON_NULL, "{",
              "$ifNull", "[", BCON_UTF8("$sq.life"), BCON_UTF8("$delete_at"), "]", "}", "]", "}",
              "sq.mark", BCON_UTF8(mark), "sq.reason", "{", "$cond", "[", BCON_UTF8("$sq.dies"),
              BCON_UTF8("max_attempts"), BCON_UTF8("$sq.reason"), "]", "}", "sq.until", "{",
              "$cond", "[", "{", "$and", "[", BCON_UTF8("$sq.dies"), BCON_UTF8("$sq.head"), "]",
              "}", BCON_DOCUMENT(&now), BCON_UTF8("$$REMOVE"), "]", "}", "sq.head", "{", "$cond",
              "[", BCON_UTF8("$sq.dies"), BCON_UTF8("$$REMOVE"), BCON_UTF8("$sq.head"), "]", "}",
              "sq.state", "{", "$cond", "[", BCON_UTF8("$sq.dies"), BCON_UTF8("dead"),
              BCON_UTF8("$$REMOVE"), "]", "}");
  bson_t late = BSON_INITIALIZER, back = BSON_INITIALIZER;
  BCON_APPEND(&back, "$eq", "[", BCON_UTF8("$processed_by"), "[", "]", "]");
  if (delayed)
    BCON_APPEND(&late, "processed_by", "{", "$cond", "[", BCON_DOCUMENT(&back), "[",
                BCON_UTF8(MSG_MONGO_DELAYED), "]", BCON_UTF8("$processed_by"), "]", "}",
                "timestamp", "{", "$cond", "[", BCON_DOCUMENT(&back), "{", "$toLong",
                BCON_DOCUMENT(&until), "}", BCON_UTF8("$timestamp"), "]", "}", "sq.sent", "{",
                "$ifNull", "[", BCON_UTF8("$sq.sent"), BCON_UTF8("$timestamp"), "]", "}",
                "sq.until", "{", "$cond", "[", BCON_DOCUMENT(&back), BCON_DOCUMENT(&until),
                BCON_UTF8("$sq.until"), "]", "}", "sq.state", "{", "$cond", "[",
                BCON_DOCUMENT(&back), BCON_UTF8("delayed"), BCON_UTF8("$sq.state"), "]", "}");
  bson_t *p =
      BCON_NEW("0", "{", "$set", BCON_DOCUMENT(&others), "}", "1", "{", "$set", "{", "sq.dies",
               BCON_DOCUMENT(&dead), "}", "}", "2", "{", "$set", BCON_DOCUMENT(&set), "}");
  if (delayed)
    BCON_APPEND(p, "3", "{", "$set", BCON_DOCUMENT(&late), "}");
  BCON_APPEND(p, delayed ? "4" : "3", "{", "$unset", "[", UNSET_CLAIM, BCON_UTF8("sq.dies"),
              BCON_UTF8("sq.by"), BCON_UTF8("sq.to"), "]", "}");
  bson_destroy(&back);
  bson_destroy(&others);
  bson_destroy(&late);
  bson_destroy(&set);
  bson_destroy(&dead);
  bson_destroy(&until);
  return finish(p, &now);
}

bson_t *msg_mongo_change_extend(const char *mark, int64_t lease_ms) {
  bson_t until, outlive, set = BSON_INITIALIZER;
  msg_mongo_now_expr(&until, lease_ms);
  msg_mongo_now_expr(&outlive, lease_ms + MSG_MONGO_DONE_MS);
  BCON_APPEND(&set, "sq.until", BCON_DOCUMENT(&until), "sq.mark", BCON_UTF8(mark));
  append_outlive(&set, &outlive);
  bson_t *p = BCON_NEW("0", "{", "$set", BCON_DOCUMENT(&set), "}");
  bson_destroy(&set);
  bson_destroy(&outlive);
  return finish(p, &until);
}

bson_t *msg_mongo_change_bury(const char *mark, const char *reason) {
  bson_t now;
  msg_mongo_now_expr(&now, 0);
  bson_t *p =
      BCON_NEW("0", "{", "$set", "{", "processed_by", "[", BCON_UTF8(MSG_MONGO_DEAD), "]",
               "delete_at", BCON_NULL, "sq.state", BCON_UTF8("dead"), "sq.mark", BCON_UTF8(mark),
               "sq.reason", "{", "$literal", BCON_UTF8(reason ? reason : ""), "}", "sq.until", "{",
               "$cond", "[", BCON_UTF8("$sq.head"), BCON_DOCUMENT(&now), BCON_UTF8("$$REMOVE"), "]",
               "}", "}", "}", "1", "{", "$unset", "[", UNSET_CLAIM, BCON_UTF8("sq.head"), "]", "}");
  return finish(p, &now);
}

bson_t *msg_mongo_change_redrive(void) {
  bson_t now, grouped;
  msg_mongo_now_expr(&now, 0);
  bson_init(&grouped);
  BCON_APPEND(&grouped, "$gt", "[", BCON_UTF8("$sq.group"), BCON_NULL, "]");
  bson_t *p =
      BCON_NEW("0", "{", "$set", "{", "processed_by", "{", "$cond", "[", BCON_DOCUMENT(&grouped),
               "[", BCON_UTF8(MSG_MONGO_BLOCKED), "]", "[", "]", "]", "}", "sq.state", "{", "$cond",
               "[", BCON_DOCUMENT(&grouped), BCON_UTF8("blocked"), BCON_UTF8("$$REMOVE"), "]", "}",
               "delete_at", "{", "$cond", "[", "{", "$and", "[", BCON_UTF8("$timing_out"), "{",
               "$gt", "[", BCON_UTF8("$ttl"), BCON_INT32(0), "]", "}", "]", "}", "{", "$add", "[",
               BCON_DOCUMENT(&now), BCON_UTF8("$ttl"), "]", "}", BCON_NULL, "]", "}", "}", "}", "1",
               "{", "$unset", "[", UNSET_CLAIM, BCON_UTF8("sq.attempts"), BCON_UTF8("sq.reason"),
               BCON_UTF8("sq.until"), "]", "}");
  bson_destroy(&grouped);
  return finish(p, &now);
}
