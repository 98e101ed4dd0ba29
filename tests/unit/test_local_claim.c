/* claim.c, candidates.c: who gets what, in which order. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "support/cmocka_compat.h"
#include "support/local_rig.h"

static local_rig rig;

static void put_with(const char *topic, const char *value, int priority, int64_t deliver_in_ms,
                     int64_t ttl_ms, const char *recipient, const char *group) {
  msg_message m = local_message(topic, value);
  m.priority = priority;
  m.deliver_at_ms += deliver_in_ms;
  if (ttl_ms)
    m.delete_at_ms = m.timestamp_ms + ttl_ms;
  if (recipient)
    assert_int_equal(msg_message_add_recipient(&m, recipient), MSG_OK);
  m.group = msg_strdup(group);
  local_put(&rig, &m);
  msg_message_clear(&m);
}

static void claim_carries_its_lease(void **state) {
  (void)state;
  msg_oid id = local_send(&rig, "t", "x");
  msg_list list = MSG_LIST_INIT;
  int64_t now = msg_clock_now_ms();
  local_claim(&rig, "t", 5, &list);
  assert_int_equal(list.n, 1);
  const msg_message *m = &list.at[0];
  assert_int_equal(msg_oid_cmp(&m->id, &id), 0);
  assert_int_equal(m->state, MSG_STATE_CLAIMED);
  assert_string_equal(m->owner, "me");
  assert_int_equal(strlen(m->token), MSG_OID_HEX);
  assert_int_equal(m->attempts, 1);
  assert_in_range(m->since_ms, now, now + 1000);
  assert_int_equal(m->until_ms, m->since_ms + 30000);
  msg_list_clear(&list);
  assert_string_equal(local_claimed(&rig, "t", 5), "");
}

static void order_is_priority_time_seq(void **state) {
  (void)state;
  put_with("t", "d", 1000, 0, 0, NULL, NULL);
  put_with("t", "b", 5, -10, 0, NULL, NULL);
  put_with("t", "a", 5, -20, 0, NULL, NULL);
  put_with("t", "e", 1000, 0, 0, NULL, NULL);
  put_with("t", "c", 5, 0, 0, NULL, NULL);
  assert_string_equal(local_claimed(&rig, "t", 2), "a,b");
  assert_string_equal(local_claimed(&rig, "t", 9), "c,d,e");
}

static void kinds_are_merged_in_order(void **state) {
  (void)state;
  put_with("t", "ready1", 1, 0, 0, NULL, NULL);
  put_with("t", "mortal2", 2, 0, 60000, NULL, NULL);
  put_with("t", "mine3", 3, 0, 0, "me", NULL);
  put_with("t", "theirs0", 0, 0, 0, "you", NULL);
  put_with("t", "ready4", 4, 0, 0, NULL, NULL);
  put_with("other", "mine elsewhere", 0, 0, 0, "me", NULL);
  assert_string_equal(local_claimed(&rig, "t", 2), "ready1,mortal2");
  assert_string_equal(local_claimed(&rig, "t", 9), "mine3,ready4");
  assert_string_equal(local_claimed(&rig, "other", 9), "mine elsewhere");
  assert_int_equal(local_number(&rig, "SELECT count(*) FROM msg_store_lane"), 1);
  rig.actor.node = "you";
  assert_string_equal(local_claimed(&rig, "t", 9), "theirs0");
}

/* What somebody has deleted or changed by hand is not in the way, and goes from what is ready. */
static void ready_without_a_message(void **state) {
  (void)state;
  put_with("t", "gone", 1, 0, 0, NULL, NULL);
  put_with("t", "dead", 1, 0, 0, NULL, NULL);
  put_with("t", "1", 2, 0, 0, NULL, NULL);
  put_with("t", "2", 2, 0, 0, NULL, NULL);
  put_with("t", "late", 3, 0, 0, NULL, NULL);
  local_sql(&rig, "DELETE FROM msg_store_message WHERE value IN ('gone', 'late');"
                  "UPDATE msg_store_message SET state = 7 WHERE value = 'dead'");
  assert_string_equal(local_claimed(&rig, "t", 9), "1,2");
  assert_int_equal(local_count(&rig, MSG_LOCAL_CLAIMED), 2);
  assert_int_equal(local_count(&rig, MSG_LOCAL_READY), 0);
  assert_string_equal(local_claimed(&rig, "*", 9), "");
}

