/* test_send.c - what a send fills in, batches, replies. */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/process.h"
#include "support/cmocka_compat.h"
#include "support/rig.h"

static void begin(msg_message *m, const char *topic) {
  msg_message_init(m);
  m->topic = msg_strdup(topic);
}

static void fill_ok(peer *p, msg_message *m, const msg_options *o) {
  msg_err err = MSG_ERR_INIT;
  if (msg_node_fill(p->node, m, o, &err) != MSG_OK)
    fail_msg("%s", err.text);
}

static void a_broadcast_is_filled(void **state) {
  rig r;
  peer a;
  msg_message m;
  rig_open(&r, RIG_KIND(state));
  peer_open(&r, &a, "me");
  begin(&m, "t");
  int64_t before = msg_clock_now_ms();
  fill_ok(&a, &m, NULL);
  assert_false(msg_oid_is_zero(&m.id));
  assert_string_equal(m.sender, "me");
  assert_string_equal(m.sender_host, msg_process_host());
  assert_true(m.timestamp_ms >= before && m.timestamp_ms <= msg_clock_now_ms());
  assert_int_equal(m.deliver_at_ms, m.timestamp_ms);
  assert_true(m.timing_out);
  assert_int_equal(m.ttl_ms, 30000);
  assert_int_equal(m.delete_at_ms, m.timestamp_ms + 30000);
  assert_int_equal(m.priority, 1000);
  msg_message_clear(&m);
  rig_close(&r);
}

static void a_lent_one_borrows_its_senders_names(void **state) {
  rig r;
  peer a;
  msg_message m;
  char topic[] = "t";
  rig_open(&r, RIG_KIND(state));
  peer_open(&r, &a, "me");
  msg_message_init(&m);
  m.topic = topic;
  m.lent = true;
  fill_ok(&a, &m, NULL);
  fill_ok(&a, &m, NULL);
  assert_string_equal(m.sender, "me");
  assert_string_equal(m.sender_host, msg_process_host());
  msg_message_clear(&m);
  rig_close(&r);
}

static void life_of_each_kind(void **state) {
  static const struct {
    bool exclusive, has_ttl, has_timing_out, timing_out;
    int64_t ttl_ms, delay_ms;
    int64_t want_ttl_ms, want_life_ms; /* from the timestamp; -1 never */
  } CASES[] = {
      {false, false, false, false, 0, 0, 30000, 30000},
      {false, false, false, false, 0, 5000, 30000, 35000},
      {false, true, false, false, 10, 0, 10, 10},
      {false, false, true, false, 0, 0, 0, -1},
      {false, false, true, true, 0, 0, 30000, 30000},
      {true, false, false, false, 0, 0, 0, -1},
      {true, false, false, false, 0, 700, 0, -1},
      {true, true, false, false, 500, 700, 500, 1200},
      {true, false, true, true, 0, 0, 30000, 30000},
      {true, true, true, true, 77, 0, 77, 77},
  };
  rig r;
  peer a;
  rig_open(&r, RIG_KIND(state));
  peer_open(&r, &a, NULL);
  for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
    msg_message m;
    msg_options o;
    msg_options_init(&o);
    begin(&m, "t");
    m.exclusive = CASES[i].exclusive;
    o.has_ttl = CASES[i].has_ttl;
    m.ttl_ms = CASES[i].ttl_ms;
    o.has_timing_out = CASES[i].has_timing_out;
    m.timing_out = CASES[i].has_timing_out ? CASES[i].timing_out : true;
    o.has_delay = CASES[i].delay_ms > 0;
    o.delay_ms = CASES[i].delay_ms;
    fill_ok(&a, &m, &o);
    assert_int_equal(m.deliver_at_ms, m.timestamp_ms + CASES[i].delay_ms);
    assert_int_equal(m.ttl_ms, CASES[i].want_ttl_ms);
    assert_int_equal(m.timing_out, CASES[i].want_life_ms >= 0);
    assert_int_equal(m.delete_at_ms, CASES[i].want_life_ms < 0
                                         ? MSG_NEVER
                                         : m.timestamp_ms + CASES[i].want_life_ms);
    msg_message_clear(&m);
    msg_options_clear(&o);
  }
  rig_close(&r);
}

