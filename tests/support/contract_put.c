/* contract_put.c - the contract: put, get. */
#include <string.h>

#include "support/contract.h"

static int put_many(contract *k, msg_message *m, size_t n, msg_put *puts) {
  msg_actor actor = contract_actor(k, "sender");
  for (size_t i = 0; i < n; i++)
    puts[i] = (msg_put){.message = &m[i], .key_until_ms = msg_clock_now_ms() + 1000};
  return k->s->ops->put(k->s, &actor, puts, n, &k->err);
}

static void same_text(const char *a, const char *b) {
  if (a && b)
    assert_string_equal(a, b);
  else
    assert_ptr_equal(a, b);
}

static void same_value(const msg_value *a, const msg_value *b) {
  assert_int_equal(a->type, b->type);
  assert_int_equal(a->json, b->json);
  assert_int_equal(a->i, b->i);
  assert_true(a->r == b->r);
  assert_int_equal(a->n, b->n);
  if (a->n)
    assert_memory_equal(a->p, b->p, a->n);
}

static void same_message(const msg_message *a, const msg_message *b) {
  assert_memory_equal(&a->id, &b->id, sizeof a->id);
  same_text(a->topic, b->topic);
  same_text(a->msg, b->msg);
  same_value(&a->value, &b->value);
  same_text(a->map, b->map);
  same_text(a->additional, b->additional);
  same_text(a->sender, b->sender);
  same_text(a->sender_host, b->sender_host);
  assert_int_equal(a->recipient_count, b->recipient_count);
  for (size_t i = 0; i < a->recipient_count; i++)
    same_text(a->recipients[i], b->recipients[i]);
  assert_memory_equal(&a->in_answer_to, &b->in_answer_to, sizeof a->in_answer_to);
  assert_int_equal(a->exclusive, b->exclusive);
  assert_int_equal(a->timing_out, b->timing_out);
  assert_int_equal(a->delete_after_processing, b->delete_after_processing);
  assert_int_equal(a->delete_after_processing_ms, b->delete_after_processing_ms);
  assert_int_equal(a->priority, b->priority);
  assert_int_equal(a->timestamp_ms, b->timestamp_ms);
  assert_int_equal(a->ttl_ms, b->ttl_ms);
  assert_int_equal(a->delete_at_ms, b->delete_at_ms);
  assert_int_equal(a->deliver_at_ms, b->deliver_at_ms);
  same_text(a->key, b->key);
  same_text(a->group, b->group);
}

static void get_message(contract *k, const msg_oid *id, msg_message *out) {
  OK(k->s->ops->get(k->s, id, out, &k->err));
}

static void put_keeps_every_field(void **state) {
  contract *k = *state;
  msg_oid question = msg_oid_new();
  msg_message m, got;
  contract_message(&(contract_spec){.topic = "t\xc3\xa4",
                                    .text = "it's \"text\"",
                                    .sender = "n1",
                                    .priority = -7,
                                    .delay_ms = 5000,
                                    .ttl_ms = 60000,
                                    .to = "a \"b\" \\",
                                    .to_also = "\xe2\x82\xac",
                                    .answers = &question,
                                    .key = "k",
                                    .delete_after = true,
                                    .delete_after_ms = 1234},
                   &m);
  m.msg = msg_strdup("free text");
  m.map = msg_strdup("{\"a\":[1,2.5,null]}");
  m.additional = msg_strdup("[\"x\",\"y\"]");
  msg_put put;
  OK(put_many(k, &m, 1, &put));
  assert_false(put.existed);
  get_message(k, &m.id, &got);
  same_message(&m, &got);
  assert_int_equal(got.state, MSG_STATE_DELAYED);
  assert_int_equal(got.attempts, 0);
  assert_null(got.owner);
  assert_string_equal(got.token, "");
  assert_string_equal(got.processed_by, "[]");
  assert_null(got.reason);
  msg_message_clear(&got);
  msg_message_clear(&m);
}

static void put_keeps_types(void **state) {
  contract *k = *state;
  char blob[] = {0, 1, 0, (char)255};
  const msg_value values[] = {
      {.type = MSG_NULL},
      {.type = MSG_INT, .i = INT64_MIN},
      {.type = MSG_REAL, .r = -0.1},
      {.type = MSG_TEXT, .p = "", .n = 0},
      {.type = MSG_TEXT, .p = "12", .n = 2},
      {.type = MSG_TEXT, .p = "{\"a\":1}", .n = 7, .json = true},
      {.type = MSG_BLOB, .p = blob, .n = sizeof blob},
      {.type = MSG_BLOB, .p = NULL, .n = 0},
  };
  for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
    msg_message m, got;
    msg_put put;
    contract_message(&(contract_spec){.topic = "t"}, &m);
    m.value = values[i];
    OK(put_many(k, &m, 1, &put));
    get_message(k, &m.id, &got);
    same_value(&m.value, &got.value);
    msg_message_clear(&got);
    msg_message_clear(&m);
  }
}

