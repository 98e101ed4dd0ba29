#include "model/message.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "support/cmocka_compat.h"
#include "support/fail_alloc.h"

static void defaults(void **state) {
  (void)state;
  msg_message m;
  memset(&m, 0xAA, sizeof m);
  msg_message_init(&m);
  assert_int_equal(m.priority, 1000);
  assert_true(m.timing_out);
  assert_true(m.delete_at_ms == MSG_NEVER);
  assert_true(msg_oid_is_zero(&m.id));
  assert_null(m.topic);
  assert_null(m.recipients);
  assert_int_equal(m.value.type, MSG_NULL);
  assert_false(m.exclusive);
  assert_true(m.ttl_ms == 0 && m.timestamp_ms == 0 && m.seq == 0);
  assert_int_equal(m.state, MSG_STATE_READY);
  assert_string_equal(m.token, "");
  msg_message_clear(&m);
  msg_message_clear(&m);
}

static char **text_field(msg_message *m, size_t i) {
  char **fields[] = {&m->topic,  &m->msg,         &m->map,          &m->additional,
                     &m->sender, &m->sender_host, &m->processed_by, &m->key,
                     &m->group,  &m->reason,      &m->owner};
  return i < sizeof fields / sizeof fields[0] ? fields[i] : NULL;
}

/* Every field set, none like another. */
static void fill(msg_message *m) {
  char text[8];
  msg_message_init(m);
  for (size_t i = 0; text_field(m, i); i++) {
    text[0] = (char)('a' + i);
    text[1] = '\0';
    *text_field(m, i) = msg_strdup(text);
  }
  m->value = (msg_value){.type = MSG_BLOB, .p = msg_strdup("xyz"), .n = 3, .owned = true};
  assert_int_equal(msg_message_add_recipient(m, "n1"), MSG_OK);
  assert_int_equal(msg_message_add_recipient(m, "n2"), MSG_OK);
  m->id = msg_oid_new();
  m->in_answer_to = msg_oid_new();
  m->exclusive = m->delete_after_processing = true;
  m->timing_out = false;
  m->delete_after_processing_ms = 5;
  m->priority = -3;
  m->timestamp_ms = 6;
  m->ttl_ms = 7;
  m->delete_at_ms = 8;
  m->seq = 9;
  m->deliver_at_ms = 10;
  m->state = MSG_STATE_CLAIMED;
  m->attempts = 11;
  strcpy(m->token, "0123456789abcdef01234567");
  m->since_ms = 12;
  m->until_ms = 13;
}

static void same_texts(msg_message *a, msg_message *b) {
  for (size_t i = 0; text_field(a, i); i++) {
    assert_string_equal(*text_field(a, i), *text_field(b, i));
    assert_ptr_not_equal(*text_field(a, i), *text_field(b, i));
  }
  assert_int_equal(a->recipient_count, b->recipient_count);
  for (size_t i = 0; i < a->recipient_count; i++) {
    assert_string_equal(a->recipients[i], b->recipients[i]);
    assert_ptr_not_equal(a->recipients[i], b->recipients[i]);
  }
}

static void copy_is_deep_and_whole(void **state) {
  (void)state;
  msg_message m, copy;
  fill(&m);
  assert_int_equal(msg_message_copy(&copy, &m), MSG_OK);
  same_texts(&m, &copy);
  assert_memory_equal(copy.value.p, "xyz", 3);
  assert_ptr_not_equal(copy.value.p, m.value.p);
  assert_int_equal(msg_oid_cmp(&m.id, &copy.id), 0);
  assert_int_equal(msg_oid_cmp(&m.in_answer_to, &copy.in_answer_to), 0);
  assert_true(copy.exclusive && copy.delete_after_processing && !copy.timing_out);
  assert_int_equal(copy.delete_after_processing_ms, 5);
  assert_int_equal(copy.priority, -3);
  assert_true(copy.timestamp_ms == 6 && copy.ttl_ms == 7 && copy.delete_at_ms == 8);
  assert_true(copy.seq == 9 && copy.deliver_at_ms == 10 && copy.attempts == 11);
  assert_int_equal(copy.state, MSG_STATE_CLAIMED);
  assert_string_equal(copy.token, m.token);
  assert_true(copy.since_ms == 12 && copy.until_ms == 13);
  msg_message_clear(&m);
  msg_message_clear(&copy);
  assert_null(copy.topic);
  assert_int_equal(copy.recipient_count, 0);
}

static int copy_once(void *arg) {
  msg_message out;
  int rc = msg_message_copy(&out, arg);
  if (rc != MSG_OK && (out.topic || out.recipients || out.value.p || out.priority != 1000))
    return MSG_CORRUPT;
  msg_message_clear(&out);
  return rc;
}

static int add_two_recipients(void *arg) {
  (void)arg;
  msg_message m;
  msg_message_init(&m);
  int rc = msg_message_add_recipient(&m, "a");
  size_t want = rc == MSG_OK;
  if (rc == MSG_OK)
    rc = msg_message_add_recipient(&m, "b");
  want += rc == MSG_OK;
  if (m.recipient_count != want)
    rc = MSG_CORRUPT;
  msg_message_clear(&m);
  return rc;
}

static int add_to_list(void *arg) {
  (void)arg;
  msg_list l = MSG_LIST_INIT;
  size_t n = 0;
  while (n < 20 && msg_list_add(&l)) {
    n++;
    if (!(l.at[n - 1].topic = msg_strdup("t")))
      break;
  }
  bool whole = n == 20 && l.at[19].topic;
  msg_list_clear(&l);
  return whole ? MSG_OK : MSG_NOMEM;
}

