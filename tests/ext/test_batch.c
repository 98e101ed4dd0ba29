/* Sends and settles in transactions that the store cannot join, and a store that goes away: one
 * that writes down what it is told stands behind the target "ledger:". */
#include "support/cmocka_compat.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "ext/nodes.h"
#include "store/local/host.h"
#include "support/host.h"

#define CLAIMED "aaaaaaaaaaaaaaaaaaaaaaaa"
#define TOKEN   "bbbbbbbbbbbbbbbbbbbbbbbb"

/* --- the store ----------------------------------------------------------------------------- */

static struct {
  char log[4096];
  int apply_rc; /* of the next apply */
  bool reached; /* what it then says */
  int looks;    /* that find a broadcast each; then it is away */
} ledger;

static const struct msg_store_ops OPS;
static msg_store the_store = {&OPS};

static void note(const char *fmt, const char *text) {
  size_t n = strlen(ledger.log);
  snprintf(ledger.log + n, sizeof ledger.log - n, fmt, text);
}

static void close_store(msg_store *s) {
  (void)s;
}

static unsigned caps(const msg_store *s) {
  (void)s;
  return MSG_CAP_OWN;
}

static const char *place(const msg_store *s) {
  (void)s;
  return "ledger";
}

static int open_session(msg_store *store, msg_host *host, const char *queue,
                        const msg_settings *settings, msg_session **out, msg_err *err) {
  (void)host, (void)queue, (void)settings;
  *out = msg_zalloc(sizeof **out);
  if (!*out)
    return msg_err_nomem(err);
  (*out)->ops = store->ops;
  return MSG_OK;
}

static void close_session(msg_session *s) {
  msg_free(s);
}

static void release_session(msg_session *s) {
  (void)s;
}

static void note_put(const msg_put *p) {
  char text[24];
  snprintf(text, sizeof text, "%lld", (long long)p->message->value.i);
  note("+%s ", text);
}

static void note_settle(const msg_settle *how, const msg_settle_item *items, size_t n) {
  static const char *const VERBS[] = {"ack", "release", "extend", "reject", "free"};
  char text[64];
  snprintf(text, sizeof text, "%s*%zu%s", VERBS[how->verb], n,
           items[0].token && strcmp(items[0].token, TOKEN) == 0 ? "!" : "");
  note("%s ", text);
}

static int put(msg_session *s, const msg_actor *a, msg_put *items, size_t n, msg_err *err) {
  (void)s, (void)a, (void)err;
  note("put(%s", "");
  for (size_t i = 0; i < n; i++) {
    note_put(&items[i]);
    items[i].id = items[i].message->id;
  }
  note(") %s", "");
  return MSG_OK;
}

static int settle(msg_session *s, const msg_actor *a, const msg_settle *how, msg_settle_item *items,
                  size_t n, msg_err *err) {
  (void)s, (void)a, (void)err;
  note("settle(%s", "");
  note_settle(how, items, n);
  note(") %s", "");
  for (size_t i = 0; i < n; i++)
    items[i].done = true;
  return MSG_OK;
}

static void note_unit(const char *verb, const msg_unit *u) {
  note("%s(", verb);
  for (size_t i = 0; i < u->settle_count; i++)
    note_settle(&u->settles[i].how, u->settles[i].items, u->settles[i].n);
  for (size_t i = 0; i < u->put_count; i++)
    note_put(&u->puts[i]);
  note(") %s", "");
}

static int apply(msg_session *s, const msg_actor *a, msg_unit *u, msg_err *err) {
  (void)s, (void)a;
  note_unit("apply", u);
  if (ledger.apply_rc == MSG_OK)
    return MSG_OK;
  u->reached = ledger.reached;
  return msg_err_set(err, ledger.apply_rc, "the ledger is closed");
}

static int undo(msg_session *s, const msg_actor *a, msg_unit *u, msg_err *err) {
  (void)s, (void)a, (void)err;
  note_unit(u->reached ? "undo?" : "undo", u);
  return MSG_OK;
}

/* One message is claimed, by node "me". */
struct find {
  msg_find base;
  bool given;
};

