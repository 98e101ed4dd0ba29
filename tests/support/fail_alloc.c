#include "support/fail_alloc.h"

#include <sqlite3.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/mem.h"
#include "support/cmocka_compat.h"

static _Atomic long live;      /* blocks */
static _Atomic long countdown; /* allocations until the failing one; <= 0: disarmed or past it */
static _Atomic bool armed;
static _Atomic bool forever_on;
static _Atomic bool fired;

static bool must_fail(void) {
  if (!armed)
    return false;
  long left = atomic_fetch_sub(&countdown, 1) - 1;
  bool fail = left == 0 || (left < 0 && forever_on);
  if (fail)
    fired = true;
  return fail;
}

static void *counted_alloc(size_t n) {
  void *p = must_fail() ? NULL : malloc(n);
  if (p)
    atomic_fetch_add(&live, 1);
  return p;
}

static void *counted_resize(void *p, size_t n) {
  if (must_fail())
    return NULL;
  void *grown = realloc(p, n);
  if (grown && !p)
    atomic_fetch_add(&live, 1);
  return grown;
}

static void counted_release(void *p) {
  if (p)
    atomic_fetch_sub(&live, 1);
  free(p);
}

void fail_alloc_install(void) {
  static const msg_mem_hooks HOOKS = {counted_alloc, counted_resize, counted_release};
  live = 0;
  fail_alloc_arm(0, false);
  msg_mem_set(&HOOKS);
}

/* ---- SQLite's ---- */

static sqlite3_mem_methods sqlite_own;

static void *sqlite_alloc(int n) {
  void *p = must_fail() ? NULL : sqlite_own.xMalloc(n);
  if (p)
    atomic_fetch_add(&live, 1);
  return p;
}

static void *sqlite_resize(void *p, int n) { /* p is never NULL */
  return must_fail() ? NULL : sqlite_own.xRealloc(p, n);
}

static void sqlite_release(void *p) {
  if (p)
    atomic_fetch_sub(&live, 1);
  sqlite_own.xFree(p);
}

static void *mem_alloc(size_t n) {
  return sqlite3_malloc64(n);
}

static void *mem_resize(void *p, size_t n) {
  return sqlite3_realloc64(p, n);
}

void fail_alloc_install_sqlite(void) {
  static const msg_mem_hooks HOOKS = {mem_alloc, mem_resize, sqlite3_free};
  assert_int_equal(sqlite3_config(SQLITE_CONFIG_GETMALLOC, &sqlite_own), SQLITE_OK);
  sqlite3_mem_methods failing = sqlite_own;
  failing.xMalloc = sqlite_alloc;
  failing.xRealloc = sqlite_resize;
  failing.xFree = sqlite_release;
  assert_int_equal(sqlite3_config(SQLITE_CONFIG_MALLOC, &failing), SQLITE_OK);
  assert_int_equal(sqlite3_config(SQLITE_CONFIG_LOOKASIDE, 0, 0), SQLITE_OK);
  assert_int_equal(sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 1), SQLITE_OK);
  assert_int_equal(sqlite3_initialize(), SQLITE_OK);
  msg_mem_set(&HOOKS);
}

void fail_alloc_remove(void) {
  msg_mem_set(NULL);
}

void fail_alloc_arm(long nth, bool forever) {
  armed = false;
  countdown = nth;
  forever_on = forever;
  fired = false;
  armed = nth > 0;
}

bool fail_alloc_disarm(void) {
  armed = false;
  return fired;
}

long fail_alloc_live(void) {
  return live;
}

static long each(int (*body)(void *arg), void *arg, bool forever) {
  for (long nth = 1;; nth++) {
    long before = fail_alloc_live();
    fail_alloc_arm(nth, forever);
    int rc = body(arg);
    bool failed = fail_alloc_disarm();
    if (rc != (failed ? MSG_NOMEM : MSG_OK))
      fail_msg("allocation %ld %s, but the body returned %s", nth, failed ? "failed" : "went well",
               msg_rc_name(rc));
    if (fail_alloc_live() != before)
      fail_msg("allocation %ld: %ld blocks leaked", nth, fail_alloc_live() - before);
    if (!failed)
      return nth - 1;
  }
}

long fail_alloc_each(int (*body)(void *arg), void *arg) {
  long n = each(body, arg, false);
  each(body, arg, true);
  return n;
}
