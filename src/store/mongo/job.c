#include "store/mongo/job.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/process.h"
#include "store/mongo/regret.h"
#include "store/mongo/tend.h"

/* --- copies -------------------------------------------------------------------------------- */

static void unit_clear(msg_unit *u) {
  for (size_t i = 0; i < u->put_count; i++)
    msg_message_clear((msg_message *)u->puts[i].message);
  if (u->puts)
    msg_free((msg_message *)u->puts[0].message); /* they are one array */
  for (size_t i = 0; i < u->settle_count; i++) {
    struct msg_unit_settle *s = &u->settles[i];
    if (s->items)
      msg_free((char *)s->items[0].token); /* and so are the tokens */
    msg_free((char *)s->how.reason);
    msg_free(s->items);
  }
  msg_free(u->settles);
  msg_free(u->puts);
  *u = (msg_unit){0};
}

static bool copy_puts(const msg_unit *from, msg_unit *to) {
  if (from->put_count == 0)
    return true;
  msg_message *messages = msg_alloc(from->put_count * sizeof *messages);
  to->puts = msg_zalloc(from->put_count * sizeof *to->puts);
  if (!messages || !to->puts) {
    msg_free(messages);
    msg_free(to->puts);
    to->puts = NULL;
    return false;
  }
  to->puts[0].message = messages;
  for (size_t i = 0; i < from->put_count; i++) {
    to->puts[i] = from->puts[i];
    to->puts[i].message = &messages[i];
    to->put_count++;
    if (msg_message_copy(&messages[i], from->puts[i].message) != MSG_OK)
      return false;
  }
  return true;
}

static bool copy_settle(const struct msg_unit_settle *from, struct msg_unit_settle *to) {
  enum { TOKEN = MSG_OID_HEX + 1 };
  char *tokens = msg_alloc(from->n * TOKEN + 1);
  *to = (struct msg_unit_settle){.how = from->how, .n = from->n};
  to->how.reason = msg_strdup(from->how.reason);
  to->items = msg_alloc((from->n + 1) * sizeof *to->items);
  if (to->items)
    to->items[0].token = tokens;
  if (!tokens || !to->items || (from->how.reason && !to->how.reason)) {
    if (!to->items)
      msg_free(tokens);
    return false;
  }
  for (size_t i = 0; i < from->n; i++) {
    memcpy(tokens + i * TOKEN, from->items[i].token, TOKEN);
    to->items[i] = (msg_settle_item){.id = from->items[i].id, .token = tokens + i * TOKEN};
  }
  return true;
}

static bool copy_settles(const msg_unit *from, msg_unit *to) {
  to->settles = msg_zalloc((from->settle_count + 1) * sizeof *to->settles);
  bool ok = to->settles != NULL;
  for (size_t i = 0; ok && i < from->settle_count; i++) {
    to->settle_count++;
    ok = copy_settle(&from->settles[i], &to->settles[i]);
  }
  return ok;
}

/* --- life ---------------------------------------------------------------------------------- */

static void job_free(msg_mongo_job *j) {
  if (j->s)
    j->s->base.ops->session_close(&j->s->base);
  unit_clear(&j->unit);
  msg_settings_clear(&j->settings);
  msg_free(j->node);
  msg_cond_free(j->ended);
  msg_mutex_free(j->mtx);
  msg_free(j);
}

static msg_mongo_job *job_new(msg_mongo_session *s, const msg_actor *actor, const msg_unit *unit,
                              msg_err *err) {
  msg_mongo_job *j = msg_zalloc(sizeof *j);
  msg_session *session = NULL;
  if (!j)
    return NULL;
  msg_settings_init(&j->settings);
  j->node = msg_strdup(actor->node);
  j->mtx = msg_mutex_new();
  j->ended = msg_cond_new();
  bool ok = j->node && j->mtx && j->ended && copy_puts(unit, &j->unit) &&
            copy_settles(unit, &j->unit) &&
            msg_settings_copy(&j->settings, actor->settings) == MSG_OK &&
            s->base.ops->session_open(&s->store->base, NULL, s->queue->name, &j->settings, &session,
                                      err) == MSG_OK;
  j->unit.reached = unit->reached;
  if (!ok) {
    job_free(j);
    return NULL;
  }
  j->s = (msg_mongo_session *)session;
  return j;
}

