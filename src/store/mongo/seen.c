/* seen.c - what a node is handed: its name goes into processed_by behind the hand-out, by the
 * store's thread (marker.c), for nobody shall wait for that write.
 *
 * Threads of one process settle among themselves who has a message (marks.h). Processes that share
 * a sender id do not: both may hand a message out before the mark of either is there. */
#include <string.h>

#include "base/mem.h"
#include "store/mongo/chores.h"
#include "store/mongo/marks.h"
#include "store/mongo/query.h"
#include "store/mongo/where.h"

/* Those that have just come are there; alive they are by our clock. */
static void judge_by_clock(const msg_mongo_session *s, const msg_list *list, const bool *mine,
                           bool *won) {
  int64_t now_ms = msg_mongo_now_ms(s->store);
  for (size_t i = 0; i < list->n; i++)
    won[i] = mine[i] && list->at[i].delete_at_ms > now_ms;
}

struct judging {
  const msg_list *list;
  const bool *mine;
  bool *won;
};

static int note_won(void *arg, const bson_t *doc, msg_err *err) {
  const struct judging *j = arg;
  msg_oid id;
  (void)err;
  if (msg_mongo_get_oid(doc, "_id", &id))
    for (size_t i = 0; i < j->list->n; i++)
      if (j->mine[i] && msg_oid_cmp(&j->list->at[i].id, &id) == 0)
        j->won[i] = true;
  return MSG_OK;
}

/* Those that are there, alive and without the node's mark. */
static int judge_by_store(msg_mongo_session *s, const char *node, const msg_list *list,
                          const bool *mine, bool *won, msg_err *err) {
  bson_t filter = BSON_INITIALIZER;
  bson_t *opts = BCON_NEW("projection", "{", "_id", BCON_INT32(1), "}");
  struct judging j = {list, mine, won};
  msg_mongo_ids ids = {0};
  msg_mongo_use u;
  int rc = msg_mongo_take_bounded(s, "await", &u, err);
  for (size_t i = 0; rc == MSG_OK && i < list->n; i++)
    if (mine[i] && msg_mongo_ids_add(&ids, &list->at[i].id) != MSG_OK)
      rc = msg_err_nomem(err);
  msg_mongo_append_ids(&filter, "_id", "$in", ids.at, ids.n);
  BCON_APPEND(&filter, "processed_by", "{", "$ne", BCON_UTF8(node), "}");
  msg_mongo_append_alive(&filter, msg_mongo_now_ms(s->store));
  if (rc == MSG_OK && ids.n)
    rc = msg_mongo_each(&u, s->names.messages, "await", &filter, opts, note_won, &j, err);
  msg_mongo_give(&u);
  msg_mongo_ids_clear(&ids);
  bson_destroy(opts);
  bson_destroy(&filter);
  return rc;
}

/* What is handed out at one place. */
struct handing {
  msg_mongo_session at;
  msg_list rows; /* borrowed copies */
  bool *mine, *won;
};

static void handing_clear(struct handing *h) {
  msg_free(h->rows.at);
  msg_free(h->mine);
  msg_free(h->won);
}

/* Those of the list that are at the spot. */
static int handing_of(const msg_mongo_session *s, const msg_list *list, const msg_mongo_spot *spot,
                      struct handing *h, msg_err *err) {
  h->at = msg_mongo_session_at(s, spot->place);
  h->rows.at = msg_alloc(list->n * sizeof *h->rows.at);
  h->mine = msg_zalloc(list->n * sizeof *h->mine);
  h->won = msg_zalloc(list->n * sizeof *h->won);
  if (!h->rows.at || !h->mine || !h->won)
    return msg_err_nomem(err);
  bool all = spot->ids.n == list->n;
  for (size_t i = 0; i < list->n; i++)
    if (all || msg_mongo_ids_have(&spot->ids, &list->at[i].id))
      h->rows.at[h->rows.n++] = list->at[i];
  return MSG_OK;
}

/* Marks under way are not in the store yet, those written since they were copied are. */
static int judge_one(struct handing *h, const char *node, msg_err *err) {
  msg_mongo_ids marks = {0};
  int rc = msg_mongo_marks_copy(&h->at, node, &marks, err);
  for (size_t i = 0; rc == MSG_OK && i < h->rows.n; i++)
    h->mine[i] = !msg_mongo_ids_have(&marks, &h->rows.at[i].id);
  if (rc == MSG_OK)
    rc = judge_by_store(&h->at, node, &h->rows, h->mine, h->won, err);
  msg_mongo_ids_clear(&marks);
  return rc;
}

