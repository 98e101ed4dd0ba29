#include "base/process.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/thread.h"
#include "support/child.h"
#include "support/cmocka_compat.h"
#include "support/deny.h"

#define THREADS 8

struct parts {
  char boot[64], ns[32];
  int pid;
  uint64_t start;
};

static struct parts parts_of(const char *identity) {
  struct parts p = {0};
  assert_int_equal(sscanf(identity, "%63[^:]:%31[^:]:%d:%" SCNu64, p.boot, p.ns, &p.pid, &p.start),
                   4);
  return p;
}

static void read_identity(void *arg) {
  const char **out = arg;
  *out = msg_process_self();
  msg_process_host();
  msg_process_program();
}

/* Before any other test of this process itself: the threads race for the first call. */
static void identity_is_one_for_all_threads(void **state) {
  (void)state;
  const char *seen[THREADS];
  msg_thread *threads[THREADS];
  for (int i = 0; i < THREADS; i++)
    assert_int_equal(msg_thread_start(&threads[i], "id", read_identity, &seen[i], NULL), MSG_OK);
  for (int i = 0; i < THREADS; i++)
    msg_thread_join(threads[i]);
  for (int i = 0; i < THREADS; i++)
    assert_string_equal(seen[i], msg_process_self());
}

static void identity_has_four_parts(void **state) {
  (void)state;
  struct parts p = parts_of(msg_process_self());
  assert_int_equal(strlen(p.boot), 36);
  assert_true(strspn(p.ns, "0123456789") == strlen(p.ns));
  assert_int_equal(p.pid, getpid());
  assert_true(p.start > 0);
  assert_true(strlen(msg_process_self()) < MSG_PROCESS_ID_MAX);
  assert_int_equal(msg_process_pid(), getpid());
}

static int identity_in_child(void *arg) {
  const char *parent = arg;
  char mine[MSG_PROCESS_ID_MAX];
  snprintf(mine, sizeof mine, "%s", msg_process_self());
  return strcmp(mine, parent) != 0 && strstr(mine, ":") &&
         msg_process_liveness(mine) == MSG_ALIVE && msg_process_liveness(parent) == MSG_ALIVE &&
         atoi(strrchr(mine, ':') + 1) > 0;
}

static void identity_is_new_after_fork(void **state) {
  (void)state;
  char mine[MSG_PROCESS_ID_MAX];
  snprintf(mine, sizeof mine, "%s", msg_process_self());
  assert_int_equal(child_run(identity_in_child, mine), 1);
  assert_string_equal(msg_process_self(), mine);
}

static enum msg_liveness liveness(const char *boot, const char *ns, int pid, uint64_t start) {
  char text[200];
  snprintf(text, sizeof text, "%s:%s:%d:%" PRIu64, boot, ns, pid, start);
  return msg_process_liveness(text);
}

static void self_is_alive(void **state) {
  (void)state;
  assert_int_equal(msg_process_liveness(msg_process_self()), MSG_ALIVE);
}

static void other_machines_are_unknown(void **state) {
  (void)state;
  struct parts p = parts_of(msg_process_self());
  assert_int_equal(liveness("00000000-0000-0000-0000-000000000000", p.ns, p.pid, p.start),
                   MSG_UNKNOWN);
  assert_int_equal(liveness(p.boot, "1", p.pid, p.start), MSG_UNKNOWN);
  assert_int_equal(liveness(p.boot, "-", p.pid, p.start), MSG_UNKNOWN);
  assert_int_equal(liveness("-", "-", p.pid, p.start), MSG_UNKNOWN);
  assert_int_equal(liveness(p.boot, p.ns, p.pid, 0), MSG_UNKNOWN);
}

static void malformed_is_unknown(void **state) {
  (void)state;
  static const char *const TAILS[] = {"",
                                      ":",
                                      "1",
                                      "1:",
                                      ":1",
                                      "x:1",
                                      "1:x",
                                      "1:1:",
                                      "-1:1",
                                      "0:1",
                                      " 1:1",
                                      "+1:1",
                                      "1:-1",
                                      "1: 1",
                                      "1:1x",
                                      "1::1",
                                      "1:+1",
                                      "99999999999:1",
                                      "1:99999999999999999999"};
  struct parts p = parts_of(msg_process_self());
  assert_int_equal(msg_process_liveness(NULL), MSG_UNKNOWN);
  assert_int_equal(msg_process_liveness(""), MSG_UNKNOWN);
  assert_int_equal(msg_process_liveness("nonsense"), MSG_UNKNOWN);
  assert_int_equal(msg_process_liveness(p.boot), MSG_UNKNOWN);
  assert_int_equal(msg_process_liveness(":::"), MSG_UNKNOWN);
  for (size_t i = 0; i < sizeof TAILS / sizeof TAILS[0]; i++) {
    char text[200];
    snprintf(text, sizeof text, "%s:%s:%s", p.boot, p.ns, TAILS[i]);
    assert_int_equal(msg_process_liveness(text), MSG_UNKNOWN);
  }
}

