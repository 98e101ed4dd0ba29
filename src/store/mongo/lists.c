#include "store/mongo/lists.h"

#include <string.h>

#include "base/mem.h"
#include "base/sort.h"

int msg_mongo_ids_add(msg_mongo_ids *l, const msg_oid *id) {
  if (msg_grow(&l->at, &l->cap, l->n + 1, sizeof *l->at) != MSG_OK)
    return MSG_NOMEM;
  l->at[l->n++] = *id;
  return MSG_OK;
}

bool msg_mongo_ids_have(const msg_mongo_ids *l, const msg_oid *id) {
  return msg_oid_index(l->at, l->n, id) < l->n;
}

void msg_mongo_ids_clear(msg_mongo_ids *l) {
  msg_free(l->at);
  *l = (msg_mongo_ids){0};
}

static int by_id(const void *a, const void *b) {
  return msg_oid_cmp(a, b);
}

int msg_mongo_ids_order(msg_mongo_ids *l, const msg_oid *ids, size_t n) {
  int rc = MSG_OK;
  for (size_t i = 0; rc == MSG_OK && i < n; i++)
    rc = msg_mongo_ids_add(l, &ids[i]);
  msg_sort(l->at, l->n, sizeof *l->at, by_id);
  return rc;
}

bool msg_mongo_ids_hold(const msg_mongo_ids *l, const msg_oid *id) {
  size_t i = msg_oid_place(l->at, l->n, sizeof *l->at, id);
  return i < l->n && msg_oid_cmp(&l->at[i], id) == 0;
}

bool msg_mongo_ids_insert(msg_mongo_ids *l, const msg_oid *id) {
  size_t i = msg_oid_place(l->at, l->n, sizeof *l->at, id);
  if ((i < l->n && msg_oid_cmp(&l->at[i], id) == 0) ||
      msg_grow(&l->at, &l->cap, l->n + 1, sizeof *l->at) != MSG_OK)
    return false;
  memmove(&l->at[i + 1], &l->at[i], (l->n++ - i) * sizeof *l->at);
  l->at[i] = *id;
  return true;
}

void msg_mongo_ids_remove(msg_mongo_ids *l, const msg_oid *id) {
  size_t i = msg_oid_place(l->at, l->n, sizeof *l->at, id);
  if (i < l->n && msg_oid_cmp(&l->at[i], id) == 0)
    memmove(&l->at[i], &l->at[i + 1], (--l->n - i) * sizeof *l->at);
}
