/* put.c, row.c: messages come back as they went in; keys, groups, ids. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "support/cmocka_compat.h"
#include "support/local_rig.h"

static local_rig rig;

static msg_message get(const msg_oid *id) {
  msg_message m;
  assert_int_equal(rig.session->ops->get(rig.session, id, &m, &rig.err), MSG_OK);
  return m;
}

static void every_field_comes_back(void **state) {
  (void)state;
  msg_message m = local_message("orders", "text");
  m.msg = msg_strdup("free \"text\"");
  m.map = msg_strdup("{\"a\":1}");
  m.additional = msg_strdup("[1,\"x\"]");
  m.sender_host = msg_strdup("box");
  m.group = msg_strdup("g");
  m.in_answer_to = msg_oid_new();
  m.priority = -5;
  m.ttl_ms = 70000;
  m.timing_out = true;
  m.delete_at_ms = m.deliver_at_ms + 70000;
  m.delete_after_processing = true;
  m.delete_after_processing_ms = 9;
  m.value.json = true;
  assert_int_equal(msg_message_add_recipient(&m, "a\"b\\c"), MSG_OK);
  assert_int_equal(msg_message_add_recipient(&m, "Zoë"), MSG_OK);
  msg_oid id = local_put(&rig, &m);
  assert_int_equal(msg_oid_cmp(&id, &m.id), 0);
  msg_message got = get(&id);
  assert_string_equal(got.topic, "orders");
  assert_string_equal(got.msg, m.msg);
  assert_string_equal(got.map, m.map);
  assert_string_equal(got.additional, m.additional);
  assert_string_equal(got.sender, "sender");
  assert_string_equal(got.sender_host, "box");
  assert_string_equal(got.group, "g");
  assert_int_equal(msg_oid_cmp(&got.in_answer_to, &m.in_answer_to), 0);
  assert_int_equal(got.priority, -5);
  assert_int_equal(got.ttl_ms, 70000);
  assert_true(got.timing_out && got.exclusive && got.delete_after_processing && got.value.json);
  assert_int_equal(got.delete_at_ms, m.delete_at_ms);
  assert_int_equal(got.delete_after_processing_ms, 9);
  assert_int_equal(got.recipient_count, 2);
  assert_string_equal(got.recipients[0], "a\"b\\c");
  assert_string_equal(got.recipients[1], "Zoë");
  assert_int_equal(got.state, MSG_STATE_READY);
  msg_message_clear(&got);
  msg_message_clear(&m);
}

/* What only a few messages have; in the row, CHECKS. */
static void give(msg_message *m, size_t i) {
  char **const texts[] = {&m->msg, &m->map, &m->additional, &m->key, &m->group, &m->reason};
  if (i < sizeof texts / sizeof texts[0])
    *texts[i] = msg_strdup("{}");
  else if (i == 6)
    m->attempts = 3;
  else if (i == 7)
    m->delete_after_processing = true;
  else if (i == 8)
    m->in_answer_to = msg_oid_new();
  else if (i == 9)
    assert_int_equal(msg_message_add_recipient(m, "you"), MSG_OK);
  else if (i == 10)
    m->deliver_at_ms += 600000;
  else if (i == 11)
    m->timestamp_ms = 7;
  else if (i == 12)
    m->timing_out = true;
}

static void a_field_alone_is_stored(void **state) {
  static const char *const CHECKS[] = {
      "msg = '{}'",
      "map = '{}'",
      "additional = '{}'",
      "key = '{}'",
      "grp = '{}'",
      "reason = '{}'",
      "attempts = 3",
      "delete_after = 0",
      "in_answer_to IS NOT NULL",
      "recipients = '[\"you\"]'",
      "due = deliver_at",
      "timestamp = 7",
      "timing_out AND delete_at IS NULL",
      "state = 1 AND exclusive AND attempts = 0 AND NOT timing_out AND timestamp = deliver_at",
  };
  (void)state;
  const size_t n = sizeof CHECKS / sizeof CHECKS[0];
  for (size_t i = 0; i < n; i++) {
    msg_message m = local_message("t", "x");
    give(&m, i);
    local_put(&rig, &m);
    msg_message_clear(&m);
  }
  for (size_t i = 0; i < n; i++) {
    char sql[200];
    snprintf(sql, sizeof sql, "SELECT count(*) FROM msg_store_message WHERE seq = %zu AND %s",
             i + 1, CHECKS[i]);
    if (local_number(&rig, sql) != 1)
      fail_msg("%s", CHECKS[i]);
  }
}

