/* test_inbox.c - a node's inbox: its order, its bounds, and what of it needs no look. */
#include "engine/inbox.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "support/cmocka_compat.h"

static msg_oid push(msg_inbox *b, int32_t priority, int64_t told_ms, size_t max, bool fits) {
  msg_message m;
  msg_message_init(&m);
  m.id = msg_oid_new();
  m.topic = msg_strdup("t");
  m.priority = priority;
  msg_oid id = m.id;
  msg_parcel *p = msg_parcel_new(&m, told_ms);
  assert_int_equal(msg_inbox_push(b, p, max), fits);
  msg_parcel_unref(p);
  return id;
}

static const msg_looked nothing = {0};

static bool any(const void *arg, const msg_message *m) {
  (void)arg, (void)m;
  return true;
}

static void in_delivery_order(void **state) {
  (void)state;
  msg_inbox b = {0};
  msg_list out = MSG_LIST_INIT;
  bool soon;
  int32_t priorities[] = {5, 3, 9, 3, 1};
  for (size_t i = 0; i < 5; i++)
    push(&b, priorities[i], 0, 10, true);
  assert_int_equal(msg_inbox_take(&b, any, NULL, 3, &nothing, &out, &soon), MSG_OK);
  assert_int_equal(out.n, 3);
  assert_int_equal(out.at[0].priority, 1);
  assert_int_equal(out.at[1].priority, 3);
  assert_int_equal(out.at[2].priority, 3);
  assert_true(out.at[1].seq <= out.at[2].seq);
  assert_true(soon); /* no look found anything */
  assert_int_equal(b.n, 2);
  msg_list_clear(&out);
  msg_inbox_clear(&b);
}

static void what_does_not_fit_empties_it(void **state) {
  (void)state;
  msg_inbox b = {0};
  push(&b, 1, 0, 2, true);
  push(&b, 1, 0, 2, true);
  uint32_t epoch = b.epoch;
  push(&b, 1, 0, 2, false);
  assert_int_equal(b.n, 0);
  assert_int_equal(b.bytes, 0);
  assert_int_not_equal(b.epoch, epoch);
  push(&b, 1, 0, 2, true);
  msg_inbox_clear(&b);
}

static void bytes_are_bounded(void **state) {
  (void)state;
  msg_inbox b = {0};
  for (int i = 0; i < 3; i++) {
    msg_message m;
    msg_message_init(&m);
    m.id = msg_oid_new();
    m.topic = msg_alloc(MSG_INBOX_MAX_BYTES);
    memset(m.topic, 'x', MSG_INBOX_MAX_BYTES - 1);
    m.topic[MSG_INBOX_MAX_BYTES - 1] = '\0';
    msg_parcel *p = msg_parcel_new(&m, 0);
    assert_int_equal(msg_inbox_push(&b, p, 10), i % 2 == 0); /* one always fits */
    msg_parcel_unref(p);
  }
  msg_inbox_clear(&b);
}

/* What was pushed before the look at the store was there for it to find. */
static void only_what_came_since(void **state) {
  (void)state;
  msg_inbox b = {0};
  msg_list out = MSG_LIST_INIT;
  bool soon;
  push(&b, 1, 0, 10, true);
  msg_looked since = {.pushes = b.pushes};
  msg_oid second = push(&b, 2, 0, 10, true);
  assert_int_equal(msg_inbox_take(&b, any, NULL, 10, &since, &out, &soon), MSG_OK);
  assert_int_equal(out.n, 1);
  assert_int_equal(msg_oid_cmp(&out.at[0].id, &second), 0);
  msg_list_clear(&out);
  msg_inbox_clear(&b);
}

