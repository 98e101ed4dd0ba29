/* test_oom.c - every public function with each of its allocations failing in turn: a clean
 * MSG_NOMEM or success, no leak, and the same call works afterwards. */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "support/cmocka_compat.h"
#include "support/fail_alloc.h"
#include "support/fake_store.h"
#include "support/rig.h"

typedef struct scene {
  rig r;
  peer a, b;     /* b listens to "t" and has a broadcast and an exclusive message to take */
  msg_oid id;    /* of the broadcast */
  msg_list list; /* what a step appended */
} scene;

static void set_up(scene *s, enum rig_kind kind) {
  *s = (scene){0};
  rig_open(&s->r, kind);
  peer_open(&s->r, &s->a, "a");
  peer_open(&s->r, &s->b, "b");
  assert_int_equal(msg_node_listen(s->b.node, &s->b.call, "t", NULL, NULL), MSG_OK);
  s->id = peer_send(&s->a, "t", "broadcast");
  peer_enqueue(&s->a, "t", "exclusive");
}

static void tear_down(scene *s) {
  msg_list_clear(&s->list);
  peer_close(&s->a);
  peer_close(&s->b);
  rig_close(&s->r);
}

/* --- steps --------------------------------------------------------------------------------- */

static int open_node(scene *s, const char *id, msg_err *err) {
  msg_settings set;
  msg_node *node = NULL;
  msg_settings_init(&set);
  set.sender_id = (char *)id; /* borrowed: not cleared with the rest */
  int rc = msg_node_open(s->r.store, &set, &node, err);
  set.sender_id = NULL;
  msg_settings_clear(&set);
  msg_node_close(node);
  return rc;
}

static int open_given(scene *s, msg_err *err) {
  return open_node(s, "new", err);
}

static int open_automatic(scene *s, msg_err *err) {
  return open_node(s, NULL, err);
}

static int registry_add(scene *s, msg_err *err) {
  (void)s;
  msg_store *inner = fake_store_new(0), *store = NULL;
  if (!inner)
    return msg_err_nomem(err);
  int rc = msg_registry_add("oom", inner, &store, err);
  if (rc == MSG_OK)
    msg_registry_unref(store);
  return rc;
}

static int settings(scene *s, msg_err *err) {
  msg_settings set;
  int rc = msg_node_settings(s->b.node, &set, err);
  if (rc == MSG_OK)
    msg_settings_clear(&set);
  return rc;
}

static int configure(scene *s, msg_err *err) {
  msg_value v = msg_value_int(4321);
  return msg_node_configure(s->b.node, "lease_ms", &v, false, err);
}

static int announce(scene *s, msg_err *err) {
  return msg_node_announce(s->b.node, &s->b.call, err);
}

static int withdraw(scene *s, msg_err *err) {
  return msg_node_withdraw(s->b.node, &s->b.call, err);
}

static int build(msg_message *m, msg_err *err) {
  msg_message_init(m);
  m->topic = msg_strdup("t");
  return m->topic ? MSG_OK : msg_err_nomem(err);
}

static int send(scene *s, msg_err *err) {
  enum { N = 12 };
  msg_message m[N];
  int rc = MSG_OK, n = 0;
  for (; n < N && rc == MSG_OK; n++) {
    rc = build(&m[n], err);
    if (rc == MSG_OK)
      rc = msg_node_fill(s->a.node, &m[n], NULL, err);
  }
  if (rc == MSG_OK)
    rc = msg_node_send(s->a.node, &s->a.call, m, N, NULL, NULL, err);
  while (n > 0)
    msg_message_clear(&m[--n]);
  return rc;
}

static int request(scene *s, msg_err *err) {
  msg_message m;
  msg_oid id;
  int rc = build(&m, err);
  if (rc == MSG_OK)
    rc = msg_node_fill(s->a.node, &m, NULL, err);
  if (rc == MSG_OK)
    rc = msg_node_request(s->a.node, &s->a.call, &m, 0, 2, &id, &s->list, err);
  msg_message_clear(&m);
  return rc == MSG_TIMEOUT ? MSG_OK : rc;
}

static int reply(scene *s, msg_err *err) {
  msg_value v = msg_value_text("answer");
  msg_options o;
  msg_oid out;
  msg_options_init(&o);
  o.m.msg = (char *)"text";
  int rc = msg_node_reply(s->b.node, &s->b.call, &s->id, &v, &o, &out, err);
  o.m.msg = NULL;
  msg_options_clear(&o);
  return rc;
}

/* From the memory of what was handed out. */
static int await_and_reply(scene *s, msg_err *err) {
  msg_value v = msg_value_text("answer");
  msg_oid out;
  int rc = msg_node_await(s->b.node, &s->b.call, "t", 0, 1, &s->list, err);
  if (rc != MSG_OK)
    return rc;
  assert_int_equal(s->list.n, 1);
  rc = msg_node_reply(s->b.node, &s->b.call, &s->list.at[0].id, &v, NULL, &out, err);
  if (rc != MSG_NOMEM)
    return rc;
  fail_alloc_disarm(); /* what was awaited is not handed out again */
  return msg_node_reply(s->b.node, &s->b.call, &s->list.at[0].id, &v, NULL, &out, err);
}

static int listen_new(scene *s, msg_err *err) {
  return msg_node_listen(s->b.node, &s->b.call, "/^u/", NULL, err);
}

static int unlisten(scene *s, msg_err *err) {
  int rc = msg_node_unlisten(s->b.node, &s->b.call, "t", err);
  return rc == MSG_NOTFOUND ? MSG_OK : rc;
}

