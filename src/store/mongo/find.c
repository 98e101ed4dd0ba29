/* find.c - browsing and getting. The server narrows by what it has indexes for; every row is then
 * compared with the filter itself, so that rows, order, limit and offset are exact.
 *
 * Seq follows (seconds, counter) of the id, _id has the process between the two: rows that tie for
 * the server are gathered and put in order here. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "store/mongo/acked.h"
#include "store/mongo/browse.h"
#include "store/mongo/catalog.h"
#include "store/mongo/locks.h"
#include "store/mongo/merge.h"
#include "store/mongo/pipe.h"
#include "store/mongo/query.h"

struct msg_mongo_find {
  msg_find base;
  msg_mongo_session *s;
  msg_mongo_use u;
  msg_mongo_rows rows;
  msg_filter filter;
  msg_mongo_locks locks; /* of Java nodes */
  msg_mongo_acked acked;
  int64_t now_ms;
  int64_t skipped, given;
  msg_list tied; /* rows of one tie, from `next` on */
  size_t next;
  msg_message ahead; /* the first row of the next tie */
  bool has_ahead;
};

/* ---- the filter, kept ---- */

static int copy_filter(const msg_filter *f, msg_filter *out) {
  *out = *f;
  out->topics = out->senders = NULL;
  out->ids = NULL;
  out->topic_count = out->sender_count = out->id_count = 0;
  int rc = MSG_OK;
  for (size_t i = 0; rc == MSG_OK && i < f->topic_count; i++)
    rc = msg_filter_add_topic(out, f->topics[i]);
  for (size_t i = 0; rc == MSG_OK && i < f->sender_count; i++)
    rc = msg_filter_add_sender(out, f->senders[i]);
  for (size_t i = 0; rc == MSG_OK && i < f->id_count; i++)
    rc = msg_filter_add_id(out, &f->ids[i]);
  return rc;
}

/* ---- asking ---- */

static void query_one(struct msg_mongo_find *f, const msg_mongo_place *p, const bson_t *filter,
                      const bson_t *sort) {
  bson_t *opts = BCON_NEW("sort", BCON_DOCUMENT(sort));
  if (f->filter.ordered && strncmp(f->s->store->version, "4.2", 3) != 0)
    BSON_APPEND_BOOL(opts, "allowDiskUse", true);
  msg_mongo_rows_begin(&f->rows, msg_mongo_query(&f->u, p->at.messages, filter, opts));
  bson_destroy(opts);
}

static int query_many(struct msg_mongo_find *f, const msg_mongo_places *places,
                      const bson_t *filter, const bson_t *sort, msg_err *err) {
  bson_t *opts = BCON_NEW("allowDiskUse", BCON_BOOL(true));
  msg_mongo_pipe pipe;
  mongoc_cursor_t *cursor;
  const bson_t *first = NULL;
  msg_mongo_pipe_begin(&pipe, places, filter, NULL);
  msg_mongo_pipe_add(&pipe, "$sort", sort);
  int rc = msg_mongo_pipe_run(&pipe, &f->u, "find", opts, &cursor, &first, err);
  msg_mongo_rows_begin_merged(&f->rows, cursor, rc == MSG_OK ? first : NULL);
  bson_destroy(opts);
  return rc == MSG_NOTFOUND ? MSG_OK : rc;
}

/* Of the topics' places, those of a wanted topic. None is made: most that are asked for may not be
 * there. */
static int mark_wanted(const struct msg_mongo_find *f, const msg_mongo_places *places, bool *wanted,
                       msg_err *err) {
  msg_mongo_at at;
  int rc = MSG_OK;
  for (size_t t = 0; rc == MSG_OK && t < f->filter.topic_count; t++) {
    rc = msg_mongo_topic_at(f->s, f->filter.topics[t], &at, err);
    for (size_t i = 0; rc == MSG_OK && i < places->n; i++)
      wanted[i] = wanted[i] || strcmp(places->at[i]->at.messages, at.messages) == 0;
  }
  return rc;
}

/* A topic's place is looked at if its topic is wanted. */
static int places_of(struct msg_mongo_find *f, msg_mongo_places *out, msg_err *err) {
  int rc = msg_mongo_places_all(f->s, &f->u, out, err);
  if (rc != MSG_OK || !f->s->queue->layout->topics || !f->filter.topic_count)
    return rc;
  bool *wanted = msg_zalloc((out->n + 1) * sizeof *wanted);
  rc = wanted ? mark_wanted(f, out, wanted, err) : msg_err_nomem(err);
  size_t n = 0;
  for (size_t i = 0; rc == MSG_OK && i < out->n; i++)
    if (out->at[i]->kind != MSG_MONGO_TOPIC || wanted[i])
      out->at[n++] = out->at[i];
  out->n = n;
  msg_free(wanted);
  return rc;
}

/* ---- rows ---- */

