/* undone.c - see undone.h. */
#include "store/local/undone.h"

#include <string.h>

#include "base/mem.h"

#define ENTRIES_MAX 4096 /* then the oldest is forgotten */
#define NOT_LOOKED  (-1) /* a life: no row was looked at since the first rollback */

/* One life of one message. */
struct entry {
  msg_oid id;
  int64_t life;
  int32_t reached; /* deliveries; while NOT_LOOKED, those that were rolled back */
  int32_t shown;   /* the delivery that was claimed last */
};

struct msg_local_undone {
  msg_mutex *mtx; /* guards the rest */
  struct entry *at;
  size_t n, cap;
};

msg_local_undone *msg_local_undone_new(void) {
  msg_local_undone *u = msg_zalloc(sizeof *u);
  if (u && !(u->mtx = msg_mutex_new())) {
    msg_free(u);
    return NULL;
  }
  return u;
}

void msg_local_undone_free(msg_local_undone *u) {
  if (!u)
    return;
  msg_mutex_free(u->mtx);
  msg_free(u->at);
  msg_free(u);
}

/* ---- entries; the mutex is held ---- */

/* The next entry of the message from index `i` on, or u->n. */
static size_t next_of(const msg_local_undone *u, const msg_oid *id, size_t i) {
  while (i < u->n && msg_oid_cmp(&u->at[i].id, id) != 0)
    i++;
  return i;
}

static struct entry *find(msg_local_undone *u, const msg_oid *id, int64_t life) {
  size_t i = next_of(u, id, 0);
  while (i < u->n && u->at[i].life != life)
    i = next_of(u, id, i + 1);
  return i < u->n ? &u->at[i] : NULL;
}

static void drop(msg_local_undone *u, size_t i) {
  memmove(&u->at[i], &u->at[i + 1], (u->n - i - 1) * sizeof *u->at);
  u->n--;
}

/* NULL: memory is out. */
static struct entry *append(msg_local_undone *u, const msg_oid *id, int64_t life) {
  if (u->n == ENTRIES_MAX)
    drop(u, 0);
  if (msg_grow(&u->at, &u->cap, u->n + 1, sizeof *u->at) != MSG_OK)
    return NULL;
  u->at[u->n] = (struct entry){.id = *id, .life = life};
  return &u->at[u->n++];
}

/* An undone claim was the last of its life, or an earlier one; in other lives it says nothing new:
 * what was shown there is stored, or was undone as well. */
static void add(msg_local_undone *u, const msg_oid *id) {
  size_t i = next_of(u, id, 0);
  struct entry *e = i == u->n ? append(u, id, NOT_LOOKED) : NULL;
  if (e)
    e->reached = 1;
  for (; !e && i < u->n; i = next_of(u, id, i + 1)) {
    struct entry *o = &u->at[i];
    if (o->life == NOT_LOOKED)
      o->reached++;
    else if (o->shown > o->reached)
      o->reached = o->shown;
  }
}

/* That of the life, made where others of the message are known; NULL: nothing is, or memory is
 * out. */
static struct entry *look(msg_local_undone *u, const msg_oid *id, int64_t life, int32_t attempts) {
  struct entry *e = find(u, id, NOT_LOOKED);
  if (e) {
    e->life = life;
    e->reached += attempts;
    return e;
  }
  if (next_of(u, id, 0) == u->n)
    return NULL;
  e = find(u, id, life);
  return e ? e : append(u, id, life);
}

/* ---- what others call ---- */

void msg_local_undone_add(msg_local_undone *u, const msg_oid *ids, size_t n) {
  msg_mutex_lock(u->mtx);
  for (size_t i = 0; i < n; i++)
    add(u, &ids[i]);
  msg_mutex_unlock(u->mtx);
}

bool msg_local_undone_any(msg_local_undone *u) {
  msg_mutex_lock(u->mtx);
  bool any = u->n > 0;
  msg_mutex_unlock(u->mtx);
  return any;
}

bool msg_local_undone_knows(msg_local_undone *u, const msg_oid *id) {
  msg_mutex_lock(u->mtx);
  bool known = next_of(u, id, 0) < u->n;
  msg_mutex_unlock(u->mtx);
  return known;
}

int32_t msg_local_undone_attempts(msg_local_undone *u, const msg_oid *id, int64_t life,
                                  int32_t attempts, int64_t max) {
  msg_mutex_lock(u->mtx);
  struct entry *e = look(u, id, life, attempts);
  if (e && e->reached > attempts)
    attempts = e->reached;
  if (e && attempts < max)
    e->shown = attempts + 1;
  msg_mutex_unlock(u->mtx);
  return attempts;
}

void msg_local_undone_forget(msg_local_undone *u, const msg_oid *id) {
  msg_mutex_lock(u->mtx);
  for (size_t i = 0; (i = next_of(u, id, i)) < u->n;)
    drop(u, i);
  msg_mutex_unlock(u->mtx);
}
