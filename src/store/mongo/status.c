#include "store/mongo/status.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/process.h"
#include "base/str.h"
#include "store/mongo/answers.h"
#include "store/mongo/tend.h"

#define ANSWER_PRIORITY_STEP 10

/* --- the answer's map ---------------------------------------------------------------------- */

static void append_json_text(msg_str *s, const char *text) {
  msg_str_append(s, "\"");
  for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
    if (*p == '"' || *p == '\\')
      msg_str_appendf(s, "\\%c", *p);
    else if (*p < 0x20)
      msg_str_appendf(s, "\\u%04x", *p);
    else
      msg_str_appendn(s, p, 1);
  }
  msg_str_append(s, "\"");
}

static void append_listener(msg_str *s, const char *pattern) {
  msg_str_append(s, ",");
  append_json_text(s, pattern);
  msg_str_append(s, ":[\"" MSG_MONGO_STATUS_CLASS "\"]");
}

static bool is_heard_locked(const msg_mongo_tend *t, const msg_mongo_own *own,
                            const char *pattern) {
  for (size_t i = 0; i < t->heard_count; i++)
    if (t->heard[i].queue == own->queue && strcmp(t->heard[i].node, own->row.node) == 0 &&
        strcmp(t->heard[i].pattern, pattern) == 0)
      return true;
  return false;
}

/* Only the keys matter to registries, and that there are some. What is claimed here is told by all
 * nodes: to Java's registries a job needs a listener as well. */
static void append_listeners(msg_str *s, msg_mongo_store *store, const msg_mongo_own *own) {
  msg_mongo_tend *t = store->tend;
  msg_str_append(s, "\"message_listeners_by_name\":{\"" MSG_MONGO_STATUS_TOPIC
                    "\":[\"" MSG_MONGO_STATUS_CLASS "\"]");
  msg_mutex_lock(t->mtx);
  for (size_t i = 0; i < t->heard_count; i++) {
    const msg_mongo_heard *h = &t->heard[i];
    if (h->queue == own->queue && strcmp(h->node, own->row.node) == 0 &&
        strcmp(h->pattern, MSG_MONGO_STATUS_TOPIC) != 0)
      append_listener(s, h->pattern);
  }
  for (size_t i = 0; i < t->claimed_count; i++) {
    const char *pattern = msg_pattern_text(t->claimed[i].pattern);
    if (t->claimed[i].queue == own->queue && !is_heard_locked(t, own, pattern))
      append_listener(s, pattern);
  }
  msg_mutex_unlock(t->mtx);
  msg_str_append(s, "}");
}

/* What Morphium tells of its own messaging; nobody here knows how much is in hand. */
static void append_messaging(msg_str *s, const msg_mongo_store *store,
                             const msg_settings *settings) {
  static const char *const COUNTS[] = {"waiting_for_answers", "waiting_for_answers_total",
                                       "in_progress", "processing", "time_till_recieved"};
  msg_str_appendf(s,
                  ",\"messaging.changestream\":%s,\"messaging.multithreadded\":true,\"messaging_"
                  "threadpoolstats\":{},"
                  "\"messaging.window_size\":%lld,\"messaging.pause\":%lld",
                  store->replicated && settings->use_change_stream ? "true" : "false",
                  (long long)settings->window_size, (long long)settings->poll_pause_ms);
  for (size_t i = 0; i < sizeof COUNTS / sizeof COUNTS[0]; i++)
    msg_str_appendf(s, ",\"messaging.%s\":0", COUNTS[i]);
}

/* NULL: memory is out. */
static char *map_of(msg_mongo_store *store, const msg_settings *settings, const msg_mongo_own *own,
                    const char *level) {
  msg_str s = MSG_STR_INIT;
  msg_str_append(&s, "{");
  if (strcmp(level, "PING") != 0) {
    msg_str_appendf(&s, "\"sqlite_msg.version\":\"%s\"", MSG_VERSION);
    if (strcmp(level, "MORPHIUM_ONLY") != 0) {
      msg_str_append(&s, ",");
      append_listeners(&s, store, own);
      append_messaging(&s, store, settings);
    }
  }
  msg_str_append(&s, "}");
  return msg_str_take(&s);
}

