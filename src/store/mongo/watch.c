/* watch.c - the cursor thread of one queue: the messages that its change stream tells, or a
 * doorbell from a counter of the server's where there is none. Between two rounds of it, upkeep. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/process.h"
#include "base/thread.h"
#include "store/mongo/arrival.h"
#include "store/mongo/catalog.h"
#include "store/mongo/interest.h"
#include "store/mongo/reach.h"
#include "store/mongo/status.h"
#include "store/mongo/stream.h"
#include "store/mongo/tend.h"
#include "store/mongo/topics.h"
#include "store/mongo/upkeep.h"
#include "store/mongo/where.h"

typedef struct mongo_watch {
  msg_watch base;
  /* immutable after open */
  msg_mongo_store *store;
  msg_mongo_session *session;
  msg_settings settings;
  bool streams; /* false: polls */
  msg_mutex *mtx;
  msg_cond *bell; /* of wake, for one that polls */
  /* cursor thread only */
  msg_mongo_stream stream;
  uint64_t interest; /* what the stream was opened for */
  msg_mongo_upkeep upkeep;
  bool begun;      /* the first event was given */
  msg_event *told; /* by the last round: those from told_next on are still to be given */
  size_t told_count, told_next, told_cap;
  int64_t writes; /* polling: the server's count at the last look; -1 not known */
  /* shared */
  atomic_bool woken;
} mongo_watch;

/* The queue has collections; one stream of the database tells of them. */
static bool is_of_many(const mongo_watch *w) {
  return w->session->queue->layout->lanes;
}

/* --- events -------------------------------------------------------------------------------- */

static void clear_told(mongo_watch *w) {
  for (; w->told_next < w->told_count; w->told_next++)
    msg_message_clear(&w->told[w->told_next].message);
  w->told_next = w->told_count = 0;
}

static msg_event *add_told(mongo_watch *w) {
  if (w->told_next == w->told_count)
    w->told_next = w->told_count = 0;
  if (msg_grow(&w->told, &w->told_cap, w->told_count + 1, sizeof *w->told) != MSG_OK)
    return NULL;
  msg_event *e = &w->told[w->told_count++];
  *e = (msg_event){.kind = MSG_EVENT_CHANGED, .told_ms = w->stream.told_ms};
  msg_message_init(&e->message);
  return e;
}

/* Everybody shall look. */
static int tell_change(mongo_watch *w) {
  return add_told(w) ? MSG_OK : MSG_NOMEM;
}

/* Takes *m over. */
static int tell_message(mongo_watch *w, msg_message *m) {
  msg_event *e = add_told(w);
  if (!e) {
    msg_message_clear(m);
    return MSG_NOMEM;
  }
  e->kind = MSG_EVENT_MESSAGE;
  e->message = *m;
  if (m->exclusive)
    e->turn_ms = MSG_MONGO_TURN_MS *
                 (int64_t)msg_mongo_rivals_before(&w->upkeep.rivals, msg_process_self(), &m->id);
  return MSG_OK;
}

/* The next one, which is there. */
static void give_told(mongo_watch *w, msg_event *out) {
  *out = w->told[w->told_next++];
  out->more = w->told_next < w->told_count;
}

/* --- following a stream -------------------------------------------------------------------- */

/* A message, if somebody here may want it. One that is taken already by somebody, or hidden, is
 * none that came. */
static int tell_insert(mongo_watch *w, const bson_t *doc) {
  msg_message m;
  int rc = msg_mongo_message(doc, msg_mongo_now_ms(w->store), false, &m, NULL);
  if (rc != MSG_OK)
    return rc == MSG_CORRUPT ? MSG_OK : tell_change(w);
  bool plain = strcmp(m.processed_by, "[]") == 0, blocked = m.state == MSG_STATE_BLOCKED;
  msg_free(m.processed_by);
  m.processed_by = NULL;
  if (plain && m.state == MSG_STATE_READY)
    return tell_message(w, &m);
  msg_message_clear(&m);
  return blocked ? MSG_OK : tell_change(w);
}

/* Where it is, noted for who gets it. False: it is none of the queue's. */
static bool note_place(mongo_watch *w, const char *collection, const msg_mongo_arrival *a) {
  if (!is_of_many(w))
    return true;
  msg_mongo_place *p = collection ? msg_mongo_place_named(w->session, collection) : NULL;
  if (!p || (p->kind == MSG_MONGO_TOPIC && !(a->topic && msg_mongo_place_is_of(p, a->topic))))
    return false;
  if (p->kind == MSG_MONGO_TOPIC)
    msg_mongo_place_note(w->store, p, a->topic);
  msg_mongo_session at = msg_mongo_session_at(w->session, p);
  if (a->has_id)
    msg_mongo_met(&at, &a->id);
  return true;
}

