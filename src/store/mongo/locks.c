#include "store/mongo/locks.h"

#include <stdlib.h>

#include "base/mem.h"
#include "store/mongo/pipe.h"
#include "store/mongo/query.h"

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
  return l->n < LOCKS_MAX ? MSG_OK : MSG_NOTFOUND;
}

int msg_mongo_locks_read(msg_mongo_use *u, const msg_mongo_places *places, const msg_oid *id,
                         int64_t now_ms, msg_mongo_locks *out, msg_err *err) {
  bson_t match = BSON_INITIALIZER, *sort = BCON_NEW("_id", BCON_INT32(1));
  msg_mongo_pipe pipe;
  if (id)
    msg_mongo_append_oid(&match, "_id", id);
  msg_mongo_append_alive(&match, now_ms);
  msg_mongo_pipe_begin_locks(&pipe, places, &match);
  msg_mongo_pipe_add(&pipe, "$sort", sort);
  int rc = msg_mongo_pipe_each(&pipe, u, "look at locks", note, out, err);
  bson_destroy(sort);
  bson_destroy(&match);
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
