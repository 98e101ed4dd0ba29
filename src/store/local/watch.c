/* watch.c - waiting for the file to change, without a write, and without a lock between two
 * looks.
 *
 * SQLite makes a commit visible after the last write that the system tells of (in WAL mode by
 * shared memory, in rollback mode by releasing a lock), so a word is followed by looks at
 * data_version with growing pauses until the change shows. What changes without a commit is
 * known beforehand: the next deadline of the store, and the processes that own claims. */
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "store/local/local.h"
#include "store/local/notify.h"
#include "store/local/upcoming.h"

#define PAUSE_FIRST_US 300  /* between looks after a word, then a quarter of what passed since */
#define PAUSE_BUSY_US  2000 /* not longer than this while words keep coming */
#define PAUSE_MAX_US   100000
#define SETTLE_MS      500  /* a word without a change is forgotten after this long */
#define LOCKED_MS      50   /* file locked for this long after a word: say so to be safe */
#define SAFETY_MS      2000 /* look even without a word, e.g. on a network file system */
#define WAL_MS         500  /* ask for a -wal to watch this often while there is none */

typedef struct local_watch {
  msg_watch base;
  /* immutable after open */
  msg_local_store *store;
  msg_local_notify *notify;
  int64_t poll_pause_ms;
  /* cursor thread only */
  sqlite3 *db;
  sqlite3_stmt *version_stmt;
  int64_t version; /* data_version; -1 not known */
  bool fresh;      /* nothing reported yet */
  bool settling;   /* a word came: look until its change shows */
  bool told;       /* a change was seen since the word */
  bool locked;     /* the last look met a lock */
  int64_t word_ms; /* mono: when it came */
  int64_t pause_us;
  int64_t look_ms; /* mono: the next look without a word */
  msg_local_upcoming upcoming;
  /* shared: guarded by mtx */
  msg_mutex *mtx;
  msg_cond *turn; /* muted, rung or touching changed */
  bool muted, rung;
  bool touching; /* the cursor thread reads the file */
} local_watch;

static int fail(local_watch *w, int sqlite_rc, msg_err *err) {
  return msg_local_error(w->db, "main", msg_show(w->store->path).s, sqlite_rc, "watch", err);
}

/* ---- mute ---- */

/* Before the file is touched; waits while muted. *waited: it was. False: rung. */
static bool touch(local_watch *w, bool *waited) {
  msg_mutex_lock(w->mtx);
  *waited = w->muted;
  while (w->muted && !w->rung)
    msg_cond_wait_until(w->turn, w->mtx, MSG_NEVER);
  w->touching = !w->rung;
  bool allowed = w->touching;
  msg_mutex_unlock(w->mtx);
  return allowed;
}

static void untouch(local_watch *w) {
  msg_mutex_lock(w->mtx);
  w->touching = false;
  msg_cond_broadcast(w->turn);
  msg_mutex_unlock(w->mtx);
}

void msg_local_watch_mute(msg_watch *base, bool muted) {
  local_watch *w = (local_watch *)base;
  msg_mutex_lock(w->mtx);
  w->muted = muted;
  msg_cond_broadcast(w->turn);
  while (w->muted && w->touching)
    msg_cond_wait_until(w->turn, w->mtx, MSG_NEVER);
  msg_mutex_unlock(w->mtx);
}

/* ---- looks ---- */

/* *changed: data_version is another one, or known for the first time. */
static int look(local_watch *w, bool *changed, msg_err *err) {
  int rc = SQLITE_OK;
  *changed = false;
  if (!w->version_stmt)
    rc = sqlite3_prepare_v3(w->db, "PRAGMA main.data_version", -1, SQLITE_PREPARE_PERSISTENT,
                            &w->version_stmt, NULL);
  int64_t version = -1;
  if (rc == SQLITE_OK && sqlite3_step(w->version_stmt) == SQLITE_ROW)
    version = sqlite3_column_int64(w->version_stmt, 0);
  if (rc == SQLITE_OK)
    rc = sqlite3_reset(w->version_stmt);
  w->locked = rc != SQLITE_OK;
  if (rc != SQLITE_OK)
    return msg_local_passes(rc) ? MSG_OK : fail(w, rc, err);
  *changed = version != w->version;
  w->version = version;
  return MSG_OK;
}

/* Ask again what will change without a commit. */
static int refresh(local_watch *w, msg_err *err) {
  return msg_local_upcoming_read(&w->upcoming, w->db, w->store->path, err);
}

