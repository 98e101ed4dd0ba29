/* find.c - browsing: a filter becomes one statement with bound parameters.
 *
 * There is no index over all states of a topic, but one for each kind of stored state. So a browse
 * by topic or by state is a UNION ALL of one arm a stored state; a browse by id or number has one
 * arm that says everything. */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "store/local/lease.h"
#include "store/local/reading.h"

#define NAMES_MAX     100 /* topics or senders bound one by one; more are matched here */
#define PARAMETER_MAX (2 * NAMES_MAX + 32)

/* ?1 is the queue, ?2 the time of the browse: what is past delete_at is shown as expired. */
#define ALIVE "(m.delete_at IS NULL OR m.delete_at > ?2)"
#define OTHER                                                                                      \
  "m.state > 2 AND m.state <> 6 AND m.state <> 7 AND m.state <> 8 AND " /* MSG_LOCAL_OTHER */
#define WAITING MSG_LOCAL_WAITING("m.seq")
#define BIT(s)  (1u << MSG_STATE_##s)
#define ANY     ((1u << MSG_STATE_COUNT) - 1)

/* Each row is in one arm. Every arm names the condition of a partial index. */
static const struct arm {
  unsigned state;
  const char *index, *where;
} arms[] = {
    {BIT(READY), "ready", "m.state = 1 AND " ALIVE},
    {BIT(READY), "mortal", "m.state = 2 AND " ALIVE},
    {BIT(READY), "other", OTHER "m.state BETWEEN 3 AND 3 AND " ALIVE},
    {BIT(READY), "live", "m.state = 8 AND " ALIVE},
    {BIT(READY), "other", OTHER "m.state BETWEEN 9 AND 9 AND " ALIVE " AND " WAITING},
    {BIT(DELAYED), "other", OTHER "m.state BETWEEN 4 AND 4 AND " ALIVE},
    {BIT(CLAIMED), "claimed", "m.state = 6"},
    {BIT(BLOCKED), "other", OTHER "m.state BETWEEN 5 AND 5 AND " ALIVE},
    {BIT(PROCESSED), "other", OTHER "m.state BETWEEN 9 AND 9 AND " ALIVE " AND NOT " WAITING},
    {BIT(DEAD), "dead", "m.state = 7 AND " ALIVE},
    {BIT(EXPIRED), "expiry", "m.state <> 6 AND m.delete_at IS NOT NULL AND m.delete_at <= ?2"},
};
/* For browses of every state: the life of a row does not matter. */
static const struct arm whole[] = {
    {ANY, "ready", "m.state = 1"}, {ANY, "mortal", "m.state = 2"}, {ANY, "claimed", "m.state = 6"},
    {ANY, "dead", "m.state = 7"},  {ANY, "live", "m.state = 8"},   {ANY, "other", OTHER "1"},
};

static const char sql_at[] =
    "SELECT " MSG_LOCAL_COLUMNS " FROM @.msg_store_message WHERE seq = ?1 AND queue = ?2";
static const char sql_get[] =
    "SELECT " MSG_LOCAL_COLUMNS " FROM @.msg_store_message WHERE id = ?1 AND queue = ?2";

typedef struct local_find {
  msg_find base;
  msg_local_session *s;
  sqlite3_stmt *stmt; /* NULL: no rows */
  bool kept;          /* stmt is the session's, not ours to finalize */
  bool ready;         /* stmt stands on a row not given out yet */
  bool over;
  int64_t now_ms;
  int64_t
      top; /* highest seq when it began: what is sent while the rows are read is not among them */
  msg_filter rest; /* names that are too many to bind */
  bool has_rest;
  int64_t skip, left; /* offset, and limit (-1: none), where SQL could not apply them */
  msg_local_takers takers;
} local_find;

/* ---- the text of the statement ---- */

struct parameter {
  const char *text; /* NULL: number */
  int64_t number;
};

struct text {
  const char *schema;
  bool one; /* a seq that is given: SQLite needs no help */
  msg_str sql;
  msg_str terms; /* what every arm repeats */
  struct parameter at[PARAMETER_MAX];
  int n;
  msg_str ids; /* JSON array */
  char id_lo[MSG_OID_HEX + 1], id_hi[MSG_OID_HEX + 1];
};

