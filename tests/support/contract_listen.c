/* contract_listen.c - the contract: listen, unlisten, listeners, unseen and seen of broadcasts. */
#include <stdlib.h>
#include <string.h>

#include "support/contract.h"

static int listen_rc(contract *k, const char *node, const char *pattern, bool catch_up) {
  msg_actor actor = contract_actor(k, node);
  return k->s->ops->listen(k->s, &actor, pattern, catch_up, &k->err);
}

static int unlisten_rc(contract *k, const char *node, const char *pattern) {
  msg_actor actor = contract_actor(k, node);
  return k->s->ops->unlisten(k->s, &actor, pattern, &k->err);
}

static void listen_twice(void **state) {
  contract *k = *state;
  OK(listen_rc(k, "a", "t", false));
  PUT(.topic = "t", .text = "1");
  assert_int_equal(listen_rc(k, "a", "t", true), MSG_EXISTS); /* start unchanged */
  assert_string_equal(contract_await(k, "a", "t", 9), "1");
  OK(listen_rc(k, "b", "t", false));
  assert_string_equal(contract_await(k, "b", "t", 9), "");
}

static void unlisten_ends_it(void **state) {
  contract *k = *state;
  assert_int_equal(unlisten_rc(k, "a", "t"), MSG_NOTFOUND);
  OK(listen_rc(k, "a", "t", false));
  OK(listen_rc(k, "a", "t*", false));
  PUT(.topic = "t", .text = "1");
  OK(unlisten_rc(k, "a", "t"));
  assert_int_equal(unlisten_rc(k, "a", "t"), MSG_NOTFOUND);
  assert_string_equal(contract_await(k, "a", "t", 9), "");
  assert_string_equal(contract_await(k, "a", NULL, 9), "1");
  OK(unlisten_rc(k, "a", "t*"));
  PUT(.topic = "t", .text = "2");
  OK(listen_rc(k, "a", "t", false));
  PUT(.topic = "t", .text = "3");
  assert_string_equal(contract_await(k, "a", "t", 9), "3");
}

static void unlisten_of_one_keeps_what_the_other_has_seen(void **state) {
  contract *k = *state;
  OK(listen_rc(k, "a", "t", false));
  OK(listen_rc(k, "a", "/^t/", false));
  PUT(.topic = "t", .text = "1");
  assert_string_equal(contract_await(k, "a", "t", 9), "1");
  OK(unlisten_rc(k, "a", "t"));
  assert_string_equal(contract_await(k, "a", NULL, 9), "");
}

struct names {
  char text[512];
  int stop_after;
};

static int note_listener(void *arg, const msg_listener *row) {
  struct names *n = arg;
  size_t at = strlen(n->text);
  snprintf(n->text + at, sizeof n->text - at, "%s:%s ", row->node, row->pattern);
  return n->stop_after && --n->stop_after == 0 ? 777 : MSG_OK;
}

static void listeners_of_the_queue(void **state) {
  contract *k = *state;
  struct names n = {.text = ""};
  OK(k->s->ops->listeners(k->s, note_listener, &n, &k->err));
  assert_string_equal(n.text, "");
  OK(listen_rc(k, "b", "t", false));
  OK(listen_rc(k, "a", "u*", false));
  OK(listen_rc(k, "a", "/v/", true));
  OK(k->s->ops->listeners(k->s, note_listener, &n, &k->err));
  assert_non_null(strstr(n.text, "b:t "));
  assert_non_null(strstr(n.text, "a:u* "));
  assert_non_null(strstr(n.text, "a:/v/ "));
  assert_int_equal(strlen(n.text), strlen("b:t a:u* a:/v/ "));
  struct names two = {.stop_after = 2};
  assert_int_equal(k->s->ops->listeners(k->s, note_listener, &two, &k->err), 777);
  msg_session *other = contract_session(k, "other");
  struct names none = {.text = ""};
  OK(other->ops->listeners(other, note_listener, &none, &k->err));
  assert_string_equal(none.text, "");
}