/* --- running ------------------------------------------------------------------------------- */

/* What was done for nobody is undone. */
static void run(void *arg) {
  msg_mongo_job *j = arg;
  msg_err err = MSG_ERR_INIT;
  msg_actor actor = {j->node, msg_process_self(), &j->settings};
  int rc = j->work(&j->s->base, &actor, &j->unit, &err);
  msg_mutex_lock(j->mtx);
  j->rc = rc;
  j->err = err;
  j->reached = j->unit.reached;
  bool left = j->left;
  j->done = !left;
  msg_cond_broadcast(j->ended);
  msg_mutex_unlock(j->mtx);
  if (!left)
    return;
  if (rc == MSG_OK || j->reached)
    msg_mongo_undo_now(&j->s->base, &actor, &j->unit, NULL);
  msg_mutex_lock(j->mtx);
  j->done = true;
  msg_mutex_unlock(j->mtx);
}

/* True: it has ended. */
static bool await_end(msg_mongo_job *j, int64_t within_ms) {
  int64_t until_ms = msg_clock_mono_ms() + within_ms;
  msg_mutex_lock(j->mtx);
  while (!j->done && msg_cond_wait_until(j->ended, j->mtx, until_ms))
    ;
  bool done = j->done;
  j->left = !done;
  msg_mutex_unlock(j->mtx);
  return done;
}

static void leave_behind(msg_mongo_store *store, msg_mongo_job *j) {
  msg_mutex_lock(store->tend->mtx);
  j->next = store->tend->jobs;
  store->tend->jobs = j;
  msg_mutex_unlock(store->tend->mtx);
}

int msg_mongo_job_run(msg_mongo_session *s, const msg_actor *actor, msg_unit *unit,
                      int (*work)(msg_session *, const msg_actor *, msg_unit *, msg_err *),
                      const char *what, int64_t within_ms, msg_err *err) {
  msg_mongo_jobs_reap(s->store);
  msg_mongo_job *j = job_new(s, actor, unit, err);
  if (!j)
    return msg_err_nomem(err);
  j->work = work;
  int rc = msg_thread_start(&j->thread, "msg-commit", run, j, err);
  if (rc != MSG_OK) {
    job_free(j);
    return rc;
  }
  if (await_end(j, within_ms)) {
    msg_thread_join(j->thread);
    rc = j->rc;
    unit->reached = j->reached;
    if (err && rc != MSG_OK)
      *err = j->err;
    job_free(j);
    return rc;
  }
  leave_behind(s->store, j);
  unit->reached = true;
  return msg_err_set(err, MSG_UNAVAILABLE,
                     "%s: no answer within write_timeout_ms, %lld ms (MongoDB at %s)", what,
                     (long long)within_ms, s->store->hosts);
}

/* --- those left behind --------------------------------------------------------------------- */

static bool is_done(msg_mongo_job *j) {
  msg_mutex_lock(j->mtx);
  bool done = j->done;
  msg_mutex_unlock(j->mtx);
  return done;
}

bool msg_mongo_jobs_reap(msg_mongo_store *store) {
  msg_mongo_tend *t = store->tend;
  msg_mongo_job *ended = NULL, *j;
  msg_mutex_lock(t->mtx);
  for (msg_mongo_job **at = &t->jobs; (j = *at);) {
    if (!is_done(j)) {
      at = &j->next;
      continue;
    }
    *at = j->next;
    j->next = ended;
    ended = j;
  }
  bool none = t->jobs == NULL;
  msg_mutex_unlock(t->mtx);
  while ((j = ended)) {
    ended = j->next;
    msg_thread_join(j->thread);
    job_free(j);
  }
  return none;
}
