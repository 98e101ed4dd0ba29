/* contract_admin.c - the contract: update, remove, purge, redrive. */
#include <string.h>

#include "support/contract.h"

static int update_rc(contract *k, const msg_oid *id, const msg_update *u) {
  msg_actor actor = contract_actor(k, "operator");
  return k->s->ops->update(k->s, &actor, id, u, &k->err);
}

static int remove_rc(contract *k, const msg_oid *id) {
  msg_actor actor = contract_actor(k, "operator");
  return k->s->ops->remove(k->s, &actor, id, &k->err);
}

static int64_t purge(contract *k, const char *pattern) {
  int64_t n = -1;
  msg_pattern *p = contract_pattern(pattern);
  msg_actor actor = contract_actor(k, "operator");
  OK(k->s->ops->purge(k->s, &actor, p, &n, &k->err));
  msg_pattern_free(p);
  return n;
}

static int64_t redrive(contract *k, const char *pattern) {
  int64_t n = -1;
  msg_pattern *p = contract_pattern(pattern);
  msg_actor actor = contract_actor(k, "operator");
  OK(k->s->ops->redrive(k->s, &actor, p, &n, &k->err));
  msg_pattern_free(p);
  return n;
}

static void update_of_nothing(void **state) {
  contract *k = *state;
  msg_oid id = msg_oid_new();
  msg_update u = {.has_priority = true, .priority = 1};
  assert_int_equal(update_rc(k, &id, &u), MSG_NOTFOUND);
}

static void update_of_priority(void **state) {
  contract *k = *state;
  contract_listen(k, "n", "b", false);
  PUT(.topic = "t", .text = "1", .exclusive = true);
  msg_oid ready = PUT(.topic = "t", .text = "2", .exclusive = true);
  msg_oid mortal = PUT(.topic = "t", .text = "3", .exclusive = true, .ttl_ms = 90000);
  msg_oid addressed = PUT(.topic = "t", .text = "4", .exclusive = true, .to = "n");
  PUT(.topic = "b", .text = "5");
  msg_oid direct = PUT(.topic = "b", .text = "6", .to = "n");
  msg_oid broadcast = PUT(.topic = "b", .text = "7");
  for (int i = 1; i <= 5; i++) {
    msg_update u = {.has_priority = true, .priority = i};
    const msg_oid *ids[] = {&addressed, &mortal, &ready, &broadcast, &direct};
    OK(update_rc(k, ids[i - 1], &u));
  }
  assert_string_equal(contract_claimed(k, "n", "t", 9), "4 3 2 1");
  assert_string_equal(contract_await(k, "n", "b", 9), "7 6 5");
}

/* Whoever has seen it does not see it again, whoever has not does. */
static void an_update_is_no_second_message(void **state) {
  contract *k = *state;
  contract_listen(k, "seen", "t", false);
  contract_listen(k, "unseen", "t", false);
  PUT(.topic = "t", .priority = 5, .text = "0");
  msg_oid id = PUT(.topic = "t", .priority = 50, .text = "1");
  for (int i = 0; i < 80; i++)
    PUT(.topic = "t", .priority = 5, .text = "x");
  while (*contract_await(k, "seen", "t", 10))
    ;
  for (int i = 0; i < 8; i++) /* its floor at priority 5 passes the message */
    contract_await(k, "unseen", "t", 10);
  msg_update u = {.has_priority = true, .priority = 5};
  msg_update earlier = {.has_deliver_at = true, .deliver_at_ms = msg_clock_now_ms() - 1000};
  OK(update_rc(k, &id, &u));
  assert_string_equal(contract_await(k, "seen", "t", 9), "");
  OK(update_rc(k, &id, &earlier));
  assert_string_equal(contract_await(k, "seen", "t", 9), "");
  assert_non_null(strchr(contract_await(k, "unseen", "t", 9), '1'));
  assert_string_equal(contract_await(k, "unseen", "t", 9), "");
}

