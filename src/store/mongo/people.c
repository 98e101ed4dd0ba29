#include "store/mongo/people.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/process.h"
#include "store/mongo/answers.h"
#include "store/mongo/document.h"

/* By its process where that can be seen, else by its last sign of life. */
bool msg_mongo_is_alive(const msg_mongo_session *s, const bson_t *doc) {
  const char *process = msg_mongo_get_text(doc, "sq.process");
  switch (msg_process_liveness(process ? process : "")) {
  case MSG_ALIVE: return true;
  case MSG_DEAD: return false;
  case MSG_UNKNOWN: break;
  }
  int64_t last_seen_ms = msg_mongo_get_int(doc, "last_seen", 0);
  return msg_clock_add(last_seen_ms, s->participant_timeout_ms) >= msg_mongo_now_ms(s->store);
}

static char *copy_of(const char *text, bool *nomem) {
  char *copy = msg_strdup(text ? text : "");
  *nomem = *nomem || !copy;
  return copy;
}

struct loading {
  msg_mongo_session *s;
  msg_mongo_people *people;
};

static int add_person(void *arg, const bson_t *doc, msg_err *err) {
  struct loading *l = arg;
  msg_mongo_people *people = l->people;
  bool nomem = false;
  const char *node = msg_mongo_get_text(doc, "_id"),
             *named = msg_mongo_get_text(doc, "implementation");
  const char *ours = msg_mongo_get_text(doc, "sq.implementation"),
             *layout = msg_mongo_get_text(doc, "sq.layout");
  if (!node)
    return MSG_OK; /* no participant of anybody's */
  if (msg_grow(&people->at, &people->cap, people->n + 1, sizeof *people->at) != MSG_OK)
    return msg_err_nomem(err);
  msg_participant *p = &people->at[people->n++];
  *p = (msg_participant){
      .node = copy_of(node, &nomem),
      .host = copy_of(msg_mongo_get_text(doc, "hostname"), &nomem),
      .implementation = copy_of(ours ? ours : named, &nomem),
      .layout = copy_of(layout ? layout : msg_mongo_layout_announced(named)->name, &nomem),
      .process = copy_of(msg_mongo_get_text(doc, "sq.process"), &nomem),
      .pid = (int)msg_mongo_get_int(doc, "sq.pid", 0),
      .automatic = msg_mongo_get_int(doc, "sq.automatic", 0) != 0,
      .started_at_ms = msg_mongo_get_int(doc, "started_at", 0),
      .last_seen_ms = msg_mongo_get_int(doc, "last_seen", 0),
  };
  if (nomem)
    return msg_err_nomem(err);
  p->alive = msg_mongo_is_alive(l->s, doc);
  return MSG_OK;
}

int msg_mongo_people_load(msg_mongo_session *s, msg_mongo_use *u, msg_mongo_people *out,
                          msg_err *err) {
  struct loading l = {s, out};
  bson_t all = BSON_INITIALIZER;
  bson_t *opts = BCON_NEW("sort", "{", "_id", BCON_INT32(1), "}");
  *out = (msg_mongo_people){0};
  int rc =
      msg_mongo_each(u, s->names.participants, "participants", &all, opts, add_person, &l, err);
  bson_destroy(&all);
  bson_destroy(opts);
  return rc;
}

static int note_answer(void *arg, const msg_mongo_answer *a, msg_err *err) {
  struct loading *l = arg;
  bool nomem = false;
  for (size_t i = 0; i < l->people->n; i++) {
    msg_participant *known = &l->people->at[i];
    if (strcmp(known->node, a->node) != 0)
      continue;
    known->alive = known->alive || !known->process[0]; /* of ours the process tells */
    return MSG_OK;
  }
  if (msg_grow(&l->people->at, &l->people->cap, l->people->n + 1, sizeof *l->people->at) != MSG_OK)
    return msg_err_nomem(err);
  l->people->at[l->people->n++] = (msg_participant){.node = copy_of(a->node, &nomem),
                                                    .host = copy_of("", &nomem),
                                                    .implementation = copy_of("", &nomem),
                                                    .layout = copy_of("", &nomem),
                                                    .process = copy_of("", &nomem),
                                                    .alive = true,
                                                    .last_seen_ms = a->timestamp_ms};
  return nomem ? msg_err_nomem(err) : MSG_OK;
}

int msg_mongo_people_add_answering(msg_mongo_session *s, msg_mongo_use *u, msg_mongo_people *people,
                                   msg_err *err) {
  struct loading l = {s, people};
  return msg_mongo_answers(s, u, NULL, NULL, note_answer, &l, err);
}

void msg_mongo_people_clear(msg_mongo_people *p) {
  for (size_t i = 0; i < p->n; i++)
    msg_participant_clear(&p->at[i]);
  msg_free(p->at);
  *p = (msg_mongo_people){0};
}

const msg_participant *msg_mongo_people_find(const msg_mongo_people *p, const char *node) {
  for (size_t i = 0; i < p->n; i++)
    if (strcmp(p->at[i].node, node) == 0)
      return &p->at[i];
  return NULL;
}

bool msg_mongo_people_own_lane(const msg_mongo_session *s, const msg_mongo_people *p,
                               const char *lane) {
  for (size_t i = 0; i < p->n; i++) {
    msg_mongo_at at;
    msg_mongo_at_lane(s->queue->layout, &s->queue->names, p->at[i].node, &at);
    if (p->at[i].alive && strcmp(at.messages, lane) == 0)
      return true;
  }
  return false;
}