/* The row of a message stays as it is: the claim counts. */
static void a_claim_counts_each_delivery(void **state) {
  (void)state;
  msg_list list = MSG_LIST_INIT;
  msg_oid a = local_send(&rig, "t", "a");
  local_send(&rig, "t", "b");
  assert_string_equal(local_claimed(&rig, "t", 1), "a");
  assert_true(local_release(&rig, &a, 0));
  local_claim(&rig, "t", 2, &list); /* a run of numbers, delivered unequally often */
  assert_int_equal(list.n, 2);
  assert_int_equal(list.at[0].attempts, 2);
  assert_int_equal(list.at[1].attempts, 1);
  msg_list_clear(&list);
  assert_int_equal(
      local_number(&rig, "SELECT sum(attempts * seq) FROM msg_store_claim WHERE seq > 0"), 4);
  assert_int_equal(local_number(&rig, "SELECT sum(attempts * seq) FROM msg_store_message"), 1);
  assert_true(local_release(&rig, &a, 0));
  assert_int_equal(local_number(&rig, "SELECT attempts FROM msg_store_message WHERE seq = 1"), 2);
}

static int64_t steps;

static int count_step(void *arg) {
  (void)arg;
  steps++;
  return 0;
}

static int64_t steps_of_claim(int waiting) {
  local_claimed(&rig, "t", 10000);
  for (int i = 0; i < waiting; i++)
    put_with("t", "x", 5, 0, 0, NULL, NULL);
  local_sql(&rig, "UPDATE msg_store_message SET deliver_at = 1;" /* all at one time */
                  "UPDATE msg_store_ready SET deliver_at = 1");
  ((msg_local_session *)rig.session)->swept_at_ms = msg_clock_now_ms(); /* no look of the sweep */
  ((msg_local_session *)rig.session)->sweep_pause_ms = 600000;
  steps = 0;
  sqlite3_progress_handler(rig.db, 1, count_step, NULL);
  local_claimed(&rig, "t", 10);
  sqlite3_progress_handler(rig.db, 0, NULL, NULL);
  return steps;
}

static void a_claim_reads_no_more_than_it_takes(void **state) {
  (void)state;
  steps_of_claim(20);
  int64_t few = steps_of_claim(20), many = steps_of_claim(2000);
  assert_true(many <= few + few / 4);
}

static void broadcasts_are_not_claimed(void **state) {
  (void)state;
  msg_message m = local_message("t", "x");
  m.exclusive = false;
  local_put(&rig, &m);
  msg_message_clear(&m);
  assert_string_equal(local_claimed(&rig, "t", 9), "");
  assert_false(local_claimable(&rig, "t"));
}

static void expired_is_never_handed_out(void **state) {
  (void)state;
  put_with("t", "x", 1, 0, 1000, NULL, NULL);
  put_with("t", "y", 1, 0, 2000, "me", NULL);
  put_with("t", "z", 2, 0, 9000, NULL, NULL);
  msg_clock_shift(5000);
  /* not swept: nothing but the claim itself sorts it out */
  ((msg_local_session *)rig.session)->swept_at_ms = msg_clock_now_ms();
  assert_string_equal(local_claimed(&rig, "t", 1), "z");
}

static void many_expired_in_front(void **state) {
  (void)state;
  local_send(&rig, "t", "first");
  local_sql(
      &rig,
      "WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)"
      " INSERT INTO msg_store_message(id, queue, topic, state, priority, deliver_at, delete_at,"
      " sender, exclusive, timestamp, ttl, timing_out) SELECT printf('%024x', i), 'msg', 't', 2,"
      " 1, i, 1000, 's', 1, 1, 1, 1 FROM n");
  put_with("t", "b", 3, 0, 60000, NULL, NULL);
  put_with("t", "a", 2, 0, 60000, NULL, NULL);
  assert_string_equal(local_claimed(&rig, "t", 3), "a,b,first");
}

