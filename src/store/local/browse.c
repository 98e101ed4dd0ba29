/* browse.c - see browse.h.
 *
 * There is no index over all states of a topic, but an index or a table for each kind of stored
 * state. So a browse by topic or by state is a UNION ALL of one arm each; a browse by id or number
 * has one arm that says everything. */
#include "store/local/browse.h"

#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "store/local/reading.h"

#define NAMES_MAX     MSG_LOCAL_NAMES_MAX
#define PARAMETER_MAX (2 * NAMES_MAX + 32)

/* ?1 is the queue, ?2 the time of the browse: what is past delete_at is shown as expired, what is
 * past its delay as ready. */
#define ALIVE "(m.delete_at IS NULL OR m.delete_at > ?2)"
#define OTHER                                                                                      \
  "m.state > 2 AND m.state <> 6 AND m.state <> 7 AND m.state <> 8 AND " /* MSG_LOCAL_OTHER */
#define WAITING MSG_LOCAL_WAITING("m.seq")
#define BIT(s)  (1u << MSG_STATE_##s)
#define ANY     MSG_LOCAL_ANY_STATE

/* Messages whose state a table says are in the arm of that table, with what it says of them. */
#define HELD MSG_LOCAL_CLAIM("lease", "m.seq")
static const struct table {
  const char *name, *as;
  const char *columns; /* that it has of its own, a space after each */
  const char *rows;    /* which of its rows are of messages */
} READY_TABLE = {"msg_store_ready", "r", "queue topic priority deliver_at seq ", "1"},
  CLAIM_TABLE = {"msg_store_claim", "c", "seq ", "c.lease NOT NULL"};

/* Each row is in one arm. Every arm names the condition of a partial index, or a table. */
static const struct arm {
  unsigned state;
  const char *index, *where; /* of msg_store_message */
  const struct table *table; /* not NULL: instead, unless id or number lead */
} arms[] = {
    {BIT(READY), NULL, "m.state = 1 AND " HELD " IS NULL", &READY_TABLE},
    {BIT(READY), "mortal", "m.state = 2 AND " ALIVE, NULL},
    {BIT(READY), "other", OTHER "m.state BETWEEN 3 AND 3 AND " ALIVE, NULL},
    {BIT(READY), "live", "m.state = 8 AND " ALIVE, NULL},
    {BIT(READY), "other", OTHER "m.state BETWEEN 9 AND 9 AND " ALIVE " AND " WAITING, NULL},
    {BIT(READY), "delayed", "m.state = 4 AND m.due <= ?2 AND " ALIVE, NULL},
    {BIT(DELAYED), "other", OTHER "m.state BETWEEN 4 AND 4 AND m.due > ?2 AND " ALIVE, NULL},
    {BIT(CLAIMED), NULL, "m.state IN (1, 6) AND " HELD " IS NOT NULL", &CLAIM_TABLE},
    {BIT(BLOCKED), "other", OTHER "m.state BETWEEN 5 AND 5 AND " ALIVE, NULL},
    {BIT(PROCESSED), "other", OTHER "m.state BETWEEN 9 AND 9 AND " ALIVE " AND NOT " WAITING, NULL},
    {BIT(DEAD), "dead", "m.state = 7 AND " ALIVE, NULL},
    {BIT(EXPIRED), "expiry", "m.state <> 6 AND m.delete_at IS NOT NULL AND m.delete_at <= ?2",
     NULL},
};
/* For browses of every state: the life of a row does not matter. */
static const struct arm whole[] = {
    {ANY, NULL, "0", &READY_TABLE},       {ANY, NULL, "0", &CLAIM_TABLE},
    {ANY, "mortal", "m.state = 2", NULL}, {ANY, "dead", "m.state = 7", NULL},
    {ANY, "live", "m.state = 8", NULL},   {ANY, "other", OTHER "1", NULL},
};

/* ---- the text of the statement ---- */

struct parameter {
  const char *text; /* NULL: number */
  int64_t number;
};

struct text {
  const char *schema;
  bool one; /* a seq that is given: SQLite needs no help */
  msg_str sql;
  msg_str terms; /* what every arm repeats; "$column" for a column of the message */
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
    msg_str_appendf(&t->terms, " AND $%s = ?%d", column, add_number(t, r->lo));
    return;
  }
  if (r->lo != INT64_MIN)
    msg_str_appendf(&t->terms, " AND $%s >= ?%d", column, add_number(t, r->lo));
  if (r->hi != INT64_MAX)
    msg_str_appendf(&t->terms, " AND $%s <= ?%d", column, add_number(t, r->hi));
}

