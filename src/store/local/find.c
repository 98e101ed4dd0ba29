/* find.c - browsing: a filter becomes a statement that gives numbers (browse.h), by which the
 * messages are read. */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "store/local/browse.h"
#include "store/local/lease.h"
#include "store/local/reading.h"

static const char sql_at[] =
    "SELECT " MSG_LOCAL_COLUMNS " FROM @.msg_store_message AS m WHERE m.seq = ?1 AND m.queue = ?2";
static const char sql_get[] =
    "SELECT " MSG_LOCAL_COLUMNS " FROM @.msg_store_message AS m WHERE m.id = ?1 AND m.queue = ?2";

typedef struct local_find {
  msg_find base;
  msg_local_session *s;
  sqlite3_stmt *stmt; /* NULL: no rows */
  bool kept;  /* stmt is the session's, not ours to finalize, and gives the message itself */
  bool ready; /* stmt stands on a row not given out yet */
  bool over;
  int64_t now_ms;
  int64_t
      top; /* highest seq when it began: what is sent while the rows are read is not among them */
  msg_filter rest; /* names that are too many to bind */
  bool has_rest;
  int64_t skip, left; /* offset, and limit (-1: none), where SQL could not apply them */
  msg_local_takers takers;
} local_find;

/* ---- the browse ---- */

static int copy_names(msg_filter *to, const msg_filter *from, msg_err *err) {
  int rc = MSG_OK;
  for (size_t i = 0;
       rc == MSG_OK && from->topic_count > MSG_LOCAL_NAMES_MAX && i < from->topic_count; i++)
    rc = msg_filter_add_topic(to, from->topics[i]);
  for (size_t i = 0;
       rc == MSG_OK && from->sender_count > MSG_LOCAL_NAMES_MAX && i < from->sender_count; i++)
    rc = msg_filter_add_sender(to, from->senders[i]);
  return rc == MSG_OK ? MSG_OK : msg_err_nomem(err);
}

static bool empty(const msg_range *r) {
  return r->lo > r->hi;
}

static bool impossible(const msg_filter *f) {
  return f->none || f->limit == 0 || empty(&f->seq) || empty(&f->priority) ||
         empty(&f->timestamp_ms) || empty(&f->deliver_at_ms);
}

struct opening {
  local_find *f;
  const msg_filter *filter;
};

static void drop_stmt(local_find *f) {
  if (f->kept)
    msg_local_done(f->s, f->stmt);
  else
    sqlite3_finalize(f->stmt);
  f->stmt = NULL;
}

static bool same_range(const msg_range *a, const msg_range *b) {
  return a->lo == b->lo && a->hi == b->hi;
}

/* Nothing is asked beside ids and seq. */
static bool is_look_up(const msg_filter *f) {
  msg_filter plain;
  msg_filter_init(&plain);
  return !f->topic_count && !f->sender_count && !f->has_id_lo && !f->has_id_hi &&
         !(f->states & MSG_LOCAL_ANY_STATE) && f->limit < 0 && f->offset == 0 &&
         same_range(&f->priority, &plain.priority) &&
         same_range(&f->timestamp_ms, &plain.timestamp_ms) &&
         same_range(&f->deliver_at_ms, &plain.deliver_at_ms);
}

/* Look-ups by id come by the thousand from joins, those by seq from a DELETE or UPDATE: their
 * statements are kept. *kept false: it is none of them. */
static int look_up(local_find *f, const msg_filter *filter, bool *kept, msg_err *err) {
  msg_local_session *s = f->s;
  bool all = filter->seq.lo == INT64_MIN && filter->seq.hi == INT64_MAX;
  *kept = is_look_up(filter);
  if (*kept && filter->id_count == 1 && all)
    return msg_local_bound(s, sql_get, &f->stmt, err, "dt", &filter->ids[0], s->queue);
  if (*kept && filter->id_count == 0 && filter->seq.lo == filter->seq.hi)
    return msg_local_bound(s, sql_at, &f->stmt, err, "it", filter->seq.lo, s->queue);
  *kept = false;
  return MSG_OK;
}

static bool is_limited(const msg_filter *f) {
  return f->limit >= 0 || f->offset > 0;
}

static int read_top(local_find *f, msg_err *err) {
  static const char sql[] = "SELECT coalesce(max(seq), 0) FROM @.msg_store_message NOT INDEXED";
  sqlite3_stmt *stmt = NULL;
  int rc = msg_local_bound(f->s, sql, &stmt, err, "");
  if (rc == MSG_OK)
    rc = msg_local_row(f->s, stmt, err);
  if (rc == MSG_OK)
    f->top = sqlite3_column_int64(stmt, 0);
  msg_local_done(f->s, stmt);
  return rc;
}

/* Steps to the first row, so that a lock is met where it can be waited for. */
static int find_work(msg_local_session *s, void *arg, msg_err *err) {
  struct opening *o = arg;
  local_find *f = o->f;
  drop_stmt(f);
  f->top = INT64_MAX;
  int rc = look_up(f, o->filter, &f->kept, err);
  if (rc == MSG_OK && !f->kept)
    rc = read_top(f, err);
  if (rc == MSG_OK && !f->kept)
    rc = msg_local_browse_open(s, o->filter, f->now_ms, !f->has_rest && is_limited(o->filter),
                               &f->stmt, err);
  if (rc == MSG_OK)
    rc = msg_local_step(s, f->stmt, &f->ready, err);
  f->over = rc == MSG_OK && !f->ready;
  return rc;
}

