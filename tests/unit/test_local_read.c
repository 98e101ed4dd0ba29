/* The reading verbs of the local store: indexes, snapshots, locks, the host's rollbacks. The
 * port's part is in tests/contract. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"
#include "store/local/reading.h"
#include "support/cmocka_compat.h"
#include "support/local_plans.h"
#include "support/local_rig.h"

static char path[64];
static local_rig a, b;

static int setup(void **state) {
  (void)state;
  local_path_new(path);
  local_rig_open(&a, path, "a");
  local_sql(&a, "PRAGMA journal_mode = wal; PRAGMA synchronous = off");
  local_rig_open(&b, path, "b");
  local_sql(&b, "PRAGMA synchronous = off");
  return 0;
}

static int setup_delete(void **state) {
  (void)state;
  local_path_new(path);
  local_rig_open(&a, path, "a");
  local_rig_open(&b, path, "b");
  return 0;
}

static int teardown(void **state) {
  (void)state;
  msg_clock_shift(0);
  local_rig_close(&a);
  local_rig_close(&b);
  local_path_remove(path);
  return 0;
}

/* ---- short forms ---- */

static void send(local_rig *r, const char *topic, const char *text, const char *to) {
  msg_message m = local_message(topic, text);
  m.exclusive = false;
  if (to)
    assert_int_equal(msg_message_add_recipient(&m, to), MSG_OK);
  local_put(r, &m);
  msg_message_clear(&m);
}

static void listen(local_rig *r, const char *pattern, bool catch_up) {
  int rc = r->session->ops->listen(r->session, &r->actor, pattern, catch_up, &r->err);
  assert_true(rc == MSG_OK || rc == MSG_EXISTS);
}

static int look(local_rig *r, const char *pattern, size_t max, msg_list *out) {
  msg_pattern *p = NULL;
  if (pattern)
    assert_int_equal(msg_pattern_new(pattern, &p, &r->err), MSG_OK);
  msg_unseen u = {.pattern = p, .max = max};
  int rc = r->session->ops->unseen(r->session, &r->actor, &u, out, &r->err);
  msg_pattern_free(p);
  return rc;
}

/* Look and mark; how many. */
static size_t await(local_rig *r, const char *pattern, size_t max) {
  msg_list list = MSG_LIST_INIT;
  bool won[1024];
  size_t n = 0;
  assert_int_equal(look(r, pattern, max, &list), MSG_OK);
  assert_int_equal(r->session->ops->seen(r->session, &r->actor, &list, won, &r->err), MSG_OK);
  for (size_t i = 0; i < list.n; i++)
    n += won[i];
  msg_list_clear(&list);
  return n;
}

static size_t find(local_rig *r, const msg_filter *f) {
  msg_find *find = NULL;
  msg_message m;
  size_t n = 0;
  assert_int_equal(r->session->ops->find(r->session, f, &find, &r->err), MSG_OK);
  while (r->session->ops->find_next(find, &m, &r->err) == MSG_OK) {
    assert_int_equal(m.processed_by == NULL, f->bare);
    msg_message_clear(&m);
    n++;
  }
  r->session->ops->find_close(find);
  return n;
}

static int64_t marks(local_rig *r) {
  return local_number(r, "SELECT count(*) FROM msg_store_seen");
}

static int no_row(void *arg, const void *row) {
  (void)row;
  ++*(int *)arg;
  return MSG_OK;
}

static int no_count(void *arg, const msg_count *row) {
  return no_row(arg, row);
}

static int no_lane(void *arg, const msg_lane *row) {
  return no_row(arg, row);
}

static int no_person(void *arg, const msg_participant *row) {
  return no_row(arg, row);
}

static int no_listener(void *arg, const msg_listener *row) {
  return no_row(arg, row);
}

static int no_fact(void *arg, const char *item, const char *value, const char *advice) {
  (void)value;
  (void)advice;
  return no_row(arg, item);
}

