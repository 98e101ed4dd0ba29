/* seen.c - marking what was handed out. */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "store/local/lane.h"
#include "store/local/reading.h"

#define COMPACT_EVERY 32

/* A floor may have passed the message since `unseen` gave it (another thread of the node was
 * faster, and its mark is gone): then it is not won. */
static const char sql_mark[] =
    "INSERT OR IGNORE INTO @.msg_store_seen(queue, node, seq)"
    " SELECT ?1, ?2, m.seq FROM @.msg_store_message AS m WHERE m.seq = ?3 AND m.state = 8"
    " AND m.queue = ?1 AND (m.delete_at IS NULL OR m.delete_at > ?4)"
    " AND NOT " MSG_LOCAL_PASSED(?1, ?2);
static const char sql_take[] =
    "DELETE FROM @.msg_store_lane INDEXED BY " MSG_LOCAL_LANE_ORDER
    " WHERE queue = ?1 AND node = ?2 AND exclusive = 0"
    " AND priority = ?3 AND deliver_at = ?4 AND seq = ?5"
    " AND (SELECT 1 FROM @.msg_store_message AS m WHERE m.seq = ?5 AND m.state = 9"
    " AND (m.delete_at IS NULL OR m.delete_at > ?6))";
/* delete_after_processing: broadcasts have no lane rows, a direct goes with its last one. */
static const char sql_drop[] = "DELETE FROM @.msg_store_message WHERE seq = ?1"
                               " AND NOT " MSG_LOCAL_WAITING("?1");
static const char sql_end[] =
    "UPDATE @.msg_store_message SET delete_at = min(coalesce(delete_at, ?2), ?2) WHERE seq = ?1"
    " AND NOT " MSG_LOCAL_WAITING("?1");

struct marking {
  const msg_actor *actor;
  const msg_list *list;
  bool *won;
  int64_t now_ms, marks, left;
  bool compact;
};

static int mark(msg_local_session *s, const struct marking *k, const msg_message *m, bool *won,
                msg_err *err) {
  int64_t changed = 0;
  int rc = m->recipient_count
               ? msg_local_exec(s, sql_take, &changed, err, "ttiiii", s->queue, k->actor->node,
                                (int64_t)m->priority, m->deliver_at_ms, m->seq, k->now_ms)
               : msg_local_exec(s, sql_mark, &changed, err, "ttii", s->queue, k->actor->node,
                                m->seq, k->now_ms);
  *won = rc == MSG_OK && changed > 0;
  if (!*won || !m->delete_after_processing)
    return rc;
  if (m->delete_after_processing_ms <= 0)
    return msg_local_exec(s, sql_drop, NULL, err, "i", m->seq);
  return msg_local_exec(s, sql_end, NULL, err, "ii", m->seq,
                        msg_clock_add(k->now_ms, m->delete_after_processing_ms));
}

static int seen_work(msg_local_session *s, void *arg, msg_err *err) {
  struct marking *k = arg;
  k->marks = 0;
  for (size_t i = 0; i < k->list->n; i++) {
    int rc = mark(s, k, &k->list->at[i], &k->won[i], err);
    if (rc != MSG_OK)
      return rc;
    k->marks += k->won[i] && k->list->at[i].recipient_count == 0;
  }
  if (!k->compact)
    return MSG_OK;
  return msg_local_compact(s, k->actor->node, k->now_ms, &k->left, err);
}

int msg_local_seen(msg_session *base, const msg_actor *actor, const msg_list *list, bool *won,
                   msg_err *err) {
  msg_local_session *s = (msg_local_session *)base;
  struct marking k = {.actor = actor, .list = list, .now_ms = msg_clock_now_ms()};
  size_t broadcasts = 0;
  bool ends = false;
  for (size_t i = 0; i < list->n; i++) {
    broadcasts += list->at[i].recipient_count == 0;
    ends = ends || list->at[i].delete_after_processing;
  }
  if (list->n == 0)
    return MSG_OK;
  if (!(k.won = msg_zalloc(list->n * sizeof *k.won)))
    return msg_err_nomem(err);
  k.compact = broadcasts > 0 && s->marks_left <= (int64_t)broadcasts;
  int rc = msg_local_write(s, "await", list->n > 1 || ends || k.compact, seen_work, &k, err);
  if (rc == MSG_OK) {
    memcpy(won, k.won, list->n * sizeof *won);
    /* Marks that cannot go yet are looked at again when their number has grown by half. */
    s->marks_left = k.compact ? COMPACT_EVERY + k.left / 2 : s->marks_left - k.marks;
  }
  msg_free(k.won);
  return rc;
}
