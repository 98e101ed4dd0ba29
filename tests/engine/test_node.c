/* test_node.c - the life of a node: names, sharing, closing, settings, counters, fork. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/process.h"
#include "support/child.h"
#include "support/cmocka_compat.h"
#include "support/fake_store.h"
#include "support/rig.h"

static msg_node *open_node(rig *r, const char *sender_id, const char *queue, int *rc,
                           msg_err *err) {
  msg_settings s;
  msg_node *node = NULL;
  msg_settings_init(&s);
  msg_free(s.sender_id);
  s.sender_id = msg_strdup(sender_id);
  if (queue) {
    msg_free(s.queue);
    s.queue = msg_strdup(queue);
  }
  *rc = msg_node_open(r->store, &s, &node, err);
  msg_settings_clear(&s);
  return node;
}

static void automatic_ids_differ(void **state) {
  rig r;
  peer a, b;
  char prefix[128];
  rig_open_pair(&r, RIG_KIND(state), &a, NULL, &b, NULL);
  snprintf(prefix, sizeof prefix, "%s-%s-%d-", msg_process_host(), msg_process_program(),
           msg_process_pid());
  assert_int_equal(strncmp(msg_node_id(a.node), prefix, strlen(prefix)), 0);
  assert_string_not_equal(msg_node_id(a.node), msg_node_id(b.node));
  assert_null(strchr(msg_node_id(a.node), '_'));
  assert_true(msg_node_automatic(a.node));
  assert_int_equal(msg_node_name_check(msg_node_id(a.node), NULL), MSG_OK);
  rig_close(&r);
}

static void a_name_is_one_node(void **state) {
  rig r;
  int rc;
  rig_open(&r, RIG_KIND(state));
  msg_node *a = open_node(&r, "worker", NULL, &rc, NULL);
  msg_node *b = open_node(&r, "worker", NULL, &rc, NULL);
  msg_node *other_queue = open_node(&r, "worker", "q2", &rc, NULL);
  assert_non_null(a);
  assert_ptr_equal(a, b);
  assert_ptr_not_equal(a, other_queue);
  assert_string_equal(msg_node_id(a), "worker");
  assert_false(msg_node_automatic(a));
  assert_ptr_equal(msg_node_store(a), r.store);
  msg_node_close(a);
  msg_node_close(b);
  msg_node_close(other_queue);
  msg_node_close(NULL);
  rig_close(&r);
}

static void bad_names_are_refused(void **state) {
  static const char *const BAD[] = {"", "_x", "a__b", "self", "a\nb"};
  rig r;
  int rc;
  rig_open(&r, RIG_KIND(state));
  for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
    msg_err err = MSG_ERR_INIT;
    assert_null(open_node(&r, BAD[i], NULL, &rc, &err));
    assert_int_equal(rc, MSG_INVALID);
    assert_int_equal(err.rc, MSG_INVALID);
  }
  assert_null(open_node(&r, NULL, "no queue", &rc, NULL));
  assert_int_equal(rc, MSG_INVALID);
  rig_close(&r);
}

static void an_unregistered_store_is_refused(void **state) {
  (void)state;
  msg_err err = MSG_ERR_INIT;
  rig r = {.store = fake_store_new(0)};
  int rc;
  assert_null(open_node(&r, "n", NULL, &rc, &err));
  assert_int_equal(rc, MSG_MISUSE);
  r.store->ops->store_close(r.store);
}

static void a_shut_node_refuses_and_makes_room(void **state) {
  rig r;
  peer a, b;
  msg_err err = MSG_ERR_INIT;
  msg_list list = MSG_LIST_INIT;
  rig_open(&r, RIG_KIND(state));
  peer_open(&r, &a, "n");
  msg_node_shut(a.node);
  msg_node_shut(a.node);
  assert_int_equal(msg_node_await(a.node, &a.call, "t", 0, 1, &list, &err), MSG_MISUSE);
  assert_string_equal(err.text, "node 'n' is closed: open it again with msg_open");
  assert_int_equal(msg_node_claim(a.node, &a.call, "t", 1, 0, 0, &list, &err), MSG_MISUSE);
  assert_int_equal(msg_node_announce(a.node, &a.call, &err), MSG_MISUSE);
  assert_false(msg_node_is_paused(a.node, "t"));
  peer_open(&r, &b, "n");
  assert_ptr_not_equal(a.node, b.node);
  assert_int_equal(peer_await(&b, "t", 0, 1, &list), MSG_TIMEOUT);
  rig_close(&r);
}

static void settings_change_at_run_time(void **state) {
  rig r;
  peer a;
  msg_settings s;
  msg_err err = MSG_ERR_INIT;
  msg_value v = msg_value_int(1234), text = msg_value_text("q");
  rig_open(&r, RIG_KIND(state));
  peer_open(&r, &a, NULL);
  assert_int_equal(msg_node_configure(a.node, "lease_ms", &v, false, &err), MSG_OK);
  assert_int_equal(msg_node_settings(a.node, &s, &err), MSG_OK);
  assert_int_equal(s.lease_ms, 1234);
  msg_settings_clear(&s);
  assert_int_equal(msg_node_configure(a.node, "lease_m", &v, false, &err), MSG_INVALID);
  assert_non_null(strstr(err.text, "lease_ms"));
  assert_int_equal(msg_node_configure(a.node, "queue", &text, false, &err), MSG_MISUSE);
  assert_int_equal(msg_node_settings(a.node, &s, &err), MSG_OK);
  assert_int_equal(s.lease_ms, 1234);
  msg_settings_clear(&s);
  rig_close(&r);
}

typedef struct configurer {
  msg_node *node;
  msg_thread *thread;
  int failures;
} configurer;

static void configure_often(void *arg) {
  configurer *c = arg;
  for (int i = 0; i < 200; i++) {
    msg_value v = msg_value_int(1000 + i);
    bool changed;
    c->failures += msg_node_configure(c->node, "lease_ms", &v, false, NULL) != MSG_OK;
    c->failures += msg_node_pause(c->node, "t", &changed, NULL) != MSG_OK;
    c->failures += msg_node_resume(c->node, "t", &changed, NULL) != MSG_OK;
  }
}

static void settings_change_from_many_threads(void **state) {
  rig r;
  peer a;
  configurer c[4];
  msg_list list = MSG_LIST_INIT;
  rig_open(&r, RIG_KIND(state));
  peer_open(&r, &a, "n");
  for (int i = 0; i < 4; i++) {
    c[i] = (configurer){.node = a.node};
    assert_int_equal(msg_thread_start(&c[i].thread, "configure", configure_often, &c[i], NULL),
                     MSG_OK);
  }
  for (int i = 0; i < 200; i++)
    assert_int_equal(peer_claim(&a, "t", 0, 1, &list), MSG_TIMEOUT);
  for (int i = 0; i < 4; i++) {
    msg_thread_join(c[i].thread);
    assert_int_equal(c[i].failures, 0);
  }
  rig_close(&r);
}

static void announcing_and_withdrawing(void **state) {
  rig r;
  peer a;
  rig_open(&r, RIG_KIND(state));
  peer_open(&r, &a, "n");
  assert_int_equal(msg_node_withdraw(a.node, &a.call, NULL), MSG_OK); /* never announced */
  assert_int_equal(msg_node_announce(a.node, &a.call, NULL), MSG_OK);
  assert_int_equal(fault_store_calls(r.store, FAULT_PRESENCE_PUT), 1);
  msg_node_shut(a.node);
  assert_int_equal(msg_node_withdraw(a.node, &a.call, NULL), MSG_OK);
  rig_close(&r);
}

