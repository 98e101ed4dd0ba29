/* claim.c - leasing exclusive messages: mark, then read the locks.
 *
 * The message document is the truth, for a lock that anybody deletes would make two owners. But
 * Java nodes lock first and mark then, so after the mark the locks are read once more: who is seen
 * there is waited for. In order:
 *   1. candidates by sq_claim   2. less those that are locked   3. one guarded update marks them
 *   4. the locks, then the messages   5. a lock seen: look again until it is gone or its owner's
 *   mark is there; who is not sure steps back. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "store/mongo/change.h"
#include "store/mongo/group.h"

#define ROUNDS       8
#define PAGE_MIN     32
#define PAGES        64
#define LOCK_WAIT_MS 200
#define LOCK_STEP_MS 10

struct candidate {
  msg_oid id;
  int64_t priority, at_ms;
};

struct claiming {
  msg_mongo_session *s;
  msg_mongo_use *u;
  const msg_actor *actor;
  const msg_claim *claim;
  msg_mongo_texts topics;
  int64_t now_ms;
  /* of a round */
  struct candidate *at;
  size_t n, cap;
  size_t seen;         /* rows of the last page */
  msg_mongo_ids dying; /* candidates with too many attempts */
  msg_mongo_ids ids;   /* to be marked, then marked */
  msg_mongo_ids locked;
  msg_list got; /* read back after the mark */
  char token[MSG_OID_HEX + 1];
};

static void round_clear(struct claiming *c) {
  c->n = 0;
  msg_mongo_ids_clear(&c->dying);
  msg_mongo_ids_clear(&c->ids);
  msg_mongo_ids_clear(&c->locked);
  msg_list_clear(&c->got);
}

static void claiming_clear(struct claiming *c) {
  round_clear(c);
  msg_free(c->at);
  msg_mongo_texts_clear(&c->topics);
}

/* ---- 1. candidates ---- */

static void append_ready(bson_t *filter, const struct claiming *c, char *const *topics, size_t n) {
  char *me[] = {(char *)c->actor->node};
  msg_mongo_append_topics(filter, topics, n);
  BSON_APPEND_BOOL(filter, "exclusive", true);
  msg_mongo_append_untaken(filter);
  msg_mongo_append_texts(filter, "recipients", "$in", me, 1, true);
  msg_mongo_append_alive(filter, c->now_ms);
}

/* Deliveries that the host rolled back count now. */
static int64_t attempts_of(struct claiming *c, const bson_t *doc, const msg_oid *id, msg_err *err,
                           int *rc) {
  int64_t attempts = msg_mongo_get_int(doc, "sq.attempts", 0);
  int32_t undone = msg_mongo_undone_any(c->s->store) ? msg_mongo_undone_take(c->s->store, id) : 0;
  if (undone == 0)
    return attempts;
  bson_t filter = BSON_INITIALIZER;
  bson_t *change = BCON_NEW("$set", "{", "sq.attempts", BCON_INT64(attempts + undone), "}");
  msg_mongo_append_oid(&filter, "_id", id);
  *rc = msg_mongo_update(c->u, c->s->names.messages, "claim", &filter, change, NULL, err);
  bson_destroy(change);
  bson_destroy(&filter);
  return attempts + undone;
}

static int note_candidate(void *arg, const bson_t *doc, msg_err *err) {
  struct claiming *c = arg;
  struct candidate x = {.priority = msg_mongo_get_int(doc, "priority", MSG_PRIORITY_DEFAULT),
                        .at_ms = msg_mongo_get_int(doc, "timestamp", 0)};
  int rc = MSG_OK;
  c->seen++;
  if (!msg_mongo_get_oid(doc, "_id", &x.id))
    return MSG_OK;
  if (msg_mongo_get_text(doc, "sq.group"))
    msg_mongo_note_grouped(c->s);
  if (attempts_of(c, doc, &x.id, err, &rc) >= c->actor->settings->max_attempts)
    return rc != MSG_OK                                    ? rc
           : msg_mongo_ids_add(&c->dying, &x.id) == MSG_OK ? MSG_OK
                                                           : msg_err_nomem(err);
  if (rc == MSG_OK && msg_grow(&c->at, &c->cap, c->n + 1, sizeof *c->at) != MSG_OK)
    rc = msg_err_nomem(err);
  if (rc == MSG_OK)
    c->at[c->n++] = x;
  return rc;
}