static void put(struct text *t, const char *sql) {
  for (const char *at; (at = strchr(sql, '@')); sql = at + 1) {
    msg_str_appendn(&t->sql, sql, (size_t)(at - sql));
    msg_str_append(&t->sql, t->schema);
  }
  msg_str_append(&t->sql, sql);
}

static int add_text(struct text *t, const char *s) {
  t->at[t->n].text = s;
  return ++t->n;
}

static int add_number(struct text *t, int64_t number) {
  t->at[t->n].number = number;
  return ++t->n;
}

static void term_range(struct text *t, const char *column, const msg_range *r) {
  if (r->lo == r->hi) {
    msg_str_appendf(&t->terms, " AND m.%s = ?%d", column, add_number(t, r->lo));
    return;
  }
  if (r->lo != INT64_MIN)
    msg_str_appendf(&t->terms, " AND m.%s >= ?%d", column, add_number(t, r->lo));
  if (r->hi != INT64_MAX)
    msg_str_appendf(&t->terms, " AND m.%s <= ?%d", column, add_number(t, r->hi));
}

static void term_names(struct text *t, const char *column, char *const *names, size_t n) {
  if (n == 0 || n > NAMES_MAX)
    return;
  msg_str_appendf(&t->terms, " AND m.%s IN (", column);
  for (size_t i = 0; i < n; i++)
    msg_str_appendf(&t->terms, "%s?%d", i ? ", " : "", add_text(t, names[i]));
  msg_str_append(&t->terms, ")");
}

static void term_ids(struct text *t, const msg_filter *f) {
  char hex[MSG_OID_HEX + 1];
  if (f->id_count == 0)
    return;
  for (size_t i = 0; i < f->id_count; i++) {
    msg_oid_hex(&f->ids[i], hex);
    msg_str_appendf(&t->ids, "%s\"%s\"", i ? "," : "[", hex);
  }
  msg_str_append(&t->ids, "]");
  msg_str_appendf(&t->terms, " AND m.id IN (SELECT value FROM json_each(?%d))",
                  add_text(t, t->ids.s));
}

static void term_id_range(struct text *t, const msg_filter *f) {
  if (f->has_id_lo) {
    msg_oid_hex(&f->id_lo, t->id_lo);
    msg_str_appendf(&t->terms, " AND m.id >= ?%d", add_text(t, t->id_lo));
  }
  if (f->has_id_hi) {
    msg_oid_hex(&f->id_hi, t->id_hi);
    msg_str_appendf(&t->terms, " AND m.id <= ?%d", add_text(t, t->id_hi));
  }
}

static void build_terms(struct text *t, const msg_filter *f) {
  term_ids(t, f);
  term_id_range(t, f);
  term_names(t, "topic", f->topics, f->topic_count);
  term_names(t, "sender", f->senders, f->sender_count);
  term_range(t, "seq", &f->seq);
  term_range(t, "priority", &f->priority);
  term_range(t, "timestamp", &f->timestamp_ms);
  term_range(t, "deliver_at", &f->deliver_at_ms);
}

/* index: the end of its name; NULL: by number, if that can be. */
static void put_select(struct text *t, const char *index, const char *where) {
  put(t, "SELECT " MSG_LOCAL_COLUMNS " FROM @.msg_store_message AS m");
  if (index)
    msg_str_appendf(&t->sql, " INDEXED BY msg_store_message_%s", index);
  else if (!t->one)
    msg_str_append(&t->sql, " NOT INDEXED");
  put(t, " WHERE m.queue = ?1 AND (");
  put(t, where);
  put(t, ")");
  msg_str_append(&t->sql, t->terms.s);
}

static void put_union(struct text *t, const struct arm *a, size_t n, unsigned states) {
  for (size_t i = 0; i < n; i++) {
    if (!(a[i].state & states))
      continue;
    if (t->sql.n)
      put(t, " UNION ALL ");
    put_select(t, a[i].index, a[i].where);
  }
}

/* Another index (id, number) leads: the states are one condition, and the + keeps SQLite from
 * their indexes. */
