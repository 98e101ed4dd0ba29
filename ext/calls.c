#include "ext/calls.h"

#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "ext/aside.h"
#include "ext/batch.h"
#include "ext/beside.h"
#include "ext/state.h"

/* ---- undone by a ROLLBACK ---- */

/* The store did not roll them back: that is done here. */
static void give_back(const msg_batch *b) {
  msg_opened *o = b->opened;
  msg_settings settings;
  msg_actor actor;
  msg_settle how = {.verb = MSG_SETTLE_RELEASE};
  msg_settle_item *items = msg_zalloc(b->n * sizeof *items);
  if (items && msg_opened_actor(o, &settings, &actor, NULL) == MSG_OK) {
    for (size_t i = 0; i < b->n; i++)
      items[i].id = b->ids[i];
    msg_node_count(o->node, MSG_STAT_UNDONE, (int64_t)b->n);
    msg_node_count(o->node, MSG_STAT_STORE_CALLS, 1);
    o->session->ops->settle(o->session, &actor, &how, items, b->n, NULL); /* else the lease ends */
    msg_settings_clear(&settings);
  }
  msg_free(items);
}

static void claims_undone(const msg_batch *b) {
  if (!(b->store->ops->caps(b->store) & MSG_CAP_HOST_TXN)) {
    if (b->opened)
      give_back(b);
  } else if (b->opened) {
    msg_node_undone(b->opened->node, b->ids, b->n);
  } else {
    b->store->ops->claims_undone(b->store, b->ids, b->n);
  }
}

static void announcement_undone(const msg_batch *b) {
  if (b->opened)
    b->opened->announced = false;
}

/* What the engine remembers of the node may be wrong. */
static void change_undone(const msg_batch *b) {
  if (b->opened)
    msg_node_forget(b->opened->node);
}

/* ---- where a verb runs ---- */

/* Is what the node's session just did part of a transaction that the host may roll back? */
static bool in_host_transaction(msg_connection *c, const msg_opened *o) {
  if (o->schema)
    return sqlite3_txn_state(c->db, o->schema) == SQLITE_TXN_WRITE;
  return msg_batch_wanted(c, o);
}

/* Is a reading statement of the host active? While one is, SQLite keeps every read transaction open
 * that a nested statement starts, in whatever schema. Asked of temp, where that does no harm. */
static int host_reads(msg_connection *c, bool *out, msg_err *err) {
  sqlite3_stmt *stmt;
  int rc = MSG_OK;
  *out = sqlite3_txn_state(c->db, "temp") > SQLITE_TXN_NONE;
  if (*out)
    return MSG_OK;
  rc = msg_nested_take(c, MSG_NESTED_TEMP, &stmt, err);
  if (rc != MSG_OK)
    return rc;
  int step = sqlite3_step(stmt);
  msg_nested_give(c, stmt);
  if (step != SQLITE_ROW && step != SQLITE_DONE)
    return msg_sqlite_fail(c->db, step, "nested statement", err);
  *out = sqlite3_txn_state(c->db, "temp") > SQLITE_TXN_NONE;
  return MSG_OK;
}

static bool waits(enum msg_call_kind kind) {
  return kind == MSG_CALL_WAIT || kind == MSG_CALL_REQUEST;
}

/* On the host it would wait in vain, in a snapshot; a connection of our own has no authorizer. */
static int may_not_wait(const msg_opened *o, msg_err *err) {
  return msg_err_set(err, MSG_AUTH,
                     "schema %s: the host's authorizer forbids something of the msg_store tables, "
                     "so that no connection beside yours may look: wait outside BEGIN by the "
                     "scalar form, or allow them",
                     msg_show(o->schema).s);
}

/* Look by a connection of our own, take on the host. Without one: a host that may not write is told
 * so by its own session; in a database without a file, or locked for good, only deadlines change
 * anything, and the session sees those; but a request inside BEGIN needs somebody else's commit. */