static int query_candidates(struct claiming *c, char *const *topics, size_t n, int64_t skip,
                            int64_t limit, msg_err *err) {
  bson_t filter = BSON_INITIALIZER;
  bson_t *opts =
      BCON_NEW("sort", "{", "priority", BCON_INT32(1), "timestamp", BCON_INT32(1), "_id",
               BCON_INT32(1), "}", "limit", BCON_INT64(limit), "projection", "{", "priority",
               BCON_INT32(1), "timestamp", BCON_INT32(1), "sq.attempts", BCON_INT32(1), "sq.group",
               BCON_INT32(1), "}", "hint", BCON_UTF8("sq_claim"));
  if (skip)
    BSON_APPEND_INT64(opts, "skip", skip);
  append_ready(&filter, c, topics, n);
  c->seen = 0;
  int rc =
      msg_mongo_each(c->u, c->s->names.messages, "claim", &filter, opts, note_candidate, c, err);
  bson_destroy(opts);
  bson_destroy(&filter);
  return rc;
}

static int by_delivery(const void *a, const void *b) {
  const struct candidate *x = a, *y = b;
  if (x->priority != y->priority)
    return x->priority < y->priority ? -1 : 1;
  if (x->at_ms != y->at_ms)
    return x->at_ms < y->at_ms ? -1 : 1;
  return msg_oid_cmp(&x->id, &y->id);
}

/* One page over all topics, in order. Few topics go into one query; of many the best of each
 * part. */
static int page(struct claiming *c, int64_t skip, int64_t limit, msg_err *err) {
  int rc = MSG_OK;
  size_t most = 0;
  c->n = 0;
  for (size_t i = 0; rc == MSG_OK && i < c->topics.n; i += MSG_MONGO_TOPICS_MAX) {
    size_t n = c->topics.n - i;
    n = n < MSG_MONGO_TOPICS_MAX ? n : MSG_MONGO_TOPICS_MAX;
    rc = query_candidates(c, c->topics.at + i, n, skip, limit, err);
    most = c->seen > most ? c->seen : most;
  }
  c->seen = most;
  if (c->n > 1 && c->topics.n > MSG_MONGO_TOPICS_MAX)
    qsort(c->at, c->n, sizeof *c->at, by_delivery);
  return rc;
}

/* ---- 2. locks ---- */

static int note_locked(void *arg, const bson_t *doc, msg_err *err) {
  msg_oid id;
  if (msg_mongo_get_oid(doc, "_id", &id) && msg_mongo_ids_add(arg, &id) != MSG_OK)
    return msg_err_nomem(err);
  return MSG_OK;
}

/* Which of the ids are locked now. A lock whose time is over only waits for its removal. */
static int read_locks(struct claiming *c, const msg_mongo_ids *ids, msg_mongo_ids *locked,
                      msg_err *err) {
  bson_t filter = BSON_INITIALIZER;
  bson_t *opts = BCON_NEW("projection", "{", "_id", BCON_INT32(1), "}");
  msg_mongo_ids_clear(locked);
  msg_mongo_append_ids(&filter, "_id", "$in", ids->at, ids->n);
  msg_mongo_append_alive(&filter, c->now_ms);
  int rc =
      msg_mongo_each(c->u, c->s->names.locks, "claim", &filter, opts, note_locked, locked, err);
  bson_destroy(opts);
  bson_destroy(&filter);
  return rc;
}

/* The first `count` of the page that nobody has locked go to c->ids. */
static int choose(struct claiming *c, size_t count, msg_err *err) {
  msg_mongo_ids all = {0};
  int rc = MSG_OK;
  for (size_t i = 0; rc == MSG_OK && i < c->n; i++)
    rc = msg_mongo_ids_add(&all, &c->at[i].id);
  if (rc != MSG_OK)
    rc = msg_err_nomem(err);
  else if (all.n)
    rc = read_locks(c, &all, &c->locked, err);
  for (size_t i = 0; rc == MSG_OK && i < all.n && c->ids.n < count; i++)
    if (!msg_mongo_ids_have(&c->locked, &all.at[i]) &&
        msg_mongo_ids_add(&c->ids, &all.at[i]) != MSG_OK)
      rc = msg_err_nomem(err);
  msg_mongo_ids_clear(&all);
  return rc;
}

/* Pages on while everything is locked. */
static int find_free(struct claiming *c, size_t count, msg_err *err) {
  int64_t skip = 0;
  int64_t limit = count > INT32_MAX ? INT32_MAX : (int64_t)count;
  for (int i = 0; i < PAGES; i++) {
    int rc = page(c, skip, limit, err);
    if (rc == MSG_OK)
      rc = choose(c, count, err);
    if (rc != MSG_OK || c->ids.n || c->dying.n || (int64_t)c->seen < limit)
      return rc;
    skip += limit;
    limit = limit < PAGE_MIN ? PAGE_MIN : 4 * limit;
  }
  return MSG_OK;
}

