/* contract_claim.c - the contract: claim, claimable. */
#include <string.h>

#include "support/contract.h"

static const char *claimed_by(contract *k, const char *node, const char *pattern, size_t n,
                              int64_t lease_ms) {
  msg_list list = MSG_LIST_INIT;
  contract_claim(k, k->s, node, pattern, n, lease_ms, &list);
  const char *texts = contract_texts(&list);
  msg_list_clear(&list);
  return texts;
}

static bool claimable(contract *k, const char *node, const char *pattern) {
  bool can = false;
  msg_pattern *p = contract_pattern(pattern);
  msg_actor actor = contract_actor(k, node);
  msg_claim claim = {.pattern = p, .count = 1, .lease_ms = 1000};
  OK(k->s->ops->claimable(k->s, &actor, &claim, &can, &k->err));
  msg_pattern_free(p);
  return can;
}

static void a_claim_tells_the_lease(void **state) {
  contract *k = *state;
  msg_list list = MSG_LIST_INIT;
  msg_message m;
  msg_oid id = PUT(.topic = "t", .text = "1", .exclusive = true);
  int64_t before_ms = msg_clock_now_ms();
  contract_claim(k, k->s, "a", "t", 9, 5000, &list);
  assert_int_equal(list.n, 1);
  const msg_message *c = &list.at[0];
  assert_memory_equal(&c->id, &id, sizeof id);
  assert_int_equal(c->state, MSG_STATE_CLAIMED);
  assert_string_equal(c->owner, "a");
  assert_int_equal(strlen(c->token), MSG_OID_HEX);
  assert_int_equal(c->attempts, 1);
  assert_true(c->since_ms >= before_ms && c->since_ms <= msg_clock_now_ms());
  assert_int_equal(c->until_ms, c->since_ms + 5000);
  OK(k->s->ops->get(k->s, &id, &m, &k->err)); /* the same to everybody */
  assert_int_equal(m.state, MSG_STATE_CLAIMED);
  assert_string_equal(m.owner, "a");
  assert_int_equal(m.until_ms, c->until_ms);
  assert_int_equal(m.attempts, 1);
  msg_message_clear(&m);
  msg_list_clear(&list);
}

static void a_claim_appends(void **state) {
  contract *k = *state;
  msg_list list = MSG_LIST_INIT;
  contract_claim(k, k->s, "a", "t", 9, 5000, &list);
  assert_int_equal(list.n, 0);
  PUT(.topic = "t", .text = "1", .exclusive = true);
  contract_claim(k, k->s, "a", "t", 9, 5000, &list);
  PUT(.topic = "t", .text = "2", .exclusive = true);
  contract_claim(k, k->s, "a", "t", 9, 5000, &list);
  assert_string_equal(contract_texts(&list), "1 2");
  msg_list_clear(&list);
}

static void only_exclusive_ones(void **state) {
  contract *k = *state;
  PUT(.topic = "t", .text = "1");
  PUT(.topic = "t", .text = "2", .to = "a");
  assert_false(claimable(k, "a", "t"));
  assert_string_equal(contract_claimed(k, "a", "t", 9), "");
}

static void ones_own_too(void **state) {
  contract *k = *state;
  PUT(.topic = "t", .text = "1", .exclusive = true, .sender = "a");
  assert_true(claimable(k, "a", "t"));
  assert_string_equal(contract_claimed(k, "a", "t", 9), "1");
  assert_false(claimable(k, "a", "t"));
}

static void in_order(void **state) {
  contract *k = *state;
  PUT(.topic = "t", .text = "1", .exclusive = true, .priority = 7);
  PUT(.topic = "t", .text = "2", .exclusive = true, .priority = 5);
  PUT(.topic = "t", .text = "3", .exclusive = true, .priority = 5, .ttl_ms = 90000);
  PUT(.topic = "t", .text = "4", .exclusive = true, .priority = 5, .to = "a");
  PUT(.topic = "t", .text = "5", .exclusive = true, .priority = -5);
  PUT(.topic = "t", .text = "6", .exclusive = true, .priority = 5);
  assert_string_equal(contract_claimed(k, "a", "t", 3), "5 2 3");
  assert_string_equal(contract_claimed(k, "a", "t", 9), "4 6 1");
}

static void in_order_of_delivery_time(void **state) {
  contract *k = *state;
  PUT(.topic = "t", .text = "1", .exclusive = true, .delay_ms = 15000);
  PUT(.topic = "t", .text = "2", .exclusive = true, .delay_ms = 10000);
  PUT(.topic = "t", .text = "3", .exclusive = true);
  assert_string_equal(contract_claimed(k, "a", "t", 9), "3");
  assert_false(claimable(k, "a", "t"));
  contract_pass(k, 20000);
  PUT(.topic = "t", .text = "4", .exclusive = true);
  assert_true(claimable(k, "a", "t"));
  assert_string_equal(contract_claimed(k, "a", "t", 9), "2 1 4");
}