int msg_local_find(msg_session *base, const msg_filter *filter, msg_find **out, msg_err *err) {
  local_find *f = msg_zalloc(sizeof *f);
  if (!f)
    return msg_err_nomem(err);
  f->base.ops = base->ops;
  f->s = (msg_local_session *)base;
  f->now_ms = msg_clock_now_ms();
  msg_filter_init(&f->rest);
  f->has_rest =
      filter->topic_count > MSG_LOCAL_NAMES_MAX || filter->sender_count > MSG_LOCAL_NAMES_MAX;
  f->skip = f->has_rest ? filter->offset : 0;
  f->left = f->has_rest ? filter->limit : -1;
  f->takers.bare = filter->bare;
  struct opening o = {.f = f, .filter = filter};
  int rc = f->has_rest ? copy_names(&f->rest, filter, err) : MSG_OK;
  if (rc == MSG_OK && !impossible(filter))
    rc = msg_local_read(f->s, "find", find_work, &o, err);
  if (rc != MSG_OK)
    msg_local_find_close(&f->base);
  else
    *out = &f->base;
  return rc;
}

static int read_row(msg_local_session *s, sqlite3_stmt *stmt, int64_t now_ms,
                    msg_local_takers *takers, msg_message *out, msg_err *err) {
  msg_message m;
  int rc = msg_local_read_row(stmt, now_ms, &m, err);
  if (rc != MSG_OK)
    return rc;
  rc = msg_local_takers_fill(s, takers, sqlite3_column_int(stmt, 3), &m, err);
  if (rc == MSG_OK && m.state == MSG_STATE_CLAIMED)
    rc = msg_local_lease_show(s, sqlite3_column_int64(stmt, 6), &m, err);
  if (rc == MSG_OK)
    *out = m;
  else
    msg_message_clear(&m);
  return rc;
}

/* Of the row that the browse is at. MSG_NOTFOUND: the host has deleted it meanwhile. */
static int read_found(local_find *f, msg_message *out, msg_err *err) {
  sqlite3_stmt *stmt = NULL;
  if (f->kept)
    return read_row(f->s, f->stmt, f->now_ms, &f->takers, out, err);
  int rc = msg_local_bound(f->s, sql_at, &stmt, err, "it", sqlite3_column_int64(f->stmt, 0),
                           f->s->queue);
  if (rc == MSG_OK)
    rc = msg_local_row(f->s, stmt, err);
  if (rc == MSG_OK)
    rc = read_row(f->s, stmt, f->now_ms, &f->takers, out, err);
  msg_local_done(f->s, stmt);
  return rc;
}

/* Names that were not bound, and limit and offset with them. */
static bool passes(local_find *f, const msg_message *m) {
  if (m->seq > f->top)
    return false;
  if (!f->has_rest)
    return true;
  if (!msg_filter_match(&f->rest, m))
    return false;
  if (f->skip > 0) {
    f->skip--;
    return false;
  }
  return true;
}

int msg_local_find_next(msg_find *base, msg_message *out, msg_err *err) {
  local_find *f = (local_find *)base;
  while (f->stmt && !f->over && f->left != 0) {
    f->s->what = "find";
    msg_message m;
    int rc = f->ready ? MSG_OK : msg_local_row(f->s, f->stmt, err);
    f->ready = false;
    f->over = rc != MSG_OK; /* another step would begin again */
    if (rc != MSG_OK)
      return rc;
    rc = read_found(f, &m, err);
    if (rc == MSG_NOTFOUND)
      continue;
    f->over = rc != MSG_OK;
    if (rc != MSG_OK)
      return rc;
    if (passes(f, &m)) {
      f->left -= f->left > 0;
      *out = m;
      return MSG_OK;
    }
    msg_message_clear(&m);
  }
  return MSG_NOTFOUND;
}

void msg_local_find_close(msg_find *base) {
  local_find *f = (local_find *)base;
  if (!f)
    return;
  drop_stmt(f);
  msg_local_takers_clear(&f->takers);
  msg_filter_clear(&f->rest);
  msg_free(f);
}

/* ---- one message ---- */

struct getting {
  const msg_oid *id;
  msg_message *out;
  bool found;
};

static int get_work(msg_local_session *s, void *arg, msg_err *err) {
  struct getting *g = arg;
  msg_local_takers takers = {0};
  sqlite3_stmt *stmt = NULL;
  int rc = msg_local_bound(s, sql_get, &stmt, err, "dt", g->id, s->queue);
  if (rc == MSG_OK && (rc = msg_local_row(s, stmt, err)) == MSG_OK) {
    rc = read_row(s, stmt, msg_clock_now_ms(), &takers, g->out, err);
    g->found = rc == MSG_OK;
  }
  msg_local_done(s, stmt);
  msg_local_takers_clear(&takers);
  return rc == MSG_NOTFOUND ? MSG_OK : rc;
}

int msg_local_get(msg_session *base, const msg_oid *id, msg_message *out, msg_err *err) {
  struct getting g = {.id = id, .out = out};
  int rc = msg_local_read((msg_local_session *)base, "get", get_work, &g, err);
  return rc == MSG_OK && !g.found ? MSG_NOTFOUND : rc;
}
