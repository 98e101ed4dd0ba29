/* upcoming.c - see upcoming.h. */
#include "store/local/upcoming.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/process.h"
#include "base/str.h"
#include "store/local/lease.h"
#include "store/local/session.h"
#include "store/types.h"

#define LIVENESS_MS 250

#define OF(index) " FROM msg_store_message INDEXED BY msg_store_message_" index " WHERE "

/* Deadlines after ?1, of leases from number ?2 on, and the holders of leases, if there are any.
 * Lives matter where somebody waits behind them. */
/* clang-format off */
static const char sql_due[] =
    "SELECT NULL, (SELECT min(due)" OF("delayed") "state = 4 AND due > ?1)"
    " UNION ALL SELECT NULL, (SELECT min(delete_at)" OF("expiry")
    "delete_at IS NOT NULL AND state <> 6 AND delete_at > ?1)"
    "  WHERE (SELECT 1" OF("grp") "grp IS NOT NULL AND state <> 7 LIMIT 1)"
    " UNION ALL SELECT NULL, "
      MSG_LOCAL_LEASE_END("(SELECT min(seq) FROM msg_store_claim WHERE seq >= ?2 AND seq < 0)")
    " UNION ALL SELECT process, NULL FROM msg_store_holder"
    "  WHERE " MSG_LOCAL_FIRST_LEASE("msg_store_claim") " NOT NULL";
/* clang-format on */

void msg_local_upcoming_init(msg_local_upcoming *u) {
  memset(u, 0, sizeof *u);
  u->due_ms = MSG_NEVER;
  u->passed_ms = INT64_MIN;
}

void msg_local_upcoming_clear(msg_local_upcoming *u) {
  sqlite3_finalize(u->stmt);
  for (size_t i = 0; i < u->holders; i++)
    msg_free(u->holder[i].process);
}

/* ---- reading ---- */

static int holder_add(msg_local_upcoming *u, const char *process, msg_err *err) {
  for (size_t i = 0; i < u->holders; i++)
    if (strcmp(u->holder[i].process, process) == 0) {
      u->holder[i].current = true;
      return MSG_OK;
    }
  if (u->holders == MSG_LOCAL_HOLDERS_MAX || strcmp(process, msg_process_self()) == 0)
    return MSG_OK;
  char *copy = msg_strdup(process);
  if (!copy)
    return msg_err_nomem(err);
  u->holder[u->holders++] = (msg_local_holder){.process = copy, .current = true};
  return MSG_OK;
}

static void holders_trim(msg_local_upcoming *u) {
  size_t n = 0;
  for (size_t i = 0; i < u->holders; i++)
    if (u->holder[i].current)
      u->holder[n++] = u->holder[i];
    else
      msg_free(u->holder[i].process);
  u->holders = n;
}

static int fail(sqlite3 *db, const char *path, int sqlite_rc, msg_err *err) {
  return msg_local_error(db, "main", msg_show(path).s, sqlite_rc, "watch", err);
}

static int due_rows(msg_local_upcoming *u, sqlite3 *db, const char *path, int64_t *due_ms,
                    msg_err *err) {
  int step, rc = MSG_OK;
  sqlite3_bind_int64(u->stmt, 1, u->passed_ms);
  sqlite3_bind_int64(u->stmt, 2, msg_local_lease_after(u->passed_ms));
  while (rc == MSG_OK && (step = sqlite3_step(u->stmt)) == SQLITE_ROW) {
    const char *process = (const char *)sqlite3_column_text(u->stmt, 0);
    if (process)
      rc = holder_add(u, process, err);
    if (sqlite3_column_type(u->stmt, 1) != SQLITE_NULL &&
        sqlite3_column_int64(u->stmt, 1) < *due_ms)
      *due_ms = sqlite3_column_int64(u->stmt, 1);
  }
  int end = sqlite3_reset(u->stmt);
  if (rc != MSG_OK)
    return rc;
  u->stale = end != SQLITE_OK;
  if (end == SQLITE_ERROR) { /* the tables are gone */
    sqlite3_finalize(u->stmt);
    u->stmt = NULL;
    u->stale = false;
    return MSG_OK;
  }
  return end == SQLITE_OK || msg_local_passes(end) ? MSG_OK : fail(db, path, end, err);
}

int msg_local_upcoming_read(msg_local_upcoming *u, sqlite3 *db, const char *path, msg_err *err) {
  int64_t due_ms = MSG_NEVER;
  if (!u->stmt) {
    int rc = sqlite3_prepare_v3(db, sql_due, -1, SQLITE_PREPARE_PERSISTENT, &u->stmt, NULL);
    u->stale = rc != SQLITE_OK && rc != SQLITE_ERROR; /* ERROR: no store here yet */
    if (rc != SQLITE_OK)
      return rc == SQLITE_ERROR || msg_local_passes(rc) ? MSG_OK : fail(db, path, rc, err);
  }
  for (size_t i = 0; i < u->holders; i++)
    u->holder[i].current = false;
  int rc = due_rows(u, db, path, &due_ms, err);
  if (rc == MSG_OK && !u->stale) {
    u->due_ms = due_ms;
    holders_trim(u);
  }
  return rc;
}

/* ---- what the clocks say ---- */

/* True when the process of a claim's owner has ended since the last look. */
static bool bereaved(msg_local_upcoming *u) {
  bool any = false;
  for (size_t i = 0; i < u->holders; i++) {
    msg_local_holder *h = &u->holder[i];
    if (h->dead || msg_process_liveness(h->process) != MSG_DEAD)
      continue;
    h->dead = any = true;
  }
  return any;
}

static bool any_alive(const msg_local_upcoming *u) {
  for (size_t i = 0; i < u->holders; i++)
    if (!u->holder[i].dead)
      return true;
  return false;
}

bool msg_local_upcoming_came(msg_local_upcoming *u, int64_t now_mono_ms) {
  int64_t wall_ms = msg_clock_now_ms();
  bool changed = false;
  if (u->due_ms <= wall_ms || wall_ms < u->passed_ms) { /* or the clock was set back */
    u->passed_ms = wall_ms;
    changed = true;
  }
  if (u->holders && now_mono_ms >= u->liveness_ms) {
    u->liveness_ms = now_mono_ms + LIVENESS_MS;
    changed = bereaved(u) || changed;
  }
  return changed;
}

int64_t msg_local_upcoming_wait_ms(const msg_local_upcoming *u, int64_t now_mono_ms) {
  int64_t wait_ms = any_alive(u) ? u->liveness_ms - now_mono_ms : MSG_NEVER;
  int64_t left_ms = u->due_ms == MSG_NEVER ? MSG_NEVER : u->due_ms - msg_clock_now_ms();
  if (left_ms < wait_ms)
    wait_ms = left_ms;
  return wait_ms < 0 ? 0 : wait_ms;
}