static void term_names(struct text *t, const char *column, char *const *names, size_t n) {
  if (n == 0 || n > NAMES_MAX)
    return;
  msg_str_appendf(&t->terms, " AND $%s IN (", column);
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

/* A column of the message, in an arm whose rows are of the table; NULL: of messages. */
static void put_column(struct text *t, const struct table *table, const char *name, size_t n) {
  msg_str key = MSG_STR_INIT;
  msg_str_appendf(&key, "%.*s ", (int)n, name);
  bool own = !table || (!key.nomem && strstr(table->columns, key.s));
  t->sql.nomem = t->sql.nomem || key.nomem;
  msg_str_clear(&key);
  if (own) {
    msg_str_appendf(&t->sql, "%s.%.*s", table ? table->as : "m", (int)n, name);
  } else {
    msg_str_appendf(&t->sql, "(SELECT w.%.*s", (int)n, name);
    put(t, " FROM @.msg_store_message AS w WHERE w.seq = ");
    msg_str_appendf(&t->sql, "%s.seq)", table->as);
  }
}

static void put_terms(struct text *t, const struct table *table, const char *terms) {
  static const char letters[] = "abcdefghijklmnopqrstuvwxyz_";
  for (const char *at; (at = strchr(terms, '$'));) {
    size_t n = strspn(at + 1, letters);
    msg_str_appendn(&t->sql, terms, (size_t)(at - terms));
    put_column(t, table, at + 1, n);
    terms = at + 1 + n;
  }
  msg_str_append(&t->sql, terms);
}

/* The rest of an arm. `where`: of its rows. */
static void put_where(struct text *t, const struct table *table, const char *where) {
  put(t, " WHERE ");
  put_terms(t, table, "$queue");
  put(t, " = ?1 AND (");
  put(t, where);
  put(t, ")");
  if (t->terms.n)
    put_terms(t, table, t->terms.s);
}

/* index: the end of its name; NULL: by number, if that can be. */
static void put_select(struct text *t, const char *index, const char *where) {
  put(t, "SELECT m.seq AS seq, m.priority AS priority, m.deliver_at AS deliver_at"
         " FROM @.msg_store_message AS m");
  if (index)
    msg_str_appendf(&t->sql, " INDEXED BY msg_store_message_%s", index);
  else if (!t->one)
    msg_str_append(&t->sql, " NOT INDEXED");
  put_where(t, NULL, where);
}

static void put_table(struct text *t, const struct table *table) {
  put(t, "SELECT ");
  put_terms(t, table, "$seq AS seq, $priority AS priority, $deliver_at AS deliver_at");
  put(t, " FROM @.");
  msg_str_appendf(&t->sql, "%s AS %s", table->name, table->as);
  put_where(t, table, table->rows);
}

static void put_union(struct text *t, const struct arm *a, size_t n, unsigned states) {
  for (size_t i = 0; i < n; i++) {
    if (!(a[i].state & states))
      continue;
    if (t->sql.n)
      put(t, " UNION ALL ");
    if (a[i].table)
      put_table(t, a[i].table);
    else
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

int msg_local_browse_open(msg_local_session *s, const msg_filter *filter, int64_t now_ms,
                          bool limited, sqlite3_stmt **out, msg_err *err) {
  struct text *t = msg_zalloc(sizeof *t); /* large for a stack that may be a coroutine's */
  sqlite3_stmt *stmt = NULL;
  if (!t)
    return msg_err_nomem(err);
  t->schema = s->schema;
  add_text(t, s->queue);
  add_number(t, now_ms);
  build(t, filter, limited);
  int rc = SQLITE_NOMEM;
  if (!t->sql.nomem && !t->terms.nomem && !t->ids.nomem) {
    rc = sqlite3_prepare_v3(s->db, t->sql.s, -1, 0, &stmt, NULL);
    if (rc == SQLITE_OK)
      rc = bind(t, stmt);
  }
  msg_str_clear(&t->sql);
  msg_str_clear(&t->terms);
  msg_str_clear(&t->ids);
  msg_free(t);
  if (rc == SQLITE_OK) {
    *out = stmt;
    return MSG_OK;
  }
  sqlite3_finalize(stmt);
  return rc == SQLITE_NOMEM ? msg_err_nomem(err) : msg_local_fail(s, rc, s->what, err);
}