/* ---- indexes ---- */

static char seen_sql[32][4096];
static size_t seen_count;

static int note_statement(unsigned event, void *arg, void *stmt, void *text) {
  (void)event;
  (void)arg;
  (void)text;
  const char *sql = sqlite3_sql(stmt);
  if (sql && strstr(sql, " AS seq, ") && strstr(sql, "queue") && seen_count < 32)
    snprintf(seen_sql[seen_count++], sizeof seen_sql[0], "%s", sql);
  return 0;
}

/* The plan of the statement of a browse, its lines joined. */
static const char *plan_of(const msg_filter *f) {
  static char plan[8192];
  sqlite3_stmt *stmt = NULL;
  seen_count = 0;
  plan[0] = 0;
  sqlite3_trace_v2(a.db, SQLITE_TRACE_STMT, note_statement, NULL);
  find(&a, f);
  sqlite3_trace_v2(a.db, 0, NULL, NULL);
  assert_int_equal(seen_count, 1);
  local_plans_check(seen_sql[0]);
  char *text = sqlite3_mprintf("EXPLAIN QUERY PLAN %s", seen_sql[0]);
  assert_int_equal(sqlite3_prepare_v2(a.db, text, -1, &stmt, NULL), SQLITE_OK);
  sqlite3_free(text);
  while (sqlite3_step(stmt) == SQLITE_ROW) {
    size_t n = strlen(plan);
    snprintf(plan + n, sizeof plan - n, "%s\n", (const char *)sqlite3_column_text(stmt, 3));
  }
  sqlite3_finalize(stmt);
  return plan;
}

static void plan_has(const msg_filter *f, const char *const *wanted) {
  const char *plan = plan_of(f);
  for (; *wanted; wanted++)
    if (!strstr(plan, *wanted))
      fail_msg("no '%s' in:\n%sof: %s", *wanted, plan, seen_sql[0]);
  if (strstr(plan, "SCAN m\n"))
    fail_msg("scan in:\n%sof: %s", plan, seen_sql[0]);
}
#define PLAN_HAS(f, ...) plan_has(f, (const char *const[]){__VA_ARGS__, NULL})

static void finds_go_by_their_indexes(void **state) {
  (void)state;
  msg_filter f;
  msg_oid id = local_send(&a, "t", "x");
  for (unsigned i = 0; i < MSG_STATE_COUNT; i++) {
    static const char *const index[][4] = {
        [MSG_STATE_READY] = {"SEARCH r USING PRIMARY KEY (queue=? AND topic=?)",
                             "message_live (queue=? AND topic=?)",
                             "message_other (queue=? AND topic=? AND state>? AND state<?)"},
        [MSG_STATE_DELAYED] = {"message_other (queue=? AND topic=? AND state>? AND state<?)"},
        [MSG_STATE_CLAIMED] = {"SCAN c", "SEARCH w USING INTEGER PRIMARY KEY (rowid=?)"},
        [MSG_STATE_BLOCKED] = {"message_other (queue=? AND topic=? AND state>? AND state<?)"},
        [MSG_STATE_PROCESSED] = {"message_other (queue=? AND topic=? AND state>? AND state<?)"},
        [MSG_STATE_DEAD] = {"message_dead (queue=? AND topic=?)"},
        [MSG_STATE_EXPIRED] = {"message_expiry (delete_at>? AND delete_at<?)"}};
    msg_filter_init(&f);
    assert_int_equal(msg_filter_add_topic(&f, "t"), MSG_OK);
    f.states = 1u << i;
    plan_has(&f, index[i]);
    msg_filter_clear(&f);
  }
  msg_filter_init(&f);
  assert_int_equal(msg_filter_add_topic(&f, "t"), MSG_OK);
  assert_int_equal(msg_filter_add_topic(&f, "u"), MSG_OK);
  PLAN_HAS(&f, "SEARCH r USING PRIMARY KEY (queue=? AND topic=?)", "message_mortal",
           "message_live (queue=? AND topic=?)", "message_dead (queue=? AND topic=?)",
           "message_other (queue=? AND topic=?");
  msg_filter_clear(&f);
  msg_filter_init(&f);
  assert_int_equal(msg_filter_add_id(&f, &id), MSG_OK);
  assert_int_equal(msg_filter_add_id(&f, &id), MSG_OK);
  f.states = 1u << MSG_STATE_READY;
  PLAN_HAS(&f, "message_id (id=?)");
  msg_filter_clear(&f);
  msg_filter_init(&f);
  f.has_id_lo = true;
  f.id_lo = id;
  PLAN_HAS(&f, "message_id (id>?)");
  msg_filter_clear(&f);
  msg_filter_init(&f);
  f.seq.lo = 1;
  f.descending_seq = true;
  f.states = 1u << MSG_STATE_READY;
  PLAN_HAS(&f, "INTEGER PRIMARY KEY (rowid>?)");
  assert_null(strstr(plan_of(&f), "TEMP B-TREE"));
  f.seq.hi = 1;
  PLAN_HAS(&f, "INTEGER PRIMARY KEY (rowid=?)");
  msg_filter_clear(&f);
}

