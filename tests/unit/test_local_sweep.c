/* sweep.c, move.c: what time alone changes. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/process.h"
#include "store/local/lease.h"
#include "support/child.h"
#include "support/cmocka_compat.h"
#include "support/local_rig.h"

static local_rig rig;

static msg_oid put(const char *value, bool exclusive, int64_t delay_ms, int64_t ttl_ms,
                   const char *recipient, const char *group) {
  msg_message m = local_message("t", value);
  m.exclusive = exclusive;
  m.deliver_at_ms += delay_ms;
  if (ttl_ms)
    m.delete_at_ms = m.deliver_at_ms + ttl_ms;
  if (recipient)
    assert_int_equal(msg_message_add_recipient(&m, recipient), MSG_OK);
  m.group = msg_strdup(group);
  msg_oid id = local_put(&rig, &m);
  msg_message_clear(&m);
  return id;
}

static void delays_end(void **state) {
  (void)state;
  put("ready", true, 1000, 0, NULL, NULL);
  put("mortal", true, 1000, 9000, NULL, NULL);
  put("addressed", true, 1000, 0, "you", NULL);
  put("direct", false, 1000, 9000, "you", NULL);
  put("live", false, 1000, 9000, NULL, NULL);
  put("later", true, 60000, 0, NULL, NULL);
  msg_clock_shift(1001);
  local_sweep(&rig);
  assert_int_equal(local_count(&rig, MSG_LOCAL_READY), 1);
  assert_int_equal(local_count(&rig, MSG_LOCAL_MORTAL), 1);
  assert_int_equal(local_count(&rig, MSG_LOCAL_ADDRESSED), 1);
  assert_int_equal(local_count(&rig, MSG_LOCAL_DIRECT), 1);
  assert_int_equal(local_count(&rig, MSG_LOCAL_LIVE), 1);
  assert_int_equal(local_count(&rig, MSG_LOCAL_DELAYED), 1);
  assert_int_equal(local_number(&rig, "SELECT sum(exclusive + 1) FROM msg_store_lane"), 3);
}

static void delayed_broadcasts_become_visible_in_order_at_new_numbers(void **state) {
  (void)state;
  put("3", false, 3000, 90000, NULL, NULL);
  put("1", false, 1000, 90000, NULL, NULL);
  put("2", false, 2000, 90000, NULL, NULL);
  put("0", false, 0, 90000, NULL, NULL);
  int64_t top = local_number(&rig, "SELECT max(seq) FROM msg_store_message");
  msg_clock_shift(5000);
  local_sweep(&rig);
  assert_int_equal(local_count(&rig, MSG_LOCAL_LIVE), 4);
  char text[80];
  for (int i = 1; i <= 3; i++) {
    snprintf(text, sizeof text, "SELECT value FROM msg_store_message WHERE seq = %d", (int)top + i);
    assert_int_equal(local_number(&rig, text), i);
  }
  put("5", false, 0, 90000, NULL, NULL);
  assert_int_equal(local_number(&rig, "SELECT max(seq) FROM msg_store_message"), top + 4);
}

static void leases_end(void **state) {
  (void)state;
  rig.settings.max_attempts = 2;
  put("a", true, 0, 0, NULL, NULL);
  put("b", true, 0, 0, "me", NULL);
  assert_string_equal(local_claimed(&rig, "t", 9), "a,b");
  msg_clock_shift(30001);
  local_sweep(&rig);
  assert_int_equal(local_count(&rig, MSG_LOCAL_READY), 1);
  assert_int_equal(local_count(&rig, MSG_LOCAL_ADDRESSED), 1);
  assert_string_equal(local_claimed(&rig, "t", 9), "a,b");
  msg_clock_shift(60002);
  local_sweep(&rig);
  assert_int_equal(local_count(&rig, MSG_LOCAL_DEAD), 2);
  assert_int_equal(local_number(&rig, "SELECT count(*) FROM msg_store_message WHERE reason = "
                                      "'max_attempts' AND attempts > 0"),
                   2);
  assert_int_equal(local_count(&rig, MSG_LOCAL_CLAIMED), 0);
  assert_int_equal(local_number(&rig, "SELECT count(*) FROM msg_store_claim WHERE seq < 0"), 0);
}

static void a_lease_without_messages_ends(void **state) {
  (void)state;
  put("a", true, 0, 0, NULL, NULL);
  assert_string_equal(local_claimed(&rig, "t", 9), "a");
  local_sql(&rig, "DELETE FROM msg_store_message");
  local_sweep(&rig);
  assert_int_equal(local_number(&rig, "SELECT count(*) FROM msg_store_claim WHERE seq < 0"), 1);
  msg_clock_shift(30001);
  local_sweep(&rig);
  assert_int_equal(local_number(&rig, "SELECT count(*) FROM msg_store_claim WHERE seq < 0"), 0);
  assert_int_equal(local_count(&rig, MSG_LOCAL_CLAIMED), 0);
}

static void expired_go_with_their_lanes_and_let_groups_on(void **state) {
  (void)state;
  put("plain", true, 0, 1000, NULL, NULL);
  put("direct", false, 0, 1000, "you", NULL);
  put("addressed", true, 0, 1000, "you", NULL);
  put("head", true, 0, 1000, NULL, "g");
  put("follower", true, 0, 1500, NULL, "g");
  put("next", true, 0, 0, NULL, "g");
  put("claimed", true, 0, 900, NULL, NULL);
  local_sql(
      &rig,
      "UPDATE msg_store_message SET state = 6 WHERE value = 'claimed';"
      "INSERT INTO msg_store_claim(seq, lease, attempts)"
      " SELECT seq, (1 << 63) | (9000000000000 << 16), 1 FROM msg_store_message WHERE state = 6;"
      "INSERT INTO msg_store_claim(seq, owner, token, holder, since, messages, first, last)"
      " SELECT lease, 'o', 't', 'x', 1, 1, seq, seq FROM msg_store_claim");
  msg_clock_shift(1600);
  local_sweep(&rig);
  assert_int_equal(local_number(&rig, "SELECT count(*) FROM msg_store_message"), 2);
  assert_int_equal(local_number(&rig, "SELECT count(*) FROM msg_store_lane"), 0);
  assert_int_equal(local_count(&rig, MSG_LOCAL_CLAIMED), 1);
  assert_string_equal(local_claimed(&rig, "t", 9), "next");
}

static void a_look_moves_at_most_256(void **state) {
  (void)state;
  msg_local_session *s = (msg_local_session *)rig.session;
  for (int i = 0; i < 600; i++)
    put("x", true, i % 2 ? 100000 : 0, i % 2 ? 0 : 100000, NULL, NULL);
  msg_clock_shift(200000);
  int looks = 0;
  bool backlog = true;
  for (; backlog; looks++) {
    assert_int_equal(msg_local_sweep(s, &rig.actor, msg_clock_now_ms(), true, &backlog, &rig.err),
                     MSG_OK);
    assert_in_range(s->swept, 1, 256);
  }
  assert_in_range(looks, 3, 8);
  assert_int_equal(local_count(&rig, MSG_LOCAL_READY), 300);
  assert_int_equal(local_count(&rig, MSG_LOCAL_MORTAL), 0);
}

static void looks_are_rare_unless_forced(void **state) {
  (void)state;
  msg_local_session *s = (msg_local_session *)rig.session;
  bool backlog;
  put("x", true, 1000, 0, NULL, NULL);
  msg_clock_shift(2000);
  int64_t now = msg_clock_now_ms();
  s->sweep_pause_ms = 5;
  s->swept_at_ms = now - 4;
  assert_int_equal(msg_local_sweep(s, &rig.actor, now, false, &backlog, &rig.err), MSG_OK);
  assert_int_equal(local_count(&rig, MSG_LOCAL_DELAYED), 1);
  s->swept_at_ms = now - 5;
  assert_int_equal(msg_local_sweep(s, &rig.actor, now, false, &backlog, &rig.err), MSG_OK);
  assert_int_equal(local_count(&rig, MSG_LOCAL_DELAYED), 0);
}

/* Another look has just been: what became due since must come all the same. */
static void nothing_due_is_slept_through(void **state) {
  (void)state;
  msg_local_session *s = (msg_local_session *)rig.session;
  msg_list list = MSG_LIST_INIT;
  msg_unseen u = {.max = 9};
  assert_int_equal(rig.session->ops->listen(rig.session, &rig.actor, "t", false, &rig.err), MSG_OK);
  put("live", false, 1000, 9000, NULL, NULL);
  put("direct", false, 1000, 9000, "me", NULL);
  put("ready", true, 1000, 0, NULL, NULL);
  msg_clock_shift(1001);
  s->sweep_pause_ms = 1000;
  s->swept_at_ms = msg_clock_now_ms() - 1;
  assert_int_equal(rig.session->ops->unseen(rig.session, &rig.actor, &u, &list, &rig.err), MSG_OK);
  assert_int_equal(list.n, 2);
  msg_list_clear(&list);
  assert_string_equal(local_claimed(&rig, "t", 1), "ready");
}

