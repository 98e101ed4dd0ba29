#include "base/texts.h"

#include <string.h>

#include "base/err.h"
#include "base/mem.h"

int msg_texts_add(msg_texts *l, const char *text) {
  char *copy = msg_strdup(text);
  if (!copy || msg_grow(&l->at, &l->cap, l->n + 1, sizeof *l->at) != MSG_OK) {
    msg_free(copy);
    return MSG_NOMEM;
  }
  l->at[l->n++] = copy;
  return MSG_OK;
}

static char *find(const msg_texts *l, const char *text) {
  for (size_t i = 0; i < l->n; i++)
    if (strcmp(l->at[i], text) == 0)
      return l->at[i];
  return NULL;
}

bool msg_texts_have(const msg_texts *l, const char *text) {
  return find(l, text) != NULL;
}

char *msg_texts_keep(msg_texts *l, const char *text) {
  char *there = find(l, text);
  if (there)
    return there;
  return msg_texts_add(l, text) == MSG_OK ? l->at[l->n - 1] : NULL;
}

int msg_texts_note(msg_texts *l, const char *text) {
  return msg_texts_keep(l, text) ? MSG_OK : MSG_NOMEM;
}

void msg_texts_clear(msg_texts *l) {
  for (size_t i = 0; i < l->n; i++)
    msg_free(l->at[i]);
  msg_free(l->at);
  *l = (msg_texts){0};
}