static int judge(struct handing *h, size_t n, const char *node, msg_err *err) {
  int rc = MSG_OK;
  for (size_t i = 0; rc == MSG_OK && i < n; i++)
    rc = judge_one(&h[i], node, err);
  return rc;
}

/* All or none: what could not be judged may be another's. */
static int hand_out(struct handing *h, size_t n, const char *node, bool soon, msg_err *err) {
  int rc = n ? msg_mongo_chores_start(h->at.store, err) : MSG_OK;
  for (size_t i = 0; rc == MSG_OK && i < n; i++)
    rc = msg_mongo_marks_take(&h[i].at, node, &h[i].rows, h[i].mine, err);
  for (size_t i = 0; rc == MSG_OK && i < n; i++) {
    if (soon)
      judge_by_clock(&h[i].at, &h[i].rows, h[i].mine, h[i].won);
    else
      rc = judge_by_store(&h[i].at, node, &h[i].rows, h[i].mine, h[i].won, err);
  }
  for (size_t i = 0; i < n; i++) {
    if (rc != MSG_OK)
      memset(h[i].won, 0, h[i].rows.n * sizeof *h[i].won);
    msg_mongo_marks_hand_out(&h[i].at, node, &h[i].rows, h[i].mine, h[i].won);
  }
  return rc;
}

static void note_whose(const struct handing *h, size_t n, const msg_list *list, bool *won) {
  for (size_t k = 0; k < n; k++)
    for (size_t i = 0, r = 0; i < list->n && r < h[k].rows.n; i++)
      if (msg_oid_cmp(&list->at[i].id, &h[k].rows.at[r].id) == 0 && h[k].won[r++])
        won[i] = true;
}

/* Where they are: asked only for those that this process has not met, and not `soon`. */
static int find_spots(msg_mongo_session *s, const char *node, const msg_list *list, bool soon,
                      msg_mongo_spots *spots, msg_err *err) {
  msg_mongo_ids ids = {0};
  msg_mongo_use u = {0};
  bool asks = !soon && s->queue->layout->lanes;
  int rc = MSG_OK;
  for (size_t i = 0; rc == MSG_OK && i < list->n; i++)
    rc = msg_mongo_ids_add(&ids, &list->at[i].id) == MSG_OK ? MSG_OK : msg_err_nomem(err);
  if (rc == MSG_OK && asks)
    rc = msg_mongo_take_bounded(s, "await", &u, err);
  if (rc == MSG_OK)
    rc = msg_mongo_recall(s, asks ? &u : NULL, node, ids.at, ids.n, spots, err);
  msg_mongo_give(&u);
  msg_mongo_ids_clear(&ids);
  return rc;
}

enum how { BY_STORE, SOON, WITHOUT_MARK };

/* Copies in the lanes of others are theirs. */
static int seen(msg_session *base, const msg_actor *actor, const msg_list *list, enum how how,
                bool *won, msg_err *err) {
  msg_mongo_session *s = (msg_mongo_session *)base;
  msg_mongo_spots spots = {0};
  struct handing *h = NULL;
  size_t n = 0;
  if (list->n == 0)
    return MSG_OK;
  memset(won, 0, list->n * sizeof *won);
  const msg_mongo_place *lane = msg_mongo_place_lane(s, actor->node);
  int rc = find_spots(s, actor->node, list, how == SOON, &spots, err);
  if (rc == MSG_OK && !(h = msg_zalloc((spots.n + 1) * sizeof *h)))
    rc = msg_err_nomem(err);
  for (size_t i = 0; rc == MSG_OK && i < spots.n; i++)
    if (spots.at[i].place->kind != MSG_MONGO_LANES || spots.at[i].place == lane)
      rc = handing_of(s, list, &spots.at[i], &h[n++], err);
  if (rc == MSG_OK)
    rc = how == WITHOUT_MARK ? judge(h, n, actor->node, err)
                             : hand_out(h, n, actor->node, how == SOON, err);
  if (rc == MSG_OK)
    note_whose(h, n, list, won);
  for (size_t i = 0; i < n; i++)
    handing_clear(&h[i]);
  msg_free(h);
  msg_mongo_spots_clear(&spots);
  return rc;
}

int msg_mongo_seen(msg_session *base, const msg_actor *actor, const msg_list *list, bool *won,
                   msg_err *err) {
  return seen(base, actor, list, BY_STORE, won, err);
}

int msg_mongo_seen_soon(msg_session *base, const msg_actor *actor, const msg_list *list, bool *won,
                        msg_err *err) {
  return seen(base, actor, list, SOON, won, err);
}

int msg_mongo_still_unseen(msg_session *base, const msg_actor *actor, const msg_list *list,
                           bool *still, msg_err *err) {
  return seen(base, actor, list, WITHOUT_MARK, still, err);
}
