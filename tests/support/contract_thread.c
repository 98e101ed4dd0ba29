/* contract_thread.c - the contract under threads, each with a session of its own. */
#include <stdatomic.h>
#include <string.h>

#include "support/contract.h"

enum { THREADS = 4, MESSAGES = 400 };

struct worker {
  contract *k;
  msg_session *s;
  const char *node;
  msg_thread *thread;
  int id;
  int failed; /* line; cmocka's asserts are the main thread's */
  char text[640];
  int got, order_broken, last[THREADS];
  int *owners;      /* by message: how often it was handed out */
  atomic_int *held; /* by group: claims held now */
};

static void fail_at(struct worker *w, int line, int rc, const msg_err *err) {
  if (!w->failed)
    snprintf(w->text, sizeof w->text, "%s: %s", msg_rc_name(rc), err->text);
  w->failed = w->failed ? w->failed : line;
}
#define MUST(call, w, err)                                                                         \
  do {                                                                                             \
    int rc_ = (call);                                                                              \
    if (rc_ != MSG_OK) {                                                                           \
      fail_at(w, __LINE__, rc_, err);                                                              \
      return;                                                                                      \
    }                                                                                              \
  } while (0)

static void run_all(contract *k, struct worker *w, void (*body)(void *)) {
  for (int i = 0; i < THREADS; i++) {
    w[i].k = k;
    w[i].id = i;
    w[i].s = contract_session(k, "msg");
  }
  for (int i = 0; i < THREADS; i++)
    OK(msg_thread_start(&w[i].thread, "worker", body, &w[i], &k->err));
  for (int i = 0; i < THREADS; i++)
    msg_thread_join(w[i].thread);
  for (int i = 0; i < THREADS; i++) {
    if (w[i].failed)
      print_error("thread %d, line %d: %s\n", i, w[i].failed, w[i].text);
    assert_int_equal(w[i].failed, 0);
  }
}

static int number(const msg_message *m) {
  return m->value.type == MSG_TEXT ? atoi(m->value.p) : -1;
}

static void put_numbered(contract *k, int n, bool exclusive, int groups) {
  char text[16], group[16];
  for (int i = 0; i < n; i++) {
    snprintf(text, sizeof text, "%d", i);
    snprintf(group, sizeof group, "%d", groups ? i % groups : 0);
    PUT(.topic = "t", .text = text, .exclusive = exclusive, .group = groups ? group : NULL);
  }
}

/* ---- put ---- */

static void putter(void *arg) {
  struct worker *w = arg;
  msg_err err = MSG_ERR_INIT;
  msg_actor actor = contract_actor(w->k, "sender");
  char text[16];
  for (int i = 0; i < MESSAGES / THREADS; i++) {
    msg_message m;
    snprintf(text, sizeof text, "%d", w->id * 1000 + i);
    contract_message(&(contract_spec){.topic = "t", .text = text}, &m);
    msg_put put = {.message = &m};
    int rc = w->s->ops->put(w->s, &actor, &put, 1, &err);
    msg_message_clear(&m);
    MUST(rc, w, &err);
  }
}

static void puts_keep_each_senders_order(void **state) {
  contract *k = *state;
  struct worker w[THREADS] = {{0}};
  msg_list list = MSG_LIST_INIT;
  int last[THREADS];
  contract_needs(k, MSG_CAP_OWN);
  contract_listen(k, "a", "t", false);
  run_all(k, w, putter);
  contract_unseen(k, "a", "t", MESSAGES + 1, &list);
  assert_int_equal(list.n, MESSAGES);
  memset(last, -1, sizeof last);
  for (size_t i = 0; i < list.n; i++) {
    int n = number(&list.at[i]);
    assert_true(last[n / 1000] < n % 1000);
    last[n / 1000] = n % 1000;
  }
  msg_list_clear(&list);
}

static void key_putter(void *arg) {
  struct worker *w = arg;
  msg_err err = MSG_ERR_INIT;
  msg_actor actor = contract_actor(w->k, "sender");
  for (int i = 0; i < 100; i++) {
    char key[16];
    msg_message m;
    snprintf(key, sizeof key, "k%d", i);
    contract_message(&(contract_spec){.topic = "t", .key = key}, &m);
    msg_put put = {.message = &m, .key_until_ms = msg_clock_now_ms() + 100000};
    int rc = w->s->ops->put(w->s, &actor, &put, 1, &err);
    msg_message_clear(&m);
    MUST(rc, w, &err);
    w->got += !put.existed;
  }
}

