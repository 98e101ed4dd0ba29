/* put.c - adding messages: one alone goes with those of other threads (combine.c), more go by one
 * transaction. */
#include "store/mongo/put.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "store/mongo/combine.h"
#include "store/mongo/group.h"
#include "store/mongo/keys.h"
#include "store/mongo/regret.h"

#define BATCH_BYTES (12 * 1024 * 1024)
#define BATCH_ROWS  1000

/* ---- one document ---- */

/* Does it stand in its group's order? A dead letter does not. */
static bool in_order(const msg_message *m) {
  return m->group && m->exclusive && m->state != MSG_STATE_DEAD;
}

msg_message msg_mongo_stamped(const msg_message *m, int64_t now_ms) {
  msg_message copy = *m;
  if (m->copied)
    return copy;
  if (m->deliver_at_ms <= m->timestamp_ms) {
    int64_t by_ms = now_ms - m->timestamp_ms;
    copy.deliver_at_ms = now_ms;
    if (m->delete_at_ms != MSG_NEVER)
      copy.delete_at_ms = m->delete_at_ms + by_ms;
  }
  copy.timestamp_ms = now_ms;
  return copy;
}

/* `now_ms`: server's time by which it was routed. */
static int build(msg_mongo_session *s, const msg_message *m, int64_t now_ms, bool stamp, bool head,
                 bson_t *doc, msg_err *err) {
  bool later = msg_mongo_is_later(s, m, now_ms);
  msg_mongo_standing standing = {.head = head,
                                 .blocked = in_order(m) && !head,
                                 .now_ms = later ? now_ms : INT64_MAX,
                                 .shift_ms = s->store->clock_offset_ms};
  if (!stamp)
    return msg_mongo_document(m, &standing, doc, err);
  msg_message now = msg_mongo_stamped(m, msg_clock_now_ms());
  return msg_mongo_document(&now, &standing, doc, err);
}

/* ---- one alone ---- */

static int put_one(msg_mongo_session *s, const msg_mongo_routes *r, msg_err *err) {
  bson_t doc = BSON_INITIALIZER;
  msg_mongo_session at = msg_mongo_session_at(s, r->at[0].place);
  const msg_message *m = r->at[0].items[0]->message;
  int rc = build(&at, m, r->now_ms, false, false, &doc, err);
  if (rc == MSG_OK)
    rc = msg_mongo_combine(&at, m, &doc, err);
  bson_destroy(&doc);
  return rc;
}

/* ---- many ---- */

/* One run of the work, at one place. */
struct putting {
  msg_mongo_txn *t;
  msg_mongo_putting *p;
  const msg_mongo_route *route;
  msg_mongo_groups groups; /* head: it has one */
};

static int note_head(void *arg, const bson_t *doc, msg_err *err) {
  struct putting *w = arg;
  const char *topic = msg_mongo_get_text(doc, "topic"),
             *group = msg_mongo_get_text(doc, "sq.group");
  if (!topic || !group)
    return MSG_OK;
  struct msg_mongo_group *g = msg_mongo_groups_add(&w->groups, topic, group);
  if (!g)
    return msg_err_nomem(err);
  g->head = true;
  return MSG_OK;
}

/* Which of the batch's groups have a head. */
static int find_heads(struct putting *w, msg_err *err) {
  bson_t filter = BSON_INITIALIZER;
  bson_t *opts =
      BCON_NEW("projection", "{", "topic", BCON_INT32(1), "sq.group", BCON_INT32(1), "}");
  int rc = MSG_OK;
  for (size_t i = 0; i < w->route->n; i++) {
    const msg_message *m = w->route->items[i]->message;
    if (m->group && !w->route->items[i]->existed &&
        !msg_mongo_groups_add(&w->groups, m->topic, m->group))
      rc = msg_err_nomem(err);
  }
  if (rc == MSG_OK && w->groups.n) {
    msg_mongo_note_grouped(w->t->s);
    msg_mongo_append_groups(&filter, &w->groups);
    BSON_APPEND_BOOL(&filter, "sq.head", true);
    rc =
        msg_mongo_txn_each(w->t, w->t->s->names.messages, "send", &filter, opts, note_head, w, err);
  }
  bson_destroy(opts);
  bson_destroy(&filter);
  return rc;
}

