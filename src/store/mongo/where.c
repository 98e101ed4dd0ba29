#include "store/mongo/where.h"

#include <string.h>

#include "base/mem.h"
#include "store/mongo/catalog.h"
#include "store/mongo/pipe.h"
#include "store/mongo/query.h"

#define MET_MAX 8192 /* a power of 2 */

/* ---- lists ---- */

void msg_mongo_spots_clear(msg_mongo_spots *l) {
  for (size_t i = 0; i < l->n; i++)
    msg_mongo_ids_clear(&l->at[i].ids);
  msg_free(l->at);
  *l = (msg_mongo_spots){0};
}

static int add(msg_mongo_spots *l, msg_mongo_place *p, const msg_oid *id, msg_err *err) {
  size_t i = 0;
  while (i < l->n && l->at[i].place != p)
    i++;
  if (i == l->n) {
    if (msg_grow(&l->at, &l->cap, l->n + 1, sizeof *l->at) != MSG_OK)
      return msg_err_nomem(err);
    l->at[l->n++] = (msg_mongo_spot){.place = p};
  }
  return msg_mongo_ids_add(&l->at[i].ids, id) == MSG_OK ? MSG_OK : msg_err_nomem(err);
}

static int add_all(msg_mongo_spots *l, msg_mongo_place *p, const msg_oid *ids, size_t n,
                   msg_err *err) {
  int rc = MSG_OK;
  for (size_t i = 0; rc == MSG_OK && i < n; i++)
    rc = add(l, p, &ids[i], err);
  return rc;
}

/* ---- looking ---- */

struct looking {
  const msg_mongo_places *places;
  msg_mongo_spots *out;
};

static int note(void *arg, const bson_t *doc, msg_err *err) {
  const struct looking *l = arg;
  msg_mongo_place *p = msg_mongo_pipe_place(l->places, doc);
  msg_oid id;
  return p && msg_mongo_get_oid(doc, "_id", &id) ? add(l->out, p, &id, err) : MSG_OK;
}

static int look(msg_mongo_use *u, const msg_mongo_places *places, const msg_oid *ids, size_t n,
                msg_mongo_spots *out, msg_err *err) {
  bson_t match = BSON_INITIALIZER, *project = BCON_NEW("_id", BCON_INT32(1));
  struct looking l = {places, out};
  msg_mongo_pipe pipe;
  msg_mongo_append_ids(&match, "_id", "$in", ids, n);
  msg_mongo_pipe_begin(&pipe, places, &match, project);
  int rc = msg_mongo_pipe_each(&pipe, u, "look for messages", note, &l, err);
  bson_destroy(project);
  bson_destroy(&match);
  return rc;
}

/* All of them, by looking. *out is the caller's, also on failure. */
static int locate(const msg_mongo_session *s, msg_mongo_use *u, const msg_oid *ids, size_t n,
                  msg_mongo_spots *out, msg_err *err) {
  msg_mongo_places places = {0};
  *out = (msg_mongo_spots){0};
  if (!s->queue->layout->lanes)
    return add_all(out, s->queue->main, ids, n, err);
  int rc = msg_mongo_places_all(s, u, &places, err);
  if (rc == MSG_OK && places.n && n)
    rc = look(u, &places, ids, n, out, err);
  msg_mongo_places_clear(&places);
  return rc;
}

/* Of copies in lanes one may go meanwhile. */
static int each_spot(msg_mongo_session *s, msg_mongo_use *u, const msg_mongo_spots *spots,
                     msg_mongo_at_fn fn, void *arg, msg_err *err) {
  bool found = false;
  for (size_t i = 0; i < spots->n; i++) {
    msg_mongo_session at = msg_mongo_session_at(s, spots->at[i].place);
    int rc = fn(&at, u, arg, err);
    if (rc != MSG_OK && rc != MSG_NOTFOUND)
      return rc;
    found = found || rc == MSG_OK;
  }
  return found ? MSG_OK : MSG_NOTFOUND;
}

