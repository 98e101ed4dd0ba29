/* notify.c - see notify.h. */
#include "store/local/notify.h"

#include <stdatomic.h>

#include "base/clock.h"
#include "base/mem.h"

#if defined(__linux__) && !defined(MSG_NO_INOTIFY)

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "base/str.h"

#define FILE_MASK (IN_MODIFY | IN_ATTRIB | IN_MOVE_SELF | IN_DELETE_SELF)

struct msg_local_notify {
  /* immutable */
  char *path, *wal;
  int bell; /* eventfd */
  /* waiting thread only */
  int words; /* inotify; -1 none */
  int file_watch, wal_watch;
  /* any thread */
  atomic_bool works;
};

static void deafen(msg_local_notify *n) {
  atomic_store(&n->works, false);
  if (n->words >= 0)
    close(n->words); /* and with it its watches */
  n->words = n->file_watch = n->wal_watch = -1;
}

/* True when a watch on the -wal is new. */
static bool watch_wal(msg_local_notify *n) {
  if (n->words < 0 || n->wal_watch >= 0)
    return false;
  n->wal_watch = inotify_add_watch(n->words, n->wal, FILE_MASK);
  if (n->wal_watch < 0 && errno != ENOENT)
    deafen(n); /* commits in WAL mode would go by unnoticed */
  return n->wal_watch >= 0;
}

int msg_local_notify_new(const char *path, msg_local_notify **out, msg_err *err) {
  msg_local_notify *n = msg_zalloc(sizeof *n);
  msg_str wal = MSG_STR_INIT;
  if (!n)
    return msg_err_nomem(err);
  n->bell = n->words = n->file_watch = n->wal_watch = -1;
  msg_str_appendf(&wal, "%s-wal", path);
  n->path = msg_strdup(path);
  n->wal = msg_str_take(&wal);
  if (!n->path || !n->wal) {
    msg_local_notify_free(n);
    return msg_err_nomem(err);
  }
  n->bell = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (n->bell < 0) {
    int code = errno;
    msg_local_notify_free(n);
    return msg_err_native(err, MSG_BACKEND, MSG_DOMAIN_ERRNO, code,
                          "no eventfd for the cursor thread (%s): raise the limit of open files",
                          strerror(code));
  }
  n->words = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  if (n->words >= 0)
    n->file_watch = inotify_add_watch(n->words, n->path, FILE_MASK);
  atomic_init(&n->works, n->file_watch >= 0);
  if (n->file_watch < 0)
    deafen(n);
  watch_wal(n);
  *out = n;
  return MSG_OK;
}

void msg_local_notify_free(msg_local_notify *n) {
  if (!n)
    return;
  if (n->words >= 0)
    close(n->words);
  if (n->bell >= 0)
    close(n->bell);
  msg_free(n->path);
  msg_free(n->wal);
  msg_free(n);
}

static unsigned word(msg_local_notify *n, const struct inotify_event *e) {
  bool left = e->mask & (IN_ATTRIB | IN_MOVE_SELF | IN_DELETE_SELF | IN_IGNORED | IN_UNMOUNT);
  if (e->mask & IN_Q_OVERFLOW)
    return MSG_NOTIFY_WRITTEN | MSG_NOTIFY_GONE;
  if (e->wd == n->wal_watch && left) {
    if (!(e->mask & IN_IGNORED))
      inotify_rm_watch(n->words, n->wal_watch);
    n->wal_watch = -1; /* another one may be there under the name */
    return MSG_NOTIFY_WRITTEN;
  }
  if (e->wd == n->file_watch && left)
    return MSG_NOTIFY_WRITTEN | MSG_NOTIFY_GONE;
  return e->wd == n->file_watch || e->wd == n->wal_watch ? MSG_NOTIFY_WRITTEN : 0;
}

static unsigned hear(msg_local_notify *n) {
  _Alignas(struct inotify_event) char buffer[4096];
  unsigned heard = 0;
  for (;;) {
    ssize_t got = read(n->words, buffer, sizeof buffer);
    if (got <= 0)
      return heard;
    for (const char *at = buffer; at < buffer + got;) {
      const struct inotify_event *e = (const void *)at;
      heard |= word(n, e);
      at += sizeof *e + e->len;
    }
  }
}

unsigned msg_local_notify_wait(msg_local_notify *n, int64_t timeout_us, bool deaf) {
  struct pollfd fds[2] = {{.fd = n->bell, .events = POLLIN},
                          {.fd = deaf ? -1 : n->words, .events = POLLIN}};
  if (timeout_us < 0)
    timeout_us = 0;
  struct timespec t = {.tv_sec = (time_t)(timeout_us / 1000000),
                       .tv_nsec = (long)(timeout_us % 1000000) * 1000};
  unsigned heard = 0;
  if (watch_wal(n))
    return MSG_NOTIFY_WRITTEN; /* who knows what went into it before */
  int ready = ppoll(fds, 2, &t, NULL);
  if (ready > 0 && fds[0].revents)
    heard |= MSG_NOTIFY_RUNG;
  if (ready > 0 && fds[1].revents)
    heard |= hear(n);
  if (watch_wal(n))
    heard |= MSG_NOTIFY_WRITTEN;
  return heard;
}

bool msg_local_notify_whole(const msg_local_notify *n) {
  return n->wal_watch >= 0;
}

void msg_local_notify_ring(msg_local_notify *n) {
  uint64_t one = 1;
  ssize_t ignored = write(n->bell, &one, sizeof one); /* full: rung already */
  (void)ignored;
}

#else

#include "base/thread.h"

struct msg_local_notify {
  msg_mutex *mtx; /* guards rung */
  msg_cond *cond;
  bool rung;
  atomic_bool works; /* never */
};

int msg_local_notify_new(const char *path, msg_local_notify **out, msg_err *err) {
  (void)path;
  msg_local_notify *n = msg_zalloc(sizeof *n);
  if (!n)
    return msg_err_nomem(err);
  n->mtx = msg_mutex_new();
  n->cond = msg_cond_new();
  if (!n->mtx || !n->cond) {
    msg_local_notify_free(n);
    return msg_err_nomem(err);
  }
  *out = n;
  return MSG_OK;
}

void msg_local_notify_free(msg_local_notify *n) {
  if (!n)
    return;
  msg_cond_free(n->cond);
  msg_mutex_free(n->mtx);
  msg_free(n);
}

unsigned msg_local_notify_wait(msg_local_notify *n, int64_t timeout_us, bool deaf) {
  (void)deaf;
  int64_t wait_ms = timeout_us <= 0 ? 0 : (timeout_us + 999) / 1000;
  int64_t deadline_ms = msg_clock_add(msg_clock_mono_ms(), wait_ms);
  msg_mutex_lock(n->mtx);
  while (!n->rung && msg_cond_wait_until(n->cond, n->mtx, deadline_ms))
    ;
  bool rung = n->rung;
  msg_mutex_unlock(n->mtx);
  return rung ? MSG_NOTIFY_RUNG : 0;
}

bool msg_local_notify_whole(const msg_local_notify *n) {
  (void)n;
  return true;
}

void msg_local_notify_ring(msg_local_notify *n) {
  msg_mutex_lock(n->mtx);
  n->rung = true;
  msg_cond_broadcast(n->cond);
  msg_mutex_unlock(n->mtx);
}

#endif

bool msg_local_notify_works(const msg_local_notify *n) {
  return atomic_load(&n->works);
}
