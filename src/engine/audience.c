#include "engine/audience.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "engine/node_int.h"

#define PAUSE_MS 25 /* between two looks for answers */

/* One topic or recipient of a message that is about to be put. */
struct checking {
  msg_use *u;
  const msg_call *call;
  msg_session *session;
  const msg_message *m;
  const char *name;
  bool topic, reached;
};

/* --- what is remembered -------------------------------------------------------------------- */

static msg_whom *find_locked(msg_whom *list, size_t n, const char *name, bool topic) {
  for (size_t i = 0; i < n; i++)
    if (list[i].name && list[i].topic == topic && strcmp(list[i].name, name) == 0)
      return &list[i];
  return NULL;
}

/* False: it is there already, or memory is out. */
static bool note_locked(msg_whom *list, size_t n, size_t *next, const struct checking *c,
                        int64_t until_ms) {
  msg_whom *known = find_locked(list, n, c->name, c->topic);
  if (known) {
    known->until_ms = until_ms;
    return false;
  }
  char *name = msg_strdup(c->name);
  if (!name)
    return false;
  msg_whom *slot = &list[(*next)++ % n];
  msg_free(slot->name);
  *slot = (msg_whom){name, c->topic, until_ms};
  return true;
}

/* A store that has to ask others is not asked again for a while. */
static bool is_granted(const struct checking *c) {
  msg_node *node = c->u->node;
  if (!c->session->ops->ask_listeners)
    return false;
  msg_mutex_lock(node->mtx);
  const msg_whom *known = find_locked(node->audience.reached, MSG_REACHED_MAX, c->name, c->topic);
  bool granted = known && msg_clock_mono_ms() < known->until_ms;
  msg_mutex_unlock(node->mtx);
  return granted;
}

static void note_reached(const struct checking *c) {
  msg_node *node = c->u->node;
  msg_audience *a = &node->audience;
  int64_t for_ms = 1000 * c->u->policy->settings.registry_update_interval_s;
  msg_mutex_lock(node->mtx);
  msg_whom *missed = find_locked(a->missed, MSG_MISSED_MAX, c->name, c->topic);
  if (missed) {
    msg_free(missed->name);
    missed->name = NULL;
  }
  if (c->session->ops->ask_listeners)
    note_locked(a->reached, MSG_REACHED_MAX, &a->reached_next, c, msg_clock_mono_ms() + for_ms);
  msg_mutex_unlock(node->mtx);
}

void msg_audience_clear(msg_audience *a) {
  for (size_t i = 0; i < MSG_REACHED_MAX; i++)
    msg_free(a->reached[i].name);
  for (size_t i = 0; i < MSG_MISSED_MAX; i++)
    msg_free(a->missed[i].name);
  *a = (msg_audience){0};
}

bool msg_node_missed(msg_node *node, size_t i, char *name, size_t size, bool *topic) {
  bool found = false;
  msg_mutex_lock(node->mtx);
  for (size_t k = 0; k < MSG_MISSED_MAX && !found; k++) {
    const msg_whom *w = &node->audience.missed[k];
    if (!w->name || i-- > 0)
      continue;
    snprintf(name, size, "%s", w->name);
    *topic = w->topic;
    found = true;
  }
  msg_mutex_unlock(node->mtx);
  return found;
}

/* --- what the store knows ------------------------------------------------------------------ */

static bool matches(const char *pattern, const char *topic) {
  msg_pattern *p;
  if (strcmp(pattern, topic) == 0)
    return true;
  if (msg_pattern_new(pattern, &p, NULL) != MSG_OK)
    return false;
  bool is = msg_pattern_match(p, topic);
  msg_pattern_free(p);
  return is;
}

/* Nobody is handed his own broadcasts. A code that is not MSG_OK ends the listing. */
static int note_listener(void *arg, const msg_listener *row) {
  struct checking *c = arg;
  c->reached =
      row->alive && strcmp(row->node, c->u->node->id) != 0 && matches(row->pattern, c->name);
  return c->reached ? MSG_EXISTS : MSG_OK;
}

static int note_participant(void *arg, const msg_participant *row) {
  struct checking *c = arg;
  c->reached = row->alive && strcmp(row->node, c->name) == 0;
  return c->reached ? MSG_EXISTS : MSG_OK;
}

static int look(struct checking *c, msg_err *err) {
  int rc = c->topic ? MSG_STORE(c->u, c->session, listeners, note_listener, c, err)
                    : MSG_STORE(c->u, c->session, presence_list, note_participant, c, err);
  return rc == MSG_EXISTS ? MSG_OK : rc;
}

/* --- asking -------------------------------------------------------------------------------- */

static int64_t patience_ms(const msg_settings *s) {
  int64_t ms = 1000 * s->registry_update_interval_s;
  return ms < s->write_timeout_ms ? ms : s->write_timeout_ms;
}