static void number_given_to_another_is_dead(void **state) {
  (void)state;
  struct parts p = parts_of(msg_process_self());
  assert_int_equal(liveness(p.boot, p.ns, p.pid, p.start + 1), MSG_DEAD);
  assert_int_equal(liveness(p.boot, p.ns, p.pid, p.start - 1), MSG_DEAD);
}

/* A child that names itself, tells its identity through the pipe, and waits to be killed. */
static pid_t start_named(const char *name, char identity[MSG_PROCESS_ID_MAX]) {
  int fds[2];
  assert_int_equal(pipe(fds), 0);
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    prctl(PR_SET_NAME, name);
    char text[MSG_PROCESS_ID_MAX] = "";
    snprintf(text, sizeof text, "%s", msg_process_self());
    if (write(fds[1], text, sizeof text) != sizeof text)
      _exit(1);
    for (;;)
      pause();
  }
  assert_int_equal(read(fds[0], identity, MSG_PROCESS_ID_MAX), MSG_PROCESS_ID_MAX);
  close(fds[0]);
  close(fds[1]);
  return pid;
}

static void follows_a_process_to_its_end(const char *name) {
  char identity[MSG_PROCESS_ID_MAX];
  siginfo_t info;
  pid_t pid = start_named(name, identity);
  assert_int_equal(parts_of(identity).pid, pid);
  assert_int_equal(msg_process_liveness(identity), MSG_ALIVE);
  kill(pid, SIGKILL);
  assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
  assert_int_equal(msg_process_liveness(identity), MSG_DEAD); /* a zombie */
  assert_int_equal(waitpid(pid, NULL, 0), pid);
  assert_int_equal(msg_process_liveness(identity), MSG_DEAD);
}

static void processes_live_and_die(void **state) {
  (void)state;
  follows_a_process_to_its_end("plain");
  follows_a_process_to_its_end("a b) Z 1 (2 3");
  follows_a_process_to_its_end(") R 1 1 1");
  follows_a_process_to_its_end("((((");
  follows_a_process_to_its_end("");
}

static void linger(void *arg) {
  (void)arg;
  for (;;)
    pause();
}

/* Its first thread is gone and shows as a zombie, but the process works on. */
static void a_process_without_its_first_thread_is_alive(void **state) {
  (void)state;
  char identity[MSG_PROCESS_ID_MAX] = "";
  int fds[2];
  assert_int_equal(pipe(fds), 0);
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    msg_thread *t;
    snprintf(identity, sizeof identity, "%s", msg_process_self());
    if (msg_thread_start(&t, "x", linger, NULL, NULL) != MSG_OK ||
        write(fds[1], identity, sizeof identity) != sizeof identity)
      _exit(1);
    syscall(SYS_exit, 0);
  }
  assert_int_equal(read(fds[0], identity, sizeof identity), sizeof identity);
  usleep(20000); /* let it become one */
  assert_int_equal(msg_process_liveness(identity), MSG_ALIVE);
  kill(pid, SIGKILL);
  assert_int_equal(waitpid(pid, NULL, 0), pid);
  assert_int_equal(msg_process_liveness(identity), MSG_DEAD);
  close(fds[0]);
  close(fds[1]);
}

#define SKIPPED 77

/* As a program of that name: its folded name is `want`. */
static int named(const char *name, const char *want) {
  program_invocation_short_name = (char *)(uintptr_t)name;
  return strcmp(msg_process_program(), want) == 0;
}

static int named_plainly(void *arg) {
  (void)arg;
  return named("python3.11", "python3.11");
}

static int named_oddly(void *arg) {
  (void)arg;
  return named("My Prog_\xc3\xbc/Z", "my-prog----z");
}

static int named_at_length(void *arg) {
  (void)arg;
  return named("0123456789012345678901234567890123456789", "01234567890123456789012345678901");
}

static int named_not_at_all(void *arg) {
  (void)arg;
  return named("", "unknown");
}

static int nameless(void *arg) {
  (void)arg;
  return named(NULL, "unknown");
}

/* Before the first test that asks for the name: children keep what was asked before. */
static void program_names_are_folded(void **state) {
  (void)state;
  assert_int_equal(child_run(named_plainly, NULL), 1);
  assert_int_equal(child_run(named_oddly, NULL), 1);
  assert_int_equal(child_run(named_at_length, NULL), 1);
  assert_int_equal(child_run(named_not_at_all, NULL), 1);
  assert_int_equal(child_run(nameless, NULL), 1);
}

static int host_without_a_name(void *arg) {
  (void)arg;
  if (!deny_syscall(SYS_uname, EPERM))
    return SKIPPED;
  return strcmp(msg_process_host(), "unknown") == 0;
}

static void host_may_have_no_name(void **state) {
  (void)state;
  int got = child_run(host_without_a_name, NULL);
  if (got == SKIPPED)
    skip();
  assert_int_equal(got, 1);
}

