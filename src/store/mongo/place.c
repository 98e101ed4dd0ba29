#include "store/mongo/place.h"

#include <string.h>

#include "base/mem.h"
#include "store/mongo/marks.h"

/* ---- life ---- */

static msg_mongo_place *add_locked(msg_mongo_store *store, msg_mongo_queue *queue,
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
    p = add_locked(store, queue, kind, at);
  msg_mutex_unlock(store->mtx);
  return p;
}

void msg_mongo_places_free(msg_mongo_store *store) {
  while (store->places) {
    msg_mongo_place *p = store->places;
    store->places = p->next;
    for (size_t i = 0; i < p->mark_count; i++)
      msg_free(p->marks[i].node);
    msg_cond_free(p->inserted);
    msg_free(p->marks);
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
