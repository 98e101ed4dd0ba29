/* What a process has on a MongoDB store beside sessions, and whom an arrival concerns. No
 * server. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "store/mongo/arrival.h"
#include "store/mongo/job.h"
#include "store/mongo/tend.h"
#include "support/cmocka_compat.h"

struct place {
  msg_mongo_store store;
  msg_mongo_session session;
  msg_mongo_queue queue, other;
};

static int setup(void **state) {
  static char hosts[] = "nowhere:27017", name[] = "msg", other[] = "other";
  struct place *p = msg_zalloc(sizeof *p);
  assert_non_null(p);
  p->store.base.ops = p->session.base.ops = &msg_mongo_ops;
  p->store.hosts = hosts;
  p->store.mtx = msg_mutex_new();
  p->store.tend = msg_mongo_tend_new();
  p->queue.name = name;
  p->queue.layout = msg_mongo_layout_of(NULL); /* the sessions of jobs find it */
  p->other.name = other;
  p->store.queues = &p->queue;
  p->session.store = &p->store;
  p->session.queue = &p->queue;
  assert_true(p->store.mtx && p->store.tend);
  *state = p;
  return 0;
}

static int teardown(void **state) {
  struct place *p = *state;
  msg_mongo_tend_free(p->store.tend);
  msg_mutex_free(p->store.mtx);
  msg_free(p);
  return 0;
}

static void the_earliest_deadline_counts(void **state) {
  struct place *p = *state;
  assert_true(msg_mongo_take_due(&p->store, &p->queue) == MSG_NEVER);
  msg_mongo_note_due(&p->store, &p->queue, 30);
  msg_mongo_note_due(&p->store, &p->queue, 20);
  msg_mongo_note_due(&p->store, &p->queue, 40);
  msg_mongo_note_due(&p->store, &p->other, 10);
  assert_true(msg_mongo_take_due(&p->store, &p->queue) == 20);
  assert_true(msg_mongo_take_due(&p->store, &p->queue) == MSG_NEVER);
  assert_true(msg_mongo_take_due(&p->store, &p->other) == 10);
}

static void announce(struct place *p, msg_mongo_queue *queue, const char *node, const char *host) {
  msg_participant row = {.node = (char *)node, .host = (char *)host};
  msg_mongo_session at = p->session;
  at.queue = queue;
  assert_int_equal(msg_mongo_own_put(&at, &row, NULL), MSG_OK);
}

static void own_nodes_are_kept_by_queue(void **state) {
  struct place *p = *state;
  msg_mongo_own *own;
  size_t n;
  announce(p, &p->queue, "a", "h1");
  announce(p, &p->queue, "a", "h2"); /* refreshed */
  announce(p, &p->queue, "b", "h1");
  announce(p, &p->other, "a", "h1");
  msg_mongo_own_drop(&p->store, &p->queue, "b");
  msg_mongo_own_drop(&p->store, &p->queue, "unknown");
  assert_int_equal(msg_mongo_own_list(&p->store, &p->queue, &own, &n, NULL), MSG_OK);
  assert_int_equal(n, 1);
  assert_string_equal(own[0].row.node, "a");
  assert_string_equal(own[0].row.host, "h2");
  msg_mongo_own_free(own, n);
}

static void a_warning_is_told_once(void **state) {
  struct place *p = *state;
  struct msg_mongo_warning *w = &p->store.tend->layout;
  char text[256];
  assert_false(msg_mongo_warning(&p->session.base, text, sizeof text));
  msg_mongo_warn(&p->store, w, "one");
  assert_true(msg_mongo_warning(&p->session.base, text, sizeof text));
  assert_string_equal(text, "one");
  msg_mongo_warn(&p->store, w, "one");
  assert_false(msg_mongo_warning(&p->session.base, text, sizeof text));
  msg_mongo_warn(&p->store, &p->store.tend->polling, "two");
  msg_mongo_warn(&p->store, w, "three");
  assert_true(msg_mongo_warning(&p->session.base, text, sizeof text));
  assert_true(msg_mongo_warning(&p->session.base, text, sizeof text));
  msg_mongo_warn(&p->store, w, "");
  assert_false(msg_mongo_warning(&p->session.base, text, sizeof text));
}

/* --- arrivals ------------------------------------------------------------------------------ */

static void listen_to(struct place *p, const char *node, const char *pattern) {
  msg_actor actor = {.node = node};
  assert_int_equal(msg_mongo_listen_to(&p->session.base, &actor, pattern, true, NULL), MSG_OK);
}

/* Takes the document. */
static bool concerns(struct place *p, bson_t *doc) {
  bson_iter_t it;
  msg_mongo_arrival a;
  assert_true(bson_iter_init(&it, doc));
  msg_mongo_arrival_read(&it, &a);
  bool mine = msg_mongo_arrival_concerns(&p->session, &a);
  bson_destroy(doc);
  return mine;
}

#define BROADCAST(topic, from) BCON_NEW("topic", topic, "sender", from, "recipients", BCON_NULL)
#define DIRECT(to)                                                                                 \
  BCON_NEW("topic", "t", "sender", "x", "recipients", "[", "somebody", BCON_UTF8(to), "]")