/* Two patterns hear it, and one of them began after it was handed out by the other. */
static void update_of_priority_under_two_patterns(void **state) {
  contract *k = *state;
  contract_listen(k, "caught", "*", true);
  contract_listen(k, "late", "*", false);
  msg_oid id = PUT(.topic = "t", .text = "1");
  assert_string_equal(contract_await(k, "caught", NULL, 9), "1");
  assert_string_equal(contract_await(k, "late", NULL, 9), "1");
  contract_listen(k, "caught", "t", true);
  contract_listen(k, "late", "t", false);
  for (int i = 1; i <= 3; i++) {
    msg_update u = {.has_priority = true, .priority = i};
    OK(update_rc(k, &id, &u));
    assert_string_equal(contract_await(k, "caught", NULL, 9), "");
    assert_string_equal(contract_await(k, "caught", "t", 9), "");
    assert_string_equal(contract_await(k, "late", NULL, 9), "");
  }
}

static msg_oid put_later(contract *k, const char *text, int32_t priority) {
  contract_pass(k, 1);
  return PUT(.topic = "t", .text = text, .priority = priority);
}

/* One by one as in one go, whatever was handed out before. */
static void an_update_of_a_broadcast_changes_its_place(void **state) {
  contract *k = *state;
  contract_listen(k, "one", "t", false);
  contract_listen(k, "many", "t*", false);
  put_later(k, "a", 5);
  msg_oid seen = put_later(k, "b", 5);
  msg_oid moved = put_later(k, "c", 50);
  put_later(k, "d", 5);
  msg_oid earlier = put_later(k, "e", 5);
  put_later(k, "f", 5);
  msg_oid first = put_later(k, "g", 50);
  put_later(k, "h", 50);
  assert_string_equal(contract_await(k, "one", "t", 2), "a b");
  assert_string_equal(contract_await(k, "many", "t*", 2), "a b");
  msg_update five = {.has_priority = true, .priority = 5};
  msg_update one = {.has_priority = true, .priority = 1};
  msg_update fifty = {.has_priority = true, .priority = 50};
  msg_update back = {.has_deliver_at = true, .deliver_at_ms = msg_clock_now_ms() - 1000};
  OK(update_rc(k, &moved, &five));
  OK(update_rc(k, &seen, &fifty));
  OK(update_rc(k, &first, &one));
  OK(update_rc(k, &earlier, &back));
  static const char *const order[] = {"g", "e", "c", "d", "f", "h", ""};
  for (size_t i = 0; i < sizeof order / sizeof *order; i++)
    assert_string_equal(contract_await(k, "one", "t", 1), order[i]);
  assert_string_equal(contract_await(k, "many", "t*", 4), "g e c d");
  OK(update_rc(k, &moved, &fifty));
  assert_string_equal(contract_await(k, "many", "t*", 1), "f");
  assert_string_equal(contract_await(k, "many", "t*", 9), "h");
  assert_string_equal(contract_await(k, "one", "t", 9), "");
}

/* It becomes due by the update, and comes before what was sent since. */
static void an_update_makes_a_delayed_broadcast_the_first(void **state) {
  contract *k = *state;
  contract_listen(k, "n", "t", false);
  msg_oid id = PUT(.topic = "t", .text = "1", .delay_ms = 100000);
  PUT(.topic = "t", .text = "2");
  PUT(.topic = "t", .text = "3");
  msg_update u = {.has_deliver_at = true, .deliver_at_ms = msg_clock_now_ms() - 1000};
  OK(update_rc(k, &id, &u));
  for (int i = 1; i <= 3; i++)
    assert_int_equal(contract_await(k, "n", "t", 1)[0], '0' + i);
}

