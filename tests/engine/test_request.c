/* test_request.c - requests: first answer, n answers, none, late ones, and who may take them. */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/node_int.h"
#include "support/cmocka_compat.h"
#include "support/rig.h"

static void make_request(peer *p, const char *topic, msg_message *m) {
  msg_value v = msg_value_text("question");
  msg_message_init(m);
  m->topic = msg_strdup(topic);
  assert_int_equal(msg_value_copy(&m->value, &v), MSG_OK);
  assert_int_equal(msg_node_fill(p->node, m, NULL, NULL), MSG_OK);
}

typedef struct asking {
  peer *p;
  const char *topic;
  int64_t timeout_ms;
  size_t answers;
  int rc;
  msg_err err;
  msg_oid id;
  msg_list list;
  msg_thread *thread;
} asking;

static void ask(void *arg) {
  asking *q = arg;
  msg_message m;
  make_request(q->p, q->topic, &m);
  q->rc = msg_node_request(q->p->node, &q->p->call, &m, q->timeout_ms, q->answers, &q->id, &q->list,
                           &q->err);
  msg_message_clear(&m);
}

static void start_asking(asking *q) {
  assert_int_equal(msg_thread_start(&q->thread, "ask", ask, q, NULL), MSG_OK);
}

static void answer_next(peer *p, const char *topic, const char *text) {
  msg_list list = MSG_LIST_INIT;
  msg_oid reply;
  msg_err err = MSG_ERR_INIT;
  msg_value v = msg_value_text(text);
  assert_int_equal(peer_await(p, topic, 10000, 1, &list), MSG_OK);
  if (msg_node_reply(p->node, &p->call, &list.at[0].id, &v, NULL, &reply, &err) != MSG_OK)
    fail_msg("%s", err.text);
  msg_list_clear(&list);
}

static void listen_to(peer *p, const char *topic) {
  assert_int_equal(msg_node_listen(p->node, &p->call, topic, NULL, NULL), MSG_OK);
}

static void the_first_answer_is_enough(void **state) {
  rig r;
  peer a, b;
  rig_open_pair(&r, RIG_KIND(state), &a, "asker", &b, "answerer");
  listen_to(&b, "ask");
  asking q = {.p = &a, .topic = "ask", .timeout_ms = 10000, .answers = 1};
  start_asking(&q);
  answer_next(&b, "ask", "42");
  msg_thread_join(q.thread);
  assert_int_equal(q.rc, MSG_OK);
  assert_int_equal(q.list.n, 1);
  assert_string_equal(q.list.at[0].value.p, "42");
  assert_int_equal(msg_oid_cmp(&q.list.at[0].in_answer_to, &q.id), 0);
  assert_int_equal(msg_node_stat(a.node, MSG_STAT_REQUESTS), 1);
  assert_int_equal(msg_node_stat(a.node, MSG_STAT_ANSWERS), 1);
  assert_int_equal(msg_node_stat(a.node, MSG_STAT_TIMEOUTS), 0);
  msg_list_clear(&q.list);
  rig_close(&r);
}

static void n_answers_are_collected(void **state) {
  enum { N = 3 };
  rig r;
  peer a, b[N];
  rig_open(&r, RIG_KIND(state));
  peer_open(&r, &a, "asker");
  for (int i = 0; i < N; i++) {
    peer_open(&r, &b[i], NULL);
    listen_to(&b[i], "ask");
  }
  asking q = {.p = &a, .topic = "ask", .timeout_ms = 10000, .answers = N};
  start_asking(&q);
  for (int i = 0; i < N; i++)
    answer_next(&b[i], "ask", "x");
  msg_thread_join(q.thread);
  assert_int_equal(q.rc, MSG_OK);
  assert_int_equal(q.list.n, N);
  msg_list_clear(&q.list);

  asking few = {
      .p = &a, .topic = "ask", .timeout_ms = 400, .answers = N}; /* fewer in time: what came */
  start_asking(&few);
  answer_next(&b[0], "ask", "y");
  msg_thread_join(few.thread);
  assert_int_equal(few.rc, MSG_OK);
  assert_int_equal(few.list.n, 1);
  msg_list_clear(&few.list);
  rig_close(&r);
}

static void no_answer_in_time_and_a_late_one(void **state) {
  rig r;
  peer a, b;
  msg_list late = MSG_LIST_INIT;
  rig_open_pair(&r, RIG_KIND(state), &a, "asker", &b, "answerer");
  listen_to(&b, "ask");
  asking q = {.p = &a, .topic = "ask", .timeout_ms = 100, .answers = 1};
  ask(&q);
  assert_int_equal(q.rc, MSG_TIMEOUT);
  assert_int_equal(q.list.n, 0);
  assert_false(msg_oid_is_zero(&q.id));
  assert_int_equal(msg_node_stat(a.node, MSG_STAT_TIMEOUTS), 1);
  answer_next(&b, "ask", "late");
  assert_int_equal(peer_await(&a, "ask", 1000, 1, &late), MSG_OK);
  assert_string_equal(late.at[0].value.p, "late");
  assert_int_equal(msg_oid_cmp(&late.at[0].in_answer_to, &q.id), 0);
  msg_list_clear(&late);
  rig_close(&r);
}

