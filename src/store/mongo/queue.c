/* queue.c - the queues that this process has open on a store, and whose a session is. */
#include <string.h>

#include "base/mem.h"
#include "store/mongo/place.h"
#include "store/mongo/regret.h"

static void queue_free(msg_mongo_queue *q) {
  msg_free(q->name);
  msg_free(q);
}

static bool make_main_locked(msg_mongo_store *store, msg_mongo_queue *q) {
  msg_mongo_at at;
  if (q->layout->topics)
    return true;
  msg_mongo_at_main(&q->names, &at);
  q->main = msg_mongo_place_add_locked(store, q, MSG_MONGO_MAIN, &at);
  return q->main != NULL;
}

static msg_mongo_queue *add_queue_locked(msg_mongo_store *store, const char *name,
                                         const msg_mongo_layout *layout,
                                         const msg_mongo_names *names) {
  msg_mongo_queue *q = msg_zalloc(sizeof *q);
  if (!q)
    return NULL;
  q->layout = layout;
  q->names = *names;
  q->name = msg_strdup(name);
  if (!q->name || !make_main_locked(store, q)) {
    queue_free(q);
    return NULL;
  }
  q->next = store->queues;
  return store->queues = q;
}

static int queue_of(msg_mongo_store *store, const char *name, const msg_mongo_layout *layout,
                    msg_mongo_queue **out, msg_err *err) {
  msg_mongo_names names;
  int rc = msg_mongo_names_of(name, &names, err);
  if (rc != MSG_OK)
    return rc;
  msg_mutex_lock(store->mtx);
  msg_mongo_queue *q = store->queues;
  while (q && (q->layout != layout || strcmp(q->name, name) != 0))
    q = q->next;
  if (!q)
    q = add_queue_locked(store, name, layout, &names);
  msg_mutex_unlock(store->mtx);
  *out = q;
  return q ? MSG_OK : msg_err_nomem(err);
}

/* ---- of a session ---- */

int msg_mongo_session_set(msg_mongo_session *s, const char *queue, const msg_mongo_layout *layout,
                          msg_err *err) {
  if (layout->lanes && strncmp(s->store->version, "4.2", 3) == 0)
    return msg_err_set(err, MSG_UNSUPPORTED,
                       "open: layout '%s' needs MongoDB 4.4 or newer (MongoDB at %s)", layout->name,
                       s->store->hosts);
  int rc = queue_of(s->store, queue, layout, &s->queue, err);
  if (rc != MSG_OK)
    return rc;
  s->names = s->queue->names;
  s->place = s->queue->main;
  if (!s->place) /* no collection of the queue's may be hit by mistake */
    s->names.messages[0] = s->names.locks[0] = '\0';
  return MSG_OK;
}

int msg_mongo_session_on(const msg_mongo_session *s, const char *queue, msg_mongo_session *out,
                         msg_err *err) {
  *out = *s;
  return msg_mongo_session_set(out, queue, s->queue->layout, err);
}

void msg_mongo_queues_free(msg_mongo_store *store) {
  while (store->queues) {
    msg_mongo_queue *q = store->queues;
    store->queues = q->next;
    msg_mongo_regrets_free(q);
    queue_free(q);
  }
}