static void deliver_at_is_kept_and_life_starts_now_at_the_earliest(void **state) {
  rig r;
  peer a;
  msg_message m;
  msg_options o;
  rig_open(&r, RIG_KIND(state));
  peer_open(&r, &a, NULL);
  msg_options_init(&o);
  o.has_deliver_at = true;
  begin(&m, "t");
  m.deliver_at_ms = 17;
  fill_ok(&a, &m, &o);
  assert_int_equal(m.deliver_at_ms, 17);
  assert_int_equal(m.delete_at_ms, m.timestamp_ms + 30000);
  m.deliver_at_ms = m.timestamp_ms + 100000;
  fill_ok(&a, &m, &o);
  assert_int_equal(m.delete_at_ms, m.deliver_at_ms + 30000);
  msg_message_clear(&m);
  msg_options_clear(&o);
  rig_close(&r);
}

static void bad_messages_are_refused_unchanged(void **state) {
  rig r;
  peer a;
  msg_message m;
  msg_err err = MSG_ERR_INIT;
  rig_open(&r, RIG_KIND(state));
  peer_open(&r, &a, NULL);
  begin(&m, "orders.*");
  assert_int_equal(msg_node_fill(a.node, &m, NULL, &err), MSG_INVALID);
  assert_null(m.sender);
  assert_true(msg_oid_is_zero(&m.id));
  msg_message_clear(&m);

  begin(&m, "t");
  assert_int_equal(msg_message_add_recipient(&m, "a__b"), MSG_OK);
  assert_int_equal(msg_node_fill(a.node, &m, NULL, &err), MSG_INVALID);
  msg_message_clear(&m);

  begin(&m, "t");
  m.group = msg_strdup("g");
  assert_int_equal(msg_node_fill(a.node, &m, NULL, &err), MSG_INVALID);
  assert_non_null(strstr(err.text, "msg_enqueue"));
  m.exclusive = true;
  assert_int_equal(msg_node_fill(a.node, &m, NULL, &err), MSG_OK);
  m.key = msg_strdup("");
  assert_int_equal(msg_node_fill(a.node, &m, NULL, &err), MSG_INVALID);
  msg_message_clear(&m);
  rig_close(&r);
}

static void a_batch_goes_in_one_call(void **state) {
  enum { N = 20 };
  rig r;
  peer a, b;
  msg_message m[N];
  msg_oid ids[N];
  bool existed[N];
  msg_list list = MSG_LIST_INIT;
  rig_open_pair(&r, RIG_KIND(state), &a, "a", &b, "b");
  for (int i = 0; i < N; i++) {
    begin(&m[i], "t");
    m[i].exclusive = true;
    fill_ok(&a, &m[i], NULL);
  }
  assert_int_equal(msg_node_send(a.node, &a.call, m, N, ids, existed, NULL), MSG_OK);
  assert_int_equal(fault_store_calls(r.store, FAULT_PUT), 1);
  assert_int_equal(msg_node_send(a.node, &a.call, m, 0, NULL, NULL, NULL), MSG_OK);
  assert_int_equal(fault_store_calls(r.store, FAULT_PUT), 1);
  assert_int_equal(msg_node_stat(a.node, MSG_STAT_SENT), N);
  assert_int_equal(peer_claim(&b, "t", 0, N + 1, &list), MSG_OK);
  assert_int_equal(list.n, N);
  for (int i = 0; i < N; i++) {
    assert_int_equal(msg_oid_cmp(&ids[i], &m[i].id), 0);
    assert_int_equal(msg_oid_cmp(&ids[i], &list.at[i].id), 0);
    assert_false(existed[i]);
    msg_message_clear(&m[i]);
  }
  msg_list_clear(&list);
  rig_close(&r);
}

/* Needs a store that knows keys. */
static void a_key_is_put_once(void **state) {
  rig r;
  peer a;
  msg_message m, again;
  msg_oid first, second;
  bool existed;
  rig_open(&r, RIG_KIND(state));
  peer_open(&r, &a, "a");
  begin(&m, "t");
  m.key = msg_strdup("k");
  begin(&again, "t");
  again.key = msg_strdup("k");
  fill_ok(&a, &m, NULL);
  fill_ok(&a, &again, NULL);
  assert_int_equal(msg_node_send(a.node, &a.call, &m, 1, &first, &existed, NULL), MSG_OK);
  assert_false(existed);
  assert_int_equal(msg_node_send(a.node, &a.call, &again, 1, &second, &existed, NULL), MSG_OK);
  assert_true(existed);
  assert_int_equal(msg_oid_cmp(&first, &second), 0);
  assert_int_equal(msg_node_stat(a.node, MSG_STAT_SENT), 1);
  assert_int_equal(msg_node_stat(a.node, MSG_STAT_DEDUPLICATED), 1);
  msg_message_clear(&m);
  msg_message_clear(&again);
  rig_close(&r);
}

