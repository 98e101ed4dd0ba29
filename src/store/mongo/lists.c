#include "store/mongo/lists.h"

#include <string.h>

#include "base/mem.h"

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

/* Where it is, or would be: what comes late is behind the others. */
static size_t place_of(const msg_mongo_ids *l, const msg_oid *id) {
  size_t low = 0, high = l->n;
  if (high && msg_oid_cmp(&l->at[high - 1], id) < 0)
    return high;
  while (low < high) {
    size_t i = low + (high - low) / 2;
    if (msg_oid_cmp(&l->at[i], id) < 0)
      low = i + 1;
    else
      high = i;
  }
  return low;
}

bool msg_mongo_ids_insert(msg_mongo_ids *l, const msg_oid *id) {
  size_t i = place_of(l, id);
  if ((i < l->n && msg_oid_cmp(&l->at[i], id) == 0) ||
      msg_grow(&l->at, &l->cap, l->n + 1, sizeof *l->at) != MSG_OK)
    return false;
  memmove(&l->at[i + 1], &l->at[i], (l->n++ - i) * sizeof *l->at);
  l->at[i] = *id;
  return true;
}

void msg_mongo_ids_remove(msg_mongo_ids *l, const msg_oid *id) {
  size_t i = place_of(l, id);
  if (i < l->n && msg_oid_cmp(&l->at[i], id) == 0)
    memmove(&l->at[i], &l->at[i + 1], (--l->n - i) * sizeof *l->at);
}

int msg_mongo_texts_add(msg_mongo_texts *l, const char *text) {
  char *copy = msg_strdup(text);
  if (!copy || msg_grow(&l->at, &l->cap, l->n + 1, sizeof *l->at) != MSG_OK) {
    msg_free(copy);
    return MSG_NOMEM;
  }
  l->at[l->n++] = copy;
  return MSG_OK;
}

bool msg_mongo_texts_have(const msg_mongo_texts *l, const char *text) {
  for (size_t i = 0; i < l->n; i++)
    if (strcmp(l->at[i], text) == 0)
      return true;
  return false;
}

int msg_mongo_texts_note(msg_mongo_texts *l, const char *text) {
  return msg_mongo_texts_have(l, text) ? MSG_OK : msg_mongo_texts_add(l, text);
}

void msg_mongo_texts_clear(msg_mongo_texts *l) {
  for (size_t i = 0; i < l->n; i++)
    msg_free(l->at[i]);
  msg_free(l->at);
  *l = (msg_mongo_texts){0};
}
