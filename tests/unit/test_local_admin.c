/* update.c, admin.c: an operator's verbs. */
#include <string.h>

#include "base/mem.h"
#include "support/cmocka_compat.h"
#include "support/local_rig.h"

static local_rig rig;

static msg_oid put(const char *topic, const char *value, bool exclusive, const char *recipient,
                   const char *group) {
  msg_message m = local_message(topic, value);
  m.exclusive = exclusive;
  if (!exclusive)
    m.delete_at_ms = m.deliver_at_ms + 60000;
  if (recipient)
    assert_int_equal(msg_message_add_recipient(&m, recipient), MSG_OK);
  m.group = msg_strdup(group);
  msg_oid id = local_put(&rig, &m);
  msg_message_clear(&m);
  return id;
}

static int update(const msg_oid *id, msg_update u) {
  return rig.session->ops->update(rig.session, &rig.actor, id, &u, &rig.err);
}

static int set_priority(const msg_oid *id, int priority) {
  return update(id, (msg_update){.has_priority = true, .priority = priority});
}

static int set_time(const msg_oid *id, int64_t at_ms) {
  return update(id, (msg_update){.has_deliver_at = true, .deliver_at_ms = at_ms});
}

static int set_ttl(const msg_oid *id, int64_t ttl_ms) {
  return update(id, (msg_update){.has_ttl = true, .ttl_ms = ttl_ms});
}

/* Values of what is unseen, marked. */
static const char *await(const char *node) {
  static char text[256];
  bool won[16];
  msg_list list = MSG_LIST_INIT;
  msg_unseen u = {.max = 16};
  msg_actor actor = rig.actor;
  actor.node = node;
  assert_int_equal(rig.session->ops->unseen(rig.session, &actor, &u, &list, &rig.err), MSG_OK);
  assert_int_equal(rig.session->ops->seen(rig.session, &actor, &list, won, &rig.err), MSG_OK);
  text[0] = '\0';
  for (size_t i = 0; i < list.n; i++) {
    assert_true(won[i]);
    strcat(text, i ? "," : "");
    strcat(text, list.at[i].value.p);
  }
  msg_list_clear(&list);
  return text;
}

static void listen(const char *node, const char *pattern) {
  msg_actor actor = rig.actor;
  actor.node = node;
  assert_int_equal(rig.session->ops->listen(rig.session, &actor, pattern, false, &rig.err), MSG_OK);
}

/* ---- update ---- */

static void priority_reorders(void **state) {
  (void)state;
  put("t", "a", true, NULL, NULL);
  msg_oid b = put("t", "b", true, "me", NULL);
  msg_oid c = put("t", "c", true, NULL, NULL);
  assert_int_equal(set_priority(&c, 1), MSG_OK);
  assert_int_equal(set_priority(&b, 2), MSG_OK);
  assert_string_equal(local_claimed(&rig, "t", 9), "c,b,a");
}

static void time_moves_both_ways(void **state) {
  (void)state;
  msg_oid a = put("t", "a", true, NULL, NULL);
  msg_oid b = put("t", "b", true, "me", NULL);
  int64_t now = msg_clock_now_ms();
  assert_int_equal(set_time(&a, now + 5000), MSG_OK);
  assert_int_equal(set_time(&b, now + 5000), MSG_OK);
  assert_int_equal(local_count(&rig, MSG_LOCAL_DELAYED), 2);
  assert_int_equal(local_number(&rig, "SELECT count(*) FROM msg_store_lane"), 0);
  assert_string_equal(local_claimed(&rig, "t", 9), "");
  assert_int_equal(set_time(&b, now - 1), MSG_OK);
  assert_string_equal(local_claimed(&rig, "t", 9), "b");
  assert_int_equal(set_time(&b, now), MSG_MISUSE);
  msg_clock_shift(5001);
  assert_string_equal(local_claimed(&rig, "t", 9), "a");
}

static void ttl_begins_now_or_ends(void **state) {
  (void)state;
  msg_oid a = put("t", "a", true, NULL, NULL);
  msg_clock_shift(1000);
  assert_int_equal(set_ttl(&a, 2000), MSG_OK);
  assert_int_equal(local_count(&rig, MSG_LOCAL_MORTAL), 1);
  assert_int_equal(local_number(&rig, "SELECT timing_out AND ttl = 2000 FROM msg_store_message"),
                   1);
  assert_int_equal(set_ttl(&a, 0), MSG_OK);
  assert_int_equal(local_count(&rig, MSG_LOCAL_READY), 1);
  assert_int_equal(set_ttl(&a, 2000), MSG_OK);
  msg_clock_shift(3001);
  assert_string_equal(local_claimed(&rig, "t", 1), "");
  assert_int_equal(set_ttl(&a, 1), MSG_NOTFOUND);
}

static void head_of_a_group_stays_head(void **state) {
  (void)state;
  msg_oid a = put("t", "a", true, NULL, "g");
  msg_oid b = put("t", "b", true, NULL, "g");
  assert_int_equal(set_time(&a, msg_clock_now_ms() + 1000), MSG_OK);
  assert_int_equal(set_priority(&b, 0), MSG_OK);
  assert_int_equal(set_time(&b, 5), MSG_OK);
  assert_string_equal(local_claimed(&rig, "t", 9), "");
  msg_clock_shift(1001);
  assert_string_equal(local_claimed(&rig, "t", 9), "a");
}