/* One by one in delivery order, whenever what comes first was sent or became due. */
static void broadcasts_sent_out_of_order(void **state) {
  contract *k = *state;
  contract_listen(k, "one", "t", false);
  contract_listen(k, "all", "t", false);
  PUT(.topic = "t", .text = "due", .delay_ms = 10000);
  PUT(.topic = "t", .text = "4");
  contract_pass(k, 10100); /* nobody has looked when the next is sent */
  PUT(.topic = "t", .text = "6");
  PUT(.topic = "t", .text = "7");
  PUT(.topic = "t", .text = "2", .delay_ms = -200000);
  PUT(.topic = "t", .text = "8");
  PUT(.topic = "t", .text = "1", .delay_ms = -300000);
  PUT(.topic = "t", .text = "3", .delay_ms = -100000);
  PUT(.topic = "t", .text = "urgent", .priority = 1, .delay_ms = -1);
  static const char *const order[] = {"urgent", "1", "2", "3", "4", "due", "6", "7", "8", ""};
  for (size_t i = 0; i < sizeof order / sizeof *order; i++)
    assert_string_equal(contract_await(k, "one", "t", 1), order[i]);
  assert_string_equal(contract_await(k, "all", "t", 99), "urgent 1 2 3 4 due 6 7 8");
}

/* However many are behind their time. */
static void many_broadcasts_sent_backwards(void **state) {
  contract *k = *state;
  contract_listen(k, "n", "t", false);
  for (int i = 0; i < 40; i++) {
    char text[16];
    snprintf(text, sizeof text, "%d", i);
    PUT(.topic = "t", .text = text, .delay_ms = -100000 * (i + 1));
  }
  for (int i = 39; i >= 0; i--)
    assert_int_equal(atoi(contract_await(k, "n", "t", 1)), i);
}

static void every_node_once(void **state) {
  contract *k = *state;
  OK(listen_rc(k, "a", "t", false));
  OK(listen_rc(k, "b", "t", false));
  PUT(.topic = "t", .text = "1");
  PUT(.topic = "t", .text = "2");
  PUT(.topic = "u", .text = "3");
  assert_string_equal(contract_await(k, "a", "t", 9), "1 2");
  assert_string_equal(contract_await(k, "a", "t", 9), "");
  assert_string_equal(contract_await(k, "b", "t", 1), "1");
  assert_string_equal(contract_await(k, "b", "t", 1), "2");
  assert_string_equal(contract_await(k, "b", "t", 1), "");
}

static void never_ones_own(void **state) {
  contract *k = *state;
  OK(listen_rc(k, "a", "t", false));
  PUT(.topic = "t", .text = "1", .sender = "a");
  PUT(.topic = "t", .text = "2", .sender = "b");
  PUT(.topic = "t", .text = "3", .sender = "a");
  assert_string_equal(contract_await(k, "a", "t", 9), "2");
}

static void never_exclusive_ones(void **state) {
  contract *k = *state;
  OK(listen_rc(k, "a", "t", false));
  PUT(.topic = "t", .text = "1", .exclusive = true);
  assert_string_equal(contract_await(k, "a", "t", 9), "");
}

static void unseen_marks_nothing(void **state) {
  contract *k = *state;
  msg_list list = MSG_LIST_INIT;
  OK(listen_rc(k, "a", "t", false));
  PUT(.topic = "t", .text = "1");
  contract_unseen(k, "a", "t", 9, &list);
  contract_unseen(k, "a", "t", 9, &list); /* appends */
  assert_string_equal(contract_texts(&list), "1 1");
  msg_list_clear(&list);
  assert_string_equal(contract_await(k, "a", "t", 9), "1");
}

static void without_listening_nothing(void **state) {
  contract *k = *state;
  PUT(.topic = "t", .text = "1");
  assert_string_equal(contract_await(k, "a", "t", 9), "");
  assert_string_equal(contract_await(k, "a", NULL, 9), "");
}

static void late_listeners_start_now(void **state) {
  contract *k = *state;
  PUT(.topic = "t", .text = "1");
  OK(listen_rc(k, "late", "t", false));
  OK(listen_rc(k, "early", "t", true));
  PUT(.topic = "t", .text = "2");
  assert_string_equal(contract_await(k, "late", "t", 9), "2");
  assert_string_equal(contract_await(k, "early", "t", 9), "1 2");
}

static void catch_up_only_on_what_lives(void **state) {
  contract *k = *state;
  PUT(.topic = "t", .text = "1", .ttl_ms = 10000);
  PUT(.topic = "t", .text = "2", .ttl_ms = 100000);
  contract_pass(k, 10001);
  OK(listen_rc(k, "a", "t", true));
  assert_string_equal(contract_await(k, "a", "t", 9), "2");
}

