/* mongo.c - the store: its end, its sessions, the ops table. */
#include "store/mongo/mongo.h"

#include <string.h>

#include "base/mem.h"
#include "store/mongo/chores.h"
#include "store/mongo/closing.h"
#include "store/mongo/due.h"
#include "store/mongo/job.h"
#include "store/mongo/place.h"
#include "store/mongo/tend.h"

static unsigned caps(const msg_store *base) {
  const msg_mongo_store *store = (const msg_mongo_store *)base;
  return MSG_CAP_OWN | MSG_CAP_WATCH | MSG_CAP_TEND | (store->replicated ? MSG_CAP_PUSH : 0u);
}

static const char *place(const msg_store *base) {
  return ((const msg_mongo_store *)base)->hosts;
}

/* In a child made by fork() nothing of the driver's may be touched. */
static void store_close(msg_store *base) {
  msg_mongo_store *store = (msg_mongo_store *)base;
  bool ours = store->generation == msg_fork_generation();
  if (store->mtx && ours)
    msg_mongo_chores_stop(store);
  if (ours && store->tend && !msg_mongo_jobs_reap(store))
    return; /* a commit that hangs still uses it: it stays, as its thread does */
  if (ours) {
    msg_mongo_closing(store->cursors);
    msg_mongo_closing(store->operations);
  }
  msg_mongo_places_free(store);
  msg_mongo_queues_free(store);
  msg_free(store->met);
  msg_mongo_tend_free(store->tend);
  msg_free(store->undone);
  msg_cond_free(store->marks_changed);
  msg_mutex_free(store->mtx);
  msg_free(store->hosts);
  msg_free(store->db);
  msg_free(store);
}

/* ---- sessions ---- */

static int session_open(msg_store *base, msg_host *host, const char *queue,
                        const msg_settings *settings, msg_session **out, msg_err *err) {
  const msg_mongo_layout *layout = msg_mongo_layout_of(msg_settings_layout(settings));
  (void)host; /* nothing happens on it */
  msg_mongo_session *s = msg_zalloc(sizeof *s);
  if (!s)
    return msg_err_nomem(err);
  s->base.ops = base->ops;
  s->store = (msg_mongo_store *)base;
  int rc = msg_mongo_session_set(s, queue, layout, err);
  if (rc != MSG_OK) {
    msg_free(s);
    return rc;
  }
  s->participant_timeout_ms = settings->participant_timeout_ms;
  s->write_timeout_ms = settings->write_timeout_ms;
  s->update_ms = 1000 * settings->registry_update_interval_s;
  s->registry = settings->registry_enabled;
  s->sweeps = settings->dm_cleanup_orphans_on_startup;
  s->lean = strcmp(msg_settings_indexes(settings), "lean") == 0;
  s->check = msg_settings_implementation_check(settings)[0];
  *out = &s->base;
  return MSG_OK;
}

static void session_close(msg_session *base) {
  msg_free(base);
}

static void session_release(msg_session *base) {
  (void)base;
}

/* Writes here do not join the host's transaction. */
static int lock(msg_session *base, msg_err *err) {
  (void)base;
  (void)err;
  return MSG_OK;
}

const struct msg_store_ops msg_mongo_ops = {
    .store_close = store_close,
    .caps = caps,
    .place = place,
    .session_open = session_open,
    .watch_open = msg_mongo_watch_open,
    .claims_undone = msg_mongo_claims_undone,
    .session_close = session_close,
    .session_release = session_release,
    .lock = lock,
    .put = msg_mongo_put_due,
    .find = msg_mongo_find,
    .find_next = msg_mongo_find_next,
    .find_close = msg_mongo_find_close,
    .get = msg_mongo_get,
    .listen = msg_mongo_listen_to,
    .unlisten = msg_mongo_unlisten,
    .listeners = msg_mongo_listeners,
    .ask_listeners = msg_mongo_ask_listeners,
    .unseen = msg_mongo_unseen,
    .seen = msg_mongo_seen,
    .seen_soon = msg_mongo_seen_soon,
    .still_unseen = msg_mongo_still_unseen,
    .claim = msg_mongo_claim_due,
    .claimable = msg_mongo_claimable_due,
    .settle = msg_mongo_settle_due,
    .apply = msg_mongo_apply_due,
    .undo = msg_mongo_undo,
    .update = msg_mongo_change_due,
    .remove = msg_mongo_remove,
    .purge = msg_mongo_purge,
    .redrive = msg_mongo_redrive,
    .topics = msg_mongo_topics,
    .queues = msg_mongo_queues,
    .presence_put = msg_mongo_presence_put,
    .presence_list = msg_mongo_presence_list,
    .presence_withdraw = msg_mongo_presence_withdraw,
    .lanes = msg_mongo_lanes,
    .lane_drop = msg_mongo_lane_drop,
    .deadline = msg_mongo_deadline,
    .unanswered = msg_mongo_unanswered,
    .warning = msg_mongo_warning,
    .describe = msg_mongo_describe,
    .watch_next = msg_mongo_watch_next,
    .watch_wake = msg_mongo_watch_wake,
    .watch_info = msg_mongo_watch_info,
    .watch_close = msg_mongo_watch_close,
};