static int find(msg_session *s, const msg_filter *f, msg_find **out, msg_err *err) {
  struct find *found = msg_zalloc(sizeof *found);
  msg_oid id;
  if (!found)
    return msg_err_nomem(err);
  msg_oid_parse(CLAIMED, &id);
  found->base.ops = s->ops;
  found->given = true;
  for (size_t i = 0; i < f->id_count; i++)
    found->given = found->given && msg_oid_cmp(&f->ids[i], &id) != 0;
  *out = &found->base;
  return MSG_OK;
}

static int find_next(msg_find *base, msg_message *out, msg_err *err) {
  struct find *f = (struct find *)base;
  (void)err;
  if (f->given)
    return MSG_NOTFOUND;
  f->given = true;
  msg_message_init(out);
  msg_oid_parse(CLAIMED, &out->id);
  out->state = MSG_STATE_CLAIMED;
  out->owner = msg_strdup("me");
  memcpy(out->token, TOKEN, sizeof out->token);
  return MSG_OK;
}

static void find_close(msg_find *f) {
  msg_free(f);
}

static int claim(msg_session *s, const msg_actor *a, const msg_claim *c, msg_list *out,
                 msg_err *err) {
  (void)s, (void)a, (void)c;
  msg_message *m = msg_list_add(out);
  if (!m)
    return msg_err_nomem(err);
  msg_oid_parse(CLAIMED, &m->id);
  memcpy(m->token, TOKEN, sizeof m->token);
  m->topic = msg_strdup("work");
  note("claim %s", "");
  return MSG_OK;
}

static int listen(msg_session *s, const msg_actor *a, const char *pattern, bool catch_up,
                  msg_err *err) {
  (void)s, (void)a, (void)pattern, (void)catch_up, (void)err;
  return MSG_OK;
}

static int unseen(msg_session *s, const msg_actor *a, const msg_unseen *u, msg_list *out,
                  msg_err *err) {
  (void)s, (void)a, (void)u;
  if (ledger.looks-- <= 0)
    return msg_err_set(err, MSG_UNAVAILABLE, "the ledger is away");
  msg_message *m = msg_list_add(out);
  if (!m)
    return msg_err_nomem(err);
  m->topic = msg_strdup("t");
  m->value = msg_value_int(ledger.looks);
  return MSG_OK;
}

static int seen(msg_session *s, const msg_actor *a, const msg_list *list, bool *won, msg_err *err) {
  (void)s, (void)a, (void)err;
  for (size_t i = 0; i < list->n; i++)
    won[i] = true;
  return MSG_OK;
}

static int announce(msg_session *s, const msg_participant *p, msg_err *err) {
  (void)s, (void)p, (void)err;
  return MSG_OK;
}

static int withdraw(msg_session *s, const char *node, bool only_dead, msg_err *err) {
  (void)s, (void)node, (void)only_dead, (void)err;
  return MSG_OK;
}

static const struct msg_store_ops OPS = {
    .store_close = close_store,
    .caps = caps,
    .place = place,
    .session_open = open_session,
    .session_close = close_session,
    .session_release = release_session,
    .put = put,
    .find = find,
    .find_next = find_next,
    .find_close = find_close,
    .claim = claim,
    .settle = settle,
    .listen = listen,
    .unseen = unseen,
    .seen = seen,
    .apply = apply,
    .undo = undo,
    .presence_put = announce,
    .presence_withdraw = withdraw,
};

static int open_ledger(msg_connection *c, const char *target, const msg_settings *settings,
                       msg_opened *o, msg_err *err) {
  msg_store *store = msg_registry_find("ledger");
  int rc = store ? MSG_OK : msg_registry_add("ledger", &the_store, &store, err);
  (void)c, (void)target;
  if (rc == MSG_OK)
    rc = store->ops->session_open(store, NULL, "msg", settings, &o->session, err);
  if (rc == MSG_OK)
    rc = msg_node_open(store, settings, &o->node, err);
  if (store)
    msg_registry_unref(store);
  return rc;
}

