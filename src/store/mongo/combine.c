#include "store/mongo/combine.h"

#include <string.h>

#include "base/clock.h"
#include "store/mongo/place.h"
#include "store/mongo/query.h"
#include "store/mongo/topics.h"
#include "store/mongo/transaction.h"

#define AT_ONCE    2  /* batches under way, */
#define SECOND_MIN 32 /* the second of so many at least: a batch costs the servers as much as 30 */
#define GATHER_MS  2  /* how long the senders of the last batch are waited for */
#define BATCH_ROWS 256
#define BATCH_SIZE (8u << 20) /* bytes */
#define LATE_PART  5          /* so much of its time a send must have left for its batch */
#define PAUSE_MS   50
#define LOOK_MS    100

/* One message of one thread, on its stack. */
struct msg_mongo_waiting {
  struct msg_mongo_waiting *next;
  msg_mongo_place *place;
  const msg_message *message;
  const bson_t *doc;
  int64_t timeout_ms; /* the write_timeout_ms of its session */
  int64_t until_ms;   /* monotonic: its end */
  /* guarded by the store's mtx until taken, then the inserting thread's until done */
  int rc;
  msg_err err;
  bool taken, done;
};

typedef struct msg_mongo_waiting waiting;

int msg_mongo_taken(const msg_oid *id, msg_err *err) {
  char hex[MSG_OID_HEX + 1];
  msg_oid_hex(id, hex);
  return msg_err_set(err, MSG_EXISTS,
                     "send: a message with id %s exists already: leave the id out, or choose "
                     "another",
                     hex);
}

/* ---- one batch ---- */

struct batch {
  msg_mongo_session *s;
  msg_mongo_use *u;
  waiting *at[BATCH_ROWS]; /* those of one place side by side */
  const bson_t *docs[BATCH_ROWS];
  size_t n;
  int64_t until_ms; /* monotonic: the end of the first whose time ends */
};

/* What of it goes to one place. */
struct part {
  msg_mongo_session s; /* at the place */
  msg_mongo_use *u;
  waiting *const *at;
  const bson_t **docs;
  size_t n;
};

/* The part that begins with number i; false: none does. */
static bool part_from(struct batch *b, size_t i, struct part *out) {
  size_t n = 0;
  while (i + n < b->n && b->at[i]->place == b->at[i + n]->place)
    n++;
  if (n > 0)
    *out = (struct part){.s = msg_mongo_session_at(b->s, b->at[i]->place),
                         .u = b->u,
                         .at = b->at + i,
                         .docs = b->docs + i,
                         .n = n};
  return n > 0;
}

static void tell(waiting *const *at, size_t n, int rc, const msg_err *err) {
  for (size_t i = 0; i < n; i++) {
    at[i]->rc = rc;
    at[i]->err = *err;
  }
}

static int note_ours(void *arg, const bson_t *doc, msg_err *err) {
  const struct part *p = arg;
  const char *sender = msg_mongo_get_text(doc, "sender");
  msg_oid id;
  (void)err;
  if (!sender || !msg_mongo_get_oid(doc, "_id", &id))
    return MSG_OK;
  for (size_t i = 0; i < p->n; i++)
    if (p->at[i]->rc == MSG_EXISTS && msg_oid_cmp(&p->at[i]->message->id, &id) == 0 &&
        strcmp(p->at[i]->message->sender, sender) == 0)
      p->at[i]->rc = MSG_OK;
  return MSG_OK;
}

/* After a try whose outcome was unknown: what is there from the same sender is ours. */
static void forgive_ours(struct part *p) {
  msg_mongo_ids ids = {0};
  bson_t filter = BSON_INITIALIZER;
  bson_t *opts = BCON_NEW("projection", "{", "sender", BCON_INT32(1), "}");
  int rc = MSG_OK;
  for (size_t i = 0; rc == MSG_OK && i < p->n; i++)
    if (p->at[i]->rc == MSG_EXISTS)
      rc = msg_mongo_ids_add(&ids, &p->at[i]->message->id);
  msg_mongo_append_ids(&filter, "_id", "$in", ids.at, ids.n);
  if (rc == MSG_OK && ids.n)
    msg_mongo_each(p->u, p->s.names.messages, "send", &filter, opts, note_ours, p, NULL);
  msg_mongo_ids_clear(&ids);
  bson_destroy(opts);
  bson_destroy(&filter);
}

/* One error of the reply's list. */
static void note_error(struct part *p, const bson_iter_t *element) {
  bson_t doc;
  uint32_t len;
  const uint8_t *data;
  if (!BSON_ITER_HOLDS_DOCUMENT(element))
    return;
  bson_iter_document(element, &len, &data);
  if (!bson_init_static(&doc, data, len))
    return;
  int64_t index = msg_mongo_get_int(&doc, "index", -1);
  const char *text = msg_mongo_get_text(&doc, "errmsg");
  bson_error_t error = {.domain = MONGOC_ERROR_SERVER,
                        .code = (uint32_t)msg_mongo_get_int(&doc, "code", 0)};
  if (index < 0 || index >= (int64_t)p->n)
    return;
  waiting *w = p->at[index];
  bson_strncpy(error.message, text ? text : "refused", sizeof error.message);
  w->rc = msg_mongo_is_duplicate(&error, NULL)
              ? msg_mongo_taken(&w->message->id, &w->err)
              : msg_mongo_fail(p->s.store, "send", &error, NULL, &w->err);
}

