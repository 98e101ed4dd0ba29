#include "model/filter.h"

#include <string.h>

#include "base/mem.h"

#define RANGE_ALL                                                                                  \
  { INT64_MIN, INT64_MAX }

void msg_filter_init(msg_filter *f) {
  *f = (msg_filter){.priority = RANGE_ALL,
                    .timestamp_ms = RANGE_ALL,
                    .deliver_at_ms = RANGE_ALL,
                    .seq = RANGE_ALL,
                    .limit = -1};
}

static void free_texts(char **at, size_t n) {
  for (size_t i = 0; i < n; i++)
    msg_free(at[i]);
  msg_free(at);
}

void msg_filter_clear(msg_filter *f) {
  free_texts(f->topics, f->topic_count);
  free_texts(f->senders, f->sender_count);
  msg_free(f->ids);
  msg_filter_init(f);
}

/* Room for one element more in an array that only these functions fill: full at 0, 8, 16, 32,
 * ... */
static int make_room(void *array, size_t count, size_t size) {
  size_t cap = count;
  if (count != 0 && (count < 8 || (count & (count - 1)) != 0))
    return MSG_OK;
  return msg_grow(array, &cap, count + 1, size);
}

static int add_text(char ***at, size_t *n, const char *text) {
  char *copy = msg_strdup(text);
  if (!copy || make_room(at, *n, sizeof **at) != MSG_OK) {
    msg_free(copy);
    return MSG_NOMEM;
  }
  (*at)[(*n)++] = copy;
  return MSG_OK;
}

int msg_filter_add_topic(msg_filter *f, const char *topic) {
  return add_text(&f->topics, &f->topic_count, topic);
}

int msg_filter_add_sender(msg_filter *f, const char *sender) {
  return add_text(&f->senders, &f->sender_count, sender);
}

int msg_filter_add_id(msg_filter *f, const msg_oid *id) {
  if (make_room(&f->ids, f->id_count, sizeof *f->ids) != MSG_OK)
    return MSG_NOMEM;
  f->ids[f->id_count++] = *id;
  return MSG_OK;
}

void msg_range_cut(msg_range *r, int64_t lo, int64_t hi) {
  if (lo > r->lo)
    r->lo = lo;
  if (hi < r->hi)
    r->hi = hi;
}

static bool in_range(const msg_range *r, int64_t i) {
  return i >= r->lo && i <= r->hi;
}

/* A field the store did not give (NULL) matches no wish. */
static bool in_texts(char *const *at, size_t n, const char *text) {
  if (!at)
    return true;
  for (size_t i = 0; text && i < n; i++)
    if (strcmp(at[i], text) == 0)
      return true;
  return false;
}

/* Linear: the lists come from IN (...), and stores with an index never ask. */
static bool id_ok(const msg_filter *f, const msg_oid *id) {
  if (f->has_id_lo && msg_oid_cmp(id, &f->id_lo) < 0)
    return false;
  if (f->has_id_hi && msg_oid_cmp(id, &f->id_hi) > 0)
    return false;
  return !f->ids || msg_oid_index(f->ids, f->id_count, id) < f->id_count;
}

bool msg_filter_match(const msg_filter *f, const msg_message *m) {
  return !f->none && id_ok(f, &m->id) && (f->states == 0 || (f->states >> m->state & 1) != 0) &&
         in_range(&f->priority, m->priority) && in_range(&f->timestamp_ms, m->timestamp_ms) &&
         in_range(&f->deliver_at_ms, m->deliver_at_ms) && in_range(&f->seq, m->seq) &&
         in_texts(f->topics, f->topic_count, m->topic) &&
         in_texts(f->senders, f->sender_count, m->sender);
}
