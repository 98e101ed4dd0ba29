#include "store/mongo/locks.h"

#include <stdlib.h>

#include "base/mem.h"

#define LOCKS_MAX 10000

static int note(void *arg, const bson_t *doc, msg_err *err) {
  msg_mongo_locks *l = arg;
  const char *owner = msg_mongo_get_text(doc, "lock_id");
  struct msg_mongo_lock one = {.until_ms = msg_mongo_get_int(doc, "delete_at", MSG_NEVER)};
  if (!msg_mongo_get_oid(doc, "_id", &one.id))
    return MSG_OK;
  one.owner = msg_strdup(owner ? owner : "");
  if (!one.owner || msg_grow(&l->at, &l->cap, l->n + 1, sizeof *l->at) != MSG_OK) {
    msg_free(one.owner);
    return msg_err_nomem(err);
  }
  l->at[l->n++] = one;
  return MSG_OK;
}

int msg_mongo_locks_read(msg_mongo_session *s, msg_mongo_use *u, const msg_oid *id, int64_t now_ms,
                         msg_mongo_locks *out, msg_err *err) {
  bson_t filter = BSON_INITIALIZER;
  bson_t *opts = BCON_NEW("sort", "{", "_id", BCON_INT32(1), "}", "limit", BCON_INT64(LOCKS_MAX));
  if (id)
    msg_mongo_append_oid(&filter, "_id", id);
  msg_mongo_append_alive(&filter, now_ms);
  int rc = msg_mongo_each(u, s->names.locks, "look at locks", &filter, opts, note, out, err);
  bson_destroy(opts);
  bson_destroy(&filter);
  return rc;
}

void msg_mongo_locks_clear(msg_mongo_locks *l) {
  for (size_t i = 0; i < l->n; i++)
    msg_free(l->at[i].owner);
  msg_free(l->at);
  *l = (msg_mongo_locks){0};
}

static int by_id(const void *key, const void *lock) {
  return msg_oid_cmp(key, &((const struct msg_mongo_lock *)lock)->id);
}

int msg_mongo_locks_apply(const msg_mongo_locks *l, msg_message *m, msg_err *err) {
  if (l->n == 0 || !m->exclusive || m->state == MSG_STATE_CLAIMED || m->state == MSG_STATE_DEAD)
    return MSG_OK;
  const struct msg_mongo_lock *lock = bsearch(&m->id, l->at, l->n, sizeof *l->at, by_id);
  if (!lock)
    return MSG_OK;
  char *owner = msg_strdup(lock->owner);
  if (!owner) {
    msg_message_clear(m);
    return msg_err_nomem(err);
  }
  msg_free(m->owner);
  m->owner = owner;
  m->until_ms = lock->until_ms;
  m->state = MSG_STATE_CLAIMED;
  return MSG_OK;
}