static int report_identity(void *arg) {
  FILE *f = fopen(arg, "w");
  if (!f)
    return 1;
  fputs(msg_process_self(), f);
  return fclose(f) == 0 ? 0 : 1;
}

static void claims_of_an_ended_process_come_back(void **state) {
  (void)state;
  char path[64], identity[MSG_PROCESS_ID_MAX + 1] = "";
  local_path_new(path);
  assert_int_equal(child_run(report_identity, path), 0);
  FILE *f = fopen(path, "r");
  assert_non_null(f);
  assert_non_null(fgets(identity, sizeof identity, f));
  fclose(f);
  local_path_remove(path);
  if (msg_process_liveness(identity) != MSG_DEAD)
    skip();
  put("x", true, 0, 0, NULL, NULL);
  const char *self = rig.actor.process;
  rig.actor.process = identity;
  assert_string_equal(local_claimed(&rig, "t", 1), "x");
  rig.actor.process = self;
  assert_true(local_claimable(&rig, "t"));
  assert_string_equal(local_claimed(&rig, "t", 1), "x");
  assert_int_equal(local_number(&rig, "SELECT attempts FROM msg_store_claim WHERE seq > 0"), 2);
}

/* One of this machine that does not run. */
static const char *dead_process(int n) {
  static char text[2 * MSG_PROCESS_ID_MAX];
  const char *self = msg_process_self(), *pid = strchr(self, ':') + 1;
  pid = strchr(pid, ':') + 1;
  snprintf(text, sizeof text, "%.*s%d%s", (int)(pid - self), self, 900000000 + n, strchr(pid, ':'));
  return text;
}