static void update_of_delivery_time(void **state) {
  contract *k = *state;
  contract_listen(k, "n", "b", false);
  msg_oid id = PUT(.topic = "t", .text = "1", .exclusive = true);
  msg_update u = {.has_deliver_at = true, .deliver_at_ms = msg_clock_now_ms() + 1000};
  OK(update_rc(k, &id, &u));
  assert_int_equal(contract_state(k, &id), MSG_STATE_DELAYED);
  assert_string_equal(contract_claimed(k, "n", "t", 9), "");
  contract_pass(k, 1001);
  assert_string_equal(contract_claimed(k, "n", "t", 9), "1");
  u.deliver_at_ms = msg_clock_now_ms() + 5;
  assert_int_equal(update_rc(k, &id, &u), MSG_MISUSE); /* claimed */
  id = PUT(.topic = "b", .text = "2", .delay_ms = 5000);
  u.deliver_at_ms = msg_clock_now_ms();
  OK(update_rc(k, &id, &u));
  assert_string_equal(contract_await(k, "n", "b", 9), "2");
}

static void update_of_life(void **state) {
  contract *k = *state;
  msg_message m;
  msg_oid id = PUT(.topic = "t", .text = "1", .exclusive = true, .ttl_ms = 1000);
  int64_t now_ms = msg_clock_now_ms();
  msg_update u = {.has_ttl = true, .ttl_ms = 5000};
  OK(update_rc(k, &id, &u));
  OK(k->s->ops->get(k->s, &id, &m, &k->err));
  assert_true(m.delete_at_ms >= now_ms + 5000 && m.delete_at_ms <= msg_clock_now_ms() + 5000);
  assert_true(m.timing_out);
  assert_int_equal(m.ttl_ms, 5000);
  msg_message_clear(&m);
  contract_pass(k, 2000);
  assert_int_equal(contract_state(k, &id), MSG_STATE_READY);
  u.ttl_ms = 0;
  OK(update_rc(k, &id, &u));
  OK(k->s->ops->get(k->s, &id, &m, &k->err));
  assert_int_equal(m.delete_at_ms, MSG_NEVER);
  assert_false(m.timing_out);
  msg_message_clear(&m);
  contract_pass(k, 90000);
  assert_string_equal(contract_claimed(k, "n", "t", 9), "1");
}

static void remove_in_any_state(void **state) {
  contract *k = *state;
  msg_list list = MSG_LIST_INIT;
  msg_oid ids[] = {PUT(.topic = "t", .exclusive = true, .group = "g"),
                   PUT(.topic = "t", .exclusive = true, .group = "g"),
                   PUT(.topic = "t", .exclusive = true, .delay_ms = 1000),
                   PUT(.topic = "t"),
                   PUT(.topic = "t", .to = "n"),
                   PUT(.topic = "t", .exclusive = true, .to = "n"),
                   PUT(.topic = "t", .exclusive = true, .ttl_ms = 1)};
  msg_oid last = PUT(.topic = "t", .text = "g3", .exclusive = true, .group = "g");
  contract_pass(k, 2);
  contract_claim(k, k->s, "a", "t", 9, 90000, &list);
  msg_list_clear(&list);
  for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
    if (i < 6) /* the last was swept */
      OK(remove_rc(k, &ids[i]));
    assert_int_equal(remove_rc(k, &ids[i]), MSG_NOTFOUND);
  }
  assert_int_equal(contract_count(k), 1);
  assert_string_equal(contract_claimed(k, "a", "t", 9), "g3");
  OK(remove_rc(k, &last));
  assert_int_equal(contract_count(k), 0);
  assert_string_equal(contract_await(k, "n", NULL, 9), "");
}