/* A look found something: what the stream tells by then may be the same. */
static void after_a_look_what_was_not_told_by_itself_is_unsure(void **state) {
  (void)state;
  msg_inbox b = {0};
  msg_list found = MSG_LIST_INIT, out = MSG_LIST_INIT;
  bool soon;
  msg_message *m = msg_list_add(&found);
  m->id = push(&b, 1, 0, 10, true);
  msg_inbox_looked(&b, &found);
  assert_int_equal(found.n, 1);
  assert_int_equal(b.n, 0); /* it is the look's */
  push(&b, 1, b.scanned_ms, 10, true);
  assert_int_equal(msg_inbox_take(&b, any, NULL, 10, &nothing, &out, &soon), MSG_OK);
  assert_false(soon);
  msg_list_clear(&out);
  push(&b, 1, b.scanned_ms + 1, 10, true);
  assert_int_equal(msg_inbox_take(&b, any, NULL, 10, &nothing, &out, &soon), MSG_OK);
  assert_true(soon);
  msg_list_clear(&out);
  msg_list_clear(&found);
  msg_inbox_clear(&b);
}

/* Whether they were given before the store is asked for many at once. */
static void what_is_unsure_is_asked_for_together(void **state) {
  (void)state;
  msg_inbox b = {.scanned_ms = 5};
  msg_list unsure = MSG_LIST_INIT, out = MSG_LIST_INIT;
  const bool still[] = {true, false, true};
  bool soon;
  for (int i = 1; i <= 3; i++)
    push(&b, i, 5, 10, true);
  uint64_t upto = b.pushes;
  assert_int_equal(msg_inbox_unsure(&b, any, NULL, 10, &nothing, &unsure), MSG_OK);
  assert_int_equal(unsure.n, 3);
  push(&b, 4, 5, 10, true);
  msg_inbox_asked(&b, &unsure, still, upto);
  assert_int_equal(b.n, 3); /* one was given */
  assert_int_equal(msg_inbox_take(&b, any, NULL, 2, &nothing, &out, &soon), MSG_OK);
  assert_int_equal(out.n, 2);
  assert_true(soon);
  msg_list_clear(&out);
  assert_int_equal(msg_inbox_take(&b, any, NULL, 2, &nothing, &out, &soon), MSG_OK);
  assert_false(soon); /* it came since */
  msg_list_clear(&out);
  push(&b, 5, 6, 10, true);
  msg_list_clear(&unsure);
  assert_int_equal(msg_inbox_unsure(&b, any, NULL, 10, &nothing, &unsure), MSG_OK);
  assert_int_equal(unsure.n, 0); /* told by itself */
  msg_list_clear(&unsure);
  msg_inbox_clear(&b);
}

/* What is here or on its way may not be as it is in the store. */
static void in_doubt_nothing_is_kept(void **state) {
  (void)state;
  msg_inbox b = {0};
  push(&b, 1, 0, 10, true);
  uint32_t epoch = b.epoch;
  msg_inbox_doubt(&b);
  assert_int_equal(b.n, 0);
  assert_int_not_equal(b.epoch, epoch);
  epoch = b.epoch;
  push(&b, 2, 0, 10, false);
  assert_int_equal(b.n, 0);
  assert_int_not_equal(b.epoch, epoch);
  msg_inbox_clear(&b);
}

/* While one thread marks what it took, another's look does not have it too. */
static void what_is_being_taken_is_nobody_elses(void **state) {
  (void)state;
  msg_inbox b = {0};
  msg_list found = MSG_LIST_INIT, out = MSG_LIST_INIT;
  bool soon;
  msg_oid id = push(&b, 1, 0, 10, true);
  assert_int_equal(msg_inbox_take(&b, any, NULL, 10, &nothing, &out, &soon), MSG_OK);
  msg_list_add(&found)->id = id;
  msg_inbox_looked(&b, &found);
  assert_int_equal(found.n, 0);
  msg_inbox_took(&b, &id, 1);
  msg_list_add(&found)->id = id;
  msg_inbox_looked(&b, &found);
  assert_int_equal(found.n, 1);
  msg_list_clear(&out);
  msg_list_clear(&found);
  msg_inbox_clear(&b);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(in_delivery_order),
      cmocka_unit_test(what_does_not_fit_empties_it),
      cmocka_unit_test(bytes_are_bounded),
      cmocka_unit_test(only_what_came_since),
      cmocka_unit_test(after_a_look_what_was_not_told_by_itself_is_unsure),
      cmocka_unit_test(what_is_unsure_is_asked_for_together),
      cmocka_unit_test(in_doubt_nothing_is_kept),
      cmocka_unit_test(what_is_being_taken_is_nobody_elses),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