static void every_plan_goes_by_an_index(void **state) {
  (void)state;
  int n = 0;
  int64_t at_ms;
  msg_list list = MSG_LIST_INIT;
  msg_participant p = {
      .node = "a", .host = "h", .process = "x", .implementation = "i", .layout = "l"};
  msg_session *s = a.session;
  listen(&a, "t", true);
  listen(&a, "*", false);
  for (int i = 0; i < 70; i++) {
    send(&b, "t", "x", i % 3 ? NULL : "a");
    await(&a, "t", 3);
  }
  await(&a, NULL, 3);
  msg_oid id = msg_oid_new();
  msg_unseen u = {.answers_to = &id, .max = 1};
  assert_int_equal(s->ops->unseen(s, &a.actor, &u, &list, &a.err), MSG_OK);
  assert_int_equal(s->ops->presence_put(s, &p, &a.err), MSG_OK);
  assert_int_equal(s->ops->topics(s, no_count, &n, &a.err), MSG_OK);
  assert_int_equal(s->ops->queues(s, no_count, &n, &a.err), MSG_OK);
  assert_int_equal(s->ops->lanes(s, no_lane, &n, &a.err), MSG_OK);
  assert_int_equal(s->ops->presence_list(s, no_person, &n, &a.err), MSG_OK);
  assert_int_equal(s->ops->listeners(s, no_listener, &n, &a.err), MSG_OK);
  assert_int_equal(s->ops->deadline(s, &at_ms, &a.err), MSG_OK);
  assert_int_equal(s->ops->lane_drop(s, "nobody", &a.err), MSG_NOTFOUND);
  assert_int_equal(s->ops->unlisten(s, &a.actor, "t", &a.err), MSG_OK);
  assert_int_equal(s->ops->presence_withdraw(s, "a", false, &a.err), MSG_OK);
  msg_filter f;
  msg_filter_init(&f);
  find(&a, &f);
  local_check_plans(&a);
}

/* ---- marks and floors ---- */

static void marks_stay_few(void **state) {
  (void)state;
  listen(&a, "t", false);
  listen(&a, "t*", false);
  for (int i = 0; i < 500; i++) {
    send(&b, i % 5 ? "t" : "tt", "x", NULL);
    assert_int_equal(await(&a, NULL, 1), 1);
    assert_true(marks(&a) <= 40);
  }
  assert_int_equal(local_number(&a, "SELECT count(*) FROM msg_store_floor"), 3);
}