/* Each error to whose it is. False: it is of the whole batch. */
static bool share_errors(struct part *p, const bson_t *reply) {
  bson_iter_t it, element;
  if (!bson_iter_init_find(&it, reply, "writeErrors") || !BSON_ITER_HOLDS_ARRAY(&it) ||
      !bson_iter_recurse(&it, &element))
    return false;
  bool any = false;
  for (; bson_iter_next(&element); any = true)
    note_error(p, &element);
  return any && !bson_has_field(reply, "writeConcernErrors");
}

static void insert(struct part *p) {
  mongoc_collection_t *c = msg_mongo_collection(p->u, p->s.names.messages);
  bson_t *opts = BCON_NEW("ordered", BCON_BOOL(false));
  bool again = false;
  for (;;) {
    bson_error_t error;
    bson_t reply;
    msg_err err = MSG_ERR_INIT;
    tell(p->at, p->n, MSG_OK, &err);
    msg_mongo_bound(p->u);
    bool ok = mongoc_collection_insert_many(c, p->docs, p->n, opts, &reply, &error);
    bool shared = ok || share_errors(p, &reply);
    bool passing = !shared && msg_mongo_is_passing(&error, &reply);
    if (!shared)
      tell(p->at, p->n, msg_mongo_fail(p->s.store, "send", &error, &reply, &err), &err);
    bson_destroy(&reply);
    if (shared && again)
      forgive_ours(p);
    if (!passing || msg_clock_mono_ms() >= p->u->until_ms)
      break;
    again = true;
    msg_clock_sleep_ms(PAUSE_MS);
  }
  bson_destroy(opts);
  mongoc_collection_destroy(c);
}

/* ---- several places ---- */

struct together {
  struct batch *b;
  bool worked; /* what failed then is the commit */
};

static int work(msg_mongo_txn *t, void *arg, msg_err *err) {
  struct together *g = arg;
  struct part p;
  int rc = MSG_OK;
  g->worked = false;
  for (size_t i = 0; rc == MSG_OK && part_from(g->b, i, &p); i += p.n) {
    mongoc_collection_t *c = msg_mongo_collection(t->u, p.s.names.messages);
    bson_error_t error;
    bson_t reply;
    msg_mongo_bound(t->u);
    if (!mongoc_collection_insert_many(c, p.docs, p.n, &t->opts, &reply, &error))
      rc = msg_mongo_txn_fail(t, "send", &error, &reply, err);
    bson_destroy(&reply);
    mongoc_collection_destroy(c);
  }
  g->worked = rc == MSG_OK;
  return rc;
}

/* False: something of it was refused, and nothing is there. */
static bool insert_together(struct batch *b) {
  struct together g = {.b = b};
  msg_err err = MSG_ERR_INIT;
  int rc = msg_mongo_transact(b->s, b->u, "send", work, &g, &err);
  if (g.worked)
    tell(b->at, b->n, rc, &err);
  return g.worked;
}

/* Writes to several places cost the servers much, one after the other or side by side; as one
 * transaction little more than one. */
static void insert_batch(struct batch *b) {
  struct part p;
  bool whole = part_from(b, 0, &p) && p.n == b->n;
  if (!whole && b->s->store->replicated && insert_together(b))
    return;
  for (size_t i = 0; part_from(b, i, &p); i += p.n)
    insert(&p);
}

static void run(struct batch *b) {
  msg_err err = MSG_ERR_INIT;
  msg_mongo_use u;
  int rc = msg_mongo_take_bounded(b->s, "send", &u, &err);
  if (rc == MSG_OK) {
    b->u = &u;
    u.until_ms = b->until_ms;
    insert_batch(b);
  } else {
    tell(b->at, b->n, rc, &err);
  }
  msg_mongo_give(&u);
}

/* ---- who goes with whom ---- */

static waiting *take_first_locked(msg_mongo_sends *q) {
  waiting *w = q->first;
  q->first = w->next;
  if (!q->first)
    q->last = NULL;
  q->waiting--;
  return w;
}

/* Behind the last of its place. */
static void add(struct batch *b, waiting *w) {
  size_t to = b->n;
  while (to > 0 && b->at[to - 1]->place != w->place)
    to--;
  if (to == 0)
    to = b->n;
  memmove(&b->at[to + 1], &b->at[to], (b->n - to) * sizeof b->at[0]);
  memmove(&b->docs[to + 1], &b->docs[to], (b->n++ - to) * sizeof b->docs[0]);
  b->at[to] = w;
  b->docs[to] = w->doc;
}

