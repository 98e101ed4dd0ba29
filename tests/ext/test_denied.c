/* An authorizer that forbids something of our tables: nothing is done beside the host then. */
#include "support/cmocka_compat.h"

#include <string.h>

#include "support/host.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static const char *filled(void) {
  const char *path = host_path();
  sqlite3 *db = host_open_node(path, "x");
  host_run(db, "SELECT msg_enqueue('work', value) FROM json_each('[1,2,3,4]');"
               "SELECT msg_send('t', 1)");
  host_close(db);
  return path;
}

static const char *const TABLES[] = {
    "msg_store",       "msg_store_message", "msg_store_lane",   "msg_store_listener",
    "msg_store_floor", "msg_store_seen",    "msg_store_key",    "msg_store_node",
    "msg_store_ready", "msg_store_claim",   "msg_store_holder",
};
static const int KINDS[] = {SQLITE_READ, SQLITE_INSERT, SQLITE_UPDATE, SQLITE_DELETE};

struct denied {
  int action;
  const char *table, *column; /* column NULL: all */
};

static int deny_one(void *arg, int action, const char *table, const char *column,
                    const char *schema, const char *inner) {
  const struct denied *d = arg;
  (void)schema, (void)inner;
  bool hit = action == d->action && (!d->table || (table && strcmp(table, d->table) == 0)) &&
             (!d->column || (column && strcmp(column, d->column) == 0));
  return hit ? SQLITE_DENY : SQLITE_OK;
}

static const char *const FORMS[] = {
    "SELECT value, id FROM msg_claim('work', 1)",
    "SELECT msg_ack(id) FROM msg_claim('work', 1)",
    "SELECT value FROM msg_await('t', 0, 1)",
};

/* What each cannot do without; others it may meet in a sweep. */
static const struct needed {
  int action;
  const char *table;
  bool by[COUNT(FORMS)];
} NEEDED[] = {
    {SQLITE_READ, "msg_store_message", {true, true, true}},
    {SQLITE_DELETE, "msg_store_ready", {true, true, false}},
    {SQLITE_INSERT, "msg_store_claim", {true, true, false}},
    {SQLITE_INSERT, "msg_store_holder", {true, true, false}},
    {SQLITE_DELETE, "msg_store_message", {false, true, false}},
    {SQLITE_DELETE, "msg_store_claim", {false, true, false}},
    {SQLITE_READ, "msg_store_seen", {false, false, true}},
};

static bool is_needed(const struct denied *d, size_t form) {
  for (size_t i = 0; i < COUNT(NEEDED); i++)
    if (NEEDED[i].action == d->action && strcmp(NEEDED[i].table, d->table) == 0)
      return NEEDED[i].by[form];
  return false;
}

static void try_forms(sqlite3 *db, const struct denied *d) {
  for (size_t f = 0; f < COUNT(FORMS); f++) {
    const char *got = host_text(db, "%s", FORMS[f]);
    bool failed = strncmp(got, "error ", 6) == 0;
    if (failed ? strncmp(got, "error 23: msg: AUTH: ", 21) != 0 : is_needed(d, f))
      fail_msg("action %d on %s: %s: %s", d->action, d->table, FORMS[f], got);
  }
}

/* Never by a connection of our own, which has no authorizer: data_version shows its writes. */
static void one_denial_keeps_a_form_on_the_host(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT(TABLES) * COUNT(KINDS); i++) {
    struct denied d = {KINDS[i % COUNT(KINDS)], TABLES[i / COUNT(KINDS)], NULL};
    sqlite3 *db = host_open(filled());
    host_run(db, "SELECT msg_listen('t'); SELECT count(*) FROM msg_claim('none')");
    int64_t version = host_int(db, "PRAGMA data_version");
    sqlite3_set_authorizer(db, deny_one, &d);
    try_forms(db, &d);
    sqlite3_set_authorizer(db, NULL, NULL);
    assert_int_equal(host_int(db, "PRAGMA data_version"), version);
    host_close(db);
  }
}