/* A topic that nobody takes holds up nothing but itself. */
static void an_unread_topic_holds_up_no_other(void **state) {
  (void)state;
  msg_pattern *p = NULL;
  listen(&a, "*", false);
  send(&b, "unread", "x", NULL);
  assert_int_equal(msg_pattern_new("unread", &p, NULL), MSG_OK);
  const msg_pattern *paused[] = {p};
  msg_unseen u = {.paused = paused, .paused_count = 1, .max = 9};
  for (int i = 0; i < 200; i++) {
    msg_list list = MSG_LIST_INIT;
    bool won[9];
    send(&b, "t", "x", NULL);
    assert_int_equal(a.session->ops->unseen(a.session, &a.actor, &u, &list, &a.err), MSG_OK);
    assert_int_equal(list.n, 1);
    assert_int_equal(a.session->ops->seen(a.session, &a.actor, &list, won, &a.err), MSG_OK);
    msg_list_clear(&list);
  }
  assert_true(marks(&a) <= 33);
  assert_int_equal(await(&a, NULL, 9), 1);
  msg_pattern_free(p);
}

static void floors_of_topics_without_messages_go(void **state) {
  (void)state;
  char topic[16];
  listen(&a, "*", false);
  for (int i = 0; i < 2500; i++) {
    snprintf(topic, sizeof topic, "t%d", i);
    msg_message m = local_message(topic, "x");
    m.exclusive = false;
    m.delete_after_processing = true;
    local_put(&b, &m);
    msg_message_clear(&m);
    assert_int_equal(await(&a, NULL, 1), 1);
  }
  assert_true(local_number(&a, "SELECT count(*) FROM msg_store_floor") < 1000);
  assert_true(marks(&a) <= 33);
}

/* A session that lives for one message only must clear up, too. */
static void short_sessions_clear_up(void **state) {
  (void)state;
  listen(&a, "t", false);
  for (int i = 0; i < 100; i++) {
    send(&b, "t", "x", NULL);
    local_rig_close(&a);
    local_rig_open(&a, path, "a");
    assert_int_equal(await(&a, "t", 1), 1);
  }
  assert_true(marks(&a) <= 1);
}

/* ---- the host's transaction ---- */

static void a_rollback_brings_back_what_was_seen(void **state) {
  (void)state;
  static const char *const patterns[] = {"t", "t*", NULL};
  for (size_t i = 0; i < 3; i++) {
    listen(&a, "t", false);
    listen(&a, "t*", false);
    send(&b, "t", "x", NULL);
    send(&b, "t", "x", "a");
    local_sql(&a, "BEGIN");
    assert_int_equal(await(&a, patterns[i], 9), 2);
    assert_int_equal(await(&a, patterns[i], 9), 0);
    local_sql(&a, "ROLLBACK");
    assert_int_equal(await(&a, patterns[i], 9), 2);
    assert_int_equal(await(&a, patterns[i], 9), 0);
    local_sql(&a, "BEGIN; SAVEPOINT x");
    send(&a, "t", "own", "a");
    assert_int_equal(await(&a, patterns[i], 9), 1);
    local_sql(&a, "ROLLBACK TO x; COMMIT");
    assert_int_equal(await(&a, patterns[i], 9), 0);
  }
}

/* The look that finds nothing is remembered; what comes later is found all the same. */
static void nothing_new_is_not_for_ever(void **state) {
  (void)state;
  char topic[16];
  listen(&a, "t*", false);
  for (int i = 0; i < 300; i++) {
    snprintf(topic, sizeof topic, "t%d", i % 50);
    assert_int_equal(await(&a, "t*", 9), 0);
    send(&b, topic, "x", NULL);
    assert_int_equal(await(&a, "t*", 9), 1);
  }
  assert_int_equal(await(&a, "t*", 9), 0);
  for (int i = 0; i < 1200; i++) { /* farther than it reads one by one */
    snprintf(topic, sizeof topic, "%c%d", i % 2 ? 't' : 'u', i % 50);
    send(&b, topic, "x", NULL);
  }
  size_t n = 0;
  for (size_t got; (got = await(&a, "t*", 100)) > 0;)
    n += got;
  assert_int_equal(n, 600);
  assert_int_equal(a.session->ops->unlisten(a.session, &a.actor, "t*", &a.err), MSG_OK);
  listen(&a, "t*", true); /* begins anew: all that lives */
  n = 0;
  for (size_t got; (got = await(&a, "t*", 100)) > 0;)
    n += got;
  assert_int_equal(n, 900);
}

