/* update.c - changing a message that is in the store. */
#include <string.h>

#include "base/clock.h"
#include "store/local/move.h"
#include "store/local/reading.h"

struct updating {
  const msg_oid *id;
  const msg_update *update;
  int64_t now_ms;
};

/* ---- a broadcast keeps who has seen it ---- */

struct live {
  const char *topic;
  int64_t seq, new_seq;
};

/* `l[0..n)` are the patterns of one node. Marks the new number for it where it waits no more for
 * the old one: it has seen it, be it elsewhere, a floor of any pattern has passed it, or it never
 * listened to it. */
static int carry_node(msg_local_session *s, const msg_local_listener *l, size_t n,
                      const struct live *m, msg_err *err) {
  static const char sql[] =
      "INSERT OR IGNORE INTO @.msg_store_seen(queue, node, seq)"
      " SELECT ?1, ?2, ?3 FROM @.msg_store_message AS m WHERE m.seq = ?4 AND (NOT ?5"
      " OR EXISTS(SELECT 1 FROM @.msg_store_seen AS s WHERE s.queue = ?1 AND s.node = ?2"
      " AND s.seq = m.seq) OR " MSG_LOCAL_PASSED(?1, ?2) ")";
  bool heard = false, listens = false;
  for (size_t i = 0; i < n; i++) {
    if (!msg_local_listener_match(&l[i], m->topic))
      continue;
    listens = true;
    heard = heard || l[i].start < m->seq;
  }
  return msg_local_exec(s, sql, NULL, err, "ttiii", s->queue, l->node, m->new_seq, m->seq,
                        (int64_t)(heard || !listens));
}

static int carry_marks(msg_local_session *s, const struct live *m, msg_err *err) {
  msg_local_audience all = MSG_LOCAL_AUDIENCE_INIT;
  int rc = msg_local_audience_load(s, NULL, &all, err);
  if (rc == MSG_OK)
    rc = msg_local_audience_add_strangers(s, &all, err);
  for (size_t i = 0, n; rc == MSG_OK && i < all.n; i += n) {
    for (n = 1; i + n < all.n && strcmp(all.at[i].node, all.at[i + n].node) == 0;)
      n++;
    rc = carry_node(s, &all.at[i], n, m, err);
  }
  msg_local_audience_clear(&all);
  return rc;
}

/* Floors are kept by priority: one that passed nothing of the old priority may have passed this
 * number in the new. So the message gets a new number, above every floor, while it has the old
 * priority. */
static int renumber(msg_local_session *s, msg_local_item *item, msg_err *err) {
  struct live m = {.topic = item->topic, .seq = item->seq};
  int rc = msg_local_next_seq(s, &m.new_seq, err);
  if (rc == MSG_OK)
    rc = carry_marks(s, &m, err);
  if (rc == MSG_OK)
    rc = msg_local_exec(s, "UPDATE @.msg_store_message SET seq = ?2, moved = 1 WHERE seq = ?1",
                        NULL, err, "ii", item->seq, m.new_seq);
  if (rc == MSG_OK)
    item->seq = m.new_seq;
  return rc;
}

/* ---- fields ---- */

static int set_priority(msg_local_session *s, msg_local_item *item, int32_t priority,
                        msg_err *err) {
  static const char sql_same[] =
      "SELECT 1 FROM @.msg_store_message WHERE seq = ?1 AND priority = ?2";
  sqlite3_stmt *stmt = NULL;
  int rc = msg_local_bound(s, sql_same, &stmt, err, "ii", item->seq, (int64_t)priority);
  if (rc == MSG_OK)
    rc = msg_local_row(s, stmt, err);
  msg_local_done(s, stmt);
  if (rc != MSG_NOTFOUND)
    return rc;
  rc = item->state == MSG_LOCAL_LIVE ? renumber(s, item, err) : MSG_OK;
  if (rc == MSG_OK)
    rc = msg_local_exec(s, "UPDATE @.msg_store_message SET priority = ?2 WHERE seq = ?1", NULL, err,
                        "ii", item->seq, (int64_t)priority);
  if (rc == MSG_OK && item->has_recipients)
    rc = msg_local_exec(
        s, "UPDATE @.msg_store_lane INDEXED BY msg_store_lane_seq SET priority = ?2 WHERE seq = ?1",
        NULL, err, "ii", item->seq, (int64_t)priority);
  return rc;
}

