/* fail_alloc.h - allocators that fail the n-th allocation and count what is alive: below msg_mem
 * alone, or below SQLite and msg_mem alike. */
#ifndef MSG_TESTS_FAIL_ALLOC_H
#define MSG_TESTS_FAIL_ALLOC_H

#include <stdbool.h>

/** Point msg_mem at libc with counting; nothing fails until armed. Thread: one, while nothing of
 *  msg_mem is alive. */
void fail_alloc_install(void);
/** Count and fail SQLite's allocations, and send msg_mem's there, as ext/ does: for good. Before
 *  SQLite's first use. */
void fail_alloc_install_sqlite(void);
/** msg_mem back to libc. */
void fail_alloc_remove(void);
/** Fail the nth allocation or growth from now, counted from 1; `forever`: all after it too. 0:
 *  disarm. */
void fail_alloc_arm(long nth, bool forever);
/** Disarm; has any allocation failed since it was armed? */
bool fail_alloc_disarm(void);
/** Blocks alive that were allocated since install. Thread: any. */
long fail_alloc_live(void);

/** Run `body` with its first allocation failing, then its second, ... until it runs to the end
 *  without a failure; once failing singly, once failing for good. Each failing run shall return
 *  MSG_NOMEM, the last MSG_OK; every run shall free what it allocated. Fails the cmocka test
 *  otherwise. Returns how many allocations the body makes. */
long fail_alloc_each(int (*body)(void *arg), void *arg);

#endif