static bool host_writes(msg_connection *c) {
  return msg_local_host_writes(msg_connection_db(c));
}

static const msg_adapter ADAPTERS[] = {
    {.scheme = "ledger", .open = open_ledger, .host_writes = host_writes}};

/* --- running ------------------------------------------------------------------------------- */

static sqlite3 *open_host(void) {
  sqlite3 *db = host_open_static(host_path());
  msg_connection_set_adapters(ADAPTERS, 1);
  memset(&ledger, 0, sizeof ledger);
  host_run(db, "SELECT msg_open('ledger:', '{\"sender_id\": \"me\"}'); CREATE TABLE app(x UNIQUE)");
  return db;
}

static void expect(const char *want) {
  assert_string_equal(ledger.log, want);
  ledger.log[0] = '\0';
}

static int64_t rows_of(sqlite3 *db) {
  return host_int(db, "SELECT count(*) FROM app");
}

static void outside_a_transaction_at_once(void **state) {
  (void)state;
  sqlite3 *db = open_host();
  host_run(db, "SELECT msg_send('t', 1)");
  expect("put(+1 ) ");
  host_run(db, "SELECT msg_ack('" CLAIMED "')");
  expect("settle(ack*1 ) ");
  host_run(db, "INSERT INTO app SELECT msg_send('t', 1) UNION ALL SELECT msg_send('t', 2)");
  expect("apply(+1 +2 ) "); /* with the writing statement that they are part of */
  host_close(db);
}

static void at_commit_as_one(void **state) {
  (void)state;
  sqlite3 *db = open_host();
  host_run(db, "BEGIN; SELECT msg_send('t', 1); INSERT INTO app VALUES (1)");
  assert_int_equal(host_int(db, "SELECT length(msg_enqueue('t', 2))"), 24);
  assert_int_equal(host_int(db, "SELECT msg_ack('" CLAIMED "')"), 1);
  assert_int_equal(host_int(db, "SELECT msg_ack('" CLAIMED "')"), 0);
  assert_int_equal(host_int(db, "SELECT msg_ack('cccccccccccccccccccccccc')"), 0);
  assert_int_equal(host_int(db, "SELECT msg_ack('" CLAIMED "', 'cccccccccccccccccccccccc')"), 0);
  expect("");
  host_run(db, "COMMIT");
  expect("apply(ack*1! +1 +2 ) ");
  assert_int_equal(rows_of(db), 1);
  host_close(db);
}

static void a_rollback_sends_nothing(void **state) {
  (void)state;
  sqlite3 *db = open_host();
  host_run(db, "BEGIN; SELECT msg_send('t', 1); SELECT msg_ack('" CLAIMED "'); ROLLBACK");
  host_run(db, "BEGIN; COMMIT");
  expect("");
  host_run(db, "BEGIN; SELECT msg_send('t', 1); SAVEPOINT a; SELECT msg_send('t', 2); SAVEPOINT b;"
               " SELECT msg_send('t', 3); ROLLBACK TO a; SELECT msg_send('t', 4); RELEASE a;"
               " SELECT msg_send('t', 5); COMMIT");
  expect("apply(+1 +4 +5 ) ");
  host_run(db, "SAVEPOINT a; SELECT msg_send('t', 1); ROLLBACK TO a; SELECT msg_send('t', 2);"
               " RELEASE a");
  expect("apply(+2 ) ");
  host_close(db);
}

static void a_failed_statement_sends_nothing(void **state) {
  (void)state;
  sqlite3 *db = open_host();
  host_run(db, "INSERT INTO app VALUES (1); BEGIN; SELECT msg_send('t', 1)");
  host_fails(db, SQLITE_CONSTRAINT_UNIQUE, "UNIQUE",
             "INSERT INTO app SELECT msg_send('t', 2) UNION ALL SELECT 1");
  host_run(db, "COMMIT");
  expect("apply(+1 ) ");
  host_fails(db, SQLITE_CONSTRAINT_UNIQUE, "UNIQUE",
             "INSERT INTO app SELECT msg_send('t', 2) UNION ALL SELECT 1");
  expect("");
  host_close(db);
}

