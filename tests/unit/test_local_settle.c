/* settle.c: an owner's ways to end a claim, and who is none. */
#include <string.h>

#include "base/mem.h"
#include "store/local/lease.h"
#include "support/cmocka_compat.h"
#include "support/local_rig.h"

static local_rig rig;

/* One message, claimed; its token in `token`. */
static msg_oid claimed(char token[MSG_OID_HEX + 1], const char *recipient, const char *group) {
  msg_message m = local_message("t", "x");
  if (recipient)
    assert_int_equal(msg_message_add_recipient(&m, recipient), MSG_OK);
  m.group = msg_strdup(group);
  msg_oid id = local_put(&rig, &m);
  msg_message_clear(&m);
  msg_list list = MSG_LIST_INIT;
  local_claim(&rig, "t", 1, &list);
  assert_int_equal(list.n, 1);
  memcpy(token, list.at[0].token, MSG_OID_HEX + 1);
  msg_list_clear(&list);
  return id;
}

static int64_t left(void) {
  return local_number(&rig, "SELECT count(*) FROM msg_store_message");
}

static int64_t leases(void) {
  return local_number(&rig, "SELECT count(*) FROM msg_store_claim WHERE seq < 0");
}

static void ack_removes(void **state) {
  (void)state;
  char token[MSG_OID_HEX + 1];
  msg_oid id = claimed(token, NULL, NULL);
  assert_true(local_settle(&rig, MSG_SETTLE_ACK, &id, token));
  assert_int_equal(left(), 0);
  assert_false(local_settle(&rig, MSG_SETTLE_ACK, &id, token));
  id = claimed(token, "me", "g");
  assert_true(local_settle(&rig, MSG_SETTLE_ACK, &id, NULL));
  assert_int_equal(left(), 0);
  assert_int_equal(local_number(&rig, "SELECT count(*) FROM msg_store_lane"), 0);
}

static void only_the_owner_settles(void **state) {
  (void)state;
  static const enum msg_settle_verb VERBS[] = {MSG_SETTLE_ACK, MSG_SETTLE_RELEASE,
                                               MSG_SETTLE_EXTEND, MSG_SETTLE_REJECT};
  char token[MSG_OID_HEX + 1];
  msg_oid id = claimed(token, NULL, NULL);
  for (size_t i = 0; i < sizeof VERBS / sizeof VERBS[0]; i++) {
    assert_false(local_settle(&rig, VERBS[i], &id, "000000000000000000000000"));
    rig.actor.node = "you";
    assert_false(local_settle(&rig, VERBS[i], &id, NULL));
    rig.actor.node = "me";
    msg_clock_shift(30001);
    ((msg_local_session *)rig.session)->swept_at_ms = msg_clock_now_ms();
    assert_false(local_settle(&rig, VERBS[i], &id, token));
    msg_clock_shift(0);
  }
  assert_int_equal(local_count(&rig, MSG_LOCAL_CLAIMED), 1);
  rig.actor.node = "you";
  assert_true(local_settle(&rig, MSG_SETTLE_ACK, &id, token));
}

static void late_worker_cannot_settle_the_next_claim(void **state) {
  (void)state;
  char token[MSG_OID_HEX + 1];
  msg_oid id = claimed(token, NULL, NULL);
  msg_clock_shift(30001);
  assert_string_equal(local_claimed(&rig, "t", 1), "x");
  assert_false(local_settle(&rig, MSG_SETTLE_ACK, &id, token));
  assert_int_equal(left(), 1);
}

static void release_returns_it(void **state) {
  (void)state;
  char token[MSG_OID_HEX + 1];
  msg_oid id = claimed(token, NULL, NULL);
  assert_true(local_release(&rig, &id, 0));
  assert_int_equal(local_count(&rig, MSG_LOCAL_READY), 1);
  assert_int_equal(local_number(&rig, "SELECT due IS NULL AND attempts = 1 FROM msg_store_message"),
                   1);
  assert_int_equal(leases(), 0);
  assert_string_equal(local_claimed(&rig, "t", 1), "x");
  assert_true(local_release(&rig, &id, 5000));
  assert_int_equal(local_count(&rig, MSG_LOCAL_DELAYED), 1);
  assert_string_equal(local_claimed(&rig, "t", 1), "");
  msg_clock_shift(5001);
  assert_string_equal(local_claimed(&rig, "t", 1), "x");
}

static void release_gives_lanes_back(void **state) {
  (void)state;
  char token[MSG_OID_HEX + 1];
  msg_oid id = claimed(token, "me", NULL);
  assert_int_equal(local_number(&rig, "SELECT count(*) FROM msg_store_lane"), 0);
  assert_true(local_release(&rig, &id, 0));
  assert_int_equal(local_count(&rig, MSG_LOCAL_ADDRESSED), 1);
  assert_string_equal(local_claimed(&rig, "t", 1), "x");
}

