#include "store/mongo/reach.h"

#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "store/mongo/query.h"
#include "store/mongo/tend.h"

/* All topics' collections; "lck_" begins their locks. */
static void append_topics(msg_str *out, const char *queue) {
  msg_str name = MSG_STR_INIT;
  msg_str_appendf(&name, "%s_", queue);
  char *folded = msg_str_take(&name);
  if (folded)
    msg_mongo_fold_topic(folded);
  msg_mongo_append_quoted(out, folded ? folded : "");
  msg_str_append(out, "(?!lck_|dm_)|");
  msg_free(folded);
}

/* A lane's name without its owner's. */
static void append_lanes(msg_str *out, const msg_mongo_session *s) {
  msg_mongo_at at;
  msg_mongo_at_lane(s->queue->layout, &s->queue->names, "", &at);
  msg_mongo_append_quoted(out, at.messages);
}

static char *regex_of(const msg_mongo_session *s) {
  msg_str out = MSG_STR_INIT;
  msg_mongo_at apart;
  msg_str_append(&out, "^(?:");
  if (s->queue->main) {
    msg_mongo_append_quoted(&out, s->queue->main->at.messages);
    msg_str_append(&out, "$|");
  }
  msg_mongo_at_apart(&s->queue->names, &apart);
  if (s->queue->layout->apart) {
    msg_mongo_append_quoted(&out, apart.messages);
    msg_str_append(&out, "$|");
  }
  if (s->queue->layout->topics)
    append_topics(&out, s->queue->name);
  append_lanes(&out, s);
  msg_str_append(&out, ")");
  return msg_str_take(&out);
}

bson_t *msg_mongo_reach(const msg_mongo_session *s) {
  char *regex = regex_of(s);
  bson_t *match = BCON_NEW("$or", "[", "{", "ns.coll", BCON_NULL, "}", "{", "ns.coll",
                           BCON_REGEX(regex ? regex : "", ""), "}", "]");
  msg_free(regex);
  return match;
}
