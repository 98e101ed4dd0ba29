/* mem.h - the one allocator of every room; ext/ points it at the host's sqlite3_malloc64. */
#ifndef MSG_BASE_MEM_H
#define MSG_BASE_MEM_H

#include <stddef.h>

typedef struct msg_mem_hooks {
  void *(*alloc)(size_t size_bytes);           /* never called with 0 */
  void *(*resize)(void *p, size_t size_bytes); /* p may be NULL */
  void (*release)(void *p);                    /* p may be NULL */
} msg_mem_hooks;

/** Replace the allocator (default: libc). Thread: before any other call of the process; tests swap
 *  it while nothing is allocated. NULL restores libc. */
void msg_mem_set(const msg_mem_hooks *hooks);

/** Allocate; NULL when memory is out. msg_alloc(0) gives a valid pointer of size 1. */
void *msg_alloc(size_t size_bytes);
void *msg_zalloc(size_t size_bytes);
void *msg_resize(void *p, size_t size_bytes);
void msg_free(void *p);

/** Copies, NUL-terminated; NULL for NULL or when memory is out (callers test the source). */
char *msg_strdup(const char *s);
char *msg_strndup(const char *s, size_t n);

/** Grow array *p of `size`-byte elements so that it holds at least `need`; *cap is updated.
 *  Returns 0, or MSG_NOMEM with *p unchanged. */
int msg_grow(void *p, size_t *cap, size_t need, size_t size);

#endif