/* --- replies ------------------------------------------------------------------------------- */

static msg_oid send_with(peer *p, msg_message *m, const msg_options *o) {
  msg_oid id;
  msg_err err = MSG_ERR_INIT;
  fill_ok(p, m, o);
  if (msg_node_send(p->node, &p->call, m, 1, &id, NULL, &err) != MSG_OK)
    fail_msg("%s", err.text);
  msg_message_clear(m);
  return id;
}

static void a_reply_is_made_as_the_factory_does(void **state) {
  rig r;
  peer a, b;
  msg_message m;
  msg_options o;
  msg_oid reply;
  msg_list list = MSG_LIST_INIT, answers = MSG_LIST_INIT;
  msg_value v = msg_value_text("yes");
  rig_open_pair(&r, RIG_KIND(state), &a, "asker", &b, "answerer");
  assert_int_equal(peer_await(&b, "ask", 0, 1, &list), MSG_TIMEOUT);
  msg_options_init(&o);
  o.has_ttl = true;
  begin(&m, "ask");
  m.msg = msg_strdup("free text");
  m.ttl_ms = 12345;
  m.priority = 500;
  msg_oid id = send_with(&a, &m, &o);
  assert_int_equal(peer_await(&b, "ask", 0, 1, &list), MSG_OK);
  assert_int_equal(msg_node_reply(b.node, &b.call, &id, &v, NULL, &reply, NULL), MSG_OK);
  assert_int_equal(fault_store_calls(r.store, FAULT_GET), 0); /* handed out lately */

  assert_int_equal(peer_await(&a, NULL, 0, 5, &answers), MSG_OK);
  assert_int_equal(answers.n, 1);
  const msg_message *got = &answers.at[0];
  assert_int_equal(msg_oid_cmp(&got->id, &reply), 0);
  assert_int_equal(msg_oid_cmp(&got->in_answer_to, &id), 0);
  assert_string_equal(got->topic, "ask");
  assert_string_equal(got->msg, "free text");
  assert_string_equal(got->value.p, "yes");
  assert_string_equal(got->sender, "answerer");
  assert_int_equal(got->recipient_count, 1);
  assert_string_equal(got->recipients[0], "asker");
  assert_false(got->exclusive);
  assert_int_equal(got->priority, 490);
  assert_int_equal(got->ttl_ms, 12345);
  assert_int_equal(got->delete_at_ms, got->timestamp_ms + 12345);
  assert_int_equal(msg_node_stat(b.node, MSG_STAT_REPLIES), 1);
  msg_list_clear(&list);
  msg_list_clear(&answers);
  msg_options_clear(&o);
  rig_close(&r);
}

static void options_override_a_reply(void **state) {
  rig r;
  peer a, b;
  msg_options o;
  msg_oid reply;
  msg_list answers = MSG_LIST_INIT;
  msg_value v = msg_value_int(7);
  rig_open_pair(&r, RIG_KIND(state), &a, "asker", &b, "answerer");
  msg_oid id = peer_enqueue(&a, "ask", "x"); /* no expiry: neither has the answer */
  msg_oid plain_reply;
  assert_int_equal(msg_node_reply(b.node, &b.call, &id, &v, NULL, &plain_reply, NULL), MSG_OK);
  assert_int_equal(fault_store_calls(r.store, FAULT_GET), 1); /* never handed to b */
  msg_options_init(&o);
  o.m.msg = msg_strdup("mine");
  o.m.map = msg_strdup("{\"a\":1}");
  o.m.additional = msg_strdup("[1]");
  o.m.ttl_ms = 99000;
  o.has_ttl = true;
  o.m.priority = -5;
  o.has_priority = true;
  assert_int_equal(msg_node_reply(b.node, &b.call, &id, &v, &o, &reply, NULL), MSG_OK);
  assert_int_equal(peer_await(&a, NULL, 0, 5, &answers), MSG_OK);
  assert_int_equal(answers.n, 2);
  bool swapped = msg_oid_cmp(&answers.at[0].id, &reply) == 0;
  const msg_message *plain = &answers.at[swapped], *mine = &answers.at[!swapped];
  assert_int_equal(msg_oid_cmp(&plain->id, &plain_reply), 0);
  assert_false(plain->timing_out);
  assert_int_equal(plain->delete_at_ms, MSG_NEVER);
  assert_null(plain->map);
  assert_string_equal(mine->msg, "mine");
  assert_string_equal(mine->map, "{\"a\":1}");
  assert_string_equal(mine->additional, "[1]");
  assert_int_equal(mine->ttl_ms, 99000);
  assert_int_equal(mine->priority, -5);
  assert_int_equal(mine->value.i, 7);
  msg_list_clear(&answers);
  msg_options_clear(&o);
  rig_close(&r);
}