static int take_insert(mongo_watch *w, const char *collection, const bson_t *doc) {
  msg_mongo_arrival a;
  bson_iter_t it;
  if (!bson_iter_init(&it, doc))
    return MSG_OK;
  msg_mongo_arrival_read(&it, &a);
  if (!note_place(w, collection, &a))
    return MSG_OK;
  if (a.until_ms != 0)
    msg_mongo_upkeep_due(&w->upkeep, a.until_ms);
  if (a.has_id && !a.answer && a.topic && strcmp(a.topic, MSG_MONGO_STATUS_TOPIC) == 0)
    msg_mongo_status_answer(w->session, &w->settings, &a.id, NULL);
  bool wanted = a.until_ms == 0 && msg_mongo_arrival_concerns(w->session, &a);
  return wanted ? tell_insert(w, doc) : MSG_OK;
}

/* Somebody gave something back, at once or after a delay. */
static int take_update(mongo_watch *w) {
  msg_mongo_upkeep_ask(&w->upkeep);
  return tell_change(w);
}

/* Somebody dropped or renamed it. */
static void forget(mongo_watch *w, const char *collection) {
  msg_mongo_place *p = msg_mongo_place_named(w->session, collection);
  if (!p)
    return;
  msg_mongo_session at = msg_mongo_session_at(w->session, p);
  msg_mongo_forget_indexes(&at);
  if (p->kind == MSG_MONGO_LANES)
    msg_mongo_upkeep_lanes(&w->upkeep);
}

/* Errors: MSG_CORRUPT what ends a stream. */
static int take_event(mongo_watch *w, bson_iter_t *event, msg_err *err) {
  const char *type = "", *collection = NULL;
  bson_iter_t ns;
  bson_t doc;
  bool has_doc = false;
  while (bson_iter_next(event)) {
    const char *key = bson_iter_key(event);
    if (strcmp(key, "operationType") == 0 && BSON_ITER_HOLDS_UTF8(event)) {
      type = bson_iter_utf8(event, NULL);
    } else if (strcmp(key, "ns") == 0 && BSON_ITER_HOLDS_DOCUMENT(event) &&
               bson_iter_recurse(event, &ns) && bson_iter_find(&ns, "coll") &&
               BSON_ITER_HOLDS_UTF8(&ns)) {
      collection = bson_iter_utf8(&ns, NULL);
    } else if (strcmp(key, "fullDocument") == 0 && BSON_ITER_HOLDS_DOCUMENT(event)) {
      uint32_t len;
      const uint8_t *data;
      bson_iter_document(event, &len, &data);
      has_doc = bson_init_static(&doc, data, len);
    }
  }
  int rc = MSG_OK;
  if (strcmp(type, "insert") == 0)
    rc = has_doc ? take_insert(w, collection, &doc) : MSG_OK;
  else if (strcmp(type, "update") == 0)
    rc = take_update(w);
  else if (is_of_many(w) && collection) { /* one of many: the stream goes on */
    forget(w, collection);
    rc = tell_change(w);
  } else
    return msg_err_set(err, MSG_CORRUPT, "watch '%s': its stream ends with '%s' (MongoDB at %s)",
                       w->session->queue->name, type, w->store->hosts);
  return rc == MSG_OK ? MSG_OK : msg_err_nomem(err);
}

static int open_stream(mongo_watch *w, msg_err *err) {
  bson_t *match = msg_mongo_interest_match(w->session, &w->interest);
  bson_t *project = msg_mongo_wanted_fields();
  bool whole = is_of_many(w);
  if (whole) {
    bson_t *reach = msg_mongo_reach(w->session), *both;
    both = BCON_NEW("$and", "[", BCON_DOCUMENT(match), BCON_DOCUMENT(reach), "]");
    bson_destroy(reach);
    bson_destroy(match);
    match = both;
  }
  const msg_mongo_names *names = &w->session->names; /* of many places none has the messages */
  int rc = msg_mongo_stream_open(w->store, whole ? names->participants : names->messages, whole,
                                 match, project, &w->stream, err);
  bson_destroy(match);
  bson_destroy(project);
  return rc;
}

static bool is_too_narrow(const mongo_watch *w) {
  return w->interest != msg_mongo_interest_version(w->store);
}

/* Somebody here wants more than the stream tells: another one. What came meanwhile is not heard. */
static int follow_anew(mongo_watch *w, msg_err *err) {
  msg_mongo_stream_close(&w->stream);
  int rc = open_stream(w, err);
  msg_mongo_upkeep_lanes(&w->upkeep);
  return rc == MSG_OK ? tell_change(w) : rc;
}