/* What another session of the node began to listen to anew is not hidden by what this one
 * remembers. */
static void another_session_listens_anew(void **state) {
  (void)state;
  local_rig other;
  listen(&a, "t*", true);
  send(&b, "t", "x", NULL);
  assert_int_equal(await(&a, "t*", 9), 1);
  assert_int_equal(await(&a, "t*", 9), 0);
  local_rig_open(&other, path, "a");
  assert_int_equal(other.session->ops->unlisten(other.session, &other.actor, "t*", &other.err),
                   MSG_OK);
  listen(&other, "t*", true);
  assert_int_equal(await(&a, "t*", 9), 1);
  local_rig_close(&other);
}

static void a_delayed_broadcast_is_above_every_floor(void **state) {
  (void)state;
  listen(&a, "t*", false);
  msg_message m = local_message("t", "late");
  m.exclusive = false;
  m.deliver_at_ms += 5000;
  local_put(&b, &m);
  msg_message_clear(&m);
  for (int i = 0; i < 100; i++) {
    send(&b, "t", "x", NULL);
    assert_int_equal(await(&a, "t*", 9), 1);
  }
  assert_int_equal(await(&a, "t*", 9), 0);
  msg_clock_shift(6000);
  assert_int_equal(await(&a, "t*", 9), 1);
}

/* ---- no store, read-only, locked ---- */

static void nothing_to_read_makes_nothing(void **state) {
  (void)state;
  int n = 0;
  int64_t at_ms = 0;
  bool can = true;
  msg_list list = MSG_LIST_INIT;
  msg_message m;
  msg_oid id = msg_oid_new();
  msg_filter f;
  msg_session *s = a.session;
  msg_filter_init(&f);
  local_sql(&a, "PRAGMA query_only = ON");
  assert_int_equal(find(&a, &f), 0);
  assert_int_equal(s->ops->get(s, &id, &m, &a.err), MSG_NOTFOUND);
  assert_int_equal(look(&a, "t", 1, &list), MSG_OK);
  assert_int_equal(s->ops->topics(s, no_count, &n, &a.err), MSG_OK);
  assert_int_equal(s->ops->queues(s, no_count, &n, &a.err), MSG_OK);
  assert_int_equal(s->ops->lanes(s, no_lane, &n, &a.err), MSG_OK);
  assert_int_equal(s->ops->presence_list(s, no_person, &n, &a.err), MSG_OK);
  assert_int_equal(s->ops->listeners(s, no_listener, &n, &a.err), MSG_OK);
  assert_int_equal(n, 0);
  assert_int_equal(s->ops->describe(s, no_fact, &n, &a.err), MSG_OK);
  assert_int_equal(s->ops->deadline(s, &at_ms, &a.err), MSG_OK);
  assert_true(at_ms == MSG_NEVER);
  assert_int_equal(s->ops->unlisten(s, &a.actor, "t", &a.err), MSG_NOTFOUND);
  assert_int_equal(s->ops->presence_withdraw(s, "x", false, &a.err), MSG_NOTFOUND);
  assert_int_equal(s->ops->lane_drop(s, "x", &a.err), MSG_NOTFOUND);
  assert_false((can = local_claimable(&a, "t")));
  assert_int_equal(local_number(&a, "SELECT count(*) FROM sqlite_schema"), 0);
}

