/* regret.c - a regret stays in its queue's list until nothing of it can come any more. */
#include "store/mongo/regret.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "store/mongo/catalog.h"
#include "store/mongo/change.h"
#include "store/mongo/chores.h"
#include "store/mongo/group.h"
#include "store/mongo/lease.h"
#include "store/mongo/place.h"
#include "store/mongo/query.h"

#define PAUSE_MS   500    /* after a failure, and at least between looks */
#define LOOKS_MS   240000 /* how long a write may be under way */
#define GIVE_UP_MS 600000
#define PUTS_MAX   1000 /* in one */

struct msg_mongo_regret {
  int64_t since_ms;            /* immutable, monotonic */
  char token[MSG_OID_HEX + 1]; /* immutable: of claimed */
  bson_t *lsid;                /* immutable, owned: to end; NULL none */
  /* guarded by the store's mtx; unchanged while busy */
  msg_mongo_ids put, settled, claimed;
  char (*tokens)[MSG_OID_HEX + 1]; /* of settled; owned */
  int64_t from_ms, to_ms;          /* store's clock: when put was sent; what is of other times is
                                      not ours, whatever its id */
  msg_mongo_regret *next;
  bool busy;     /* a thread undoes it */
  bool undone;   /* once: what follows is for late comers */
  int64_t at_ms; /* monotonic: not before */
};

static void regret_free(msg_mongo_regret *r) {
  if (!r)
    return;
  msg_mongo_ids_clear(&r->put);
  msg_mongo_ids_clear(&r->settled);
  msg_mongo_ids_clear(&r->claimed);
  msg_free(r->tokens);
  if (r->lsid)
    bson_destroy(r->lsid);
  msg_free(r);
}

static bool is_empty(const msg_mongo_regret *r) {
  return r->put.n + r->settled.n + r->claimed.n == 0 && !r->lsid;
}

static msg_mongo_regret *regret_new(void) {
  msg_mongo_regret *r = msg_zalloc(sizeof *r);
  if (r) {
    r->since_ms = r->at_ms = msg_clock_mono_ms();
    r->from_ms = MSG_NEVER;
  }
  return r;
}

static bool add_put(msg_mongo_session *s, msg_mongo_regret *r, const msg_message *m) {
  int64_t sent_ms = m->timestamp_ms + s->store->clock_offset_ms;
  r->from_ms = sent_ms < r->from_ms ? sent_ms : r->from_ms;
  r->to_ms = msg_mongo_now_ms(s->store);
  return msg_mongo_ids_add(&r->put, &m->id) == MSG_OK;
}

/* All puts, and the settles after which nobody owns the message. NULL: memory is out. */
static msg_mongo_regret *regret_of(msg_mongo_session *s, const msg_unit *unit) {
  msg_mongo_regret *r = regret_new();
  bool ok = r != NULL;
  size_t settled = 0;
  for (size_t i = 0; i < unit->settle_count; i++)
    settled += unit->settles[i].n;
  ok = ok && (r->tokens = msg_alloc((settled + 1) * sizeof *r->tokens));
  for (size_t i = 0; ok && i < unit->put_count; i++)
    ok = add_put(s, r, unit->puts[i].message);
  for (size_t i = 0; ok && i < unit->settle_count; i++) {
    const struct msg_unit_settle *settle = &unit->settles[i];
    if (settle->how.verb != MSG_SETTLE_ACK && settle->how.verb != MSG_SETTLE_REJECT)
      continue;
    for (size_t k = 0; ok && k < settle->n; k++) {
      memcpy(r->tokens[r->settled.n], settle->items[k].token, sizeof r->tokens[0]);
      ok = msg_mongo_ids_add(&r->settled, &settle->items[k].id) == MSG_OK;
    }
  }
  if (ok)
    return r;
  regret_free(r);
  return NULL;
}

/* ---- undoing ---- */

/* Of its puts those that nobody has taken. */
static void append_untouched(bson_t *filter, const msg_mongo_regret *r) {
  msg_mongo_append_ids(filter, "_id", "$in", r->put.at, r->put.n);
  BCON_APPEND(filter, "processed_by", "{", "$in", "[", BCON_NULL, "[", "]", "[",
              BCON_UTF8(MSG_MONGO_DELAYED), "]", "[", BCON_UTF8(MSG_MONGO_BLOCKED), "]", "]", "}");
  BCON_APPEND(filter, "$or", "[", "{", "sq.sent", "{", "$gte", BCON_INT64(r->from_ms), "$lte",
              BCON_INT64(r->to_ms), "}", "}", "{", "sq.sent", BCON_NULL, "timestamp", "{", "$gte",
              BCON_INT64(r->from_ms), "$lte", BCON_INT64(r->to_ms), "}", "}", "]");
}

