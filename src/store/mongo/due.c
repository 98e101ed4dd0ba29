/* due.c - the verbs that set a time at which something happens by itself: run, then noted for this
 * process's cursor thread. Other processes hear of delays by their streams; of leases they ask when
 * a claim finds nothing. */
#include "store/mongo/due.h"
#include "base/clock.h"
#include "store/mongo/tend.h"

static void note(msg_session *base, int64_t at_ms) {
  msg_mongo_session *s = (msg_mongo_session *)base;
  msg_mongo_note_due(s->store, s->queue, at_ms);
}

static void ask(msg_session *base) {
  msg_mongo_session *s = (msg_mongo_session *)base;
  msg_mongo_ask_due(s->store, s->queue);
}

static int64_t in_ms(msg_session *base, int64_t ms) {
  return msg_clock_add(msg_mongo_now_ms(((msg_mongo_session *)base)->store), ms);
}

/* Its delay ends; or its life does, and then its group goes on. */
static void note_message(msg_session *base, const msg_message *m) {
  int64_t offset_ms = ((msg_mongo_session *)base)->store->clock_offset_ms;
  if (m->deliver_at_ms > m->timestamp_ms)
    note(base, m->deliver_at_ms + offset_ms);
  if (m->group && m->exclusive && m->delete_at_ms != MSG_NEVER)
    note(base, m->delete_at_ms + offset_ms);
}

static void note_settle(msg_session *base, const msg_settle *how) {
  if (how->verb == MSG_SETTLE_RELEASE && how->delay_ms > 0)
    note(base, in_ms(base, how->delay_ms));
  if (how->verb == MSG_SETTLE_EXTEND)
    note(base, in_ms(base, how->lease_ms));
}

int msg_mongo_put_due(msg_session *base, const msg_actor *actor, msg_put *items, size_t n,
                      msg_err *err) {
  int rc = msg_mongo_put(base, actor, items, n, err);
  for (size_t i = 0; rc == MSG_OK && i < n; i++)
    note_message(base, items[i].message);
  return rc;
}

int msg_mongo_claim_due(msg_session *base, const msg_actor *actor, const msg_claim *claim,
                        msg_list *out, msg_err *err) {
  size_t before = out->n;
  int rc = msg_mongo_claim(base, actor, claim, out, err);
  for (size_t i = before; rc == MSG_OK && i < out->n; i++)
    note(base, out->at[i].until_ms);
  if (rc == MSG_OK && out->n == before)
    ask(base);
  return rc;
}

int msg_mongo_claimable_due(msg_session *base, const msg_actor *actor, const msg_claim *claim,
                            bool *out, msg_err *err) {
  int rc = msg_mongo_claimable(base, actor, claim, out, err);
  if (rc == MSG_OK && !*out)
    ask(base);
  return rc;
}

int msg_mongo_settle_due(msg_session *base, const msg_actor *actor, const msg_settle *how,
                         msg_settle_item *items, size_t n, msg_err *err) {
  int rc = msg_mongo_settle(base, actor, how, items, n, err);
  if (rc == MSG_OK)
    note_settle(base, how);
  return rc;
}

int msg_mongo_apply_due(msg_session *base, const msg_actor *actor, msg_unit *unit, msg_err *err) {
  int rc = msg_mongo_apply(base, actor, unit, err);
  for (size_t i = 0; rc == MSG_OK && i < unit->put_count; i++)
    note_message(base, unit->puts[i].message);
  for (size_t i = 0; rc == MSG_OK && i < unit->settle_count; i++)
    note_settle(base, &unit->settles[i].how);
  return rc;
}

int msg_mongo_change_due(msg_session *base, const msg_actor *actor, const msg_oid *id,
                         const msg_update *update, msg_err *err) {
  int64_t offset_ms = ((msg_mongo_session *)base)->store->clock_offset_ms;
  int rc = msg_mongo_change(base, actor, id, update, err);
  if (rc == MSG_OK && update->has_deliver_at)
    note(base, update->deliver_at_ms + offset_ms);
  if (rc == MSG_OK && update->has_ttl && update->ttl_ms > 0)
    note(base, in_ms(base, update->ttl_ms));
  return rc;
}
