#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/process.h"
#include "base/str.h"
#include "engine/node_int.h"
#include "model/options.h"

/* Messages of one batch that need no allocation. */
#define PUTS_ON_STACK 8
/* Morphium's answer factory: an answer is a little more urgent than its request. */
#define ANSWER_PRIORITY_STEP 10

/* --- filling ------------------------------------------------------------------------------- */

static int check_recipients(const msg_message *m, msg_err *err) {
  for (size_t i = 0; i < m->recipient_count; i++) {
    int rc = msg_node_name_check(m->recipients[i], err);
    if (rc != MSG_OK)
      return rc;
  }
  return MSG_OK;
}

static int check(const msg_message *m, const msg_options *o, msg_err *err) {
  int rc = msg_topic_check(m->topic, err);
  if (rc == MSG_OK)
    rc = check_recipients(m, err);
  if (rc == MSG_OK && m->key)
    rc = msg_key_check("key", m->key, err);
  if (rc == MSG_OK && m->group)
    rc = msg_key_check("group", m->group, err);
  if (rc != MSG_OK)
    return rc;
  if (m->group && !m->exclusive)
    return msg_err_set(err, MSG_INVALID,
                       "group '%s' on topic '%s': only exclusive messages are in order by group: "
                       "use msg_enqueue, or leave group out",
                       msg_show(m->group).s, msg_show(m->topic).s);
  if (o && o->has_ttl && m->ttl_ms <= 0)
    return msg_err_set(err, MSG_INVALID,
                       "ttl_ms of a message on topic '%s' is %lld: give 1 or more",
                       msg_show(m->topic).s, (long long)m->ttl_ms);
  return MSG_OK;
}

static void fill_times(msg_message *m, const msg_options *o, int64_t now_ms) {
  if (!m->copied)
    m->timestamp_ms = now_ms;
  if (o && o->has_delay)
    m->deliver_at_ms = msg_clock_add(m->timestamp_ms, o->delay_ms);
  else if (!o || !o->has_deliver_at)
    m->deliver_at_ms = m->timestamp_ms;
}

/* A broadcast dies, an exclusive message waits until it is done, unless told otherwise. Life begins
 * at delivery. */
static void fill_life(msg_message *m, const msg_options *o, int64_t default_ttl_ms) {
  bool given = o && o->has_ttl;
  if (!given)
    m->timing_out = o && o->has_timing_out ? m->timing_out : !m->exclusive;
  else
    m->timing_out = true;
  if (!m->timing_out)
    m->ttl_ms = 0;
  else if (!given)
    m->ttl_ms = default_ttl_ms;
  int64_t birth_ms = m->deliver_at_ms > m->timestamp_ms ? m->deliver_at_ms : m->timestamp_ms;
  bool mortal = m->timing_out && m->state != MSG_STATE_DEAD; /* a dead letter lives on */
  m->delete_at_ms = mortal ? msg_clock_add(birth_ms, m->ttl_ms) : MSG_NEVER;
}

/* What no sender sets: the store's part. */
static void reset_store_fields(msg_message *m) {
  m->seq = 0;
  if (!m->copied) {
    m->state = MSG_STATE_READY;
    m->attempts = 0;
  }
  m->token[0] = '\0';
  m->since_ms = m->until_ms = 0;
}

/* A copy keeps its sender. */
static int fill_sender(msg_use *u, msg_message *m, msg_err *err) {
  if (m->copied && m->sender)
    return MSG_OK;
  if (m->lent) {
    m->sender = u->node->id;
    m->sender_host = (char *)(uintptr_t)msg_process_host();
    return MSG_OK;
  }
  char *sender = msg_strdup(u->node->id), *host = msg_strdup(msg_process_host());
  if (!sender || !host) {
    msg_free(sender);
    msg_free(host);
    return msg_err_nomem(err);
  }
  msg_free(m->sender);
  msg_free(m->sender_host);
  m->sender = sender;
  m->sender_host = host;
  return MSG_OK;
}

