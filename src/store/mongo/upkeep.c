#include "store/mongo/upkeep.h"

#include "base/clock.h"
#include "store/mongo/catalog.h"
#include "store/mongo/group.h"
#include "store/mongo/interest.h"
#include "store/mongo/lane.h"
#include "store/mongo/presence.h"
#include "store/mongo/query.h"
#include "store/mongo/registry.h"
#include "store/mongo/tend.h"

#define PAUSE_MS   500   /* one getMore: a stop waits no longer */
#define REFRESH_MS 10000 /* what is due next is asked again: claims of others are not heard; and */
#define ASKED_MS   1000  /* that soon when a claim here found nothing */
#define RETRY_MS   1000  /* what is due and could not be moved, or could not be asked for */

static int64_t now_of(const msg_mongo_upkeep *k) {
  return msg_mongo_now_ms(k->session->store);
}

static void at_latest(int64_t *at_ms, int64_t ms) {
  if (ms < *at_ms)
    *at_ms = ms;
}

/* Asks for the next deadline; again soon, if it could not be asked. */
static void ask(msg_mongo_upkeep *k) {
  int64_t at_ms = MSG_NEVER, noted_ms = msg_mongo_take_due(k->session->store, k->session->queue);
  if (msg_mongo_deadline_tended(k->session, &at_ms, NULL) != MSG_OK)
    at_ms = now_of(k) + RETRY_MS;
  at_latest(&at_ms, noted_ms);
  k->due_ms = at_ms;
  k->asked_ms = msg_clock_mono_ms();
  k->asked = false;
}

static void refresh(msg_mongo_upkeep *k, bool streams) {
  ask(k);
  k->refresh_ms = k->asked_ms + REFRESH_MS;
  if (!streams) /* no word of a drop comes */
    msg_mongo_upkeep_lanes(k);
}

struct readiness {
  const bson_t *filter;
  bool ready;
};

static int look_ready(msg_mongo_session *at, msg_mongo_use *u, void *arg, msg_err *err) {
  struct readiness *r = arg;
  return r->ready ? MSG_OK
                  : msg_mongo_any(u, at->names.messages, "watch", r->filter, NULL, PAUSE_MS,
                                  &r->ready, err);
}

/* Does something wait that is claimed here? That a Java node gave a lock back is not told by the
 * stream. */
static bool is_anything_ready(msg_mongo_upkeep *k) {
  msg_mongo_use u;
  bool ready = false;
  bson_t filter = BSON_INITIALIZER;
  if (!msg_mongo_interest_claimed(k->session, &filter)) {
    bson_destroy(&filter);
    return false;
  }
  BSON_APPEND_BOOL(&filter, "exclusive", true);
  msg_mongo_append_untaken(&filter);
  if (msg_mongo_take(k->session->store, "watch", &u, NULL) == MSG_OK) {
    struct readiness look = {&filter, false};
    msg_mongo_everywhere(k->session, &u, look_ready, &look, NULL);
    ready = look.ready;
    msg_mongo_give(&u);
  }
  bson_destroy(&filter);
  return ready;
}

static int sweep_at(msg_mongo_session *at, msg_mongo_use *u, void *arg, msg_err *err) {
  const msg_mongo_upkeep *k = arg;
  int moved = 1, rc = MSG_OK;
  while (rc == MSG_OK && moved && !atomic_load(k->stop))
    rc = msg_mongo_sweep(at, u, k->settings->max_attempts, true, &moved, err);
  return rc;
}

/* Moves what is due. */
static void sweep(msg_mongo_upkeep *k) {
  msg_mongo_use u;
  if (msg_mongo_take(k->session->store, "sweep", &u, NULL) == MSG_OK)
    msg_mongo_everywhere(k->session, &u, sweep_at, k, NULL);
  msg_mongo_give(&u);
}

/* A group whose head went without our doing: nobody else may call the next. True: one goes on. */
static bool tend_groups(msg_mongo_upkeep *k) {
  int moved = 0;
  msg_mongo_sweep_groups(k->session, &moved, NULL);
  return moved > 0;
}

static int look_grouped(msg_mongo_session *at, msg_mongo_use *u, void *arg, msg_err *err) {
  (void)arg;
  return msg_mongo_is_grouped(at) ? MSG_OK : msg_mongo_look_grouped(at, u, err);
}