static void patterns_merge_topics(void **state) {
  (void)state;
  put_with("orders.eu", "2", 2, 0, 0, NULL, NULL);
  put_with("orders.us", "1", 1, 0, 60000, NULL, NULL);
  put_with("orders.us", "3", 3, 0, 0, "me", NULL);
  put_with("bills", "0", 0, 0, 0, NULL, NULL);
  assert_true(local_claimable(&rig, "orders.*"));
  assert_string_equal(local_claimed(&rig, "orders.*", 2), "1,2");
  assert_string_equal(local_claimed(&rig, "/^orders/", 9), "3");
  assert_false(local_claimable(&rig, "orders.*"));
  assert_true(local_claimable(&rig, "*"));
}

static void paused_topics_are_left_alone(void **state) {
  (void)state;
  put_with("a", "1", 1, 0, 0, NULL, NULL);
  put_with("b", "2", 2, 0, 0, NULL, NULL);
  msg_pattern *all = NULL, *a = NULL;
  assert_int_equal(msg_pattern_new("*", &all, NULL), MSG_OK);
  assert_int_equal(msg_pattern_new("a", &a, NULL), MSG_OK);
  const msg_pattern *paused[] = {a};
  msg_list list = MSG_LIST_INIT;
  msg_claim claim = {
      .pattern = all, .paused = paused, .paused_count = 1, .count = 9, .lease_ms = 1000};
  assert_int_equal(rig.session->ops->claim(rig.session, &rig.actor, &claim, &list, &rig.err),
                   MSG_OK);
  assert_int_equal(list.n, 1);
  assert_string_equal(list.at[0].topic, "b");
  claim.pattern = a;
  bool claimable = true;
  assert_int_equal(
      rig.session->ops->claimable(rig.session, &rig.actor, &claim, &claimable, &rig.err), MSG_OK);
  assert_false(claimable);
  assert_int_equal(rig.session->ops->claim(rig.session, &rig.actor, &claim, &list, &rig.err),
                   MSG_OK);
  assert_int_equal(list.n, 1);
  msg_list_clear(&list);
  msg_pattern_free(all);
  msg_pattern_free(a);
}

static void groups_go_one_at_a_time(void **state) {
  (void)state;
  put_with("t", "a1", 1, 0, 0, NULL, "a");
  put_with("t", "a2", 0, 0, 0, NULL, "a");
  put_with("t", "b1", 2, 0, 0, NULL, "b");
  put_with("t", "a3", 1, 0, 0, "me", "a");
  msg_list list = MSG_LIST_INIT;
  local_claim(&rig, "t", 9, &list);
  assert_int_equal(list.n, 2);
  assert_string_equal(list.at[0].value.p, "a1");
  assert_string_equal(list.at[1].value.p, "b1");
  assert_true(local_settle(&rig, MSG_SETTLE_ACK, &list.at[0].id, NULL));
  assert_true(local_settle(&rig, MSG_SETTLE_ACK, &list.at[1].id, list.at[1].token));
  msg_list_clear(&list);
  local_claim(&rig, "t", 9, &list);
  assert_int_equal(list.n, 1);
  assert_string_equal(list.at[0].value.p, "a2");
  assert_true(local_settle(&rig, MSG_SETTLE_REJECT, &list.at[0].id, NULL));
  msg_list_clear(&list);
  assert_string_equal(local_claimed(&rig, "t", 9), "a3");
}

static void due_delay_is_claimed_without_waiting_for_a_look(void **state) {
  (void)state;
  put_with("t", "x", 1, 3000, 0, NULL, NULL);
  assert_string_equal(local_claimed(&rig, "t", 1), "");
  assert_false(local_claimable(&rig, "t"));
  msg_clock_shift(3001);
  ((msg_local_session *)rig.session)->swept_at_ms = msg_clock_now_ms();
  assert_true(local_claimable(&rig, "t"));
  assert_string_equal(local_claimed(&rig, "t", 1), "x");
}