/* An await of the same node leaves the answer to the request, and gets it when the request has
 * given up. */
static void an_answer_belongs_to_its_request(void **state) {
  rig r;
  peer a, a2, b;
  rig_open_pair(&r, RIG_KIND(state), &a, "asker", &a2, "asker");
  peer_open(&r, &b, "answerer");
  listen_to(&b, "ask");
  rig_wait w = {.p = &a2, .topic = "ask", .timeout_ms = 20000};
  rig_wait_begin(&w);
  asking q = {.p = &a, .topic = "ask", .timeout_ms = 10000, .answers = 1};
  start_asking(&q);
  answer_next(&b, "ask", "for the request");
  msg_thread_join(q.thread);
  assert_int_equal(q.rc, MSG_OK);
  assert_int_equal(q.list.n, 1);
  rig_sleep(100);
  assert_false(atomic_load(&w.done));
  msg_list_clear(&q.list);

  asking tired = {.p = &a, .topic = "ask", .timeout_ms = 100, .answers = 1};
  ask(&tired);
  assert_int_equal(tired.rc, MSG_TIMEOUT);
  answer_next(&b, "ask", "late");
  rig_wait_expect(&w, "late");
  rig_close(&r);
}

/* A look that began before the request, and finds the answer. */
static void an_answer_under_a_look_is_its_requests(void **state) {
  rig r;
  peer a, a2, b;
  rig_open_pair(&r, RIG_KIND(state), &a, "asker", &a2, "asker");
  peer_open(&r, &b, "answerer");
  msg_oid request = msg_oid_new();
  msg_message answer;
  msg_message_init(&answer);
  answer.topic = msg_strdup("ask");
  answer.in_answer_to = request;
  assert_int_equal(msg_message_add_recipient(&answer, "asker"), MSG_OK);
  assert_int_equal(msg_node_fill(b.node, &answer, NULL, NULL), MSG_OK);

  fault_store_delay(r.store, FAULT_UNSEEN, 300);
  long looks = fault_store_calls(r.store, FAULT_UNSEEN);
  rig_wait w = {.p = &a2, .topic = "ask", .timeout_ms = 20000};
  rig_wait_start(&w);
  while (fault_store_calls(r.store, FAULT_UNSEEN) == looks)
    rig_sleep(1);
  assert_int_equal(msg_reserve_add(a.node, &request, NULL), MSG_OK);
  assert_int_equal(msg_node_send(b.node, &b.call, &answer, 1, NULL, NULL, NULL), MSG_OK);
  rig_sleep(600);
  assert_false(atomic_load(&w.done));
  fault_store_delay(r.store, FAULT_UNSEEN, 0);
  msg_reserve_drop(a.node, &request);
  rig_wait_join(&w);
  assert_int_equal(w.list.n, 1);
  assert_int_equal(msg_oid_cmp(&w.list.at[0].in_answer_to, &request), 0);
  msg_list_clear(&w.list);
  msg_message_clear(&answer);
  rig_close(&r);
}

static void several_at_once_do_not_mix(void **state) {
  enum { N = 4 };
  rig r;
  peer a[N], b;
  asking q[N];
  rig_open(&r, RIG_KIND(state));
  peer_open(&r, &b, "answerer");
  listen_to(&b, "ask");
  for (int i = 0; i < N; i++) {
    peer_open(&r, &a[i], "asker");
    q[i] = (asking){.p = &a[i], .topic = "ask", .timeout_ms = 10000, .answers = 1};
    start_asking(&q[i]);
  }
  for (int i = 0; i < N; i++)
    answer_next(&b, "ask", "x");
  for (int i = 0; i < N; i++) {
    msg_thread_join(q[i].thread);
    assert_int_equal(q[i].rc, MSG_OK);
    assert_int_equal(q[i].list.n, 1);
    assert_int_equal(msg_oid_cmp(&q[i].list.at[0].in_answer_to, &q[i].id), 0);
    msg_list_clear(&q[i].list);
    peer_close(&a[i]);
  }
  rig_close(&r);
}

