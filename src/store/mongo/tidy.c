/* tidy.c - documents of leases that are over. */
#include "store/mongo/lease.h"
#include "store/mongo/query.h"

#define TIDY_BATCH 128

struct tidying {
  msg_texts over, borne; /* tokens: past their time; and those that a message bears */
  msg_mongo_ids ids;
};

static void tidying_clear(struct tidying *w) {
  msg_texts_clear(&w->over);
  msg_texts_clear(&w->borne);
  msg_mongo_ids_clear(&w->ids);
}

static int note_over(void *arg, const bson_t *doc, msg_err *err) {
  struct tidying *w = arg;
  const char *token = msg_mongo_get_text(doc, "_id");
  if (token && msg_texts_add(&w->over, token) != MSG_OK)
    return msg_err_nomem(err);
  return msg_mongo_lease_ids(doc, &w->ids, err);
}

static int note_borne(void *arg, const bson_t *doc, msg_err *err) {
  struct tidying *w = arg;
  const char *token = msg_mongo_get_text(doc, "sq.token");
  return token && msg_texts_note(&w->borne, token) != MSG_OK ? msg_err_nomem(err) : MSG_OK;
}

static int read_over(msg_mongo_session *s, msg_mongo_use *u, struct tidying *w, msg_err *err) {
  int64_t then_ms = msg_mongo_now_ms(s->store) - MSG_MONGO_KEPT_MS;
  bson_t *filter = BCON_NEW("in", BCON_UTF8(s->names.messages), "until", "{", "$lte",
                            BCON_DATE_TIME(then_ms), "}");
  bson_t *opts =
      BCON_NEW("limit", BCON_INT64(TIDY_BATCH), "projection", "{", "ids", BCON_INT32(1), "}");
  int rc = msg_mongo_each(u, s->names.leases, "sweep", filter, opts, note_over, w, err);
  bson_destroy(opts);
  bson_destroy(filter);
  return rc;
}

static int read_borne(msg_mongo_session *s, msg_mongo_use *u, struct tidying *w, msg_err *err) {
  bson_t filter = BSON_INITIALIZER;
  bson_t *opts = BCON_NEW("projection", "{", "sq.token", BCON_INT32(1), "}");
  msg_mongo_append_ids(&filter, "_id", "$in", w->ids.at, w->ids.n);
  BSON_APPEND_BOOL(&filter, "sq.lease", true);
  int rc = msg_mongo_each(u, s->names.messages, "sweep", &filter, opts, note_borne, w, err);
  bson_destroy(opts);
  bson_destroy(&filter);
  return rc;
}

static int remove_unborne(msg_mongo_session *s, msg_mongo_use *u, struct tidying *w, size_t *n,
                          msg_err *err) {
  msg_texts gone = {0};
  bson_t filter = BSON_INITIALIZER;
  int rc = MSG_OK;
  for (size_t i = 0; rc == MSG_OK && i < w->over.n; i++)
    if (!msg_texts_have(&w->borne, w->over.at[i]) && msg_texts_add(&gone, w->over.at[i]) != MSG_OK)
      rc = msg_err_nomem(err);
  msg_mongo_append_texts(&filter, "_id", "$in", gone.at, gone.n, false);
  if (rc == MSG_OK && gone.n)
    rc = msg_mongo_delete(u, s->names.leases, "sweep", &filter, NULL, err);
  *n = gone.n;
  bson_destroy(&filter);
  msg_texts_clear(&gone);
  return rc;
}

int msg_mongo_leases_tidy(msg_mongo_session *s, msg_mongo_use *u, msg_err *err) {
  size_t gone;
  int rc;
  do {
    struct tidying w = {0};
    gone = 0;
    rc = read_over(s, u, &w, err);
    if (rc == MSG_OK && w.over.n)
      rc = read_borne(s, u, &w, err);
    if (rc == MSG_OK && w.over.n)
      rc = remove_unborne(s, u, &w, &gone, err);
    tidying_clear(&w);
  } while (rc == MSG_OK && gone == TIDY_BATCH);
  return rc;
}
