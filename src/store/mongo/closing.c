#include "store/mongo/closing.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/thread.h"

typedef struct closing {
  struct closing *next;
  /* immutable once linked */
  mongoc_client_pool_t *pool;
  msg_thread *thread;
  int generation; /* msg_fork_generation: a child has not the thread */
  bool tls;
  atomic_bool done;
} closing;

static closing *list; /* guarded by the global lock */

static void run(void *arg) {
  closing *c = arg;
  mongoc_client_pool_destroy(c->pool);
  atomic_store(&c->done, true);
}

/* Takes out one that has ended, or any; of this process. */
static closing *take(bool any) {
  int generation = msg_fork_generation();
  closing *c;
  msg_global_lock();
  closing **at = &list;
  while ((c = *at) && (c->generation != generation || !(any || atomic_load(&c->done))))
    at = &c->next;
  if (c)
    *at = c->next;
  msg_global_unlock();
  return c;
}

static void end(closing *c) {
  msg_thread_join(c->thread);
  msg_free(c);
}

/* Others are in nobody's way: they end with the process. */
static void at_exit(void) {
  closing *c;
  while ((c = take(true)))
    if (c->tls || atomic_load(&c->done))
      end(c);
}

void msg_mongo_closing_start(void) {
  atexit(at_exit);
}

static bool uses_tls(mongoc_client_pool_t *pool) {
  mongoc_client_t *client = mongoc_client_pool_try_pop(pool);
  bool tls = !client || mongoc_uri_get_tls(mongoc_client_get_uri(client));
  if (client)
    mongoc_client_pool_push(pool, client);
  return tls;
}

void msg_mongo_closing(mongoc_client_pool_t *pool) {
  closing *ended;
  if (!pool)
    return;
  while ((ended = take(false)))
    end(ended);
  closing *c = msg_zalloc(sizeof *c);
  if (c) {
    c->pool = pool;
    c->generation = msg_fork_generation();
    c->tls = uses_tls(pool);
  }
  if (!c || msg_thread_start(&c->thread, "msg-close", run, c, NULL) != MSG_OK) {
    mongoc_client_pool_destroy(pool);
    msg_free(c);
    return;
  }
  msg_global_lock();
  c->next = list;
  list = c;
  msg_global_unlock();
}