static void put_shows_states(void **state) {
  contract *k = *state;
  msg_oid id = PUT(.topic = "t");
  assert_int_equal(contract_state(k, &id), MSG_STATE_READY);
  id = PUT(.topic = "t", .exclusive = true);
  assert_int_equal(contract_state(k, &id), MSG_STATE_READY);
  id = PUT(.topic = "t", .exclusive = true, .ttl_ms = 20000);
  assert_int_equal(contract_state(k, &id), MSG_STATE_READY);
  id = PUT(.topic = "t", .exclusive = true, .to = "a");
  assert_int_equal(contract_state(k, &id), MSG_STATE_READY);
  id = PUT(.topic = "t", .to = "a");
  assert_int_equal(contract_state(k, &id), MSG_STATE_READY);
  id = PUT(.topic = "t", .to = "a", .delay_ms = 20000);
  assert_int_equal(contract_state(k, &id), MSG_STATE_DELAYED);
  id = PUT(.topic = "t", .delay_ms = 20000);
  assert_int_equal(contract_state(k, &id), MSG_STATE_DELAYED);
  id = PUT(.topic = "t", .exclusive = true, .delay_ms = 20000);
  assert_int_equal(contract_state(k, &id), MSG_STATE_DELAYED);
  id = PUT(.topic = "t", .exclusive = true, .group = "g");
  assert_int_equal(contract_state(k, &id), MSG_STATE_READY);
  id = PUT(.topic = "t", .exclusive = true, .group = "g");
  assert_int_equal(contract_state(k, &id), MSG_STATE_BLOCKED);
  id = PUT(.topic = "t", .exclusive = true, .group = "h", .delay_ms = 20000);
  assert_int_equal(contract_state(k, &id), MSG_STATE_DELAYED);
  id = PUT(.topic = "u", .exclusive = true, .group = "g");
  assert_int_equal(contract_state(k, &id), MSG_STATE_READY);
  id = PUT(.topic = "t", .exclusive = true, .ttl_ms = 10);
  contract_pass(k, 11);
  assert_int_equal(contract_state(k, &id), MSG_STATE_EXPIRED);
}

static void put_numbers_in_order(void **state) {
  contract *k = *state;
  msg_message m[50], got;
  msg_put puts[50];
  int64_t last = 0;
  for (size_t i = 0; i < 50; i++)
    contract_message(&(contract_spec){.topic = "t", .exclusive = i % 2}, &m[i]);
  OK(put_many(k, m, 50, puts));
  for (size_t i = 0; i < 50; i++) {
    assert_memory_equal(&puts[i].id, &m[i].id, sizeof m[i].id);
    get_message(k, &m[i].id, &got);
    assert_true(got.seq > last);
    last = got.seq;
    msg_message_clear(&got);
    msg_message_clear(&m[i]);
  }
}

static void put_is_all_or_nothing(void **state) {
  contract *k = *state;
  char hex[MSG_OID_HEX + 1];
  msg_oid taken = PUT(.topic = "t", .text = "first");
  msg_message m[3], got;
  msg_put puts[3];
  contract_message(&(contract_spec){.topic = "t", .exclusive = true, .group = "g", .key = "k"},
                   &m[0]);
  contract_message(&(contract_spec){.topic = "t", .to = "a"}, &m[1]);
  contract_message(&(contract_spec){.topic = "t", .text = "second", .id = taken}, &m[2]);
  assert_int_equal(put_many(k, m, 3, puts), MSG_EXISTS);
  msg_oid_hex(&taken, hex);
  assert_non_null(strstr(k->err.text, hex));
  assert_int_equal(contract_count(k), 1);
  get_message(k, &taken, &got);
  assert_string_equal(got.value.p, "first");
  msg_message_clear(&got);
  m[2].id = msg_oid_new();
  OK(put_many(k, m, 3, puts)); /* nothing stayed: neither key nor group */
  assert_false(puts[0].existed);
  assert_int_equal(contract_state(k, &m[0].id), MSG_STATE_READY);
  for (size_t i = 0; i < 3; i++)
    msg_message_clear(&m[i]);
}

static void put_twice_the_same_id_in_a_batch(void **state) {
  contract *k = *state;
  msg_message m[2];
  msg_put puts[2];
  contract_message(&(contract_spec){.topic = "t"}, &m[0]);
  contract_message(&(contract_spec){.topic = "t", .id = m[0].id}, &m[1]);
  assert_int_equal(put_many(k, m, 2, puts), MSG_EXISTS);
  assert_int_equal(contract_count(k), 0);
  msg_message_clear(&m[0]);
  msg_message_clear(&m[1]);
}

static void put_shows_elsewhere_at_once(void **state) {
  contract *k = *state;
  msg_session *other = contract_session(k, "msg");
  msg_oid id = PUT(.topic = "t");
  msg_message got;
  OK(other->ops->get(other, &id, &got, &k->err));
  msg_message_clear(&got);
}

