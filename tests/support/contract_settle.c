/* contract_settle.c - the contract: ack, release, extend, reject, free. */
#include <string.h>

#include "support/contract.h"

/* Put one and let `node` claim it; its row. */
static msg_message claimed_one(contract *k, const char *node, int64_t lease_ms) {
  msg_list list = MSG_LIST_INIT;
  PUT(.topic = "t", .text = "1", .exclusive = true);
  contract_claim(k, k->s, node, "t", 1, lease_ms, &list);
  assert_int_equal(list.n, 1);
  msg_message m = list.at[0];
  msg_free(list.at);
  return m;
}

/* Everything of it but what time shows. */
static void same_claim(contract *k, const msg_message *want) {
  msg_message m;
  OK(k->s->ops->get(k->s, &want->id, &m, &k->err));
  assert_int_equal(m.state, want->state);
  assert_string_equal(m.owner, want->owner);
  assert_int_equal(m.until_ms, want->until_ms);
  assert_int_equal(m.attempts, want->attempts);
  assert_null(m.reason);
  msg_message_clear(&m);
}

static void ack_removes(void **state) {
  contract *k = *state;
  msg_message m = claimed_one(k, "a", 1000);
  assert_true(contract_settle(k, "a", MSG_SETTLE_ACK, &m.id, m.token, 0));
  assert_int_equal(contract_state(k, &m.id), -1);
  assert_false(contract_settle(k, "a", MSG_SETTLE_ACK, &m.id, m.token, 0));
  msg_message_clear(&m);
}

static void without_token_by_name(void **state) {
  contract *k = *state;
  msg_message m = claimed_one(k, "a", 1000);
  assert_false(contract_settle(k, "b", MSG_SETTLE_ACK, &m.id, NULL, 0));
  same_claim(k, &m);
  assert_true(contract_settle(k, "a", MSG_SETTLE_ACK, &m.id, NULL, 0));
  msg_message_clear(&m);
}

static void with_token_by_anybody(void **state) {
  contract *k = *state;
  msg_message m = claimed_one(k, "a", 1000);
  assert_true(contract_settle(k, "b", MSG_SETTLE_ACK, &m.id, m.token, 0));
  msg_message_clear(&m);
}

static void late_changes_nothing(void **state) {
  contract *k = *state;
  const enum msg_settle_verb verbs[] = {MSG_SETTLE_ACK, MSG_SETTLE_RELEASE, MSG_SETTLE_EXTEND,
                                        MSG_SETTLE_REJECT};
  for (size_t i = 0; i < 4; i++) {
    msg_message m = claimed_one(k, "a", 1000);
    contract_pass(k, 1000); /* over, though nobody noticed yet */
    assert_false(contract_settle(k, "a", verbs[i], &m.id, m.token, 5000));
    assert_false(contract_settle(k, "a", verbs[i], &m.id, NULL, 5000));
    msg_list list = MSG_LIST_INIT;
    contract_claim(k, k->s, "b", "t", 1, 1000, &list);
    assert_int_equal(list.n, 1);
    assert_memory_equal(&list.at[0].id, &m.id, sizeof m.id);
    assert_false(contract_settle(k, "a", verbs[i], &m.id, m.token, 5000));
    assert_false(contract_settle(k, "a", verbs[i], &m.id, NULL, 5000));
    same_claim(k, &list.at[0]);
    assert_true(contract_settle(k, "b", MSG_SETTLE_ACK, &m.id, list.at[0].token, 0));
    msg_list_clear(&list);
    msg_message_clear(&m);
  }
}

/* The same node again: the name fits, the token of the first claim does not. */
static void a_token_fences_within_a_node(void **state) {
  contract *k = *state;
  msg_message m = claimed_one(k, "a", 1000);
  contract_pass(k, 1000);
  assert_string_equal(contract_claimed(k, "a", "t", 1), "1");
  assert_false(contract_settle(k, "a", MSG_SETTLE_ACK, &m.id, m.token, 0));
  assert_true(contract_settle(k, "a", MSG_SETTLE_ACK, &m.id, NULL, 0));
  msg_message_clear(&m);
}