static void claim_as(const char *process, int n) {
  const char *self = rig.actor.process;
  rig.actor.process = process;
  for (int i = 0; i < n; i++)
    assert_string_equal(local_claimed(&rig, "t", 1), "x");
  rig.actor.process = self;
}

static int64_t holders(void) {
  return local_number(&rig, "SELECT count(*) FROM msg_store_holder");
}

/* Behind what others hold, and more than one sweep may move. */
static void all_that_the_dead_held_comes_back(void **state) {
  (void)state;
  enum { LIVE = 30, DEAD = 5, EACH = 60 };
  msg_local_session *s = (msg_local_session *)rig.session;
  if (msg_process_liveness(dead_process(0)) != MSG_DEAD)
    skip();
  for (int i = 0; i < LIVE + DEAD * EACH; i++)
    local_send(&rig, "t", "x");
  claim_as(rig.actor.process, LIVE);
  for (int i = 0; i < DEAD; i++) {
    s->swept_at_ms = s->liveness_at_ms = msg_clock_now_ms();
    s->sweep_pause_ms = 60000;
    claim_as(dead_process(i), EACH);
  }
  assert_int_equal(holders(), DEAD + 1);
  for (int i = 0; i < 9; i++)
    local_sweep(&rig);
  assert_int_equal(local_number(&rig, "SELECT count(*) FROM msg_store_ready"), DEAD * EACH);
  assert_int_equal(local_number(&rig, "SELECT count(*) FROM msg_store_claim WHERE seq < 0"), LIVE);
  assert_int_equal(holders(), 1);
}

