/* local.c - the store: which file it is, its own connections, the ops table. */
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "base/str.h"
#include "store/local/local.h"

static const struct msg_store_ops OPS;

/* ---- which file ---- */

/* Name of the file behind host; "" for a database without a file. */
static int file_name(msg_host *host, const char **out, msg_err *err) {
  if (sqlite3_stricmp(host->schema, "temp") == 0)
    return msg_err_set(err, MSG_INVALID,
                       "schema temp cannot hold messages: no other connection would see them; use "
                       "main or an attached file");
  sqlite3_file *file = NULL;
  if (sqlite3_file_control(host->db, host->schema, SQLITE_FCNTL_FILE_POINTER, &file) != SQLITE_OK)
    return msg_err_set(err, MSG_INVALID,
                       "no schema '%s' on this connection: ATTACH a file under that name first",
                       msg_show(host->schema).s);
  const char *name = sqlite3_db_filename(host->db, host->schema);
  *out = name ? name : "";
  return MSG_OK;
}

/* stat() alone: opening and closing the file would drop SQLite's POSIX locks. False: nothing by
 * that name (a VFS with names of its own). */
static bool identity_of(const char *name, struct stat *out) {
  return name && name[0] && stat(name, out) == 0;
}

static int is_attached(msg_host *host, bool *moved, msg_err *err) {
  int yes = 0;
  int rc = sqlite3_file_control(host->db, host->schema, SQLITE_FCNTL_HAS_MOVED, &yes);
  *moved = rc == SQLITE_OK && yes; /* a VFS that cannot tell is taken as unmoved */
  if (rc != SQLITE_ERROR)
    return MSG_OK;
  return msg_err_set(err, MSG_UNAVAILABLE,
                     "schema '%s' is not attached any more: ATTACH it, then msg_open again",
                     msg_show(host->schema).s);
}

static int has_moved(msg_host *host, msg_err *err) {
  return msg_err_set(err, MSG_UNAVAILABLE,
                     "the file under schema '%s' was moved, removed or replaced: close the "
                     "connection and open it again",
                     msg_show(host->schema).s);
}

/* Does the store's own file lie there, by that name? */
static bool is_own_file(const msg_local_store *s, msg_host *host, const char *name) {
  struct stat st;
  if (s->path[0])
    return identity_of(name, &st) && (uint64_t)st.st_dev == s->device &&
           (uint64_t)st.st_ino == s->inode;
  sqlite3_file *file = NULL;
  sqlite3_file_control(host->db, host->schema, SQLITE_FCNTL_FILE_POINTER, &file);
  return file == s->file;
}

int msg_local_check(msg_host *host, const msg_store *store, bool *gone, msg_err *err) {
  const msg_local_store *s = (const msg_local_store *)store;
  const char *name = sqlite3_db_filename(host->db, host->schema);
  bool moved = false;
  *gone = false;
  /* A transaction ends in the file in which it began: a look at every call of it is in vain. */
  if (sqlite3_txn_state(host->db, host->schema) == SQLITE_TXN_WRITE && name &&
      strcmp(name, s->path) == 0)
    return MSG_OK;
  bool own = is_own_file(s, host, name);
  if (own && s->path[0])
    return MSG_OK;
  int rc = is_attached(host, &moved, err);
  if (rc != MSG_OK || (own && !moved))
    return rc;
  *gone = moved;
  if (moved)
    return has_moved(host, err);
  return msg_err_set(err, MSG_UNAVAILABLE,
                     "schema '%s' holds another file than the one that was opened: msg_close(), "
                     "then msg_open it again",
                     msg_show(host->schema).s);
}

int msg_local_identify(msg_host *host, char *out, msg_err *err) {
  const char *name = NULL;
  bool moved = false;
  int rc = file_name(host, &name, err);
  if (rc == MSG_OK)
    rc = is_attached(host, &moved, err);
  if (rc == MSG_OK && moved)
    rc = has_moved(host, err);
  if (rc != MSG_OK)
    return rc;
  struct stat st;
  if (identity_of(name, &st)) {
    sqlite3_snprintf(96, out, "local:%llu:%llu", (unsigned long long)st.st_dev,
                     (unsigned long long)st.st_ino);
    return MSG_OK;
  }
  sqlite3_file *file = NULL;
  sqlite3_file_control(host->db, host->schema, SQLITE_FCNTL_FILE_POINTER, &file);
  sqlite3_snprintf(96, out, "local:memory:%p", (void *)file);
  return MSG_OK;
}