static void purge_all_but_claims(void **state) {
  contract *k = *state;
  assert_int_equal(purge(k, "*"), 0);
  PUT(.topic = "t", .text = "claimed", .exclusive = true, .group = "g", .priority = 1);
  contract_claimed(k, "a", "t", 1);
  PUT(.topic = "t", .exclusive = true, .group = "g");
  PUT(.topic = "t", .exclusive = true);
  PUT(.topic = "t", .exclusive = true, .delay_ms = 1000);
  PUT(.topic = "t", .exclusive = true, .ttl_ms = 1000);
  PUT(.topic = "t", .exclusive = true, .to = "n");
  PUT(.topic = "t", .to = "n");
  PUT(.topic = "t");
  PUT(.topic = "u", .text = "other", .exclusive = true);
  assert_int_equal(purge(k, "t"), 7);
  assert_int_equal(purge(k, "t"), 0);
  assert_int_equal(contract_count(k), 2);
  PUT(.topic = "u2", .exclusive = true);
  assert_int_equal(purge(k, "/^u/"), 2);
  assert_int_equal(contract_count(k), 1);
}

static void redrive_of_dead_letters(void **state) {
  contract *k = *state;
  msg_message m;
  msg_oid ids[] = {PUT(.topic = "t", .text = "1", .exclusive = true, .ttl_ms = 5000),
                   PUT(.topic = "t", .text = "2", .exclusive = true, .to = "a"),
                   PUT(.topic = "t", .text = "g1", .exclusive = true, .group = "g")};
  PUT(.topic = "t", .text = "g2", .exclusive = true, .group = "g");
  contract_claimed(k, "a", "t", 3);
  for (size_t i = 0; i < 3; i++)
    assert_true(contract_settle(k, "a", MSG_SETTLE_REJECT, &ids[i], NULL, 0));
  contract_pass(k, 10000);
  assert_int_equal(redrive(k, "u"), 0);
  int64_t now_ms = msg_clock_now_ms();
  assert_int_equal(redrive(k, "t*"), 3);
  OK(k->s->ops->get(k->s, &ids[0], &m, &k->err));
  assert_int_equal(m.state, MSG_STATE_READY);
  assert_int_equal(m.attempts, 0);
  assert_null(m.reason);
  assert_true(m.delete_at_ms >= now_ms + 5000); /* a new life */
  msg_message_clear(&m);
  assert_string_equal(contract_claimed(k, "b", "t", 9), "1 g1");
  assert_string_equal(contract_claimed(k, "a", "t", 9), "2");
  assert_true(contract_settle(k, "b", MSG_SETTLE_ACK, &ids[2], NULL, 0));
  assert_string_equal(contract_claimed(k, "b", "t", 9), "g2");
}

/* A dead head comes back while its follower is on its way: one at a time all the same. */
static void redrive_into_a_busy_group(void **state) {
  contract *k = *state;
  msg_oid head = PUT(.topic = "t", .text = "g1", .exclusive = true, .group = "g");
  msg_oid next = PUT(.topic = "t", .text = "g2", .exclusive = true, .group = "g");
  contract_claimed(k, "a", "t", 9);
  assert_true(contract_settle(k, "a", MSG_SETTLE_REJECT, &head, NULL, 0));
  assert_string_equal(contract_claimed(k, "a", "t", 9), "g2");
  assert_int_equal(redrive(k, "t"), 1);
  assert_string_equal(contract_claimed(k, "b", "t", 9), "");
  assert_true(contract_settle(k, "a", MSG_SETTLE_ACK, &next, NULL, 0));
  assert_string_equal(contract_claimed(k, "b", "t", 9), "g1");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(update_of_nothing),
    cmocka_unit_test(update_of_priority),
    cmocka_unit_test(an_update_is_no_second_message),
    cmocka_unit_test(update_of_priority_under_two_patterns),
    cmocka_unit_test(an_update_of_a_broadcast_changes_its_place),
    cmocka_unit_test(an_update_makes_a_delayed_broadcast_the_first),
    cmocka_unit_test(update_of_delivery_time),
    cmocka_unit_test(update_of_life),
    cmocka_unit_test(remove_in_any_state),
    cmocka_unit_test(purge_all_but_claims),
    cmocka_unit_test(redrive_of_dead_letters),
    cmocka_unit_test(redrive_into_a_busy_group),
};
const contract_group contract_admins = {"admin", tests, sizeof tests / sizeof *tests};