static void one_batch_after_the_other(void **state) {
  contract *k = *state;
  char text[16], want[64];
  for (int i = 0; i < 100; i++) {
    snprintf(text, sizeof text, "%d", i);
    PUT(.topic = "t", .text = text, .exclusive = true);
  }
  for (int i = 0; i < 100; i += 5) {
    snprintf(want, sizeof want, "%d %d %d %d %d", i, i + 1, i + 2, i + 3, i + 4);
    assert_string_equal(contract_claimed(k, "a", "t", 5), want);
  }
  assert_string_equal(contract_claimed(k, "a", "t", 5), "");
}

static void a_lease_that_ends_returns_it(void **state) {
  contract *k = *state;
  msg_list list = MSG_LIST_INIT;
  msg_oid id = PUT(.topic = "t", .text = "1", .exclusive = true);
  assert_string_equal(claimed_by(k, "a", "t", 9, 10000), "1");
  contract_pass(k, 9000);
  assert_string_equal(claimed_by(k, "b", "t", 9, 10000), "");
  contract_pass(k, 1000);
  assert_true(claimable(k, "b", "t"));
  contract_claim(k, k->s, "b", "t", 9, 1000, &list);
  assert_int_equal(list.n, 1);
  assert_int_equal(list.at[0].attempts, 2);
  assert_string_equal(list.at[0].owner, "b");
  msg_list_clear(&list);
  assert_int_equal(contract_state(k, &id), MSG_STATE_CLAIMED);
}

static void too_many_attempts_are_death(void **state) {
  contract *k = *state;
  msg_message m;
  k->settings.max_attempts = 3;
  msg_oid id = PUT(.topic = "t", .text = "1", .exclusive = true);
  PUT(.topic = "t", .text = "2", .exclusive = true, .priority = 2000);
  for (int i = 0; i < 3; i++) {
    assert_string_equal(claimed_by(k, "a", "t", 1, 1000), "1");
    contract_pass(k, 1001);
  }
  assert_string_equal(claimed_by(k, "a", "t", 1, 1000), "2");
  OK(k->s->ops->get(k->s, &id, &m, &k->err));
  assert_int_equal(m.state, MSG_STATE_DEAD);
  assert_int_equal(m.attempts, 3);
  assert_string_equal(m.reason, "max_attempts");
  assert_null(m.owner);
  msg_message_clear(&m);
}

static void undone_claims_count(void **state) {
  contract *k = *state;
  msg_list list = MSG_LIST_INIT;
  k->settings.max_attempts = 4;
  msg_oid id = PUT(.topic = "t", .text = "1", .exclusive = true);
  msg_oid twice[2] = {id, id};
  k->store->ops->claims_undone(k->store, twice, 2);
  contract_claim(k, k->s, "a", "t", 9, 1000, &list);
  assert_int_equal(list.n, 1);
  assert_int_equal(list.at[0].attempts, 3);
  msg_list_clear(&list);
  k->store->ops->claims_undone(k->store, &id, 1);
  contract_pass(k, 1001);
  assert_string_equal(claimed_by(k, "a", "t", 9, 1000), "");
  assert_int_equal(contract_state(k, &id), MSG_STATE_DEAD);
}

static void not_after_its_life(void **state) {
  contract *k = *state;
  PUT(.topic = "t", .text = "1", .exclusive = true, .ttl_ms = 1000);
  PUT(.topic = "t", .text = "2", .exclusive = true, .ttl_ms = 2000);
  contract_pass(k, 1000);
  assert_string_equal(contract_claimed(k, "a", "t", 9), "2");
  contract_pass(k, 5000);
  assert_false(claimable(k, "a", "t"));
}

static void a_claim_outlives_the_message(void **state) {
  contract *k = *state;
  msg_oid id = PUT(.topic = "t", .text = "1", .exclusive = true, .ttl_ms = 1000);
  assert_string_equal(claimed_by(k, "a", "t", 9, 5000), "1");
  contract_pass(k, 2000);
  assert_string_equal(contract_claimed(k, "b", "t", 9), "");
  assert_int_equal(contract_state(k, &id), MSG_STATE_CLAIMED);
  assert_true(contract_settle(k, "a", MSG_SETTLE_ACK, &id, NULL, 0));
  assert_int_equal(contract_state(k, &id), -1);
}

