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

bool msg_texts_have(const msg_texts *l, const char *text) {
  for (size_t i = 0; i < l->n; i++)
    if (strcmp(l->at[i], text) == 0)
      return true;
  return false;
}

int msg_texts_note(msg_texts *l, const char *text) {
  return msg_texts_have(l, text) ? MSG_OK : msg_texts_add(l, text);
}

void msg_texts_clear(msg_texts *l) {
  for (size_t i = 0; i < l->n; i++)
    msg_free(l->at[i]);
  msg_free(l->at);
  *l = (msg_texts){0};
}
