/* bytes.h - takes typed values off the front of a fuzzer's input; what is missing is zero. */
#ifndef MSG_TESTS_FUZZ_BYTES_H
#define MSG_TESTS_FUZZ_BYTES_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct bytes {
  const uint8_t *at;
  size_t n;
} bytes;

static inline void bytes_take(bytes *b, void *out, size_t n) {
  size_t have = n < b->n ? n : b->n;
  memset(out, 0, n);
  if (have > 0)
    memcpy(out, b->at, have);
  b->at += have;
  b->n -= have;
}

static inline uint8_t bytes_u8(bytes *b) {
  uint8_t v;
  bytes_take(b, &v, 1);
  return v;
}

/* Mostly small or at an edge, where the bounds are. */
static inline int64_t bytes_i64(bytes *b) {
  static const int64_t EDGES[] = {INT64_MIN, INT64_MAX, INT32_MIN, INT32_MAX, -1, 0, 1, 2};
  uint8_t how = bytes_u8(b);
  int64_t v;
  if (how < 8)
    return EDGES[how];
  if (how < 128)
    return (int8_t)bytes_u8(b);
  bytes_take(b, &v, sizeof v);
  return v;
}

/** A NUL-terminated copy (free) of up to 255 bytes; NULs may stand inside. *n: bytes without the
 *  last. */
static inline char *bytes_text(bytes *b, size_t *n) {
  *n = bytes_u8(b);
  if (*n > b->n)
    *n = b->n;
  char *text = malloc(*n + 1);
  if (!text)
    abort();
  bytes_take(b, text, *n);
  text[*n] = '\0';
  return text;
}

static inline void must(int holds) {
  if (!holds)
    abort();
}

#endif
