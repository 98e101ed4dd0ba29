/* Every verb of the local store with each allocation failing in turn, SQLite's and ours alike:
 * MSG_NOMEM and nothing changed, or done; nothing leaked, and the same verb works afterwards. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/process.h"
#include "store/local/host.h"
#include "support/cmocka_compat.h"
#include "support/fail_alloc.h"

static int install(void **state) {
  (void)state;
  fail_alloc_install_sqlite();
  msg_pattern_set_glob(sqlite3_strglob);
  return 0;
}

/* ---- the scene ---- */

typedef struct scene {
  sqlite3 *db;
  msg_host host;
  msg_store *store;
  msg_session *s;
  msg_settings settings;
  msg_actor actor;
  msg_pattern *t, *all;
  msg_oid ids[4];
  msg_err err;
  msg_list list; /* what the verb appended */
  int rows;
} scene;

static void put_one(scene *k, const char *topic, bool exclusive, const char *to, const char *group,
                    msg_oid *id) {
  msg_message m;
  msg_message_init(&m);
  m.id = msg_oid_new();
  m.topic = msg_strdup(topic);
  m.sender = msg_strdup("other");
  m.value = msg_value_text("a text that is long enough to be on its own");
  m.exclusive = exclusive;
  m.group = msg_strdup(group);
  m.timestamp_ms = m.deliver_at_ms = msg_clock_now_ms();
  m.delete_at_ms = MSG_NEVER;
  if (to)
    msg_message_add_recipient(&m, to);
  msg_put put = {.message = &m};
  assert_int_equal(k->s->ops->put(k->s, &k->actor, &put, 1, &k->err), MSG_OK);
  if (id)
    *id = m.id;
  msg_message_clear(&m);
}

static void set_up(scene *k, bool store) {
  memset(k, 0, sizeof *k);
  assert_int_equal(sqlite3_open(":memory:", &k->db), SQLITE_OK);
  msg_settings_init(&k->settings);
  k->actor = (msg_actor){.node = "me", .process = msg_process_self(), .settings = &k->settings};
  k->host = (msg_host){.db = k->db, .schema = "main"};
  assert_int_equal(msg_local_open(&k->host, &k->store, &k->err), MSG_OK);
  assert_int_equal(
      k->store->ops->session_open(k->store, &k->host, "msg", &k->settings, &k->s, &k->err), MSG_OK);
  assert_int_equal(msg_pattern_new("t", &k->t, &k->err), MSG_OK);
  assert_int_equal(msg_pattern_new("*", &k->all, &k->err), MSG_OK);
  if (!store)
    return;
  assert_int_equal(k->s->ops->listen(k->s, &k->actor, "t", false, &k->err), MSG_OK);
  assert_int_equal(k->s->ops->listen(k->s, &k->actor, "t*", false, &k->err), MSG_OK);
  for (int i = 0; i < 4; i++) {
    put_one(k, "t", true, NULL, i > 1 ? "g" : NULL, &k->ids[i]);
    put_one(k, i % 2 ? "t" : "t2", false, NULL, NULL, NULL);
    put_one(k, "t", false, "me", NULL, NULL);
    put_one(k, "t", true, "me", NULL, NULL);
  }
}

static void tear_down(scene *k) {
  msg_list_clear(&k->list);
  msg_pattern_free(k->t);
  msg_pattern_free(k->all);
  k->s->ops->session_close(k->s);
  k->store->ops->store_close(k->store);
  assert_int_equal(sqlite3_close(k->db), SQLITE_OK);
  msg_settings_clear(&k->settings);
}

/* ---- verbs ---- */

static int do_put(scene *k) {
  char *to = "somebody";
  msg_message m, second;
  msg_message_init(&m);
  m.id = msg_oid_new();
  m.topic = "t";
  m.sender = "me";
  m.value = msg_value_text("x");
  m.key = "key";
  m.exclusive = true;
  m.group = "g";
  m.timestamp_ms = m.deliver_at_ms = msg_clock_now_ms();
  second = m;
  second.id = msg_oid_new();
  second.exclusive = false;
  second.key = second.group = NULL;
  second.recipients = &to;
  second.recipient_count = 1;
  msg_put puts[2] = {{.message = &m, .key_until_ms = MSG_NEVER}, {.message = &second}};
  return k->s->ops->put(k->s, &k->actor, puts, 2, &k->err);
}