static void dry_claims_find_what_comes(void **state) {
  (void)state;
  for (int i = 0; i < 3; i++) {
    assert_string_equal(local_claimed(&rig, "t", 1), "");
    assert_string_equal(local_claimed(&rig, "t", 1), "");
    local_send(&rig, "t", "x");
    assert_string_equal(local_claimed(&rig, "t", 1), "x");
  }
}

static void too_many_attempts_is_dead(void **state) {
  (void)state;
  rig.settings.max_attempts = 2;
  msg_oid id = local_send(&rig, "t", "poison");
  assert_string_equal(local_claimed(&rig, "t", 1), "poison");
  assert_true(local_release(&rig, &id, 0));
  assert_string_equal(local_claimed(&rig, "t", 1), "poison");
  assert_true(local_release(&rig, &id, 0));
  assert_string_equal(local_claimed(&rig, "t", 1), "");
  assert_int_equal(local_count(&rig, MSG_LOCAL_DEAD), 1);
  assert_int_equal(local_number(&rig, "SELECT attempts FROM msg_store_message"), 2);
  assert_int_equal(local_number(&rig, "SELECT reason = 'max_attempts' FROM msg_store_message"), 1);
}

static void lowered_max_buries_instead_of_handing_out(void **state) {
  (void)state;
  msg_oid id = local_send(&rig, "t", "poison");
  for (int i = 0; i < 3; i++) {
    assert_string_equal(local_claimed(&rig, "t", 1), "poison");
    assert_true(local_release(&rig, &id, 0));
  }
  local_send(&rig, "t", "good");
  rig.settings.max_attempts = 2;
  assert_string_equal(local_claimed(&rig, "t", 1), "good");
  assert_int_equal(local_count(&rig, MSG_LOCAL_DEAD), 1);
  assert_int_equal(local_number(&rig, "SELECT attempts FROM msg_store_message WHERE state = 7"), 3);
}

static void rolled_back_deliveries_count(void **state) {
  (void)state;
  rig.settings.max_attempts = 5;
  msg_oid id = local_send(&rig, "t", "poison");
  for (int i = 1; i <= 5; i++) {
    msg_list list = MSG_LIST_INIT;
    local_sql(&rig, "BEGIN");
    local_claim(&rig, "t", 1, &list);
    assert_int_equal(list.n, 1);
    assert_int_equal(list.at[0].attempts, i);
    msg_list_clear(&list);
    local_sql(&rig, "ROLLBACK");
    rig.store->ops->claims_undone(rig.store, &id, 1);
  }
  assert_string_equal(local_claimed(&rig, "t", 1), "");
  assert_int_equal(local_count(&rig, MSG_LOCAL_DEAD), 1);
  /* redriven it starts anew */
  assert_int_equal(local_redrive(&rig, "t"), 1);
  msg_list list = MSG_LIST_INIT;
  local_claim(&rig, "t", 1, &list);
  assert_int_equal(list.at[0].attempts, 1);
  msg_list_clear(&list);
}

/* A reader keeps the claim from its commit. */
static void refused_commit_forgets_no_delivery(void **state) {
  (void)state;
  char path[64];
  local_rig a, b;
  msg_list list = MSG_LIST_INIT;
  local_path_new(path);
  local_rig_open(&a, path, "a");
  msg_oid id = local_send(&a, "t", "x");
  local_rig_open(&b, path, "b");
  a.store->ops->claims_undone(a.store, &id, 1);
  local_sql(&b, "BEGIN; SELECT count(*) FROM msg_store_message");
  assert_int_equal(local_claim_rc(&a, "t", 1, 30000, &list), MSG_BUSY);
  assert_int_equal(list.n, 0);
  local_sql(&b, "COMMIT");
  local_claim(&a, "t", 1, &list);
  assert_int_equal(list.n, 1);
  assert_int_equal(list.at[0].attempts, 2);
  assert_true(local_release(&a, &id, 0));
  local_claim(&a, "t", 1, &list);
  assert_int_equal(list.at[1].attempts, 3);
  msg_list_clear(&list);
  local_rig_close(&b);
  local_rig_close(&a);
  local_path_remove(path);
}

