/* The other half of plan.c: the words of a plan, and what xFilter gets with them, as a filter. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "ext/plan.h"
#include "ext/values.h"

/* --- xFilter: values ----------------------------------------------------------------------- */

enum fit {
  FIT_OK,
  FIT_NEVER,  /* no row compares true */
  FIT_UNKNOWN /* what SQLite makes of it depends on affinities: leave the term to it */
};

struct scan {
  msg_filter *f;
  bool exact; /* every term so far */
  int64_t limit;
  const char *node;
};

/* Neither names nor ids hold NUL, so text that does equals none of them. */
static enum fit fit_text(sqlite3_value *v, const char **out) {
  int type = sqlite3_value_type(v);
  if (type == SQLITE_NULL)
    return FIT_NEVER;
  if (type != SQLITE_TEXT)
    return FIT_UNKNOWN;
  const char *text = (const char *)sqlite3_value_text(v);
  if (!text)
    return FIT_UNKNOWN;
  *out = text;
  return strlen(text) == (size_t)sqlite3_value_bytes(v) ? FIT_OK : FIT_NEVER;
}

/* Bytes of lower-case hex at the start of text, the form in which ids are shown. */
static size_t hex_length(const char *text) {
  return strspn(text, "0123456789abcdef");
}

/* One equal value into `one`, a filter that holds only this term. */
static int add_equal(msg_filter *one, enum msg_push push, sqlite3_value *v, enum fit *fit) {
  const char *text = NULL;
  msg_oid id;
  enum msg_state state;
  *fit = fit_text(v, &text);
  if (*fit != FIT_OK)
    return MSG_OK;
  switch (push) {
  case MSG_PUSH_TOPIC: return msg_filter_add_topic(one, text);
  case MSG_PUSH_SENDER: return msg_filter_add_sender(one, text);
  case MSG_PUSH_ID:
    if (hex_length(text) == MSG_OID_HEX && msg_oid_parse(text, &id))
      return msg_filter_add_id(one, &id);
    break;
  default:
    if (msg_state_parse(text, &state))
      one->states |= 1u << state;
  }
  return MSG_OK;
}

static int add_list(msg_filter *one, enum msg_push push, sqlite3_value *list, enum fit *fit,
                    msg_err *err) {
  sqlite3_value *v = NULL;
  int rc = sqlite3_vtab_in_first(list, &v);
  for (; rc == SQLITE_OK && v; rc = sqlite3_vtab_in_next(list, &v)) {
    enum fit each;
    if (add_equal(one, push, v, &each) != MSG_OK)
      return msg_err_nomem(err);
    if (each == FIT_UNKNOWN)
      *fit = FIT_UNKNOWN;
  }
  if (rc == SQLITE_NOMEM)
    return msg_err_nomem(err);
  if (rc == SQLITE_OK || rc == SQLITE_DONE)
    return MSG_OK;
  return msg_err_native(err, MSG_BACKEND, MSG_DOMAIN_SQLITE, rc, "cannot read an IN list: %s",
                        sqlite3_errstr(rc));
}

/* --- xFilter: cutting the filter ----------------------------------------------------------- */

static bool holds(char *const *at, size_t n, const char *text) {
  for (size_t i = 0; i < n; i++)
    if (strcmp(at[i], text) == 0)
      return true;
  return false;
}

/* Cut the list at/n, absent if it is NULL, to what `other` holds too, or take `other` over. */
static void cut_texts(char ***at, size_t *n, char ***other, size_t *other_n) {
  if (!*at) {
    *at = *other;
    *n = *other_n;
    *other = NULL;
    *other_n = 0;
    return;
  }
  size_t kept = 0;
  for (size_t i = 0; i < *n; i++) {
    if (holds(*other, *other_n, (*at)[i]))
      (*at)[kept++] = (*at)[i];
    else
      msg_free((*at)[i]);
  }
  *n = kept;
}