static int follow(mongo_watch *w, int64_t wait_ms, msg_err *err) {
  bson_t reply;
  bson_iter_t events, event;
  if (is_too_narrow(w))
    return follow_anew(w, err);
  int rc = msg_mongo_stream_next(&w->stream, wait_ms, &reply, &events, err);
  clear_told(w);
  while (rc == MSG_OK && bson_iter_next(&events))
    if (BSON_ITER_HOLDS_DOCUMENT(&events) && bson_iter_recurse(&events, &event))
      rc = take_event(w, &event, err);
  bson_destroy(&reply);
  if (rc != MSG_OK && is_too_narrow(w)) /* for that its cursor was ended */
    return follow_anew(w, err);
  return rc == MSG_TIMEOUT ? MSG_OK : rc;
}

/* --- polling ------------------------------------------------------------------------------- */

static bool find_number(const bson_t *doc, const char *path, int64_t *out) {
  bson_iter_t it, at;
  if (!bson_iter_init(&it, doc) || !bson_iter_find_descendant(&it, path, &at))
    return false;
  *out = bson_iter_as_int64(&at);
  return true;
}

/* How often the collection was written to since its server started; 0: there is none yet. */
static int count_writes(mongo_watch *w, int64_t *out, msg_err *err) {
  msg_mongo_use u;
  const bson_t *doc;
  int rc = msg_mongo_take(w->store, "watch", &u, err);
  if (rc != MSG_OK)
    return rc;
  if (is_of_many(w)) {
    msg_mongo_give(&u);
    return msg_err_set(err, MSG_UNSUPPORTED, "watch: many collections have no count");
  }
  mongoc_collection_t *c = msg_mongo_collection(&u, w->session->names.messages);
  bson_t *pipeline =
      BCON_NEW("pipeline", "[", "{", "$collStats", "{", "latencyStats", "{", "}", "}", "}", "]");
  mongoc_cursor_t *cursor = mongoc_collection_aggregate(c, MONGOC_QUERY_NONE, pipeline, NULL, NULL);
  *out = 0;
  while ((rc = msg_mongo_next(&u, cursor, "watch", &doc, err)) == MSG_OK)
    find_number(doc, "latencyStats.writes.ops", out);
  mongoc_cursor_destroy(cursor);
  bson_destroy(pipeline);
  mongoc_collection_destroy(c);
  msg_mongo_give(&u);
  if (rc == MSG_BACKEND && err && err->native == 26) /* NamespaceNotFound */
    return MSG_OK;
  return rc == MSG_NOTFOUND ? MSG_OK : rc;
}

static void nap(mongo_watch *w, int64_t ms) {
  int64_t until_ms = msg_clock_mono_ms() + ms;
  msg_mutex_lock(w->mtx);
  while (!atomic_load(&w->woken) && msg_cond_wait_until(w->bell, w->mtx, until_ms))
    ;
  msg_mutex_unlock(w->mtx);
}

/* Who may not ask for the count has everybody look after each pause. */
static int look_at_count(mongo_watch *w, int64_t wait_ms, msg_err *err) {
  int64_t writes = -1;
  msg_err own = MSG_ERR_INIT;
  nap(w, wait_ms < w->settings.poll_pause_ms ? wait_ms : w->settings.poll_pause_ms);
  int rc = count_writes(w, &writes, &own);
  clear_told(w);
  if (rc == MSG_AUTH || rc == MSG_UNSUPPORTED)
    return tell_change(w);
  bool changed = writes != w->writes;
  w->writes = writes;
  if (rc == MSG_OK)
    return changed ? tell_change(w) : MSG_OK;
  if (err)
    *err = own;
  return rc == MSG_UNAVAILABLE ? MSG_IO : rc;
}

static int say_polling(mongo_watch *w) {
  atomic_store(&w->store->streams, false);
  char text[sizeof w->store->tend->polling.text];
  snprintf(text, sizeof text, "queue '%s' is polled every %lld ms: %s", w->session->queue->name,
           (long long)w->settings.poll_pause_ms,
           w->store->replicated ? "use_change_stream is off"
                                : "a standalone server has no change streams");
  msg_mongo_warn(w->store, &w->store->tend->polling, text);
  return MSG_OK;
}

/* --- the verbs ----------------------------------------------------------------------------- */

