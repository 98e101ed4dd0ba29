/* contract_direct.c - the contract: directs, answers, lanes of recipients. */
#include <string.h>

#include "support/contract.h"

static const char *look(contract *k, const char *node, const msg_unseen *u) {
  msg_list list = MSG_LIST_INIT;
  msg_actor actor = contract_actor(k, node);
  OK(k->s->ops->unseen(k->s, &actor, u, &list, &k->err));
  const char *texts = contract_texts(&list);
  msg_list_clear(&list);
  return texts;
}

static void only_recipients(void **state) {
  contract *k = *state;
  contract_listen(k, "c", "*", false);
  PUT(.topic = "t", .text = "1", .to = "a", .to_also = "b");
  assert_string_equal(contract_await(k, "c", NULL, 9), "");
  assert_string_equal(contract_await(k, "a", NULL, 9), "1"); /* without listening */
  assert_string_equal(contract_await(k, "a", NULL, 9), "");
  assert_string_equal(contract_await(k, "b", "t", 9), "1");
}

static void to_oneself(void **state) {
  contract *k = *state;
  PUT(.topic = "t", .text = "1", .to = "a", .sender = "a");
  assert_string_equal(contract_await(k, "a", NULL, 9), "1");
}

static void only_of_the_topic(void **state) {
  contract *k = *state;
  PUT(.topic = "t", .text = "1", .to = "a");
  PUT(.topic = "u", .text = "2", .to = "a");
  assert_string_equal(contract_await(k, "a", "u*", 9), "2");
  assert_string_equal(contract_await(k, "a", "t", 9), "1");
}

/* More of other topics in front than anybody should have to read. */
static void behind_many_of_other_topics(void **state) {
  contract *k = *state;
  enum { MANY = 300 };
  static msg_message m[MANY];
  static msg_put items[MANY];
  memset(items, 0, sizeof items);
  for (int i = 0; i < MANY; i++) {
    contract_message(&(contract_spec){.topic = i % 2 ? "o.1" : "o.2", .text = "o", .to = "a"},
                     &m[i]);
    items[i].message = &m[i];
  }
  msg_actor actor = contract_actor(k, "sender");
  OK(k->s->ops->put(k->s, &actor, items, MANY, &k->err));
  for (int i = 0; i < MANY; i++)
    msg_message_clear(&m[i]);
  contract_pass(k, 1);
  PUT(.topic = "t.1", .text = "1", .to = "a");
  contract_pass(k, 1);
  PUT(.topic = "t.2", .text = "2", .to = "a");
  contract_pass(k, 1);
  PUT(.topic = "t.1", .text = "3", .to = "a");
  PUT(.topic = "u", .text = "4", .to = "a", .priority = 2000);
  PUT(.topic = "u", .text = "5", .to = "a", .priority = 1);
  msg_pattern *o = contract_pattern("o*"), *t = contract_pattern("t*"),
              *t1 = contract_pattern("t.1");
  const msg_pattern *paused[] = {o};
  assert_string_equal(look(k, "a", &(msg_unseen){.pattern = t, .max = 9}), "1 2 3");
  assert_string_equal(look(k, "a", &(msg_unseen){.pattern = t, .max = 2}), "1 2");
  assert_string_equal(look(k, "a", &(msg_unseen){.pattern = t1, .max = 9}), "1 3");
  assert_string_equal(look(k, "a", &(msg_unseen){.paused = paused, .paused_count = 1, .max = 9}),
                      "5 1 2 3 4");
  assert_string_equal(look(k, "a", &(msg_unseen){.pattern = o, .max = 3}), "o o o");
  assert_string_equal(look(k, "a", &(msg_unseen){.max = 2}), "5 o");
  msg_pattern_free(o);
  msg_pattern_free(t);
  msg_pattern_free(t1);
}

static void with_broadcasts_in_order(void **state) {
  contract *k = *state;
  contract_listen(k, "a", "t", false);
  PUT(.topic = "t", .text = "1");
  contract_pass(k, 1);
  PUT(.topic = "t", .text = "2", .to = "a");
  contract_pass(k, 1);
  PUT(.topic = "t", .text = "3");
  contract_pass(k, 1);
  PUT(.topic = "t", .text = "4", .to = "a", .priority = 1);
  assert_string_equal(contract_await(k, "a", "t", 2), "4 1");
  assert_string_equal(contract_await(k, "a", "t", 9), "2 3");
}

