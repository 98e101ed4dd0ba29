/* sort.h - sorting what mostly is in order. Thread: any. */
#ifndef MSG_BASE_SORT_H
#define MSG_BASE_SORT_H

#include <stdbool.h>
#include <stddef.h>

/** As qsort, which is left out where all is in order. True: it was. `at` may be NULL for n 0. */
bool msg_sort(void *at, size_t n, size_t size, int (*cmp)(const void *, const void *));

#endif
