/* claim.c - leases on exclusive messages.
 *
 * Under the write lock, candidates are looked up in delivery order, their messages read, and then
 * leased. (One UPDATE ... RETURNING would need two temporary tables a call, and give its rows
 * unsorted.) The narrow way takes an exact topic where only messages without expiry and recipients
 * wait; the wide way merges candidates of every kind and topic. */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "store/local/candidates.h"
#include "store/local/lease.h"
#include "store/local/move.h"
#include "store/local/reading.h"

/* How often one call sweeps for more before it gives up (256 rows each). */
#define ROUNDS_MAX 16
/* So many places are looked at for their messages where one was found without, at least. */
#define ORPHANS 256

/* No row where the wide way has a say. */
static const char SQL_NARROW[] = MSG_LOCAL_READY_ROWS
    " AND NOT EXISTS(SELECT 1 FROM @.msg_store_message INDEXED BY msg_store_message_mortal_end"
    "  WHERE state = 2 AND queue = ?1 AND topic = ?2 AND delete_at > ?4)"
    " AND NOT EXISTS(SELECT 1 FROM @.msg_store_lane WHERE queue = ?1 AND node = ?5"
    "  AND exclusive = 1)" MSG_LOCAL_READY_ORDER;

static const char SQL_CLAIM_ONE[] =
    "INSERT INTO @.msg_store_claim(seq, lease, attempts) VALUES(?1, ?2, ?3)";
static const char SQL_TAKE_ONE[] =
    "DELETE FROM @.msg_store_ready WHERE queue = ?1 AND topic = ?2 AND priority = ?3"
    " AND deliver_at = ?4 AND seq = ?5";
/* What SQL_NARROW gave, by its last row, while nobody else can write. */
static const char SQL_TAKE_RANGE[] = "DELETE FROM @.msg_store_ready WHERE queue = ?1 AND topic = ?2"
                                     " AND (priority, deliver_at, seq) <= (?3, ?4, ?5)";
/* Where they are of one priority. */
#define ALIKE                                                                                      \
  " @.msg_store_ready WHERE queue = ?1 AND topic = ?2 AND priority = ?3"                           \
  " AND (deliver_at, seq) <= (?4, ?5)"
static const char SQL_CLAIM_ALIKE[] =
    "INSERT INTO @.msg_store_claim(seq, lease, attempts) SELECT seq, ?6, ?7 FROM" ALIKE;
static const char SQL_TAKE_ALIKE[] = "DELETE FROM" ALIKE;

struct claiming {
  const msg_actor *actor;
  const msg_claim *claim;
  int64_t now_ms;
  char token[MSG_OID_HEX + 1];
  msg_local_candidates found; /* this round */
  int64_t lease;              /* its number, this round */
  bool may_roll_back;         /* the host's transaction decides about it */
  msg_list *out;
  size_t base;    /* out->n before the call */
  size_t before;  /* out->n before this round */
  bool gaps;      /* this round: one that was found was buried or not there */
  msg_oid *spent; /* whose rolled-back deliveries this round counts */
  size_t spent_n, spent_cap;
};

static size_t missing(const struct claiming *c) {
  return c->claim->count - (c->out->n - c->base);
}

static const char *exact_topic(const msg_claim *claim) {
  return msg_pattern_kind_of(claim->pattern) == MSG_PATTERN_EXACT ? msg_pattern_text(claim->pattern)
                                                                  : NULL;
}

/* Are this round's candidates the first that are ready? */
static bool is_narrow(const struct claiming *c) {
  return c->found.unchecked;
}

static void list_cut(msg_list *l, size_t n) {
  while (l->n > n)
    msg_message_clear(&l->at[--l->n]);
}

static void list_remove(msg_list *l, size_t i) {
  msg_message_clear(&l->at[i]);
  memmove(&l->at[i], &l->at[i + 1], (l->n - i - 1) * sizeof *l->at);
  l->n--;
}

/* ---- finding ---- */

