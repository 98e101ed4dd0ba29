/* What a process handed out and has not marked yet. No server. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "store/mongo/marks.h"
#include "support/cmocka_compat.h"

enum { MANY = 9 };

struct rig {
  msg_mongo_store store;
  msg_mongo_queue queue;
  msg_mongo_place place;
  msg_mongo_session session;
  msg_message rows[MANY];
};

static int setup(void **state) {
  struct rig *r = msg_zalloc(sizeof *r);
  assert_non_null(r);
  r->store.mtx = msg_mutex_new();
  r->store.marks_changed = msg_cond_new();
  assert_true(r->store.mtx && r->store.marks_changed);
  r->place.queue = &r->queue;
  r->store.places = &r->place;
  r->session = (msg_mongo_session){.store = &r->store, .queue = &r->queue, .place = &r->place};
  for (int i = 0; i < MANY; i++) {
    msg_message_init(&r->rows[i]);
    r->rows[i].id.b[11] = (uint8_t)(i + 1);
  }
  *state = r;
  return 0;
}

static int teardown(void **state) {
  struct rig *r = *state;
  msg_mongo_seers_free(&r->place);
  msg_cond_free(r->store.marks_changed);
  msg_mutex_free(r->store.mtx);
  msg_free(r);
  return 0;
}

/* Takes the rows of these digits for the node: which it got. */
static const char *take(struct rig *r, const char *node, const char *digits, bool won) {
  static char got[MANY + 1];
  msg_message rows[MANY];
  bool mine[MANY] = {0}, wins[MANY];
  msg_list list = {.at = rows, .cap = MANY};
  size_t n = 0;
  for (const char *d = digits; *d; d++)
    rows[list.n++] = r->rows[*d - '1'];
  assert_int_equal(msg_mongo_marks_take(&r->session, node, &list, mine, NULL), MSG_OK);
  for (size_t i = 0; i < list.n; i++) {
    wins[i] = won;
    if (mine[i])
      got[n++] = digits[i];
  }
  got[n] = 0;
  msg_mongo_marks_hand_out(&r->session, node, &list, mine, wins);
  return got;
}

static const char *known(struct rig *r, const char *node) {
  static char text[MANY + 1];
  msg_mongo_ids ids = {0};
  assert_int_equal(msg_mongo_marks_copy(&r->session, node, &ids, NULL), MSG_OK);
  for (size_t i = 0; i < ids.n; i++)
    text[i] = (char)('0' + ids.at[i].b[11]);
  text[ids.n] = 0;
  msg_mongo_ids_clear(&ids);
  return text;
}

/* "node+node:ids", one after another; those that go after processing with a '-'. */
static const char *gather(struct rig *r, size_t max, msg_mongo_seen_list *l) {
  static char text[200];
  char *t = text;
  bool full;
  *t = 0;
  msg_mutex_lock(r->store.mtx);
  msg_mongo_marks_gather_locked(&r->store, max, l, &full);
  msg_mutex_unlock(r->store.mtx);
  for (size_t i = 0; i < l->n; i++) {
    for (size_t k = 0; k < l->at[i].nodes.n; k++)
      t += sprintf(t, "%s%s", k ? "+" : i ? " " : "", l->at[i].nodes.at[k]);
    t += sprintf(t, l->at[i].deletes ? "-" : ":");
    for (size_t k = 0; k < l->at[i].ids.n; k++)
      t += sprintf(t, "%d", l->at[i].ids.at[k].b[11]);
  }
  return text;
}

static void written(struct rig *r, msg_mongo_seen_list *l, bool done) {
  msg_mutex_lock(r->store.mtx);
  msg_mongo_marks_written_locked(l, done);
  msg_mutex_unlock(r->store.mtx);
  msg_mongo_seen_list_clear(l);
}

static void a_message_is_taken_once_a_node(void **state) {
  struct rig *r = *state;
  assert_string_equal(take(r, "a", "31", true), "31");
  assert_string_equal(take(r, "a", "1234", true), "24");
  assert_string_equal(take(r, "b", "1", true), "1");
  assert_string_equal(known(r, "a"), "1234");
  assert_string_equal(known(r, "c"), "");
}

static void what_is_not_won_is_free(void **state) {
  struct rig *r = *state;
  assert_string_equal(take(r, "a", "12", false), "12");
  assert_null(r->place.seers);
  assert_string_equal(take(r, "a", "2", true), "2");
}

static void what_is_written_goes_and_what_is_not_stays(void **state) {
  struct rig *r = *state;
  msg_mongo_seen_list l;
  take(r, "a", "12", true);
  assert_string_equal(gather(r, 9, &l), "a:12");
  take(r, "a", "3", true);
  written(r, &l, false);
  assert_string_equal(known(r, "a"), "123");
  assert_string_equal(gather(r, 2, &l), "a:12");
  written(r, &l, true);
  assert_string_equal(known(r, "a"), "3");
  assert_string_equal(gather(r, 2, &l), "a:3");
  written(r, &l, true);
  assert_null(r->place.seers);
  assert_string_equal(gather(r, 2, &l), "");
}

static void who_has_seen_the_same_is_one(void **state) {
  struct rig *r = *state;
  msg_mongo_seen_list l;
  r->rows[8].delete_after_processing = true;
  take(r, "c", "129", true);
  take(r, "b", "13", true);
  take(r, "a", "219", true);
  assert_string_equal(gather(r, 9, &l), "a+c:12 a+c-9 b:13");
  written(r, &l, true);
}

int main(void) {
#define TEST(t) cmocka_unit_test_setup_teardown(t, setup, teardown)
  const struct CMUnitTest tests[] = {
      TEST(a_message_is_taken_once_a_node),
      TEST(what_is_not_won_is_free),
      TEST(what_is_written_goes_and_what_is_not_stays),
      TEST(who_has_seen_the_same_is_one),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