static int drain_find(scene *k, const msg_filter *f) {
  msg_find *find = NULL;
  int rc = k->s->ops->find(k->s, f, &find, &k->err);
  if (rc != MSG_OK)
    return rc;
  for (msg_message m; (rc = k->s->ops->find_next(find, &m, &k->err)) == MSG_OK;)
    msg_message_clear(&m);
  k->s->ops->find_close(find);
  return rc == MSG_NOTFOUND ? MSG_OK : rc;
}

static int do_find(scene *k) {
  msg_filter f;
  msg_filter_init(&f);
  int rc = msg_filter_add_topic(&f, "t");
  if (rc == MSG_OK)
    rc = msg_filter_add_id(&f, &k->ids[0]);
  f.states = 3;
  f.ordered = true;
  if (rc == MSG_OK)
    rc = drain_find(k, &f);
  msg_filter_clear(&f);
  return rc;
}

static int do_find_all(scene *k) {
  msg_filter f;
  msg_filter_init(&f);
  return drain_find(k, &f);
}

static int do_find_many(scene *k) {
  msg_filter f;
  int rc = MSG_OK;
  msg_filter_init(&f);
  for (int i = 0; rc == MSG_OK && i < 101; i++)
    rc = msg_filter_add_topic(&f, i ? "none" : "t");
  if (rc == MSG_OK)
    rc = drain_find(k, &f);
  msg_filter_clear(&f);
  return rc;
}

static int do_get(scene *k) {
  msg_message m;
  int rc = k->s->ops->get(k->s, &k->ids[0], &m, &k->err);
  if (rc == MSG_OK)
    msg_message_clear(&m);
  return rc == MSG_NOTFOUND ? MSG_OK : rc;
}

static int do_listen(scene *k) {
  int rc = k->s->ops->listen(k->s, &k->actor, "new", true, &k->err);
  return rc == MSG_EXISTS ? MSG_OK : rc;
}

static int do_unlisten(scene *k) {
  int rc = k->s->ops->unlisten(k->s, &k->actor, "t*", &k->err);
  return rc == MSG_NOTFOUND ? MSG_OK : rc;
}

static int look(scene *k, const msg_pattern *p, size_t max) {
  msg_unseen u = {.pattern = p, .max = max};
  msg_list_clear(&k->list);
  return k->s->ops->unseen(k->s, &k->actor, &u, &k->list, &k->err);
}

static int do_unseen(scene *k) {
  return look(k, NULL, 5);
}

static int do_unseen_topic(scene *k) {
  return look(k, k->t, 3);
}

static int do_seen(scene *k) {
  bool won[9] = {false};
  int rc = look(k, NULL, 9);
  return rc == MSG_OK ? k->s->ops->seen(k->s, &k->actor, &k->list, won, &k->err) : rc;
}

static int do_claim(scene *k) {
  msg_claim c = {.pattern = k->t, .count = 2, .lease_ms = 60000};
  msg_list_clear(&k->list);
  return k->s->ops->claim(k->s, &k->actor, &c, &k->list, &k->err);
}

static int do_claim_pattern(scene *k) {
  msg_claim c = {.pattern = k->all, .count = 3, .lease_ms = 60000};
  msg_list_clear(&k->list);
  return k->s->ops->claim(k->s, &k->actor, &c, &k->list, &k->err);
}

static int do_claimable(scene *k) {
  bool can;
  msg_claim c = {.pattern = k->all, .count = 3, .lease_ms = 60000};
  return k->s->ops->claimable(k->s, &k->actor, &c, &can, &k->err);
}

static int settle(scene *k, enum msg_settle_verb verb) {
  msg_settle how = {.verb = verb, .lease_ms = 60000, .reason = "why"};
  msg_settle_item items[4];
  for (int i = 0; i < 4; i++)
    items[i] = (msg_settle_item){.id = k->ids[i]};
  return k->s->ops->settle(k->s, &k->actor, &how, items, 4, &k->err);
}

static int do_extend(scene *k) {
  return settle(k, MSG_SETTLE_EXTEND);
}

static int do_release(scene *k) {
  int rc = do_claim(k);
  return rc == MSG_OK ? settle(k, MSG_SETTLE_RELEASE) : rc;
}

static int do_reject(scene *k) {
  int rc = do_claim(k);
  return rc == MSG_OK ? settle(k, MSG_SETTLE_REJECT) : rc;
}