static int look_aside(msg_connection *c, msg_opened *o, enum msg_call_kind kind, msg_call *call,
                      msg_err *err) {
  if (!o->all_rights && waits(kind))
    return may_not_wait(o, err);
  if (!msg_aside_allowed(o))
    return MSG_OK;
  int rc = msg_aside_open(c, o, err);
  if (rc != MSG_OK)
    return rc;
  call->aside = o->aside;
  bool begun = !sqlite3_get_autocommit(c->db);
  call->blind = !o->aside && (o->aside_refused || (begun && kind == MSG_CALL_REQUEST));
  return MSG_OK;
}

/* A SELECT of the host reads the messages' own schema. With WAL its snapshot grows old, but others
 * commit; with a rollback journal nobody can while it reads. */
static int wait_while_reading(msg_connection *c, msg_opened *o, enum msg_call_kind kind,
                              msg_call *call, msg_err *err) {
  char mode[16];
  int rc = msg_aside_pragma(c, o, "journal_mode", mode, sizeof mode, err);
  if (rc != MSG_OK)
    return rc;
  if (strcmp(mode, "wal") == 0)
    rc = look_aside(c, o, kind, call, err);
  else
    call->blind = strcmp(mode, "memory") != 0;
  return rc;
}

/* Inside BEGIN. One that looks once does so beside it too: a look that finds nothing shall not take
 * the write lock, or fix a snapshot in which the next finds nothing either. */
static int call_begun(msg_connection *c, msg_opened *o, enum msg_call_kind kind, msg_call *call,
                      msg_err *err) {
  if (kind == MSG_CALL_WRITE)
    return MSG_OK;
  if (sqlite3_txn_state(c->db, o->schema) == SQLITE_TXN_NONE)
    return look_aside(c, o, kind, call, err);
  call->blind = true;
  return MSG_OK;
}

/* A statement of the host reads something else meanwhile, so that whatever is read of the messages
 * would stay as it is until that statement ends. All of the verb is done beside it, and commits at
 * once as it would here. Not if the host's statement writes: then the verb is part of it. */
static int call_while_reading_elsewhere(msg_connection *c, msg_opened *o, enum msg_call_kind kind,
                                        msg_call *call, msg_err *err) {
  if (msg_aside_host_writes(c, o))
    return waits(kind) ? look_aside(c, o, kind, call, err) : MSG_OK;
  int rc = look_aside(c, o, kind, call, err);
  if (rc != MSG_OK || !call->aside)
    return rc;
  call->session = call->aside;
  call->aside = NULL;
  return MSG_OK;
}

/* In autocommit. */
static int call_in_autocommit(msg_connection *c, msg_opened *o, enum msg_call_kind kind,
                              msg_call *call, msg_err *err) {
  bool reads;
  int state = sqlite3_txn_state(c->db, o->schema);
  call->session = msg_beside_session(c, o);
  if (!call->session)
    return msg_err_nomem(err);
  if (kind == MSG_CALL_WRITE)
    return MSG_OK;
  if (state == SQLITE_TXN_WRITE) {
    call->blind = waits(kind);
    return MSG_OK;
  }
  if (state == SQLITE_TXN_READ)
    return waits(kind) ? wait_while_reading(c, o, kind, call, err) : MSG_OK;
  int rc = host_reads(c, &reads, err);
  return rc == MSG_OK && reads ? call_while_reading_elsewhere(c, o, kind, call, err) : rc;
}

/* What the verb will meet too is its own to report; but it shall not wait for a lock twice. */
static int announce(msg_connection *c, msg_opened *o, const msg_call *call, msg_err *err) {
  msg_err own = MSG_ERR_INIT;
  msg_call quiet = *call;
  if (quiet.aside)
    quiet.session = quiet.aside;
  quiet.aside = NULL;
  int rc = msg_node_announce(o->node, &quiet, &own);
  if (rc == MSG_OK) {
    o->announced = true;
    if (o->schema && quiet.session != o->aside && in_host_transaction(c, o))
      rc = msg_outbox_enter(c, o, announcement_undone, NULL, 0, &own);
  }
  if (rc != MSG_NOMEM && rc != MSG_INTERRUPTED && rc != MSG_BUSY && o->schema)
    return MSG_OK;
  if (err)
    *err = own;
  return rc;
}

/* Does the authorizer let us do what we say we do? What was kept under one that does not goes with
 * it: SQLite keeps it even when the authorizer is taken away. */