static void many_expired_in_front(void **state) {
  contract *k = *state;
  for (int i = 0; i < 1000; i++)
    PUT(.topic = "t", .text = "old", .exclusive = true, .ttl_ms = 1000);
  PUT(.topic = "t", .text = "1", .exclusive = true, .ttl_ms = 90000);
  PUT(.topic = "t", .text = "2", .exclusive = true);
  contract_pass(k, 1500);
  assert_string_equal(contract_claimed(k, "a", "t", 1), "1");
  assert_string_equal(contract_claimed(k, "a", "t", 9), "2");
}

static void a_group_goes_one_by_one(void **state) {
  contract *k = *state;
  PUT(.topic = "t", .text = "g1", .exclusive = true, .group = "g");
  PUT(.topic = "t", .text = "g2", .exclusive = true, .group = "g");
  PUT(.topic = "t", .text = "h1", .exclusive = true, .group = "h");
  PUT(.topic = "t", .text = "x", .exclusive = true);
  PUT(.topic = "t", .text = "g3", .exclusive = true, .group = "g", .priority = 1);
  msg_list list = MSG_LIST_INIT;
  contract_claim(k, k->s, "a", "t", 9, 1000, &list);
  assert_string_equal(contract_texts(&list), "g1 h1 x");
  assert_string_equal(contract_claimed(k, "b", "t", 9), "");
  assert_true(contract_settle(k, "a", MSG_SETTLE_ACK, &list.at[0].id, NULL, 0));
  assert_string_equal(contract_claimed(k, "b", "t", 9), "g2");
  assert_string_equal(contract_claimed(k, "b", "t", 9), "");
  msg_list_clear(&list);
}

static void a_group_waits_for_what_comes_back(void **state) {
  contract *k = *state;
  PUT(.topic = "t", .text = "g1", .exclusive = true, .group = "g");
  PUT(.topic = "t", .text = "g2", .exclusive = true, .group = "g");
  assert_string_equal(claimed_by(k, "a", "t", 9, 1000), "g1");
  contract_pass(k, 1001);
  assert_string_equal(contract_claimed(k, "a", "t", 9), "g1");
}

static void a_delayed_head_blocks_its_group(void **state) {
  contract *k = *state;
  PUT(.topic = "t", .text = "g1", .exclusive = true, .group = "g", .delay_ms = 1000);
  PUT(.topic = "t", .text = "g2", .exclusive = true, .group = "g");
  assert_string_equal(contract_claimed(k, "a", "t", 9), "");
  contract_pass(k, 1000);
  assert_string_equal(contract_claimed(k, "a", "t", 9), "g1");
}

static void a_dead_or_expired_head_lets_go(void **state) {
  contract *k = *state;
  msg_oid head = PUT(.topic = "t", .text = "g1", .exclusive = true, .group = "g");
  PUT(.topic = "t", .text = "g2", .exclusive = true, .group = "g", .ttl_ms = 1000);
  PUT(.topic = "t", .text = "g3", .exclusive = true, .group = "g");
  assert_string_equal(contract_claimed(k, "a", "t", 9), "g1");
  assert_true(contract_settle(k, "a", MSG_SETTLE_REJECT, &head, NULL, 0));
  assert_true(claimable(k, "a", "t"));
  contract_pass(k, 1000);
  assert_string_equal(contract_claimed(k, "a", "t", 9), "g3");
}

static void a_group_in_the_middle_expires(void **state) {
  contract *k = *state;
  msg_oid head = PUT(.topic = "t", .text = "g1", .exclusive = true, .group = "g");
  PUT(.topic = "t", .text = "g2", .exclusive = true, .group = "g", .ttl_ms = 1000);
  PUT(.topic = "t", .text = "g3", .exclusive = true, .group = "g", .delay_ms = 3000);
  assert_string_equal(contract_claimed(k, "a", "t", 9), "g1");
  contract_pass(k, 1500);
  assert_true(contract_settle(k, "a", MSG_SETTLE_ACK, &head, NULL, 0));
  assert_string_equal(contract_claimed(k, "a", "t", 9), "");
  contract_pass(k, 1500);
  assert_string_equal(contract_claimed(k, "a", "t", 9), "g3");
}

static void patterns_merge_topics_in_order(void **state) {
  contract *k = *state;
  PUT(.topic = "a.1", .text = "1", .exclusive = true, .priority = 9);
  PUT(.topic = "a.2", .text = "2", .exclusive = true, .priority = 3);
  PUT(.topic = "b", .text = "3", .exclusive = true, .priority = 1);
  PUT(.topic = "a.3", .text = "4", .exclusive = true, .priority = 5, .ttl_ms = 90000);
  PUT(.topic = "a.1", .text = "5", .exclusive = true, .priority = 5, .to = "n");
  assert_true(claimable(k, "n", "a.*"));
  assert_false(claimable(k, "n", "c*"));
  assert_string_equal(contract_claimed(k, "n", "a.*", 2), "2 4");
  assert_string_equal(contract_claimed(k, "n", "/^a.[12]$/", 9), "5 1");
  assert_string_equal(contract_claimed(k, "n", "*", 9), "3");
}