/* The first of a group without head becomes it. */
static bool becomes_head(struct putting *w, const msg_message *m) {
  if (!in_order(m))
    return false;
  struct msg_mongo_group *g = msg_mongo_groups_add(&w->groups, m->topic, m->group);
  if (!g || g->head)
    return false;
  return g->head = true;
}

/* Whose id was refused: the text of the first error holds it. */
static int refused(struct putting *w, const bson_t *reply, const bson_error_t *error,
                   msg_err *err) {
  const char *message = error->message;
  (void)reply;
  if (!strstr(message, "index: _id_") && !strstr(message, "_id_ dup key")) {
    w->t->again = true; /* another was faster to be the group's head */
    return msg_mongo_fail(w->t->u->store, "send", error, NULL, err);
  }
  for (size_t i = 0; i < w->route->n; i++) {
    const msg_oid *id = &w->route->items[i]->message->id;
    char hex[MSG_OID_HEX + 1];
    msg_oid_hex(id, hex);
    if (strstr(message, hex))
      return msg_mongo_taken(id, err);
  }
  return msg_mongo_fail(w->t->u->store, "send", error, NULL, err);
}

static int insert_batch(struct putting *w, bson_t **docs, size_t n, msg_err *err) {
  mongoc_collection_t *c = msg_mongo_collection(w->t->u, w->t->s->names.messages);
  bson_error_t error;
  bson_t reply;
  int rc = MSG_OK;
  msg_mongo_bound(w->t->u);
  if (!mongoc_collection_insert_many(c, (const bson_t **)docs, n, &w->t->opts, &reply, &error)) {
    if (msg_mongo_is_duplicate(&error, &reply))
      rc = refused(w, &reply, &error, err);
    else
      rc = msg_mongo_txn_fail(w->t, "send", &error, &reply, err);
  }
  bson_destroy(&reply);
  mongoc_collection_destroy(c);
  return rc;
}

/* From item *i on as many as one batch takes. */
static int next_batch(struct putting *w, size_t *i, bson_t **docs, size_t *n, msg_err *err) {
  size_t bytes = 0;
  int rc = MSG_OK;
  *n = 0;
  for (; rc == MSG_OK && *i < w->route->n && *n < BATCH_ROWS && bytes < BATCH_BYTES; ++*i) {
    const msg_put *item = w->route->items[*i];
    if (item->existed)
      continue;
    docs[*n] = bson_new();
    rc = build(w->t->s, item->message, w->p->routes->now_ms, w->p->stamp,
               becomes_head(w, item->message), docs[*n], err);
    bytes += docs[(*n)++]->len;
  }
  return rc;
}

static int insert_all(struct putting *w, msg_err *err) {
  size_t most = w->route->n < BATCH_ROWS ? w->route->n : BATCH_ROWS;
  bson_t **docs = msg_alloc(most * sizeof *docs);
  int rc = docs ? MSG_OK : msg_err_nomem(err);
  for (size_t i = 0; rc == MSG_OK && i < w->route->n;) {
    size_t n = 0;
    rc = next_batch(w, &i, docs, &n, err);
    if (rc == MSG_OK && n)
      rc = insert_batch(w, docs, n, err);
    for (size_t k = 0; k < n; k++)
      bson_destroy(docs[k]);
  }
  msg_free(docs);
  return rc;
}

static int put_at(msg_mongo_txn *t, msg_mongo_putting *p, const msg_mongo_route *route,
                  msg_err *err) {
  msg_mongo_session at = msg_mongo_session_at(t->s, route->place), *s = t->s;
  struct putting w = {.t = t, .p = p, .route = route};
  t->s = &at;
  int rc = find_heads(&w, err);
  if (rc == MSG_OK)
    rc = insert_all(&w, err);
  t->s = s;
  msg_mongo_groups_clear(&w.groups);
  return rc;
}

int msg_mongo_put_work(msg_mongo_txn *t, void *arg, msg_err *err) {
  msg_mongo_putting *p = arg;
  for (size_t i = 0; i < p->n; i++) {
    p->items[i].existed = false;
    p->items[i].id = p->items[i].message->id;
  }
  int rc = msg_mongo_keys_enter(t, p->items, p->n, err);
  for (size_t i = 0; rc == MSG_OK && i < p->routes->n; i++)
    rc = put_at(t, p, &p->routes->at[i], err);
  return rc;
}