static int find_narrow(msg_local_session *s, struct claiming *c, msg_err *err) {
  sqlite3_stmt *stmt = NULL;
  int rc = msg_local_bound(s, SQL_NARROW, &stmt, err, "ttiit", s->queue, exact_topic(c->claim),
                           (int64_t)missing(c), c->now_ms, c->actor->node);
  return rc == MSG_OK ? msg_local_candidates_read(s, stmt, &c->found, err) : rc;
}

static int find_wide(msg_local_session *s, struct claiming *c, msg_err *err) {
  int rc =
      msg_local_candidates_find(s, c->actor->node, c->claim, missing(c), c->now_ms, &c->found, err);
  s->claim_wide = c->found.wide;
  return rc;
}

static int find(msg_local_session *s, struct claiming *c, msg_err *err) {
  const char *topic = exact_topic(c->claim);
  bool wide = !topic || s->claim_wide;
  int rc = MSG_OK;
  msg_local_firsts_clear(&c->found.first);
  c->found.first.max = SIZE_MAX;
  c->found.wide = false;
  c->found.unchecked = !wide;
  if (!wide) {
    rc = find_narrow(s, c, err);
    if (rc == MSG_OK && c->found.first.n == 0)
      rc = msg_local_candidates_wide(s, c->actor->node, topic, c->now_ms, &wide, err);
  }
  if (rc != MSG_OK || !wide)
    return rc;
  c->found.unchecked = false;
  return find_wide(s, c, err);
}

/* Places, among the first that were found, whose message was deleted or changed by hand. */
static int drop_orphans(msg_local_session *s, struct claiming *c, msg_err *err) {
  static const char sql[] =
      "DELETE FROM @.msg_store_ready WHERE (queue, topic, priority, deliver_at, seq) IN"
      " (SELECT queue, topic, priority, deliver_at, seq FROM"
      "  (SELECT queue, topic, priority, deliver_at, seq FROM @.msg_store_ready"
      "  WHERE queue = ?1 AND topic = ?2 ORDER BY priority, deliver_at, seq LIMIT ?3) AS o"
      "  WHERE " MSG_LOCAL_MESSAGE("state", "o.seq") " IS NOT 1)";
  int64_t dropped = 0;
  int rc = msg_local_exec(s, sql, &dropped, err, "tti", s->queue, exact_topic(c->claim),
                          (int64_t)(c->found.first.n < ORPHANS ? ORPHANS : c->found.first.n));
  c->gaps = c->gaps || dropped > 0;
  return rc;
}

/* ---- attempts ---- */

static int find_life(msg_local_session *s, int64_t seq, int64_t *life, msg_err *err) {
  static const char sql[] = "SELECT redriven FROM @.msg_store_message WHERE seq = ?1";
  sqlite3_stmt *stmt = NULL;
  int rc = msg_local_bound(s, sql, &stmt, err, "i", seq);
  if (rc == MSG_OK)
    rc = msg_local_row(s, stmt, err);
  if (rc == MSG_OK)
    *life = sqlite3_column_int64(stmt, 0);
  msg_local_done(s, stmt);
  return rc;
}

/* Deliveries that were rolled back count too. */
static int add_undone(msg_local_session *s, struct claiming *c, msg_message *m, msg_err *err) {
  msg_local_undone *u = s->store->undone;
  int64_t life = 0;
  if (!msg_local_undone_knows(u, &m->id))
    return MSG_OK;
  if (msg_grow(&c->spent, &c->spent_cap, c->spent_n + 1, sizeof *c->spent) != MSG_OK)
    return msg_err_nomem(err);
  c->spent[c->spent_n++] = m->id;
  int rc = find_life(s, m->seq, &life, err);
  if (rc != MSG_OK)
    return rc;
  m->attempts =
      msg_local_undone_attempts(u, &m->id, life, m->attempts, c->actor->settings->max_attempts);
  return MSG_OK;
}

/* They are stored for good. */
static void forget_spent(msg_local_session *s, struct claiming *c) {
  for (size_t i = 0; i < c->spent_n; i++)
    msg_local_undone_forget(s->store->undone, &c->spent[i]);
  c->spent_n = 0;
}

