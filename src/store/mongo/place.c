#include "store/mongo/place.h"

#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "store/mongo/lease.h"
#include "store/mongo/marks.h"

/* ---- life ---- */

msg_mongo_place *msg_mongo_place_add_locked(msg_mongo_store *store, msg_mongo_queue *queue,
                                            enum msg_mongo_goes kind, const msg_mongo_at *at) {
  msg_mongo_place *p = msg_zalloc(sizeof *p);
  if (!p || !(p->inserted = msg_cond_new())) {
    msg_free(p);
    return NULL;
  }
  p->queue = queue;
  p->kind = kind;
  p->at = *at;
  p->next = store->places;
  return store->places = p;
}

msg_mongo_place *msg_mongo_place_of(msg_mongo_store *store, msg_mongo_queue *queue,
                                    enum msg_mongo_goes kind, const msg_mongo_at *at) {
  msg_mutex_lock(store->mtx);
  msg_mongo_place *p = store->places;
  while (p && (p->queue != queue || strcmp(p->at.messages, at->messages) != 0))
    p = p->next;
  if (!p)
    p = msg_mongo_place_add_locked(store, queue, kind, at);
  msg_mutex_unlock(store->mtx);
  return p;
}

void msg_mongo_places_free(msg_mongo_store *store) {
  while (store->places) {
    msg_mongo_place *p = store->places;
    store->places = p->next;
    msg_mongo_seers_free(p);
    msg_mongo_ids_clear(&p->claiming);
    msg_mongo_leases_forget(p);
    msg_texts_clear(&p->topics);
    msg_cond_free(p->inserted);
    msg_free(p);
  }
}

msg_mongo_session msg_mongo_session_at(const msg_mongo_session *s, msg_mongo_place *place) {
  msg_mongo_session at = *s;
  at.place = place;
  memcpy(at.names.messages, place->at.messages, sizeof at.names.messages);
  memcpy(at.names.locks, place->at.locks, sizeof at.names.locks);
  return at;
}

/* ---- lists ---- */

static bool places_have(const msg_mongo_places *l, const msg_mongo_place *p) {
  for (size_t i = 0; i < l->n; i++)
    if (l->at[i] == p)
      return true;
  return false;
}

int msg_mongo_places_add(msg_mongo_places *l, msg_mongo_place *p, msg_err *err) {
  if (!p)
    return msg_err_nomem(err);
  if (places_have(l, p))
    return MSG_OK;
  if (msg_grow(&l->at, &l->cap, l->n + 1, sizeof *l->at) != MSG_OK)
    return msg_err_nomem(err);
  l->at[l->n++] = p;
  return MSG_OK;
}

void msg_mongo_places_clear(msg_mongo_places *l) {
  msg_free(l->at);
  *l = (msg_mongo_places){0};
}

/* ---- where a message is put ---- */

/* Bytes a collection's name may have. */
static size_t room(const msg_mongo_session *s) {
  return 255 - strlen(s->store->db) - 1;
}

int msg_mongo_topic_at(const msg_mongo_session *s, const char *topic, msg_mongo_at *out,
                       msg_err *err) {
  return msg_mongo_at_topic(s->queue->name, topic, room(s), out, err);
}

int msg_mongo_places_topic(const msg_mongo_session *s, const char *topic, msg_mongo_places *out,
                           msg_err *err) {
  msg_mongo_at at;
  int rc = msg_mongo_topic_at(s, topic, &at, err);
  if (rc != MSG_OK)
    return rc;
  return msg_mongo_places_add(out, msg_mongo_place_of(s->store, s->queue, MSG_MONGO_TOPIC, &at),
                              err);
}

msg_mongo_place *msg_mongo_place_lane(const msg_mongo_session *s, const char *node) {
  msg_mongo_at at;
  if (!s->queue->layout->lanes)
    return NULL;
  msg_mongo_at_lane(s->queue->layout, &s->queue->names, node, &at);
  return msg_mongo_place_of(s->store, s->queue, MSG_MONGO_LANES, &at);
}

static int add_lanes(const msg_mongo_session *s, const msg_message *m, msg_mongo_places *out,
                     msg_err *err) {
  int rc = MSG_OK;
  for (size_t i = 0; rc == MSG_OK && i < m->recipient_count; i++)
    rc = msg_mongo_places_add(out, msg_mongo_place_lane(s, m->recipients[i]), err);
  return rc;
}

int msg_mongo_places_put(const msg_mongo_session *s, const msg_message *m, bool later,
                         msg_mongo_places *out, msg_err *err) {
  msg_mongo_at at;
  switch (msg_mongo_goes(s->queue->layout, m, later)) {
  case MSG_MONGO_TOPIC: return msg_mongo_places_topic(s, m->topic, out, err);
  case MSG_MONGO_LANES: return add_lanes(s, m, out, err);
  case MSG_MONGO_APART:
    msg_mongo_at_apart(&s->queue->names, &at);
    return msg_mongo_places_add(out, msg_mongo_place_of(s->store, s->queue, MSG_MONGO_APART, &at),
                                err);
  case MSG_MONGO_MAIN: break;
  }
  return msg_mongo_places_add(out, s->queue->main, err);
}