int msg_mongo_where_each(msg_mongo_session *s, const char *what, const msg_oid *id,
                         msg_mongo_at_fn fn, void *arg, msg_err *err) {
  msg_mongo_spots spots;
  msg_mongo_use u;
  int rc = msg_mongo_take_bounded(s, what, &u, err);
  if (rc != MSG_OK)
    return rc;
  rc = locate(s, &u, id, 1, &spots, err);
  if (rc == MSG_OK)
    rc = each_spot(s, &u, &spots, fn, arg, err);
  msg_mongo_spots_clear(&spots);
  msg_mongo_give(&u);
  return rc;
}

/* ---- memory: one entry for all ids that meet there ---- */

struct msg_mongo_met {
  msg_oid id;
  msg_mongo_place *place;
  bool many; /* copies in several lanes */
};

static size_t slot(const msg_oid *id) {
  return ((size_t)id->b[9] << 16 | (size_t)id->b[10] << 8 | id->b[11]) & (MET_MAX - 1);
}

static void note_met(struct msg_mongo_met *met, const msg_oid *id, msg_mongo_place *place) {
  bool again = met->place && msg_oid_cmp(&met->id, id) == 0 && place->kind == MSG_MONGO_LANES &&
               met->place->kind == MSG_MONGO_LANES;
  bool many = again && (met->many || met->place != place);
  *met = (struct msg_mongo_met){*id, place, many};
}

void msg_mongo_met(const msg_mongo_session *at, const msg_oid *id) {
  msg_mongo_store *store = at->store;
  if (!at->queue->layout->lanes)
    return;
  msg_mutex_lock(store->mtx);
  if (!store->met)
    store->met = msg_zalloc(MET_MAX * sizeof *store->met);
  if (store->met)
    note_met(&store->met[slot(id)], id, at->place);
  msg_mutex_unlock(store->mtx);
}

msg_mongo_place *msg_mongo_last_met(const msg_mongo_session *s, const msg_oid *id) {
  msg_mongo_place *p = NULL;
  if (!s->queue->layout->lanes)
    return s->queue->main;
  msg_mutex_lock(s->store->mtx);
  const struct msg_mongo_met *met = s->store->met ? &s->store->met[slot(id)] : NULL;
  if (met && !met->many && msg_oid_cmp(&met->id, id) == 0)
    p = met->place;
  msg_mutex_unlock(s->store->mtx);
  return p && p->queue == s->queue ? p : NULL;
}

/* Another's lane is not where a node's copy is. */
static msg_mongo_place *met_by(const msg_mongo_session *s, const char *node, const msg_oid *id) {
  msg_mongo_place *p = msg_mongo_last_met(s, id);
  bool others = p && node && p->kind == MSG_MONGO_LANES && p != msg_mongo_place_lane(s, node);
  return others ? NULL : p;
}

int msg_mongo_recall(const msg_mongo_session *s, msg_mongo_use *u, const char *node,
                     const msg_oid *ids, size_t n, msg_mongo_spots *out, msg_err *err) {
  msg_mongo_ids unknown = {0};
  msg_mongo_spots others = {0};
  int rc = MSG_OK;
  *out = (msg_mongo_spots){0};
  if (!s->queue->layout->lanes)
    return add_all(out, s->queue->main, ids, n, err);
  for (size_t i = 0; rc == MSG_OK && i < n; i++) {
    msg_mongo_place *p = met_by(s, node, &ids[i]);
    if (p)
      rc = add(out, p, &ids[i], err);
    else if (msg_mongo_ids_add(&unknown, &ids[i]) != MSG_OK)
      rc = msg_err_nomem(err);
  }
  if (rc == MSG_OK && unknown.n && !u)
    rc = msg_err_set(err, MSG_UNSUPPORTED, "where: messages that were not met");
  if (rc == MSG_OK && unknown.n)
    rc = locate(s, u, unknown.at, unknown.n, &others, err);
  for (size_t i = 0; rc == MSG_OK && i < others.n; i++)
    rc = add_all(out, others.at[i].place, others.at[i].ids.at, others.at[i].ids.n, err);
  msg_mongo_spots_clear(&others);
  msg_mongo_ids_clear(&unknown);
  return rc;
}