int msg_connection_rights(msg_connection *c, msg_opened *o, msg_err *err) {
  if (!o->adapter->rights)
    return MSG_OK;
  int rc = o->adapter->rights(o, err);
  if (rc == MSG_AUTH) {
    o->announced = false;
    msg_connection_drop_kept(c);
  }
  return rc == MSG_BUSY ? MSG_OK : rc; /* a locked schema is the verb's own to wait for */
}

/* Through SQLite's own log: an extension has no terminal. */
static void warn(const char *text) {
  sqlite3_log(SQLITE_WARNING, "msg: %s", text);
}

static void pass_warnings(msg_opened *o) {
  char text[256];
  while (o->session->ops->warning && o->session->ops->warning(o->session, text, sizeof text))
    warn(text);
}

/* Where the verb runs. */
static int place(msg_connection *c, msg_opened *o, enum msg_call_kind kind, msg_call *call,
                 msg_err *err) {
  *call = (msg_call){
      .session = o->session, .interrupted = msg_nested_interrupted, .arg = c, .warn = warn};
  if (!o->schema || kind == MSG_CALL_READ)
    return MSG_OK;
  return sqlite3_get_autocommit(c->db) ? call_in_autocommit(c, o, kind, call, err)
                                       : call_begun(c, o, kind, call, err);
}

/* The tables have been made meanwhile: now the authorizer can be asked about them. */
static int place_again(msg_connection *c, msg_opened *o, enum msg_call_kind kind, msg_call *call,
                       msg_err *err) {
  int rc = msg_connection_rights(c, o, err);
  bool beside = call->aside || (o->aside && call->session == o->aside);
  return rc == MSG_OK && beside && !o->all_rights ? place(c, o, kind, call, err) : rc;
}

int msg_connection_call(msg_connection *c, msg_opened *o, enum msg_call_kind kind, msg_call *out,
                        msg_err *err) {
  msg_call call;
  msg_aside_yield(c);
  int rc = msg_connection_rights(c, o, err);
  if (rc != MSG_OK)
    return rc;
  if ((waits(kind) || (kind != MSG_CALL_READ && !o->schema)) && !o->attached &&
      !msg_aside_exclusive(c, o)) {
    msg_node_attach(o->node);
    o->attached = true;
  }
  rc = place(c, o, kind, &call, err);
  if (rc == MSG_OK && kind != MSG_CALL_READ && !call.blind && !o->announced)
    rc = announce(c, o, &call, err);
  pass_warnings(o);
  if (rc == MSG_OK && kind == MSG_CALL_WRITE && msg_batch_wanted(c, o)) {
    call.writes = msg_batch_session(c, o);
    rc = call.writes ? MSG_OK : msg_err_nomem(err);
  }
  if (rc == MSG_OK && o->adapter->rights && !o->rights_known)
    rc = place_again(c, o, kind, &call, err);
  if (rc == MSG_OK)
    *out = call;
  return rc;
}

int msg_connection_claimed(msg_connection *c, msg_opened *o, const msg_list *list, msg_err *err) {
  if (list->n == 0 || !in_host_transaction(c, o))
    return MSG_OK;
  msg_oid *ids = msg_alloc(list->n * sizeof *ids);
  if (!ids)
    return msg_err_nomem(err);
  for (size_t i = 0; i < list->n; i++)
    ids[i] = list->at[i].id;
  int rc = msg_outbox_enter(c, o, claims_undone, ids, list->n, err);
  msg_free(ids);
  return rc;
}

int msg_connection_changed(msg_connection *c, msg_opened *o, msg_err *err) {
  if (!o->schema || !in_host_transaction(c, o))
    return MSG_OK;
  return msg_outbox_enter(c, o, change_undone, NULL, 0, err);
}

int msg_connection_await(msg_connection *c, msg_opened *o, msg_call *call, const char *pattern,
                         int64_t timeout_ms, size_t max, msg_list *out, msg_err *err) {
  int rc = msg_node_await(o->node, call, pattern, timeout_ms, max, out, err);
  if (rc != MSG_OK && rc != MSG_TIMEOUT)
    return rc;
  int noted = msg_connection_changed(c, o, err);
  return noted == MSG_OK ? rc : noted;
}