static int do_ack(scene *k) {
  int rc = do_claim(k);
  return rc == MSG_OK ? settle(k, MSG_SETTLE_ACK) : rc;
}

static int do_update(scene *k) {
  msg_update u = {.has_priority = true, .priority = 5, .has_ttl = true, .ttl_ms = 600000};
  int rc = k->s->ops->update(k->s, &k->actor, &k->ids[1], &u, &k->err);
  return rc == MSG_NOTFOUND ? MSG_OK : rc;
}

static int do_remove(scene *k) {
  int rc = k->s->ops->remove(k->s, &k->actor, &k->ids[2], &k->err);
  return rc == MSG_NOTFOUND ? MSG_OK : rc;
}

static int do_redrive(scene *k) {
  int64_t n;
  return k->s->ops->redrive(k->s, &k->actor, k->all, &n, &k->err);
}

static int do_purge(scene *k) {
  int64_t n;
  return k->s->ops->purge(k->s, &k->actor, k->all, &n, &k->err);
}

static int count_row(void *arg, const msg_count *row) {
  (void)row;
  ++*(int *)arg;
  return MSG_OK;
}

static int do_topics(scene *k) {
  return k->s->ops->topics(k->s, count_row, &k->rows, &k->err);
}

static int do_queues(scene *k) {
  return k->s->ops->queues(k->s, count_row, &k->rows, &k->err);
}

static int person_row(void *arg, const msg_participant *row) {
  (void)row;
  ++*(int *)arg;
  return MSG_OK;
}

static int do_presence(scene *k) {
  msg_participant p = {.node = "me",
                       .host = "h",
                       .process = "x",
                       .implementation = "i",
                       .layout = "l",
                       .automatic = true};
  int rc = k->s->ops->presence_put(k->s, &p, &k->err);
  if (rc == MSG_OK)
    rc = k->s->ops->presence_list(k->s, person_row, &k->rows, &k->err);
  if (rc == MSG_OK)
    rc = k->s->ops->presence_withdraw(k->s, "me", false, &k->err);
  return rc;
}

static int lane_row(void *arg, const msg_lane *row) {
  (void)row;
  ++*(int *)arg;
  return MSG_OK;
}

static int do_lanes(scene *k) {
  int rc = k->s->ops->lanes(k->s, lane_row, &k->rows, &k->err);
  if (rc == MSG_OK)
    rc = k->s->ops->lane_drop(k->s, "nobody", &k->err);
  return rc == MSG_NOTFOUND ? MSG_OK : rc;
}

static int listener_row(void *arg, const msg_listener *row) {
  (void)row;
  ++*(int *)arg;
  return MSG_OK;
}

static int do_listeners(scene *k) {
  return k->s->ops->listeners(k->s, listener_row, &k->rows, &k->err);
}

static int do_deadline(scene *k) {
  int64_t at_ms;
  return k->s->ops->deadline(k->s, &at_ms, &k->err);
}

static int fact_row(void *arg, const char *item, const char *value, const char *advice) {
  (void)item;
  (void)value;
  (void)advice;
  ++*(int *)arg;
  return MSG_OK;
}

static int do_describe(scene *k) {
  return k->s->ops->describe(k->s, fact_row, &k->rows, &k->err);
}

static int do_open(scene *k) {
  msg_store *store = NULL;
  msg_session *s = NULL;
  int rc = msg_local_open(&k->host, &store, &k->err);
  if (rc != MSG_OK)
    return rc;
  rc = store->ops->session_open(store, &k->host, "msg", &k->settings, &s, &k->err);
  if (rc == MSG_OK)
    s->ops->session_close(s);
  store->ops->store_close(store);
  return rc;
}

typedef int (*verb)(scene *k);
static const struct {
  const char *name;
  verb run;
} verbs[] = {
    {"open", do_open},
    {"put", do_put},
    {"find", do_find},
    {"find all", do_find_all},
    {"find many", do_find_many},
    {"get", do_get},
    {"listen", do_listen},
    {"unseen", do_unseen},
    {"unseen topic", do_unseen_topic},
    {"claimable", do_claimable},
    {"claim", do_claim},
    {"extend", do_extend},
    {"release", do_release},
    {"claim by pattern", do_claim_pattern},
    {"ack", do_ack},
    {"reject", do_reject},
    {"redrive", do_redrive},
    {"update", do_update},
    {"remove", do_remove},
    {"topics", do_topics},
    {"queues", do_queues},
    {"lanes", do_lanes},
    {"listeners", do_listeners},
    {"deadline", do_deadline},
    {"describe", do_describe},
    {"seen", do_seen},
    {"unlisten", do_unlisten},
    {"presence", do_presence},
    {"purge", do_purge},
};

