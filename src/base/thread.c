#include "base/thread.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"

/* Longest sleep handed to the system: a spurious wake a day is cheaper than a time_t that
 * overflows. */
#define LONGEST_WAIT_MS (24 * 3600 * INT64_C(1000))

struct msg_mutex {
  pthread_mutex_t m;
};

struct msg_cond {
  pthread_cond_t c;
};

struct msg_thread {
  pthread_t id;
  void (*run)(void *);
  void *arg;
  char name[16]; /* Linux allows 15 bytes */
};

/* Lock order: global_mtx > once_mtx. */
static pthread_mutex_t global_mtx = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t once_mtx = PTHREAD_MUTEX_INITIALIZER; /* guards changes of msg_once flags */
static pthread_cond_t once_cnd = PTHREAD_COND_INITIALIZER;   /* some flag's function has run */

static pthread_once_t atfork_once = PTHREAD_ONCE_INIT;
static bool atfork_installed; /* immutable after atfork_once */
static _Atomic int forks;

/* --- mutex and condition ------------------------------------------------------------------- */

msg_mutex *msg_mutex_new(void) {
  msg_mutex *m = msg_alloc(sizeof *m);
  if (m && pthread_mutex_init(&m->m, NULL) != 0) {
    msg_free(m);
    return NULL;
  }
  return m;
}

void msg_mutex_free(msg_mutex *m) {
  if (!m)
    return;
  pthread_mutex_destroy(&m->m);
  msg_free(m);
}

void msg_mutex_lock(msg_mutex *m) {
  pthread_mutex_lock(&m->m);
}

void msg_mutex_unlock(msg_mutex *m) {
  pthread_mutex_unlock(&m->m);
}

void msg_global_lock(void) {
  pthread_mutex_lock(&global_mtx);
}

void msg_global_unlock(void) {
  pthread_mutex_unlock(&global_mtx);
}

static int cond_init(pthread_cond_t *c) {
#ifdef __APPLE__
  return pthread_cond_init(c, NULL); /* waits are relative there */
#else
  pthread_condattr_t attr;
  if (pthread_condattr_init(&attr) != 0)
    return ENOMEM;
  int rc = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
  if (rc == 0)
    rc = pthread_cond_init(c, &attr);
  pthread_condattr_destroy(&attr);
  return rc;
#endif
}

msg_cond *msg_cond_new(void) {
  msg_cond *c = msg_alloc(sizeof *c);
  if (c && cond_init(&c->c) != 0) {
    msg_free(c);
    return NULL;
  }
  return c;
}

void msg_cond_free(msg_cond *c) {
  if (!c)
    return;
  pthread_cond_destroy(&c->c);
  msg_free(c);
}

void msg_cond_broadcast(msg_cond *c) {
  pthread_cond_broadcast(&c->c);
}

static struct timespec to_timespec(int64_t ms) {
  struct timespec ts;
  ts.tv_sec = (time_t)(ms / 1000);
  ts.tv_nsec = (long)(ms % 1000) * 1000000;
  return ts;
}

bool msg_cond_wait_until(msg_cond *c, msg_mutex *m, int64_t deadline_ms) {
  int64_t now = msg_clock_mono_ms();
  if (now >= deadline_ms)
    return false;
  int64_t wait_ms = deadline_ms - now;
  if (wait_ms > LONGEST_WAIT_MS)
    wait_ms = LONGEST_WAIT_MS;
#ifdef __APPLE__
  struct timespec ts = to_timespec(wait_ms);
  int rc = pthread_cond_timedwait_relative_np(&c->c, &m->m, &ts);
#else
  struct timespec ts = to_timespec(now + wait_ms);
  int rc = pthread_cond_timedwait(&c->c, &m->m, &ts);
#endif
  return rc != ETIMEDOUT || msg_clock_mono_ms() < deadline_ms;
}

/* --- threads ------------------------------------------------------------------------------- */

static void *thread_main(void *arg) {
  msg_thread *t = arg;
#ifdef __APPLE__
  pthread_setname_np(t->name);
#else
  pthread_setname_np(pthread_self(), t->name);
#endif
  t->run(t->arg);
  return NULL;
}

