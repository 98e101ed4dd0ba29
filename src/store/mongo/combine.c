#include "store/mongo/combine.h"

#include <string.h>

#include "base/clock.h"
#include "store/mongo/place.h"
#include "store/mongo/query.h"
#include "store/mongo/topics.h"

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
  waiting *at[BATCH_ROWS];
  const bson_t *docs[BATCH_ROWS];
  size_t n;
  int64_t until_ms; /* monotonic: the end of the first whose time ends */
};

static void fail_all(struct batch *b, int rc, const msg_err *err) {
  for (size_t i = 0; i < b->n; i++) {
    b->at[i]->rc = rc;
    b->at[i]->err = *err;
  }
}

static int note_ours(void *arg, const bson_t *doc, msg_err *err) {
  struct batch *b = arg;
  const char *sender = msg_mongo_get_text(doc, "sender");
  msg_oid id;
  (void)err;
  if (!sender || !msg_mongo_get_oid(doc, "_id", &id))
    return MSG_OK;
  for (size_t i = 0; i < b->n; i++)
    if (b->at[i]->rc == MSG_EXISTS && msg_oid_cmp(&b->at[i]->message->id, &id) == 0 &&
        strcmp(b->at[i]->message->sender, sender) == 0)
      b->at[i]->rc = MSG_OK;
  return MSG_OK;
}

/* After a try whose outcome was unknown: what is there from the same sender is ours. */
static void forgive_ours(struct batch *b) {
  msg_mongo_ids ids = {0};
  bson_t filter = BSON_INITIALIZER;
  bson_t *opts = BCON_NEW("projection", "{", "sender", BCON_INT32(1), "}");
  int rc = MSG_OK;
  for (size_t i = 0; rc == MSG_OK && i < b->n; i++)
    if (b->at[i]->rc == MSG_EXISTS)
      rc = msg_mongo_ids_add(&ids, &b->at[i]->message->id);
  msg_mongo_append_ids(&filter, "_id", "$in", ids.at, ids.n);
  if (rc == MSG_OK && ids.n)
    msg_mongo_each(b->u, b->s->names.messages, "send", &filter, opts, note_ours, b, NULL);
  msg_mongo_ids_clear(&ids);
  bson_destroy(opts);
  bson_destroy(&filter);
}

/* One error of the reply's list. */
static void note_error(struct batch *b, const bson_iter_t *element) {
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
  if (index < 0 || index >= (int64_t)b->n)
    return;
  waiting *w = b->at[index];
  bson_strncpy(error.message, text ? text : "refused", sizeof error.message);
  w->rc = msg_mongo_is_duplicate(&error, NULL)
              ? msg_mongo_taken(&w->message->id, &w->err)
              : msg_mongo_fail(b->s->store, "send", &error, NULL, &w->err);
}

/* Each error to whose it is. False: it is of the whole batch. */
static bool share_errors(struct batch *b, const bson_t *reply) {
  bson_iter_t it, element;
  if (!bson_iter_init_find(&it, reply, "writeErrors") || !BSON_ITER_HOLDS_ARRAY(&it) ||
      !bson_iter_recurse(&it, &element))
    return false;
  bool any = false;
  for (; bson_iter_next(&element); any = true)
    note_error(b, &element);
  return any && !bson_has_field(reply, "writeConcernErrors");
}

static void insert(struct batch *b) {
  mongoc_collection_t *c = msg_mongo_collection(b->u, b->s->names.messages);
  bson_t *opts = BCON_NEW("ordered", BCON_BOOL(false));
  bool again = false;
  for (;;) {
    bson_error_t error;
    bson_t reply;
    msg_err err = MSG_ERR_INIT;
    fail_all(b, MSG_OK, &err);
    msg_mongo_bound(b->u);
    bool ok = mongoc_collection_insert_many(c, b->docs, b->n, opts, &reply, &error);
    bool shared = ok || share_errors(b, &reply);
    bool passing = !shared && msg_mongo_is_passing(&error, &reply);
    if (!shared)
      fail_all(b, msg_mongo_fail(b->s->store, "send", &error, &reply, &err), &err);
    bson_destroy(&reply);
    if (shared && again)
      forgive_ours(b);
    if (!passing || msg_clock_mono_ms() >= b->u->until_ms)
      break;
    again = true;
    msg_clock_sleep_ms(PAUSE_MS);
  }
  bson_destroy(opts);
  mongoc_collection_destroy(c);
}

static void run(struct batch *b) {
  msg_err err = MSG_ERR_INIT;
  msg_mongo_use u;
  int rc = msg_mongo_take_bounded(b->s, "send", &u, &err);
  if (rc == MSG_OK) {
    b->u = &u;
    u.until_ms = b->until_ms;
    rc = msg_mongo_indexes(b->s, &u, &err);
    if (rc == MSG_OK)
      rc = msg_mongo_place_admit(b->s, &u, b->at[0]->message->topic, &err);
    if (rc == MSG_OK)
      insert(b);
  }
  if (rc != MSG_OK)
    fail_all(b, rc, &err);
  msg_mongo_give(&u);
}

