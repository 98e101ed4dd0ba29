#include "store/mongo/reach.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/process.h"
#include "base/str.h"
#include "store/mongo/tend.h"

/* ---- lanes ---- */

static bool has_line(const msg_str *s, const char *line) {
  const char *at = s->s ? strstr(s->s, line) : NULL;
  return at != NULL;
}

/* "\n<lane>\n" once each. */
static void add_lane(const msg_mongo_session *s, msg_str *out, const char *node) {
  char line[MSG_MONGO_NAME_MAX + 4];
  msg_mongo_at at;
  msg_mongo_at_lane(s->queue->layout, &s->queue->names, node, &at);
  snprintf(line, sizeof line, "\n%s\n", at.messages);
  if (!has_line(out, line))
    msg_str_append(out, line);
}

/* Who announced itself with an id that was given, and who listens. Ids that were made begin alike:
 * they need no line. */
char *msg_mongo_reach_lanes(const msg_mongo_session *s) {
  msg_mongo_tend *t = s->store->tend;
  msg_str out = MSG_STR_INIT;
  msg_str_append(&out, "");
  msg_mutex_lock(t->mtx);
  for (size_t i = 0; i < t->own_count; i++)
    if (t->own[i].queue == s->queue && !t->own[i].row.automatic)
      add_lane(s, &out, t->own[i].row.node);
  for (size_t i = 0; i < t->heard_count; i++)
    if (t->heard[i].queue == s->queue)
      add_lane(s, &out, t->heard[i].node);
  msg_mutex_unlock(t->mtx);
  return msg_str_take(&out);
}

static bool is_lane_of(const msg_mongo_session *s, const char *node, const char *collection) {
  msg_mongo_at at;
  msg_mongo_at_lane(s->queue->layout, &s->queue->names, node, &at);
  return strcmp(at.messages, collection) == 0;
}

bool msg_mongo_owns_lane(const msg_mongo_session *s, const char *collection) {
  msg_mongo_tend *t = s->store->tend;
  bool is = false;
  msg_mutex_lock(t->mtx);
  for (size_t i = 0; !is && i < t->own_count; i++)
    is = t->own[i].queue == s->queue && is_lane_of(s, t->own[i].row.node, collection);
  msg_mutex_unlock(t->mtx);
  return is;
}

/* ---- the match ---- */

static void append_quoted(msg_str *out, const char *text) {
  for (; *text; text++) {
    char c[3] = {'\\', *text, '\0'};
    bool special = strchr("\\^$.|?*+()[]{}-", *text) != NULL;
    msg_str_append(out, special ? c : c + 1);
  }
}

static void append_regex(bson_t *any, uint32_t *n, msg_str *pattern) {
  bson_t one;
  char buffer[16];
  const char *key;
  char *text = msg_str_take(pattern);
  bson_uint32_to_string((*n)++, &key, buffer, sizeof buffer);
  BSON_APPEND_DOCUMENT_BEGIN(any, key, &one);
  bson_append_regex(&one, "ns.coll", -1, text ? text : "^$", "");
  bson_append_document_end(any, &one);
  msg_free(text);
}

/* Lanes of nodes with made ids of this process, which may come any time. */
static void append_automatic(const msg_mongo_session *s, bson_t *any, uint32_t *n) {
  msg_str name = MSG_STR_INIT, pattern = MSG_STR_INIT;
  msg_mongo_at at;
  msg_str_appendf(&name, "%s-%s-%d-", msg_process_host(), msg_process_program(), msg_process_pid());
  msg_mongo_at_lane(s->queue->layout, &s->queue->names, name.s ? name.s : "", &at);
  msg_str_append(&pattern, "^");
  append_quoted(&pattern, at.messages);
  append_regex(any, n, &pattern);
  msg_str_clear(&name);
}

/* All topics' collections; "lck" begins their locks. */
static void append_topics(const msg_mongo_session *s, bson_t *any, uint32_t *n) {
  msg_str name = MSG_STR_INIT, pattern = MSG_STR_INIT;
  msg_str_appendf(&name, "%s_", s->queue->name);
  if (name.s)
    msg_mongo_fold_topic(name.s);
  msg_str_append(&pattern, "^");
  append_quoted(&pattern, name.s ? name.s : "");
  msg_str_append(&pattern, "(?!lck_|dm_)");
  append_regex(any, n, &pattern);
  msg_str_clear(&name);
}

static void append_name(bson_t *names, uint32_t *n, const char *name, size_t len) {
  char buffer[16];
  const char *key;
  bson_uint32_to_string((*n)++, &key, buffer, sizeof buffer);
  bson_append_utf8(names, key, -1, name, (int)len);
}

static void append_names(const msg_mongo_session *s, bson_t *in, const char *lanes) {
  bson_t names;
  msg_mongo_at apart;
  uint32_t n = 0;
  BSON_APPEND_ARRAY_BEGIN(in, "$in", &names);
  if (s->queue->main)
    append_name(&names, &n, s->queue->names.messages, strlen(s->queue->names.messages));
  msg_mongo_at_apart(&s->queue->names, &apart);
  if (s->queue->layout->apart)
    append_name(&names, &n, apart.messages, strlen(apart.messages));
  for (const char *at = lanes; *at;) {
    size_t len = strcspn(at, "\n");
    if (len)
      append_name(&names, &n, at, len);
    at += len + (at[len] ? 1 : 0);
  }
  bson_append_array_end(in, &names);
}

/* What ends a stream has no collection. */
bson_t *msg_mongo_reach(const msg_mongo_session *s, char **lanes_out) {
  char *lanes = msg_mongo_reach_lanes(s);
  bson_t in = BSON_INITIALIZER, any, match = BSON_INITIALIZER;
  uint32_t n = 2;
  if (!lanes)
    return NULL;
  append_names(s, &in, lanes);
  BSON_APPEND_ARRAY_BEGIN(&match, "$or", &any);
  BCON_APPEND(&any, "0", "{", "ns.coll", BCON_NULL, "}", "1", "{", "ns.coll", BCON_DOCUMENT(&in),
              "}");
  append_automatic(s, &any, &n);
  if (s->queue->layout->topics)
    append_topics(s, &any, &n);
  bson_append_array_end(&match, &any);
  bson_t *out = bson_copy(&match);
  bson_destroy(&match);
  bson_destroy(&in);
  *lanes_out = lanes;
  return out;
}
