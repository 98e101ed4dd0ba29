/* test_registry.c - stores by key: one each, counted, forgotten; what happens at exit. */
#include "engine/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "support/cmocka_compat.h"
#include "support/fake_store.h"
#include "support/rig.h"

static msg_store *new_store(void) {
  msg_store *s = fault_store_new(fake_store_new(MSG_CAP_WATCH));
  assert_non_null(s);
  return s;
}

static void a_key_is_one_store(void **state) {
  (void)state;
  msg_store *a = new_store(), *b = new_store(), *got = NULL;
  assert_null(msg_registry_find("k"));
  assert_int_equal(msg_registry_add("k", a, &got, NULL), MSG_OK);
  assert_ptr_equal(got, a);
  assert_int_equal(fault_store_alive(), 2);
  assert_int_equal(msg_registry_add("k", b, &got, NULL), MSG_OK);
  assert_ptr_equal(got, a);
  assert_int_equal(fault_store_alive(), 1); /* b was one too many */
  assert_ptr_equal(msg_registry_find("k"), a);
  msg_registry_ref(a);
  for (int i = 0; i < 3; i++)
    msg_registry_unref(a);
  assert_int_equal(fault_store_alive(), 1);
  msg_registry_unref(a);
  assert_int_equal(fault_store_alive(), 0);
  assert_null(msg_registry_find("k"));
}

static void a_forgotten_key_is_free_again(void **state) {
  (void)state;
  msg_store *a = new_store(), *b = new_store(), *got = NULL;
  assert_int_equal(msg_registry_add("k", a, &got, NULL), MSG_OK);
  msg_registry_forget(a);
  msg_registry_forget(a);
  assert_null(msg_registry_find("k"));
  assert_int_equal(msg_registry_add("k", b, &got, NULL), MSG_OK);
  assert_ptr_equal(got, b);
  assert_int_equal(fault_store_alive(), 2); /* who holds a keeps it */
  msg_registry_ref(a);
  msg_registry_unref(a);
  msg_registry_unref(a);
  assert_int_equal(fault_store_alive(), 1);
  msg_registry_unref(b);
  assert_int_equal(fault_store_alive(), 0);
}

static void add_and_drop(void *arg) {
  (void)arg;
  for (int i = 0; i < 200; i++) {
    msg_store *got = msg_registry_find("shared");
    if (!got && msg_registry_add("shared", new_store(), &got, NULL) != MSG_OK)
      return;
    msg_registry_unref(got);
  }
}

static void threads_agree_on_a_store(void **state) {
  (void)state;
  msg_thread *threads[4];
  for (int i = 0; i < 4; i++)
    assert_int_equal(msg_thread_start(&threads[i], "registry", add_and_drop, NULL, NULL), MSG_OK);
  for (int i = 0; i < 4; i++)
    msg_thread_join(threads[i]);
  assert_int_equal(fault_store_alive(), 0);
}

/* --- exit ---------------------------------------------------------------------------------- */

typedef struct leaving {
  int64_t open_delay_ms; /* the watch takes this long to open */
  int waiters;
} leaving;

static peer p[2];
static rig_wait w[2];

/* Runs after the engine's own handler, which has ended the waits. */
static void join_waits(void) {
  for (int i = 0; i < 2; i++) {
    if (!w[i].thread)
      continue;
    rig_wait_join(&w[i]);
    if (w[i].rc != MSG_SHUTDOWN)
      _exit(8);
  }
}

/* Leaves by exit() in the midst of waits, closing nothing. */
static void wait_and_leave(const leaving *l) {
  rig r;
  msg_list list = MSG_LIST_INIT;
  atexit(join_waits);
  rig_open(&r, RIG_FAKE);
  fault_store_delay(r.store, FAULT_WATCH_OPEN, l->open_delay_ms);
  for (int i = 0; i < l->waiters; i++) {
    peer_open(&r, &p[i], NULL);
    w[i] = (rig_wait){.p = &p[i], .topic = "t", .timeout_ms = 60000};
    rig_wait_start(&w[i]);
  }
  if (l->waiters == 0) {
    peer_open(&r, &p[0], NULL);
    peer_await(&p[0], "t", 60, 1, &list);
  }
  rig_until_waiters(&r, l->waiters);
  exit(7);
}

static int64_t leave(leaving l) {
  int64_t began = msg_clock_mono_ms();
  int status = 0;
  fflush(NULL);
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0)
    wait_and_leave(&l);
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 7);
  return msg_clock_mono_ms() - began;
}

static void exit_is_orderly_and_bounded(void **state) {
  (void)state;
  assert_true(leave((leaving){.waiters = 0}) < 1500);
  assert_true(leave((leaving){.waiters = 2}) < 1500);
  assert_in_range(leave((leaving){.waiters = 1, .open_delay_ms = 10000}), 1500, 5000);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(exit_is_orderly_and_bounded), /* first: forks while there is one thread */
      cmocka_unit_test(a_key_is_one_store),
      cmocka_unit_test(a_forgotten_key_is_free_again),
      cmocka_unit_test(threads_agree_on_a_store),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