static void paused_topics_are_left_alone(void **state) {
  contract *k = *state;
  msg_list list = MSG_LIST_INIT;
  bool can = true;
  PUT(.topic = "t1", .text = "1", .exclusive = true);
  PUT(.topic = "t2", .text = "2", .exclusive = true);
  msg_pattern *all = contract_pattern("t*"), *t1 = contract_pattern("t1");
  const msg_pattern *paused[] = {t1};
  msg_actor actor = contract_actor(k, "a");
  msg_claim claim = {
      .pattern = all, .paused = paused, .paused_count = 1, .count = 9, .lease_ms = 1000};
  OK(k->s->ops->claim(k->s, &actor, &claim, &list, &k->err));
  assert_string_equal(contract_texts(&list), "2");
  OK(k->s->ops->claimable(k->s, &actor, &claim, &can, &k->err));
  assert_false(can);
  claim.pattern = t1;
  OK(k->s->ops->claim(k->s, &actor, &claim, &list, &k->err));
  assert_int_equal(list.n, 1);
  msg_list_clear(&list);
  msg_pattern_free(all);
  msg_pattern_free(t1);
}

static void tokens_differ(void **state) {
  contract *k = *state;
  msg_list list = MSG_LIST_INIT;
  PUT(.topic = "t", .exclusive = true);
  contract_claim(k, k->s, "a", "t", 1, 1000, &list);
  contract_pass(k, 1000);
  contract_claim(k, k->s, "a", "t", 1, 1000, &list);
  assert_int_equal(list.n, 2);
  assert_string_not_equal(list.at[0].token, list.at[1].token);
  msg_list_clear(&list);
}

/* What was there before the clock was set back by an hour is still there. */
static void a_clock_set_back_holds_nothing_up(void **state) {
  contract *k = *state;
  msg_list list = MSG_LIST_INIT;
  contract_listen(k, "b", "t", false);
  PUT(.topic = "t", .text = "plain", .exclusive = true);
  PUT(.topic = "t", .text = "mortal", .exclusive = true, .ttl_ms = 60000);
  PUT(.topic = "t", .text = "mine", .exclusive = true, .to = "a");
  PUT(.topic = "t", .text = "grouped", .exclusive = true, .group = "g");
  PUT(.topic = "t", .text = "broadcast");
  PUT(.topic = "t", .text = "direct", .to = "b");
  contract_pass(k, -3600000);
  contract_claim(k, k->s, "a", "t", 9, 30000, &list);
  assert_string_equal(contract_texts(&list), "plain mortal mine grouped");
  for (size_t i = 0; i < list.n; i++)
    assert_true(contract_settle(k, "a", MSG_SETTLE_ACK, &list.at[i].id, list.at[i].token, 0));
  msg_list_clear(&list);
  PUT(.topic = "t", .text = "after", .exclusive = true);
  assert_string_equal(contract_claimed(k, "a", "t", 9), "after");
  assert_string_equal(contract_await(k, "b", "t", 9), "broadcast direct");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_claim_tells_the_lease),
    cmocka_unit_test(a_claim_appends),
    cmocka_unit_test(only_exclusive_ones),
    cmocka_unit_test(ones_own_too),
    cmocka_unit_test(in_order),
    cmocka_unit_test(in_order_of_delivery_time),
    cmocka_unit_test(one_batch_after_the_other),
    cmocka_unit_test(a_lease_that_ends_returns_it),
    cmocka_unit_test(too_many_attempts_are_death),
    cmocka_unit_test(undone_claims_count),
    cmocka_unit_test(not_after_its_life),
    cmocka_unit_test(a_claim_outlives_the_message),
    cmocka_unit_test(many_expired_in_front),
    cmocka_unit_test(a_group_goes_one_by_one),
    cmocka_unit_test(a_group_waits_for_what_comes_back),
    cmocka_unit_test(a_delayed_head_blocks_its_group),
    cmocka_unit_test(a_dead_or_expired_head_lets_go),
    cmocka_unit_test(a_group_in_the_middle_expires),
    cmocka_unit_test(patterns_merge_topics_in_order),
    cmocka_unit_test(paused_topics_are_left_alone),
    cmocka_unit_test(tokens_differ),
    cmocka_unit_test(a_clock_set_back_holds_nothing_up),
};
const contract_group contract_claims = {"claim", tests, sizeof tests / sizeof *tests};
