/* hold.c - claims of one process do not race: what one is at, the others leave alone. */
#include "store/mongo/claiming.h"

#define OTHERS_MAX 1000

size_t msg_mongo_claiming_ask(msg_mongo_claiming *c, size_t count) {
  size_t n = 0;
  msg_mutex_lock(c->s->store->mtx);
  for (size_t i = 0; i < c->spot_count; i++)
    n += c->spots[i].s.place->claiming.n;
  msg_mutex_unlock(c->s->store->mtx);
  return count + (n < OTHERS_MAX ? n : OTHERS_MAX);
}

void msg_mongo_claiming_hold(msg_mongo_claiming *c, size_t count) {
  size_t n = 0;
  if (c->picked_count == 0)
    return;
  msg_mutex_lock(c->s->store->mtx);
  for (size_t i = 0; i < c->picked_count && n < count; i++)
    if (msg_mongo_ids_insert(&c->spots[c->picked[i].spot].s.place->claiming, &c->picked[i].id))
      c->picked[n++] = c->picked[i];
  msg_mutex_unlock(c->s->store->mtx);
  c->picked_count = n;
}

void msg_mongo_claiming_let_go(msg_mongo_claiming *c) {
  if (c->picked_count == 0)
    return;
  msg_mutex_lock(c->s->store->mtx);
  for (size_t i = 0; i < c->picked_count; i++)
    msg_mongo_ids_remove(&c->spots[c->picked[i].spot].s.place->claiming, &c->picked[i].id);
  msg_mutex_unlock(c->s->store->mtx);
  c->picked_count = 0;
}