static int bury(msg_local_session *s, struct claiming *c, size_t i, msg_err *err) {
  msg_local_item item;
  int rc = msg_local_item_load(s, c->out->at[i].seq, &item, err);
  item.attempts = c->out->at[i].attempts;
  if (rc == MSG_OK)
    rc = msg_local_item_bury(s, &item, "max_attempts", c->now_ms, err);
  list_remove(c->out, i);
  c->gaps = true;
  return rc;
}

/* Takes those that were delivered often enough out of the list, dead. */
static int bury_poison(msg_local_session *s, struct claiming *c, msg_err *err) {
  bool undone = msg_local_undone_any(s->store->undone);
  int rc = MSG_OK;
  for (size_t i = c->out->n; rc == MSG_OK && i > c->before; i--) {
    msg_message *m = &c->out->at[i - 1];
    if (undone)
      rc = add_undone(s, c, m, err);
    if (rc == MSG_OK && m->attempts >= c->actor->settings->max_attempts)
      rc = bury(s, c, i - 1, err);
  }
  return rc;
}

/* ---- leasing ---- */

/* As the row will be. */
static int show_lease(const struct claiming *c, msg_message *m, msg_err *err) {
  m->owner = c->claim->brief ? NULL : msg_strdup(c->actor->node);
  if (!m->owner && !c->claim->brief)
    return msg_err_nomem(err);
  m->state = MSG_STATE_CLAIMED;
  m->attempts++;
  m->since_ms = c->now_ms;
  m->until_ms = msg_local_lease_end_ms(c->lease);
  memcpy(m->token, c->token, sizeof m->token);
  return MSG_OK;
}

static int claim_one(msg_local_session *s, const struct claiming *c, const msg_message *m,
                     msg_err *err) {
  return msg_local_exec(s, SQL_CLAIM_ONE, NULL, err, "iii", m->seq, c->lease, (int64_t)m->attempts);
}

/* Where it waited until now. */
static int take_one(msg_local_session *s, const struct claiming *c, const msg_message *m,
                    msg_err *err) {
  bool addressed = m->recipient_count > 0;
  if (is_narrow(c) || (!addressed && m->delete_at_ms == MSG_NEVER))
    return msg_local_exec(s, SQL_TAKE_ONE, NULL, err, "ttiii", s->queue, m->topic,
                          (int64_t)m->priority, m->deliver_at_ms, m->seq);
  int rc = msg_local_exec(s, "UPDATE @.msg_store_message SET state = 6 WHERE seq = ?1", NULL, err,
                          "i", m->seq);
  return rc == MSG_OK && addressed ? msg_local_lanes_drop(s, m->seq, err) : rc;
}

/* All that was found is leased? Burying may have made a follower ready in between, which was not
 * read, and what is not there has no number to lease. */
static bool is_range(const struct claiming *c) {
  return is_narrow(c) && !c->gaps && c->found.first.n > 1 &&
         c->out->n - c->before == c->found.first.n;
}

static int take_range(msg_local_session *s, const struct claiming *c, msg_err *err) {
  const msg_message *last = &c->out->at[c->out->n - 1];
  return msg_local_exec(s, SQL_TAKE_RANGE, NULL, err, "ttiii", s->queue, exact_topic(c->claim),
                        (int64_t)last->priority, last->deliver_at_ms, last->seq);
}

static int lease_alike(msg_local_session *s, const struct claiming *c, const msg_local_lease *l,
                       msg_err *err) {
  const msg_message *last = &c->out->at[c->out->n - 1];
  const char *topic = exact_topic(c->claim);
  int64_t priority = last->priority, claimed = 0;
  int rc = msg_local_exec(s, SQL_CLAIM_ALIKE, &claimed, err, "ttiiiii", s->queue, topic, priority,
                          last->deliver_at_ms, last->seq, c->lease, (int64_t)last->attempts);
  if (rc == MSG_OK && claimed != l->messages)
    return msg_err_set(err, MSG_CORRUPT,
                       "claim on '%s': msg_store_ready was changed by hand: its rows are not those "
                       "of the messages that they name",
                       msg_show(topic).s);
  return rc == MSG_OK ? msg_local_exec(s, SQL_TAKE_ALIKE, NULL, err, "ttiii", s->queue, topic,
                                       priority, last->deliver_at_ms, last->seq)
                      : rc;
}