static void released_head_stays_head(void **state) {
  (void)state;
  char token[MSG_OID_HEX + 1];
  msg_oid id = claimed(token, NULL, "g");
  msg_message m = local_message("t", "second");
  m.group = msg_strdup("g");
  local_put(&rig, &m);
  msg_message_clear(&m);
  assert_true(local_release(&rig, &id, 3000));
  assert_string_equal(local_claimed(&rig, "t", 9), "");
  msg_clock_shift(3001);
  assert_string_equal(local_claimed(&rig, "t", 9), "x");
}

static void extend_moves_the_end(void **state) {
  (void)state;
  char token[MSG_OID_HEX + 1];
  msg_oid id = claimed(token, NULL, NULL);
  assert_true(local_settle(&rig, MSG_SETTLE_EXTEND, &id, token));
  msg_clock_shift(30001);
  assert_string_equal(local_claimed(&rig, "t", 1), "");
  assert_true(local_settle(&rig, MSG_SETTLE_ACK, &id, token));
}

/* Messages of one claim: each may be extended alone, and all together. */
static void extend_takes_one_out_of_its_batch(void **state) {
  (void)state;
  msg_settle_item items[3] = {{.done = false}};
  for (int i = 0; i < 3; i++)
    items[i].id = local_send(&rig, "t", i == 0 ? "a" : i == 1 ? "b" : "c");
  assert_string_equal(local_claimed(&rig, "t", 9), "a,b,c");
  assert_int_equal(leases(), 1);
  msg_settle how = {.verb = MSG_SETTLE_EXTEND, .lease_ms = 60000};
  assert_int_equal(rig.session->ops->settle(rig.session, &rig.actor, &how, items, 1, &rig.err),
                   MSG_OK);
  assert_int_equal(leases(), 2);
  /* its end is looked for where it is, not among all that were claimed with it */
  static const char alone[] =
      "SELECT count(*) FROM msg_store_claim WHERE seq < 0 AND messages = 1 AND first = last";
  assert_int_equal(local_number(&rig, alone), 1);
  msg_clock_shift(30001);
  assert_string_equal(local_claimed(&rig, "t", 9), "b,c");
  how.lease_ms = 90000;
  assert_int_equal(rig.session->ops->settle(rig.session, &rig.actor, &how, items, 3, &rig.err),
                   MSG_OK);
  assert_true(items[0].done && items[1].done && items[2].done);
  assert_int_equal(leases(), 2);
  msg_clock_shift(119000);
  assert_string_equal(local_claimed(&rig, "t", 9), "");
  how.verb = MSG_SETTLE_ACK;
  assert_int_equal(rig.session->ops->settle(rig.session, &rig.actor, &how, items, 3, &rig.err),
                   MSG_OK);
  assert_true(items[0].done && items[1].done && items[2].done);
  assert_int_equal(leases(), 0);
  assert_int_equal(left(), 0);
}

/* By every verb, also with another lease in between. */
static void an_id_given_twice_is_done_once(void **state) {
  (void)state;
  static const enum msg_settle_verb verbs[] = {MSG_SETTLE_EXTEND, MSG_SETTLE_RELEASE,
                                               MSG_SETTLE_REJECT, MSG_SETTLE_FREE, MSG_SETTLE_ACK};
  for (size_t v = 0; v < sizeof verbs / sizeof *verbs; v++) {
    char token[MSG_OID_HEX + 1];
    msg_oid a = claimed(token, NULL, NULL), b = claimed(token, NULL, NULL);
    msg_settle_item items[] = {{.id = a}, {.id = a}, {.id = b}, {.id = a}, {.id = b}};
    msg_settle how = {.verb = verbs[v], .lease_ms = 60000, .reason = "refused"};
    assert_int_equal(rig.session->ops->settle(rig.session, &rig.actor, &how, items, 5, &rig.err),
                     MSG_OK);
    for (int i = 0; i < 5; i++)
      if (items[i].done != (i == 0 || i == 2))
        fail_msg("verb %d, item %d", (int)verbs[v], i);
    if (verbs[v] == MSG_SETTLE_EXTEND)
      assert_int_equal(leases(), 2);
    local_sql(&rig, "DELETE FROM msg_store_message");
    local_sql(&rig, "DELETE FROM msg_store_claim");
  }
}

/* For as long as there is. */
static size_t extended(msg_settle_item *items, size_t n) {
  msg_settle how = {.verb = MSG_SETTLE_EXTEND, .lease_ms = MSG_NEVER};
  size_t done = 0;
  assert_int_equal(rig.session->ops->settle(rig.session, &rig.actor, &how, items, n, &rig.err),
                   MSG_OK);
  for (size_t i = 0; i < n; i++)
    done += items[i].done;
  return done;
}

/* Their first messages are 65536 numbers apart. */
static void leases_with_the_same_end_have_numbers_of_their_own(void **state) {
  (void)state;
  msg_settle_item items[3] = {{.done = false}};
  for (int i = 0; i < 3; i++) {
    items[i].id = local_send(&rig, "t", "x");
    local_sql(&rig, "UPDATE sqlite_sequence SET seq = seq + 65535");
    assert_string_equal(local_claimed(&rig, "t", 1), "x");
  }
  assert_int_equal(extended(items, 3), 3);
  assert_int_equal(leases(), 3);
  assert_int_equal(
      local_number(&rig, "SELECT count(DISTINCT seq >> 16) FROM msg_store_claim WHERE seq < 0"), 1);
  assert_int_equal(
      local_number(&rig, "SELECT max(seq) - min(seq) FROM msg_store_claim WHERE seq < 0"), 2);
}