static void broadcast_of_new_priority_is_seen_once_by_each(void **state) {
  (void)state;
  listen("early", "t");
  listen("both", "t");
  listen("both", "t*");
  /* floors of priority 1 that lie above the message's number */
  msg_oid a = put("t", "a", false, NULL, NULL);
  for (int i = 0; i < 40; i++) {
    msg_oid filler = put("t", "-", false, NULL, NULL);
    assert_int_equal(set_priority(&filler, 1), MSG_OK);
  }
  msg_list list = MSG_LIST_INIT;
  bool won[64];
  msg_unseen u = {.max = 40};
  msg_actor early = rig.actor;
  early.node = "early";
  assert_int_equal(rig.session->ops->unseen(rig.session, &early, &u, &list, &rig.err), MSG_OK);
  assert_int_equal(list.n, 40);
  assert_int_equal(rig.session->ops->seen(rig.session, &early, &list, won, &rig.err), MSG_OK);
  msg_list_clear(&list);
  assert_string_equal(await("early"), "a"); /* has seen it */
  listen("late", "t");                      /* listens after it was sent */
  assert_int_equal(set_priority(&a, 1), MSG_OK);
  assert_string_equal(await("early"), "");
  assert_string_equal(await("late"), "");
  local_sql(&rig, "DELETE FROM msg_store_message WHERE value = '-'");
  assert_string_equal(await("both"), "a");
  assert_string_equal(await("both"), "");
}

static void what_is_out_cannot_be_delayed(void **state) {
  (void)state;
  msg_oid live = put("t", "a", false, NULL, NULL);
  msg_oid direct = put("t", "b", false, "me", NULL);
  int64_t later = msg_clock_now_ms() + 1000;
  assert_int_equal(set_time(&live, later), MSG_MISUSE);
  assert_int_equal(set_time(&direct, later), MSG_MISUSE);
  assert_int_equal(set_priority(&direct, 1), MSG_OK);
  assert_string_equal(await("me"), "b");
  assert_string_equal(await("me"), "");
}

/* ---- remove, purge, redrive ---- */

static int remove_id(const msg_oid *id) {
  return rig.session->ops->remove(rig.session, &rig.actor, id, &rig.err);
}

static void remove_takes_any_state(void **state) {
  (void)state;
  msg_oid a = put("t", "a", true, NULL, "g");
  msg_oid b = put("t", "b", true, NULL, "g");
  put("t", "c", true, NULL, "g");
  msg_oid d = put("t", "d", false, "you", NULL);
  assert_int_equal(remove_id(&b), MSG_OK);
  assert_string_equal(local_claimed(&rig, "t", 1), "a");
  assert_int_equal(remove_id(&a), MSG_OK);
  assert_string_equal(local_claimed(&rig, "t", 1), "c");
  assert_int_equal(remove_id(&a), MSG_NOTFOUND);
  assert_int_equal(remove_id(&d), MSG_OK);
  assert_int_equal(local_number(&rig, "SELECT count(*) FROM msg_store_lane"), 0);
}

static void purge_spares_claims(void **state) {
  (void)state;
  put("a", "claimed", true, NULL, "g");
  put("a", "follower", true, NULL, "g");
  assert_string_equal(local_claimed(&rig, "a", 1), "claimed");
  put("a", "1", true, NULL, NULL);
  put("a", "2", true, "you", NULL);
  put("a", "3", false, "you", NULL);
  put("a", "4", false, NULL, NULL);
  msg_oid id = put("a", "5", true, NULL, NULL);
  assert_int_equal(set_ttl(&id, 60000), MSG_OK);
  id = put("a", "6", true, NULL, NULL);
  assert_int_equal(set_time(&id, msg_clock_now_ms() + 60000), MSG_OK);
  put("b", "other", true, NULL, NULL);
  assert_int_equal(local_purge(&rig, "a"), 7);
  assert_int_equal(local_number(&rig, "SELECT count(*) FROM msg_store_lane"), 0);
  assert_int_equal(local_number(&rig, "SELECT count(*) FROM msg_store_message"), 2);
  assert_int_equal(local_purge(&rig, "[ab]"), 1);
  assert_int_equal(local_purge(&rig, "*"), 0);
}

/* What is changed while it is ready is claimed in its new order; a claimed one that gets a life
 * does not lose it before it is released. */