/* --- answering ----------------------------------------------------------------------------- */

/* As Morphium's answer factory makes it. */
static int build(const msg_message *request, const char *node, char *map, msg_message *a) {
  msg_message_init(a);
  a->map = map;
  a->id = msg_oid_new();
  a->topic = msg_strdup(request->topic);
  a->msg = msg_strdup(request->msg);
  a->sender = msg_strdup(node);
  a->sender_host = msg_strdup(msg_process_host());
  a->in_answer_to = request->id;
  a->priority = request->priority < INT32_MIN + ANSWER_PRIORITY_STEP
                    ? INT32_MIN
                    : request->priority - ANSWER_PRIORITY_STEP;
  a->timing_out = true;
  a->ttl_ms = request->timing_out && request->ttl_ms > 0 ? request->ttl_ms : MSG_TTL_DEFAULT_MS;
  if (!a->map || !a->topic || (request->msg && !a->msg) || !a->sender || !a->sender_host ||
      msg_value_copy(&a->value, &request->value) != MSG_OK ||
      msg_message_add_recipient(a, request->sender) != MSG_OK)
    return MSG_NOMEM;
  return MSG_OK;
}

static int put_answer(msg_mongo_session *s, const msg_actor *actor, const msg_message *request,
                      char *map, msg_err *err) {
  msg_message a;
  if (build(request, actor->node, map, &a) != MSG_OK) {
    msg_message_clear(&a);
    return msg_err_nomem(err);
  }
  a.timestamp_ms = a.deliver_at_ms = msg_mongo_now_ms(s->store);
  a.delete_at_ms = msg_clock_add(a.timestamp_ms, a.ttl_ms);
  msg_put put = {.message = &a, .id = a.id};
  int rc = s->base.ops->put(&s->base, actor, &put, 1, err);
  msg_message_clear(&a);
  return rc;
}

/* Its own mark first, as Morphium's listener asks for. */
static int answer_as(msg_mongo_session *s, const msg_settings *settings, const msg_mongo_own *own,
                     const msg_message *request, msg_err *err) {
  msg_actor actor = {own->row.node, own->row.process, settings};
  msg_list one = {.at = (msg_message *)request, .n = 1};
  bool won = false;
  const char *level = request->value.type == MSG_TEXT ? request->value.p : "";
  int rc = s->base.ops->seen(&s->base, &actor, &one, &won, err);
  if (rc != MSG_OK || !won)
    return rc;
  return put_answer(s, &actor, request, map_of(s->store, settings, own, level), err);
}

static bool is_asked(const msg_message *m) {
  return m->topic && m->sender && strcmp(m->topic, MSG_MONGO_STATUS_TOPIC) == 0 &&
         msg_oid_is_zero(&m->in_answer_to);
}

/* The registry of this process knows its nodes. */
static bool is_of_ours(const msg_message *m, const msg_mongo_own *own, size_t n) {
  bool asks = m->msg && strcmp(m->msg, MSG_MONGO_REGISTRY_ASKS) == 0;
  for (size_t i = 0; asks && i < n; i++)
    if (strcmp(own[i].row.node, m->sender) == 0)
      return true;
  return false;
}

int msg_mongo_status_answer(msg_mongo_session *s, const msg_settings *settings, const msg_oid *id,
                            msg_err *err) {
  msg_mongo_own *own = NULL;
  size_t n = 0;
  msg_message request;
  int rc = s->base.ops->get(&s->base, id, &request, err);
  if (rc != MSG_OK)
    return rc == MSG_NOTFOUND ? MSG_OK : rc;
  if (is_asked(&request))
    rc = msg_mongo_own_list(s->store, s->queue, &own, &n, err);
  bool ours = rc == MSG_OK && n > 0 && is_of_ours(&request, own, n);
  for (size_t i = 0; rc == MSG_OK && !ours && i < n; i++) {
    const char *node = own[i].row.node;
    bool for_it = request.recipient_count == 0 || msg_message_has_recipient(&request, node);
    if (for_it && strcmp(node, request.sender) != 0)
      rc = answer_as(s, settings, &own[i], &request, err);
  }
  msg_mongo_own_free(own, n);
  msg_message_clear(&request);
  return rc;
}