static void cut_ids(msg_filter *f, msg_filter *one) {
  if (!f->ids) {
    f->ids = one->ids;
    f->id_count = one->id_count;
    one->ids = NULL;
    one->id_count = 0;
    return;
  }
  size_t kept = 0;
  for (size_t i = 0; i < f->id_count; i++) {
    bool both = false;
    for (size_t j = 0; !both && j < one->id_count; j++)
      both = msg_oid_cmp(&f->ids[i], &one->ids[j]) == 0;
    if (both)
      f->ids[kept++] = f->ids[i];
  }
  f->id_count = kept;
}

static bool cut_equal(msg_filter *f, enum msg_push push, msg_filter *one) {
  switch (push) {
  case MSG_PUSH_TOPIC:
    cut_texts(&f->topics, &f->topic_count, &one->topics, &one->topic_count);
    return f->topic_count > 0;
  case MSG_PUSH_SENDER:
    cut_texts(&f->senders, &f->sender_count, &one->senders, &one->sender_count);
    return f->sender_count > 0;
  case MSG_PUSH_ID: cut_ids(f, one); return f->id_count > 0;
  default: f->states = f->states ? f->states & one->states : one->states; return f->states != 0;
  }
}

static int equal_term(struct scan *s, enum msg_push push, bool list, sqlite3_value *v,
                      msg_err *err) {
  msg_filter one;
  enum fit fit = FIT_OK;
  msg_filter_init(&one);
  int rc = list ? add_list(&one, push, v, &fit, err) : add_equal(&one, push, v, &fit);
  if (rc == MSG_OK && fit == FIT_UNKNOWN)
    s->exact = false;
  else if (rc == MSG_OK && !s->f->none && !cut_equal(s->f, push, &one))
    s->f->none = true;
  msg_filter_clear(&one);
  return rc == MSG_NOMEM ? msg_err_nomem(err) : rc;
}

/* An id compares as its text. Shorter text is less than every id that begins with it. */
static void id_range(struct scan *s, const char *op, sqlite3_value *v) {
  const char *text = NULL;
  char padded[MSG_OID_HEX + 1] = "000000000000000000000000";
  msg_oid id;
  enum fit fit = fit_text(v, &text);
  size_t n = fit == FIT_OK ? strlen(text) : 0;
  if (fit == FIT_NEVER && sqlite3_value_type(v) == SQLITE_NULL)
    s->f->none = true;
  if (fit != FIT_OK || n > MSG_OID_HEX || hex_length(text) != n) {
    s->exact = false;
    return;
  }
  memcpy(padded, text, n);
  msg_oid_parse(padded, &id);
  bool whole = n == MSG_OID_HEX;
  bool closed = op[1] == '=';
  if (op[0] == '>') {
    s->exact = s->exact && (closed || !whole);
    if (!s->f->has_id_lo || msg_oid_cmp(&id, &s->f->id_lo) > 0)
      s->f->id_lo = id;
    s->f->has_id_lo = true;
  } else {
    s->exact = s->exact && closed && whole;
    if (!s->f->has_id_hi || msg_oid_cmp(&id, &s->f->id_hi) < 0)
      s->f->id_hi = id;
    s->f->has_id_hi = true;
  }
}

static const msg_range EMPTY = {1, 0};

static msg_range int_range(const char *op, int64_t i) {
  bool closed = op[0] == '=' || op[1] == '=';
  if (op[0] == '<')
    return closed           ? (msg_range){INT64_MIN, i}
           : i == INT64_MIN ? EMPTY
                            : (msg_range){INT64_MIN, i - 1};
  if (op[0] == '>')
    return closed           ? (msg_range){i, INT64_MAX}
           : i == INT64_MAX ? EMPTY
                            : (msg_range){i + 1, INT64_MAX};
  return (msg_range){i, i};
}