static void of_what_nobody_claimed(void **state) {
  contract *k = *state;
  msg_oid id = PUT(.topic = "t", .exclusive = true), none = msg_oid_new();
  assert_false(contract_settle(k, "a", MSG_SETTLE_ACK, &id, NULL, 0));
  assert_false(contract_settle(k, "a", MSG_SETTLE_FREE, &id, NULL, 0));
  assert_false(contract_settle(k, "a", MSG_SETTLE_ACK, &none, NULL, 0));
  assert_int_equal(contract_state(k, &id), MSG_STATE_READY);
}

static void in_one_batch(void **state) {
  contract *k = *state;
  msg_list list = MSG_LIST_INIT;
  for (int i = 0; i < 4; i++)
    PUT(.topic = "t", .exclusive = true, .group = i == 3 ? "g" : NULL);
  PUT(.topic = "t", .text = "next", .exclusive = true, .group = "g");
  contract_claim(k, k->s, "a", "t", 9, 1000, &list);
  assert_int_equal(list.n, 4);
  msg_settle_item items[5] = {{.id = list.at[0].id},
                              {.id = list.at[1].id, .token = list.at[2].token},
                              {.id = list.at[2].id, .token = list.at[2].token},
                              {.id = msg_oid_new()},
                              {.id = list.at[3].id}};
  if (strcmp(list.at[1].token, list.at[2].token) == 0)
    items[1].token = "000000000000000000000000";
  msg_settle how = {.verb = MSG_SETTLE_ACK};
  msg_actor actor = contract_actor(k, "a");
  OK(k->s->ops->settle(k->s, &actor, &how, items, 5, &k->err));
  assert_true(items[0].done);
  assert_false(items[1].done);
  assert_true(items[2].done);
  assert_false(items[3].done);
  assert_true(items[4].done);
  assert_int_equal(contract_count(k), 2);
  assert_string_equal(contract_claimed(k, "a", "t", 9), "next");
  msg_list_clear(&list);
}

/* By every verb, also with another claim in between. */
static void an_id_given_twice_is_done_once(void **state) {
  contract *k = *state;
  static const enum msg_settle_verb verbs[] = {MSG_SETTLE_EXTEND, MSG_SETTLE_RELEASE,
                                               MSG_SETTLE_REJECT, MSG_SETTLE_FREE, MSG_SETTLE_ACK};
  msg_actor actor = contract_actor(k, "a");
  for (size_t v = 0; v < sizeof verbs / sizeof *verbs; v++) {
    char topic[16];
    snprintf(topic, sizeof topic, "t%zu", v);
    msg_list list = MSG_LIST_INIT;
    for (int i = 0; i < 2; i++)
      PUT(.topic = topic, .exclusive = true);
    contract_claim(k, k->s, "a", topic, 1, 60000, &list);
    contract_claim(k, k->s, "a", topic, 1, 60000, &list);
    assert_int_equal(list.n, 2);
    const msg_message *a = &list.at[0], *b = &list.at[1];
    msg_settle_item items[] = {{.id = a->id},
                               {.id = a->id},
                               {.id = b->id, .token = b->token},
                               {.id = a->id},
                               {.id = b->id, .token = b->token}};
    msg_settle how = {.verb = verbs[v], .lease_ms = 60000, .reason = "refused"};
    OK(k->s->ops->settle(k->s, &actor, &how, items, 5, &k->err));
    for (int i = 0; i < 5; i++)
      if (items[i].done != (i == 0 || i == 2))
        fail_msg("verb %d, item %d", (int)verbs[v], i);
    msg_list_clear(&list);
  }
}

