/* deadline.c - when something of a queue changes by itself next. */
#include <string.h>

#include "store/mongo/acked.h"
#include "store/mongo/catalog.h"
#include "store/mongo/group.h"
#include "store/mongo/query.h"

#define LOOK 100

struct soonest {
  msg_mongo_session *s; /* where it looks */
  msg_mongo_use *u;
  msg_mongo_acked acked;
  int64_t at_ms, now_ms;
  int64_t last_ms; /* of those that do not count */
  int rows;
};

/* What is done waits for its removal only, unless its group waits for another head. */
static bool is_done(const bson_t *doc) {
  const char *state = msg_mongo_get_text(doc, "sq.state");
  return state && strcmp(state, "done") == 0 && !msg_mongo_get_text(doc, "sq.group");
}

static int note_until(void *arg, const bson_t *doc, msg_err *err) {
  struct soonest *w = arg;
  bool acked;
  int rc = msg_mongo_is_acked(w->s, w->u, &w->acked, doc, &acked, err);
  w->rows++;
  w->last_ms = msg_mongo_get_int(doc, "sq.until", MSG_NEVER);
  if (w->last_ms < w->at_ms && !is_done(doc) && !acked)
    w->at_ms = w->last_ms;
  return rc;
}

static int note_life(void *arg, const bson_t *doc, msg_err *err) {
  struct soonest *w = arg;
  const char *state = msg_mongo_get_text(doc, "sq.state");
  int64_t at_ms = msg_mongo_get_int(doc, "delete_at", MSG_NEVER);
  (void)err;
  w->rows++;
  w->last_ms = at_ms;
  if (at_ms < w->at_ms && !(state && (strcmp(state, "done") == 0 || strcmp(state, "claimed") == 0)))
    w->at_ms = at_ms;
  return MSG_OK;
}

/* The rows of `filter`, by `note`. Behind very many of those that do not count the answer is early,
 * never late. Takes filter and opts. */
static int look_for(msg_mongo_session *s, msg_mongo_use *u, bson_t *filter, bson_t *opts,
                    int (*note)(void *, const bson_t *, msg_err *), struct soonest *w,
                    msg_err *err) {
  w->s = s;
  w->u = u;
  int rc = msg_mongo_each(u, s->names.messages, "look for a deadline", filter, opts, note, w, err);
  if (w->rows == LOOK && w->last_ms < w->at_ms)
    w->at_ms = w->last_ms;
  w->rows = 0;
  bson_destroy(opts);
  bson_destroy(filter);
  return rc;
}

static int first_until(msg_mongo_session *s, msg_mongo_use *u, struct soonest *w, msg_err *err) {
  bson_t *opts = BCON_NEW("sort", "{", "sq.until", BCON_INT32(1), "}", "limit", BCON_INT64(LOOK),
                          "projection", "{", "sq.until", BCON_INT32(1), "sq.state", BCON_INT32(1),
                          "sq.group", BCON_INT32(1), "sq.lease", BCON_INT32(1), "sq.token",
                          BCON_INT32(1), "processed_by", BCON_INT32(1), "}");
  return look_for(s, u, BCON_NEW("sq.until", "{", "$gt", BCON_DATE_TIME(0), "}"), opts, note_until,
                  w, err);
}

static int first_life(msg_mongo_session *s, msg_mongo_use *u, struct soonest *w, msg_err *err) {
  bson_t *opts =
      BCON_NEW("sort", "{", "delete_at", BCON_INT32(1), "}", "limit", BCON_INT64(LOOK),
               "projection", "{", "delete_at", BCON_INT32(1), "sq.state", BCON_INT32(1), "}");
  return look_for(s, u, BCON_NEW("delete_at", "{", "$gt", BCON_DATE_TIME(w->now_ms), "}"), opts,
                  note_life, w, err);
}

static int first_at(msg_mongo_session *at, msg_mongo_use *u, void *arg, msg_err *err) {
  int rc = first_until(at, u, arg, err);
  return rc == MSG_OK ? first_life(at, u, arg, err) : rc;
}

/* With a life a group's head goes, which calls the next. Of all others the server takes care. */
static int first_to_tend(msg_mongo_session *at, msg_mongo_use *u, void *arg, msg_err *err) {
  return msg_mongo_is_grouped(at) ? first_at(at, u, arg, err) : first_until(at, u, arg, err);
}

/* At any place, or with `due` where something has a time. */
static int first(msg_mongo_session *s, const bson_t *due, msg_mongo_at_fn look, int64_t *at_ms,
                 msg_err *err) {
  struct soonest w = {.at_ms = MSG_NEVER, .now_ms = msg_mongo_now_ms(s->store)};
  msg_mongo_use u;
  int rc = msg_mongo_take(s->store, "look for a deadline", &u, err);
  if (rc != MSG_OK)
    return rc;
  rc = due ? msg_mongo_wherever(s, &u, due, look, &w, err)
           : msg_mongo_everywhere(s, &u, look, &w, err);
  msg_mongo_give(&u);
  msg_mongo_acked_clear(&w.acked);
  if (rc == MSG_OK)
    *at_ms = w.at_ms == MSG_NEVER ? MSG_NEVER : w.at_ms - s->store->clock_offset_ms;
  return rc;
}

int msg_mongo_deadline(msg_session *base, int64_t *at_ms, msg_err *err) {
  return first((msg_mongo_session *)base, NULL, first_at, at_ms, err);
}

/* By sq_due and sq_head. */
int msg_mongo_deadline_tended(msg_mongo_session *s, int64_t *at_ms, msg_err *err) {
  bson_t *due =
      BCON_NEW("$or", "[", "{", "sq.until", "{", "$gt", BCON_DATE_TIME(0), "}", "}", "{", "topic",
               "{", "$gt", BCON_UTF8(""), "}", "sq.head", BCON_BOOL(true), "}", "]");
  int rc = first(s, due, first_to_tend, at_ms, err);
  bson_destroy(due);
  return rc;
}