static void holders_that_hold_nothing_are_forgotten_when_there_are_many(void **state) {
  (void)state;
  char process[24];
  msg_list list = MSG_LIST_INIT;
  rig.actor.process = "of another machine";
  local_send(&rig, "t", "held");
  local_claim(&rig, "t", 1, &list);
  msg_list_clear(&list);
  for (int i = 0; i < 70; i++) {
    snprintf(process, sizeof process, "other%d", i);
    rig.actor.process = process;
    msg_oid id = local_send(&rig, "t", "x");
    local_claim(&rig, "t", 1, &list);
    assert_true(local_settle(&rig, MSG_SETTLE_ACK, &id, NULL));
    msg_list_clear(&list);
  }
  assert_in_range(holders(), 2, 64);
  assert_int_equal(
      local_number(&rig, "SELECT count(*) FROM msg_store_holder WHERE process GLOB '* machine'"),
      1);
}

static int count_step(void *arg) {
  ++*(int64_t *)arg;
  return 0;
}

/* Instructions of SQLite, with one look of the sweep: the clock shall cause no other. */
static int64_t cost_of_a_claim(void) {
  msg_local_session *s = (msg_local_session *)rig.session;
  int64_t steps = 0;
  msg_list list = MSG_LIST_INIT;
  s->swept_at_ms = msg_clock_now_ms();
  s->sweep_pause_ms = 600000;
  sqlite3_progress_handler(rig.db, 1, count_step, &steps);
  local_claim(&rig, "t", 1, &list);
  assert_int_equal(list.n, 1);
  assert_true(local_settle(&rig, MSG_SETTLE_ACK, &list.at[0].id, list.at[0].token));
  local_sweep(&rig);
  sqlite3_progress_handler(rig.db, 0, NULL, NULL);
  msg_list_clear(&list);
  return steps;
}

static void a_claim_costs_the_same_whatever_is_held(void **state) {
  (void)state;
  for (int i = 0; i < 1010; i++)
    local_send(&rig, "t", "x");
  claim_as(rig.actor.process, 5);
  cost_of_a_claim();
  int64_t before = cost_of_a_claim();
  claim_as(rig.actor.process, 1000);
  int64_t after = cost_of_a_claim();
  assert_in_range(after, before - 20, before + 20);
}

static void keys_are_forgotten(void **state) {
  (void)state;
  msg_message m = local_message("t", "x");
  m.key = msg_strdup("k");
  local_put(&rig, &m);
  msg_message_clear(&m);
  msg_clock_shift(300001);
  local_sweep(&rig);
  assert_int_equal(local_number(&rig, "SELECT count(*) FROM msg_store_key"), 0);
}

static void inside_begin_only_with_the_write_lock(void **state) {
  (void)state;
  msg_local_session *s = (msg_local_session *)rig.session;
  bool backlog;
  put("x", true, 1000, 0, NULL, NULL);
  msg_clock_shift(2000);
  local_sql(&rig, "BEGIN");
  assert_int_equal(msg_local_sweep(s, &rig.actor, msg_clock_now_ms(), true, &backlog, &rig.err),
                   MSG_OK);
  assert_int_equal(sqlite3_txn_state(rig.db, "main"), SQLITE_TXN_NONE);
  assert_string_equal(local_claimed(&rig, "t", 1), "x");
  local_sql(&rig, "ROLLBACK");
  assert_int_equal(local_count(&rig, MSG_LOCAL_DELAYED), 1);
}

static void every_plan_goes_by_an_index(void **state) {
  (void)state;
  expired_go_with_their_lanes_and_let_groups_on(state);
  put("live", false, 1000, 9000, NULL, NULL);
  msg_clock_shift(90000);
  local_sweep(&rig);
  local_check_plans(&rig);
}

#define TEST(f) LOCAL_TEST(f, &rig)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(delays_end),
      TEST(delayed_broadcasts_become_visible_in_order_at_new_numbers),
      TEST(leases_end),
      TEST(a_lease_without_messages_ends),
      TEST(expired_go_with_their_lanes_and_let_groups_on),
      TEST(a_look_moves_at_most_256),
      TEST(looks_are_rare_unless_forced),
      TEST(nothing_due_is_slept_through),
      TEST(claims_of_an_ended_process_come_back),
      TEST(all_that_the_dead_held_comes_back),
      TEST(holders_that_hold_nothing_are_forgotten_when_there_are_many),
      TEST(a_claim_costs_the_same_whatever_is_held),
      TEST(keys_are_forgotten),
      TEST(inside_begin_only_with_the_write_lock),
      TEST(every_plan_goes_by_an_index),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