/* Under several tokens: that which holds tells. */
static void an_id_given_with_other_tokens_too(void **state) {
  contract *k = *state;
  static const enum msg_settle_verb verbs[] = {MSG_SETTLE_EXTEND, MSG_SETTLE_RELEASE,
                                               MSG_SETTLE_REJECT, MSG_SETTLE_ACK};
  msg_actor actor = contract_actor(k, "a");
  for (size_t v = 0; v < sizeof verbs / sizeof *verbs; v++) {
    char topic[16];
    snprintf(topic, sizeof topic, "t%zu", v);
    msg_list list = MSG_LIST_INIT;
    PUT(.topic = topic, .exclusive = true);
    contract_claim(k, k->s, "a", topic, 1, 60000, &list);
    const msg_message *m = &list.at[0];
    msg_settle_item items[] = {{.id = m->id, .token = "000000000000000000000000"},
                               {.id = m->id, .token = m->token},
                               {.id = m->id, .token = "ffffffffffffffffffffffff"},
                               {.id = m->id}};
    msg_settle how = {.verb = verbs[v], .lease_ms = 60000, .reason = "refused"};
    OK(k->s->ops->settle(k->s, &actor, &how, items, 4, &k->err));
    for (int i = 0; i < 4; i++)
      if (items[i].done != (i == 1))
        fail_msg("verb %d, item %d", (int)verbs[v], i);
    msg_list_clear(&list);
  }
}

static void release_gives_back(void **state) {
  contract *k = *state;
  msg_list list = MSG_LIST_INIT;
  msg_message m = claimed_one(k, "a", 1000);
  assert_true(contract_settle(k, "a", MSG_SETTLE_RELEASE, &m.id, m.token, 0));
  assert_int_equal(contract_state(k, &m.id), MSG_STATE_READY);
  contract_claim(k, k->s, "b", "t", 1, 1000, &list);
  assert_int_equal(list.n, 1);
  assert_int_equal(list.at[0].attempts, 2);
  msg_list_clear(&list);
  assert_true(contract_settle(k, "b", MSG_SETTLE_RELEASE, &m.id, NULL, 5000));
  assert_int_equal(contract_state(k, &m.id), MSG_STATE_DELAYED);
  assert_string_equal(contract_claimed(k, "b", "t", 1), "");
  contract_pass(k, 5000);
  assert_string_equal(contract_claimed(k, "b", "t", 1), "1");
  msg_message_clear(&m);
}

static void release_goes_back_to_its_place(void **state) {
  contract *k = *state;
  msg_message m = claimed_one(k, "a", 1000);
  PUT(.topic = "t", .text = "2", .exclusive = true);
  assert_true(contract_settle(k, "a", MSG_SETTLE_RELEASE, &m.id, NULL, 0));
  assert_string_equal(contract_claimed(k, "a", "t", 9), "1 2");
  msg_message_clear(&m);
}

static void release_of_the_last_attempt_is_death(void **state) {
  contract *k = *state;
  msg_message m = claimed_one(k, "a", 1000), got;
  k->settings.max_attempts = 1;
  assert_true(contract_settle(k, "a", MSG_SETTLE_RELEASE, &m.id, NULL, 0));
  OK(k->s->ops->get(k->s, &m.id, &got, &k->err));
  assert_int_equal(got.state, MSG_STATE_DEAD);
  assert_string_equal(got.reason, "max_attempts");
  msg_message_clear(&got);
  msg_message_clear(&m);
}

static void release_to_recipients_and_groups(void **state) {
  contract *k = *state;
  msg_list list = MSG_LIST_INIT;
  PUT(.topic = "t", .text = "1", .exclusive = true, .to = "a", .ttl_ms = 90000);
  PUT(.topic = "t", .text = "g1", .exclusive = true, .group = "g");
  PUT(.topic = "t", .text = "g2", .exclusive = true, .group = "g");
  contract_claim(k, k->s, "a", "t", 9, 1000, &list);
  assert_string_equal(contract_texts(&list), "1 g1");
  for (size_t i = 0; i < 2; i++)
    assert_true(contract_settle(k, "a", MSG_SETTLE_RELEASE, &list.at[i].id, NULL, 0));
  msg_list_clear(&list);
  assert_string_equal(contract_claimed(k, "b", "t", 9), "g1");
  assert_string_equal(contract_claimed(k, "a", "t", 9), "1");
}