static int set_deliver_at(msg_local_session *s, msg_local_item *item, int64_t deliver_at_ms,
                          int64_t now_ms, msg_err *err) {
  bool out = item->state == MSG_LOCAL_LIVE || item->state == MSG_LOCAL_DIRECT;
  if (item->state == MSG_LOCAL_CLAIMED)
    return msg_err_set(
        err, MSG_MISUSE,
        "update: the message is claimed, its delivery time cannot change: release it "
        "with a delay, or free it in msg_locks first");
  if (out && deliver_at_ms > now_ms)
    return msg_err_set(
        err, MSG_MISUSE,
        "update: the message is out to its listeners and cannot be delayed any more: "
        "delete it and send another");
  item->deliver_at_ms = deliver_at_ms;
  int rc = msg_local_exec(s,
                          "UPDATE @.msg_store_message SET deliver_at = ?2,"
                          " moved = CASE state WHEN 8 THEN 1 END WHERE seq = ?1",
                          NULL, err, "ii", item->seq, deliver_at_ms);
  if (rc == MSG_OK && item->has_recipients)
    rc = msg_local_exec(
        s,
        "UPDATE @.msg_store_lane INDEXED BY msg_store_lane_seq SET deliver_at = ?2 WHERE seq = ?1",
        NULL, err, "ii", item->seq, deliver_at_ms);
  return rc;
}

/* A dead letter gets its life when it is redriven. */
static int set_ttl(msg_local_session *s, msg_local_item *item, int64_t ttl_ms, int64_t now_ms,
                   msg_err *err) {
  static const char sql[] =
      "UPDATE @.msg_store_message SET ttl = ?2, timing_out = ?2 > 0,"
      " delete_at = CASE WHEN state <> 7 AND ?2 > 0 THEN ?3 END,"
      " state = CASE WHEN ?4 THEN 6 ELSE state END WHERE seq = ?1"; /* no READY one expires */
  item->mortal = ttl_ms > 0;
  return msg_local_exec(s, sql, NULL, err, "iiii", item->seq, ttl_ms, msg_clock_add(now_ms, ttl_ms),
                        (int64_t)(item->state == MSG_LOCAL_CLAIMED));
}

static bool is_exclusive_free(const msg_local_item *item) {
  return item->state == MSG_LOCAL_READY || item->state == MSG_LOCAL_MORTAL ||
         item->state == MSG_LOCAL_ADDRESSED || item->state == MSG_LOCAL_DELAYED;
}

static int update_work(msg_local_session *s, void *arg, msg_err *err) {
  const struct updating *w = arg;
  const msg_update *u = w->update;
  msg_local_item item;
  int rc = msg_local_item_find(s, w->id, &item, err);
  if (rc == MSG_OK && item.state == MSG_LOCAL_READY)
    rc = msg_local_ready_remove(s, &item, err);
  if (rc == MSG_OK && u->has_deliver_at)
    rc = set_deliver_at(s, &item, u->deliver_at_ms, w->now_ms, err);
  if (rc == MSG_OK && u->has_ttl)
    rc = set_ttl(s, &item, u->ttl_ms, w->now_ms, err);
  if (rc == MSG_OK && u->has_priority)
    rc = set_priority(s, &item, u->priority, err);
  if (rc == MSG_OK && (u->has_deliver_at || u->has_ttl) && is_exclusive_free(&item))
    rc = msg_local_item_place(s, &item, w->now_ms, err);
  else if (rc == MSG_OK && item.state == MSG_LOCAL_READY)
    rc = msg_local_ready_add(s, item.seq, err);
  return rc;
}

int msg_local_update(msg_session *base, const msg_actor *actor, const msg_oid *id,
                     const msg_update *update, msg_err *err) {
  msg_local_session *s = (msg_local_session *)base;
  struct updating w = {.id = id, .update = update, .now_ms = msg_clock_now_ms()};
  bool backlog;
  int rc = msg_local_sweep(s, actor, w.now_ms, false, &backlog, err);
  return rc == MSG_OK ? msg_local_write(s, "update", true, update_work, &w, err) : rc;
}