/* ---- 3. the mark ---- */

static int bury(struct claiming *c, msg_err *err) {
  bson_t filter = BSON_INITIALIZER, *change = msg_mongo_change_bury("claim", "max_attempts");
  msg_mongo_append_ids(&filter, "_id", "$in", c->dying.at, c->dying.n);
  msg_mongo_append_untaken(&filter);
  int rc = msg_mongo_update(c->u, c->s->names.messages, "claim", &filter, change, NULL, err);
  bson_destroy(change);
  bson_destroy(&filter);
  if (rc == MSG_OK && msg_mongo_is_grouped(c->s))
    rc = msg_mongo_groups_after(c->s, c->u, c->dying.at, c->dying.n, err);
  return rc;
}

/* Idempotent: a second run finds them marked. */
static int mark(struct claiming *c, msg_err *err) {
  msg_oid token = msg_oid_new();
  bson_t filter = BSON_INITIALIZER, *change;
  msg_oid_hex(&token, c->token);
  change = msg_mongo_change_claim(c->actor->node, c->token, c->claim->lease_ms);
  msg_mongo_append_ids(&filter, "_id", "$in", c->ids.at, c->ids.n);
  msg_mongo_append_untaken(&filter);
  msg_mongo_append_alive_now(&filter);
  int rc = msg_mongo_update(c->u, c->s->names.messages, "claim", &filter, change, NULL, err);
  bson_destroy(change);
  bson_destroy(&filter);
  return rc;
}

/* ---- 4., 5. whose it is ---- */

static void append_mine(bson_t *filter, const struct claiming *c, const msg_mongo_ids *ids) {
  msg_mongo_append_ids(filter, "_id", "$in", ids->at, ids->n);
  BSON_APPEND_UTF8(filter, "sq.token", c->token);
}

/* Reads those that bear my mark and no other. */
static int read_mine(struct claiming *c, const msg_mongo_ids *ids, msg_list *out, msg_err *err) {
  bson_t filter = BSON_INITIALIZER;
  const bson_t *doc;
  int rc;
  append_mine(&filter, c, ids);
  BCON_APPEND(&filter, "processed_by", "[", BCON_UTF8(c->actor->node), "]");
  mongoc_cursor_t *cursor = msg_mongo_query(c->u, c->s->names.messages, &filter, NULL);
  while ((rc = msg_mongo_next(c->u, cursor, "claim", &doc, err)) == MSG_OK) {
    msg_message m, *to;
    rc = msg_mongo_message(doc, msg_mongo_now_ms(c->s->store), true, &m, err);
    if (rc != MSG_OK)
      break;
    if (!(to = msg_list_add(out))) {
      msg_message_clear(&m);
      rc = msg_err_nomem(err);
      break;
    }
    *to = m;
  }
  mongoc_cursor_destroy(cursor);
  bson_destroy(&filter);
  return rc == MSG_NOTFOUND ? MSG_OK : rc;
}

/* Another's mark stands beside mine, or its lock will not go: mine goes. */
static int step_back(struct claiming *c, const msg_mongo_ids *ids, msg_err *err) {
  bson_t filter = BSON_INITIALIZER;
  append_mine(&filter, c, ids);
  bson_t *change = BCON_NEW(
      "0", "{", "$set", "{", "processed_by", "{", "$filter", "{", "input",
      BCON_UTF8("$processed_by"), "cond", "{", "$ne", "[", BCON_UTF8("$$this"), "{", "$literal",
      BCON_UTF8(c->actor->node), "}", "]", "}", "}", "}", "delete_at", "{", "$ifNull", "[",
      BCON_UTF8("$sq.life"), BCON_UTF8("$delete_at"), "]", "}", "sq.attempts", "{", "$subtract",
      "[", BCON_UTF8("$sq.attempts"), BCON_INT32(1), "]", "}", "}", "}", "1", "{", "$unset", "[",
      BCON_UTF8("sq.state"), BCON_UTF8("sq.token"), BCON_UTF8("sq.owner"), BCON_UTF8("sq.since"),
      BCON_UTF8("sq.until"), BCON_UTF8("sq.life"), "]", "}");
  int rc = msg_mongo_update(c->u, c->s->names.messages, "claim", &filter, change, NULL, err);
  bson_destroy(change);
  bson_destroy(&filter);
  return rc;
}