static void put_together(struct text *t, const char *index, unsigned states) {
  msg_str any = MSG_STR_INIT;
  for (size_t i = 0; i < sizeof arms / sizeof *arms; i++)
    if (arms[i].state & states)
      msg_str_appendf(&any, "%s(%s)", any.n ? " OR " : "+(", arms[i].where);
  msg_str_append(&any, ")");
  t->sql.nomem = t->sql.nomem || any.nomem;
  put_select(t, index, any.nomem ? "0" : any.s);
  msg_str_clear(&any);
}

static void build(struct text *t, const msg_filter *f, bool limited) {
  const char *id = f->id_count || f->has_id_lo || f->has_id_hi ? "id" : NULL;
  bool led = id || f->seq.lo != INT64_MIN || f->seq.hi != INT64_MAX;
  unsigned states = f->states & ANY ? f->states & ANY : ANY;
  t->one = f->seq.lo == f->seq.hi;
  build_terms(t, f);
  if (states == ANY && (led || f->topic_count == 0))
    put_select(t, id, "1");
  else if (states == ANY)
    put_union(t, whole, sizeof whole / sizeof *whole, states);
  else if (led)
    put_together(t, id, states);
  else
    put_union(t, arms, sizeof arms / sizeof *arms, states);
  if (f->ordered)
    put(t, " ORDER BY priority, deliver_at, seq");
  else if (f->descending_seq)
    put(t, " ORDER BY seq DESC");
  else if (f->ascending_seq)
    put(t, " ORDER BY seq");
  if (limited)
    msg_str_appendf(&t->sql, " LIMIT ?%d", add_number(t, f->limit));
  if (limited)
    msg_str_appendf(&t->sql, " OFFSET ?%d", add_number(t, f->offset));
}

static int bind(const struct text *t, sqlite3_stmt *stmt) {
  int rc = SQLITE_OK;
  for (int i = 0; rc == SQLITE_OK && i < t->n && i < sqlite3_bind_parameter_count(stmt); i++)
    rc = t->at[i].text ? sqlite3_bind_text(stmt, i + 1, t->at[i].text, -1, SQLITE_TRANSIENT)
                       : sqlite3_bind_int64(stmt, i + 1, t->at[i].number);
  return rc;
}

static int prepare(local_find *f, const msg_filter *filter, msg_err *err) {
  msg_local_session *s = f->s;
  struct text *t = msg_zalloc(sizeof *t); /* large for a stack that may be a coroutine's */
  if (!t)
    return msg_err_nomem(err);
  t->schema = s->schema;
  add_text(t, s->queue);
  add_number(t, f->now_ms);
  build(t, filter, !f->has_rest && (filter->limit >= 0 || filter->offset > 0));
  int rc = SQLITE_NOMEM;
  if (!t->sql.nomem && !t->terms.nomem && !t->ids.nomem) {
    rc = sqlite3_prepare_v3(s->db, t->sql.s, -1, 0, &f->stmt, NULL);
    if (rc == SQLITE_OK)
      rc = bind(t, f->stmt);
  }
  msg_str_clear(&t->sql);
  msg_str_clear(&t->terms);
  msg_str_clear(&t->ids);
  msg_free(t);
  if (rc == SQLITE_NOMEM)
    return msg_err_nomem(err);
  return rc == SQLITE_OK ? MSG_OK : msg_local_fail(s, rc, s->what, err);
}

/* ---- the browse ---- */

static int copy_names(msg_filter *to, const msg_filter *from, msg_err *err) {
  int rc = MSG_OK;
  for (size_t i = 0; rc == MSG_OK && from->topic_count > NAMES_MAX && i < from->topic_count; i++)
    rc = msg_filter_add_topic(to, from->topics[i]);
  for (size_t i = 0; rc == MSG_OK && from->sender_count > NAMES_MAX && i < from->sender_count; i++)
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
         !(f->states & ANY) && f->limit < 0 && f->offset == 0 &&
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
    rc = prepare(f, o->filter, err);
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
  f->has_rest = filter->topic_count > NAMES_MAX || filter->sender_count > NAMES_MAX;
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
    if (rc == MSG_OK)
      rc = read_row(f->s, f->stmt, f->now_ms, &f->takers, &m, err);
    f->over = rc != MSG_OK; /* another step would begin again */
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