static void committed_after_a_rollback_counts_once(void **state) {
  (void)state;
  msg_oid id = local_send(&rig, "t", "x");
  local_sql(&rig, "BEGIN");
  assert_string_equal(local_claimed(&rig, "t", 1), "x");
  local_sql(&rig, "ROLLBACK");
  rig.store->ops->claims_undone(rig.store, &id, 1);
  local_sql(&rig, "BEGIN");
  assert_string_equal(local_claimed(&rig, "t", 1), "x");
  local_sql(&rig, "COMMIT");
  assert_int_equal(local_number(&rig, "SELECT attempts FROM msg_store_claim WHERE seq > 0"), 2);
  assert_true(local_release(&rig, &id, 0));
  assert_string_equal(local_claimed(&rig, "t", 1), "x");
  assert_int_equal(local_number(&rig, "SELECT attempts FROM msg_store_claim WHERE seq > 0"), 3);
}

static void big_batch_comes_sorted(void **state) {
  (void)state;
  for (int i = 0; i < 500; i++) {
    char value[16];
    int priority = (i * 7919) % 500;
    snprintf(value, sizeof value, "%d", priority);
    put_with(i % 2 ? "t" : "u", value, priority, 0, i % 3 ? 0 : 60000, NULL, NULL);
  }
  msg_list list = MSG_LIST_INIT;
  local_claim(&rig, "*", 500, &list);
  assert_int_equal(list.n, 500);
  for (int i = 0; i < 500; i++)
    assert_int_equal(list.at[i].priority, i);
  msg_list_clear(&list);
}

static void one_winner_each(void **state) {
  (void)state;
  char path[64];
  local_rig a, b;
  local_path_new(path);
  local_rig_open(&a, path, "a");
  local_sql(&a, "PRAGMA journal_mode = WAL");
  local_rig_open(&b, path, "b");
  for (int i = 0; i < 20; i++)
    local_send(&a, "t", "x");
  msg_list all = MSG_LIST_INIT;
  for (int i = 0; i < 5; i++) {
    local_claim(&a, "t", 2, &all);
    local_claim(&b, "t", 3, &all);
  }
  assert_int_equal(all.n, 20);
  assert_int_equal(local_number(&a, "SELECT count(*) FROM msg_store_claim AS c"
                                    " JOIN msg_store_claim AS l ON l.seq = c.lease"
                                    " WHERE l.owner = 'a'"),
                   8);
  msg_list_clear(&all);
  local_rig_close(&a);
  local_rig_close(&b);
  local_path_remove(path);
}

static void every_plan_goes_by_an_index(void **state) {
  (void)state;
  put_with("t", "1", 1, 0, 0, NULL, NULL);
  put_with("t", "2", 1, 0, 60000, NULL, NULL);
  put_with("t", "3", 1, 0, 60000, "me", "g");
  assert_true(local_claimable(&rig, "*"));
  assert_string_equal(local_claimed(&rig, "t", 3), "1,2,3");
  assert_string_equal(local_claimed(&rig, "*", 3), "");
  assert_string_equal(local_claimed(&rig, "*", 3), "");
  local_check_plans(&rig);
}

#define TEST(f) LOCAL_TEST(f, &rig)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(claim_carries_its_lease),
      TEST(order_is_priority_time_seq),
      TEST(kinds_are_merged_in_order),
      TEST(ready_without_a_message),
      TEST(a_claim_counts_each_delivery),
      TEST(a_claim_reads_no_more_than_it_takes),
      TEST(broadcasts_are_not_claimed),
      TEST(expired_is_never_handed_out),
      TEST(many_expired_in_front),
      TEST(patterns_merge_topics),
      TEST(paused_topics_are_left_alone),
      TEST(groups_go_one_at_a_time),
      TEST(due_delay_is_claimed_without_waiting_for_a_look),
      TEST(dry_claims_find_what_comes),
      TEST(too_many_attempts_is_dead),
      TEST(lowered_max_buries_instead_of_handing_out),
      TEST(rolled_back_deliveries_count),
      cmocka_unit_test(refused_commit_forgets_no_delivery),
      TEST(committed_after_a_rollback_counts_once),
      TEST(big_batch_comes_sorted),
      cmocka_unit_test(one_winner_each),
      TEST(every_plan_goes_by_an_index),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