static void by_priority_then_order(void **state) {
  contract *k = *state;
  OK(listen_rc(k, "a", "*", false));
  const int priorities[] = {5, 3, 5, -1, 3, 1000};
  for (size_t i = 0; i < 6; i++) {
    char text[2] = {(char)('1' + i), 0};
    PUT(.topic = i % 2 ? "t" : "u", .text = text, .priority = priorities[i]);
    contract_pass(k, 1);
  }
  assert_string_equal(contract_await(k, "a", "*", 2), "4 2");
  assert_string_equal(contract_await(k, "a", NULL, 1), "5");
  PUT(.topic = "u", .text = "7", .priority = -5);
  assert_string_equal(contract_await(k, "a", "*", 1), "7");
  assert_string_equal(contract_await(k, "a", "*", 9), "1 3 6");
}

static void not_before_their_time(void **state) {
  contract *k = *state;
  OK(listen_rc(k, "a", "t", false));
  PUT(.topic = "t", .text = "late", .delay_ms = 20000);
  PUT(.topic = "t", .text = "soon", .delay_ms = 10000);
  PUT(.topic = "t", .text = "now");
  assert_string_equal(contract_await(k, "a", "t", 9), "now");
  OK(listen_rc(k, "b", "t", false));
  PUT(.topic = "t", .text = "then");
  assert_string_equal(contract_await(k, "a", "t", 9), "then");
  contract_pass(k, 20001);
  assert_string_equal(contract_await(k, "a", "t", 9), "soon late");
  assert_string_equal(contract_await(k, "b", "t", 1), "then");
  assert_string_equal(contract_await(k, "b", "t", 9),
                      "soon late"); /* they came after it listened */
}

static void not_after_their_life(void **state) {
  contract *k = *state;
  OK(listen_rc(k, "a", "t", false));
  PUT(.topic = "t", .text = "1", .ttl_ms = 10000);
  PUT(.topic = "t", .text = "2", .ttl_ms = 100000);
  PUT(.topic = "t", .text = "3", .delay_ms = 10000, .ttl_ms = 10000);
  contract_pass(k, 10000);
  assert_string_equal(contract_await(k, "a", "t", 1), "2");
  contract_pass(k, 10000);
  assert_string_equal(contract_await(k, "a", "t", 9), "");
}

static void seen_loses_to_the_end_of_life(void **state) {
  contract *k = *state;
  msg_list list = MSG_LIST_INIT;
  msg_actor actor = contract_actor(k, "a");
  bool won[2] = {true, true};
  OK(listen_rc(k, "a", "t", false));
  PUT(.topic = "t", .ttl_ms = 10000);
  PUT(.topic = "t", .to = "a", .ttl_ms = 10000);
  contract_unseen(k, "a", NULL, 9, &list);
  assert_int_equal(list.n, 2);
  contract_pass(k, 10000);
  OK(k->s->ops->seen(k->s, &actor, &list, won, &k->err));
  assert_false(won[0]);
  assert_false(won[1]);
  msg_list_clear(&list);
}

static void seen_is_won_once(void **state) {
  contract *k = *state;
  msg_list list = MSG_LIST_INIT;
  msg_actor actor = contract_actor(k, "a");
  bool won[3] = {false, false, false};
  OK(listen_rc(k, "a", "t", false));
  PUT(.topic = "t", .text = "1");
  PUT(.topic = "t", .text = "2", .to = "a");
  msg_oid gone = PUT(.topic = "t", .text = "3");
  contract_unseen(k, "a", NULL, 9, &list);
  assert_int_equal(list.n, 3);
  OK(k->s->ops->remove(k->s, &actor, &gone, &k->err));
  OK(k->s->ops->seen(k->s, &actor, &list, won, &k->err));
  for (size_t i = 0; i < 3; i++)
    assert_int_equal(won[i], msg_oid_cmp(&list.at[i].id, &gone) != 0);
  OK(k->s->ops->seen(k->s, &actor, &list, won, &k->err));
  assert_false(won[0] || won[1] || won[2]);
  msg_list_clear(&list);
}