static void look_for_groups(msg_mongo_upkeep *k) {
  msg_mongo_use u;
  bson_t *head = BCON_NEW("topic", "{", "$gt", BCON_UTF8(""), "}", "sq.head", BCON_BOOL(true));
  if (msg_mongo_take(k->session->store, "look at groups", &u, NULL) == MSG_OK)
    msg_mongo_wherever(k->session, &u, head, look_grouped, NULL, NULL);
  msg_mongo_give(&u);
  bson_destroy(head);
}

/* The others shall know whether claims wait here, and we of theirs. */
static void beat(msg_mongo_upkeep *k, bool claims) {
  msg_mongo_use u;
  if (msg_mongo_take(k->session->store, "announce", &u, NULL) == MSG_OK) {
    msg_mongo_heartbeat(k->session, &u, NULL);
    if (claims)
      msg_mongo_rivals_load(k->session, &u, &k->rivals, NULL);
  }
  msg_mongo_give(&u);
  k->claims = claims;
  k->beat_ms = msg_clock_mono_ms() + msg_mongo_beat_ms(k->session);
}

/* Lanes of ours that somebody dropped, hastily, are made anew. */
static void keep_lanes(msg_mongo_upkeep *k) {
  msg_mongo_use u;
  bool kept = false;
  if (msg_mongo_take(k->session->store, "watch", &u, NULL) == MSG_OK)
    kept = msg_mongo_lanes_keep(k->session, &u, NULL) == MSG_OK;
  msg_mongo_give(&u);
  k->lanes_ms = kept ? MSG_NEVER : msg_clock_mono_ms() + RETRY_MS;
}

bool msg_mongo_upkeep_tend(msg_mongo_upkeep *k, bool streams) {
  int64_t mono_ms = msg_clock_mono_ms();
  bool claims = msg_mongo_interest_claims(k->session);
  if (mono_ms >= k->beat_ms || claims != k->claims)
    beat(k, claims);
  if (mono_ms >= k->lanes_ms)
    keep_lanes(k);
  msg_mongo_registry_tend(k->session);
  at_latest(&k->due_ms, msg_mongo_take_due(k->session->store, k->session->queue));
  k->asked = msg_mongo_take_asked(k->session->store, k->session->queue) || k->asked;
  if (now_of(k) >= k->due_ms) {
    sweep(k);
    refresh(k, streams);
    if (now_of(k) >= k->due_ms) /* it could not be moved */
      k->due_ms = now_of(k) + RETRY_MS;
    return !streams; /* which tell what the sweep moved */
  }
  if (k->asked && mono_ms >= k->asked_ms + ASKED_MS)
    ask(k);
  bool called = tend_groups(k);
  if (mono_ms < k->refresh_ms)
    return called;
  refresh(k, streams);
  look_for_groups(k);
  return is_anything_ready(k) || called;
}

int64_t msg_mongo_upkeep_pause_ms(const msg_mongo_upkeep *k, int64_t deadline_mono_ms) {
  int64_t mono_ms = msg_clock_mono_ms(), ms = PAUSE_MS;
  at_latest(&ms, deadline_mono_ms - mono_ms);
  at_latest(&ms, k->refresh_ms - mono_ms);
  at_latest(&ms, k->beat_ms - mono_ms);
  if (k->lanes_ms != MSG_NEVER)
    at_latest(&ms, k->lanes_ms - mono_ms);
  if (k->asked)
    at_latest(&ms, k->asked_ms + ASKED_MS - mono_ms);
  if (k->due_ms != MSG_NEVER)
    at_latest(&ms, k->due_ms - now_of(k));
  return ms < 1 ? 1 : ms;
}

void msg_mongo_upkeep_due(msg_mongo_upkeep *k, int64_t at_ms) {
  at_latest(&k->due_ms, at_ms);
}

void msg_mongo_upkeep_ask(msg_mongo_upkeep *k) {
  k->asked = true;
}

void msg_mongo_upkeep_lanes(msg_mongo_upkeep *k) {
  k->lanes_ms = k->session->queue->layout->lanes ? 0 : MSG_NEVER;
}

void msg_mongo_upkeep_begin(msg_mongo_upkeep *k, msg_mongo_session *session,
                            const msg_settings *settings, const atomic_bool *stop) {
  k->session = session;
  k->settings = settings;
  k->stop = stop;
  k->due_ms = MSG_NEVER;
  k->beat_ms = msg_clock_mono_ms() + msg_mongo_beat_ms(session);
  msg_mongo_upkeep_lanes(k);
}

void msg_mongo_upkeep_clear(msg_mongo_upkeep *k) {
  msg_texts_clear(&k->rivals);
}
