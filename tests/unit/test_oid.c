#include "base/oid.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"
#include "support/child.h"
#include "support/cmocka_compat.h"

#define THREADS 8
#define EACH    20000

static int cmp(const void *a, const void *b) {
  return msg_oid_cmp(a, b);
}

static size_t count_doubles(msg_oid *ids, size_t n) {
  size_t doubles = 0;
  qsort(ids, n, sizeof *ids, cmp);
  for (size_t i = 1; i < n; i++)
    doubles += msg_oid_cmp(&ids[i - 1], &ids[i]) == 0;
  return doubles;
}

static void make(void *arg) {
  msg_oid *ids = arg;
  for (size_t i = 0; i < EACH; i++)
    ids[i] = msg_oid_new();
}

/* First in main(): the threads race for the seed too. */
static void unique_over_threads(void **state) {
  (void)state;
  msg_oid *ids = malloc(sizeof *ids * THREADS * EACH);
  msg_thread *threads[THREADS];
  for (size_t i = 0; i < THREADS; i++)
    assert_int_equal(msg_thread_start(&threads[i], "oid", make, ids + i * EACH, NULL), MSG_OK);
  for (size_t i = 0; i < THREADS; i++)
    msg_thread_join(threads[i]);
  for (size_t i = 1; i < THREADS * EACH; i++) /* one seed for all */
    assert_memory_equal(ids[i].b + 4, ids[0].b + 4, 5);
  assert_int_equal(count_doubles(ids, THREADS * EACH), 0);
  free(ids);
}

/* The child writes the ids it made into the pipe. */
static int make_in_child(void *arg) {
  const int *fd = arg;
  msg_oid ids[100];
  for (size_t i = 0; i < 100; i++)
    ids[i] = msg_oid_new();
  return write(*fd, ids, sizeof ids) == sizeof ids ? 0 : 1;
}

static void unique_after_fork(void **state) {
  (void)state;
  msg_oid ids[300];
  int fds[2];
  assert_int_equal(pipe(fds), 0);
  ids[200] = msg_oid_new();
  for (size_t child = 0; child < 2; child++) {
    assert_int_equal(child_run(make_in_child, &fds[1]), 0);
    assert_int_equal(read(fds[0], ids + child * 100, 100 * sizeof *ids), 100 * sizeof *ids);
    assert_memory_not_equal(ids[child * 100].b + 4, ids[200].b + 4, 5);
  }
  assert_memory_not_equal(ids[0].b + 4, ids[100].b + 4, 5);
  for (size_t i = 201; i < 300; i++)
    ids[i] = msg_oid_new();
  assert_memory_equal(ids[299].b + 4, ids[200].b + 4, 5);
  assert_int_equal(count_doubles(ids, 300), 0);
  close(fds[0]);
  close(fds[1]);
}

static void holds_time_random_and_counter(void **state) {
  (void)state;
  int64_t before = msg_clock_now_ms() / 1000;
  msg_oid a = msg_oid_new(), b = msg_oid_new();
  int64_t after = msg_clock_now_ms() / 1000;
  int64_t seconds = (int64_t)a.b[0] << 24 | a.b[1] << 16 | a.b[2] << 8 | a.b[3];
  unsigned ca = (unsigned)a.b[9] << 16 | (unsigned)a.b[10] << 8 | a.b[11];
  unsigned cb = (unsigned)b.b[9] << 16 | (unsigned)b.b[10] << 8 | b.b[11];
  assert_true(seconds >= before && seconds <= after);
  assert_int_equal(cb, (ca + 1) & 0xFFFFFF);
  assert_memory_equal(a.b + 4, b.b + 4, 5);
}

static void hex_and_back(void **state) {
  (void)state;
  char hex[MSG_OID_HEX + 1];
  msg_oid id, back;
  assert_true(msg_oid_parse("0123456789abcdefABCDEF00", &id));
  assert_memory_equal(id.b, "\x01\x23\x45\x67\x89\xab\xcd\xef\xab\xcd\xef\x00", 12);
  msg_oid_hex(&id, hex);
  assert_string_equal(hex, "0123456789abcdefabcdef00");
  for (int i = 0; i < 1000; i++) {
    id = msg_oid_new();
    msg_oid_hex(&id, hex);
    assert_int_equal(strlen(hex), 24);
    assert_true(msg_oid_parse(hex, &back));
    assert_int_equal(msg_oid_cmp(&id, &back), 0);
  }
}

static void refuses_what_is_no_id(void **state) {
  (void)state;
  static const char *const BAD[] = {
      "",
      "0",
      "0123456789abcdef0123456",
      "0123456789abcdef012345678",
      "0123456789abcdef0123456g",
      "0123456789abcdef012345 7",
      " 123456789abcdef01234567",
      "0x23456789abcdef01234567",
      "0123456789abcdef0123456/",
      "0123456789abcdef0123456:",
      "0123456789abcdef0123456@",
      "0123456789abcdef0123456`",
      "-123456789abcdef01234567",
      "0123456789abcdef01234567\n",
  };
  msg_oid id = {{1}};
  for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++)
    assert_false(msg_oid_parse(BAD[i], &id));
  assert_false(msg_oid_parse(NULL, &id));
  assert_int_equal(id.b[0], 1); /* untouched */
}

static void compares_like_bytes(void **state) {
  (void)state;
  msg_oid a = {{0}}, b = {{0}};
  assert_int_equal(msg_oid_cmp(&a, &b), 0);
  assert_true(msg_oid_is_zero(&a));
  b.b[11] = 0x80;
  assert_true(msg_oid_cmp(&a, &b) < 0);
  assert_true(msg_oid_cmp(&b, &a) > 0);
  assert_false(msg_oid_is_zero(&b));
  a.b[0] = 1;
  assert_true(msg_oid_cmp(&a, &b) > 0);
}

static void is_found_in_an_array(void **state) {
  (void)state;
  const msg_oid ids[] = {{{1}}, {{2}}, {{2}}, {{3}}};
  assert_int_equal(msg_oid_index(ids, 4, &(msg_oid){{2}}), 1);
  assert_int_equal(msg_oid_index(ids, 4, &(msg_oid){{3}}), 3);
  assert_int_equal(msg_oid_index(ids, 3, &(msg_oid){{3}}), 3);
  assert_int_equal(msg_oid_index(NULL, 0, &(msg_oid){{3}}), 0);
}

static void has_a_place_among_ordered_rows(void **state) {
  (void)state;
  const struct {
    msg_oid id;
    int other;
  } rows[] = {{{{2}}, 0}, {{{4}}, 0}, {{{6}}, 0}};
  const size_t size = sizeof rows[0];
  for (unsigned char i = 1; i <= 7; i++)
    assert_int_equal(msg_oid_place(rows, 3, size, &(msg_oid){{i}}), (i - 1) / 2);
  assert_int_equal(msg_oid_place(NULL, 0, size, &(msg_oid){{1}}), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(unique_over_threads),
      cmocka_unit_test(unique_after_fork),
      cmocka_unit_test(holds_time_random_and_counter),
      cmocka_unit_test(hex_and_back),
      cmocka_unit_test(refuses_what_is_no_id),
      cmocka_unit_test(compares_like_bytes),
      cmocka_unit_test(is_found_in_an_array),
      cmocka_unit_test(has_a_place_among_ordered_rows),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
