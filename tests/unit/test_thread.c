#include "base/thread.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "support/child.h"
#include "support/cmocka_compat.h"
#include "support/deny.h"
#include "support/fail_alloc.h"

#define THREADS 8
#define SKIPPED 77

/* Starts THREADS threads in f(arg) and joins them. */
static void run_threads(void (*f)(void *), void *arg) {
  msg_thread *threads[THREADS];
  for (int i = 0; i < THREADS; i++)
    assert_int_equal(msg_thread_start(&threads[i], "test", f, arg, NULL), MSG_OK);
  for (int i = 0; i < THREADS; i++)
    msg_thread_join(threads[i]);
}

struct counted {
  msg_mutex *mtx;
  int n;
};

static void count(void *arg) {
  struct counted *c = arg;
  for (int i = 0; i < 2000; i++) {
    msg_mutex_lock(c->mtx);
    c->n++;
    msg_mutex_unlock(c->mtx);
  }
}

static void mutex_excludes(void **state) {
  (void)state;
  struct counted c = {msg_mutex_new(), 0};
  run_threads(count, &c);
  assert_int_equal(c.n, THREADS * 2000);
  msg_mutex_free(c.mtx);
  msg_mutex_free(NULL);
}

static void count_globally(void *arg) {
  int *n = arg;
  for (int i = 0; i < 2000; i++) {
    msg_global_lock();
    ++*n;
    msg_global_unlock();
  }
}

static void global_lock_excludes(void **state) {
  (void)state;
  int n = 0;
  run_threads(count_globally, &n);
  assert_int_equal(n, THREADS * 2000);
}

struct gate {
  msg_mutex *mtx;
  msg_cond *cnd;
  bool open;
  int through;
};

static void pass(void *arg) {
  struct gate *g = arg;
  msg_mutex_lock(g->mtx);
  while (!g->open)
    msg_cond_wait_until(g->cnd, g->mtx, MSG_NEVER);
  g->through++;
  msg_mutex_unlock(g->mtx);
}

static void broadcast_wakes_all(void **state) {
  (void)state;
  struct gate g = {msg_mutex_new(), msg_cond_new(), false, 0};
  msg_thread *threads[THREADS];
  for (int i = 0; i < THREADS; i++)
    assert_int_equal(msg_thread_start(&threads[i], "gate", pass, &g, NULL), MSG_OK);
  msg_mutex_lock(g.mtx);
  g.open = true;
  msg_cond_broadcast(g.cnd);
  msg_mutex_unlock(g.mtx);
  for (int i = 0; i < THREADS; i++)
    msg_thread_join(threads[i]);
  assert_int_equal(g.through, THREADS);
  msg_cond_free(g.cnd);
  msg_cond_free(NULL);
  msg_mutex_free(g.mtx);
}

static void wait_ends_at_its_deadline(void **state) {
  (void)state;
  msg_mutex *mtx = msg_mutex_new();
  msg_cond *cnd = msg_cond_new();
  msg_mutex_lock(mtx);
  int64_t start = msg_clock_mono_ms();
  while (msg_cond_wait_until(cnd, mtx, start + 30))
    ;
  assert_true(msg_clock_mono_ms() >= start + 30);
  assert_true(msg_clock_mono_ms() < start + 5000);
  /* the wall clock has no say in it */
  msg_clock_shift(-3600000);
  start = msg_clock_mono_ms();
  while (msg_cond_wait_until(cnd, mtx, start + 10))
    ;
  msg_clock_shift(0);
  assert_true(msg_clock_mono_ms() < start + 5000);
  assert_false(msg_cond_wait_until(cnd, mtx, start));
  assert_false(msg_cond_wait_until(cnd, mtx, 0));
  assert_false(msg_cond_wait_until(cnd, mtx, -5));
  assert_false(msg_cond_wait_until(cnd, mtx, INT64_MIN));
  msg_mutex_unlock(mtx);
  msg_cond_free(cnd);
  msg_mutex_free(mtx);
}

struct seen {
  char name[20];
  sigset_t mask;
};