static void values_keep_their_type(void **state) {
  (void)state;
  char bytes[] = {0, 1, 2, 0};
  const msg_value VALUES[] = {
      {.type = MSG_NULL},
      msg_value_int(INT64_MIN),
      {.type = MSG_REAL, .r = 0.1},
      {.type = MSG_TEXT, .p = (char[]){"a\0b"}, .n = 3},
      {.type = MSG_TEXT, .p = (char[]){""}, .n = 0},
      {.type = MSG_BLOB, .p = bytes, .n = sizeof bytes},
      {.type = MSG_BLOB, .p = NULL, .n = 0},
  };
  for (size_t i = 0; i < sizeof VALUES / sizeof VALUES[0]; i++) {
    msg_message m = local_message("t", "");
    m.value = VALUES[i];
    msg_oid id = local_put(&rig, &m);
    msg_message got = get(&id);
    assert_int_equal(got.value.type, VALUES[i].type);
    assert_int_equal(got.value.i, VALUES[i].i);
    assert_int_equal(got.value.n, VALUES[i].n);
    assert_true(got.value.r == VALUES[i].r);
    if (VALUES[i].n)
      assert_memory_equal(got.value.p, VALUES[i].p, VALUES[i].n);
    msg_message_clear(&got);
    msg_message_clear(&m);
  }
}

static void stored_states(void **state) {
  (void)state;
  static const struct {
    bool exclusive, recipient, mortal, delayed;
    int stored;
  } CASES[] = {
      {true, false, false, false, MSG_LOCAL_READY},
      {true, false, true, false, MSG_LOCAL_MORTAL},
      {true, true, false, false, MSG_LOCAL_ADDRESSED},
      {true, true, true, false, MSG_LOCAL_ADDRESSED},
      {true, false, false, true, MSG_LOCAL_DELAYED},
      {false, false, true, false, MSG_LOCAL_LIVE},
      {false, true, true, false, MSG_LOCAL_DIRECT},
      {false, true, true, true, MSG_LOCAL_DELAYED},
  };
  for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
    msg_message m = local_message("t", "x");
    m.exclusive = CASES[i].exclusive;
    if (CASES[i].recipient)
      msg_message_add_recipient(&m, "you");
    if (CASES[i].delayed)
      m.deliver_at_ms += 10000;
    if (CASES[i].mortal)
      m.delete_at_ms = m.deliver_at_ms + 30000;
    int64_t lanes = 0;
    if (i > 0)
      lanes = local_number(&rig, "SELECT count(*) FROM msg_store_lane");
    local_put(&rig, &m);
    assert_int_equal(
        local_number(&rig, "SELECT state FROM msg_store_message ORDER BY seq DESC LIMIT 1"),
        CASES[i].stored);
    int64_t more = CASES[i].recipient && !CASES[i].delayed;
    assert_int_equal(local_number(&rig, "SELECT count(*) FROM msg_store_lane"), lanes + more);
    msg_message_clear(&m);
  }
}

static void followers_of_a_group_wait(void **state) {
  (void)state;
  const char *const groups[] = {"a", "a", "b", "a"};
  for (int i = 0; i < 4; i++) {
    msg_message m = local_message("t", "x");
    m.group = msg_strdup(groups[i]);
    local_put(&rig, &m);
    msg_message_clear(&m);
  }
  assert_int_equal(local_count(&rig, MSG_LOCAL_READY), 2);
  assert_int_equal(local_count(&rig, MSG_LOCAL_BLOCKED), 2);
}