static void broadcasts_concern_who_listens(void **state) {
  struct place *p = *state;
  assert_true(concerns(p, BROADCAST("t", "x"))); /* nobody is known: who knows */
  listen_to(p, "a", "orders.*");
  assert_true(concerns(p, BROADCAST("orders.new", "x")));
  assert_true(concerns(p, BCON_NEW("name", "orders.new", "sender", "x"))); /* as version 5 wrote */
  assert_false(concerns(p, BROADCAST("t", "x")));
  assert_false(concerns(p, BROADCAST("orders.new", "a"))); /* never one's own */
  listen_to(p, "b", "/new$/");
  assert_true(concerns(p, BROADCAST("orders.new", "a")));
}

static void directs_concern_their_recipients(void **state) {
  struct place *p = *state;
  announce(p, &p->queue, "a", "h");
  announce(p, &p->other, "b", "h");
  assert_true(concerns(p, DIRECT("a")));
  assert_false(concerns(p, DIRECT("b")));
  listen_to(p, "c", "elsewhere");
  assert_true(concerns(p, DIRECT("c")));
}

static void exclusive_ones_concern_whoever_claims(void **state) {
  struct place *p = *state;
  announce(p, &p->queue, "a", "h");
  assert_true(concerns(p, BCON_NEW("topic", "t", "exclusive", BCON_BOOL(true))));
  assert_false(concerns(p, BCON_NEW("topic", "t", "exclusive", BCON_BOOL(false))));
}

static void an_arrival_is_read_whoever_wrote_it(void **state) {
  msg_mongo_arrival a;
  bson_iter_t it;
  (void)state;
  bson_t *doc =
      BCON_NEW("_id", "text", "topic", BCON_INT32(7), "sender", BCON_NULL, "recipients", "me",
               "in_answer_to", BCON_NULL, "sq", "{", "until", BCON_DATE_TIME(99), "}");
  assert_true(bson_iter_init(&it, doc));
  msg_mongo_arrival_read(&it, &a);
  assert_false(a.has_id || a.addressed || a.answer || a.exclusive);
  assert_null(a.topic);
  assert_true(a.until_ms == 99);
  bson_destroy(doc);
}

/* --- jobs ---------------------------------------------------------------------------------- */

static atomic_int gate; /* 1: the work may go on */

static int slow(msg_session *s, const msg_actor *actor, msg_unit *unit, msg_err *err) {
  (void)s;
  while (!atomic_load(&gate))
    msg_clock_sleep_ms(5);
  assert_string_equal(actor->node, "me");
  assert_int_equal(unit->put_count, 1);
  assert_string_equal(unit->puts[0].message->topic, "t");
  assert_int_equal(unit->settle_count, 1);
  assert_string_equal(unit->settles[0].items[0].token, "aaaaaaaaaaaaaaaaaaaaaaaa");
  assert_string_equal(unit->settles[0].how.reason, "why");
  return msg_err_set(err, MSG_BACKEND, "refused");
}

/* The unit is gone when it returns, as after a ROLLBACK. */
static int run_slow(struct place *p, int64_t within_ms, bool *reached, msg_err *err) {
  msg_settings settings;
  msg_message m;
  msg_settings_init(&settings);
  msg_message_init(&m);
  m.topic = msg_strdup("t");
  char token[] = "aaaaaaaaaaaaaaaaaaaaaaaa", why[] = "why";
  msg_actor actor = {"me", "process", &settings};
  msg_put put = {.message = &m};
  msg_settle_item item = {.token = token};
  struct msg_unit_settle settle = {{.verb = MSG_SETTLE_REJECT, .reason = why}, &item, 1};
  msg_unit unit = {.settles = &settle, .settle_count = 1, .puts = &put, .put_count = 1};
  int rc = msg_mongo_job_run(&p->session, &actor, &unit, slow, "commit", within_ms, err);
  *reached = unit.reached;
  memset(token, 'x', sizeof token - 1);
  memset(why, 'x', sizeof why - 1);
  msg_message_clear(&m);
  return rc;
}

static void a_job_in_time_is_like_a_call(void **state) {
  msg_err err = MSG_ERR_INIT;
  bool reached;
  atomic_store(&gate, 1);
  assert_int_equal(run_slow(*state, 60000, &reached, &err), MSG_BACKEND);
  assert_string_equal(err.text, "refused");
  assert_false(reached);
  assert_true(msg_mongo_jobs_reap(&((struct place *)*state)->store));
}

static void a_job_that_hangs_is_left_behind(void **state) {
  struct place *p = *state;
  msg_err err = MSG_ERR_INIT;
  bool reached;
  atomic_store(&gate, 0);
  assert_int_equal(run_slow(p, 30, &reached, &err), MSG_UNAVAILABLE);
  assert_non_null(strstr(err.text, "write_timeout_ms, 30 ms (MongoDB at nowhere:27017)"));
  assert_true(reached);
  assert_false(msg_mongo_jobs_reap(&p->store));
  atomic_store(&gate, 1);
  while (!msg_mongo_jobs_reap(&p->store))
    msg_clock_sleep_ms(5);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

static int glob(const char *pattern, const char *text) {
  size_t n = strcspn(pattern, "*");
  return strncmp(pattern, text, n);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(the_earliest_deadline_counts),
      TEST(own_nodes_are_kept_by_queue),
      TEST(a_warning_is_told_once),
      TEST(broadcasts_concern_who_listens),
      TEST(directs_concern_their_recipients),
      TEST(exclusive_ones_concern_whoever_claims),
      TEST(an_arrival_is_read_whoever_wrote_it),
      TEST(a_job_in_time_is_like_a_call),
      TEST(a_job_that_hangs_is_left_behind),
  };
  msg_pattern_set_glob(glob);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
