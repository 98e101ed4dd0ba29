#include "store/mongo/split.h"

#include "base/mem.h"

static bool piece_init(msg_mongo_piece *p, msg_mongo_place *place, size_t n) {
  p->place = place;
  p->items = msg_alloc(n * sizeof *p->items);
  p->from = msg_alloc(n * sizeof *p->from);
  return p->items && p->from;
}

/* In a queue of one place all are there. */
static void fill(msg_mongo_piece *p, const msg_mongo_ids *ids, bool all,
                 const msg_settle_item *items, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (all || msg_mongo_ids_have(ids, &items[i].id)) {
      p->items[p->n] = items[i];
      p->items[p->n].done = false;
      p->from[p->n++] = i;
    }
}

static int find(const msg_mongo_session *s, msg_mongo_use *u, const msg_settle_item *items,
                size_t n, msg_mongo_spots *out, msg_err *err) {
  msg_mongo_ids ids = {0};
  int rc = MSG_OK;
  for (size_t i = 0; rc == MSG_OK && i < n; i++)
    if (msg_mongo_ids_add(&ids, &items[i].id) != MSG_OK)
      rc = msg_err_nomem(err);
  if (rc == MSG_OK)
    rc = msg_mongo_recall(s, u, NULL, ids.at, ids.n, out, err);
  msg_mongo_ids_clear(&ids);
  return rc;
}

int msg_mongo_split_of(const msg_mongo_session *s, msg_mongo_use *u, const msg_settle_item *items,
                       size_t n, msg_mongo_split *out, msg_err *err) {
  msg_mongo_spots spots = {0};
  int rc = find(s, u, items, n, &spots, err);
  *out = (msg_mongo_split){0};
  if (rc == MSG_OK && spots.n && !(out->at = msg_zalloc(spots.n * sizeof *out->at)))
    rc = msg_err_nomem(err);
  for (size_t i = 0; rc == MSG_OK && i < spots.n; i++) {
    if (!piece_init(&out->at[out->n++], spots.at[i].place, n))
      rc = msg_err_nomem(err);
    else
      fill(&out->at[i], &spots.at[i].ids, spots.n == 1 && spots.at[0].ids.n == n, items, n);
  }
  msg_mongo_spots_clear(&spots);
  return rc;
}

void msg_mongo_split_clear(msg_mongo_split *l) {
  for (size_t i = 0; i < l->n; i++) {
    msg_free(l->at[i].items);
    msg_free(l->at[i].from);
  }
  msg_free(l->at);
  *l = (msg_mongo_split){0};
}

void msg_mongo_split_done(const msg_mongo_split *l, msg_settle_item *items, size_t n) {
  for (size_t i = 0; i < n; i++)
    items[i].done = false;
  for (size_t i = 0; i < l->n; i++)
    for (size_t k = 0; k < l->at[i].n; k++)
      if (l->at[i].items[k].done)
        items[l->at[i].from[k]].done = true;
}