static void extend_to_the_end_it_has(void **state) {
  (void)state;
  char token[MSG_OID_HEX + 1];
  msg_settle_item items[2] = {{.id = claimed(token, NULL, NULL)}};
  items[1].id = items[0].id;
  assert_int_equal(extended(items, 2), 1);
  assert_int_equal(extended(items, 2), 1);
  assert_int_equal(leases(), 1);
  assert_true(local_settle(&rig, MSG_SETTLE_ACK, &items[0].id, token));
  assert_int_equal(leases(), 0);
}

/* Of one claim and of many, others between them, one given twice. */
static void acks_of_many_leases_in_one_batch(void **state) {
  (void)state;
  enum { N = 12 };
  msg_settle_item items[N + 1] = {{.done = false}};
  msg_list list = MSG_LIST_INIT;
  for (int i = 0; i < N; i++) {
    local_send(&rig, "t", "x");
    local_send(&rig, i % 3 ? "between" : "t2", "y");
  }
  local_claim(&rig, "t", N - 4, &list);
  for (int i = 0; i < 4; i++)
    local_claim(&rig, "t", 1, &list);
  for (int i = 0; i < N; i++) {
    items[i].id = list.at[N - 1 - i].id;
    items[i].token = i == 3 || i == 7 ? "nobody's" : i % 2 ? list.at[N - 1 - i].token : NULL;
  }
  items[N].id = items[5].id;
  msg_settle how = {.verb = MSG_SETTLE_ACK};
  assert_int_equal(rig.session->ops->settle(rig.session, &rig.actor, &how, items, N + 1, &rig.err),
                   MSG_OK);
  for (int i = 0; i <= N; i++)
    assert_int_equal(items[i].done, i != 3 && i != 7 && i != N);
  assert_int_equal(left(), N + 2);
  assert_int_equal(leases(), 2);
  local_check_plans(&rig);
  msg_list_clear(&list);
}

static void reject_buries(void **state) {
  (void)state;
  char token[MSG_OID_HEX + 1];
  msg_oid id = claimed(token, NULL, NULL);
  assert_true(local_settle(&rig, MSG_SETTLE_REJECT, &id, token));
  assert_int_equal(local_count(&rig, MSG_LOCAL_DEAD), 1);
  assert_int_equal(local_number(&rig, "SELECT reason = 'refused' FROM msg_store_message"), 1);
}

static void free_is_for_anybody(void **state) {
  (void)state;
  char token[MSG_OID_HEX + 1];
  msg_oid id = claimed(token, NULL, NULL);
  rig.actor.node = "operator";
  assert_true(local_settle(&rig, MSG_SETTLE_FREE, &id, NULL));
  assert_false(local_settle(&rig, MSG_SETTLE_FREE, &id, NULL));
  assert_string_equal(local_claimed(&rig, "t", 1), "x");
}

static void batch_settles_what_is_theirs(void **state) {
  (void)state;
  msg_settle_item items[4] = {{.done = true}};
  char hex[MSG_OID_HEX + 1];
  for (int i = 0; i < 3; i++)
    items[i].id = claimed(hex, NULL, i == 1 ? "g" : NULL);
  items[3].id = msg_oid_new();
  items[2].token = "nobody's";
  msg_settle how = {.verb = MSG_SETTLE_ACK};
  assert_int_equal(rig.session->ops->settle(rig.session, &rig.actor, &how, items, 4, &rig.err),
                   MSG_OK);
  assert_true(items[0].done && items[1].done);
  assert_false(items[2].done || items[3].done);
  assert_int_equal(left(), 1);
  local_check_plans(&rig);
}

static void rollback_undoes_an_ack(void **state) {
  (void)state;
  char token[MSG_OID_HEX + 1];
  msg_oid id = claimed(token, NULL, NULL);
  local_sql(&rig, "BEGIN");
  assert_true(local_settle(&rig, MSG_SETTLE_ACK, &id, token));
  local_sql(&rig, "ROLLBACK");
  assert_true(local_settle(&rig, MSG_SETTLE_ACK, &id, token));
}

#define TEST(f) LOCAL_TEST(f, &rig)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(ack_removes),
      TEST(only_the_owner_settles),
      TEST(late_worker_cannot_settle_the_next_claim),
      TEST(release_returns_it),
      TEST(release_gives_lanes_back),
      TEST(released_head_stays_head),
      TEST(extend_moves_the_end),
      TEST(extend_takes_one_out_of_its_batch),
      TEST(an_id_given_twice_is_done_once),
      TEST(leases_with_the_same_end_have_numbers_of_their_own),
      TEST(extend_to_the_end_it_has),
      TEST(acks_of_many_leases_in_one_batch),
      TEST(reject_buries),
      TEST(free_is_for_anybody),
      TEST(batch_settles_what_is_theirs),
      TEST(rollback_undoes_an_ack),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