/* Those without lock are mine if they bear my mark alone. Of the others I wait for the lock to go,
 * or for its owner's mark. */
static int settle_conflicts(struct claiming *c, msg_err *err) {
  int64_t deadline_ms = msg_clock_mono_ms() + LOCK_WAIT_MS;
  msg_mongo_ids doubt = c->locked, still = {0};
  int rc = MSG_OK;
  c->locked = (msg_mongo_ids){0};
  while (rc == MSG_OK && doubt.n && msg_clock_mono_ms() < deadline_ms) {
    msg_mongo_ids freed = {0};
    msg_clock_sleep_ms(LOCK_STEP_MS);
    rc = read_locks(c, &doubt, &still, err);
    for (size_t i = 0; rc == MSG_OK && i < doubt.n; i++)
      if (!msg_mongo_ids_have(&still, &doubt.at[i]) &&
          msg_mongo_ids_add(&freed, &doubt.at[i]) != MSG_OK)
        rc = msg_err_nomem(err);
    if (rc == MSG_OK && freed.n)
      rc = read_mine(c, &freed, &c->got, err);
    if (rc == MSG_OK && freed.n) /* what of them is not mine alone */
      for (size_t i = 0; i < c->got.n; i++)
        for (size_t j = 0; j < freed.n; j++)
          if (msg_oid_cmp(&c->got.at[i].id, &freed.at[j]) == 0)
            freed.at[j] = freed.at[--freed.n];
    if (rc == MSG_OK && freed.n)
      rc = step_back(c, &freed, err);
    msg_mongo_ids_clear(&freed);
    msg_mongo_ids_clear(&doubt);
    doubt = still;
    still = (msg_mongo_ids){0};
  }
  if (rc == MSG_OK && doubt.n)
    rc = step_back(c, &doubt, err);
  msg_mongo_ids_clear(&doubt);
  msg_mongo_ids_clear(&still);
  return rc;
}

static int read_back(struct claiming *c, msg_err *err) {
  msg_mongo_ids sure = {0};
  int rc = read_locks(c, &c->ids, &c->locked, err);
  for (size_t i = 0; rc == MSG_OK && i < c->ids.n; i++)
    if (!msg_mongo_ids_have(&c->locked, &c->ids.at[i]) &&
        msg_mongo_ids_add(&sure, &c->ids.at[i]) != MSG_OK)
      rc = msg_err_nomem(err);
  if (rc == MSG_OK && sure.n)
    rc = read_mine(c, &sure, &c->got, err);
  if (rc == MSG_OK && c->locked.n)
    rc = settle_conflicts(c, err);
  msg_mongo_ids_clear(&sure);
  return rc;
}

/* ---- the verb ---- */

static int hand_over(msg_list *from, msg_list *out, msg_err *err) {
  msg_list_sort(from);
  for (size_t i = 0; i < from->n; i++) {
    msg_message *to = msg_list_add(out);
    if (!to)
      return msg_err_nomem(err);
    *to = from->at[i];
    msg_message_init(&from->at[i]);
  }
  return MSG_OK;
}

/* An error after the mark: nothing of it may stay claimed by a caller who does not know. */
static int give_up(struct claiming *c, int rc) {
  bson_t filter = BSON_INITIALIZER;
  bson_t *change = msg_mongo_change_free("claim", 0, INT64_MAX);
  append_mine(&filter, c, &c->ids);
  msg_mongo_update(c->u, c->s->names.messages, "claim", &filter, change, NULL, NULL);
  bson_destroy(change);
  bson_destroy(&filter);
  return rc;
}

/* *won: how many. *tried: there was something to win. */
static int play_round(struct claiming *c, size_t count, msg_list *out, size_t *won, bool *tried,
                      msg_err *err) {
  round_clear(c);
  c->now_ms = msg_mongo_now_ms(c->s->store);
  int rc = find_free(c, count, err);
  *won = 0;
  *tried = rc == MSG_OK && (c->ids.n || c->dying.n);
  if (rc == MSG_OK && c->dying.n)
    rc = bury(c, err);
  if (rc != MSG_OK || c->ids.n == 0)
    return rc;
  rc = mark(c, err);
  if (rc == MSG_OK)
    rc = read_back(c, err);
  if (rc != MSG_OK)
    return give_up(c, rc);
  *won = c->got.n;
  return hand_over(&c->got, out, err);
}