static void not_before_their_time(void **state) {
  contract *k = *state;
  PUT(.topic = "t", .text = "1", .to = "a", .delay_ms = 1000);
  assert_string_equal(contract_await(k, "a", NULL, 9), "");
  contract_pass(k, 1000);
  assert_string_equal(contract_await(k, "a", NULL, 9), "1");
}

static void not_after_their_life(void **state) {
  contract *k = *state;
  PUT(.topic = "t", .text = "1", .to = "a", .ttl_ms = 1000);
  contract_pass(k, 1000);
  assert_string_equal(contract_await(k, "a", NULL, 9), "");
}

static void answers_to_a_request(void **state) {
  contract *k = *state;
  msg_oid mine = msg_oid_new(), other = msg_oid_new();
  PUT(.topic = "r", .text = "1", .to = "a", .answers = &other);
  PUT(.topic = "r", .text = "2", .to = "a", .answers = &mine);
  PUT(.topic = "s", .text = "3", .to = "a", .answers = &mine);
  PUT(.topic = "r", .text = "4", .to = "b", .answers = &mine);
  PUT(.topic = "r", .text = "5", .to = "a");
  assert_string_equal(look(k, "a", &(msg_unseen){.answers_to = &mine, .max = 9}), "2 3");
  assert_string_equal(look(k, "a", &(msg_unseen){.answers_to = &mine, .max = 1}), "2");
  assert_string_equal(look(k, "b", &(msg_unseen){.answers_to = &mine, .max = 9}), "4");
  assert_string_equal(look(k, "b", &(msg_unseen){.answers_to = &other, .max = 9}), "");
}

static void reserved_answers_are_left_alone(void **state) {
  contract *k = *state;
  msg_oid reserved[2] = {msg_oid_new(), msg_oid_new()}, other = msg_oid_new();
  PUT(.topic = "r", .text = "1", .to = "a", .answers = &reserved[0]);
  PUT(.topic = "r", .text = "2", .to = "a", .answers = &reserved[1]);
  PUT(.topic = "r", .text = "3", .to = "a", .answers = &other);
  PUT(.topic = "r", .text = "4", .to = "a");
  msg_pattern *r = contract_pattern("r");
  msg_unseen u = {.reserved = reserved, .reserved_count = 2, .max = 9};
  assert_string_equal(look(k, "a", &u), "3 4");
  u.pattern = r;
  assert_string_equal(look(k, "a", &u), "3 4");
  u.max = 1;
  assert_string_equal(look(k, "a", &u), "3");
  u.reserved_count = 0;
  u.max = 9;
  assert_string_equal(look(k, "a", &u), "1 2 3 4");
  msg_pattern_free(r);
}

/* A claim by any recipient, and by nobody else. */
static void exclusive_to_recipients(void **state) {
  contract *k = *state;
  PUT(.topic = "t", .text = "1", .to = "a", .to_also = "b", .exclusive = true);
  assert_string_equal(contract_await(k, "a", NULL, 9), "");
  assert_string_equal(contract_claimed(k, "c", "t", 9), "");
  assert_string_equal(contract_claimed(k, "b", "t", 9), "1");
  assert_string_equal(contract_claimed(k, "a", "t", 9), "");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(only_recipients),         cmocka_unit_test(to_oneself),
    cmocka_unit_test(only_of_the_topic),       cmocka_unit_test(with_broadcasts_in_order),
    cmocka_unit_test(not_before_their_time),   cmocka_unit_test(not_after_their_life),
    cmocka_unit_test(answers_to_a_request),    cmocka_unit_test(reserved_answers_are_left_alone),
    cmocka_unit_test(exclusive_to_recipients), cmocka_unit_test(behind_many_of_other_topics),
};
const contract_group contract_directs = {"direct", tests, sizeof tests / sizeof *tests};
