#include "base/oid.h"

#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "base/process.h"
#include "base/thread.h"

static int seeded;
static uint8_t process_random[5]; /* written under `seeded` only */
static _Atomic uint32_t counter;  /* 24 bits count, from a random start */

static void seed(void) {
  uint32_t start;
  msg_process_random(process_random, sizeof process_random);
  msg_process_random(&start, sizeof start);
  atomic_store_explicit(&counter, start, memory_order_relaxed);
}

static void put_be(uint8_t *out, uint32_t v, unsigned bytes) {
  for (unsigned i = 0; i < bytes; i++)
    out[i] = (uint8_t)(v >> 8 * (bytes - 1 - i));
}

/* Relaxed: that no two callers get one number is all the counter promises. 24 bits wrap after 16.7
 * million ids, which no process makes within the second that the first four bytes count. */
msg_oid msg_oid_at(int64_t now_ms) {
  msg_oid id;
  msg_once_per_fork(&seeded, seed);
  put_be(id.b, (uint32_t)(now_ms / 1000), 4);
  memcpy(id.b + 4, process_random, sizeof process_random);
  put_be(id.b + 9, atomic_fetch_add_explicit(&counter, 1, memory_order_relaxed), 3);
  return id;
}

msg_oid msg_oid_new(void) {
  return msg_oid_at(msg_clock_now_ms());
}

void msg_oid_hex(const msg_oid *id, char out[MSG_OID_HEX + 1]) {
  static const char DIGITS[] = "0123456789abcdef";
  for (size_t i = 0; i < sizeof id->b; i++) {
    out[2 * i] = DIGITS[id->b[i] >> 4];
    out[2 * i + 1] = DIGITS[id->b[i] & 15];
  }
  out[MSG_OID_HEX] = '\0';
}

/* The digit's value + 1; 0: none. */
static const uint8_t HEX[256] = {
    ['0'] = 1,  ['1'] = 2,  ['2'] = 3,  ['3'] = 4,  ['4'] = 5,  ['5'] = 6,  ['6'] = 7,  ['7'] = 8,
    ['8'] = 9,  ['9'] = 10, ['a'] = 11, ['b'] = 12, ['c'] = 13, ['d'] = 14, ['e'] = 15, ['f'] = 16,
    ['A'] = 11, ['B'] = 12, ['C'] = 13, ['D'] = 14, ['E'] = 15, ['F'] = 16,
};

bool msg_oid_parse(const char *s, msg_oid *out) {
  msg_oid id;
  unsigned ok = 1;
  if (!s || strnlen(s, MSG_OID_HEX + 1) != MSG_OID_HEX)
    return false;
  for (size_t i = 0; i < sizeof id.b; i++) {
    unsigned hi = HEX[(uint8_t)s[2 * i]], lo = HEX[(uint8_t)s[2 * i + 1]];
    ok &= (hi != 0) & (lo != 0);
    id.b[i] = (uint8_t)((hi - 1) << 4 | (lo - 1));
  }
  if (ok)
    *out = id;
  return ok != 0;
}

int msg_oid_cmp(const msg_oid *a, const msg_oid *b) {
  return memcmp(a->b, b->b, sizeof a->b);
}

bool msg_oid_is_zero(const msg_oid *id) {
  static const msg_oid ZERO;
  return msg_oid_cmp(id, &ZERO) == 0;
}

size_t msg_oid_index(const msg_oid *ids, size_t n, const msg_oid *id) {
  size_t i = 0;
  while (i < n && msg_oid_cmp(&ids[i], id) != 0)
    i++;
  return i;
}

size_t msg_oid_place(const void *rows, size_t n, size_t size, const msg_oid *id) {
  const char *at = rows;
  size_t low = 0, high = n;
  if (n && msg_oid_cmp((const msg_oid *)(at + (n - 1) * size), id) < 0)
    return n;
  while (low < high) {
    size_t i = low + (high - low) / 2;
    if (msg_oid_cmp((const msg_oid *)(at + i * size), id) < 0)
      low = i + 1;
    else
      high = i;
  }
  return low;
}