static void a_schema_rolled_back_is_no_store(void **state) {
  (void)state;
  msg_filter f;
  msg_filter_init(&f);
  local_sql(&a, "BEGIN");
  send(&a, "t", "x", NULL);
  assert_int_equal(find(&a, &f), 1);
  local_sql(&a, "ROLLBACK");
  assert_int_equal(find(&a, &f), 0);
  listen(&a, "t", false);
  send(&a, "t", "x", "a");
  assert_int_equal(await(&a, "t", 9), 1);
}

struct unlocker {
  int64_t after_ms;
  msg_thread *thread;
};

static void unlock_later(void *arg) {
  struct unlocker *u = arg;
  sqlite3_sleep((int)u->after_ms);
  local_sql(&b, "COMMIT");
}

/* Rollback journal: whoever writes to the file keeps readers out. */
static void reading_waits_for_a_lock(void **state) {
  (void)state;
  msg_filter f;
  struct unlocker u = {.after_ms = 150};
  msg_filter_init(&f);
  msg_find *found = NULL;
  send(&a, "t", "x", NULL);
  local_sql(&b, "BEGIN EXCLUSIVE");
  assert_int_equal(a.session->ops->find(a.session, &f, &found, &a.err), MSG_BUSY);
  assert_non_null(strstr(a.err.text, "find: "));
  ((msg_local_session *)a.session)->busy_timeout_ms = 10000;
  assert_int_equal(msg_thread_start(&u.thread, "unlock", unlock_later, &u, NULL), MSG_OK);
  assert_int_equal(find(&a, &f), 1);
  msg_thread_join(u.thread);
  local_sql(&b, "BEGIN EXCLUSIVE");
  a.interrupts = 3;
  assert_int_equal(a.session->ops->find(a.session, &f, &found, &a.err), MSG_INTERRUPTED);
  local_sql(&b, "COMMIT");
}

/* A browse keeps its snapshot whatever is written beside it, also by the same connection. */
static void a_browse_goes_on_beside_writes(void **state) {
  (void)state;
  msg_filter f;
  msg_find *found = NULL;
  msg_message m;
  size_t n = 0;
  msg_filter_init(&f);
  f.ordered = true;
  for (int i = 0; i < 20; i++)
    send(&a, "t", "x", i % 2 ? "a" : NULL);
  assert_int_equal(a.session->ops->find(a.session, &f, &found, &a.err), MSG_OK);
  while (a.session->ops->find_next(found, &m, &a.err) == MSG_OK) {
    assert_int_equal(b.session->ops->remove(b.session, &b.actor, &m.id, &b.err), MSG_OK);
    msg_message_clear(&m);
    n++;
  }
  a.session->ops->find_close(found);
  assert_int_equal(n, 20);
  assert_int_equal(find(&a, &f), 0);
}

static void bare_browses_know_the_state(void **state) {
  (void)state;
  msg_filter f;
  send(&b, "t", "x", "a");
  send(&b, "t", "x", NULL);
  assert_int_equal(await(&a, "t", 9), 1);
  msg_filter_init(&f);
  f.bare = true;
  assert_int_equal(find(&a, &f), 2);
  f.states = 1u << MSG_STATE_PROCESSED;
  assert_int_equal(find(&a, &f), 1);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void) {
  static const struct CMUnitTest tests[] = {
      TEST(finds_go_by_their_indexes),
      TEST(every_plan_goes_by_an_index),
      TEST(marks_stay_few),
      TEST(an_unread_topic_holds_up_no_other),
      TEST(floors_of_topics_without_messages_go),
      TEST(short_sessions_clear_up),
      TEST(a_rollback_brings_back_what_was_seen),
      TEST(nothing_new_is_not_for_ever),
      TEST(another_session_listens_anew),
      TEST(a_delayed_broadcast_is_above_every_floor),
      TEST(nothing_to_read_makes_nothing),
      TEST(a_schema_rolled_back_is_no_store),
      cmocka_unit_test_setup_teardown(reading_waits_for_a_lock, setup_delete, teardown),
      TEST(a_browse_goes_on_beside_writes),
      TEST(bare_browses_know_the_state),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