static int note_id(void *arg, const bson_t *doc, msg_err *err) {
  msg_oid id;
  if (msg_mongo_get_oid(doc, "_id", &id) && msg_mongo_ids_add(arg, &id) != MSG_OK)
    return msg_err_nomem(err);
  return MSG_OK;
}

static int remove_keys(msg_mongo_session *s, msg_mongo_use *u, const msg_mongo_ids *of,
                       msg_err *err) {
  bson_t filter = BSON_INITIALIZER;
  msg_mongo_append_ids(&filter, "msg", "$in", of->at, of->n);
  int rc = msg_mongo_delete(u, s->names.keys, "undo", &filter, NULL, err);
  bson_destroy(&filter);
  return rc;
}

/* Their keys go first: a send by a key whose message goes would be lost. */
static int remove_put(msg_mongo_session *s, msg_mongo_use *u, const msg_mongo_regret *r,
                      msg_err *err) {
  bson_t filter = BSON_INITIALIZER;
  bson_t *opts = BCON_NEW("projection", "{", "_id", BCON_INT32(1), "}");
  msg_mongo_ids there = {0};
  append_untouched(&filter, r);
  int rc = msg_mongo_each(u, s->names.messages, "undo", &filter, opts, note_id, &there, err);
  if (rc == MSG_OK && there.n)
    rc = remove_keys(s, u, &there, err);
  if (rc == MSG_OK && there.n)
    rc = msg_mongo_delete(u, s->names.messages, "undo", &filter, NULL, err);
  msg_mongo_ids_clear(&there);
  bson_destroy(opts);
  bson_destroy(&filter);
  return rc;
}

/* Acked by their lease, they still show the claim. */
static int revive_leased(msg_mongo_session *s, msg_mongo_use *u, const msg_oid *ids, size_t n,
                         const char *token, const bson_t *change, msg_err *err) {
  bson_t filter = BSON_INITIALIZER;
  bool was = false;
  int rc = msg_mongo_lease_undo(s, u, token, token, &was, err);
  msg_mongo_append_ids(&filter, "_id", "$in", ids, n);
  BCON_APPEND(&filter, "sq.token", BCON_UTF8(token), "sq.state", "claimed");
  if (rc == MSG_OK && was)
    rc = msg_mongo_update(u, s->names.messages, "undo", &filter, change, NULL, err);
  bson_destroy(&filter);
  return rc;
}

static int revive_settled(msg_mongo_session *s, msg_mongo_use *u, const msg_mongo_regret *r,
                          msg_err *err) {
  bson_t *change = msg_mongo_change_redrive();
  int rc = MSG_OK;
  for (size_t i = 0, n; rc == MSG_OK && i < r->settled.n; i += n) {
    bson_t filter = BSON_INITIALIZER;
    for (n = 1; i + n < r->settled.n && strcmp(r->tokens[i], r->tokens[i + n]) == 0;)
      n++;
    msg_mongo_append_ids(&filter, "_id", "$in", r->settled.at + i, n);
    BCON_APPEND(&filter, "sq.mark", BCON_UTF8(r->tokens[i]), "sq.state", "{", "$in", "[", "done",
                "dead", "]", "}");
    rc = msg_mongo_update(u, s->names.messages, "undo", &filter, change, NULL, err);
    if (rc == MSG_OK)
      rc = revive_leased(s, u, r->settled.at + i, n, r->tokens[i], change, err);
    bson_destroy(&filter);
  }
  bson_destroy(change);
  return rc;
}

static int free_claimed(msg_mongo_session *s, msg_mongo_use *u, const msg_mongo_regret *r,
                        msg_err *err) {
  int rc = msg_mongo_lease_undo(s, u, r->token, NULL, NULL, err);
  if (rc != MSG_OK)
    return rc;
  bson_t filter = BSON_INITIALIZER, *change = msg_mongo_change_free("claim", 0, INT64_MAX);
  msg_mongo_append_ids(&filter, "_id", "$in", r->claimed.at, r->claimed.n);
  BCON_APPEND(&filter, "sq.state", "claimed", "sq.token", BCON_UTF8(r->token));
  rc = msg_mongo_update(u, s->names.messages, "undo", &filter, change, NULL, err);
  bson_destroy(change);
  bson_destroy(&filter);
  return rc;
}

/* What the server refuses needs no second try. */
static int end_session(msg_mongo_use *u, const bson_t *lsid, msg_err *err) {
  bson_t *command = BCON_NEW("killSessions", "[", BCON_DOCUMENT(lsid), "]");
  bson_error_t error;
  bson_t reply;
  int rc = MSG_OK;
  if (!mongoc_client_command_with_opts(u->client, "admin", command, NULL, NULL, &reply, &error))
    rc = msg_mongo_fail(u->store, "undo", &error, &reply, err);
  bson_destroy(&reply);
  bson_destroy(command);
  return rc == MSG_UNAVAILABLE ? rc : MSG_OK;
}

