/* contract_count.c - the contract: topics, queues, deadline, describe. */
#include <string.h>

#include "support/contract.h"

struct table {
  char text[2048];
  int64_t oldest_ms;
};

static int note(void *arg, const msg_count *c) {
  struct table *t = arg;
  size_t at = strlen(t->text);
  snprintf(
      t->text + at, sizeof t->text - at,
      "%s: depth %d ready %d delayed %d claimed %d blocked %d dead %d broadcasts %d listeners %d\n",
      c->name, (int)c->depth, (int)c->ready, (int)c->delayed, (int)c->claimed, (int)c->blocked,
      (int)c->dead, (int)c->broadcasts, (int)c->listeners);
  if (c->oldest_ms && (!t->oldest_ms || c->oldest_ms < t->oldest_ms))
    t->oldest_ms = c->oldest_ms;
  return MSG_OK;
}

static void announce(contract *k, msg_session *s, const char *node, const char *process) {
  char *name = (char *)node;
  msg_participant p = {.node = name,
                       .host = "h",
                       .implementation = "test",
                       .layout = "local",
                       .process = (char *)process,
                       .pid = 1,
                       .automatic = false,
                       .started_at_ms = 1,
                       .last_seen_ms = 1};
  OK(s->ops->presence_put(s, &p, &k->err));
}

static void topics_are(contract *k, const char *want) {
  struct table t = {.text = ""};
  OK(k->s->ops->topics(k->s, note, &t, &k->err));
  assert_string_equal(t.text, want);
}

static void topics_of_an_empty_place(void **state) {
  contract *k = *state;
  topics_are(k, "");
}

static void topics_count(void **state) {
  contract *k = *state;
  PUT(.topic = "t", .text = "c", .exclusive = true, .priority = 1, .group = "g");
  assert_string_equal(contract_claimed(k, "a", "t", 1), "c");
  PUT(.topic = "t", .exclusive = true, .group = "g");
  PUT(.topic = "t", .exclusive = true);
  PUT(.topic = "t", .exclusive = true, .ttl_ms = 90000);
  PUT(.topic = "t", .exclusive = true, .to = "n");
  PUT(.topic = "t", .exclusive = true, .delay_ms = 20000);
  PUT(.topic = "t", .delay_ms = 20000);
  PUT(.topic = "t", .ttl_ms = 90000);
  PUT(.topic = "t", .to = "n", .to_also = "m");
  PUT(.topic = "t", .to = "p");
  contract_await(k, "p", NULL, 9); /* processed: counted nowhere */
  msg_oid dead = PUT(.topic = "u", .text = "d", .exclusive = true);
  assert_string_equal(contract_claimed(k, "a", "u", 1), "d");
  assert_true(contract_settle(k, "a", MSG_SETTLE_REJECT, &dead, NULL, 0));
  PUT(.topic = "v", .ttl_ms = 10);
  PUT(.topic = "v", .exclusive = true, .ttl_ms = 10);
  contract_pass(k, 11); /* expired: counted nowhere */
  topics_are(k,
             "t: depth 9 ready 5 delayed 2 claimed 1 blocked 1 dead 0 broadcasts 2 listeners 0\n"
             "u: depth 0 ready 0 delayed 0 claimed 0 blocked 0 dead 1 broadcasts 0 listeners 0\n");
}

/* Nobody has swept since their time came. */
static void topics_count_what_is_due_as_ready(void **state) {
  contract *k = *state;
  msg_oid ids[] = {PUT(.topic = "t", .delay_ms = 20000),
                   PUT(.topic = "t", .delay_ms = 20000, .to = "n"),
                   PUT(.topic = "t", .delay_ms = 20000, .to = "n", .to_also = "m"),
                   PUT(.topic = "t", .delay_ms = 20000, .exclusive = true)};
  contract_pass(k, 20001);
  topics_are(k,
             "t: depth 4 ready 4 delayed 0 claimed 0 blocked 0 dead 0 broadcasts 3 listeners 0\n");
  for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
    assert_int_equal(contract_state(k, &ids[i]), MSG_STATE_READY);
}

static void topics_know_the_oldest(void **state) {
  contract *k = *state;
  struct table t = {.text = ""};
  int64_t before_ms = msg_clock_now_ms();
  PUT(.topic = "t", .exclusive = true);
  contract_pass(k, 5000);
  PUT(.topic = "t", .exclusive = true);
  OK(k->s->ops->topics(k->s, note, &t, &k->err));
  assert_true(t.oldest_ms >= before_ms && t.oldest_ms < before_ms + 4000);
}