/* SQLite compares an integer with a real by their exact values. */
static msg_range real_range(const char *op, double r) {
  const msg_range all = {INT64_MIN, INT64_MAX};
  const double edge = 9223372036854775808.0;
  if (r >= edge)
    return op[0] == '<' ? all : EMPTY;
  if (r < -edge)
    return op[0] == '>' ? all : EMPTY;
  double floored = floor(r);
  int64_t i = (int64_t)floored;
  if (floored == r)
    return int_range(op, i);
  return op[0] == '=' ? EMPTY : int_range(op[0] == '<' ? "<=" : ">", i);
}

static void int_term(struct scan *s, msg_range *range, const char *op, sqlite3_value *v) {
  msg_range cut;
  switch (sqlite3_value_type(v)) {
  case SQLITE_NULL: s->f->none = true; return;
  case SQLITE_INTEGER: cut = int_range(op, sqlite3_value_int64(v)); break;
  case SQLITE_FLOAT: cut = real_range(op, sqlite3_value_double(v)); break;
  default: s->exact = false; return;
  }
  msg_range_cut(range, cut.lo, cut.hi);
  if (range->lo > range->hi)
    s->f->none = true;
}

/* --- xFilter: the words -------------------------------------------------------------------- */

static msg_range *range_of(msg_filter *f, enum msg_push push) {
  switch (push) {
  case MSG_PUSH_TIMESTAMP: return &f->timestamp_ms;
  case MSG_PUSH_DELIVER_AT: return &f->deliver_at_ms;
  case MSG_PUSH_PRIORITY: return &f->priority;
  default: return &f->seq;
  }
}

static int node_term(struct scan *s, sqlite3_value *v, msg_err *err) {
  if (sqlite3_value_type(v) != SQLITE_TEXT)
    return msg_err_set(err, MSG_INVALID,
                       "column node takes the sender id of an open node, as text");
  return msg_arg_text(v, "column node", &s->node, err);
}

/* word: "topic=" and so on. */
static int term(struct scan *s, const char *word, sqlite3_value *v, msg_err *err) {
  size_t n = strcspn(word, "=[<>");
  const char *op = word + n;
  size_t push = MSG_PUSH_ID;
  while (push < MSG_PUSH_COUNT - 1 &&
         (strncmp(msg_push_names[push], word, n) != 0 || msg_push_names[push][n] != '\0'))
    push++;
  if (push == MSG_PUSH_NODE)
    return node_term(s, v, err);
  if (!msg_push_is_text((enum msg_push)push))
    int_term(s, range_of(s->f, (enum msg_push)push), op, v);
  else if (op[0] == '=' || op[0] == '[')
    return equal_term(s, (enum msg_push)push, op[0] == '[', v, err);
  else
    id_range(s, op, v);
  return MSG_OK;
}

static int word_term(struct scan *s, const char *word, int *argc, sqlite3_value **argv,
                     msg_err *err) {
  if (strcmp(word, "order") == 0) {
    s->f->ordered = true;
  } else if (strcmp(word, "newest") == 0) {
    s->f->descending_seq = true;
  } else if (strcmp(word, "oldest") == 0) {
    s->f->ascending_seq = true;
  } else if (strcmp(word, "limit") == 0) {
    s->limit = sqlite3_value_int64(argv[(*argc)++]);
  } else {
    return term(s, word, argv[(*argc)++], err);
  }
  return MSG_OK;
}

int msg_plan_filter(const char *plan, int argc, sqlite3_value **argv, msg_filter *f,
                    const char **node, msg_err *err) {
  struct scan s = {.f = f, .exact = true, .limit = -1};
  char word[32];
  int at = 0, rc = MSG_OK;
  for (const char *p = plan ? plan : ""; *p && rc == MSG_OK && at <= argc;) {
    size_t n = strcspn(p, " ");
    if (n < sizeof word) {
      memcpy(word, p, n);
      word[n] = '\0';
      rc = word_term(&s, word, &at, argv, err);
    }
    p += n + (p[n] == ' ');
  }
  if (rc == MSG_OK && s.exact && s.limit >= 0)
    f->limit = s.limit;
  if (rc == MSG_OK)
    *node = s.node;
  return rc;
}
