#include "ext/beside.h"

#include "base/mem.h"
#include "ext/aside.h"

typedef struct msg_beside beside;

/* Where the verb runs now. */
static msg_session *target(const msg_session *s) {
  const beside *b = (const beside *)s;
  return b->stepped && b->o->aside ? b->o->aside : b->o->session;
}

/* Shall a verb that failed so be run again, beside the host? Nothing of it was written. */
static bool step(msg_session *s, int rc, const msg_err *err) {
  beside *b = (beside *)s;
  sqlite3 *db = msg_connection_db(b->c);
  if (rc != MSG_BUSY || target(s) != b->o->session || err->domain != MSG_DOMAIN_SQLITE ||
      !sqlite3_get_autocommit(db) || sqlite3_txn_state(db, b->o->schema) != SQLITE_TXN_READ ||
      msg_aside_host_writes(b->c, b->o) || !msg_aside_would_help(b->c, b->o) ||
      !msg_aside_allowed(b->o) || msg_aside_open(b->c, b->o, NULL) != MSG_OK || !b->o->aside)
    return false;
  b->stepped = true;
  return true;
}

/* A verb that writes; `err` may be NULL, but the code in it decides. */
#define STEPPING(verb, ...)                                                                        \
  msg_err own, *e = err ? err : &own;                                                              \
  msg_err_init(&own);                                                                              \
  int rc = target(s)->ops->verb(target(s), __VA_ARGS__, e);                                        \
  return step(s, rc, e) ? target(s)->ops->verb(target(s), __VA_ARGS__, e) : rc

static int lock(msg_session *s, msg_err *err) {
  return target(s)->ops->lock(target(s), err);
}

static int put(msg_session *s, const msg_actor *a, msg_put *items, size_t n, msg_err *err) {
  STEPPING(put, a, items, n);
}

static int listen(msg_session *s, const msg_actor *a, const char *pattern, bool catch_up,
                  msg_err *err) {
  STEPPING(listen, a, pattern, catch_up);
}

static int unlisten(msg_session *s, const msg_actor *a, const char *pattern, msg_err *err) {
  STEPPING(unlisten, a, pattern);
}

static int seen(msg_session *s, const msg_actor *a, const msg_list *list, bool *won, msg_err *err) {
  STEPPING(seen, a, list, won);
}

static int claim(msg_session *s, const msg_actor *a, const msg_claim *c, msg_list *out,
                 msg_err *err) {
  STEPPING(claim, a, c, out);
}

static int settle(msg_session *s, const msg_actor *a, const msg_settle *how, msg_settle_item *items,
                  size_t n, msg_err *err) {
  STEPPING(settle, a, how, items, n);
}

static int update(msg_session *s, const msg_actor *a, const msg_oid *id, const msg_update *u,
                  msg_err *err) {
  STEPPING(update, a, id, u);
}

static int remove_message(msg_session *s, const msg_actor *a, const msg_oid *id, msg_err *err) {
  STEPPING(remove, a, id);
}

static int purge(msg_session *s, const msg_actor *a, const msg_pattern *p, int64_t *count,
                 msg_err *err) {
  STEPPING(purge, a, p, count);
}

static int redrive(msg_session *s, const msg_actor *a, const msg_pattern *p, int64_t *count,
                   msg_err *err) {
  STEPPING(redrive, a, p, count);
}

static int presence_put(msg_session *s, const msg_participant *p, msg_err *err) {
  STEPPING(presence_put, p);
}

static int presence_withdraw(msg_session *s, const char *node, bool only_dead, msg_err *err) {
  STEPPING(presence_withdraw, node, only_dead);
}

static int lane_drop(msg_session *s, const char *lane, msg_err *err) {
  STEPPING(lane_drop, lane);
}

/* --- reading: wherever the session stands -------------------------------------------------- */

static int find(msg_session *s, const msg_filter *f, msg_find **out, msg_err *err) {
  return target(s)->ops->find(target(s), f, out, err);
}

static int get(msg_session *s, const msg_oid *id, msg_message *out, msg_err *err) {
  return target(s)->ops->get(target(s), id, out, err);
}

static int listeners(msg_session *s, msg_listener_fn fn, void *arg, msg_err *err) {
  return target(s)->ops->listeners(target(s), fn, arg, err);
}

static int unseen(msg_session *s, const msg_actor *a, const msg_unseen *u, msg_list *out,
                  msg_err *err) {
  return target(s)->ops->unseen(target(s), a, u, out, err);
}

static int claimable(msg_session *s, const msg_actor *a, const msg_claim *c, bool *out,
                     msg_err *err) {
  return target(s)->ops->claimable(target(s), a, c, out, err);
}

static int topics(msg_session *s, msg_count_fn fn, void *arg, msg_err *err) {
  return target(s)->ops->topics(target(s), fn, arg, err);
}

static int queues(msg_session *s, msg_count_fn fn, void *arg, msg_err *err) {
  return target(s)->ops->queues(target(s), fn, arg, err);
}

static int presence_list(msg_session *s, msg_participant_fn fn, void *arg, msg_err *err) {
  return target(s)->ops->presence_list(target(s), fn, arg, err);
}

static int lanes(msg_session *s, msg_lane_fn fn, void *arg, msg_err *err) {
  return target(s)->ops->lanes(target(s), fn, arg, err);
}

static int deadline(msg_session *s, int64_t *at_ms, msg_err *err) {
  return target(s)->ops->deadline(target(s), at_ms, err);
}

static int describe(msg_session *s, msg_describe_fn fn, void *arg, msg_err *err) {
  return target(s)->ops->describe(target(s), fn, arg, err);
}

/* Opened, released and closed as the sessions behind it; what find gives is theirs, too. */
static const struct msg_store_ops OPS = {
    .lock = lock,
    .put = put,
    .find = find,
    .get = get,
    .listen = listen,
    .unlisten = unlisten,
    .listeners = listeners,
    .unseen = unseen,
    .seen = seen,
    .claim = claim,
    .claimable = claimable,
    .settle = settle,
    .update = update,
    .remove = remove_message,
    .purge = purge,
    .redrive = redrive,
    .topics = topics,
    .queues = queues,
    .presence_put = presence_put,
    .presence_list = presence_list,
    .presence_withdraw = presence_withdraw,
    .lanes = lanes,
    .lane_drop = lane_drop,
    .deadline = deadline,
    .describe = describe,
};

msg_session *msg_beside_session(msg_connection *c, msg_opened *o) {
  if (!o->beside) {
    o->beside = msg_zalloc(sizeof *o->beside);
    if (!o->beside)
      return NULL;
    *o->beside = (beside){{&OPS}, c, o, false};
  }
  if (sqlite3_txn_state(msg_connection_db(c), o->schema) != SQLITE_TXN_READ)
    o->beside->stepped = false;
  return &o->beside->base;
}