static int still_there(local_watch *w, msg_err *err) {
  struct stat st;
  char key[sizeof w->store->key];
  int moved = 0;
  if (stat(w->store->path, &st) == 0) {
    sqlite3_snprintf((int)sizeof key, key, "local:%llu:%llu", (unsigned long long)st.st_dev,
                     (unsigned long long)st.st_ino);
    if (sqlite3_file_control(w->db, "main", SQLITE_FCNTL_HAS_MOVED, &moved) != SQLITE_OK)
      moved = 0;
    if (!moved && strcmp(key, w->store->key) == 0)
      return MSG_OK;
  }
  return msg_err_set(err, MSG_UNAVAILABLE,
                     "the file %s was moved, removed or replaced: close the connection and open it "
                     "again",
                     msg_show(w->store->path).s);
}

/* ---- waiting ---- */

static void heard(local_watch *w, int64_t now_ms) {
  w->word_ms = now_ms;
  w->told = false;
  if (!w->settling)
    w->pause_us = 0;
  else if (w->pause_us > PAUSE_BUSY_US)
    w->pause_us = PAUSE_BUSY_US;
  w->settling = true;
}

static int64_t sooner(int64_t a, int64_t b) {
  return a < b ? a : b;
}

/* How long nothing needs to be done, if no word comes. */
static int64_t idle_us(const local_watch *w, int64_t now_ms, int64_t deadline_ms) {
  int64_t until_ms = sooner(w->look_ms, deadline_ms);
  if (until_ms <= now_ms)
    return 0;
  int64_t wait_ms = sooner(until_ms - now_ms, msg_local_upcoming_wait_ms(&w->upcoming, now_ms));
  if (!msg_local_notify_whole(w->notify))
    wait_ms = sooner(wait_ms, WAL_MS);
  int64_t wait_us = sooner(wait_ms, SAFETY_MS) * 1000;
  return w->settling ? sooner(wait_us, w->pause_us) : wait_us;
}

/* The next look that no word asks for. */
static int64_t next_look(const local_watch *w, int64_t now_ms) {
  return now_ms + (msg_local_notify_works(w->notify) ? SAFETY_MS : w->poll_pause_ms);
}

/* A commit shows once it is on the disk: the longer that takes, the less often to look. Once a
 * change was seen, the word may still have been of two, which is rare. */
static int64_t next_pause(const local_watch *w, int64_t now_ms) {
  int64_t pause_us = w->told ? w->pause_us * 2 : (now_ms - w->word_ms) * 250;
  return pause_us < PAUSE_FIRST_US ? PAUSE_FIRST_US : sooner(pause_us, PAUSE_MAX_US);
}

/* A look is due: by a word or by the clock. */
static int look_again(local_watch *w, int64_t now_ms, bool *changed, msg_err *err) {
  int rc = look(w, changed, err);
  w->look_ms = next_look(w, now_ms);
  if (rc != MSG_OK || *changed) {
    w->pause_us = PAUSE_FIRST_US;
    w->told = true;
    return rc;
  }
  if (w->locked &&
      !w->settling) { /* locked for good, perhaps: then nothing is known, say so now and then */
    w->look_ms = now_ms + w->poll_pause_ms;
    *changed = true;
    return MSG_OK;
  }
  if (w->upcoming.stale)
    rc = refresh(w, err);
  if (w->settling) {
    w->pause_us = next_pause(w, now_ms);
    *changed = w->locked && now_ms - w->word_ms >= LOCKED_MS;
    w->settling = !*changed && now_ms - w->word_ms < SETTLE_MS;
  }
  return rc;
}

static int asked_to_stop(msg_err *err) {
  return msg_err_set(err, MSG_SHUTDOWN, "the cursor thread was asked to stop");
}

/* The part of a round that touches the file. What came while muted is not known: then say
 * changed. */
static int touched_round(local_watch *w, bool check, int64_t now_ms, bool *changed, msg_err *err) {
  bool waited;
  if (!touch(w, &waited))
    return asked_to_stop(err);
  int rc = check ? still_there(w, err) : MSG_OK;
  if (rc == MSG_OK)
    rc = look_again(w, now_ms, changed, err);
  untouch(w);
  *changed = *changed || waited;
  return rc;
}