/* ---- the loop ---- */

static int64_t number(scene *k, const char *sql) {
  sqlite3_stmt *stmt = NULL;
  int64_t n = -1;
  if (sqlite3_prepare_v2(k->db, sql, -1, &stmt, NULL) == SQLITE_OK &&
      sqlite3_step(stmt) == SQLITE_ROW)
    n = sqlite3_column_int64(stmt, 0);
  sqlite3_finalize(stmt);
  return n;
}

/* What a verb that failed must have left as it was. Claims of one verb after the other (do_ack)
 * may stay. */
static int64_t fingerprint(scene *k) {
  return number(k,
                "SELECT coalesce(sum(seq * 31), 0) + count(*) * 1000003 FROM msg_store_message") +
         number(k, "SELECT count(*) FROM msg_store_lane WHERE exclusive = 0") * 7 +
         number(k, "SELECT count(*) FROM msg_store_seen") * 1009 +
         number(k, "SELECT count(*) FROM msg_store_listener") * 100003 +
         number(k, "SELECT count(*) FROM msg_store_key") * 10007;
}

static long fail_each(scene *k, const char *name, verb run, bool forever) {
  for (long n = 1;; n++) {
    assert_true(n < 50000);
    k->s->ops->session_release(k->s); /* so that statements are prepared, too */
    int64_t before = fingerprint(k);
    memset(&k->err, 0, sizeof k->err);
    fail_alloc_arm(n, forever);
    int rc = run(k);
    bool fired = fail_alloc_disarm();
    if (rc != MSG_OK) {
      if (rc != MSG_NOMEM || !fired)
        fail_msg("%s, allocation %ld%s: %s: %s", name, n, forever ? " and on" : "", msg_rc_name(rc),
                 k->err.text);
      assert_int_equal(fingerprint(k), before);
      assert_int_equal(sqlite3_get_autocommit(k->db), 1);
    } else if (!fired) {
      return n;
    }
  }
}

static void every_allocation(void **state) {
  (void)state;
  scene warm;
  set_up(&warm, true); /* what is kept for the life of the process */
  tear_down(&warm);
  int64_t used = sqlite3_memory_used();
  for (int forever = 0; forever < 2; forever++) {
    scene k;
    set_up(&k, true);
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
      long n = fail_each(&k, verbs[i].name, verbs[i].run, forever);
      if (!forever)
        print_message("%s: %ld allocations\n", verbs[i].name, n - 1);
      assert_int_equal(verbs[i].run(&k), MSG_OK);
    }
    assert_int_equal(number(&k, "SELECT integrity_check = 'ok' FROM pragma_integrity_check"), 1);
    tear_down(&k);
    assert_int_equal(sqlite3_memory_used(), used);
  }
}

/* The verb that makes the tables. Not with every later allocation failing, too: CREATE INDEX
 * expires every statement, also the one that would undo it, and preparing it again takes memory. */
static void every_allocation_of_the_first_verb(void **state) {
  (void)state;
  static const verb firsts[] = {do_put, do_listen, do_claim, do_presence};
  for (size_t i = 0; i < sizeof firsts / sizeof *firsts; i++) {
    scene k;
    int rc;
    set_up(&k, false);
    for (long n = 1;; n++) {
      k.s->ops->session_release(k.s);
      fail_alloc_arm(n, false);
      rc = firsts[i](&k);
      fail_alloc_disarm();
      if (rc == MSG_OK)
        break;
      if (rc != MSG_NOMEM)
        fail_msg("first verb %d, allocation %ld: %s: %s", (int)i, n, msg_rc_name(rc), k.err.text);
      assert_int_equal(sqlite3_get_autocommit(k.db), 1);
      assert_int_equal(
          number(&k, "SELECT count(*) FROM sqlite_schema WHERE name LIKE 'msg_store%'"), 0);
    }
    assert_int_equal(do_put(&k), MSG_OK);
    tear_down(&k);
  }
}

int main(void) {
  static const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_allocation),
      cmocka_unit_test(every_allocation_of_the_first_verb),
  };
  return cmocka_run_group_tests(tests, install, NULL);
}
