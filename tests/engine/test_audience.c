/* test_audience.c - sends that are checked before they are put: who is told what, what is asked,
 * what is remembered. */
#include "engine/audience.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "support/cmocka_compat.h"
#include "support/rig.h"

typedef struct scene {
  rig r;
  peer n, other;
  struct msg_store_ops ops; /* of n's session: one that asks */
} scene;

static scene the;

static int told;
static char last_told[256];

static void note_warning(const char *text) {
  told++;
  strncpy(last_told, text, sizeof last_told - 1);
}

/* What a store that asks says: so many are silent still, one less each time. */
static int asked, silent_at_first;

static int ask(msg_session *s, const msg_actor *a, const msg_oid *id, bool first, size_t *silent,
               msg_err *err) {
  (void)s, (void)a, (void)err;
  assert_false(msg_oid_is_zero(id));
  assert_int_equal(first, asked == 0);
  *silent = silent_at_first > asked ? (size_t)(silent_at_first - asked) : 0;
  asked++;
  return MSG_OK;
}

static void open_scene_within(int64_t timeout_ms, const char *topics, const char *recipients) {
  msg_settings s;
  told = asked = silent_at_first = 0;
  rig_open(&the.r, RIG_FILE);
  msg_settings_init(&s);
  s.sender_id = msg_strdup("n");
  s.registry_enabled = true;
  s.registry_check_topics = msg_strdup(topics);
  s.registry_check_recipients = msg_strdup(recipients);
  s.write_timeout_ms = timeout_ms;
  peer_open_with(&the.r, &the.n, &s);
  msg_settings_clear(&s);
  peer_open(&the.r, &the.other, "other");
  the.n.call.warn = note_warning;
  assert_int_equal(msg_node_announce(the.n.node, &the.n.call, NULL), MSG_OK);
  assert_int_equal(msg_node_announce(the.other.node, &the.other.call, NULL), MSG_OK);
}

static void open_scene(const char *topics, const char *recipients) {
  open_scene_within(60000, topics, recipients);
}

/* The store asks, and silent ones are to answer. */
static void let_it_ask(int silent) {
  the.ops = *the.n.session->ops;
  the.ops.ask_listeners = ask;
  the.n.session->ops = &the.ops;
  silent_at_first = silent;
  asked = 0;
}

static void listen_to(const char *topic) {
  assert_int_equal(msg_node_listen(the.other.node, &the.other.call, topic, NULL, NULL), MSG_OK);
}

static void unlisten(const char *topic) {
  assert_int_equal(msg_node_unlisten(the.other.node, &the.other.call, topic, NULL), MSG_OK);
}

static int send_to(const char *topic, const char *recipient, msg_err *err) {
  msg_message m;
  msg_message_init(&m);
  m.topic = msg_strdup(topic);
  if (recipient)
    assert_int_equal(msg_message_add_recipient(&m, recipient), MSG_OK);
  assert_int_equal(msg_node_fill(the.n.node, &m, NULL, NULL), MSG_OK);
  int rc = msg_node_send(the.n.node, &the.n.call, &m, 1, NULL, NULL, err);
  msg_message_clear(&m);
  return rc;
}

static void throws(void **state) {
  (void)state;
  msg_err err = MSG_ERR_INIT;
  open_scene("throw", "throw");
  assert_int_equal(send_to("t", NULL, &err), MSG_MISUSE);
  assert_non_null(strstr(err.text, "'t'"));
  assert_int_equal(send_to("t", "nobody", &err), MSG_MISUSE);
  assert_non_null(strstr(err.text, "'nobody'"));
  assert_int_equal(send_to("t", "other", NULL), MSG_OK);
  listen_to("t*");
  assert_int_equal(send_to("t", NULL, NULL), MSG_OK);
  assert_int_equal(send_to(MSG_TOPIC_STATUS, NULL, NULL), MSG_OK);
  assert_int_equal(told, 0);
  assert_int_equal(msg_node_stat(the.n.node, MSG_STAT_SENT), 3);
  rig_close(&the.r);
}