/* Of one time-out each: who is in a hurry ends nobody else's time. */
static void take_batch_locked(msg_mongo_sends *q, struct batch *b) {
  size_t bytes = 0;
  while (q->first && b->n < BATCH_ROWS &&
         (b->n == 0 || (bytes + q->first->doc->len <= BATCH_SIZE &&
                        q->first->timeout_ms == b->at[0]->timeout_ms))) {
    waiting *w = take_first_locked(q);
    w->taken = true;
    b->until_ms = w->until_ms < b->until_ms ? w->until_ms : b->until_ms;
    bytes += w->doc->len;
    add(b, w);
  }
}

/* Behind a batch that hangs, until too little of its time is left for another. */
static void give_up_locked(msg_mongo_session *s, msg_mongo_sends *q, waiting *w) {
  waiting **at = &q->first, *before = NULL;
  while (*at != w) {
    before = *at;
    at = &before->next;
  }
  *at = w->next;
  if (q->last == w)
    q->last = before;
  q->waiting--;
  w->done = true;
  w->rc =
      msg_err_set(&w->err, MSG_UNAVAILABLE,
                  "send: those before it took too much of write_timeout_ms, %lld ms (MongoDB at "
                  "%s)",
                  (long long)w->timeout_ms, s->store->hosts);
}

static void append_locked(msg_mongo_sends *q, waiting *w) {
  if (q->last)
    q->last->next = w;
  else
    q->first = w;
  q->last = w;
  if (++q->waiting == q->served && q->inserting)
    msg_cond_broadcast(q->changed); /* the leader may be gathering */
}

/* A batch costs the servers much, a row in it little; those whose last batch is just done are
 * about to send again. Who sends alone waits for nobody. */
static void gather_locked(msg_mongo_session *s, msg_mongo_sends *q) {
  int64_t deadline_ms = q->served_at_ms + GATHER_MS;
  while (q->waiting < q->served && msg_clock_mono_ms() < deadline_ms)
    msg_cond_wait_until(q->changed, s->store->mtx, deadline_ms);
}

static bool may_lead_locked(const msg_mongo_sends *q, const waiting *w) {
  return q->first && q->first->timeout_ms == w->timeout_ms &&
         (q->inserting == 0 || (q->inserting < AT_ONCE && q->waiting >= SECOND_MIN));
}

/* Thread: holds the lock at begin and end. While one gathers, a second may lead with all of
 * them. */
static void lead(msg_mongo_session *s, msg_mongo_sends *q, const waiting *w) {
  struct batch b = {.s = s, .until_ms = w->until_ms};
  if (q->inserting++ == 0)
    gather_locked(s, q);
  take_batch_locked(q, &b);
  if (b.n > 0) {
    msg_mutex_unlock(s->store->mtx);
    run(&b);
    msg_mutex_lock(s->store->mtx);
    q->served = b.n;
    q->served_at_ms = msg_clock_mono_ms();
  }
  q->inserting--;
  for (size_t i = 0; i < b.n; i++)
    b.at[i]->done = true;
  msg_cond_broadcast(q->changed);
}

/* What takes time is nobody else's to wait for. */
static int make_ready(msg_mongo_session *s, const msg_message *m, msg_err *err) {
  msg_mongo_use u;
  if (s->place->kind != MSG_MONGO_TOPIC && msg_mongo_is_indexed(s))
    return MSG_OK;
  int rc = msg_mongo_take_bounded(s, "send", &u, err);
  if (rc == MSG_OK)
    rc = msg_mongo_indexes(s, &u, err);
  if (rc == MSG_OK)
    rc = msg_mongo_place_admit(s, &u, m->topic, err);
  msg_mongo_give(&u);
  return rc;
}

static int queue_up(msg_mongo_session *s, const msg_message *m, const bson_t *doc, msg_err *err) {
  msg_mongo_sends *q = &s->queue->sends;
  int64_t begin_ms = msg_clock_mono_ms(), timeout_ms = s->write_timeout_ms;
  int64_t late_ms = begin_ms + timeout_ms - timeout_ms / LATE_PART;
  waiting w = {.place = s->place,
               .message = m,
               .doc = doc,
               .timeout_ms = timeout_ms,
               .until_ms = begin_ms + timeout_ms};
  msg_mutex_lock(s->store->mtx);
  append_locked(q, &w);
  while (!w.done) {
    int64_t now_ms = msg_clock_mono_ms();
    if (!w.taken && now_ms >= late_ms)
      give_up_locked(s, q, &w);
    else if (may_lead_locked(q, &w))
      lead(s, q, &w);
    else
      msg_cond_wait_until(q->changed, s->store->mtx, now_ms + LOOK_MS);
  }
  msg_mutex_unlock(s->store->mtx);
  if (w.rc != MSG_OK && err)
    *err = w.err;
  return w.rc;
}

int msg_mongo_combine(msg_mongo_session *s, const msg_message *m, const bson_t *doc, msg_err *err) {
  int rc = make_ready(s, m, err);
  return rc == MSG_OK ? queue_up(s, m, doc, err) : rc;
}
