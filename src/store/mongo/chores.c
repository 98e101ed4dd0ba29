#include "store/mongo/chores.h"

/* Started by whoever is first; its start holds the lock, which it takes first thing. */
static int start_locked(msg_mongo_store *store, msg_err *err) {
  if (store->marker)
    return MSG_OK;
  if (!store->marks_changed && !(store->marks_changed = msg_cond_new()))
    return msg_err_nomem(err);
  return msg_thread_start(&store->marker, "msg-marker", store->chores, store, err);
}

int msg_mongo_chores_start(msg_mongo_store *store, msg_err *err) {
  msg_mutex_lock(store->mtx);
  int rc = start_locked(store, err);
  msg_mutex_unlock(store->mtx);
  return rc;
}

bool msg_mongo_chores_rouse_locked(msg_mongo_store *store) {
  bool ok = !store->marks_stop && start_locked(store, NULL) == MSG_OK;
  if (ok)
    msg_cond_broadcast(store->marks_changed);
  return ok;
}

void msg_mongo_chores_stop(msg_mongo_store *store) {
  msg_mutex_lock(store->mtx);
  msg_thread *marker = store->marker;
  store->marker = NULL;
  store->marks_stop = true;
  if (store->marks_changed)
    msg_cond_broadcast(store->marks_changed);
  msg_mutex_unlock(store->mtx);
  msg_thread_join(marker);
}
