#include "store/mongo/transaction.h"

#include "base/clock.h"
#include "store/mongo/regret.h"

#define PAUSE_MAX_MS 32
#define PAUSE_MS     50

static bool is_transient(const bson_error_t *error, const bson_t *reply) {
  return msg_mongo_has_label(reply, "TransientTransactionError") || error->code == 112 ||
         msg_mongo_is_passing(error, reply);
}

int msg_mongo_txn_fail(msg_mongo_txn *t, const char *what, const bson_error_t *error,
                       const bson_t *reply, msg_err *err) {
  t->again = is_transient(error, reply);
  return msg_mongo_fail(t->u->store, what, error, reply, err);
}

int msg_mongo_txn_each(msg_mongo_txn *t, const char *collection, const char *what,
                       const bson_t *filter, const bson_t *opts, msg_mongo_row_fn row, void *arg,
                       msg_err *err) {
  bson_t all = BSON_INITIALIZER;
  bson_error_t error;
  const bson_t *doc, *reply = NULL;
  int rc = MSG_OK;
  bson_concat(&all, &t->opts);
  if (opts)
    bson_concat(&all, opts);
  mongoc_cursor_t *cursor = msg_mongo_query(t->u, collection, filter, &all);
  while (rc == MSG_OK && mongoc_cursor_next(cursor, &doc))
    rc = row(arg, doc, err);
  if (rc == MSG_OK && mongoc_cursor_error_document(cursor, &error, &reply))
    rc = msg_mongo_txn_fail(t, what, &error, reply, err);
  mongoc_cursor_destroy(cursor);
  bson_destroy(&all);
  return rc;
}

int msg_mongo_txn_update(msg_mongo_txn *t, const char *collection, const char *what,
                         const bson_t *filter, const bson_t *change, int64_t *matched,
                         msg_err *err) {
  mongoc_collection_t *c = msg_mongo_collection(t->u, collection);
  bson_error_t error;
  bson_t reply;
  bson_iter_t it;
  int rc = MSG_OK;
  msg_mongo_bound(t->u);
  if (!mongoc_collection_update_many(c, filter, change, &t->opts, &reply, &error))
    rc = msg_mongo_txn_fail(t, what, &error, &reply, err);
  else if (matched)
    *matched = bson_iter_init_find(&it, &reply, "matchedCount") ? bson_iter_as_int64(&it) : 0;
  bson_destroy(&reply);
  mongoc_collection_destroy(c);
  return rc;
}

int msg_mongo_txn_delete(msg_mongo_txn *t, const char *collection, const char *what,
                         const bson_t *filter, msg_err *err) {
  mongoc_collection_t *c = msg_mongo_collection(t->u, collection);
  bson_error_t error;
  bson_t reply;
  int rc = MSG_OK;
  msg_mongo_bound(t->u);
  if (!mongoc_collection_delete_many(c, filter, &t->opts, &reply, &error))
    rc = msg_mongo_txn_fail(t, what, &error, &reply, err);
  bson_destroy(&reply);
  mongoc_collection_destroy(c);
  return rc;
}

/* Until its result is known. */
static int commit(msg_mongo_txn *t, const char *what, msg_err *err) {
  for (;;) {
    bson_error_t error;
    bson_t reply;
    msg_mongo_bound(t->u);
    if (mongoc_client_session_commit_transaction(t->session, &reply, &error)) {
      bson_destroy(&reply);
      return MSG_OK;
    }
    bool unknown = msg_mongo_has_label(&reply, "UnknownTransactionCommitResult");
    int rc = msg_mongo_txn_fail(t, what, &error, &reply, err);
    t->again = msg_mongo_has_label(&reply, "TransientTransactionError");
    bson_destroy(&reply);
    if (!unknown || t->again || msg_clock_mono_ms() >= t->u->until_ms)
      return rc;
    msg_clock_sleep_ms(PAUSE_MAX_MS);
  }
}

static int start(msg_mongo_txn *t, const char *what, msg_err *err) {
  bson_error_t error;
  t->again = false;
  if (!mongoc_client_session_start_transaction(t->session, NULL, &error))
    return msg_mongo_fail(t->u->store, what, &error, NULL, err);
  return MSG_OK;
}

static int run(msg_mongo_txn *t, const char *what, msg_mongo_work work, void *arg, msg_err *err) {
  int64_t pause_ms = 1;
  for (;;) {
    int rc = start(t, what, err);
    if (rc == MSG_OK) {
      rc = work(t, arg, err);
      if (rc == MSG_OK)
        rc = commit(t, what, err);
      else
        mongoc_client_session_abort_transaction(t->session, NULL);
    }
    if (rc == MSG_OK || !t->again || msg_clock_mono_ms() >= t->u->until_ms)
      return rc;
    msg_clock_sleep_ms(pause_ms);
    pause_ms = pause_ms < PAUSE_MAX_MS ? 2 * pause_ms : PAUSE_MAX_MS;
  }
}

/* Snapshot reads, majority commit. */
static mongoc_client_session_t *session_new(msg_mongo_use *u, bson_error_t *error) {
  mongoc_transaction_opt_t *opts = mongoc_transaction_opts_new();
  mongoc_session_opt_t *session_opts = mongoc_session_opts_new();
  mongoc_read_concern_t *r = mongoc_read_concern_new();
  mongoc_read_concern_set_level(r, MONGOC_READ_CONCERN_LEVEL_SNAPSHOT);
  mongoc_transaction_opts_set_read_concern(opts, r);
  mongoc_session_opts_set_default_transaction_opts(session_opts, opts);
  mongoc_client_session_t *session = mongoc_client_start_session(u->client, session_opts, error);
  mongoc_read_concern_destroy(r);
  mongoc_session_opts_destroy(session_opts);
  mongoc_transaction_opts_destroy(opts);
  return session;
}

int msg_mongo_transact(msg_mongo_session *s, msg_mongo_use *u, const char *what,
                       msg_mongo_work work, void *arg, msg_err *err) {
  msg_mongo_txn t = {.s = s, .u = u, .opts = BSON_INITIALIZER};
  bson_error_t error;
  if (!s->store->replicated)
    return work(&t, arg, err);
  t.session = session_new(u, &error);
  if (!t.session || !mongoc_client_session_append(t.session, &t.opts, &error)) {
    if (t.session)
      mongoc_client_session_destroy(t.session);
    return msg_mongo_fail(s->store, what, &error, NULL, err);
  }
  int rc = run(&t, what, work, arg, err);
  if (rc != MSG_OK && mongoc_client_session_get_dirty(t.session))
    msg_mongo_regret_session(s, mongoc_client_session_get_lsid(t.session));
  mongoc_client_session_destroy(t.session);
  bson_destroy(&t.opts);
  return rc;
}

int msg_mongo_alone(msg_mongo_session *s, msg_mongo_use *u, msg_mongo_work work, void *arg,
                    msg_err *err) {
  msg_mongo_txn t = {.s = s, .u = u, .opts = BSON_INITIALIZER};
  int rc;
  while ((rc = work(&t, arg, err)) != MSG_OK && t.again && msg_clock_mono_ms() < u->until_ms) {
    t.again = false;
    msg_clock_sleep_ms(PAUSE_MS);
  }
  bson_destroy(&t.opts);
  return rc;
}
