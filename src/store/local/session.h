/* session.h - one thread's handle on one queue of a file: statements, busy handling, transactions.
 * Private to store/local. Everything here runs on the session's thread. */
#ifndef MSG_LOCAL_SESSION_H
#define MSG_LOCAL_SESSION_H

#include "base/thread.h"
#include "store/local/habits.h"
#include "store/local/host.h"
#include "store/local/schema.h"

/* Statements of the hot verbs, kept between calls. One slot a text; released by session_release. */
enum { MSG_LOCAL_SLOTS = 128 };

typedef struct msg_local_store msg_local_store;

typedef struct msg_local_session {
  msg_session base;
  /* immutable after open */
  msg_local_store *store;
  sqlite3 *db; /* the lent host, or our own connection */
  bool own;
  char *schema;     /* schema name as SQL identifier, quoted: "main" */
  char *schema_raw; /* unquoted, for sqlite3_txn_state */
  char *queue;
  int64_t busy_timeout_ms;
  int64_t participant_timeout_ms; /* from the settings of session_open */
  /* owner thread only */
  msg_host *host; /* whose connection is lent, or for whom the own one acts; NULL: nobody */
  msg_local_habits habits; /* own */
  bool claiming;           /* what is written is a claim */
  sqlite3_stmt *slot[MSG_LOCAL_SLOTS];
  bool slot_busy[MSG_LOCAL_SLOTS];
  const char *slot_sql[MSG_LOCAL_SLOTS];
  size_t slot_last, slots_busy;  /* checked out last; how many are */
  sqlite3_stmt *newest, *oldest; /* most of the kept, as SQLite lists them one behind the other;
                                    NULL: to be found */
  bool schema_known;   /* the schema was seen current; cleared by release and by "no such table" */
  const char *what;    /* the verb going on, for error texts; static */
  bool vanished;       /* set by msg_local_fail: "no such table" of ours */
  int64_t swept_at_ms; /* last look of sweep; 0 never */
  int64_t sweep_pause_ms;     /* no look for so long after it, unless forced */
  int64_t liveness_at_ms;     /* last look at the processes of claims; 0 never */
  int swept;                  /* rows the last sweep moved */
  bool claim_dry, claim_wide; /* hints: the last claim found nothing; found messages with expiry or
                                 recipients */
  int64_t marks_left;         /* seen: marks until the next compaction of floors; 0 at first */
  int compactions;
  struct msg_local_horizon
      *horizon; /* horizon.h: how far there is nothing new, by node and pattern */
  size_t horizons;
} msg_local_session;

/* ---- statements ---- */

/** A statement for `sql`, whose every "@" is the quoted schema (string literals must hold no '@').
 * sql must be a string literal: its address is the key of the slot. Checked out until
 * msg_local_done; a second user of the same text gets one of its own. Errors: as msg_local_fail. */
int msg_local_stmt(msg_local_session *s, const char *sql, sqlite3_stmt **out, msg_err *err);
/** Keep a statement of `sql` that will run as it is: SQLite does not compile it anew, which fails
 *  for want of memory or while an interrupt is pending. */
int msg_local_ready(msg_local_session *s, const char *sql, msg_err *err);
/** Set s->newest and s->oldest. SQLite lists what is compiled first or last, so that what stands
 *  together stays together until the kept ones change. */
void msg_local_find_kept(msg_local_session *s);
/** Reset (clearing bindings) and give back. NULL allowed. */
void msg_local_done(msg_local_session *s, sqlite3_stmt *stmt);
/** Step: MSG_OK with *row. Errors: as msg_local_fail. */
int msg_local_step(msg_local_session *s, sqlite3_stmt *stmt, bool *row, msg_err *err);
/** Step a statement that gives no row, and give it back whatever happens. */
int msg_local_run(msg_local_session *s, sqlite3_stmt *stmt, msg_err *err);
/** msg_local_fail without a session. `place`: file or schema, for the text. */
int msg_local_error(sqlite3 *db, const char *schema, const char *place, int sqlite_rc,
                    const char *what, msg_err *err);
/** Locks, and a file that needs a writer before it can be read, pass by. */
bool msg_local_passes(int sqlite_rc);
/** Map the connection's error: NOMEM, INTERRUPTED, BUSY (BUSY_SNAPSHOT: text with the cure; retry
 * false), READONLY, IO (FULL), CORRUPT, AUTH, TOOBIG, else BACKEND; err->native is the extended
 * code. `what` begins the text: "send", "claim", ... */
int msg_local_fail(msg_local_session *s, int sqlite_rc, const char *what, msg_err *err);

/* ---- binding ---- */
int msg_local_bind_text(sqlite3_stmt *stmt, int i,
                        const char *s); /* NULL binds NULL; SQLITE_STATIC */
int msg_local_bind_oid(sqlite3_stmt *stmt, int i, const msg_oid *id,
                       char hex[MSG_OID_HEX + 1]); /* hex: storage until reset */
int msg_local_bind_value(sqlite3_stmt *stmt, int i, const msg_value *v);
char *msg_local_column_dup(sqlite3_stmt *stmt, int i, bool *nomem); /* NULL for NULL */