static void changes_of_what_is_ready_and_of_what_is_claimed(void **state) {
  (void)state;
  msg_oid a = put("t", "a", true, NULL, NULL), b = put("t", "b", true, NULL, NULL);
  assert_int_equal(set_priority(&b, 1), MSG_OK);
  assert_string_equal(local_claimed(&rig, "t", 1), "b");
  assert_int_equal(set_time(&a, 1), MSG_OK);
  put("t", "c", true, NULL, NULL);
  assert_string_equal(local_claimed(&rig, "t", 1), "a");
  assert_int_equal(local_number(&rig, "SELECT count(*) FROM msg_store_ready"), 1);
  assert_int_equal(set_priority(&a, 3), MSG_OK);
  assert_int_equal(set_ttl(&a, 5000), MSG_OK);
  msg_clock_shift(6000);
  local_sweep(&rig);
  assert_int_equal(local_count(&rig, MSG_LOCAL_CLAIMED), 2);
  assert_true(local_release(&rig, &b, 0));
  assert_int_equal(set_ttl(&a, 5000), MSG_OK);
  assert_true(local_release(&rig, &a, 0));
  assert_int_equal(local_count(&rig, MSG_LOCAL_MORTAL), 1);
  assert_string_equal(local_claimed(&rig, "t", 9), "b,a,c");
}

static void redrive_brings_dead_letters_back(void **state) {
  (void)state;
  msg_oid a = put("a", "1", true, "me", NULL);
  assert_int_equal(set_ttl(&a, 5000), MSG_OK);
  put("b", "2", true, NULL, NULL);
  assert_string_equal(local_claimed(&rig, "*", 9), "1,2");
  local_sql(&rig, "UPDATE msg_store_claim SET seq = (1 << 63) | 1 WHERE seq < 0;"
                  "UPDATE msg_store_claim SET lease = (1 << 63) | 1 WHERE seq > 0");
  rig.settings.max_attempts = 1;
  local_sweep(&rig);
  assert_int_equal(local_count(&rig, MSG_LOCAL_DEAD), 2);
  msg_clock_shift(600000);
  local_sweep(&rig);
  assert_int_equal(local_count(&rig, MSG_LOCAL_DEAD), 2);
  assert_int_equal(local_redrive(&rig, "a"), 1);
  assert_int_equal(local_redrive(&rig, "*"), 1);
  assert_int_equal(local_redrive(&rig, "*"), 0);
  assert_string_equal(local_claimed(&rig, "*", 9), "1,2");
  assert_int_equal(local_number(&rig, "SELECT count(*) FROM msg_store_message AS m, msg_store_claim"
                                      " USING (seq) WHERE msg_store_claim.attempts = 1 "
                                      "AND reason IS NULL"),
                   2);
}

static void redriven_goes_before_younger_of_its_group(void **state) {
  (void)state;
  msg_oid a = put("t", "a", true, NULL, "g");
  msg_oid b = put("t", "b", true, NULL, "g");
  put("t", "c", true, NULL, "g");
  assert_string_equal(local_claimed(&rig, "t", 9), "a");
  assert_true(local_settle(&rig, MSG_SETTLE_REJECT, &a, NULL));
  /* b is head, owned by nobody: it steps back */
  assert_int_equal(local_redrive(&rig, "t"), 1);
  assert_string_equal(local_claimed(&rig, "t", 9), "a");
  assert_true(local_settle(&rig, MSG_SETTLE_REJECT, &a, NULL));
  /* b is head and claimed: a waits for it, then goes before c */
  assert_string_equal(local_claimed(&rig, "t", 9), "b");
  assert_int_equal(local_redrive(&rig, "t"), 1);
  assert_string_equal(local_claimed(&rig, "t", 9), "");
  assert_true(local_release(&rig, &b, 0));
  assert_string_equal(local_claimed(&rig, "t", 9), "a");
  assert_true(local_settle(&rig, MSG_SETTLE_ACK, &a, NULL));
  assert_string_equal(local_claimed(&rig, "t", 9), "b");
  assert_true(local_settle(&rig, MSG_SETTLE_ACK, &b, NULL));
  assert_string_equal(local_claimed(&rig, "t", 9), "c");
}

static void redrive_of_many(void **state) {
  (void)state;
  for (int i = 0; i < 600; i++)
    put("t", "x", true, NULL, i % 2 ? "g" : NULL);
  local_sql(&rig, "UPDATE msg_store_message SET state = 7; DELETE FROM msg_store_ready");
  assert_int_equal(local_redrive(&rig, "t"), 600);
  assert_int_equal(local_count(&rig, MSG_LOCAL_READY), 301);
  assert_int_equal(local_count(&rig, MSG_LOCAL_BLOCKED), 299);
}

static void every_plan_goes_by_an_index(void **state) {
  (void)state;
  purge_spares_claims(state);
  redriven_goes_before_younger_of_its_group(state);
  broadcast_of_new_priority_is_seen_once_by_each(state);
  local_check_plans(&rig);
}

#define TEST(f) LOCAL_TEST(f, &rig)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(priority_reorders),
      TEST(time_moves_both_ways),
      TEST(ttl_begins_now_or_ends),
      TEST(head_of_a_group_stays_head),
      TEST(broadcast_of_new_priority_is_seen_once_by_each),
      TEST(what_is_out_cannot_be_delayed),
      TEST(remove_takes_any_state),
      TEST(purge_spares_claims),
      TEST(changes_of_what_is_ready_and_of_what_is_claimed),
      TEST(redrive_brings_dead_letters_back),
      TEST(redriven_goes_before_younger_of_its_group),
      TEST(redrive_of_many),
      TEST(every_plan_goes_by_an_index),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
