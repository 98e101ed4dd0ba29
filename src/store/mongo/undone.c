/* undone.c - claims that the host rolled back: deliveries that happened all the same. */
#include <string.h>

#include "base/mem.h"
#include "store/mongo/mongo.h"

#define UNDONE_MAX 4096

static struct msg_mongo_undone *find_locked(msg_mongo_store *store, const msg_oid *id) {
  for (size_t i = 0; i < store->undone_count; i++)
    if (msg_oid_cmp(&store->undone[i].id, id) == 0)
      return &store->undone[i];
  return NULL;
}

static void drop_locked(msg_mongo_store *store, size_t i) {
  store->undone_count--;
  memmove(&store->undone[i], &store->undone[i + 1],
          (store->undone_count - i) * sizeof store->undone[0]);
}

static void note_locked(msg_mongo_store *store, const msg_oid *id) {
  struct msg_mongo_undone *known = find_locked(store, id);
  if (known) {
    known->count++;
    return;
  }
  if (store->undone_count == UNDONE_MAX)
    drop_locked(store, 0);
  if (msg_grow(&store->undone, &store->undone_cap, store->undone_count + 1,
               sizeof store->undone[0]) == MSG_OK)
    store->undone[store->undone_count++] = (struct msg_mongo_undone){*id, 1};
}

void msg_mongo_claims_undone(msg_store *base, const msg_oid *ids, size_t n) {
  msg_mongo_store *store = (msg_mongo_store *)base;
  msg_mutex_lock(store->mtx);
  for (size_t i = 0; i < n; i++)
    note_locked(store, &ids[i]);
  msg_mutex_unlock(store->mtx);
}

bool msg_mongo_undone_any(msg_mongo_store *store) {
  msg_mutex_lock(store->mtx);
  bool any = store->undone_count > 0;
  msg_mutex_unlock(store->mtx);
  return any;
}

int32_t msg_mongo_undone_take(msg_mongo_store *store, const msg_oid *id) {
  int32_t count = 0;
  msg_mutex_lock(store->mtx);
  struct msg_mongo_undone *known = find_locked(store, id);
  if (known) {
    count = known->count;
    drop_locked(store, (size_t)(known - store->undone));
  }
  msg_mutex_unlock(store->mtx);
  return count;
}
