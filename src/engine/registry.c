#include "engine/registry.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"
#include "engine/cursors.h"
#include "engine/registry_int.h"

typedef struct entry {
  /* immutable after add */
  msg_store *store;
  msg_cursor *cursor;
  uint64_t serial; /* grows: a walk goes on after the last one it saw */
  int process;     /* msg_fork_generation(): another one's is neither used nor freed */
  /* shared: guarded by the global lock */
  struct entry *next;
  char *key; /* NULL: forgotten */
  int refs;  /* 0: waits for its thread to end, then it is closed */
} entry;

/* Guarded by the global lock. */
static entry *entries;
static uint64_t last_serial;

static int start_once;
static int start_rc; /* immutable after start_once */

/* --- entries ------------------------------------------------------------------------------- */

static entry *find_key_locked(const char *key, int process) {
  for (entry *e = entries; e; e = e->next)
    if (e->process == process && e->refs > 0 && e->key && strcmp(e->key, key) == 0)
      return e;
  return NULL;
}

static entry *find_store_locked(const msg_store *store, int process) {
  for (entry *e = entries; e; e = e->next)
    if (e->process == process && e->refs > 0 && e->store == store)
      return e;
  return NULL;
}

static void unlink_locked(const entry *e) {
  entry **link = &entries;
  while (*link != e)
    link = &(*link)->next;
  *link = e->next;
}

/* Without its store. */
static void free_entry(entry *e) {
  if (!e)
    return;
  msg_cursor_free(e->cursor);
  msg_free(e->key);
  msg_free(e);
}

/* Closes an entry that nobody refers to and that is not linked; links it again if its thread takes
 * too long. */
static void close_entry(entry *e, int64_t deadline_ms) {
  if (msg_cursor_stop(e->cursor, deadline_ms)) {
    e->store->ops->store_close(e->store);
    free_entry(e);
    return;
  }
  msg_global_lock();
  e->next = entries;
  entries = e;
  msg_global_unlock();
}

static entry *take_abandoned(uint64_t after, int process) {
  msg_global_lock();
  entry *found = NULL;
  for (entry *e = entries; e; e = e->next)
    if (e->refs == 0 && e->process == process && e->serial > after &&
        (!found || e->serial < found->serial))
      found = e;
  if (found)
    unlink_locked(found);
  msg_global_unlock();
  return found;
}

/* Closes what was left behind because its thread took too long, if that has ended. */
static void reap(int process) {
  uint64_t serial = 0;
  entry *e;
  while ((e = take_abandoned(serial, process))) {
    serial = e->serial;
    close_entry(e, 0);
  }
}

static entry *new_entry(const char *key, msg_store *store, int process) {
  entry *e = msg_zalloc(sizeof *e);
  if (!e)
    return NULL;
  e->store = store;
  e->process = process;
  e->refs = 1;
  e->key = msg_strdup(key);
  e->cursor = msg_cursor_new(store);
  if (!e->key || !e->cursor) {
    free_entry(e);
    return NULL;
  }
  return e;
}

/* --- the registry -------------------------------------------------------------------------- */

msg_store *msg_registry_find(const char *key) {
  int process = msg_fork_generation();
  msg_global_lock();
  entry *e = find_key_locked(key, process);
  if (e)
    e->refs++;
  msg_global_unlock();
  return e ? e->store : NULL;
}

int msg_registry_add(const char *key, msg_store *store, msg_store **out, msg_err *err) {
  int process = msg_fork_generation();
  reap(process);
  entry *mine = new_entry(key, store, process);
  if (!mine) {
    store->ops->store_close(store);
    return msg_err_nomem(err);
  }
  msg_global_lock();
  entry *other = find_key_locked(key, process);
  if (other) {
    other->refs++;
  } else {
    mine->serial = ++last_serial;
    mine->next = entries;
    entries = mine;
  }
  msg_global_unlock();

  *out = other ? other->store : store;
  if (other) {
    store->ops->store_close(store);
    free_entry(mine);
  }
  return MSG_OK;
}

msg_cursor *msg_registry_cursor(msg_store *store) {
  int process = msg_fork_generation();
  msg_global_lock();
  entry *e = find_store_locked(store, process);
  if (e)
    e->refs++;
  msg_global_unlock();
  return e ? e->cursor : NULL;
}

void msg_registry_ref(msg_store *store) {
  msg_registry_cursor(store);
}

void msg_registry_unref(msg_store *store) {
  int process = msg_fork_generation();
  msg_global_lock();
  entry *e = find_store_locked(store, process);
  if (e && --e->refs > 0)
    e = NULL;
  if (e)
    unlink_locked(e);
  msg_global_unlock();
  if (e)
    close_entry(e, msg_clock_mono_ms() + MSG_CURSOR_STOP_MS);
}

void msg_registry_forget(msg_store *store) {
  int process = msg_fork_generation();
  char *key = NULL;
  msg_global_lock();
  entry *e = find_store_locked(store, process);
  if (e) {
    key = e->key;
    e->key = NULL;
  }
  msg_global_unlock();
  msg_free(key);
}

/* --- walking ------------------------------------------------------------------------------- */

/* The oldest entry younger than `serial`, with a reference; NULL at the end. */
static entry *next_entry(uint64_t serial) {
  int process = msg_fork_generation();
  entry *found = NULL;
  msg_global_lock();
  for (entry *e = entries; e; e = e->next)
    if (e->process == process && e->refs > 0 && e->serial > serial &&
        (!found || e->serial < found->serial))
      found = e;
  if (found)
    found->refs++;
  msg_global_unlock();
  return found;
}

int msg_engine_cursors(msg_cursor_fn fn, void *arg, msg_err *err) {
  (void)err;
  int rc = MSG_OK;
  uint64_t serial = 0;
  entry *e;
  while (rc == MSG_OK && (e = next_entry(serial))) {
    msg_cursor_info row;
    msg_err error;
    serial = e->serial;
    msg_cursor_look(e->cursor, &row, &error);
    rc = fn(arg, &row);
    msg_registry_unref(e->store);
  }
  return rc;
}

/* --- the process --------------------------------------------------------------------------- */

/* All are asked first, so that they end side by side. A child made by fork() inherits the handler,
 * but finds no entry of its own. */
static void at_exit(void) {
  msg_cursor_exit();
  entry *e;
  for (uint64_t serial = 0; (e = next_entry(serial)); msg_registry_unref(e->store)) {
    serial = e->serial;
    msg_cursor_request_stop(e->cursor);
  }
  int64_t deadline_ms = msg_clock_mono_ms() + MSG_CURSOR_STOP_MS;
  for (uint64_t serial = 0; (e = next_entry(serial)); msg_registry_unref(e->store)) {
    serial = e->serial;
    msg_cursor_stop(e->cursor, deadline_ms);
  }
}

static void start(void) {
  msg_fork_generation(); /* installs the handlers of fork */
  start_rc = atexit(at_exit) == 0 ? MSG_OK : MSG_NOMEM;
}

int msg_engine_start(msg_err *err) {
  msg_once(&start_once, start);
  return start_rc == MSG_OK ? MSG_OK : msg_err_nomem(err);
}

int msg_engine_stop_first(msg_err *err) {
  return atexit(at_exit) == 0 ? MSG_OK : msg_err_nomem(err);
}