static int fill(msg_use *u, msg_message *m, const msg_options *o, msg_err *err) {
  int rc = check(m, o, err);
  if (rc != MSG_OK)
    return rc;
  rc = fill_sender(u, m, err);
  if (rc != MSG_OK)
    return rc;
  int64_t now_ms = msg_clock_now_ms();
  if (msg_oid_is_zero(&m->id))
    m->id = msg_oid_at(now_ms);
  fill_times(m, o, now_ms);
  fill_life(m, o, u->policy->settings.default_ttl_ms);
  reset_store_fields(m);
  return MSG_OK;
}

int msg_node_fill(msg_node *node, msg_message *m, const msg_options *options, msg_err *err) {
  msg_use u;
  int rc = msg_use_begin(&u, node, err);
  if (rc != MSG_OK)
    return rc;
  rc = fill(&u, m, options, err);
  msg_use_end(&u);
  return rc;
}

/* --- putting ------------------------------------------------------------------------------- */

static void count_sent(msg_node *node, const msg_put *puts, size_t n) {
  int64_t old = 0;
  for (size_t i = 0; i < n; i++)
    old += puts[i].existed;
  msg_node_count(node, MSG_STAT_SENT, (int64_t)n - old);
  if (old)
    msg_node_count(node, MSG_STAT_DEDUPLICATED, old);
}

static int put(msg_use *u, const msg_call *call, msg_session *session, const msg_message *messages,
               msg_put *puts, size_t n, msg_err *err) {
  int rc = msg_audience_check(u, call, session, messages, n, err);
  if (rc != MSG_OK)
    return rc;
  int64_t window_ms = u->policy->settings.key_window_ms;
  for (size_t i = 0; i < n; i++) {
    const msg_message *m = &messages[i];
    puts[i] = (msg_put){.message = m, .id = m->id};
    if (m->key)
      puts[i].key_until_ms = msg_clock_add(m->timestamp_ms, window_ms);
  }
  rc = MSG_STORE(u, session, put, &u->actor, puts, n, err);
  if (rc != MSG_OK)
    return rc;
  count_sent(u->node, puts, n);
  msg_deliver_put(u->node->store, puts, n);
  return rc;
}

void msg_node_put_beside(msg_node *node, const msg_put *puts, size_t n) {
  if (msg_node_check(node, NULL) == MSG_OK)
    msg_deliver_put(node->store, puts, n);
}

void msg_node_doubt(msg_node *node) {
  if (msg_node_check(node, NULL) == MSG_OK)
    msg_deliver_doubt(node->store);
}

int msg_send_one(msg_use *u, const msg_call *call, msg_session *session, const msg_message *m,
                 msg_oid *id, msg_err *err) {
  msg_put one;
  int rc = put(u, call, session, m, &one, 1, err);
  if (rc == MSG_OK)
    *id = one.id;
  return rc;
}

int msg_node_send_one(msg_node *node, msg_call *call, msg_message *m, const msg_options *options,
                      msg_oid *id, msg_err *err) {
  msg_use u;
  int rc = msg_use_begin(&u, node, err);
  if (rc != MSG_OK)
    return rc;
  rc = fill(&u, m, options, err);
  if (rc == MSG_OK)
    rc = msg_send_one(&u, call, msg_call_writes(call), m, id, err);
  msg_use_end(&u);
  return rc;
}

int msg_node_send(msg_node *node, msg_call *call, const msg_message *messages, size_t n,
                  msg_oid *ids, bool *existed, msg_err *err) {
  msg_use u;
  msg_put few[PUTS_ON_STACK], *many = NULL;
  int rc = msg_use_begin(&u, node, err);
  if (rc != MSG_OK)
    return rc;
  if (n > PUTS_ON_STACK && !(many = msg_alloc(n * sizeof *many)))
    rc = msg_err_nomem(err);
  msg_put *puts = many ? many : few;
  if (rc == MSG_OK && n > 0)
    rc = put(&u, call, msg_call_writes(call), messages, puts, n, err);
  for (size_t i = 0; rc == MSG_OK && i < n; i++) {
    if (ids)
      ids[i] = puts[i].id;
    if (existed)
      existed[i] = puts[i].existed;
  }
  msg_free(many);
  msg_use_end(&u);
  return rc;
}