static void a_refusal_fails_the_commit(void **state) {
  (void)state;
  sqlite3 *db = open_host();
  ledger.apply_rc = MSG_UNAVAILABLE;
  host_run(db, "BEGIN; INSERT INTO app VALUES (1); SELECT msg_send('t', 1)");
  host_fails(db, SQLITE_ERROR, "msg: UNAVAILABLE: the ledger is closed", "COMMIT");
  assert_int_equal(sqlite3_get_autocommit(db), 1);
  assert_int_equal(rows_of(db), 0);
  expect("apply(+1 ) "); /* nothing reached it: nothing to undo */
  ledger.reached = true;
  host_run(db, "BEGIN; INSERT INTO app VALUES (1); SELECT msg_send('t', 2)");
  host_fails(db, SQLITE_ERROR, "msg: UNAVAILABLE: the ledger is closed", "COMMIT");
  expect("apply(+2 ) undo?(+2 ) ");
  ledger.apply_rc = MSG_BUSY; /* which would leave the transaction open */
  host_run(db, "BEGIN; INSERT INTO app VALUES (1); SELECT msg_send('t', 3)");
  host_fails(db, SQLITE_ERROR, "the ledger is closed", "COMMIT");
  assert_int_equal(sqlite3_get_autocommit(db), 1);
  ledger.apply_rc = MSG_OK;
  ledger.log[0] = '\0';
  host_run(db, "BEGIN; INSERT INTO app VALUES (1); SELECT msg_send('t', 4); COMMIT");
  expect("apply(+4 ) ");
  assert_int_equal(rows_of(db), 1);
  host_close(db);
}

/* Another connection reads: COMMIT meets BUSY after xSync, and may be tried again. */
static void a_busy_commit_sends_once(void **state) {
  (void)state;
  sqlite3 *db = open_host();
  sqlite3 *other = host_plain(sqlite3_db_filename(db, "main"), 0);
  host_run(db, "PRAGMA busy_timeout = 0");
  host_run(other, "BEGIN; SELECT * FROM app");
  host_run(db, "BEGIN; INSERT INTO app VALUES (1); SELECT msg_send('t', 1)");
  host_fails(db, SQLITE_BUSY, "locked", "COMMIT");
  expect("apply(+1 ) ");
  host_run(db, "SELECT msg_send('t', 2)");
  host_fails(db, SQLITE_BUSY, "locked", "COMMIT");
  expect("apply(+2 ) ");
  host_run(other, "COMMIT");
  host_run(db, "COMMIT");
  expect("");
  assert_int_equal(rows_of(db), 1);
  host_close(other);
  host_close(db);
}

static void a_rollback_after_that_takes_it_back(void **state) {
  (void)state;
  sqlite3 *db = open_host();
  sqlite3 *other = host_plain(sqlite3_db_filename(db, "main"), 0);
  host_run(db, "PRAGMA busy_timeout = 0");
  host_run(other, "BEGIN; SELECT * FROM app");
  host_run(db, "BEGIN; INSERT INTO app VALUES (1); SELECT msg_send('t', 1); SAVEPOINT a;"
               " SELECT msg_send('t', 2)");
  host_fails(db, SQLITE_BUSY, "locked", "COMMIT");
  expect("apply(+1 +2 ) ");
  host_run(db, "ROLLBACK TO a");
  expect("undo(+2 ) ");
  host_run(db, "ROLLBACK");
  expect("undo(+1 ) ");
  host_close(other);
  host_close(db);
}

static int refuse(void *arg) {
  (void)arg;
  return 1;
}

static void a_vetoed_commit_takes_it_back(void **state) {
  (void)state;
  sqlite3 *db = open_host();
  sqlite3_commit_hook(db, refuse, NULL);
  host_run(db,
           "BEGIN; INSERT INTO app VALUES (1); SELECT msg_send('t', 1); SELECT msg_ack('" CLAIMED
           "')");
  host_fails(db, SQLITE_CONSTRAINT_COMMITHOOK, "", "COMMIT");
  sqlite3_commit_hook(db, NULL, NULL);
  /* the hook comes first in some versions: then nothing went out */
  assert_true(!ledger.log[0] || strstr(ledger.log, "undo(ack*1! +1 ) "));
  assert_int_equal(rows_of(db), 0);
  host_close(db);
}