static void what_was_handed_out_can_be_answered_after_it_is_gone(void **state) {
  rig r;
  peer a, b;
  msg_oid reply, unknown = msg_oid_new();
  msg_err err = MSG_ERR_INIT;
  msg_list list = MSG_LIST_INIT;
  msg_value v = msg_value_int(1);
  rig_open_pair(&r, RIG_KIND(state), &a, "asker", &b, "answerer");
  msg_oid id = peer_enqueue(&a, "ask", "x");
  assert_int_equal(peer_claim(&b, "ask", 0, 1, &list), MSG_OK);
  msg_settle ack = {.verb = MSG_SETTLE_ACK};
  msg_settle_item item = {.id = id, .token = list.at[0].token};
  assert_int_equal(msg_node_settle(b.node, &b.call, &ack, &item, 1, &err), MSG_OK);
  assert_true(item.done);
  assert_int_equal(msg_node_reply(b.node, &b.call, &id, &v, NULL, &reply, &err), MSG_OK);
  assert_int_equal(msg_node_reply(a.node, &a.call, &id, &v, NULL, &reply, &err), MSG_NOTFOUND);
  assert_int_equal(msg_node_reply(b.node, &b.call, &unknown, &v, NULL, &reply, &err), MSG_NOTFOUND);
  msg_list_clear(&list);
  rig_close(&r);
}

static void only_the_last_1024_are_remembered(void **state) {
  enum { N = 1100 };
  rig r;
  peer a, b;
  msg_message *m = msg_alloc(N * sizeof *m);
  msg_oid reply, first, last;
  msg_list list = MSG_LIST_INIT;
  msg_value v = msg_value_int(1);
  rig_open_pair(&r, RIG_KIND(state), &a, "asker", &b, "answerer");
  for (int i = 0; i < N; i++) {
    begin(&m[i], "ask");
    m[i].exclusive = true;
    fill_ok(&a, &m[i], NULL);
  }
  assert_int_equal(msg_node_send(a.node, &a.call, m, N, NULL, NULL, NULL), MSG_OK);
  first = m[0].id;
  last = m[N - 1].id;
  assert_int_equal(peer_claim(&b, "ask", 0, N, &list), MSG_OK);
  assert_int_equal(list.n, N);
  assert_int_equal(msg_node_reply(b.node, &b.call, &last, &v, NULL, &reply, NULL), MSG_OK);
  assert_int_equal(fault_store_calls(r.store, FAULT_GET), 0);
  assert_int_equal(msg_node_reply(b.node, &b.call, &first, &v, NULL, &reply, NULL), MSG_OK);
  assert_int_equal(fault_store_calls(r.store, FAULT_GET), 1);
  for (int i = 0; i < N; i++)
    msg_message_clear(&m[i]);
  msg_free(m);
  msg_list_clear(&list);
  rig_close(&r);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      RIG_TEST(a_broadcast_is_filled, fake),
      RIG_TEST(a_lent_one_borrows_its_senders_names, fake),
      RIG_TEST(life_of_each_kind, fake),
      RIG_TEST(deliver_at_is_kept_and_life_starts_now_at_the_earliest, fake),
      RIG_TEST(bad_messages_are_refused_unchanged, fake),
      RIG_TEST(a_batch_goes_in_one_call, fake),
      RIG_TEST(a_batch_goes_in_one_call, file),
      RIG_TEST(a_batch_goes_in_one_call, memory),
      RIG_TEST(a_key_is_put_once, file),
      RIG_TEST(a_key_is_put_once, memory),
      RIG_TEST(a_reply_is_made_as_the_factory_does, fake),
      RIG_TEST(a_reply_is_made_as_the_factory_does, file),
      RIG_TEST(a_reply_is_made_as_the_factory_does, memory),
      RIG_TEST(options_override_a_reply, fake),
      RIG_TEST(options_override_a_reply, file),
      RIG_TEST(what_was_handed_out_can_be_answered_after_it_is_gone, fake),
      RIG_TEST(what_was_handed_out_can_be_answered_after_it_is_gone, file),
      RIG_TEST(only_the_last_1024_are_remembered, fake),
      RIG_TEST(only_the_last_1024_are_remembered, memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