static void look(void *arg) {
  struct seen *s = arg;
  prctl(PR_GET_NAME, s->name);
  sigprocmask(SIG_BLOCK, NULL, &s->mask);
}

static void threads_have_names(void **state) {
  (void)state;
  struct seen s = {0};
  msg_thread *t;
  assert_int_equal(msg_thread_start(&t, "msg-cursor", look, &s, NULL), MSG_OK);
  msg_thread_join(t);
  assert_string_equal(s.name, "msg-cursor");
  assert_int_equal(msg_thread_start(&t, "a name that is too long", look, &s, NULL), MSG_OK);
  msg_thread_join(t);
  assert_string_equal(s.name, "a name that is ");
  msg_thread_join(NULL);
}

static void threads_take_no_signals(void **state) {
  (void)state;
  static const int BLOCKED[] = {SIGINT,  SIGTERM, SIGHUP,  SIGCHLD,
                                SIGALRM, SIGUSR1, SIGPIPE, SIGPROF};
  struct seen s;
  sigset_t before, after;
  msg_thread *t;
  sigprocmask(SIG_BLOCK, NULL, &before);
  assert_int_equal(msg_thread_start(&t, "x", look, &s, NULL), MSG_OK);
  msg_thread_join(t);
  sigprocmask(SIG_BLOCK, NULL, &after);
  for (size_t i = 0; i < sizeof BLOCKED / sizeof BLOCKED[0]; i++)
    assert_int_equal(sigismember(&s.mask, BLOCKED[i]), 1);
  assert_int_equal(sigismember(&s.mask, SIGSEGV), 0);
  for (int sig = 1; sig < 32; sig++) /* the caller's mask is its own */
    assert_int_equal(sigismember(&before, sig), sigismember(&after, sig));
}

static int once_flag, inner_flag, fork_flag;
static int once_runs, inner_runs, fork_runs; /* no atomics: msg_once orders them */

static void run_inner(void) {
  inner_runs++;
}

static void run_slowly(void) {
  usleep(20000);
  msg_once(&inner_flag, run_inner);
  once_runs++;
}

static void call_once(void *arg) {
  _Atomic int *wrong = arg;
  msg_once(&once_flag, run_slowly);
  if (once_runs != 1 || inner_runs != 1)
    ++*wrong;
}

static int once_runs_in_child(void *arg) {
  (void)arg;
  msg_once(&once_flag, run_slowly);
  return once_runs;
}

static void once_runs_once(void **state) {
  (void)state;
  _Atomic int wrong = 0;
  run_threads(call_once, &wrong);
  assert_int_equal(wrong, 0);
  assert_int_equal(once_runs, 1);
  assert_int_equal(child_run(once_runs_in_child, NULL), 1);
}

static void run_for_fork(void) {
  usleep(1000);
  fork_runs++;
}

static void call_per_fork(void *arg) {
  _Atomic int *wrong = arg;
  msg_once_per_fork(&fork_flag, run_for_fork);
  if (fork_runs != 1)
    ++*wrong;
}

static int per_fork_in_grandchild(void *arg) {
  (void)arg;
  msg_once_per_fork(&fork_flag, run_for_fork);
  return fork_runs;
}

static int per_fork_in_child(void *arg) {
  msg_once_per_fork(&fork_flag, run_for_fork);
  msg_once_per_fork(&fork_flag, run_for_fork);
  return fork_runs * 10 + child_run(per_fork_in_grandchild, arg);
}

static void once_per_fork_runs_again_in_a_child(void **state) {
  (void)state;
  _Atomic int wrong = 0;
  run_threads(call_per_fork, &wrong);
  assert_int_equal(wrong, 0);
  assert_int_equal(child_run(per_fork_in_child, NULL), 23);
  assert_int_equal(fork_runs, 1);
}

static int left_flag, left_runs;
static _Atomic bool left_started, left_released;

static void run_long(void) {
  left_started = true;
  while (!left_released)
    usleep(500);
  left_runs++;
}

static void call_long(void *arg) {
  (void)arg;
  msg_once(&left_flag, run_long);
}

static int take_over(void *arg) {
  (void)arg;
  left_released = true; /* in this process only */
  msg_once(&left_flag, run_long);
  return left_runs;
}

