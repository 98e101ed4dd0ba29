#include "store/mongo/marks.h"

#include <string.h>

#include "base/mem.h"

static size_t find_locked(const msg_mongo_place *p, const char *node, const msg_oid *id) {
  size_t i = 0;
  while (i < p->mark_count &&
         (msg_oid_cmp(&p->marks[i].id, id) != 0 || strcmp(p->marks[i].node, node) != 0))
    i++;
  return i;
}

static bool add_locked(msg_mongo_place *p, const char *node, const msg_oid *id) {
  char *copy = msg_strdup(node);
  if (!copy || msg_grow(&p->marks, &p->mark_cap, p->mark_count + 1, sizeof p->marks[0]) != MSG_OK) {
    msg_free(copy);
    return false;
  }
  p->marks[p->mark_count++] = (struct msg_mongo_mark){.id = *id, .node = copy};
  return true;
}

bool msg_mongo_marks_take(msg_mongo_session *s, const char *node, const msg_oid *id, bool *nomem) {
  msg_mutex_lock(s->store->mtx);
  bool free_ = find_locked(s->place, node, id) == s->place->mark_count;
  if (free_ && !add_locked(s->place, node, id)) {
    *nomem = true;
    free_ = false;
  }
  msg_mutex_unlock(s->store->mtx);
  return free_;
}

void msg_mongo_marks_drop(msg_mongo_session *s, const char *node, const msg_oid *id) {
  msg_mongo_place *p = s->place;
  msg_mutex_lock(s->store->mtx);
  size_t i = find_locked(p, node, id);
  if (i < p->mark_count) {
    msg_free(p->marks[i].node);
    p->marks[i] = p->marks[--p->mark_count];
  }
  msg_mutex_unlock(s->store->mtx);
}

bool msg_mongo_marks_have(msg_mongo_session *s, const char *node, const msg_oid *id) {
  msg_mutex_lock(s->store->mtx);
  bool have = find_locked(s->place, node, id) < s->place->mark_count;
  msg_mutex_unlock(s->store->mtx);
  return have;
}

int msg_mongo_marks_copy(msg_mongo_session *s, const char *node, msg_mongo_ids *out) {
  int rc = MSG_OK;
  msg_mutex_lock(s->store->mtx);
  for (size_t i = 0; rc == MSG_OK && i < s->place->mark_count; i++)
    if (strcmp(s->place->marks[i].node, node) == 0)
      rc = msg_mongo_ids_add(out, &s->place->marks[i].id);
  msg_mutex_unlock(s->store->mtx);
  return rc;
}