static void one_message_a_key(void **state) {
  contract *k = *state;
  struct worker w[THREADS] = {{0}};
  int added = 0;
  contract_needs(k, MSG_CAP_OWN);
  run_all(k, w, key_putter);
  for (int i = 0; i < THREADS; i++)
    added += w[i].got;
  assert_int_equal(added, 100);
  assert_int_equal(contract_count(k), 100);
}

/* ---- unseen, seen ---- */

static void awaiter(void *arg) {
  struct worker *w = arg;
  msg_err err = MSG_ERR_INIT;
  msg_actor actor = contract_actor(w->k, w->node);
  msg_unseen u = {.max = 5};
  for (int idle = 0; idle < 3;) {
    msg_list list = MSG_LIST_INIT;
    bool won[5] = {false};
    MUST(w->s->ops->unseen(w->s, &actor, &u, &list, &err), w, &err);
    int rc = w->s->ops->seen(w->s, &actor, &list, won, &err);
    idle = list.n ? 0 : idle + 1;
    for (size_t i = 0; rc == MSG_OK && i < list.n; i++)
      if (won[i])
        w->owners[number(&list.at[i])]++;
    msg_list_clear(&list);
    MUST(rc, w, &err);
  }
}

static void a_node_of_many_threads_sees_each_once(void **state) {
  contract *k = *state;
  struct worker w[THREADS] = {{0}};
  static int owners[THREADS][MESSAGES];
  memset(owners, 0, sizeof owners);
  contract_needs(k, MSG_CAP_OWN);
  contract_listen(k, "a", "*", false);
  put_numbered(k, MESSAGES, false, 0);
  for (int i = 0; i < THREADS; i++) {
    w[i].node = "a";
    w[i].owners = owners[i];
  }
  run_all(k, w, awaiter);
  for (int i = 0; i < MESSAGES; i++)
    assert_int_equal(owners[0][i] + owners[1][i] + owners[2][i] + owners[3][i], 1);
}

static void every_node_of_many_sees_each_once(void **state) {
  contract *k = *state;
  struct worker w[THREADS] = {{0}};
  static const char *const nodes[] = {"a", "b", "c", "d"};
  static int owners[THREADS][MESSAGES];
  memset(owners, 0, sizeof owners);
  contract_needs(k, MSG_CAP_OWN);
  for (int i = 0; i < THREADS; i++) {
    contract_listen(k, nodes[i], "t", false);
    w[i].node = nodes[i];
    w[i].owners = owners[i];
  }
  put_numbered(k, MESSAGES, false, 0);
  run_all(k, w, awaiter);
  for (int i = 0; i < MESSAGES; i++)
    for (int n = 0; n < THREADS; n++)
      assert_int_equal(owners[n][i], 1);
}

/* ---- claim, settle ---- */

static void claimer(void *arg) {
  struct worker *w = arg;
  msg_err err = MSG_ERR_INIT;
  msg_actor actor = contract_actor(w->k, w->node);
  msg_pattern *p = NULL;
  MUST(msg_pattern_new("t", &p, &err), w, &err);
  msg_claim claim = {.pattern = p, .count = 3, .lease_ms = 600000};
  int last = -1;
  for (int idle = 0; idle < 3 && !w->failed;) {
    msg_list list = MSG_LIST_INIT;
    int rc = w->s->ops->claim(w->s, &actor, &claim, &list, &err);
    if (rc != MSG_OK)
      fail_at(w, __LINE__, rc, &err);
    idle = list.n ? 0 : idle + 1;
    for (size_t i = 0; i < list.n && !w->failed; i++) {
      int n = number(&list.at[i]);
      w->owners[n]++;
      w->got++;
      w->order_broken += n < last;
      last = n;
      if (w->held)
        w->order_broken += atomic_fetch_add(&w->held[atoi(list.at[i].group)], 1) != 0;
    }
    for (size_t i = 0; i < list.n && !w->failed; i++) {
      msg_settle ack = {.verb = MSG_SETTLE_ACK};
      msg_settle_item item = {.id = list.at[i].id, .token = list.at[i].token};
      if (w->held)
        atomic_fetch_sub(&w->held[atoi(list.at[i].group)], 1);
      rc = w->s->ops->settle(w->s, &actor, &ack, &item, 1, &err);
      if (rc != MSG_OK || !item.done)
        fail_at(w, __LINE__, rc, &err);
    }
    msg_list_clear(&list);
  }
  msg_pattern_free(p);
}