/* The next row that the filter admits. */
static int read_row(struct msg_mongo_find *f, msg_message *out, msg_err *err) {
  const bson_t *doc;
  while (f->rows.cursor) {
    bool acked = false;
    int rc = msg_mongo_rows_next(&f->rows, &f->u, "find", &doc, err);
    if (rc == MSG_NOTFOUND)
      break;
    if (rc == MSG_OK)
      rc = msg_mongo_is_acked(f->s, &f->u, &f->acked, doc, &acked, err);
    if (acked)
      continue;
    if (rc == MSG_OK)
      rc = msg_mongo_message(doc, f->now_ms, f->filter.bare, out, err);
    if (rc == MSG_CORRUPT)
      continue; /* a foreign document that is no message */
    if (rc == MSG_OK)
      rc = msg_mongo_locks_apply(&f->locks, out, err);
    if (rc != MSG_OK)
      return rc;
    if (msg_filter_match(&f->filter, out))
      return MSG_OK;
    msg_message_clear(out);
  }
  msg_mongo_rows_end(&f->rows);
  msg_mongo_give(&f->u);
  return MSG_NOTFOUND;
}

static bool ties(const msg_filter *f, const msg_message *a, const msg_message *b) {
  if (f->ordered)
    return a->priority == b->priority && a->deliver_at_ms == b->deliver_at_ms;
  return a->seq >> 24 == b->seq >> 24;
}

static int by_seq(const void *pa, const void *pb) {
  const msg_message *a = pa, *b = pb;
  if (a->seq != b->seq)
    return a->seq < b->seq ? -1 : 1;
  return msg_oid_cmp(&a->id, &b->id);
}

static int by_seq_down(const void *a, const void *b) {
  return by_seq(b, a);
}

static int keep(struct msg_mongo_find *f, msg_message *m, msg_err *err) {
  msg_message *to = msg_list_add(&f->tied);
  if (!to) {
    msg_message_clear(m);
    return msg_err_nomem(err);
  }
  *to = *m;
  return MSG_OK;
}

/* Gathers the next tie, in order. */
static int read_tie(struct msg_mongo_find *f, msg_err *err) {
  msg_message m;
  int rc = MSG_OK;
  msg_list_clear(&f->tied);
  f->next = 0;
  if (f->has_ahead) {
    f->has_ahead = false;
    rc = keep(f, &f->ahead, err);
  }
  while (rc == MSG_OK && (rc = read_row(f, &m, err)) == MSG_OK) {
    if (f->tied.n && !ties(&f->filter, &f->tied.at[0], &m)) {
      f->ahead = m;
      f->has_ahead = true;
      break;
    }
    rc = keep(f, &m, err);
  }
  if (f->tied.n > 1)
    qsort(f->tied.at, f->tied.n, sizeof *f->tied.at,
          f->filter.descending_seq ? by_seq_down : by_seq);
  return rc == MSG_NOTFOUND && f->tied.n ? MSG_OK : rc;
}

/* In no wanted order there is nothing to gather for. */
static int take_row(struct msg_mongo_find *f, msg_message *out, msg_err *err) {
  const msg_filter *w = &f->filter;
  if (!w->ordered && !w->descending_seq && !w->ascending_seq)
    return read_row(f, out, err);
  if (f->next == f->tied.n) {
    int rc = read_tie(f, err);
    if (rc != MSG_OK)
      return rc;
  }
  *out = f->tied.at[f->next];
  msg_message_init(&f->tied.at[f->next++]);
  return MSG_OK;
}

/* ---- the verbs ---- */

int msg_mongo_find_next(msg_find *base, msg_message *out, msg_err *err) {
  struct msg_mongo_find *f = (struct msg_mongo_find *)base;
  for (;;) {
    msg_message m;
    if (f->filter.limit >= 0 && f->given >= f->filter.limit)
      return MSG_NOTFOUND;
    int rc = take_row(f, &m, err);
    if (rc != MSG_OK)
      return rc;
    if (f->skipped >= f->filter.offset) {
      f->given++;
      *out = m;
      return MSG_OK;
    }
    f->skipped++;
    msg_message_clear(&m);
  }
}

void msg_mongo_find_close(msg_find *base) {
  struct msg_mongo_find *f = (struct msg_mongo_find *)base;
  if (!f)
    return;
  msg_mongo_rows_end(&f->rows);
  msg_mongo_give(&f->u);
  msg_mongo_locks_clear(&f->locks);
  msg_mongo_acked_clear(&f->acked);
  msg_list_clear(&f->tied);
  if (f->has_ahead)
    msg_message_clear(&f->ahead);
  msg_filter_clear(&f->filter);
  msg_free(f);
}

static bool may_be_locked(const msg_filter *f) {
  return f->states == 0 || f->states & (1u << MSG_STATE_CLAIMED | 1u << MSG_STATE_READY |
                                        1u << MSG_STATE_PROCESSED | 1u << MSG_STATE_EXPIRED);
}