static int lease_each(msg_local_session *s, const struct claiming *c, msg_err *err) {
  bool range = is_range(c);
  int rc = MSG_OK;
  for (size_t i = c->before; rc == MSG_OK && i < c->out->n; i++)
    rc = claim_one(s, c, &c->out->at[i], err);
  if (rc == MSG_OK && range)
    rc = take_range(s, c, err);
  for (size_t i = c->before; rc == MSG_OK && !range && i < c->out->n; i++)
    rc = take_one(s, c, &c->out->at[i], err);
  return rc;
}

/* Of one priority, and delivered equally often? */
static bool are_alike(const struct claiming *c) {
  const msg_message *m = &c->out->at[c->before];
  size_t n = c->out->n - c->before;
  bool alike = m->priority == m[n - 1].priority;
  for (size_t i = 1; alike && i < n; i++)
    alike = m[i].attempts == m->attempts;
  return alike;
}

static msg_local_lease lease_of(const struct claiming *c) {
  msg_local_lease l = {.since_ms = c->now_ms,
                       .messages = (int64_t)(c->out->n - c->before),
                       .first = c->out->at[c->before].seq,
                       .last = c->out->at[c->before].seq};
  for (size_t i = c->before; i < c->out->n; i++) {
    int64_t seq = c->out->at[i].seq;
    l.first = seq < l.first ? seq : l.first;
    l.last = seq > l.last ? seq : l.last;
  }
  return l;
}

static int lease(msg_local_session *s, struct claiming *c, msg_err *err) {
  if (c->out->n == c->before)
    return MSG_OK;
  msg_local_lease l = lease_of(c);
  int64_t end_ms = msg_clock_add(c->now_ms, c->claim->lease_ms);
  int rc = msg_local_lease_new(s, c->actor, c->token, end_ms, &l, err);
  c->lease = l.number;
  for (size_t i = c->before; rc == MSG_OK && i < c->out->n; i++)
    rc = show_lease(c, &c->out->at[i], err);
  if (rc != MSG_OK)
    return rc;
  return is_range(c) && are_alike(c) ? lease_alike(s, c, &l, err) : lease_each(s, c, err);
}

static int claim_work(msg_local_session *s, void *arg, msg_err *err) {
  struct claiming *c = arg;
  list_cut(c->out, c->before);
  c->gaps = false;
  c->spent_n = 0;
  int rc = find(s, c, err);
  if (rc == MSG_OK)
    rc = msg_local_candidates_messages(
        s, &c->found, is_narrow(c) && c->claim->brief ? exact_topic(c->claim) : NULL, c->now_ms,
        c->out, err);
  if (rc == MSG_OK && is_narrow(c) && c->out->n - c->before < c->found.first.n)
    rc = drop_orphans(s, c, err);
  if (rc == MSG_OK)
    rc = bury_poison(s, c, err);
  return rc == MSG_OK ? lease(s, c, err) : rc;
}

/* ---- looking before locking ---- */

struct looking {
  const msg_actor *actor;
  const msg_claim *claim;
  int64_t now_ms;
  bool due_counts; /* what a sweep would move counts as claimable */
  bool found;
};

static int look_work(msg_local_session *s, void *arg, msg_err *err) {
  struct looking *l = arg;
  msg_local_candidates found = {0};
  int rc = msg_local_candidates_find(s, l->actor->node, l->claim, 1, l->now_ms, &found, err);
  l->found = found.first.n > 0;
  msg_local_firsts_clear(&found.first);
  if (rc == MSG_OK && !l->found && l->due_counts)
    rc = msg_local_sweep_due(s, l->now_ms, &l->found, err);
  return rc;
}