/* ---- reading ---- */
/** For reading verbs: *exists false when the schema holds no store (then there is nothing to read).
 * Always asks: the host may have rolled the schema back. */
int msg_local_readable(msg_local_session *s, bool *exists, msg_err *err);
/** What is there? By a kept statement. Errors: as msg_schema_judge. */
int msg_local_schema_state(msg_local_session *s, enum msg_schema_state *out, msg_err *err);
/** Runs once or more: each run starts anew (drops what an earlier one gathered) and gives every
 * statement back. */
typedef int (*msg_local_work)(msg_local_session *s, void *arg, msg_err *err);
/** The host asks to stop. */
bool msg_local_interrupted(const msg_local_session *s);

/* ---- writing ---- */
/** Run `work` as one atomic write: makes the schema if missing. `many`: more than one statement, or
 * one that does not write at once: wrapped in a savepoint where SQLite allows one, and the write
 * lock is taken first (never read-then-upgrade). On failure nothing of it stays (where a savepoint
 * was refused because a host statement is writing, the error aborts that statement). A plain BUSY
 * is retried in interruptible slices of at most 50 ms up to busy_timeout_ms while sqlite3_txn_state
 * was NONE; BUSY_SNAPSHOT at state NONE is retried likewise. A vanished schema (rolled back) is
 * made again, once. */
int msg_local_write(msg_local_session *s, const char *what, bool many, msg_local_work work,
                    void *arg, msg_err *err);
/** Does what is read now stay as it is until the host's transaction or writing statement ends? Then
 * the write lock must come before the first read. */
bool msg_local_pinned(msg_local_session *s);
/** For verbs that read before they write: inside BEGIN take the write lock now. Nothing in
 * autocommit. */
int msg_local_lock(msg_local_session *s, const char *what, msg_err *err);
/** The same without waiting for a lock. */
int msg_local_try_write(msg_local_session *s, const char *what, bool many, msg_local_work work,
                        void *arg, msg_err *err);

/* ---- sweep.c ---- */
/** Promote, return, bury or remove at most 256 rows that are due at `now` (all queues): delays
 * over, leases over, owners' processes gone, lives over, keys forgotten. Looks first, with indexes
 * only; writes only if something is due: in autocommit a write of its own; inside BEGIN only if the
 * transaction holds the write lock already, else it does nothing. Looks at most once in 5 ms (and
 * so that it takes a fifth of the time) unless `force`; only then it waits for a lock. So a verb
 * that came back with less than it may have must force a look before it says so. A store that is
 * locked or read-only is no error. *backlog: due rows stayed behind. s->swept: rows it moved. */
int msg_local_sweep(msg_local_session *s, const msg_actor *actor, int64_t now_ms, bool force,
                    bool *backlog, msg_err *err);
/** Is anything due that a sweep would move? Reads only; looks at owners' processes. */
int msg_local_sweep_due(msg_local_session *s, int64_t now_ms, bool *due, msg_err *err);

/* ---- row.c ---- */
/* SQL: of the claim of a row of msg_store_message AS m. */
#define MSG_LOCAL_HELD(column)                                                                     \
  "CASE WHEN m.state = 1 OR m.state = 6 THEN " MSG_LOCAL_CLAIM(column, "m.seq") " END"
/** Columns of msg_store_message in the order msg_local_read_row expects; use as "SELECT "
 * MSG_LOCAL_COLUMNS " FROM @.msg_store_message AS m ...". */
#define MSG_LOCAL_COLUMNS                                                                          \
  MSG_LOCAL_COLUMNS_OF(MSG_LOCAL_HELD("lease"),                                                    \
                       "coalesce(" MSG_LOCAL_HELD("attempts") ", attempts)")
/** The same of a message that nobody holds. */
#define MSG_LOCAL_FREE_COLUMNS MSG_LOCAL_COLUMNS_OF("NULL", "attempts")
#define MSG_LOCAL_COLUMNS_OF(lease, attempts)                                                      \
  "seq, id, topic, state, priority, deliver_at, " lease ", delete_at, " attempts ", grp, sender,"  \
  " sender_host, exclusive, timestamp, ttl, timing_out, delete_after, in_answer_to,"               \
  " CASE WHEN recipients IS NOT NULL THEN"                                                         \
  " (SELECT group_concat(value, char(10)) FROM json_each(recipients)) END,"                        \
  " msg, value, json, map, additional, key, reason"
/** Read one row (statement positioned on it) into *out, which it initialises. state is as shown at
 * `now`: ready when its delay is over, expired when delete_at <= now and not claimed; processed_by
 * stays NULL, and so does what its lease says (lease.h). Errors: MSG_NOMEM; MSG_CORRUPT a stored id
 * or state that cannot be. */
int msg_local_read_row(sqlite3_stmt *stmt, int64_t now_ms, msg_message *out, msg_err *err);

/** The same into *out, which is initialised, for what a brief claim (store/types.h) shows of a
 * READY message; topic: its own, lent. */
#define MSG_LOCAL_BRIEF_COLUMNS                                                                    \
  "seq, id, priority, deliver_at, attempts, timestamp, msg, value, json"
int msg_local_read_brief(sqlite3_stmt *stmt, char *topic, msg_message *out, msg_err *err);

#endif