static int pause(const struct checking *c, msg_err *err) {
  msg_clock_sleep_ms(PAUSE_MS);
  if (atomic_load(&c->u->node->shut))
    return msg_err_set(err, MSG_SHUTDOWN, "send on '%s': node closed: open it again with msg_open",
                       msg_show(c->m->topic).s);
  if (c->call->interrupted && c->call->interrupted(c->call->arg))
    return msg_err_set(err, MSG_INTERRUPTED, "send on '%s': interrupted before anything was sent",
                       msg_show(c->m->topic).s);
  return MSG_OK;
}

/* Until it is reached, all have answered, or patience is over. */
static int ask(struct checking *c, msg_err *err) {
  msg_oid id = msg_oid_new();
  size_t silent = 0;
  int64_t end_ms = msg_clock_mono_ms() + patience_ms(&c->u->policy->settings);
  int rc = MSG_STORE(c->u, c->session, ask_listeners, &c->u->actor, &id, true, &silent, err);
  while (rc == MSG_OK && !c->reached && silent > 0 && msg_clock_mono_ms() < end_ms) {
    rc = pause(c, err);
    if (rc == MSG_OK)
      rc = MSG_STORE(c->u, c->session, ask_listeners, &c->u->actor, &id, false, &silent, err);
    if (rc == MSG_OK)
      rc = look(c, err);
  }
  return rc;
}

/* --- checking ------------------------------------------------------------------------------ */

static int refuse(const struct checking *c, msg_err *err) {
  if (c->topic)
    return msg_err_set(err, MSG_MISUSE,
                       "send on '%s': nobody alive listens to this topic: let a node listen first, "
                       "send what shall wait by msg_enqueue, or set registry_check_topics to "
                       "'warn'",
                       msg_show(c->name).s);
  return msg_err_set(err, MSG_MISUSE,
                     "send on '%s': recipient '%s' is not alive: see table msg_participants, start "
                     "it first, or set registry_check_recipients to 'warn'",
                     msg_show(c->m->topic).s, msg_show(c->name).s);
}

/* Each once, until it is reached. */
static void warn(const struct checking *c) {
  msg_node *node = c->u->node;
  char text[256];
  msg_mutex_lock(node->mtx);
  bool new = note_locked(node->audience.missed, MSG_MISSED_MAX, &node->audience.missed_next, c, 0);
  msg_mutex_unlock(node->mtx);
  if (!new || !c->call->warn)
    return;
  if (c->topic)
    snprintf(text, sizeof text, "node '%.80s' sent to topic '%.80s', to which nobody listens",
             msg_show(node->id).s, msg_show(c->name).s);
  else
    snprintf(text, sizeof text, "node '%.80s' sent to '%.80s', which is not alive",
             msg_show(node->id).s, msg_show(c->name).s);
  c->call->warn(text);
}

static int check(struct checking *c, const char *name, bool topic, const char *how, msg_err *err) {
  bool throws = strcmp(how, "throw") == 0;
  if (strcmp(how, "ignore") == 0)
    return MSG_OK;
  c->name = name;
  c->topic = topic;
  c->reached = false;
  if (is_granted(c))
    return MSG_OK;
  int rc = look(c, err);
  if (rc == MSG_OK && !c->reached && c->session->ops->ask_listeners)
    rc = ask(c, err);
  if (rc != MSG_OK)
    return rc;
  if (c->reached)
    note_reached(c);
  else if (throws)
    return refuse(c, err);
  else
    warn(c);
  return MSG_OK;
}

static int check_message(struct checking *c, const msg_settings *s, msg_err *err) {
  const msg_message *m = c->m;
  int rc = MSG_OK;
  if (strcmp(m->topic, MSG_TOPIC_STATUS) == 0)
    return MSG_OK;
  if (m->recipient_count == 0 && !m->exclusive && msg_oid_is_zero(&m->in_answer_to))
    rc = check(c, m->topic, true, msg_settings_registry_check_topics(s), err);
  for (size_t i = 0; rc == MSG_OK && i < m->recipient_count; i++)
    if (strcmp(m->recipients[i], c->u->node->id) != 0)
      rc = check(c, m->recipients[i], false, msg_settings_registry_check_recipients(s), err);
  return rc;
}

/* What is only kept for the commit has no looks. Within a transaction of the host's the write comes
 * first, so that what is read is not stale when it follows. */
int msg_audience_check(msg_use *u, const msg_call *call, msg_session *session,
                       const msg_message *messages, size_t n, msg_err *err) {
  const msg_settings *s = &u->policy->settings;
  struct checking c = {.u = u, .call = call, .session = session};
  if (!s->registry_enabled)
    return MSG_OK;
  if (session == call->writes)
    c.session = call->session;
  int rc = c.session->ops->lock ? c.session->ops->lock(c.session, err) : MSG_OK;
  for (size_t i = 0; rc == MSG_OK && i < n; i++) {
    c.m = &messages[i];
    rc = check_message(&c, s, err);
  }
  return rc;
}
