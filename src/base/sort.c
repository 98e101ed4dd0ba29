#include "base/sort.h"

#include <stdlib.h>

bool msg_sort(void *at, size_t n, size_t size, int (*cmp)(const void *, const void *)) {
  const char *p = at;
  size_t i = 1;
  while (i < n && cmp(p + (i - 1) * size, p + i * size) <= 0)
    i++;
  if (i >= n)
    return true;
  qsort(at, n, size, cmp);
  return false;
}
