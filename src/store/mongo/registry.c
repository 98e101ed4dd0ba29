#include "store/mongo/registry.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/process.h"
#include "store/mongo/answers.h"
#include "store/mongo/lane.h"
#include "store/mongo/people.h"
#include "store/mongo/status.h"
#include "store/mongo/tend.h"

/* Answers live as long as the question: over the next one. */
#define LIFE_MIN_MS 30000

/* --- the question -------------------------------------------------------------------------- */

static int build(const char *node, const msg_oid *id, msg_message *m) {
  msg_message_init(m);
  m->id = *id;
  m->topic = msg_strdup(MSG_MONGO_STATUS_TOPIC);
  m->msg = msg_strdup(MSG_MONGO_REGISTRY_ASKS);
  m->sender = msg_strdup(node);
  m->sender_host = msg_strdup(msg_process_host());
  m->timing_out = true;
  msg_value all = msg_value_text("all");
  bool ok = m->topic && m->msg && m->sender && m->sender_host;
  return ok && msg_value_copy(&m->value, &all) == MSG_OK ? MSG_OK : MSG_NOMEM;
}

static int put_question(msg_mongo_session *s, const msg_actor *actor, const msg_oid *id,
                        msg_err *err) {
  msg_message m;
  if (build(actor->node, id, &m) != MSG_OK) {
    msg_message_clear(&m);
    return msg_err_nomem(err);
  }
  m.ttl_ms = 2 * s->update_ms > LIFE_MIN_MS ? 2 * s->update_ms : LIFE_MIN_MS;
  m.timestamp_ms = m.deliver_at_ms = msg_mongo_now_ms(s->store);
  m.delete_at_ms = msg_clock_add(m.timestamp_ms, m.ttl_ms);
  msg_put put = {.message = &m, .id = m.id};
  int rc = s->base.ops->put(&s->base, actor, &put, 1, err);
  msg_message_clear(&m);
  return rc;
}

/* --- who is still to answer ---------------------------------------------------------------- */

static int note_answer(void *arg, const msg_mongo_answer *a, msg_err *err) {
  return msg_texts_note(arg, a->node) == MSG_OK ? MSG_OK : msg_err_nomem(err);
}

/* Of our kind everybody says as a participant what he listens to. */
static size_t count_silent(const msg_mongo_people *people, const msg_texts *answered) {
  size_t n = 0;
  for (size_t i = 0; i < people->n; i++) {
    const msg_participant *p = &people->at[i];
    n += p->alive && !p->process[0] && !msg_texts_have(answered, p->node);
  }
  return n;
}

static int look_for_silent(msg_mongo_session *s, const msg_actor *actor, const msg_oid *id,
                           size_t *silent, msg_err *err) {
  msg_mongo_people people = {0};
  msg_texts answered = {0};
  msg_mongo_use u;
  int rc = msg_mongo_take_bounded(s, "send", &u, err);
  if (rc != MSG_OK)
    return rc;
  rc = msg_mongo_people_load(s, &u, &people, err);
  if (rc == MSG_OK)
    rc = msg_mongo_people_add_answering(s, &u, &people, err);
  if (rc == MSG_OK)
    rc = msg_mongo_answers(s, &u, actor->node, id, note_answer, &answered, err);
  msg_mongo_give(&u);
  if (rc == MSG_OK)
    *silent = count_silent(&people, &answered);
  msg_texts_clear(&answered);
  msg_mongo_people_clear(&people);
  return rc;
}

int msg_mongo_ask_listeners(msg_session *base, const msg_actor *actor, const msg_oid *id,
                            bool first, size_t *silent, msg_err *err) {
  msg_mongo_session *s = (msg_mongo_session *)base;
  int rc = look_for_silent(s, actor, id, silent, err);
  return rc == MSG_OK && first && *silent > 0 ? put_question(s, actor, id, err) : rc;
}

/* --- by time ------------------------------------------------------------------------------- */

/* Not before anybody could answer, as Morphium's does, which so drops lanes of the living. Lanes of
 * multi are those of other queues, too, whose nodes are not known here. */
static void sweep(msg_mongo_session *s) {
  msg_mongo_use u;
  if (!s->queue->layout->lanes || s->queue->layout->topics ||
      msg_mongo_take(s->store, "sweep", &u, NULL) != MSG_OK)
    return;
  msg_mongo_lanes_sweep(s, &u, NULL);
  msg_mongo_give(&u);
}

static void ask(msg_mongo_session *s, const msg_mongo_own *own) {
  msg_settings settings;
  msg_settings_init(&settings);
  settings.write_timeout_ms = s->write_timeout_ms;
  msg_actor actor = {own->row.node, own->row.process, &settings};
  msg_oid id = msg_oid_new();
  put_question(s, &actor, &id, NULL);
}

/* By one node for all of the process. */
static int64_t tend(msg_mongo_session *s, const msg_mongo_own *own, size_t n) {
  const msg_mongo_own *asks = NULL;
  bool sweeps = false;
  int64_t pause_ms = MSG_NEVER;
  for (size_t i = 0; i < n; i++) {
    if (!own[i].registry)
      continue;
    asks = asks ? asks : &own[i];
    sweeps = sweeps || own[i].sweeps;
    pause_ms = own[i].update_ms < pause_ms ? own[i].update_ms : pause_ms;
  }
  if (!asks)
    return 0;
  if (sweeps && atomic_load(&s->queue->registry_asked))
    sweep(s);
  ask(s, asks);
  atomic_store(&s->queue->registry_asked, true);
  return msg_clock_mono_ms() + pause_ms;
}

void msg_mongo_registry_tend(msg_mongo_session *s) {
  msg_mongo_own *own = NULL;
  size_t n = 0;
  int64_t due_ms = atomic_load(&s->queue->registry_due_ms);
  if (due_ms == 0 || msg_clock_mono_ms() < due_ms ||
      msg_mongo_own_list(s->store, s->queue, &own, &n, NULL) != MSG_OK)
    return;
  due_ms = tend(s, own, n);
  atomic_store(&s->queue->registry_due_ms, due_ms);
  if (due_ms == 0)
    atomic_store(&s->queue->registry_asked, false);
  msg_mongo_own_free(own, n);
}