static int play(struct claiming *c, msg_list *out, msg_err *err) {
  const size_t count = c->claim->count;
  bool forced = false;
  size_t got = 0;
  for (int i = 0; i < ROUNDS && got < count; i++) {
    size_t won;
    bool tried;
    int moved = 0;
    int rc = play_round(c, count - got, out, &won, &tried, err);
    if (rc != MSG_OK)
      return rc;
    got += won;
    if (got && tried) /* what is left may be there in vain: the next claim asks */
      return MSG_OK;
    if (tried)
      continue; /* others were faster */
    if (got || forced)
      return MSG_OK;
    forced = true;
    rc = msg_mongo_sweep(c->s, c->u, c->actor->settings->max_attempts, true, &moved, err);
    if (rc != MSG_OK || moved == 0)
      return rc;
  }
  return MSG_OK;
}

int msg_mongo_claim(msg_session *base, const msg_actor *actor, const msg_claim *claim,
                    msg_list *out, msg_err *err) {
  msg_mongo_session *s = (msg_mongo_session *)base;
  msg_mongo_use u;
  struct claiming c = {.s = s, .u = &u, .actor = actor, .claim = claim};
  int rc = msg_mongo_take(s->store, "claim", &u, err);
  if (rc != MSG_OK)
    return rc;
  rc = msg_mongo_indexes(s, &u, err);
  if (rc == MSG_OK)
    rc = msg_mongo_sweep(s, &u, actor->settings->max_attempts, false, NULL, err);
  if (rc == MSG_OK)
    rc = msg_mongo_topics_of(s, &u, claim->pattern, claim->paused, claim->paused_count, &c.topics,
                             err);
  if (rc == MSG_OK && c.topics.n)
    rc = play(&c, out, err);
  claiming_clear(&c);
  msg_mongo_give(&u);
  return rc;
}

/* ---- asking first ---- */

static int note_any(void *arg, const bson_t *doc, msg_err *err) {
  (void)doc;
  (void)err;
  *(bool *)arg = true;
  return MSG_OK;
}

static int any(struct claiming *c, const bson_t *filter, bool *out, msg_err *err) {
  bson_t *opts = BCON_NEW("limit", BCON_INT32(1), "projection", "{", "_id", BCON_INT32(1), "}");
  int rc = msg_mongo_each(c->u, c->s->names.messages, "look for messages", filter, opts, note_any,
                          out, err);
  bson_destroy(opts);
  return rc;
}

/* Ready ones, or such that a sweep would make ready. */
static int any_of(struct claiming *c, char *const *topics, size_t n, bool *out, msg_err *err) {
  bson_t ready = BSON_INITIALIZER, due = BSON_INITIALIZER;
  append_ready(&ready, c, topics, n);
  int rc = any(c, &ready, out, err);
  if (rc == MSG_OK && !*out) {
    msg_mongo_append_texts(&due, "topic", "$in", topics, n, false);
    BSON_APPEND_BOOL(&due, "exclusive", true);
    BCON_APPEND(&due, "$or", "[", "{", "sq.until", "{", "$lte", BCON_DATE_TIME(c->now_ms), "}", "}",
                "{", "sq.head", BCON_BOOL(true), "delete_at", "{", "$lte",
                BCON_DATE_TIME(c->now_ms), "}", "}", "]");
    rc = any(c, &due, out, err);
  }
  bson_destroy(&due);
  bson_destroy(&ready);
  return rc;
}

int msg_mongo_claimable(msg_session *base, const msg_actor *actor, const msg_claim *claim,
                        bool *out, msg_err *err) {
  msg_mongo_session *s = (msg_mongo_session *)base;
  msg_mongo_use u;
  struct claiming c = {.s = s, .u = &u, .actor = actor, .claim = claim};
  bool found = false;
  int rc = msg_mongo_take(s->store, "look for messages", &u, err);
  if (rc != MSG_OK)
    return rc;
  c.now_ms = msg_mongo_now_ms(s->store);
  rc = msg_mongo_topics_of(s, &u, claim->pattern, claim->paused, claim->paused_count, &c.topics,
                           err);
  for (size_t i = 0; rc == MSG_OK && !found && i < c.topics.n; i += MSG_MONGO_TOPICS_MAX) {
    size_t n = c.topics.n - i;
    rc = any_of(&c, c.topics.at + i, n < MSG_MONGO_TOPICS_MAX ? n : MSG_MONGO_TOPICS_MAX, &found,
                err);
  }
  claiming_clear(&c);
  msg_mongo_give(&u);
  if (rc == MSG_OK)
    *out = found;
  return rc;
}
