#include <string.h>

#include "model/options.h"

#define NAME_MAX_BYTES 64
#define DISTANCE_MAX   3
#define PREFIX_MIN     3

typedef unsigned char row[NAME_MAX_BYTES + 1];

static char fold(char c) {
  return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static unsigned char min3(int a, int b, int c) {
  int m = a < b ? a : b;
  return (unsigned char)(m < c ? m : c);
}

/* Edits between a[0..i) and b[0..j) for all j, from the rows for i-1 and i-2. */
static void fill_row(row out, const row prev, const row prev2, const char *a, size_t i,
                     const char *b, size_t nb) {
  out[0] = (unsigned char)i;
  for (size_t j = 1; j <= nb; j++) {
    bool same = fold(a[i - 1]) == fold(b[j - 1]);
    out[j] = min3(prev[j] + 1, out[j - 1] + 1, prev[j - 1] + !same);
    bool swapped =
        i > 1 && j > 1 && fold(a[i - 1]) == fold(b[j - 2]) && fold(a[i - 2]) == fold(b[j - 1]);
    if (swapped && prev2[j - 2] + 1 < out[j])
      out[j] = (unsigned char)(prev2[j - 2] + 1);
  }
}

/* Optimal string alignment; both at most NAME_MAX_BYTES long. */
static size_t distance(const char *a, size_t na, const char *b, size_t nb) {
  row rows[3];
  for (size_t j = 0; j <= nb; j++)
    rows[0][j] = (unsigned char)j;
  for (size_t i = 1; i <= na; i++)
    fill_row(rows[i % 3], rows[(i + 2) % 3], rows[(i + 1) % 3], a, i, b, nb);
  return rows[na % 3][nb];
}

static bool begins(const char *name, const char *start, size_t n) {
  size_t i = 0;
  while (i < n && name[i] && fold(name[i]) == fold(start[i]))
    i++;
  return i == n;
}

/* The shortest that begins so: "ttl" stands for "ttl_ms". */
static const char *longer(const char *name, size_t len, const char *const *known, size_t n) {
  const char *found = NULL;
  size_t best = NAME_MAX_BYTES + 1;
  for (size_t i = 0; i < n && len >= PREFIX_MIN; i++) {
    size_t known_len = strlen(known[i]);
    if (known_len < best && begins(known[i], name, len)) {
      best = known_len;
      found = known[i];
    }
  }
  return found;
}

const char *msg_nearest(const char *name, const char *const *known, size_t n) {
  size_t len = strlen(name), best = DISTANCE_MAX + 1;
  const char *found = NULL;
  if (len > NAME_MAX_BYTES)
    return NULL;
  for (size_t i = 0; i < n; i++) {
    size_t known_len = strlen(known[i]);
    if (known_len > NAME_MAX_BYTES)
      continue;
    size_t d = distance(name, len, known[i], known_len);
    if (d < best && d * 2 < len) {
      best = d;
      found = known[i];
    }
  }
  return found ? found : longer(name, len, known, n);
}