static void still_unseen_is_what_seen_would_win(void **state) {
  contract *k = *state;
  msg_list list = MSG_LIST_INIT, ids = MSG_LIST_INIT;
  msg_actor actor = contract_actor(k, "a");
  bool won[3] = {false, false, false}, still[3] = {true, false, true};
  if (!k->s->ops->still_unseen)
    return;
  OK(listen_rc(k, "a", "t", false));
  PUT(.topic = "t", .text = "1");
  PUT(.topic = "t", .text = "2", .to = "a");
  msg_oid gone = PUT(.topic = "t", .text = "3");
  contract_unseen(k, "a", NULL, 9, &list);
  assert_int_equal(list.n, 3);
  for (size_t i = 0; i < 3; i++) {
    msg_message *m = msg_list_add(&ids);
    assert_non_null(m);
    m->id = list.at[i].id;
  }
  list.n = 1;
  OK(k->s->ops->seen(k->s, &actor, &list, won, &k->err));
  assert_true(won[0]);
  OK(k->s->ops->remove(k->s, &actor, &gone, &k->err));
  for (int i = 0; i < 2; i++) { /* it marks nothing */
    OK(k->s->ops->still_unseen(k->s, &actor, &ids, still, &k->err));
    assert_false(still[0] || still[2]);
    assert_true(still[1]);
  }
  list.n = 3;
  OK(k->s->ops->seen(k->s, &actor, &list, won, &k->err));
  assert_true(won[1]);
  msg_list_clear(&ids);
  msg_list_clear(&list);
}

/* Another thread of the node marks so much meanwhile that the marks themselves are gone. */
static void seen_is_won_once_however_late(void **state) {
  contract *k = *state;
  msg_list old = MSG_LIST_INIT;
  msg_actor actor = contract_actor(k, "a");
  OK(listen_rc(k, "a", "t", false));
  OK(listen_rc(k, "a", "*", true));
  for (int i = 0; i < 5; i++)
    PUT(.topic = "t");
  contract_unseen(k, "a", NULL, 5, &old);
  for (int i = 0; i < 300; i++) {
    PUT(.topic = i % 3 ? "t" : "u");
    contract_await(k, "a", NULL, 2);
  }
  bool won[5] = {true, true, true, true, true};
  OK(k->s->ops->seen(k->s, &actor, &old, won, &k->err));
  for (int i = 0; i < 5; i++)
    assert_false(won[i]);
  msg_list_clear(&old);
}

static void one_message_once_for_many_patterns(void **state) {
  contract *k = *state;
  OK(listen_rc(k, "a", "orders.new", false));
  OK(listen_rc(k, "a", "orders.*", false));
  OK(listen_rc(k, "a", "/^ord/", false));
  PUT(.topic = "orders.new", .text = "1");
  PUT(.topic = "orders.old", .text = "2");
  PUT(.topic = "other", .text = "3");
  assert_string_equal(contract_await(k, "a", "orders.new", 9), "1");
  assert_string_equal(contract_await(k, "a", "orders.*", 9), "2");
  assert_string_equal(contract_await(k, "a", "/^ord/", 9), "");
  PUT(.topic = "orders.new", .text = "4");
  assert_string_equal(contract_await(k, "a", NULL, 9), "4");
}

static void a_later_pattern_starts_later(void **state) {
  contract *k = *state;
  OK(listen_rc(k, "a", "t", false));
  PUT(.topic = "t", .text = "1");
  OK(listen_rc(k, "a", "t*", false));
  PUT(.topic = "t", .text = "2");
  assert_string_equal(contract_await(k, "a", "t*", 9), "2");
  assert_string_equal(contract_await(k, "a", "t", 9), "1");
}

static void a_later_pattern_catches_up(void **state) {
  contract *k = *state;
  PUT(.topic = "t", .text = "old");
  OK(listen_rc(k, "a", "t", false));
  for (int i = 0; i < 70; i++) {
    PUT(.topic = "t");
    contract_await(k, "a", "t", 1);
  }
  OK(listen_rc(k, "a", "t*", true));
  const char *texts = contract_await(k, "a", NULL, 100);
  assert_memory_equal(texts, "old", 3); /* what the earlier pattern did not cover comes first */
  assert_string_equal(contract_await(k, "a", NULL, 100), "");
}