static void put_keeps_queues_apart(void **state) {
  contract *k = *state;
  msg_session *other = contract_session(k, "other");
  msg_oid id = PUT(.topic = "t", .exclusive = true);
  msg_message got;
  msg_list list = MSG_LIST_INIT;
  assert_int_equal(other->ops->get(other, &id, &got, &k->err), MSG_NOTFOUND);
  contract_claim(k, other, "a", "t", 10, 1000, &list);
  assert_int_equal(list.n, 0);
  contract_put(k, other, &(contract_spec){.topic = "t", .exclusive = true, .text = "theirs"});
  contract_claim(k, other, "a", "t", 10, 1000, &list);
  assert_string_equal(contract_texts(&list), "theirs");
  msg_list_clear(&list);
}

static bool put_key(contract *k, const char *topic, const char *key, int64_t until_ms,
                    msg_oid *id) {
  msg_message m;
  contract_message(&(contract_spec){.topic = topic, .key = key, .exclusive = true}, &m);
  msg_actor actor = contract_actor(k, "sender");
  msg_put put = {.message = &m, .key_until_ms = until_ms};
  OK(k->s->ops->put(k->s, &actor, &put, 1, &k->err));
  msg_message_clear(&m);
  *id = put.id;
  return put.existed;
}

static void put_knows_a_key_again(void **state) {
  contract *k = *state;
  msg_oid first, id;
  int64_t now_ms = msg_clock_now_ms();
  assert_false(put_key(k, "t", "k", now_ms + 10000, &first));
  assert_true(put_key(k, "t", "k", now_ms + 10000, &id));
  assert_memory_equal(&first, &id, sizeof id);
  assert_false(put_key(k, "t", "K", now_ms + 10000, &id));
  assert_false(put_key(k, "u", "k", now_ms + 10000, &id));
  assert_int_equal(contract_count(k), 3);
}

static void put_remembers_a_key_after_the_message(void **state) {
  contract *k = *state;
  msg_oid first, id;
  msg_actor actor = contract_actor(k, "a");
  int64_t now_ms = msg_clock_now_ms();
  assert_false(put_key(k, "t", "k", now_ms + 10000, &first));
  OK(k->s->ops->remove(k->s, &actor, &first, &k->err));
  assert_true(put_key(k, "t", "k", now_ms + 10000, &id));
  assert_memory_equal(&first, &id, sizeof id);
  assert_int_equal(contract_count(k), 0);
}

static void put_forgets_a_key_after_its_window(void **state) {
  contract *k = *state;
  msg_oid first, id;
  int64_t now_ms = msg_clock_now_ms();
  assert_false(put_key(k, "t", "k", now_ms + 10000, &first));
  contract_pass(k, 9000);
  assert_true(put_key(k, "t", "k", now_ms + 90000, &id)); /* does not prolong it */
  contract_pass(k, 1001);
  assert_false(put_key(k, "t", "k", now_ms + 90000, &id));
  assert_memory_not_equal(&first, &id, sizeof id);
  contract_pass(k, 9000);
  assert_true(put_key(k, "t", "k", now_ms + 90000, &first));
  assert_memory_equal(&first, &id, sizeof id);
}

static void put_knows_a_key_within_a_batch(void **state) {
  contract *k = *state;
  msg_message m[3];
  msg_put puts[3];
  contract_message(&(contract_spec){.topic = "t", .key = "k"}, &m[0]);
  contract_message(&(contract_spec){.topic = "t", .key = "k"}, &m[1]);
  contract_message(&(contract_spec){.topic = "t"}, &m[2]);
  OK(put_many(k, m, 3, puts));
  assert_false(puts[0].existed);
  assert_true(puts[1].existed);
  assert_memory_equal(&puts[1].id, &puts[0].id, sizeof(msg_oid));
  assert_false(puts[2].existed);
  assert_int_equal(contract_count(k), 2);
  for (size_t i = 0; i < 3; i++)
    msg_message_clear(&m[i]);
}

static void get_of_nothing(void **state) {
  contract *k = *state;
  msg_oid id = msg_oid_new();
  msg_message m;
  assert_int_equal(k->s->ops->get(k->s, &id, &m, &k->err), MSG_NOTFOUND);
  PUT(.topic = "t");
  assert_int_equal(k->s->ops->get(k->s, &id, &m, &k->err), MSG_NOTFOUND);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(put_keeps_every_field),
    cmocka_unit_test(put_keeps_types),
    cmocka_unit_test(put_shows_states),
    cmocka_unit_test(put_numbers_in_order),
    cmocka_unit_test(put_is_all_or_nothing),
    cmocka_unit_test(put_twice_the_same_id_in_a_batch),
    cmocka_unit_test(put_shows_elsewhere_at_once),
    cmocka_unit_test(put_keeps_queues_apart),
    cmocka_unit_test(put_knows_a_key_again),
    cmocka_unit_test(put_remembers_a_key_after_the_message),
    cmocka_unit_test(put_forgets_a_key_after_its_window),
    cmocka_unit_test(put_knows_a_key_within_a_batch),
    cmocka_unit_test(get_of_nothing),
};
const contract_group contract_puts = {"put", tests, sizeof tests / sizeof *tests};