static int undo(msg_mongo_session *s, msg_mongo_use *u, void *arg, msg_err *err) {
  const msg_mongo_regret *r = arg;
  int rc = r->put.n ? remove_put(s, u, r, err) : MSG_OK;
  if (rc == MSG_OK && r->settled.n)
    rc = revive_settled(s, u, r, err);
  if (rc == MSG_OK && r->claimed.n)
    rc = free_claimed(s, u, r, err);
  if (rc == MSG_OK && msg_mongo_is_grouped(s) && (r->put.n || r->settled.n))
    msg_mongo_groups_repair(s, u, NULL);
  return rc;
}

static int undo_now(msg_mongo_session *s, const msg_mongo_regret *r, msg_err *err) {
  msg_mongo_use u;
  int rc = msg_mongo_take_bounded(s, "undo", &u, err);
  if (rc != MSG_OK)
    return rc;
  rc = r->lsid ? end_session(&u, r->lsid, err) : msg_mongo_everywhere(s, &u, undo, (void *)r, err);
  msg_mongo_give(&u);
  return rc;
}

/* ---- the list ---- */

/* Those that failed while the server was away are undone by one call. */
static bool joins_locked(msg_mongo_regret *with, const msg_mongo_regret *r) {
  if (!with || with->busy || with->undone || with->settled.n || with->claimed.n || with->lsid ||
      r->settled.n || r->claimed.n || r->lsid || with->put.n + r->put.n > PUTS_MAX)
    return false;
  for (size_t i = 0; i < r->put.n; i++)
    if (msg_mongo_ids_add(&with->put, &r->put.at[i]) != MSG_OK)
      return false; /* those that were added are in both: no harm */
  with->from_ms = r->from_ms < with->from_ms ? r->from_ms : with->from_ms;
  with->to_ms = r->to_ms > with->to_ms ? r->to_ms : with->to_ms;
  return true;
}

/* Takes it over; NULL is allowed. Without a thread it is for the next recall, or never. */
static void keep(msg_mongo_session *s, msg_mongo_regret *r) {
  if (!r)
    return;
  msg_mutex_lock(s->store->mtx);
  bool joined = joins_locked(s->queue->regrets, r);
  if (!joined) {
    r->next = s->queue->regrets;
    s->queue->regrets = r;
  }
  msg_mongo_chores_rouse_locked(s->store);
  msg_mutex_unlock(s->store->mtx);
  if (joined)
    regret_free(r);
}

void msg_mongo_regret_puts(msg_mongo_session *s, const msg_put *items, size_t n) {
  msg_mongo_regret *r = regret_new();
  for (size_t i = 0; r && i < n; i++)
    add_put(s, r, items[i].message);
  keep(s, r);
}

void msg_mongo_regret_claim(msg_mongo_session *s, const msg_mongo_ids *ids, const char *token) {
  msg_mongo_regret *r = regret_new();
  for (size_t i = 0; r && i < ids->n; i++)
    msg_mongo_ids_add(&r->claimed, &ids->at[i]);
  if (r)
    memcpy(r->token, token, sizeof r->token);
  keep(s, r);
}

void msg_mongo_regret_session(msg_mongo_session *s, const bson_t *lsid) {
  msg_mongo_regret *r = regret_new();
  if (r)
    r->lsid = bson_copy(lsid);
  keep(s, r);
}

/* Sessions first: what they hold is in the way of the others. */
static msg_mongo_regret *find_due_locked(msg_mongo_store *store, msg_mongo_queue **queue,
                                         int64_t *next_ms) {
  int64_t now_ms = msg_clock_mono_ms();
  msg_mongo_regret *due = NULL;
  for (msg_mongo_queue *q = store->queues; q; q = q->next) {
    for (msg_mongo_regret *r = q->regrets; r; r = r->next) {
      if (r->busy)
        continue;
      if (r->at_ms > now_ms) {
        *next_ms = r->at_ms < *next_ms ? r->at_ms : *next_ms;
      } else if (!due || (r->lsid && !due->lsid)) {
        due = r;
        *queue = q;
      }
    }
  }
  return due;
}

static void drop_locked(msg_mongo_queue *q, msg_mongo_regret *r) {
  msg_mongo_regret **at = &q->regrets;
  while (*at != r)
    at = &(*at)->next;
  *at = r->next;
  regret_free(r);
}