static int lend_texts(void *arg) {
  (void)arg;
  msg_list l = MSG_LIST_INIT;
  char *first = msg_list_lend(&l, "orders"), *other = msg_list_lend(&l, "news");
  int rc = first && other ? MSG_OK : MSG_NOMEM;
  for (size_t i = 0; rc == MSG_OK && i < 3; i++) {
    msg_message *m = msg_list_add(&l);
    if (!m)
      rc = MSG_NOMEM;
    else
      *m = (msg_message){.topic = msg_list_lend(&l, "orders"), .lent = true};
    if (rc == MSG_OK && m->topic != first)
      rc = MSG_CORRUPT;
  }
  msg_list_clear(&l);
  return rc;
}

static void allocation_failures(void **state) {
  (void)state;
  msg_message m;
  fail_alloc_install();
  fill(&m);
  assert_int_equal(fail_alloc_each(copy_once, &m), 11 + 1 + 4);
  assert_int_equal(fail_alloc_each(add_two_recipients, NULL), 4);
  assert_int_equal(fail_alloc_each(add_to_list, NULL), 23);
  assert_int_equal(fail_alloc_each(lend_texts, NULL), 4); /* two texts, both lists */
  msg_message_clear(&m);
  assert_int_equal(fail_alloc_live(), 0);
  fail_alloc_remove();
}

static void what_is_lent_stays(void **state) {
  char topic[] = "t", sender[] = "me", host[] = "here";
  msg_message m, copy;
  (void)state;
  fail_alloc_install();
  msg_message_init(&m);
  m.topic = topic;
  m.sender = sender;
  m.sender_host = host;
  m.msg = msg_strdup("own");
  m.lent = true;
  assert_int_equal(msg_message_copy(&copy, &m), MSG_OK);
  msg_message_clear(&m);
  assert_false(m.lent);
  assert_null(m.topic);
  assert_false(copy.lent);
  topic[0] = sender[0] = host[0] = '-';
  assert_string_equal(copy.topic, "t");
  assert_string_equal(copy.sender, "me");
  assert_string_equal(copy.sender_host, "here");
  msg_message_clear(&copy);
  assert_int_equal(fail_alloc_live(), 0);
  fail_alloc_remove();
}

static void recipients(void **state) {
  (void)state;
  msg_message m;
  msg_message_init(&m);
  assert_false(msg_message_has_recipient(&m, "a"));
  assert_int_equal(msg_message_add_recipient(&m, "a"), MSG_OK);
  assert_int_equal(msg_message_add_recipient(&m, "b"), MSG_OK);
  assert_true(msg_message_has_recipient(&m, "a"));
  assert_true(msg_message_has_recipient(&m, "b"));
  assert_false(msg_message_has_recipient(&m, "A"));
  assert_false(msg_message_has_recipient(&m, ""));
  msg_message_clear(&m);
}

static void states_have_names(void **state) {
  (void)state;
  static const char *const NAMES[] = {"ready",     "delayed", "claimed", "blocked",
                                      "processed", "dead",    "expired"};
  enum msg_state s = MSG_STATE_DEAD;
  for (unsigned i = 0; i < MSG_STATE_COUNT; i++) {
    assert_string_equal(msg_state_name((enum msg_state)i), NAMES[i]);
    assert_true(msg_state_parse(NAMES[i], &s));
    assert_int_equal(s, i);
  }
  s = MSG_STATE_DEAD;
  assert_false(msg_state_parse("Ready", &s));
  assert_false(msg_state_parse("ready ", &s));
  assert_false(msg_state_parse("", &s));
  assert_false(msg_state_parse("unknown", &s));
  assert_false(msg_state_parse(NULL, &s));
  assert_int_equal(s, MSG_STATE_DEAD);
  assert_string_equal(msg_state_name((enum msg_state)MSG_STATE_COUNT), "unknown");
}

static void add(msg_list *l, int32_t priority, int64_t deliver_at, int64_t seq, uint8_t id) {
  msg_message *m = msg_list_add(l);
  assert_non_null(m);
  m->priority = priority;
  m->deliver_at_ms = deliver_at;
  m->seq = seq;
  m->id.b[0] = id;
}

static void list_sorts_in_delivery_order(void **state) {
  (void)state;
  msg_list l = MSG_LIST_INIT;
  msg_list_sort(&l);
  add(&l, 1000, INT64_MAX, 1, 9); /* the id is the rank wanted */
  add(&l, INT32_MIN, 5, 7, 1);
  add(&l, 1000, 5, 3, 6);
  add(&l, 1000, INT64_MIN, 9, 2);
  add(&l, 1000, 5, 3, 5);
  add(&l, 1000, 5, 2, 3);
  add(&l, 1000, 5, 3, 7);
  add(&l, INT32_MAX, 0, 0, 10);
  add(&l, 1000, 6, 0, 8);
  add(&l, 1000, 5, 3, 4);
  msg_list_sort(&l);
  for (size_t i = 0; i < l.n; i++)
    assert_int_equal(l.at[i].id.b[0], i + 1);
  assert_true(msg_list_has(&l, 0, &(msg_oid){{1}}) && msg_list_has(&l, 1, &(msg_oid){{2}}));
  assert_false(msg_list_has(&l, 1, &(msg_oid){{1}}) || msg_list_has(&l, 0, &(msg_oid){{99}}));
  msg_list_clear(&l);
  assert_null(l.at);
  add(&l, 1, 1, 1, 1);
  assert_int_equal(l.n, 1);
  assert_true(l.at[0].timing_out);
  msg_list_clear(&l);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(defaults),
      cmocka_unit_test(copy_is_deep_and_whole),
      cmocka_unit_test(allocation_failures),
      cmocka_unit_test(what_is_lent_stays),
      cmocka_unit_test(recipients),
      cmocka_unit_test(states_have_names),
      cmocka_unit_test(list_sorts_in_delivery_order),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