/* The mask is inherited, so it is set before the thread exists: no signal slips in. */
static int create_blocked(msg_thread *t) {
  static const int FAULTS[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
  sigset_t blocked, before;
  sigfillset(&blocked);
  for (size_t i = 0; i < sizeof FAULTS / sizeof FAULTS[0]; i++)
    sigdelset(&blocked, FAULTS[i]);
  int rc = pthread_sigmask(SIG_SETMASK, &blocked, &before);
  if (rc != 0)
    return rc;
  rc = pthread_create(&t->id, NULL, thread_main, t);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return rc;
}

int msg_thread_start(msg_thread **out, const char *name, void (*run)(void *), void *arg,
                     msg_err *err) {
  msg_thread *t = msg_zalloc(sizeof *t);
  if (!t)
    return msg_err_nomem(err);
  t->run = run;
  t->arg = arg;
  memcpy(t->name, name, strnlen(name, sizeof t->name - 1));
  int rc = create_blocked(t);
  if (rc != 0) {
    msg_err_native(err, MSG_BACKEND, MSG_DOMAIN_ERRNO, rc,
                   "cannot start thread '%s' (errno %d): raise the limit of threads or memory",
                   t->name, rc);
    if (err)
      err->retry = rc == EAGAIN;
    msg_free(t);
    return MSG_BACKEND;
  }
  *out = t;
  return MSG_OK;
}

void msg_thread_join(msg_thread *t) {
  if (!t)
    return;
  pthread_join(t->id, NULL);
  msg_free(t);
}

/* --- fork ---------------------------------------------------------------------------------- */

/* Fork while nobody holds our static locks, so that the child can use them, and what they guard is
 * whole. Locks on the heap belong to objects of the parent, which the child does not touch. */
static void before_fork(void) {
  pthread_mutex_lock(&global_mtx);
  pthread_mutex_lock(&once_mtx);
}

static void after_fork_in_parent(void) {
  pthread_mutex_unlock(&once_mtx);
  pthread_mutex_unlock(&global_mtx);
}

static void after_fork_in_child(void) {
  atomic_fetch_add_explicit(&forks, 1, memory_order_relaxed);
  /* Its waiters stayed in the parent; a broadcast would wait for them. */
  pthread_cond_init(&once_cnd, NULL);
  pthread_mutex_unlock(&once_mtx);
  pthread_mutex_unlock(&global_mtx);
}

/* Handlers stay for good; the library is never unloaded (-z nodelete). */
static void install_atfork(void) {
  atfork_installed = pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) == 0;
}

int msg_fork_generation(void) {
  pthread_once(&atfork_once, install_atfork);
  if (!atfork_installed) /* out of memory: dearer, but as good */
    return (int)getpid();
  return atomic_load_explicit(&forks, memory_order_relaxed);
}

/* --- once ---------------------------------------------------------------------------------- */

/* A flag is 0, or 2 * generation + 1 while its function runs, or 2 * generation + 2 when it has
 * run. "Running" of an older generation was left behind in the parent, and is taken over. */
static void run_once(int *flag, int generation, bool per_fork, void (*f)(void)) {
  const int running = 2 * generation + 1, done = 2 * generation + 2;
  pthread_mutex_lock(&once_mtx);
  while (*flag == running)
    pthread_cond_wait(&once_cnd, &once_mtx);
  bool finished = per_fork ? *flag == done : *flag != 0 && *flag % 2 == 0;
  if (!finished)
    __atomic_store_n(flag, running, __ATOMIC_RELAXED);
  pthread_mutex_unlock(&once_mtx);
  if (finished)
    return;

  f();
  pthread_mutex_lock(&once_mtx);
  __atomic_store_n(flag, done, __ATOMIC_RELEASE);
  pthread_cond_broadcast(&once_cnd);
  pthread_mutex_unlock(&once_mtx);
}

void msg_once(int *flag, void (*f)(void)) {
  int seen = __atomic_load_n(flag, __ATOMIC_ACQUIRE);
  if (seen == 0 || seen % 2 != 0)
    run_once(flag, msg_fork_generation(), false, f);
}

void msg_once_per_fork(int *flag, void (*f)(void)) {
  int generation = msg_fork_generation();
  if (__atomic_load_n(flag, __ATOMIC_ACQUIRE) != 2 * generation + 2)
    run_once(flag, generation, true, f);
}