static void refused_requests_send_nothing(void **state) {
  rig r;
  peer a;
  msg_message m;
  msg_oid id;
  msg_err err = MSG_ERR_INIT;
  msg_list list = MSG_LIST_INIT;
  rig_open(&r, RIG_KIND(state));
  peer_open(&r, &a, "asker");
  make_request(&a, "ask", &m);
  a.call.blind = true;
  assert_int_equal(msg_node_request(a.node, &a.call, &m, 100, 1, &id, &list, &err), MSG_MISUSE);
  assert_string_equal(err.text, "request on 'ask': inside this transaction nothing new can arrive: "
                                "COMMIT first, or collect into a TEMP table, then wait");
  a.call.blind = false;
  assert_int_equal(msg_node_request(a.node, &a.call, &m, 100, 0, &id, &list, &err), MSG_INVALID);
  assert_int_equal(msg_node_request(a.node, &a.call, &m, -1, 1, &id, &list, &err), MSG_INVALID);
  atomic_store(&a.interrupt, true);
  assert_int_equal(msg_node_request(a.node, &a.call, &m, 100, 1, &id, &list, &err),
                   MSG_INTERRUPTED);
  atomic_store(&a.interrupt, false);
  assert_int_equal(fault_store_calls(r.store, FAULT_PUT), 0);
  fault_store_fail(r.store, FAULT_PUT, MSG_IO, 0, 1);
  assert_int_equal(msg_node_request(a.node, &a.call, &m, 100, 1, &id, &list, &err), MSG_IO);
  assert_int_equal(msg_node_stat(a.node, MSG_STAT_REQUESTS), 0);
  msg_message_clear(&m);
  rig_close(&r);
}

static void an_interrupted_request_leaves_no_trace(void **state) {
  rig r;
  peer a, b;
  msg_list late = MSG_LIST_INIT;
  rig_open_pair(&r, RIG_KIND(state), &a, "asker", &b, "answerer");
  listen_to(&b, "ask");
  bool prompt = false; /* the best of some: a busy machine lets threads wait besides */
  for (int i = 0; i < 20 && !prompt; i++) {
    asking q = {.p = &a, .topic = "ask", .timeout_ms = 60000, .answers = 1};
    start_asking(&q);
    rig_until_waiters(&r, 1);
    int64_t at = msg_clock_mono_ms();
    atomic_store(&a.interrupt, true);
    msg_thread_join(q.thread);
    assert_int_equal(q.rc, MSG_INTERRUPTED);
    prompt = msg_clock_mono_ms() - at <= RIG_PROMPT_MS;
    atomic_store(&a.interrupt, false);
  }
  assert_true(prompt);
  answer_next(&b, "ask", "late");
  assert_int_equal(peer_await(&a, NULL, 1000, 1, &late), MSG_OK); /* it is free for an await */
  msg_list_clear(&late);
  rig_close(&r);
}

/* The host is inside BEGIN: what leaves and looks goes aside, only the mark is the host's. */
static void aside_carries_what_is_not_the_hosts(void **state) {
  rig r;
  peer a, aside, b;
  rig_open(&r, RIG_KIND(state));
  peer_open(&r, &a, "asker");
  peer_open(&r, &aside, "asker"); /* lends its session */
  peer_open(&r, &b, "answerer");
  listen_to(&b, "ask");
  a.call.aside = aside.session;
  assert_int_equal(peer_sql(&a, "BEGIN"), 0);
  asking q = {.p = &a, .topic = "ask", .timeout_ms = 10000, .answers = 1};
  start_asking(&q);
  answer_next(&b, "ask", "42"); /* the request has left though nobody committed */
  msg_thread_join(q.thread);
  assert_int_equal(q.rc, MSG_OK);
  assert_int_equal(q.list.n, 1);
  msg_list_clear(&q.list);
  assert_int_equal(peer_sql(&a, "ROLLBACK"), 0); /* the mark is undone: it can be awaited again */
  a.call.aside = NULL;
  assert_int_equal(peer_await(&a, NULL, 0, 1, &q.list), MSG_OK);
  assert_string_equal(q.list.at[0].value.p, "42");
  msg_list_clear(&q.list);
  rig_close(&r);
}

#define ON_THREADS(f) RIG_TEST(f, fake), RIG_TEST(f, push), RIG_TEST(f, no_watch), RIG_TEST(f, file)

int main(void) {
  const struct CMUnitTest tests[] = {
      ON_THREADS(the_first_answer_is_enough),
      ON_THREADS(n_answers_are_collected),
      ON_THREADS(no_answer_in_time_and_a_late_one),
      ON_THREADS(an_answer_belongs_to_its_request),
      ON_THREADS(an_answer_under_a_look_is_its_requests),
      ON_THREADS(several_at_once_do_not_mix),
      RIG_TEST(refused_requests_send_nothing, fake),
      RIG_TEST(refused_requests_send_nothing, file),
      ON_THREADS(an_interrupted_request_leaves_no_trace),
      RIG_TEST(aside_carries_what_is_not_the_hosts, file),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