static void paused_topics_wait(void **state) {
  contract *k = *state;
  msg_list list = MSG_LIST_INIT;
  msg_pattern *p[2] = {contract_pattern("t"), contract_pattern("u*")};
  msg_actor actor = contract_actor(k, "a");
  OK(listen_rc(k, "a", "*", false));
  PUT(.topic = "t", .text = "1");
  PUT(.topic = "up", .text = "2");
  PUT(.topic = "v", .text = "3");
  PUT(.topic = "up", .text = "4", .to = "a");
  msg_unseen u = {.max = 9, .paused = (const msg_pattern *const *)p, .paused_count = 2};
  OK(k->s->ops->unseen(k->s, &actor, &u, &list, &k->err));
  assert_string_equal(contract_texts(&list), "3");
  msg_list_clear(&list);
  msg_pattern_free(p[0]);
  msg_pattern_free(p[1]);
  assert_string_equal(contract_await(k, "a", "*", 9), "1 2 3 4");
}

static void many_are_each_seen_once(void **state) {
  contract *k = *state;
  char text[16];
  int64_t sum = 0;
  OK(listen_rc(k, "a", "t?", false));
  for (int i = 1; i <= 400; i++) {
    snprintf(text, sizeof text, "%d", i);
    PUT(.topic = i % 3 ? "t1" : "t2", .text = text, .priority = i % 5 + 1);
  }
  for (;;) {
    const char *texts = contract_await(k, "a", "t?", 7);
    if (!*texts)
      break;
    for (const char *at = texts; at; at = strchr(at, ' '), at = at ? at + 1 : at)
      sum += atoi(at);
  }
  assert_int_equal(sum, 400 * 401 / 2);
}

static void deleted_after_processing(void **state) {
  contract *k = *state;
  OK(listen_rc(k, "a", "t", false));
  OK(listen_rc(k, "b", "t", false));
  msg_oid now = PUT(.topic = "t", .text = "1", .delete_after = true);
  msg_oid later = PUT(.topic = "t", .text = "2", .delete_after = true, .delete_after_ms = 20000);
  msg_oid direct = PUT(.topic = "t", .text = "3", .to = "a", .to_also = "b", .delete_after = true);
  assert_string_equal(contract_await(k, "a", "t", 9), "1 2 3");
  assert_int_equal(contract_state(k, &now), -1);
  assert_int_equal(contract_state(k, &later), MSG_STATE_READY);
  assert_int_equal(contract_state(k, &direct), MSG_STATE_READY);
  assert_string_equal(contract_await(k, "b", "t", 9), "2 3");
  assert_int_equal(contract_state(k, &direct), -1);
  contract_pass(k, 20001);
  assert_true(contract_state(k, &later) == MSG_STATE_EXPIRED || contract_state(k, &later) == -1);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(listen_twice),
    cmocka_unit_test(unlisten_ends_it),
    cmocka_unit_test(unlisten_of_one_keeps_what_the_other_has_seen),
    cmocka_unit_test(listeners_of_the_queue),
    cmocka_unit_test(broadcasts_sent_out_of_order),
    cmocka_unit_test(many_broadcasts_sent_backwards),
    cmocka_unit_test(every_node_once),
    cmocka_unit_test(never_ones_own),
    cmocka_unit_test(never_exclusive_ones),
    cmocka_unit_test(unseen_marks_nothing),
    cmocka_unit_test(without_listening_nothing),
    cmocka_unit_test(late_listeners_start_now),
    cmocka_unit_test(catch_up_only_on_what_lives),
    cmocka_unit_test(by_priority_then_order),
    cmocka_unit_test(not_before_their_time),
    cmocka_unit_test(not_after_their_life),
    cmocka_unit_test(seen_loses_to_the_end_of_life),
    cmocka_unit_test(seen_is_won_once),
    cmocka_unit_test(still_unseen_is_what_seen_would_win),
    cmocka_unit_test(seen_is_won_once_however_late),
    cmocka_unit_test(one_message_once_for_many_patterns),
    cmocka_unit_test(a_later_pattern_starts_later),
    cmocka_unit_test(a_later_pattern_catches_up),
    cmocka_unit_test(paused_topics_wait),
    cmocka_unit_test(many_are_each_seen_once),
    cmocka_unit_test(deleted_after_processing),
};
const contract_group contract_listens = {"listen", tests, sizeof tests / sizeof *tests};