static void warns_once_until_it_is_reached(void **state) {
  (void)state;
  char name[80];
  bool topic;
  open_scene("warn", "warn");
  for (int i = 0; i < 2; i++) {
    assert_int_equal(send_to("t", NULL, NULL), MSG_OK);
    assert_int_equal(send_to("t", "nobody", NULL), MSG_OK);
  }
  assert_int_equal(told, 2);
  assert_string_equal(last_told, "node 'n' sent to 'nobody', which is not alive");
  assert_true(msg_node_missed(the.n.node, 1, name, sizeof name, &topic));
  assert_string_equal(name, "nobody");
  assert_false(topic);
  assert_false(msg_node_missed(the.n.node, 2, name, sizeof name, &topic));
  listen_to("t");
  assert_int_equal(send_to("t", NULL, NULL), MSG_OK);
  assert_true(msg_node_missed(the.n.node, 0, name, sizeof name, &topic));
  assert_string_equal(name, "nobody");
  unlisten("t");
  assert_int_equal(send_to("t", NULL, NULL), MSG_OK);
  assert_int_equal(told, 3);
  assert_string_equal(last_told, "node 'n' sent to topic 't', to which nobody listens");
  rig_close(&the.r);
}

static void ignores_without_a_look(void **state) {
  (void)state;
  open_scene("ignore", "ignore");
  let_it_ask(1);
  int64_t calls = msg_node_stat(the.n.node, MSG_STAT_STORE_CALLS);
  assert_int_equal(send_to("t", NULL, NULL), MSG_OK);
  assert_int_equal(send_to("t", "nobody", NULL), MSG_OK);
  assert_int_equal(msg_node_stat(the.n.node, MSG_STAT_STORE_CALLS) - calls, 2);
  assert_int_equal(asked, 0);
  rig_close(&the.r);
}

static void asks_until_all_have_answered(void **state) {
  (void)state;
  open_scene("throw", "throw");
  let_it_ask(3);
  assert_int_equal(send_to("t", NULL, NULL), MSG_MISUSE);
  assert_int_equal(asked, 4);
  let_it_ask(0);
  assert_int_equal(send_to("t", "nobody", NULL), MSG_MISUSE);
  assert_int_equal(asked, 1);
  rig_close(&the.r);
}

static void asks_no_longer_than_a_write_may_take(void **state) {
  (void)state;
  open_scene_within(200, "throw", "throw");
  let_it_ask(1000000);
  int64_t begin_ms = msg_clock_mono_ms();
  assert_int_equal(send_to("t", NULL, NULL), MSG_MISUSE);
  assert_true(msg_clock_mono_ms() - begin_ms >= 200);
  rig_close(&the.r);
}

static bool interrupted(void *arg) {
  (void)arg;
  return asked == 2;
}

static void asking_can_be_interrupted(void **state) {
  (void)state;
  open_scene("warn", "warn");
  let_it_ask(1000000);
  the.n.call.interrupted = interrupted;
  assert_int_equal(send_to("t", NULL, NULL), MSG_INTERRUPTED);
  assert_int_equal(told, 0);
  assert_int_equal(msg_node_stat(the.n.node, MSG_STAT_SENT), 0);
  rig_close(&the.r);
}

static void what_was_reached_by_asking_is_taken_for_granted(void **state) {
  (void)state;
  open_scene("throw", "throw");
  listen_to("t");
  assert_int_equal(send_to("t", NULL, NULL), MSG_OK);
  unlisten("t");
  assert_int_equal(send_to("t", NULL, NULL), MSG_MISUSE); /* this store knows by itself */
  listen_to("t");
  let_it_ask(0);
  assert_int_equal(send_to("t", NULL, NULL), MSG_OK);
  unlisten("t");
  assert_int_equal(send_to("t", NULL, NULL), MSG_OK);
  assert_int_equal(send_to("t", "other", NULL), MSG_OK);
  assert_int_equal(send_to("t", "t", NULL), MSG_MISUSE); /* a topic is no recipient */
  rig_close(&the.r);
}

static void the_oldest_are_forgotten(void **state) {
  (void)state;
  char name[80];
  bool topic;
  open_scene("warn", "ignore");
  for (int i = 0; i < MSG_MISSED_MAX + 3; i++) {
    snprintf(name, sizeof name, "t%d", i);
    assert_int_equal(send_to(name, NULL, NULL), MSG_OK);
  }
  int n = 0;
  for (size_t i = 0; msg_node_missed(the.n.node, i, name, sizeof name, &topic); i++, n++)
    assert_string_not_equal(name, "t2");
  assert_int_equal(n, MSG_MISSED_MAX);
  rig_close(&the.r);
}

int main(void) {
  static const struct CMUnitTest tests[] = {
      cmocka_unit_test(throws),
      cmocka_unit_test(warns_once_until_it_is_reached),
      cmocka_unit_test(ignores_without_a_look),
      cmocka_unit_test(asks_until_all_have_answered),
      cmocka_unit_test(asks_no_longer_than_a_write_may_take),
      cmocka_unit_test(asking_can_be_interrupted),
      cmocka_unit_test(what_was_reached_by_asking_is_taken_for_granted),
      cmocka_unit_test(the_oldest_are_forgotten),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
