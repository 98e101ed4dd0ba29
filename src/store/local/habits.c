/* habits.c - see habits.h. */
#include "store/local/session.h"

#define UNKNOWN INT64_MIN /* left as it is */
#define NORMAL  1         /* synchronous */
/* From so many pages on the host is asked at each commit; earlier where it checkpoints earlier. */
#define ASK_PAGES 1000

static const char *const NAMES[MSG_LOCAL_HABITS] = {
    [MSG_LOCAL_SYNCHRONOUS] = "synchronous",
    [MSG_LOCAL_WAL_AUTOCHECKPOINT] = "wal_autocheckpoint",
    [MSG_LOCAL_JOURNAL_SIZE_LIMIT] = "journal_size_limit",
    [MSG_LOCAL_FULLFSYNC] = "fullfsync",
    [MSG_LOCAL_CHECKPOINT_FULLFSYNC] = "checkpoint_fullfsync",
};

/* ---- asking ---- */

static int read_habit(msg_local_session *s, enum msg_local_habit i, msg_err *err) {
  sqlite3 *db = s->host->db;
  sqlite3_stmt *stmt = NULL;
  char *sql = sqlite3_mprintf("PRAGMA \"%w\".%s", s->host->schema, NAMES[i]);
  if (!sql)
    return msg_err_nomem(err);
  int rc = sqlite3_prepare_v2(db, sql, -1, &stmt, NULL);
  sqlite3_free(sql);
  if (rc == SQLITE_OK)
    rc = sqlite3_step(stmt);
  if (rc == SQLITE_ROW)
    s->habits.host[i] = sqlite3_column_int64(stmt, 0);
  bool ok = rc == SQLITE_ROW || rc == SQLITE_DONE;
  int failed =
      ok ? MSG_OK : msg_local_error(db, s->host->schema, s->host->schema, rc, s->what, err);
  sqlite3_finalize(stmt);
  return failed;
}

static int set_habit(msg_local_session *s, enum msg_local_habit i, int64_t value, msg_err *err) {
  char sql[64];
  if (value == UNKNOWN || value == s->habits.set[i])
    return MSG_OK;
  sqlite3_snprintf((int)sizeof sql, sql, "PRAGMA main.%s = %lld", NAMES[i], (long long)value);
  int rc = sqlite3_exec(s->db, sql, NULL, NULL, NULL);
  if (rc != SQLITE_OK)
    return msg_local_fail(s, rc, s->what, err);
  s->habits.set[i] = value;
  return MSG_OK;
}

/* How durable a commit is, its write says itself; checkpoints are our own (see after_commit). */
static int ask(msg_local_session *s, msg_err *err) {
  int rc = MSG_OK;
  for (enum msg_local_habit i = 0; rc == MSG_OK && i < MSG_LOCAL_HABITS; i++) {
    rc = read_habit(s, i, err);
    if (rc == MSG_OK && i != MSG_LOCAL_SYNCHRONOUS && i != MSG_LOCAL_WAL_AUTOCHECKPOINT)
      rc = set_habit(s, i, s->habits.host[i], err);
  }
  return rc;
}

/* ---- checkpoints ---- */

/* In WAL mode only, which nobody can leave while this connection has the file open. The host's word
 * counts when a checkpoint is due, not an older one. */
static int after_commit(void *session, sqlite3 *db, const char *schema, int pages) {
  msg_local_session *s = session;
  const int64_t *due = &s->habits.host[MSG_LOCAL_WAL_AUTOCHECKPOINT];
  s->habits.wal = true;
  if (s->host && pages >= (*due > 0 && *due < ASK_PAGES ? *due : ASK_PAGES) &&
      ask(s, NULL) == MSG_OK && *due > 0 && pages >= *due)
    sqlite3_wal_checkpoint_v2(db, schema, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
  return SQLITE_OK;
}

/* ---- life ---- */

int msg_local_habits_init(msg_local_session *s, msg_err *err) {
  for (int i = 0; i < MSG_LOCAL_HABITS; i++)
    s->habits.host[i] = s->habits.set[i] = UNKNOWN;
  sqlite3_wal_hook(s->db, after_commit, s); /* in place of SQLite's own checkpoints */
  int rc = sqlite3_exec(s->db, "PRAGMA secure_delete = 1", NULL, NULL, NULL);
  return rc == SQLITE_OK ? MSG_OK : msg_local_fail(s, rc, "open", err);
}

void msg_local_act_for(msg_session *own, msg_host *host) {
  ((msg_local_session *)own)->host = host;
}

int msg_local_habits_keep(msg_local_session *s, msg_err *err) {
  if (!s->host)
    return MSG_OK;
  if (s->claiming && s->habits.wal)
    return set_habit(s, MSG_LOCAL_SYNCHRONOUS, NORMAL, err);
  int rc = ask(s, err);
  return rc == MSG_OK
             ? set_habit(s, MSG_LOCAL_SYNCHRONOUS, s->habits.host[MSG_LOCAL_SYNCHRONOUS], err)
             : rc;
}
