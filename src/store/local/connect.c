/* connect.c - connections of our own on the store's file. */
#include "base/str.h"
#include "store/local/local.h"

int msg_local_connect(msg_local_store *store, bool writable, sqlite3 **out, msg_err *err) {
  if (!store->path[0])
    return msg_err_set(err, MSG_UNSUPPORTED,
                       "a database in memory has one connection only: use a file");
  int flags = SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE |
              (writable ? SQLITE_OPEN_READWRITE : SQLITE_OPEN_READONLY);
  sqlite3 *db = NULL;
  int rc = sqlite3_open_v2(store->path, &db, flags, store->vfs[0] ? store->vfs : NULL);
  if (rc == SQLITE_OK) {
    sqlite3_busy_timeout(db, 0);
    *out = db;
    return MSG_OK;
  }
  int result = db ? msg_local_error(db, "main", msg_show(store->path).s, rc, "open", err)
                  : msg_err_nomem(err);
  sqlite3_close_v2(db);
  return result;
}