/* The thread that ran it did not come along: the child must not wait for it. */
static void child_takes_over_what_was_running(void **state) {
  (void)state;
  msg_thread *t;
  assert_int_equal(msg_thread_start(&t, "x", call_long, NULL, NULL), MSG_OK);
  while (!left_started)
    usleep(500);
  int in_child = child_run(take_over, NULL);
  left_released = true;
  msg_thread_join(t);
  assert_int_equal(in_child, 1);
  assert_int_equal(left_runs, 1);
}

static _Atomic bool stop_locking;

static void lock_and_unlock(void *arg) {
  int *n = arg;
  while (!stop_locking) {
    msg_global_lock();
    ++*n; /* odd inside */
    ++*n;
    msg_global_unlock();
  }
}

static int lock_in_child(void *arg) {
  const int *n = arg;
  msg_global_lock();
  int odd = *n & 1;
  msg_global_unlock();
  return odd;
}

static void fork_finds_the_global_lock_free(void **state) {
  (void)state;
  int n = 0;
  msg_thread *t;
  msg_fork_generation();
  assert_int_equal(msg_thread_start(&t, "x", lock_and_unlock, &n, NULL), MSG_OK);
  for (int i = 0; i < 50; i++)
    assert_int_equal(child_run(lock_in_child, &n), 0);
  stop_locking = true;
  msg_thread_join(t);
}

static int generation_in_child(void *arg) {
  const int *parent = arg;
  return msg_fork_generation() != *parent && msg_fork_generation() == msg_fork_generation();
}

static void generation_differs_in_a_child(void **state) {
  (void)state;
  int mine = msg_fork_generation();
  assert_int_equal(child_run(generation_in_child, &mine), 1);
  assert_int_equal(msg_fork_generation(), mine);
}

static void nothing(void *arg) {
  (void)arg;
}

/* No more threads allowed: a failure that may pass. */
static int start_without_threads(void *arg) {
  (void)arg;
  msg_thread *t = NULL;
  msg_err err = MSG_ERR_INIT;
  if (!deny_syscall(SYS_clone3, ENOSYS) || !deny_syscall(SYS_clone, EAGAIN))
    return SKIPPED;
  return msg_thread_start(&t, "cursor", nothing, NULL, &err) == MSG_BACKEND && !t && err.retry &&
         err.domain == MSG_DOMAIN_ERRNO && err.native == EAGAIN &&
         strncmp(err.text, "cannot start thread 'cursor' (errno ", 36) == 0 &&
         msg_thread_start(&t, "cursor", nothing, NULL, NULL) == MSG_BACKEND;
}

static void start_may_fail(void **state) {
  (void)state;
  int got = child_run(start_without_threads, NULL);
  if (got == SKIPPED)
    skip();
  assert_int_equal(got, 1);
}

static int make_all(void *arg) {
  (void)arg;
  msg_mutex *m = msg_mutex_new();
  msg_cond *c = msg_cond_new();
  msg_thread *t = NULL;
  int rc = m && c ? msg_thread_start(&t, "x", nothing, NULL, NULL) : MSG_NOMEM;
  msg_thread_join(t);
  msg_cond_free(c);
  msg_mutex_free(m);
  return rc;
}

static void allocation_failures(void **state) {
  (void)state;
  fail_alloc_install();
  assert_int_equal(fail_alloc_each(make_all, NULL), 3);
  fail_alloc_remove();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(mutex_excludes),
      cmocka_unit_test(global_lock_excludes),
      cmocka_unit_test(broadcast_wakes_all),
      cmocka_unit_test(wait_ends_at_its_deadline),
      cmocka_unit_test(threads_have_names),
      cmocka_unit_test(threads_take_no_signals),
      cmocka_unit_test(once_runs_once),
      cmocka_unit_test(once_per_fork_runs_again_in_a_child),
      cmocka_unit_test(child_takes_over_what_was_running),
      cmocka_unit_test(fork_finds_the_global_lock_free),
      cmocka_unit_test(generation_differs_in_a_child),
      cmocka_unit_test(start_may_fail),
      cmocka_unit_test(allocation_failures),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