static void counters_have_names(void **state) {
  (void)state;
  for (int s = 0; s < MSG_STAT_COUNT; s++) {
    const char *name = msg_stat_name((enum msg_stat)s);
    assert_non_null(name);
    for (int t = 0; t < s; t++)
      assert_string_not_equal(name, msg_stat_name((enum msg_stat)t));
  }
}

/* --- fork ---------------------------------------------------------------------------------- */

static int use_parents_node(void *arg) {
  peer *p = arg;
  msg_err err = MSG_ERR_INIT;
  msg_list list = MSG_LIST_INIT;
  msg_oid id = {{0}};
  msg_settings s;
  bool changed;
  int bad = 0;
  bad += msg_node_await(p->node, &p->call, "t", 0, 1, &list, &err) != MSG_FORKED;
  bad += strstr(err.text, "open the connection") == NULL;
  bad += msg_node_claim(p->node, &p->call, "t", 1, 0, 0, &list, &err) != MSG_FORKED;
  bad += msg_node_announce(p->node, &p->call, &err) != MSG_FORKED;
  bad += msg_node_withdraw(p->node, &p->call, &err) != MSG_FORKED;
  bad += msg_node_settings(p->node, &s, &err) != MSG_FORKED;
  bad += msg_node_pause(p->node, "t", &changed, &err) != MSG_FORKED;
  bad += msg_node_listen(p->node, &p->call, "t", NULL, &err) != MSG_FORKED;
  bad += msg_node_unlisten(p->node, &p->call, "t", &err) != MSG_FORKED;
  bad += msg_node_send(p->node, &p->call, NULL, 0, NULL, NULL, &err) != MSG_FORKED;
  bad += msg_node_reply(p->node, &p->call, &id, NULL, NULL, &id, &err) != MSG_FORKED;
  bad += msg_node_claimed_in_vain(p->node, "t");
  msg_node_undone(p->node, &id, 1);
  msg_node_forget(p->node);
  msg_node_shut(p->node);
  msg_node_detach(p->node);
  msg_node_close(p->node);
  msg_registry_unref(p->rig->store);
  return bad;
}

