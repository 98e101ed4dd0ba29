#include "base/mem.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

static void *libc_alloc(size_t n) {
  return malloc(n);
}
static void *libc_resize(void *p, size_t n) {
  return realloc(p, n);
}
static void libc_release(void *p) {
  free(p);
}

static const msg_mem_hooks LIBC = {libc_alloc, libc_resize, libc_release};
/* Set before the first thread starts, so it needs no lock. */
static msg_mem_hooks hooks_in_use = {libc_alloc, libc_resize, libc_release};

void msg_mem_set(const msg_mem_hooks *hooks) {
  hooks_in_use = hooks ? *hooks : LIBC;
}

/* Never 0 bytes: sqlite3_malloc64 would give NULL, as if memory were out. */
void *msg_alloc(size_t size_bytes) {
  return hooks_in_use.alloc(size_bytes ? size_bytes : 1);
}

void *msg_zalloc(size_t size_bytes) {
  void *p = msg_alloc(size_bytes);
  if (p)
    memset(p, 0, size_bytes ? size_bytes : 1);
  return p;
}

void *msg_resize(void *p, size_t size_bytes) {
  return hooks_in_use.resize(p, size_bytes ? size_bytes : 1);
}

void msg_free(void *p) {
  if (p)
    hooks_in_use.release(p);
}

char *msg_strdup(const char *s) {
  return s ? msg_strndup(s, strlen(s)) : NULL;
}

char *msg_strndup(const char *s, size_t n) {
  if (!s || n == SIZE_MAX)
    return NULL;
  n = strnlen(s, n);
  char *copy = msg_alloc(n + 1);
  if (!copy)
    return NULL;
  memcpy(copy, s, n);
  copy[n] = '\0';
  return copy;
}

/* Doubling, so that appending one by one stays linear. Half of SIZE_MAX is the limit: no allocator
 * gives more, and sums of such sizes cannot overflow. */
int msg_grow(void *p, size_t *cap, size_t need, size_t size) {
  if (need <= *cap)
    return MSG_OK;
  size_t want = *cap < 8 ? 8 : *cap <= SIZE_MAX / 2 ? *cap * 2 : SIZE_MAX;
  if (want < need)
    want = need;
  if (want > SIZE_MAX / 2 / size)
    want = need;
  if (want > SIZE_MAX / 2 / size)
    return MSG_NOMEM;
  void *old;
  memcpy(&old, p, sizeof old); /* p points at a pointer of any type */
  void *grown = msg_resize(old, want * size);
  if (!grown)
    return MSG_NOMEM;
  memcpy(p, &grown, sizeof grown);
  *cap = want;
  return MSG_OK;
}