static void delayed_head_has_its_time(void **state) {
  (void)state;
  msg_message m = local_message("t", "x");
  m.group = msg_strdup("g");
  m.deliver_at_ms += 5000;
  local_put(&rig, &m);
  msg_message_clear(&m);
  assert_int_equal(local_count(&rig, MSG_LOCAL_DELAYED), 1);
  assert_int_equal(local_number(&rig, "SELECT due = deliver_at FROM msg_store_message"), 1);
  local_send(&rig, "u", "x");
  msg_clock_shift(5001);
  local_sweep(&rig);
  assert_int_equal(local_count(&rig, MSG_LOCAL_READY), 2);
}

static void key_within_window_adds_nothing(void **state) {
  (void)state;
  msg_message m = local_message("t", "x");
  m.key = msg_strdup("k");
  msg_oid first = local_put(&rig, &m);
  m.id = msg_oid_new();
  msg_put put = {.message = &m, .key_until_ms = msg_clock_now_ms() + 1000};
  assert_int_equal(rig.session->ops->put(rig.session, &rig.actor, &put, 1, &rig.err), MSG_OK);
  assert_true(put.existed);
  assert_int_equal(msg_oid_cmp(&put.id, &first), 0);
  assert_int_equal(local_number(&rig, "SELECT count(*) FROM msg_store_message"), 1);
  msg_message other = local_message("other topic", "x");
  other.key = msg_strdup("k");
  local_put(&rig, &other);
  assert_int_equal(local_number(&rig, "SELECT count(*) FROM msg_store_message"), 2);
  /* kept after deletion, forgotten after the window */
  local_sql(&rig, "DELETE FROM msg_store_message");
  m.id = msg_oid_new();
  msg_oid again = local_put(&rig, &m);
  assert_int_equal(msg_oid_cmp(&again, &first), 0);
  msg_clock_shift(300001);
  m.id = msg_oid_new();
  again = local_put(&rig, &m);
  assert_int_equal(msg_oid_cmp(&again, &m.id), 0);
  assert_int_equal(local_number(&rig, "SELECT count(*) FROM msg_store_message"), 1);
  msg_message_clear(&m);
  msg_message_clear(&other);
}

static void taken_id_undoes_the_batch(void **state) {
  (void)state;
  msg_oid taken = local_send(&rig, "t", "first");
  msg_message a = local_message("t", "a"), b = local_message("t", "b");
  b.id = taken;
  a.key = msg_strdup("k");
  msg_put puts[] = {{.message = &a, .key_until_ms = INT64_MAX}, {.message = &b}};
  assert_int_equal(rig.session->ops->put(rig.session, &rig.actor, puts, 2, &rig.err), MSG_EXISTS);
  char hex[MSG_OID_HEX + 1];
  msg_oid_hex(&taken, hex);
  assert_non_null(strstr(rig.err.text, hex));
  assert_int_equal(local_number(&rig, "SELECT count(*) FROM msg_store_message"), 1);
  assert_int_equal(local_number(&rig, "SELECT count(*) FROM msg_store_key"), 0);
  msg_message_clear(&a);
  msg_message_clear(&b);
}

static void rowid_and_transaction_of_the_host_stay(void **state) {
  (void)state;
  local_sql(&rig, "CREATE TABLE mine(x); INSERT INTO mine(rowid, x) VALUES(77, 1)");
  local_send(&rig, "t", "x");
  assert_int_equal(sqlite3_last_insert_rowid(rig.db), 77);
  local_sql(&rig, "BEGIN");
  msg_message m = local_message("t", "k");
  m.key = msg_strdup("k");
  local_put(&rig, &m);
  assert_int_equal(sqlite3_get_autocommit(rig.db), 0);
  local_sql(&rig, "ROLLBACK");
  assert_int_equal(local_number(&rig, "SELECT count(*) FROM msg_store_message"), 1);
  assert_int_equal(local_number(&rig, "SELECT count(*) FROM msg_store_key"), 0);
  msg_message_clear(&m);
}

#define TEST(f) LOCAL_TEST(f, &rig)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(every_field_comes_back),
      TEST(a_field_alone_is_stored),
      TEST(values_keep_their_type),
      TEST(stored_states),
      TEST(followers_of_a_group_wait),
      TEST(delayed_head_has_its_time),
      TEST(key_within_window_adds_nothing),
      TEST(taken_id_undoes_the_batch),
      TEST(rowid_and_transaction_of_the_host_stay),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
