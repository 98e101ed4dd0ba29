/* horizon.c - see horizon.h. */
#include "store/local/horizon.h"

#include <string.h>

#include "base/mem.h"

#define HORIZONS_MAX 16

static msg_local_horizon *find(const msg_local_session *s, const char *node, const char *only) {
  for (size_t i = 0; i < s->horizons; i++)
    if (strcmp(s->horizon[i].node, node) == 0 && strcmp(s->horizon[i].only, only) == 0)
      return &s->horizon[i];
  return NULL;
}

int64_t msg_local_horizon_get(const msg_local_session *s, const char *node, const char *only,
                              int64_t starts) {
  const msg_local_horizon *h = find(s, node, only);
  return h && h->starts == starts ? h->seq : -1;
}

static void clear(msg_local_horizon *h) {
  msg_free(h->node);
  msg_free(h->only);
}

/* A new one at the end; the oldest goes where there are too many. */
static msg_local_horizon *add(msg_local_session *s, const char *node, const char *only) {
  if (!s->horizon && !(s->horizon = msg_zalloc(HORIZONS_MAX * sizeof *s->horizon)))
    return NULL;
  msg_local_horizon h = {.node = msg_strdup(node), .only = msg_strdup(only)};
  if (!h.node || !h.only) {
    clear(&h);
    return NULL;
  }
  if (s->horizons == HORIZONS_MAX) {
    clear(&s->horizon[0]);
    memmove(s->horizon, s->horizon + 1, --s->horizons * sizeof *s->horizon);
  }
  s->horizon[s->horizons] = h;
  return &s->horizon[s->horizons++];
}

void msg_local_horizon_set(msg_local_session *s, const char *node, const char *only, int64_t starts,
                           int64_t seq) {
  msg_local_horizon *h = find(s, node, only);
  if (!h)
    h = add(s, node, only);
  if (!h)
    return;
  h->starts = starts;
  h->seq = seq;
}

void msg_local_horizons_free(msg_local_session *s) {
  for (size_t i = 0; i < s->horizons; i++)
    clear(&s->horizon[i]);
  msg_free(s->horizon);
  s->horizon = NULL;
  s->horizons = 0;
}