static int await_all(scene *s, msg_err *err) {
  int rc = msg_node_await(s->b.node, &s->b.call, NULL, 0, 5, &s->list, err);
  assert_int_equal(s->list.n, rc == MSG_OK);
  return rc;
}

static int await_new_pattern(scene *s, msg_err *err) {
  int rc = msg_node_await(s->b.node, &s->b.call, "t*", 0, 5, &s->list, err);
  assert_int_equal(s->list.n, rc == MSG_OK);
  return rc;
}

/* The caller's list holds something already. */
static int await_appends(scene *s, msg_err *err) {
  msg_message *old = s->list.n == 0 ? msg_list_add(&s->list) : &s->list.at[0];
  if (!old)
    return msg_err_nomem(err);
  int rc = msg_node_await(s->b.node, &s->b.call, "t", 0, 5, &s->list, err);
  assert_int_equal(s->list.n, rc == MSG_OK ? 2 : 1);
  return rc;
}

static int await_sleeps(scene *s, msg_err *err) {
  int rc = msg_node_await(s->b.node, &s->b.call, "nothing", 20, 5, &s->list, err);
  return rc == MSG_TIMEOUT ? MSG_OK : rc;
}

static int claim(scene *s, msg_err *err) {
  int rc = msg_node_claim(s->b.node, &s->b.call, "t", 5, 0, 0, &s->list, err);
  assert_int_equal(s->list.n, rc == MSG_OK);
  return rc;
}

static int claim_in_vain(scene *s, msg_err *err) {
  int rc = msg_node_claim(s->b.node, &s->b.call, "none", 5, 0, 20, &s->list, err);
  return rc == MSG_TIMEOUT ? MSG_OK : rc;
}

static int settle(scene *s, msg_err *err) {
  msg_settle how = {.verb = MSG_SETTLE_ACK};
  msg_settle_item item = {.id = s->id};
  return msg_node_settle(s->b.node, &s->b.call, &how, &item, 1, err);
}

static int pause_and_resume(scene *s, msg_err *err) {
  bool changed;
  int rc = msg_node_pause(s->b.node, "a*", &changed, err);
  if (rc == MSG_OK)
    rc = msg_node_pause(s->b.node, "b", &changed, err);
  if (rc == MSG_OK)
    rc = msg_node_resume(s->b.node, "a*", &changed, err);
  return rc;
}

static int take_row(void *arg, const msg_cursor_info *row) {
  (void)row;
  ++*(int *)arg;
  return MSG_OK;
}

static int inspect(scene *s, msg_err *err) {
  int rows = 0;
  msg_node_undone(s->b.node, &s->id, 1);
  msg_node_forget(s->b.node);
  assert_false(msg_node_is_paused(s->b.node, "t"));
  int rc = msg_engine_cursors(take_row, &rows, err);
  assert_true(rows >= 1);
  return rc;
}

/* --- the loop ------------------------------------------------------------------------------ */

typedef struct loop {
  int (*f)(scene *s, msg_err *err);
  enum rig_kind kind;
} loop;

/* True: an allocation failed. */
static bool run_once(const loop *l, long nth, bool forever) {
  scene s;
  set_up(&s, l->kind);
  msg_err err = MSG_ERR_INIT;
  fail_alloc_arm(nth, forever);
  int rc = l->f(&s, &err);
  bool failed = fail_alloc_disarm();
  if (rc == MSG_NOMEM) {
    assert_true(failed);
    assert_string_equal(err.text, "out of memory");
    rc = l->f(&s, &err); /* nothing was lost */
  }
  if (rc != MSG_OK)
    fail_msg("allocation %ld: %s: %s", nth, msg_rc_name(rc), err.text);
  tear_down(&s);
  if (fail_alloc_live() != 0)
    fail_msg("allocation %ld: %ld blocks leaked", nth, fail_alloc_live());
  return failed;
}

static void each_allocation_fails(void **state) {
  const loop *l = *state;
  fail_alloc_install();
  for (int forever = 0; forever < 2; forever++)
    for (long nth = 1; run_once(l, nth, forever); nth++)
      ;
  fail_alloc_remove();
}

#define OOM_TEST(f, kind)                                                                          \
  {                                                                                                \
#f " [" #kind "]", each_allocation_fails, NULL, NULL, &(loop) {                                \
      f, kind                                                                                      \
    }                                                                                              \
  }
#define OOM_TESTS(f) OOM_TEST(f, RIG_FAKE), OOM_TEST(f, RIG_MEMORY), OOM_TEST(f, RIG_FILE)

int main(void) {
  const struct CMUnitTest tests[] = {
      OOM_TESTS(registry_add),      OOM_TESTS(open_given),
      OOM_TESTS(open_automatic),    OOM_TESTS(settings),
      OOM_TESTS(configure),         OOM_TESTS(announce),
      OOM_TESTS(withdraw),          OOM_TESTS(send),
      OOM_TESTS(request),           OOM_TESTS(reply),
      OOM_TESTS(await_and_reply),   OOM_TESTS(listen_new),
      OOM_TESTS(unlisten),          OOM_TESTS(await_all),
      OOM_TESTS(await_new_pattern), OOM_TESTS(await_appends),
      OOM_TESTS(await_sleeps),      OOM_TESTS(claim),
      OOM_TESTS(claim_in_vain),     OOM_TESTS(settle),
      OOM_TESTS(pause_and_resume),  OOM_TESTS(inspect),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
