/* texts.h - a growable list of texts, copied. Owner thread only. */
#ifndef MSG_BASE_TEXTS_H
#define MSG_BASE_TEXTS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct msg_texts {
  char **at;
  size_t n, cap;
} msg_texts;
int msg_texts_add(msg_texts *l, const char *text); /* MSG_OK or MSG_NOMEM */
/** The same, unless it is there. */
int msg_texts_note(msg_texts *l, const char *text);
/** The same; its copy, or NULL when memory is out. */
char *msg_texts_keep(msg_texts *l, const char *text);
bool msg_texts_have(const msg_texts *l, const char *text);
void msg_texts_clear(msg_texts *l);

#endif
