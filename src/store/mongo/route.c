#include "store/mongo/route.h"

#include <string.h>

#include "base/mem.h"
#include "store/mongo/topics.h"

bool msg_mongo_is_later(const msg_mongo_session *s, const msg_message *m, int64_t now_ms) {
  return m->deliver_at_ms > m->timestamp_ms &&
         m->deliver_at_ms + s->store->clock_offset_ms > now_ms;
}

static msg_mongo_route *route_to(msg_mongo_routes *r, msg_mongo_place *p) {
  for (size_t i = r->n; i-- > 0;) /* mostly the last one */
    if (r->at[i].place == p)
      return &r->at[i];
  if (msg_grow(&r->at, &r->cap, r->n + 1, sizeof *r->at) != MSG_OK)
    return NULL;
  r->at[r->n] = (msg_mongo_route){.place = p};
  return &r->at[r->n++];
}

static int add(msg_mongo_routes *r, msg_mongo_place *p, msg_put *item, msg_err *err) {
  msg_mongo_route *to = route_to(r, p);
  if (!to || msg_grow(&to->items, &to->cap, to->n + 1, sizeof *to->items) != MSG_OK)
    return msg_err_nomem(err);
  to->items[to->n++] = item;
  return MSG_OK;
}

int msg_mongo_routes_of(const msg_mongo_session *s, msg_put *items, size_t n, msg_mongo_routes *out,
                        msg_err *err) {
  int rc = MSG_OK;
  *out = (msg_mongo_routes){.now_ms = msg_mongo_now_ms(s->store)};
  for (size_t i = 0; rc == MSG_OK && i < n; i++) {
    const msg_message *m = items[i].message;
    msg_mongo_places to = {0};
    rc = msg_mongo_places_put(s, m, msg_mongo_is_later(s, m, out->now_ms), &to, err);
    for (size_t k = 0; rc == MSG_OK && k < to.n; k++)
      rc = add(out, to.at[k], &items[i], err);
    msg_mongo_places_clear(&to);
  }
  if (rc != MSG_OK)
    msg_mongo_routes_clear(out);
  return rc;
}

void msg_mongo_routes_clear(msg_mongo_routes *r) {
  for (size_t i = 0; i < r->n; i++)
    msg_free(r->at[i].items);
  msg_free(r->at);
  *r = (msg_mongo_routes){0};
}

/* Those of one topic follow each other, mostly. */
static int admit(const msg_mongo_session *at, msg_mongo_use *u, const msg_mongo_route *r,
                 msg_err *err) {
  int rc = MSG_OK;
  const char *last = "";
  for (size_t i = 0; rc == MSG_OK && i < r->n; i++) {
    const char *topic = r->items[i]->message->topic;
    if (strcmp(topic, last) != 0)
      rc = msg_mongo_place_admit(at, u, topic, err);
    last = topic;
  }
  return rc;
}

static void need(msg_mongo_session *at, const msg_mongo_route *r) {
  for (size_t i = 0; i < r->n; i++)
    if (r->items[i]->message->group) {
      msg_mongo_need_groups(at);
      return;
    }
}

int msg_mongo_routes_ready(const msg_mongo_session *s, msg_mongo_use *u, const msg_mongo_routes *r,
                           msg_err *err) {
  int rc = MSG_OK;
  for (size_t i = 0; rc == MSG_OK && i < r->n; i++) {
    msg_mongo_session at = msg_mongo_session_at(s, r->at[i].place);
    need(&at, &r->at[i]);
    rc = msg_mongo_indexes(&at, u, err);
    if (rc == MSG_OK)
      rc = admit(&at, u, &r->at[i], err);
  }
  return rc;
}
