/* str.h - a growable string whose first failure sticks: append freely, look at the end. */
#ifndef MSG_BASE_STR_H
#define MSG_BASE_STR_H

#include <stdbool.h>
#include <stddef.h>

typedef struct msg_str {
  char *s;  /* NUL-terminated once anything was appended, else NULL */
  size_t n; /* bytes without the NUL */
  size_t cap;
  bool nomem; /* sticky: later appends do nothing */
} msg_str;

#define MSG_STR_INIT                                                                               \
  { 0 }

/** Append text, NULL is nothing. No argument may point into s itself. */
void msg_str_append(msg_str *s, const char *text);
void msg_str_appendn(msg_str *s, const void *bytes, size_t n);
void msg_str_appendf(msg_str *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/** Standard base64 with padding (RFC 4648 section 4). */
void msg_str_append_base64(msg_str *s, const void *bytes, size_t n);
/** Give the text to the caller (msg_free) and reset; NULL when memory ran out. Empty gives "". */
char *msg_str_take(msg_str *s);
/** Free and reset, the sticky failure too. */
void msg_str_clear(msg_str *s);

/** Bytes of the well-formed UTF-8 sequence (not NUL) at s, which has n bytes left; 0: malformed.
 *  Overlong forms, surrogates and anything above U+10FFFF are malformed. */
size_t msg_utf8_sequence(const char *s, size_t n);

/* A value of the user's, fit for an error text: short, one line, valid UTF-8. */
typedef struct msg_shown {
  char s[80];
} msg_shown;

/** Copy of s with control characters and malformed bytes as \xNN, cut with "..." when long. NULL is
 *  shown as "". Use as `msg_show(name).s` within one expression. */
msg_shown msg_show(const char *s);

#endif