static void a_denied_column_is_not_shown(void **state) {
  (void)state;
  sqlite3 *db = host_open(filled());
  host_run(db, "SELECT count(*) FROM msg_claim('none')");
  struct denied d = {SQLITE_READ, "msg_store_message", "value"};
  sqlite3_set_authorizer(db, deny_one, &d);
  host_fails(db, SQLITE_AUTH, "msg: AUTH: ", "SELECT value FROM msg_claim('work')");
  host_fails(db, SQLITE_AUTH, "msg: AUTH: ", "SELECT msg_ack(id) FROM msg_claim('work')");
  sqlite3_set_authorizer(db, NULL, NULL);
  assert_string_equal(host_text(db, "SELECT value FROM msg_claim('work')"), "1");
  host_close(db);
}

/* On the host it would be in vain. */
static void no_wait_beside_an_authorizer_that_forbids(void **state) {
  (void)state;
  const char *path = filled();
  sqlite3 *db = host_open(path);
  host_run(db, "SELECT msg_open()");
  struct denied d = {SQLITE_DELETE, "msg_store_key", NULL};
  sqlite3_set_authorizer(db, deny_one, &d);
  static const char *const FORMS_OF_WAIT[] = {
      "SELECT * FROM msg_await('none', 20)",
      "SELECT * FROM msg_claim('none', 1, 1000, 20)",
      "SELECT * FROM msg_request('none', 1, 20)",
  };
  for (size_t i = 0; i < COUNT(FORMS_OF_WAIT); i++)
    host_fails(db, SQLITE_AUTH, "so that no connection beside yours may look", "%s",
               FORMS_OF_WAIT[i]);
  host_run(db, "BEGIN");
  host_fails(db, SQLITE_AUTH, "schema main: the host's authorizer forbids",
             "SELECT msg_claim('none', 1, 1000, 20)");
  host_run(db, "ROLLBACK");
  assert_string_equal(host_text(db, "SELECT msg_await('none', 20)"), "null");
  sqlite3_set_authorizer(db, NULL, NULL);
  host_close(db);
  db = host_open(path);
  assert_int_equal(host_int(db, "SELECT count(*) FROM msg_messages"), 5);
  assert_int_equal(host_int(db, "SELECT count(*) FROM msg_locks"), 0);
  host_close(db);
}

static void tables_that_may_not_be_made_are_not(void **state) {
  (void)state;
  sqlite3 *db = host_open(host_path());
  host_run(db, "CREATE TEMP TABLE x(y)");
  struct denied d = {SQLITE_CREATE_TABLE, NULL, NULL};
  sqlite3_set_authorizer(db, deny_one, &d);
  host_fails(db, SQLITE_AUTH, "msg: AUTH: ", "SELECT * FROM msg_claim('work')");
  host_fails(db, SQLITE_AUTH, "msg: AUTH: ", "SELECT msg_send('t', 1)");
  sqlite3_set_authorizer(db, NULL, NULL);
  assert_int_equal(host_int(db, "SELECT count(*) FROM main.sqlite_schema"), 0);
  host_close(db);
}

/* The first verb makes the tables beside the host; what it does then is done on the host. */
static void a_denial_counts_from_the_first_verb_on(void **state) {
  (void)state;
  const char *path = host_path();
  sqlite3 *db = host_open(path);
  struct denied d = {SQLITE_READ, "msg_store_message", "value"};
  sqlite3_set_authorizer(db, deny_one, &d);
  host_fails(db, SQLITE_AUTH, "msg: AUTH: ", "SELECT * FROM msg_claim('work')");
  host_fails(db, SQLITE_AUTH, "msg: AUTH: ", "SELECT * FROM msg_claim('work', 1, 1000, 20)");
  sqlite3_set_authorizer(db, NULL, NULL);
  host_close(db);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(one_denial_keeps_a_form_on_the_host),
      cmocka_unit_test(a_denied_column_is_not_shown),
      cmocka_unit_test(no_wait_beside_an_authorizer_that_forbids),
      cmocka_unit_test(tables_that_may_not_be_made_are_not),
      cmocka_unit_test(a_denial_counts_from_the_first_verb_on),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