static void extend_moves_the_end(void **state) {
  contract *k = *state;
  msg_message m = claimed_one(k, "a", 10000), got;
  contract_pass(k, 5000);
  int64_t now_ms = msg_clock_now_ms();
  assert_true(contract_settle(k, "a", MSG_SETTLE_EXTEND, &m.id, m.token, 30000));
  OK(k->s->ops->get(k->s, &m.id, &got, &k->err));
  assert_true(got.until_ms >= now_ms + 30000 && got.until_ms <= msg_clock_now_ms() + 30000);
  assert_int_equal(got.attempts, 1);
  msg_message_clear(&got);
  contract_pass(k, 20000);
  assert_string_equal(contract_claimed(k, "b", "t", 1), "");
  assert_true(contract_settle(k, "a", MSG_SETTLE_EXTEND, &m.id, NULL, 10)); /* shorter, too */
  contract_pass(k, 11);
  assert_string_equal(contract_claimed(k, "b", "t", 1), "1");
  msg_message_clear(&m);
}

static void reject_is_death_with_a_reason(void **state) {
  contract *k = *state;
  msg_message got;
  msg_list list = MSG_LIST_INIT;
  msg_oid id = PUT(.topic = "t", .exclusive = true, .ttl_ms = 1000);
  contract_claim(k, k->s, "a", "t", 1, 1000, &list);
  assert_true(contract_settle(k, "a", MSG_SETTLE_REJECT, &id, list.at[0].token, 0));
  contract_pass(k, 100000); /* dead letters do not expire */
  OK(k->s->ops->get(k->s, &id, &got, &k->err));
  assert_int_equal(got.state, MSG_STATE_DEAD);
  assert_string_equal(got.reason, "refused");
  assert_int_equal(got.attempts, 1);
  assert_null(got.owner);
  assert_string_equal(got.token, "");
  assert_int_equal(got.delete_at_ms, MSG_NEVER);
  msg_message_clear(&got);
  assert_string_equal(contract_claimed(k, "a", "t", 1), "");
  msg_list_clear(&list);
}

static void free_whoever_owns_it(void **state) {
  contract *k = *state;
  msg_message m = claimed_one(k, "a", 100000);
  assert_true(contract_settle(k, "operator", MSG_SETTLE_FREE, &m.id, NULL, 0));
  assert_int_equal(contract_state(k, &m.id), MSG_STATE_READY);
  assert_false(contract_settle(k, "a", MSG_SETTLE_ACK, &m.id, m.token, 0));
  assert_string_equal(contract_claimed(k, "b", "t", 1), "1");
  msg_message_clear(&m);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(ack_removes),
    cmocka_unit_test(without_token_by_name),
    cmocka_unit_test(with_token_by_anybody),
    cmocka_unit_test(late_changes_nothing),
    cmocka_unit_test(a_token_fences_within_a_node),
    cmocka_unit_test(of_what_nobody_claimed),
    cmocka_unit_test(in_one_batch),
    cmocka_unit_test(an_id_given_twice_is_done_once),
    cmocka_unit_test(an_id_given_with_other_tokens_too),
    cmocka_unit_test(release_gives_back),
    cmocka_unit_test(release_goes_back_to_its_place),
    cmocka_unit_test(release_of_the_last_attempt_is_death),
    cmocka_unit_test(release_to_recipients_and_groups),
    cmocka_unit_test(extend_moves_the_end),
    cmocka_unit_test(reject_is_death_with_a_reason),
    cmocka_unit_test(free_whoever_owns_it),
};
const contract_group contract_settles = {"settle", tests, sizeof tests / sizeof *tests};