/* It was tried. */
static void end_locked(msg_mongo_store *store, msg_mongo_queue *q, msg_mongo_regret *r, bool done) {
  int64_t now_ms = msg_clock_mono_ms(), age_ms = now_ms - r->since_ms;
  r->busy = false;
  r->undone = r->undone || done;
  r->at_ms = now_ms + (done && age_ms > PAUSE_MS ? age_ms : PAUSE_MS);
  if (age_ms > (r->undone ? LOOKS_MS : GIVE_UP_MS) || is_empty(r))
    drop_locked(q, r);
  msg_cond_broadcast(store->marks_changed);
}

static bool undo_for(msg_mongo_store *store, msg_mongo_queue *q, const msg_mongo_regret *r) {
  msg_mongo_session s = {.store = store,
                         .queue = q,
                         .place = q->main,
                         .names = q->names,
                         .write_timeout_ms = MSG_MONGO_WRITE_MS};
  return undo_now(&s, r, NULL) == MSG_OK;
}

bool msg_mongo_regret_try_locked(msg_mongo_store *store, int64_t *next_ms) {
  msg_mongo_queue *q = NULL;
  msg_mongo_regret *r = find_due_locked(store, &q, next_ms);
  if (!r)
    return false;
  r->busy = true;
  msg_mutex_unlock(store->mtx);
  bool done = undo_for(store, q, r);
  msg_mutex_lock(store->mtx);
  end_locked(store, q, r, done);
  return true;
}

void msg_mongo_regrets_free(msg_mongo_queue *q) {
  while (q->regrets) {
    msg_mongo_regret *r = q->regrets;
    q->regrets = r->next;
    regret_free(r);
  }
}

/* ---- recall ---- */

static bool puts_it(const msg_unit *unit, const msg_oid *id) {
  for (size_t i = 0; i < unit->put_count; i++)
    if (msg_oid_cmp(&unit->puts[i].message->id, id) == 0)
      return true;
  return false;
}

static bool settles_it(const msg_unit *unit, const msg_oid *id) {
  for (size_t i = 0; i < unit->settle_count; i++)
    for (size_t k = 0; k < unit->settles[i].n; k++)
      if (msg_oid_cmp(&unit->settles[i].items[k].id, id) == 0)
        return true;
  return false;
}

static bool concerns(const msg_mongo_regret *r, const msg_unit *unit) {
  for (size_t i = 0; i < r->put.n; i++)
    if (puts_it(unit, &r->put.at[i]))
      return true;
  for (size_t i = 0; i < r->settled.n; i++)
    if (settles_it(unit, &r->settled.at[i]))
      return true;
  return false;
}

/* From now on they are the unit's. */
static void forget(msg_mongo_regret *r, const msg_unit *unit) {
  size_t puts = 0, settled = 0;
  for (size_t i = 0; i < r->put.n; i++)
    if (!puts_it(unit, &r->put.at[i]))
      r->put.at[puts++] = r->put.at[i];
  for (size_t i = 0; i < r->settled.n; i++)
    if (!settles_it(unit, &r->settled.at[i])) {
      memmove(r->tokens[settled], r->tokens[i], sizeof r->tokens[0]);
      r->settled.at[settled++] = r->settled.at[i];
    }
  r->put.n = puts;
  r->settled.n = settled;
}

static msg_mongo_regret *find_concerned_locked(msg_mongo_session *s, const msg_unit *unit) {
  msg_mongo_regret *r = s->queue->regrets;
  while (r && !concerns(r, unit))
    r = r->next;
  return r;
}

int msg_mongo_regrets_recall(msg_mongo_session *s, const msg_unit *unit, msg_err *err) {
  msg_mongo_regret *r;
  int rc = MSG_OK;
  msg_mutex_lock(s->store->mtx);
  while (rc == MSG_OK && (r = find_concerned_locked(s, unit))) {
    if (r->busy) {
      msg_cond_wait_until(s->store->marks_changed, s->store->mtx, msg_clock_mono_ms() + PAUSE_MS);
      continue;
    }
    r->busy = true;
    msg_mutex_unlock(s->store->mtx);
    rc = undo_now(s, r, err);
    msg_mutex_lock(s->store->mtx);
    if (rc == MSG_OK)
      forget(r, unit);
    end_locked(s->store, s->queue, r, rc == MSG_OK);
  }
  msg_mutex_unlock(s->store->mtx);
  return rc;
}

/* ---- what a unit did ---- */

/* Behind a failed apply the server is likely to be away still: that is for the store's thread. */
int msg_mongo_undo_now(msg_session *base, const msg_actor *actor, msg_unit *unit, msg_err *err) {
  msg_mongo_session *s = (msg_mongo_session *)base;
  msg_mongo_regret *r = regret_of(s, unit);
  (void)actor;
  if (!r)
    return msg_err_nomem(err);
  int rc = unit->reached ? MSG_OK : undo_now(s, r, err);
  if (rc == MSG_UNAVAILABLE || (rc == MSG_OK && unit->reached))
    keep(s, r);
  else
    regret_free(r);
  return rc;
}