/* --- answering ----------------------------------------------------------------------------- */

/* What is asked: from memory if this node was handed it lately, else from the store. */
static int find_request(msg_use *u, msg_call *call, const msg_oid *id, msg_message *out,
                        msg_err *err) {
  msg_node *node = u->node;
  msg_mutex_lock(node->mtx);
  int rc = msg_recent_get(&node->recent, id, out);
  msg_mutex_unlock(node->mtx);
  if (rc == MSG_NOMEM)
    return msg_err_nomem(err);
  return rc == MSG_OK ? MSG_OK : MSG_STORE(u, call->session, get, id, out, err);
}

static int copy_text(char **to, const char *from, msg_err *err) {
  if (*to || !from)
    return MSG_OK;
  *to = msg_strdup(from);
  return *to ? MSG_OK : msg_err_nomem(err);
}

/* Morphium's answer factory, with what the options say on top. `o` is changed to what then counts
 * as given. */
static int build_answer(const msg_message *request, const msg_value *value, msg_options *o,
                        msg_message *a, msg_err *err) {
  for (size_t i = 0; i < a->recipient_count; i++)
    msg_free(a->recipients[i]);
  a->recipient_count = 0;
  msg_free(a->topic);
  a->topic = NULL;
  msg_value_clear(&a->value);
  int rc = copy_text(&a->topic, request->topic, err);
  if (rc == MSG_OK)
    rc = copy_text(&a->msg, request->msg, err);
  if (rc == MSG_OK && (msg_value_copy(&a->value, value) != MSG_OK ||
                       msg_message_add_recipient(a, request->sender) != MSG_OK))
    rc = msg_err_nomem(err);
  if (rc != MSG_OK)
    return rc;

  a->in_answer_to = request->id;
  a->exclusive = false;
  if (!o->has_priority)
    a->priority = request->priority < INT32_MIN + ANSWER_PRIORITY_STEP
                      ? INT32_MIN
                      : request->priority - ANSWER_PRIORITY_STEP;
  if (!a->delete_after_processing) {
    a->delete_after_processing = request->delete_after_processing;
    a->delete_after_processing_ms = request->delete_after_processing_ms;
  }
  if (!o->has_ttl && !o->has_timing_out) {
    a->timing_out = request->timing_out;
    a->ttl_ms = request->ttl_ms;
    o->has_timing_out = true;
    o->has_ttl = a->timing_out && a->ttl_ms > 0;
  }
  return MSG_OK;
}

static int answer(msg_use *u, msg_call *call, const msg_message *request, const msg_value *value,
                  const msg_options *options, msg_oid *out, msg_err *err) {
  msg_options given = {0}; /* only its flags are looked at */
  msg_message a;
  msg_message_init(&a);
  if (options) {
    given = *options;
    if (msg_message_copy(&a, &options->m) != MSG_OK)
      return msg_err_nomem(err);
  }
  int rc = build_answer(request, value, &given, &a, err);
  if (rc == MSG_OK)
    rc = fill(u, &a, &given, err);
  if (rc == MSG_OK)
    rc = msg_send_one(u, call, msg_call_writes(call), &a, out, err);
  msg_message_clear(&a);
  return rc;
}

int msg_node_reply(msg_node *node, msg_call *call, const msg_oid *id, const msg_value *value,
                   const msg_options *options, msg_oid *out, msg_err *err) {
  msg_use u;
  msg_message request;
  int rc = msg_use_begin(&u, node, err);
  if (rc != MSG_OK)
    return rc;
  rc = find_request(&u, call, id, &request, err);
  if (rc == MSG_OK) {
    rc = answer(&u, call, &request, value, options, out, err);
    msg_message_clear(&request);
  }
  if (rc == MSG_OK)
    msg_node_count(node, MSG_STAT_REPLIES, 1);
  msg_use_end(&u);
  return rc;
}