/* One round of waiting and looking. */
static int watch_round(local_watch *w, int64_t deadline_ms, bool *changed, msg_err *err) {
  int64_t now_ms = msg_clock_mono_ms();
  bool deaf = w->settling && w->pause_us <= PAUSE_BUSY_US;
  int64_t wait_us = idle_us(w, now_ms, deadline_ms);
  bool paused = w->settling && wait_us == w->pause_us;
  unsigned word = msg_local_notify_wait(w->notify, wait_us, deaf);
  int rc = MSG_OK;
  if (word & MSG_NOTIFY_RUNG)
    return asked_to_stop(err);
  now_ms = msg_clock_mono_ms();
  if (word & MSG_NOTIFY_WRITTEN)
    heard(w, now_ms);
  bool ticked = now_ms >= w->look_ms;
  if (ticked || paused || (word & (MSG_NOTIFY_GONE | MSG_NOTIFY_WRITTEN)))
    rc = touched_round(w, ticked || (word & MSG_NOTIFY_GONE), now_ms, changed, err);
  if (rc == MSG_OK)
    *changed = msg_local_upcoming_came(&w->upcoming, now_ms) || *changed;
  return rc;
}

/* What is known to change without a commit, for the next rounds. */
static int renew(local_watch *w, msg_err *err) {
  bool waited;
  if (!touch(w, &waited))
    return asked_to_stop(err);
  int rc = refresh(w, err);
  untouch(w);
  return rc;
}

int msg_local_watch_next(msg_watch *base, int64_t deadline_mono_ms, msg_event *out, msg_err *err) {
  local_watch *w = (local_watch *)base;
  bool changed = w->fresh; /* nobody knows what came before the first look */
  int rc = MSG_OK;
  if (msg_local_notify_wait(w->notify, 0, true) & MSG_NOTIFY_RUNG)
    return asked_to_stop(err);
  while (rc == MSG_OK && !changed) {
    rc = watch_round(w, deadline_mono_ms, &changed, err);
    if (rc == MSG_OK && !changed && msg_clock_mono_ms() >= deadline_mono_ms)
      return MSG_TIMEOUT;
  }
  if (rc == MSG_OK)
    rc = renew(w, err);
  if (rc != MSG_OK)
    return rc;
  w->fresh = false;
  memset(out, 0, sizeof *out);
  msg_message_init(&out->message);
  out->kind = MSG_EVENT_CHANGED;
  return MSG_OK;
}

void msg_local_watch_wake(msg_watch *base) {
  local_watch *w = (local_watch *)base;
  msg_local_notify_ring(w->notify);
  msg_mutex_lock(w->mtx);
  w->rung = true;
  msg_cond_broadcast(w->turn);
  msg_mutex_unlock(w->mtx);
}

/* ---- life ---- */

int msg_local_watch_open(msg_store *base, const msg_settings *settings, msg_watch **out,
                         msg_err *err) {
  msg_local_store *store = (msg_local_store *)base;
  if (!store->path[0])
    return msg_err_set(err, MSG_UNSUPPORTED,
                       "a database in memory has no other connection to watch");
  local_watch *w = msg_zalloc(sizeof *w);
  if (!w)
    return msg_err_nomem(err);
  w->base.ops = base->ops;
  w->store = store;
  w->poll_pause_ms = settings->poll_pause_ms;
  w->version = -1;
  msg_local_upcoming_init(&w->upcoming);
  w->fresh = true;
  w->mtx = msg_mutex_new();
  w->turn = msg_cond_new();
  bool ignored;
  int rc = w->mtx && w->turn ? MSG_OK : msg_err_nomem(err);
  if (rc == MSG_OK)
    rc = msg_local_notify_new(store->path, &w->notify, err);
  if (rc == MSG_OK)
    rc = msg_local_connect(store, false, &w->db, err);
  if (rc == MSG_OK)
    rc = still_there(w, err);
  if (rc == MSG_OK)
    rc = look(w, &ignored, err);
  if (rc != MSG_OK) {
    msg_local_watch_close(&w->base);
    return rc;
  }
  *out = &w->base;
  return MSG_OK;
}

void msg_local_watch_info(const msg_watch *base, msg_watch_info *out) {
  const local_watch *w = (const local_watch *)base;
  out->what = w->store->path;
  out->how = msg_local_notify_works(w->notify) ? "inotify" : "poll";
  out->token_age_ms = -1;
}

void msg_local_watch_close(msg_watch *base) {
  local_watch *w = (local_watch *)base;
  if (!w)
    return;
  sqlite3_finalize(w->version_stmt);
  msg_local_upcoming_clear(&w->upcoming);
  sqlite3_close_v2(w->db);
  msg_local_notify_free(w->notify);
  msg_cond_free(w->turn);
  msg_mutex_free(w->mtx);
  msg_free(w);
}