static void a_rollback_gives_claims_back(void **state) {
  (void)state;
  sqlite3 *db = open_host();
  host_run(db, "BEGIN; SELECT msg_claim('work'); ROLLBACK");
  expect("claim settle(release*1 ) ");
  host_run(db, "BEGIN; SELECT msg_claim('work'); SELECT msg_ack('" CLAIMED "'); COMMIT");
  expect("claim apply(ack*1! ) ");
  host_run(db, "SELECT msg_claim('work')");
  expect("claim ");
  host_close(db);
}

static void one_insert_is_one_batch(void **state) {
  (void)state;
  sqlite3 *db = open_host();
  host_run(db, "INSERT INTO msg_messages(topic, value) VALUES ('t', 1), ('t', 2), ('t', 3)");
  expect("apply(+1 +2 +3 ) ");
  host_run(db, "CREATE TABLE src(x); CREATE TEMP TRIGGER tr AFTER INSERT ON main.src"
               " BEGIN SELECT msg_send('t', new.x); END; INSERT INTO src VALUES (7), (8)");
  expect("apply(+7 +8 ) ");
  host_close(db);
}

static void one_key_is_sent_once(void **state) {
  (void)state;
  sqlite3 *db = open_host();
  host_run(db, "BEGIN");
  assert_int_equal(host_int(db, "SELECT msg_enqueue('t', 1, '{\"key\": \"k\"}')"
                                " = msg_enqueue('t', 2, '{\"key\": \"k\"}')"),
                   1);
  host_run(db, "SELECT msg_enqueue('u', 3, '{\"key\": \"k\"}'); COMMIT");
  expect("apply(+1 +3 ) ");
  host_close(db);
}

static void a_node_with_unsent_messages_stays(void **state) {
  (void)state;
  sqlite3 *db = open_host();
  host_run(db, "BEGIN; SELECT msg_send('t', 1)");
  host_fails(db, SQLITE_ERROR, "COMMIT or ROLLBACK first", "SELECT msg_close()");
  host_run(db, "COMMIT");
  expect("apply(+1 ) ");
  host_run(db, "SELECT msg_close()");
  host_close(db);
}

static void closing_inside_a_transaction_sends_nothing(void **state) {
  (void)state;
  sqlite3 *db = open_host();
  host_run(db, "BEGIN; SELECT msg_send('t', 1)");
  host_close(db);
  expect("");
}

/* A statement that fails has its rows thrown away by many a host: what was marked seen would
 * be lost. */
static void rows_that_were_handed_out_reach_the_caller(void **state) {
  (void)state;
  sqlite3 *db = open_host();
  ledger.looks = 3;
  assert_string_equal(host_text(db, "SELECT group_concat(value) FROM msg_await('t', 0, 10)"),
                      "2,1,0");
  host_fails(db, SQLITE_ERROR, "msg: UNAVAILABLE: the ledger is away",
             "SELECT * FROM msg_await('t', 0, 10)");
  host_close(db);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(outside_a_transaction_at_once),
      cmocka_unit_test(at_commit_as_one),
      cmocka_unit_test(a_rollback_sends_nothing),
      cmocka_unit_test(a_failed_statement_sends_nothing),
      cmocka_unit_test(a_refusal_fails_the_commit),
      cmocka_unit_test(a_busy_commit_sends_once),
      cmocka_unit_test(a_rollback_after_that_takes_it_back),
      cmocka_unit_test(a_vetoed_commit_takes_it_back),
      cmocka_unit_test(a_rollback_gives_claims_back),
      cmocka_unit_test(one_insert_is_one_batch),
      cmocka_unit_test(one_key_is_sent_once),
      cmocka_unit_test(a_node_with_unsent_messages_stays),
      cmocka_unit_test(rows_that_were_handed_out_reach_the_caller),
      cmocka_unit_test(closing_inside_a_transaction_sends_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
