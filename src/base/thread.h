/* thread.h - mutex, condition, thread: the only place that knows pthread. */
#ifndef MSG_BASE_THREAD_H
#define MSG_BASE_THREAD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

typedef struct msg_mutex msg_mutex;
typedef struct msg_cond msg_cond;
typedef struct msg_thread msg_thread;

/** NULL when memory is out. free accepts NULL. */
msg_mutex *msg_mutex_new(void);
void msg_mutex_free(msg_mutex *m);
void msg_mutex_lock(msg_mutex *m);
void msg_mutex_unlock(msg_mutex *m);

/** The process-wide lock behind the registry: needs no initialisation. A fork waits for it, so that
 *  the child finds it free and what it guards whole: hold it shortly, never fork under it. */
void msg_global_lock(void);
void msg_global_unlock(void);

/* Conditions run on the monotonic clock. */
msg_cond *msg_cond_new(void);
void msg_cond_free(msg_cond *c);
void msg_cond_broadcast(msg_cond *c);
/** Wait until signalled or msg_clock_mono_ms() >= deadline_ms; spurious wakes happen.
 *  False: deadline (at once, without giving up the mutex, when it lies in the past). */
bool msg_cond_wait_until(msg_cond *c, msg_mutex *m, int64_t deadline_ms);

/** Start a thread with all signals blocked, but for those of its own faults (SIGSEGV, ...), which
 *  the host's crash handlers shall still see.
 *  Args:   name at most 15 bytes, longer ones are cut.
 *  Owns:   *out, until msg_thread_join.
 *  Errors: MSG_NOMEM, MSG_BACKEND (errno domain). */
int msg_thread_start(msg_thread **out, const char *name, void (*run)(void *), void *arg,
                     msg_err *err);
/** Join and free. NULL allowed. Never from the thread itself. */
void msg_thread_join(msg_thread *t);

/** Run f at most once per `flag` in this process; returns when it has run. flag: zeroed static.
 *  A child made by fork() counts as the same process, unless f was still running at the fork.
 *  f may use other flags. Thread: any. */
void msg_once(int *flag, void (*f)(void));
/** The same, but f runs again in a forked child: for identities and seeds. */
void msg_once_per_fork(int *flag, void (*f)(void));
/** A number that a child made by fork() does not share with its parent. The first call installs the
 *  atfork handlers. Thread: any; cheap. */
int msg_fork_generation(void);

#endif