int msg_local_claimable(msg_session *base, const msg_actor *actor, const msg_claim *claim,
                        bool *out, msg_err *err) {
  struct looking l = {
      .actor = actor, .claim = claim, .now_ms = msg_clock_now_ms(), .due_counts = true};
  int rc = msg_local_read((msg_local_session *)base, "claim", look_work, &l, err);
  if (rc == MSG_OK)
    *out = l.found;
  return rc;
}

/* After a claim that found nothing, many idle consumers should not queue up for the write lock to
 * find nothing again. */
static int is_dry(msg_local_session *s, const struct claiming *c, bool *dry, msg_err *err) {
  *dry = false;
  if (!s->claim_dry || c->may_roll_back ||
      sqlite3_txn_state(s->db, s->schema_raw) != SQLITE_TXN_NONE)
    return MSG_OK;
  struct looking l = {.actor = c->actor, .claim = c->claim, .now_ms = c->now_ms};
  int rc = msg_local_read(s, "claim", look_work, &l, err);
  *dry = rc == MSG_OK && !l.found;
  return rc;
}

/* ---- the verb ---- */

/* Claims what is there now. */
static int take(msg_local_session *s, struct claiming *c, msg_err *err) {
  bool dry = false;
  c->before = c->out->n;
  int rc = is_dry(s, c, &dry, err);
  s->claiming = true;
  if (rc == MSG_OK && !dry)
    rc = msg_local_write(s, "claim", true, claim_work, c, err);
  s->claiming = false;
  if (rc == MSG_OK && !c->may_roll_back)
    forget_spent(s, c);
  if (rc != MSG_OK)
    list_cut(c->out, c->before);
  return rc;
}

/* Behind poison there may be work. */
static int take_past_poison(msg_local_session *s, struct claiming *c, msg_err *err) {
  int rc;
  do {
    c->gaps = false;
    rc = take(s, c, err);
  } while (rc == MSG_OK && c->gaps && missing(c) > 0);
  return rc;
}

/* Takes, and sweeps for more, until there are enough or nothing more is due. */
static int take_enough(msg_local_session *s, struct claiming *c, msg_err *err) {
  int rc = MSG_OK;
  for (int round = 0; round < ROUNDS_MAX; round++) {
    bool backlog;
    rc = take_past_poison(s, c, err);
    if (rc != MSG_OK || missing(c) == 0)
      return rc;
    rc = msg_local_sweep(s, c->actor, c->now_ms, true, &backlog, err);
    if (rc != MSG_OK || s->swept == 0)
      return rc;
    s->claim_dry = false;
  }
  return rc;
}

int msg_local_claim(msg_session *base, const msg_actor *actor, const msg_claim *claim,
                    msg_list *out, msg_err *err) {
  msg_local_session *s = (msg_local_session *)base;
  const char *topic = exact_topic(claim);
  struct claiming c = {.actor = actor,
                       .claim = claim,
                       .now_ms = msg_clock_now_ms(),
                       .may_roll_back = msg_local_pinned(s),
                       .out = out,
                       .base = out->n};
  if (topic && !msg_local_claim_wants(claim, topic))
    return MSG_OK;
  msg_oid token = msg_oid_new();
  msg_oid_hex(&token, c.token);
  bool backlog;
  int rc = msg_local_lock(s, "claim", err);
  if (rc == MSG_OK)
    rc = msg_local_sweep(s, actor, c.now_ms, false, &backlog, err);
  if (rc == MSG_OK)
    rc = take_enough(s, &c, err);
  msg_free(c.spent);
  msg_local_firsts_clear(&c.found.first);
  bool some = out->n > c.base;
  /* What an earlier round has committed is theirs, whatever came after. */
  if (rc != MSG_OK && some && !c.may_roll_back)
    rc = MSG_OK;
  if (rc != MSG_OK) {
    list_cut(out, c.base);
    return rc;
  }
  s->claim_dry = !some;
  if (some) { /* of several rounds */
    msg_list tail = {.at = out->at + c.base, .n = out->n - c.base};
    msg_list_sort(&tail);
  }
  return MSG_OK;
}