static void is_plain(const char *name, size_t max) {
  size_t n = strlen(name);
  assert_true(n >= 1 && n <= max);
  assert_int_equal(strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-."), n);
}

static void names_are_plain(void **state) {
  (void)state;
  is_plain(msg_process_host(), 64);
  is_plain(msg_process_program(), 32);
  assert_ptr_equal(msg_process_host(), msg_process_host());
}

/* Without /proc: nothing is known of others, but for the numbers that nobody has. */
static int without_proc(void *arg) {
  const char *parent = arg;
  char gone[MSG_PROCESS_ID_MAX], mine[MSG_PROCESS_ID_MAX];
  const char *head = parent + strcspn(parent, ":");
  int prefix = (int)(head - parent + 1 + (long)strcspn(head + 1, ":"));
  snprintf(mine, sizeof mine, "%s", msg_process_self()); /* asked while /proc was there */
  snprintf(gone, sizeof gone, "%.*s:4194303:1", prefix, parent);
  if (!deny_syscall(SYS_openat, ENOENT))
    return SKIPPED;
  return msg_process_liveness(parent) == MSG_UNKNOWN && msg_process_liveness(mine) == MSG_UNKNOWN &&
         msg_process_liveness(gone) == MSG_DEAD;
}

static int born_without_proc(void *arg) {
  const char *parent = arg;
  char want[MSG_PROCESS_ID_MAX];
  if (!deny_syscall(SYS_openat, ENOENT) || !deny_syscall(SYS_readlink, ENOENT) ||
      !deny_syscall(SYS_readlinkat, ENOENT))
    return SKIPPED;
  snprintf(want, sizeof want, "-:-:%d:0", (int)getpid());
  return strcmp(msg_process_self(), want) == 0 &&
         msg_process_liveness(msg_process_self()) == MSG_UNKNOWN &&
         msg_process_liveness(parent) == MSG_UNKNOWN;
}

static void proc_may_be_missing(void **state) {
  (void)state;
  char mine[MSG_PROCESS_ID_MAX];
  snprintf(mine, sizeof mine, "%s", msg_process_self());
  int hidden = child_run(without_proc, mine), missing = child_run(born_without_proc, mine);
  if (hidden == SKIPPED || missing == SKIPPED)
    skip();
  assert_int_equal(hidden, 1);
  assert_int_equal(missing, 1);
}

static void environment(void **state) {
  (void)state;
  setenv("MSG_TEST_VARIABLE", "x y", 1);
  assert_string_equal(msg_process_env("MSG_TEST_VARIABLE"), "x y");
  unsetenv("MSG_TEST_VARIABLE");
  assert_null(msg_process_env("MSG_TEST_VARIABLE"));
}

static void random_bytes(void **state) {
  (void)state;
  unsigned char a[1000], b[1000];
  int histogram[256] = {0}, seen = 0;
  msg_process_random(a, sizeof a);
  msg_process_random(b, sizeof b);
  assert_memory_not_equal(a, b, sizeof a);
  assert_memory_not_equal(a + 744, b + 744, 256); /* the last part too */
  for (size_t i = 0; i < sizeof a; i++)
    seen += histogram[a[i]]++ == 0;
  assert_true(seen > 200);
  msg_process_random(a, 0);
}

static int random_without_kernel(void *arg) {
  (void)arg;
  unsigned char a[300] = {0}, b[300] = {0};
  int histogram[256] = {0}, seen = 0;
  if (!deny_syscall(SYS_getrandom, ENOSYS))
    return SKIPPED;
  msg_process_random(a, sizeof a);
  msg_process_random(b, sizeof b);
  for (size_t i = 0; i < sizeof a; i++)
    seen += histogram[a[i]]++ == 0;
  return memcmp(a, b, sizeof a) != 0 && memcmp(a, a + 256, 44) != 0 && seen > 100;
}

static void random_bytes_without_kernel(void **state) {
  (void)state;
  int got = child_run(random_without_kernel, NULL);
  if (got == SKIPPED)
    skip();
  assert_int_equal(got, 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(program_names_are_folded),
      cmocka_unit_test(host_may_have_no_name),
      cmocka_unit_test(identity_is_one_for_all_threads),
      cmocka_unit_test(identity_has_four_parts),
      cmocka_unit_test(identity_is_new_after_fork),
      cmocka_unit_test(self_is_alive),
      cmocka_unit_test(other_machines_are_unknown),
      cmocka_unit_test(malformed_is_unknown),
      cmocka_unit_test(number_given_to_another_is_dead),
      cmocka_unit_test(processes_live_and_die),
      cmocka_unit_test(a_process_without_its_first_thread_is_alive),
      cmocka_unit_test(names_are_plain),
      cmocka_unit_test(proc_may_be_missing),
      cmocka_unit_test(environment),
      cmocka_unit_test(random_bytes),
      cmocka_unit_test(random_bytes_without_kernel),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
