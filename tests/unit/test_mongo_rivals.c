/* test_mongo_rivals.c - processes agree on whose turn a message is, and share them evenly. */
#include "store/mongo/rivals.h"

#include <stdio.h>

#include "support/cmocka_compat.h"

enum { PROCESSES = 5, MESSAGES = 1000 };

static char name[PROCESSES][16];

/* All but one. */
static msg_texts rivals_of(int self) {
  msg_texts r = {0};
  for (int i = 0; i < PROCESSES; i++)
    if (i != self)
      assert_int_equal(msg_texts_note(&r, name[i]), MSG_OK);
  return r;
}

static void every_message_has_one_order(void **state) {
  (void)state;
  int first[PROCESSES] = {0};
  for (int m = 0; m < MESSAGES; m++) {
    msg_oid id = msg_oid_new();
    unsigned taken = 0;
    for (int i = 0; i < PROCESSES; i++) {
      msg_texts r = rivals_of(i);
      size_t turn = msg_mongo_rivals_before(&r, name[i], &id);
      assert_in_range(turn, 0, PROCESSES - 1);
      assert_false(taken & 1u << turn); /* no two at once */
      taken |= 1u << turn;
      first[i] += turn == 0;
      msg_texts_clear(&r);
    }
  }
  for (int i = 0; i < PROCESSES; i++)
    assert_in_range(first[i], MESSAGES / PROCESSES / 2, MESSAGES / PROCESSES * 2);
}

static void alone_it_goes_at_once(void **state) {
  (void)state;
  msg_texts none = {0};
  msg_oid id = msg_oid_new();
  assert_int_equal(msg_mongo_rivals_before(&none, name[0], &id), 0);
}

static void a_process_counts_once(void **state) {
  (void)state;
  msg_texts r = {0};
  assert_int_equal(msg_texts_note(&r, "p"), MSG_OK);
  assert_int_equal(msg_texts_note(&r, "p"), MSG_OK);
  assert_int_equal(r.n, 1);
  msg_texts_clear(&r);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_message_has_one_order),
      cmocka_unit_test(alone_it_goes_at_once),
      cmocka_unit_test(a_process_counts_once),
  };
  for (int i = 0; i < PROCESSES; i++)
    snprintf(name[i], sizeof name[i], "process-%d", i);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