/* ---- who goes with whom ---- */

static waiting *take_first_locked(msg_mongo_place *p) {
  waiting *w = p->first;
  p->first = w->next;
  if (!p->first)
    p->last = NULL;
  p->waiting--;
  return w;
}

/* Who is in a hurry ends nobody else's time, and a topic may be refused its collection. */
static bool goes_with(const msg_mongo_place *p, const waiting *first, const waiting *w) {
  return first->timeout_ms == w->timeout_ms &&
         (p->kind != MSG_MONGO_TOPIC || strcmp(first->message->topic, w->message->topic) == 0);
}

static void take_batch_locked(msg_mongo_place *p, struct batch *b) {
  size_t bytes = 0;
  while (p->first && b->n < BATCH_ROWS &&
         (b->n == 0 ||
          (bytes + p->first->doc->len <= BATCH_SIZE && goes_with(p, b->at[0], p->first)))) {
    waiting *w = take_first_locked(p);
    w->taken = true;
    b->until_ms = w->until_ms < b->until_ms ? w->until_ms : b->until_ms;
    bytes += w->doc->len;
    b->docs[b->n] = w->doc;
    b->at[b->n++] = w;
  }
}

/* Behind a batch that hangs, until too little of its time is left for another. */
static void give_up_locked(msg_mongo_session *s, msg_mongo_place *p, waiting *w) {
  waiting **at = &p->first, *before = NULL;
  while (*at != w) {
    before = *at;
    at = &before->next;
  }
  *at = w->next;
  if (p->last == w)
    p->last = before;
  p->waiting--;
  w->done = true;
  w->rc =
      msg_err_set(&w->err, MSG_UNAVAILABLE,
                  "send: those before it took too much of write_timeout_ms, %lld ms (MongoDB at "
                  "%s)",
                  (long long)w->timeout_ms, s->store->hosts);
}

static void append_locked(msg_mongo_place *p, waiting *w) {
  if (p->last)
    p->last->next = w;
  else
    p->first = w;
  p->last = w;
  if (++p->waiting == p->served && p->inserting)
    msg_cond_broadcast(p->inserted); /* the leader may be gathering */
}

/* A batch costs the servers much, a row in it little; those whose last batch is just done are
 * about to send again. Who sends alone waits for nobody. */
static void gather_locked(msg_mongo_session *s, msg_mongo_place *p) {
  int64_t deadline_ms = p->served_at_ms + GATHER_MS;
  while (p->waiting < p->served && msg_clock_mono_ms() < deadline_ms)
    msg_cond_wait_until(p->inserted, s->store->mtx, deadline_ms);
}

static bool may_lead_locked(const msg_mongo_place *p, const waiting *w) {
  return p->first && p->first->timeout_ms == w->timeout_ms &&
         (p->inserting == 0 || (p->inserting < AT_ONCE && p->waiting >= SECOND_MIN));
}

/* Thread: holds the lock at begin and end. While one gathers, a second may lead with all of
 * them. */
static void lead(msg_mongo_session *s, msg_mongo_place *p, const waiting *w) {
  struct batch b = {.s = s, .until_ms = w->until_ms};
  if (p->inserting++ == 0)
    gather_locked(s, p);
  take_batch_locked(p, &b);
  if (b.n > 0) {
    msg_mutex_unlock(s->store->mtx);
    run(&b);
    msg_mutex_lock(s->store->mtx);
    p->served = b.n;
    p->served_at_ms = msg_clock_mono_ms();
  }
  p->inserting--;
  for (size_t i = 0; i < b.n; i++)
    b.at[i]->done = true;
  msg_cond_broadcast(p->inserted);
}

int msg_mongo_combine(msg_mongo_session *s, const msg_message *m, const bson_t *doc, msg_err *err) {
  msg_mongo_place *p = s->place;
  int64_t begin_ms = msg_clock_mono_ms(), timeout_ms = s->write_timeout_ms;
  int64_t late_ms = begin_ms + timeout_ms - timeout_ms / LATE_PART;
  waiting w = {
      .message = m, .doc = doc, .timeout_ms = timeout_ms, .until_ms = begin_ms + timeout_ms};
  msg_mutex_lock(s->store->mtx);
  append_locked(p, &w);
  while (!w.done) {
    int64_t now_ms = msg_clock_mono_ms();
    if (!w.taken && now_ms >= late_ms)
      give_up_locked(s, p, &w);
    else if (may_lead_locked(p, &w))
      lead(s, p, &w);
    else
      msg_cond_wait_until(p->inserted, s->store->mtx, now_ms + LOOK_MS);
  }
  msg_mutex_unlock(s->store->mtx);
  if (w.rc != MSG_OK && err)
    *err = w.err;
  return w.rc;
}