static int query(struct msg_mongo_find *f, const msg_mongo_places *places, msg_err *err) {
  bson_t filter = BSON_INITIALIZER, *sort = msg_mongo_browse_sort(&f->filter);
  int rc = may_be_locked(&f->filter)
               ? msg_mongo_locks_read(&f->u, places, NULL, f->now_ms, &f->locks, err)
               : MSG_OK;
  if (rc == MSG_OK) {
    msg_mongo_browse_append(&filter, &f->filter, f->locks.n > 0);
    if (places->n > 1)
      rc = query_many(f, places, &filter, sort, err);
    else
      query_one(f, places->at[0], &filter, sort);
  }
  bson_destroy(sort);
  bson_destroy(&filter);
  return rc;
}

static int start(struct msg_mongo_find *f, msg_err *err) {
  msg_mongo_places places = {0};
  int rc = places_of(f, &places, err);
  if (rc == MSG_OK && places.n)
    rc = query(f, &places, err);
  msg_mongo_places_clear(&places);
  return rc;
}

int msg_mongo_find(msg_session *base, const msg_filter *filter, msg_find **out, msg_err *err) {
  msg_mongo_session *s = (msg_mongo_session *)base;
  struct msg_mongo_find *f = msg_zalloc(sizeof *f);
  if (!f)
    return msg_err_nomem(err);
  f->base.ops = s->base.ops;
  f->s = s;
  f->now_ms = msg_mongo_now_ms(s->store);
  int rc = copy_filter(filter, &f->filter) == MSG_OK ? MSG_OK : msg_err_nomem(err);
  if (rc == MSG_OK && !filter->none && filter->limit != 0) {
    msg_mongo_seen_flush(s);
    rc = msg_mongo_take(s->store, "find", &f->u, err);
    if (rc == MSG_OK)
      rc = start(f, err);
  }
  if (rc == MSG_OK)
    *out = &f->base;
  else
    msg_mongo_find_close(&f->base);
  return rc;
}

static int get_at(msg_mongo_session *at, msg_mongo_use *u, const msg_oid *id, msg_message *out,
                  msg_err *err) {
  bson_t filter = BSON_INITIALIZER;
  const bson_t *doc;
  int64_t now_ms = msg_mongo_now_ms(at->store);
  msg_mongo_acked acked = {0};
  bool gone = false;
  msg_mongo_append_oid(&filter, "_id", id);
  msg_mongo_append_there(&filter);
  mongoc_cursor_t *cursor = msg_mongo_query(u, at->names.messages, &filter, NULL);
  int rc = msg_mongo_next(u, cursor, "get", &doc, err);
  if (rc == MSG_OK)
    rc = msg_mongo_is_acked(at, u, &acked, doc, &gone, err);
  if (rc == MSG_OK)
    rc = gone ? MSG_NOTFOUND : msg_mongo_message(doc, now_ms, false, out, err);
  msg_mongo_acked_clear(&acked);
  mongoc_cursor_destroy(cursor);
  bson_destroy(&filter);
  if (rc == MSG_OK && out->exclusive && out->state != MSG_STATE_CLAIMED) {
    msg_mongo_places place = {&at->place, 1, 1};
    msg_mongo_locks locks = {0};
    rc = msg_mongo_locks_read(u, &place, id, now_ms, &locks, err);
    if (rc == MSG_OK)
      rc = msg_mongo_locks_apply(&locks, out, err);
    else
      msg_message_clear(out);
    msg_mongo_locks_clear(&locks);
  }
  return rc;
}

/* Where it may be in several lanes: as a row. */
static int get_anywhere(msg_mongo_session *s, const msg_oid *id, msg_message *out, msg_err *err) {
  msg_filter f;
  msg_find *find = NULL;
  msg_filter_init(&f);
  int rc = msg_filter_add_id(&f, id) == MSG_OK ? MSG_OK : msg_err_nomem(err);
  if (rc == MSG_OK)
    rc = msg_mongo_find(&s->base, &f, &find, err);
  if (rc == MSG_OK)
    rc = msg_mongo_find_next(find, out, err);
  msg_mongo_find_close(find);
  msg_filter_clear(&f);
  return rc;
}

int msg_mongo_get(msg_session *base, const msg_oid *id, msg_message *out, msg_err *err) {
  msg_mongo_session *s = (msg_mongo_session *)base;
  msg_mongo_use u;
  if (s->queue->layout->lanes)
    return get_anywhere(s, id, out, err);
  msg_mongo_seen_flush(s);
  int rc = msg_mongo_take(s->store, "get", &u, err);
  if (rc != MSG_OK)
    return rc;
  rc = get_at(s, &u, id, out, err);
  msg_mongo_give(&u);
  return rc;
}