static void topics_know_who_listens(void **state) {
  contract *k = *state;
  PUT(.topic = "t");
  announce(k, k->s, "a", msg_process_self());
  announce(k, k->s, "b", msg_process_self());
  announce(k, k->s, "gone", "other:machine:1:1"); /* unknown, and not seen for long */
  contract_listen(k, "a", "t", false);
  contract_listen(k, "a", "*", false);
  contract_listen(k, "b", "u", false);
  contract_listen(k, "gone", "t", false);
  contract_listen(k, "never announced", "t", false);
  topics_are(k,
             "t: depth 1 ready 1 delayed 0 claimed 0 blocked 0 dead 0 broadcasts 1 listeners 1\n");
}

static void queues_count(void **state) {
  contract *k = *state;
  struct table t = {.text = ""};
  msg_session *other = contract_session(k, "other"), *third = contract_session(k, "third");
  OK(k->s->ops->queues(k->s, note, &t, &k->err));
  assert_string_equal(t.text, "");
  PUT(.topic = "t", .exclusive = true);
  PUT(.topic = "u", .exclusive = true);
  PUT(.topic = "u", .to = "a");
  contract_put(k, other, &(contract_spec){.topic = "t", .delay_ms = 20000});
  announce(k, k->s, "a", msg_process_self());
  announce(k, third, "b", msg_process_self());
  contract_listen(k, "a", "t", false);
  contract_listen(k, "a", "x", false);
  OK(other->ops->queues(other, note, &t, &k->err));
  assert_string_equal(
      t.text,
      "msg: depth 3 ready 3 delayed 0 claimed 0 blocked 0 dead 0 broadcasts 1 listeners 1\n"
      "other: depth 1 ready 0 delayed 1 claimed 0 blocked 0 dead 0 broadcasts 0 listeners 0\n"
      "third: depth 0 ready 0 delayed 0 claimed 0 blocked 0 dead 0 broadcasts 0 listeners 0\n");
}

static int64_t deadline(contract *k) {
  int64_t at_ms = 0;
  OK(k->s->ops->deadline(k->s, &at_ms, &k->err));
  return at_ms;
}

static void deadline_is_the_next_of_all(void **state) {
  contract *k = *state;
  msg_message m;
  msg_list list = MSG_LIST_INIT;
  assert_true(deadline(k) == MSG_NEVER);
  PUT(.topic = "t", .exclusive = true);
  assert_true(deadline(k) == MSG_NEVER);
  msg_oid id = PUT(.topic = "t", .ttl_ms = 50000);
  OK(k->s->ops->get(k->s, &id, &m, &k->err));
  assert_true(deadline(k) == m.delete_at_ms);
  msg_message_clear(&m);
  id = PUT(.topic = "t", .exclusive = true, .delay_ms = 40000);
  OK(k->s->ops->get(k->s, &id, &m, &k->err));
  assert_true(deadline(k) == m.deliver_at_ms);
  msg_message_clear(&m);
  contract_claim(k, k->s, "a", "t", 1, 30000, &list);
  assert_true(deadline(k) == list.at[0].until_ms);
  assert_true(contract_settle(k, "a", MSG_SETTLE_ACK, &list.at[0].id, NULL, 0));
  assert_true(deadline(k) > list.at[0].until_ms);
  msg_list_clear(&list);
}

static int note_fact(void *arg, const char *item, const char *value, const char *advice) {
  (void)advice;
  assert_non_null(item);
  assert_non_null(value);
  ++*(int *)arg;
  return MSG_OK;
}

static void describe_gives_facts(void **state) {
  contract *k = *state;
  int n = 0;
  OK(k->s->ops->describe(k->s, note_fact, &n, &k->err));
  assert_true(n > 0);
  n = 0;
  PUT(.topic = "t");
  OK(k->s->ops->describe(k->s, note_fact, &n, &k->err));
  assert_true(n > 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(topics_of_an_empty_place),          cmocka_unit_test(topics_count),
    cmocka_unit_test(topics_count_what_is_due_as_ready), cmocka_unit_test(topics_know_the_oldest),
    cmocka_unit_test(topics_know_who_listens),           cmocka_unit_test(queues_count),
    cmocka_unit_test(deadline_is_the_next_of_all),       cmocka_unit_test(describe_gives_facts),
};
const contract_group contract_counts = {"count", tests, sizeof tests / sizeof *tests};