static int begin(mongo_watch *w, const msg_settings *settings, msg_err *err) {
  msg_session *session = NULL;
  w->mtx = msg_mutex_new();
  w->bell = msg_cond_new();
  if (!w->mtx || !w->bell || msg_settings_copy(&w->settings, settings) != MSG_OK)
    return msg_err_nomem(err);
  int rc = w->base.ops->session_open(&w->store->base, NULL, msg_settings_queue(settings), settings,
                                     &session, err);
  if (rc != MSG_OK)
    return rc;
  w->session = (msg_mongo_session *)session;
  w->streams = w->store->replicated && settings->use_change_stream;
  w->writes = -1;
  msg_mongo_upkeep_begin(&w->upkeep, w->session, &w->settings, &w->woken);
  if (!w->streams)
    return say_polling(w);
  atomic_store(&w->store->streams, true);
  rc = open_stream(w, err);
  w->streams = rc == MSG_OK;
  return rc == MSG_UNSUPPORTED ? say_polling(w) : rc;
}

int msg_mongo_watch_open(msg_store *store, const msg_settings *settings, msg_watch **out,
                         msg_err *err) {
  mongo_watch *w = msg_zalloc(sizeof *w);
  if (!w)
    return msg_err_nomem(err);
  w->base.ops = store->ops;
  w->store = (msg_mongo_store *)store;
  msg_settings_init(&w->settings);
  int rc = begin(w, settings, err);
  if (rc == MSG_OK)
    *out = &w->base;
  else
    msg_mongo_watch_close(&w->base);
  return rc;
}

static int stopped(const mongo_watch *w, msg_err *err) {
  return msg_err_set(err, MSG_SHUTDOWN, "watch '%s': stopped", w->session->queue->name);
}

/* Until there is something to tell. */
static int wait_for_events(mongo_watch *w, int64_t deadline_mono_ms, msg_err *err) {
  int rc = MSG_OK;
  while (rc == MSG_OK && w->told_next == w->told_count) {
    if (atomic_load(&w->woken))
      return stopped(w, err);
    if (msg_mongo_upkeep_tend(&w->upkeep, w->streams))
      return tell_change(w) == MSG_OK ? MSG_OK : msg_err_nomem(err);
    if (msg_clock_mono_ms() >= deadline_mono_ms)
      return msg_err_set(err, MSG_TIMEOUT, "watch '%s': nothing came", w->session->queue->name);
    int64_t wait_ms = msg_mongo_upkeep_pause_ms(&w->upkeep, deadline_mono_ms);
    rc = w->streams ? follow(w, wait_ms, err) : look_at_count(w, wait_ms, err);
    if (rc != MSG_OK && atomic_load(&w->woken)) /* which ended it */
      return stopped(w, err);
  }
  return rc;
}

/* Once the stream is open, whoever waits looks: what came before is not heard. */
int msg_mongo_watch_next(msg_watch *base, int64_t deadline_mono_ms, msg_event *out, msg_err *err) {
  mongo_watch *w = (mongo_watch *)base;
  if (atomic_load(&w->woken))
    return stopped(w, err);
  if (!w->begun && tell_change(w) != MSG_OK)
    return msg_err_nomem(err);
  w->begun = true;
  int rc = wait_for_events(w, deadline_mono_ms, err);
  if (rc == MSG_OK)
    give_told(w, out);
  return rc;
}

void msg_mongo_watch_wake(msg_watch *base) {
  mongo_watch *w = (mongo_watch *)base;
  atomic_store(&w->woken, true);
  msg_mutex_lock(w->mtx);
  msg_cond_broadcast(w->bell);
  msg_mutex_unlock(w->mtx);
  if (w->streams)
    msg_mongo_interest_end(w->store, &w->stream);
}

void msg_mongo_watch_info(const msg_watch *base, msg_watch_info *out) {
  const mongo_watch *w = (const mongo_watch *)base;
  int64_t token_ms = w->streams ? atomic_load(&w->stream.token_ms) : 0;
  *out = (msg_watch_info){.what = w->session->queue->layout->lanes ? w->store->db
                                                                   : w->session->names.messages,
                          .how = w->streams ? "change stream" : "poll",
                          .token_age_ms = token_ms ? msg_clock_mono_ms() - token_ms : -1};
}

void msg_mongo_watch_close(msg_watch *base) {
  mongo_watch *w = (mongo_watch *)base;
  msg_mongo_stream_close(&w->stream);
  clear_told(w);
  msg_free(w->told);
  msg_mongo_upkeep_clear(&w->upkeep);
  if (w->session)
    w->base.ops->session_close(&w->session->base);
  msg_settings_clear(&w->settings);
  msg_cond_free(w->bell);
  msg_mutex_free(w->mtx);
  msg_free(w);
}
