#include "model/filter.h"

#include <stdio.h>

#include "support/cmocka_compat.h"
#include "support/fail_alloc.h"

static msg_filter f;
static msg_message m;

static char topic[] = "orders", sender[] = "n1";

/* The texts of the message are static: it is never cleared. */
static int setup(void **state) {
  (void)state;
  msg_filter_init(&f);
  msg_message_init(&m);
  m.topic = topic;
  m.sender = sender;
  m.id.b[11] = 50;
  m.priority = 10;
  m.timestamp_ms = 20;
  m.deliver_at_ms = 30;
  m.seq = 40;
  m.state = MSG_STATE_DEAD;
  return 0;
}

static int teardown(void **state) {
  (void)state;
  msg_filter_clear(&f);
  return 0;
}

static void admits_everything_at_first(void **state) {
  (void)state;
  assert_true(msg_filter_match(&f, &m));
  assert_true(f.limit == -1 && f.offset == 0);
  assert_false(f.ordered || f.descending_seq || f.none);
  m.priority = INT32_MIN;
  m.timestamp_ms = INT64_MIN;
  m.deliver_at_ms = m.seq = INT64_MAX;
  assert_true(msg_filter_match(&f, &m));
}

static void none_admits_nothing(void **state) {
  (void)state;
  f.none = true;
  assert_false(msg_filter_match(&f, &m));
}

static void topics(void **state) {
  (void)state;
  assert_int_equal(msg_filter_add_topic(&f, "other"), MSG_OK);
  assert_false(msg_filter_match(&f, &m));
  assert_int_equal(msg_filter_add_topic(&f, "orders"), MSG_OK);
  assert_true(msg_filter_match(&f, &m));
  m.topic = NULL;
  assert_false(msg_filter_match(&f, &m));
}

static void senders(void **state) {
  (void)state;
  assert_int_equal(msg_filter_add_sender(&f, "N1"), MSG_OK);
  assert_false(msg_filter_match(&f, &m));
  assert_int_equal(msg_filter_add_sender(&f, "n1"), MSG_OK);
  assert_true(msg_filter_match(&f, &m));
  m.sender = NULL;
  assert_false(msg_filter_match(&f, &m));
}

static void ids(void **state) {
  (void)state;
  msg_oid id = {{0}};
  assert_int_equal(msg_filter_add_id(&f, &id), MSG_OK);
  assert_false(msg_filter_match(&f, &m));
  assert_int_equal(msg_filter_add_id(&f, &m.id), MSG_OK);
  assert_true(msg_filter_match(&f, &m));
}

static void id_ranges_are_closed(void **state) {
  (void)state;
  f.has_id_lo = f.has_id_hi = true;
  f.id_lo = f.id_hi = m.id;
  assert_true(msg_filter_match(&f, &m));
  f.id_lo.b[11]++;
  assert_false(msg_filter_match(&f, &m));
  f.id_lo.b[11] -= 2;
  assert_true(msg_filter_match(&f, &m));
  f.id_hi.b[11]--;
  assert_false(msg_filter_match(&f, &m));
  f.has_id_hi = false;
  assert_true(msg_filter_match(&f, &m));
}

static void states(void **state) {
  (void)state;
  for (unsigned s = 0; s < MSG_STATE_COUNT; s++) {
    f.states = 1u << s;
    assert_int_equal(msg_filter_match(&f, &m), s == MSG_STATE_DEAD);
  }
  f.states = 1u << MSG_STATE_READY | 1u << MSG_STATE_DEAD;
  assert_true(msg_filter_match(&f, &m));
  f.states = 0;
  assert_true(msg_filter_match(&f, &m));
}

static void range_is_closed(msg_range *r, int64_t value) {
  const msg_range all = *r;
  *r = (msg_range){value, value};
  assert_true(msg_filter_match(&f, &m));
  *r = (msg_range){value + 1, INT64_MAX};
  assert_false(msg_filter_match(&f, &m));
  *r = (msg_range){INT64_MIN, value - 1};
  assert_false(msg_filter_match(&f, &m));
  *r = (msg_range){value + 1, value - 1};
  assert_false(msg_filter_match(&f, &m));
  *r = all;
}

static void ranges(void **state) {
  (void)state;
  range_is_closed(&f.priority, 10);
  range_is_closed(&f.timestamp_ms, 20);
  range_is_closed(&f.deliver_at_ms, 30);
  range_is_closed(&f.seq, 40);
}

static void cuts(void **state) {
  (void)state;
  msg_range r = {INT64_MIN, INT64_MAX};
  msg_range_cut(&r, 5, INT64_MAX);
  assert_true(r.lo == 5 && r.hi == INT64_MAX);
  msg_range_cut(&r, INT64_MIN, 9);
  assert_true(r.lo == 5 && r.hi == 9);
  msg_range_cut(&r, 4, 10); /* no wider */
  assert_true(r.lo == 5 && r.hi == 9);
  msg_range_cut(&r, 10, 20); /* nothing left */
  assert_true(r.lo > r.hi);
}

static void terms_are_anded(void **state) {
  (void)state;
  assert_int_equal(msg_filter_add_topic(&f, "orders"), MSG_OK);
  assert_int_equal(msg_filter_add_sender(&f, "n1"), MSG_OK);
  assert_int_equal(msg_filter_add_id(&f, &m.id), MSG_OK);
  f.states = 1u << MSG_STATE_DEAD;
  f.priority = (msg_range){0, 10};
  assert_true(msg_filter_match(&f, &m));
  m.priority = 11;
  assert_false(msg_filter_match(&f, &m));
}

static void many_terms(void **state) {
  (void)state;
  char text[16];
  for (unsigned i = 0; i < 1000; i++) {
    msg_oid id = {{0}};
    id.b[0] = (uint8_t)(i >> 8);
    id.b[1] = (uint8_t)i;
    snprintf(text, sizeof text, "t%u", i);
    assert_int_equal(msg_filter_add_topic(&f, text), MSG_OK);
    assert_int_equal(msg_filter_add_id(&f, &id), MSG_OK);
  }
  assert_int_equal(f.topic_count, 1000);
  assert_string_equal(f.topics[0], "t0");
  assert_string_equal(f.topics[999], "t999");
  assert_int_equal(f.ids[999].b[1], 999 & 255);
  msg_filter_clear(&f);
  assert_null(f.topics);
  assert_int_equal(f.id_count, 0);
  assert_true(f.limit == -1);
}

static int add_many(void *arg) {
  (void)arg;
  msg_filter all;
  msg_oid id = {{1}};
  int rc = MSG_OK;
  msg_filter_init(&all);
  for (size_t i = 0; i < 20 && rc == MSG_OK; i++) {
    rc = msg_filter_add_topic(&all, "t");
    if (all.topic_count != i + (rc == MSG_OK))
      rc = MSG_CORRUPT;
    if (rc == MSG_OK)
      rc = msg_filter_add_sender(&all, "s");
    if (rc == MSG_OK)
      rc = msg_filter_add_id(&all, &id);
  }
  msg_filter_clear(&all);
  return rc;
}

static void allocation_failures(void **state) {
  (void)state;
  fail_alloc_install();
  assert_int_equal(fail_alloc_each(add_many, NULL), 40 + 3 * 3);
  fail_alloc_remove();
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(admits_everything_at_first),
      TEST(none_admits_nothing),
      TEST(topics),
      TEST(senders),
      TEST(ids),
      TEST(id_ranges_are_closed),
      TEST(states),
      TEST(ranges),
      TEST(cuts),
      TEST(terms_are_anded),
      TEST(many_terms),
      TEST(allocation_failures),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
