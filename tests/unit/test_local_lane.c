/* test_local_lane.c - what a look into a lane reads, however much of other topics waits there. */
#include <stdio.h>
#include <string.h>

#include "support/cmocka_compat.h"
#include "support/local_rig.h"

enum { OTHERS = 3000 }; /* a program's step or more each, if they are read */

static local_rig rig;
static char *to_a[] = {"a"};

static int setup(void **state) {
  (void)state;
  local_rig_open(&rig, ":memory:", "a");
  return 0;
}

static int teardown(void **state) {
  (void)state;
  local_rig_close(&rig);
  return 0;
}

/* One to node a. */
static void put(const char *topic, const char *text, bool exclusive, int32_t priority) {
  msg_message m = local_message(topic, text);
  m.exclusive = exclusive;
  m.priority = priority;
  m.recipients = to_a;
  m.recipient_count = 1;
  local_put(&rig, &m);
  m.recipients = NULL;
  m.recipient_count = 0;
  msg_message_clear(&m);
}

/* Others in front of them; t and u in between. */
static void fill(bool exclusive) {
  char topic[16];
  local_sql(&rig, "BEGIN");
  for (int i = 0; i < OTHERS; i++) {
    snprintf(topic, sizeof topic, "other.%d", i % 3);
    put(topic, "x", exclusive, 1);
  }
  put("t.1", "1", exclusive, 2);
  put("t.2", "2", exclusive, 3);
  put("t.1", "3", exclusive, 4);
  put("u", "4", exclusive, 5);
  for (int i = 0; i < OTHERS; i++)
    put("other", "x", exclusive, 6);
  local_sql(&rig, "COMMIT");
}

static int count_step(void *arg) {
  ++*(int *)arg;
  return 0;
}

static const char *texts(const msg_list *list) {
  static char text[128];
  text[0] = '\0';
  for (size_t i = 0; i < list->n; i++)
    snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", i ? " " : "",
             list->at[i].value.p);
  return text;
}

static const char *unseen(const char *pattern, const char *paused, size_t max, int *steps) {
  msg_pattern *p = NULL, *not = NULL;
  msg_list list = MSG_LIST_INIT;
  if (pattern)
    assert_int_equal(msg_pattern_new(pattern, &p, NULL), MSG_OK);
  if (paused)
    assert_int_equal(msg_pattern_new(paused, &not, NULL), MSG_OK);
  const msg_pattern *const all[] = {not };
  msg_unseen u = {.pattern = p, .paused = all, .paused_count = paused != NULL, .max = max};
  *steps = 0;
  sqlite3_progress_handler(rig.db, 1, count_step, steps);
  int rc = rig.session->ops->unseen(rig.session, &rig.actor, &u, &list, &rig.err);
  sqlite3_progress_handler(rig.db, 0, NULL, NULL);
  assert_int_equal(rc, MSG_OK);
  const char *found = texts(&list);
  msg_list_clear(&list);
  msg_pattern_free(p);
  msg_pattern_free(not );
  return found;
}

/* In at most `most` steps of SQLite's program. */
static void looks(const char *pattern, const char *paused, size_t max, const char *want, int most) {
  int steps;
  assert_string_equal(unseen(pattern, paused, max, &steps), want);
  if (steps > most)
    fail_msg("%s without %s: %d steps", pattern, paused, steps);
}

static void a_topic_reads_its_own(void **state) {
  (void)state;
  fill(false);
  looks("u", NULL, 9, "4", 500);
  looks("t.1", NULL, 9, "1 3", 500);
  looks("t.1", NULL, 1, "1", 500);
  looks("nothing", NULL, 9, "", 500);
  looks("u", "u", 9, "", 500);
  looks(NULL, NULL, 2, "x x", 500);
  looks("other*", NULL, 3, "x x x", 500);
}

/* 256 of other topics and then topic by topic. */
static void patterns_and_pauses_read_few_others(void **state) {
  (void)state;
  fill(false);
  looks("t*", NULL, 9, "1 2 3", OTHERS * 2);
  looks("t*", NULL, 2, "1 2", OTHERS * 2);
  looks("/^[tu]/", NULL, 9, "1 2 3 4", OTHERS * 2);
  looks("none*", NULL, 9, "", OTHERS * 2);
  looks(NULL, "other*", 9, "1 2 3 4", OTHERS * 2);
  looks("*", "/other|2/", 9, "1 3 4", OTHERS * 2);
}

static void claims_read_few_others(void **state) {
  (void)state;
  static const struct {
    const char *pattern;
    size_t n;
    const char *want;
  } CASES[] = {{"u", 9, "4"}, {"t.1", 1, "1"}, {"t*", 9, "2,3"}, {"none*", 9, ""}, {"none", 9, ""}};
  fill(true);
  for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
    int steps = 0;
    sqlite3_progress_handler(rig.db, 1, count_step, &steps);
    assert_string_equal(local_claimed(&rig, CASES[i].pattern, CASES[i].n), CASES[i].want);
    sqlite3_progress_handler(rig.db, 0, NULL, NULL);
    if (steps > OTHERS * 2)
      fail_msg("%s: %d steps", CASES[i].pattern, steps);
  }
}

static void priorities_change_in_both_orders(void **state) {
  (void)state;
  int steps;
  fill(false);
  msg_pattern *p = NULL;
  msg_list list = MSG_LIST_INIT;
  assert_int_equal(msg_pattern_new("t.1", &p, NULL), MSG_OK);
  msg_unseen u = {.pattern = p, .max = 9};
  assert_int_equal(rig.session->ops->unseen(rig.session, &rig.actor, &u, &list, &rig.err), MSG_OK);
  msg_update last = {.has_priority = true, .priority = 9};
  assert_int_equal(
      rig.session->ops->update(rig.session, &rig.actor, &list.at[0].id, &last, &rig.err), MSG_OK);
  msg_list_clear(&list);
  msg_pattern_free(p);
  assert_string_equal(unseen("t.1", NULL, 9, &steps), "3 1");
  assert_string_equal(unseen("t*", NULL, 9, &steps), "2 3 1");
  assert_string_equal(unseen(NULL, "other*", 9, &steps), "2 3 4 1");
}

/* Rows whose message was deleted by hand hold no lane. */
static void a_lane_of_gone_messages_is_empty(void **state) {
  (void)state;
  msg_session *s = rig.session;
  put("t", "1", false, 1);
  put("t", "2", false, 1);
  local_sql(&rig, "DELETE FROM msg_store_message WHERE value = '1'");
  assert_int_equal(s->ops->lane_drop(s, "a", &rig.err), MSG_MISUSE);
  assert_non_null(strstr(rig.err.text, "holds 1 messages"));
  local_sql(&rig, "DELETE FROM msg_store_message");
  assert_int_equal(s->ops->lane_drop(s, "a", &rig.err), MSG_OK);
  assert_int_equal(local_number(&rig, "SELECT count(*) FROM msg_store_lane"), 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void) {
  static const struct CMUnitTest tests[] = {
      TEST(a_topic_reads_its_own),
      TEST(patterns_and_pauses_read_few_others),
      TEST(claims_read_few_others),
      TEST(priorities_change_in_both_orders),
      TEST(a_lane_of_gone_messages_is_empty),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