/* ThreadSanitizer allows no thread in a child of a process with threads. */
#if defined(__SANITIZE_THREAD__)
#define CHILD_WAITS_MS 0
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define CHILD_WAITS_MS 0
#endif
#endif
#ifndef CHILD_WAITS_MS
#define CHILD_WAITS_MS 100
#endif

/* The child may open what is its own, and wait there. */
static int open_in_child(void *arg) {
  peer *theirs = arg;
  int bad = msg_registry_find("child") != NULL;
  msg_store *store = NULL;
  msg_settings s;
  peer p = {0};
  msg_list list = MSG_LIST_INIT;
  bad += msg_registry_add("child", fake_store_new(MSG_CAP_WATCH), &store, NULL) != MSG_OK;
  msg_settings_init(&s);
  s.sender_id = msg_strdup(msg_node_id(theirs->node));
  bad += msg_node_open(store, &s, &p.node, NULL) != MSG_OK;
  bad += p.node == theirs->node;
  bad += store->ops->session_open(store, NULL, "msg", &s, &p.session, NULL) != MSG_OK;
  p.call.session = p.session;
  msg_node_attach(p.node);
  bad += peer_await(&p, "t", CHILD_WAITS_MS, 1, &list) != MSG_TIMEOUT;
  msg_node_detach(p.node);
  msg_node_close(p.node);
  msg_registry_unref(store);
  return bad;
}

static void a_forked_child_gets_an_error_and_may_open_anew(void **state) {
  rig r;
  peer a;
  msg_list list = MSG_LIST_INIT;
  rig_open(&r, RIG_KIND(state));
  peer_open(&r, &a, "n");
  assert_int_equal(peer_await(&a, "t", 60, 1, &list), MSG_TIMEOUT); /* its cursor thread runs now */
  assert_int_equal(child_run(use_parents_node, &a), 0);
  assert_int_equal(child_run(open_in_child, &a), 0);
  assert_int_equal(peer_await(&a, "t", 60, 1, &list), MSG_TIMEOUT);
  rig_close(&r);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      RIG_TEST(automatic_ids_differ, fake),
      RIG_TEST(a_name_is_one_node, fake),
      RIG_TEST(bad_names_are_refused, fake),
      cmocka_unit_test(an_unregistered_store_is_refused),
      RIG_TEST(a_shut_node_refuses_and_makes_room, fake),
      RIG_TEST(a_shut_node_refuses_and_makes_room, file),
      RIG_TEST(a_shut_node_refuses_and_makes_room, memory),
      RIG_TEST(settings_change_at_run_time, fake),
      RIG_TEST(settings_change_from_many_threads, fake),
      RIG_TEST(announcing_and_withdrawing, fake),
      RIG_TEST(announcing_and_withdrawing, file),
      cmocka_unit_test(counters_have_names),
      RIG_TEST(a_forked_child_gets_an_error_and_may_open_anew, fake),
      RIG_TEST(a_forked_child_gets_an_error_and_may_open_anew, file),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