static void claims_have_one_winner(void **state) {
  contract *k = *state;
  struct worker w[THREADS] = {{0}};
  static const char *const nodes[] = {"a", "a", "b", "c"};
  static int owners[THREADS][MESSAGES];
  memset(owners, 0, sizeof owners);
  contract_needs(k, MSG_CAP_OWN);
  put_numbered(k, MESSAGES, true, 0);
  for (int i = 0; i < THREADS; i++) {
    w[i].node = nodes[i];
    w[i].owners = owners[i];
  }
  run_all(k, w, claimer);
  for (int i = 0; i < MESSAGES; i++)
    assert_int_equal(owners[0][i] + owners[1][i] + owners[2][i] + owners[3][i], 1);
  for (int i = 0; i < THREADS; i++)
    assert_int_equal(w[i].order_broken, 0);
  assert_int_equal(contract_count(k), 0);
}

static void groups_go_one_by_one(void **state) {
  contract *k = *state;
  struct worker w[THREADS] = {{0}};
  static int owners[THREADS][MESSAGES];
  atomic_int held[5];
  memset(owners, 0, sizeof owners);
  contract_needs(k, MSG_CAP_OWN);
  for (int i = 0; i < 5; i++)
    atomic_init(&held[i], 0);
  put_numbered(k, MESSAGES, true, 5);
  for (int i = 0; i < THREADS; i++) {
    w[i].node = "a";
    w[i].owners = owners[i];
    w[i].held = held;
  }
  run_all(k, w, claimer);
  int got = 0;
  for (int i = 0; i < THREADS; i++)
    got += w[i].got;
  for (int i = 0; i < MESSAGES; i++)
    assert_true(owners[0][i] + owners[1][i] + owners[2][i] + owners[3][i] <= 1);
  /* a thread may stop while another holds the heads: the rest is still there, in order */
  msg_list rest = MSG_LIST_INIT;
  int last[5] = {-1, -1, -1, -1, -1};
  for (;;) {
    size_t before = rest.n;
    contract_claim(k, k->s, "a", "t", 9, 1000, &rest);
    if (rest.n == before)
      break;
    for (size_t i = before; i < rest.n; i++) {
      int n = number(&rest.at[i]);
      assert_true(n > last[n % 5]);
      last[n % 5] = n;
      assert_true(contract_settle(k, "a", MSG_SETTLE_ACK, &rest.at[i].id, NULL, 0));
    }
  }
  assert_int_equal(got + (int)rest.n, MESSAGES);
  msg_list_clear(&rest);
}

/* ---- everything at once, and finds meanwhile ---- */

static void mixer(void *arg) {
  struct worker *w = arg;
  msg_err err = MSG_ERR_INIT;
  for (int i = 0; i < 60 && !w->failed; i++) {
    msg_filter f;
    msg_find *find = NULL;
    msg_message m;
    putter(w);
    msg_filter_init(&f);
    f.ordered = true;
    int rc = w->s->ops->find(w->s, &f, &find, &err);
    for (int n = 0; rc == MSG_OK && n < 10; n++)
      if ((rc = w->s->ops->find_next(find, &m, &err)) == MSG_OK)
        msg_message_clear(&m);
    if (find)
      w->s->ops->find_close(find);
    msg_filter_clear(&f);
    if (rc != MSG_OK && rc != MSG_NOTFOUND)
      fail_at(w, __LINE__, rc, &err);
    i += 19;
  }
}

static void finds_go_beside_writes(void **state) {
  contract *k = *state;
  struct worker w[THREADS] = {{0}};
  contract_needs(k, MSG_CAP_OWN);
  run_all(k, w, mixer);
  assert_int_equal(contract_count(k), 3 * MESSAGES);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(puts_keep_each_senders_order),
    cmocka_unit_test(one_message_a_key),
    cmocka_unit_test(a_node_of_many_threads_sees_each_once),
    cmocka_unit_test(every_node_of_many_sees_each_once),
    cmocka_unit_test(claims_have_one_winner),
    cmocka_unit_test(groups_go_one_by_one),
    cmocka_unit_test(finds_go_beside_writes),
};
const contract_group contract_threads = {"threads", tests, sizeof tests / sizeof *tests};