/* ---- the verb ---- */

static int by_id(const void *a, const void *b) {
  return msg_oid_cmp(&(*(const msg_put *const *)a)->message->id,
                     &(*(const msg_put *const *)b)->message->id);
}

/* The same id twice in one batch: known without the server. */
static int check_ids(msg_put *items, size_t n, msg_err *err) {
  const msg_put **sorted = msg_alloc(n * sizeof *sorted);
  int rc = MSG_OK;
  if (!sorted)
    return msg_err_nomem(err);
  for (size_t i = 0; i < n; i++)
    sorted[i] = &items[i];
  qsort(sorted, n, sizeof *sorted, by_id);
  for (size_t i = 1; rc == MSG_OK && i < n; i++)
    if (by_id(&sorted[i - 1], &sorted[i]) == 0)
      rc = msg_mongo_taken(&sorted[i]->message->id, err);
  msg_free(sorted);
  return rc;
}

bool msg_mongo_is_plain(const msg_message *m) {
  return !m->key && !(m->group && m->exclusive) && !m->copied;
}

/* A follower that came while its head went: nobody else would call it. */
static int groups_at(msg_mongo_session *s, msg_mongo_use *u, const msg_mongo_route *route,
                     msg_err *err) {
  msg_mongo_session at = msg_mongo_session_at(s, route->place);
  msg_mongo_groups g = {0};
  int rc = MSG_OK;
  for (size_t i = 0; i < route->n; i++) {
    const msg_message *m = route->items[i]->message;
    if (m->group && m->exclusive && !route->items[i]->existed &&
        !msg_mongo_groups_add(&g, m->topic, m->group))
      rc = msg_err_nomem(err);
  }
  if (rc == MSG_OK && g.n)
    rc = msg_mongo_groups_promote(&at, u, &g, err);
  msg_mongo_groups_clear(&g);
  return rc;
}

int msg_mongo_put_groups(msg_mongo_session *s, msg_mongo_use *u, const msg_mongo_routes *r,
                         msg_err *err) {
  int rc = MSG_OK;
  for (size_t i = 0; rc == MSG_OK && i < r->n; i++)
    rc = groups_at(s, u, &r->at[i], err);
  return rc;
}

static int put_many(msg_mongo_session *s, msg_mongo_use *u, msg_mongo_putting *p, msg_err *err) {
  int rc = check_ids(p->items, p->n, err);
  if (rc == MSG_OK)
    rc = msg_mongo_routes_ready(s, u, p->routes, err);
  if (rc == MSG_OK)
    rc = msg_mongo_transact(s, u, "send", msg_mongo_put_work, p, err);
  return rc == MSG_OK ? msg_mongo_put_groups(s, u, p->routes, err) : rc;
}

static int put(msg_mongo_session *s, const msg_actor *actor, msg_put *items, size_t n,
               msg_err *err) {
  msg_mongo_use u;
  msg_mongo_routes routes;
  msg_mongo_putting p = {.actor = actor, .items = items, .n = n, .routes = &routes};
  int rc = msg_mongo_routes_of(s, items, n, &routes, err);
  if (rc != MSG_OK)
    return rc;
  if (n == 1 && routes.n == 1 && msg_mongo_is_plain(items[0].message)) {
    items[0].id = items[0].message->id;
    items[0].existed = false;
    rc = put_one(s, &routes, err);
  } else {
    rc = msg_mongo_take_bounded(s, "send", &u, err);
    if (rc == MSG_OK)
      rc = put_many(s, &u, &p, err);
    msg_mongo_give(&u);
  }
  msg_mongo_routes_clear(&routes);
  return rc;
}

/* What failed for its caller is not to be there. */
int msg_mongo_put(msg_session *base, const msg_actor *actor, msg_put *items, size_t n,
                  msg_err *err) {
  msg_mongo_session *s = (msg_mongo_session *)base;
  int rc = msg_mongo_regrets_recall(s, &(msg_unit){.puts = items, .put_count = n}, err);
  if (rc == MSG_OK && (rc = put(s, actor, items, n, err)) == MSG_UNAVAILABLE)
    msg_mongo_regret_puts(s, items, n);
  return rc;
}
