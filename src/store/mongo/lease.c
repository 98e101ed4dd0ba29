#include "store/mongo/lease.h"

#include <string.h>

#include "base/mem.h"
#include "store/mongo/query.h"

#define LEASE_MIN 32   /* messages: with fewer it costs more than it saves */
#define LEASE_MAX 1000 /* whose ids are kept in the document and here */
#define REST      15   /* claims without one after one was broken */

/* ---- what this process remembers: guarded by the store's mtx ---- */

void msg_mongo_lease_clear(msg_mongo_lease *l) {
  msg_free(l->node);
  msg_mongo_ids_clear(&l->ids);
  *l = (msg_mongo_lease){0};
}

void msg_mongo_leases_forget(msg_mongo_place *p) {
  for (size_t i = 0; p->leases && i < MSG_MONGO_LEASES_KEPT; i++)
    msg_mongo_lease_clear(&p->leases[i]);
  msg_free(p->leases);
  p->leases = NULL;
}

static int lease_init(msg_mongo_lease *l, const char *token, const char *node,
                      const msg_mongo_ids *ids) {
  *l = (msg_mongo_lease){.node = msg_strdup(node)};
  memcpy(l->token, token, sizeof l->token);
  if (l->node && msg_mongo_ids_order(&l->ids, ids->at, ids->n) == MSG_OK)
    return MSG_OK;
  msg_mongo_lease_clear(l);
  return MSG_NOMEM;
}

/* Takes it over. One that is not remembered is only broken sooner. */
static void remember(msg_mongo_session *s, msg_mongo_lease *l) {
  msg_mongo_place *p = s->place;
  msg_mutex_lock(s->store->mtx);
  if (!p->leases)
    p->leases = msg_zalloc(MSG_MONGO_LEASES_KEPT * sizeof *p->leases);
  if (p->leases) {
    msg_mongo_lease *at = &p->leases[p->lease_count++ % MSG_MONGO_LEASES_KEPT];
    msg_mongo_lease_clear(at);
    *at = *l;
    *l = (msg_mongo_lease){0};
  }
  msg_mutex_unlock(s->store->mtx);
  msg_mongo_lease_clear(l);
}

void msg_mongo_leases_note(msg_mongo_session *s) {
  msg_mutex_lock(s->store->mtx);
  s->place->leased = true;
  msg_mutex_unlock(s->store->mtx);
}

void msg_mongo_leases_note_broken(msg_mongo_session *s, const msg_texts *tokens) {
  msg_mongo_place *p = s->place;
  msg_mutex_lock(s->store->mtx);
  p->unleased = REST;
  for (size_t i = 0; p->leases && i < MSG_MONGO_LEASES_KEPT; i++)
    if (msg_texts_have(tokens, p->leases[i].token))
      msg_mongo_lease_clear(&p->leases[i]);
  msg_mutex_unlock(s->store->mtx);
}

/* ---- beginning ---- */

bool msg_mongo_lease_fits(msg_mongo_session *s, size_t n) {
  msg_mongo_place *p = s->place;
  bool one = p->kind == MSG_MONGO_MAIN || p->kind == MSG_MONGO_TOPIC;
  msg_mutex_lock(s->store->mtx);
  bool fits = one && n >= LEASE_MIN && n <= LEASE_MAX && !p->grouped;
  if (fits && p->unleased > 0) {
    p->unleased--;
    fits = false;
  }
  msg_mutex_unlock(s->store->mtx);
  return fits;
}

/* The mark that follows waits until most have both. */
int msg_mongo_lease_begin(msg_mongo_session *s, msg_mongo_use *u, const char *token,
                          const msg_mongo_ids *ids, int64_t lease_ms, msg_err *err) {
  bson_t set = BSON_INITIALIZER, until, *filter = BCON_NEW("_id", BCON_UTF8(token));
  msg_mongo_now_expr(&until, lease_ms);
  msg_mongo_append_oids(&set, "ids", ids->at, ids->n);
  BCON_APPEND(&set, "in", "{", "$literal", BCON_UTF8(s->names.messages), "}", "until",
              BCON_DOCUMENT(&until));
  bson_t *change = BCON_NEW("0", "{", "$set", BCON_DOCUMENT(&set), "}");
  int rc = msg_mongo_upsert_soon(u, s->names.leases, "claim", filter, change, err);
  if (rc == MSG_OK)
    msg_mongo_leases_note(s);
  bson_destroy(change);
  bson_destroy(&set);
  bson_destroy(&until);
  bson_destroy(filter);
  return rc;
}

int msg_mongo_lease_keep(msg_mongo_session *s, const char *node, const char *token,
                         const msg_mongo_ids *ids, msg_err *err) {
  msg_mongo_lease l;
  if (lease_init(&l, token, node, ids) != MSG_OK)
    return msg_err_nomem(err);
  remember(s, &l);
  return MSG_OK;
}

/* ---- which are meant ---- */

static bool holds_all(const msg_mongo_ids *sorted, const msg_mongo_ids *ids) {
  bool all = ids->n <= sorted->n;
  for (size_t i = 0; all && i < ids->n; i++)
    all = msg_mongo_ids_hold(sorted, &ids->at[i]);
  return all;
}

int msg_mongo_leases_find_whole(msg_mongo_session *s, const char *node, const msg_mongo_ids *given,
                                msg_mongo_lease *out, size_t *n) {
  msg_mongo_ids sorted = {0};
  int rc = msg_mongo_ids_order(&sorted, given->at, given->n);
  *n = 0;
  msg_mutex_lock(s->store->mtx);
  for (size_t i = 0; rc == MSG_OK && s->place->leases && i < MSG_MONGO_LEASES_KEPT; i++) {
    const msg_mongo_lease *l = &s->place->leases[i];
    if (l->token[0] && strcmp(l->node, node) == 0 && holds_all(&sorted, &l->ids)) {
      rc = lease_init(&out[*n], l->token, l->node, &l->ids);
      *n += rc == MSG_OK;
    }
  }
  msg_mutex_unlock(s->store->mtx);
  msg_mongo_ids_clear(&sorted);
  return rc;
}

/* ---- its document ---- */

int msg_mongo_lease_ids(const bson_t *doc, msg_mongo_ids *to, msg_err *err) {
  bson_iter_t field, it;
  if (!bson_iter_init_find(&field, doc, "ids") || !BSON_ITER_HOLDS_ARRAY(&field) ||
      !bson_iter_recurse(&field, &it))
    return MSG_OK;
  while (bson_iter_next(&it)) {
    msg_oid id;
    if (!BSON_ITER_HOLDS_OID(&it))
      continue;
    memcpy(id.b, bson_iter_oid(&it)->bytes, sizeof id.b);
    if (msg_mongo_ids_add(to, &id) != MSG_OK)
      return msg_err_nomem(err);
  }
  return MSG_OK;
}

int msg_mongo_lease_undo(msg_mongo_session *s, msg_mongo_use *u, const char *token,
                         const char *mark, bool *was, msg_err *err) {
  bson_t filter = BSON_INITIALIZER;
  msg_mongo_result result = {0};
  BSON_APPEND_UTF8(&filter, "_id", token);
  if (mark)
    BCON_APPEND(&filter, "in", BCON_UTF8(s->names.messages), "mark", BCON_UTF8(mark));
  int rc = msg_mongo_delete(u, s->queue->names.leases, "undo", &filter, &result, err);
  if (was)
    *was = result.deleted > 0;
  bson_destroy(&filter);
  return rc;
}
