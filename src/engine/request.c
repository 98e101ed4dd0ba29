#include "engine/node_int.h"

/* A request under way: the answers that have come are in out, from index `before` on. */
typedef struct quest {
  msg_oid id; /* of the request */
  size_t wanted, before;
  msg_list *out;
  msg_look look;
} quest;

static size_t got(const quest *q) {
  return q->out->n - q->before;
}

/* An answer may be there before the put returns, so the id is spoken for first. With a key seen
 * before, it is another request's id whose answers count, also those that are there already. */
static int ask(msg_use *u, msg_call *call, const msg_message *request, quest *q, msg_err *err) {
  msg_oid stored;
  q->id = request->id;
  int rc = msg_reserve_add(u->node, &q->id, err);
  if (rc != MSG_OK)
    return rc;
  rc = msg_send_one(u, call, msg_call_looks(call), request, &stored, err);
  if (rc == MSG_OK && msg_oid_cmp(&stored, &q->id) != 0) {
    rc = msg_reserve_add(u->node, &stored, err);
    msg_reserve_drop(u->node, &q->id);
    q->id = stored;
    q->look.looked.epoch = 0;
  } else if (rc != MSG_OK) {
    msg_reserve_drop(u->node, &q->id);
  }
  return rc;
}

static int collect(msg_wait *w, quest *q, msg_err *err) {
  int rc = MSG_OK;
  while (rc == MSG_OK) {
    msg_wait_mark(w);
    if (w->last) /* whatever was told */
      q->look.looked.epoch = 0;
    msg_unseen query = {.answers_to = &q->id, .max = q->wanted - got(q)};
    rc = msg_look_take(&q->look, &query, q->out, err);
    if (rc == MSG_OK && got(q) == q->wanted)
      return MSG_OK;
    if (rc == MSG_OK)
      rc = msg_wait_again(w, err);
  }
  return rc == MSG_TIMEOUT && got(q) > 0 ? MSG_OK : rc;
}

/* Leaves the list as it was. */
static void give_up(quest *q) {
  while (got(q) > 0)
    msg_message_clear(&q->out->at[--q->out->n]);
  if (q->before == 0)
    msg_list_clear(q->out);
}

/* That nobody answered is an outcome, unless nobody could. */
static int why_unanswered(const msg_use *u, const msg_call *call, const msg_message *request,
                          msg_err *err) {
  msg_session *session = msg_call_looks(call);
  int rc = session->ops->unanswered ? MSG_STORE(u, session, unanswered, &u->actor, request, err)
                                    : MSG_OK;
  return rc == MSG_OK ? MSG_TIMEOUT : rc;
}

static int request_and_collect(msg_use *u, msg_call *call, const msg_message *request, msg_wait *w,
                               quest *q, msg_oid *id, msg_err *err) {
  msg_node *node = u->node;
  int rc = ask(u, call, request, q, err);
  if (rc != MSG_OK)
    return rc;
  msg_node_count(node, MSG_STAT_REQUESTS, 1);
  if (id)
    *id = q->id;
  rc = collect(w, q, err);
  msg_reserve_drop(node, &q->id);
  if (rc == MSG_OK)
    msg_look_handed(node, q->out, q->before, MSG_STAT_ANSWERS);
  else if (rc == MSG_TIMEOUT)
    msg_node_count(node, MSG_STAT_TIMEOUTS, 1);
  if (rc == MSG_TIMEOUT)
    rc = why_unanswered(u, call, request, err);
  if (rc != MSG_OK)
    give_up(q);
  return rc;
}

int msg_node_request(msg_node *node, msg_call *call, msg_message *request, int64_t timeout_ms,
                     size_t answers, msg_oid *id, msg_list *out, msg_err *err) {
  msg_use u;
  msg_wait w;
  quest q = {.wanted = answers, .before = out->n, .out = out};
  if (answers == 0)
    return msg_err_set(err, MSG_INVALID, "request: 0 answers wanted: give 1 or more");
  if (call->blind)
    return msg_wait_blind("request", request->topic, err);
  int rc = msg_use_begin(&u, node, err);
  if (rc != MSG_OK)
    return rc;
  rc = msg_wait_begin(&w, &u, call, "request", request->topic, timeout_ms, err);
  if (rc == MSG_OK) {
    msg_look_begin(&q.look, &u, call);
    msg_look_news(&q.look);
    rc = request_and_collect(&u, call, request, &w, &q, id, err);
    msg_look_end(&q.look);
    msg_wait_end(&w);
  }
  msg_use_end(&u);
  return rc;
}
