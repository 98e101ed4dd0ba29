/* broken.c - leases that are broken: what they held speaks for itself again. */
#include "store/mongo/lease.h"
#include "store/mongo/query.h"

struct breaking {
  msg_texts tokens;         /* of the messages' leases */
  msg_mongo_ids ids;        /* all messages of theirs */
  msg_texts *done, *recent; /* of those that are done */
  int64_t now_ms;
  bool plain; /* some are of no lease, or of one that was broken meanwhile */
};

static int note_token(void *arg, const bson_t *doc, msg_err *err) {
  struct breaking *w = arg;
  const char *token = msg_mongo_get_text(doc, "sq.token");
  bool leased = msg_mongo_get_int(doc, "sq.lease", 0) != 0;
  msg_oid id;
  w->plain = w->plain || !leased;
  if (!leased || !token || !msg_mongo_get_oid(doc, "_id", &id))
    return MSG_OK;
  bool ok =
      msg_texts_note(&w->tokens, token) == MSG_OK && msg_mongo_ids_add(&w->ids, &id) == MSG_OK;
  return ok ? MSG_OK : msg_err_nomem(err);
}

static int note_lease(void *arg, const bson_t *doc, msg_err *err) {
  struct breaking *w = arg;
  return msg_mongo_lease_ids(doc, &w->ids, err);
}

static int note_done(void *arg, const bson_t *doc, msg_err *err) {
  struct breaking *w = arg;
  const char *token = msg_mongo_get_text(doc, "_id");
  bool recent = msg_mongo_get_int(doc, "at", 0) + MSG_MONGO_KEPT_MS > w->now_ms;
  int rc = token ? msg_texts_add(w->done, token) : MSG_OK;
  if (rc == MSG_OK && token && recent && w->recent)
    rc = msg_texts_add(w->recent, token);
  return rc == MSG_OK ? MSG_OK : msg_err_nomem(err);
}

static int read_tokens(msg_mongo_txn *t, const char *what, const bson_t *which, struct breaking *w,
                       msg_err *err) {
  bson_t *opts =
      BCON_NEW("projection", "{", "sq.token", BCON_INT32(1), "sq.lease", BCON_INT32(1), "}");
  int rc = msg_mongo_txn_each(t, t->s->names.messages, what, which, opts, note_token, w, err);
  bson_destroy(opts);
  return rc;
}

static int read_leases(msg_mongo_txn *t, const char *what, bool done, msg_mongo_row_fn row,
                       struct breaking *w, msg_err *err) {
  bson_t filter = BSON_INITIALIZER;
  msg_mongo_append_texts(&filter, "_id", "$in", w->tokens.at, w->tokens.n, false);
  if (done)
    BSON_APPEND_BOOL(&filter, "done", true);
  int rc = msg_mongo_txn_each(t, t->s->names.leases, what, &filter, NULL, row, w, err);
  bson_destroy(&filter);
  return rc;
}

static int remove_open(msg_mongo_txn *t, const char *what, struct breaking *w, msg_err *err) {
  bson_t filter = BSON_INITIALIZER;
  msg_mongo_append_texts(&filter, "_id", "$in", w->tokens.at, w->tokens.n, false);
  BCON_APPEND(&filter, "done", "{", "$ne", BCON_BOOL(true), "}");
  int rc = msg_mongo_txn_delete(t, t->s->names.leases, what, &filter, err);
  bson_destroy(&filter);
  return rc;
}

static int unflag(msg_mongo_txn *t, const char *what, const struct breaking *w,
                  const msg_texts *open, msg_err *err) {
  bson_t filter = BSON_INITIALIZER;
  bson_t *change = BCON_NEW("$unset", "{", "sq.lease", BCON_INT32(1), "}");
  msg_mongo_append_ids(&filter, "_id", "$in", w->ids.at, w->ids.n);
  msg_mongo_append_texts(&filter, "sq.token", "$in", open->at, open->n, false);
  int rc = msg_mongo_txn_update(t, t->s->names.messages, what, &filter, change, NULL, err);
  bson_destroy(change);
  bson_destroy(&filter);
  return rc;
}

/* Once its document is gone nobody can ack it whole any more. */
static int break_them(msg_mongo_txn *t, const char *what, struct breaking *w, msg_err *err) {
  msg_texts open = {0};
  int rc = read_leases(t, what, false, note_lease, w, err);
  if (rc == MSG_OK)
    rc = remove_open(t, what, w, err);
  if (rc == MSG_OK)
    rc = read_leases(t, what, true, note_done, w, err);
  for (size_t i = 0; rc == MSG_OK && i < w->tokens.n; i++)
    if (!msg_texts_have(w->done, w->tokens.at[i]) &&
        msg_texts_add(&open, w->tokens.at[i]) != MSG_OK)
      rc = msg_err_nomem(err);
  w->plain = w->plain || open.n > 0;
  if (rc == MSG_OK && open.n)
    rc = unflag(t, what, w, &open, err);
  if (rc == MSG_OK && open.n)
    msg_mongo_leases_note_broken(t->s, &open);
  msg_texts_clear(&open);
  return rc;
}

int msg_mongo_leases_break(msg_mongo_txn *t, const char *what, const bson_t *which, bool *plain,
                           msg_texts *done, msg_texts *recent, msg_err *err) {
  msg_texts own = {0};
  struct breaking w = {
      .done = done ? done : &own, .recent = recent, .now_ms = msg_mongo_now_ms(t->s->store)};
  int rc = read_tokens(t, what, which, &w, err);
  if (rc == MSG_OK && w.tokens.n) {
    msg_mongo_leases_note(t->s);
    rc = break_them(t, what, &w, err);
  }
  *plain = w.plain;
  msg_texts_clear(&own);
  msg_texts_clear(&w.tokens);
  msg_mongo_ids_clear(&w.ids);
  return rc;
}