/* ---- the store ---- */

static void store_free(msg_store *store) {
  msg_local_store *s = (msg_local_store *)store;
  if (!s)
    return;
  msg_local_undone_free(s->undone);
  msg_free(s->path);
  msg_free(s->vfs);
  msg_free(s);
}

int msg_local_open(msg_host *host, msg_store **out, msg_err *err) {
  const char *name = NULL;
  struct stat st;
  sqlite3_vfs *vfs = NULL;
  int rc = file_name(host, &name, err);
  if (rc != MSG_OK)
    return rc;
  sqlite3_file_control(host->db, host->schema, SQLITE_FCNTL_VFS_POINTER, &vfs);
  msg_local_store *s = msg_zalloc(sizeof *s);
  if (!s)
    return msg_err_nomem(err);
  bool on_disk = identity_of(name, &st);
  s->base.ops = &OPS;
  s->path = msg_strdup(on_disk ? name : "");
  s->device = on_disk ? (uint64_t)st.st_dev : 0;
  s->inode = on_disk ? (uint64_t)st.st_ino : 0;
  sqlite3_file_control(host->db, host->schema, SQLITE_FCNTL_FILE_POINTER, &s->file);
  s->vfs = msg_strdup(vfs && vfs->zName ? vfs->zName : "");
  s->undone = msg_local_undone_new();
  if (!s->path || !s->vfs || !s->undone)
    rc = msg_err_nomem(err);
  else
    rc = msg_local_identify(host, s->key, err);
  if (rc != MSG_OK) {
    store_free(&s->base);
    return rc;
  }
  *out = &s->base;
  return MSG_OK;
}

static unsigned caps(const msg_store *store) {
  const msg_local_store *s = (const msg_local_store *)store;
  return s->path[0] ? MSG_CAP_HOST_TXN | MSG_CAP_WATCH | MSG_CAP_OWN : MSG_CAP_HOST_TXN;
}

static const char *place(const msg_store *store) {
  const msg_local_store *s = (const msg_local_store *)store;
  return s->path[0] ? s->path : ":memory:";
}

static void claims_undone(msg_store *store, const msg_oid *ids, size_t n) {
  msg_local_undone_add(((msg_local_store *)store)->undone, ids, n);
}

/* ---- the port ---- */

static const struct msg_store_ops OPS = {
    .store_close = store_free,
    .caps = caps,
    .place = place,
    .session_open = msg_local_session_open,
    .watch_open = msg_local_watch_open,
    .claims_undone = claims_undone,
    .session_close = msg_local_session_close,
    .session_release = msg_local_session_release,
    .lock = msg_local_lock_now,
    .put = msg_local_put,
    .find = msg_local_find,
    .find_next = msg_local_find_next,
    .find_close = msg_local_find_close,
    .get = msg_local_get,
    .listen = msg_local_listen,
    .unlisten = msg_local_unlisten,
    .listeners = msg_local_listeners,
    .unseen = msg_local_unseen,
    .seen = msg_local_seen,
    .claim = msg_local_claim,
    .claimable = msg_local_claimable,
    .settle = msg_local_settle,
    .update = msg_local_update,
    .remove = msg_local_remove,
    .purge = msg_local_purge,
    .redrive = msg_local_redrive,
    .topics = msg_local_topics,
    .queues = msg_local_queues,
    .presence_put = msg_local_presence_put,
    .presence_list = msg_local_presence_list,
    .presence_withdraw = msg_local_presence_withdraw,
    .lanes = msg_local_lanes,
    .lane_drop = msg_local_lane_drop,
    .deadline = msg_local_deadline,
    .describe = msg_local_describe,
    .watch_next = msg_local_watch_next,
    .watch_wake = msg_local_watch_wake,
    .watch_mute = msg_local_watch_mute,
    .watch_info = msg_local_watch_info,
    .watch_close = msg_local_watch_close,
};
