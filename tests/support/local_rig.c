#include "support/local_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/process.h"
#include "support/cmocka_compat.h"
#include "support/local_plans.h"

/* ---- files ---- */

void local_path_new(char out[64]) {
  const char *dir = getenv("TMPDIR");
  snprintf(out, 64, "%.30s/msg-local-XXXXXX", dir ? dir : "/tmp");
  int fd = mkstemp(out);
  assert_true(fd >= 0);
  close(fd);
}

void local_path_remove(const char *path) {
  static const char *const SUFFIXES[] = {"", "-wal", "-shm", "-journal"};
  for (size_t i = 0; i < sizeof SUFFIXES / sizeof SUFFIXES[0]; i++) {
    char name[80];
    snprintf(name, sizeof name, "%s%s", path, SUFFIXES[i]);
    unlink(name);
  }
}

/* ---- life ---- */

static bool probe(void *arg) {
  local_rig *r = arg;
  return r->interrupts > 0 && --r->interrupts == 0;
}

static int glob(const char *pattern, const char *text) {
  return sqlite3_strglob(pattern, text);
}

void local_rig_open_schema(local_rig *r, const char *path, const char *schema, const char *attach,
                           const char *node) {
  memset(r, 0, sizeof *r);
  msg_pattern_set_glob(glob);
  assert_int_equal(sqlite3_open(path, &r->db), SQLITE_OK);
  if (attach)
    local_sql(r, attach);
  msg_settings_init(&r->settings);
  r->settings.busy_timeout_ms = 0;
  r->actor = (msg_actor){.node = node, .process = msg_process_self(), .settings = &r->settings};
  r->host = (msg_host){.db = r->db, .schema = schema, .interrupted = probe, .arg = r};
  assert_int_equal(msg_local_open(&r->host, &r->store, &r->err), MSG_OK);
  assert_int_equal(
      r->store->ops->session_open(r->store, &r->host, "msg", &r->settings, &r->session, &r->err),
      MSG_OK);
}

void local_rig_open(local_rig *r, const char *path, const char *node) {
  local_rig_open_schema(r, path, "main", NULL, node);
}

void local_rig_close(local_rig *r) {
  r->session->ops->session_close(r->session);
  r->store->ops->store_close(r->store);
  msg_settings_clear(&r->settings);
  assert_int_equal(sqlite3_close(r->db), SQLITE_OK);
}

int local_rig_setup(void **state) {
  local_rig_open(*state, ":memory:", "me");
  return 0;
}

int local_rig_teardown(void **state) {
  msg_clock_shift(0);
  local_rig_close(*state);
  return 0;
}

/* ---- SQL ---- */

void local_sql(local_rig *r, const char *sql) {
  char *text = NULL;
  if (sqlite3_exec(r->db, sql, NULL, NULL, &text) != SQLITE_OK)
    fail_msg("%s: %s", sql, text);
}

int64_t local_number(local_rig *r, const char *sql) {
  sqlite3_stmt *stmt = NULL;
  if (sqlite3_prepare_v2(r->db, sql, -1, &stmt, NULL) != SQLITE_OK)
    fail_msg("%s: %s", sql, sqlite3_errmsg(r->db));
  int64_t n = sqlite3_step(stmt) == SQLITE_ROW ? sqlite3_column_int64(stmt, 0) : -1;
  sqlite3_finalize(stmt);
  return n;
}

int64_t local_count(local_rig *r, int state) {
  char sql[80];
  if (state == MSG_LOCAL_READY)
    return local_number(r, "SELECT count(*) FROM msg_store_ready");
  if (state == MSG_LOCAL_CLAIMED)
    return local_number(r, "SELECT count(*) FROM msg_store_claim WHERE seq > 0");
  snprintf(sql, sizeof sql, "SELECT count(*) FROM msg_store_message WHERE state = %d", state);
  return local_number(r, sql);
}

/* ---- verbs ---- */

static void expect(local_rig *r, const char *what, int rc) {
  if (rc != MSG_OK)
    fail_msg("%s: %s: %s", what, msg_rc_name(rc), r->err.text);
}

msg_message local_message(const char *topic, const char *value) {
  msg_message m;
  msg_message_init(&m);
  m.id = msg_oid_new();
  m.topic = msg_strdup(topic);
  m.sender = msg_strdup("sender");
  m.value = msg_value_text(value);
  m.exclusive = true;
  m.timing_out = false;
  m.timestamp_ms = m.deliver_at_ms = msg_clock_now_ms();
  return m;
}

int local_put_rc(local_rig *r, msg_message *m, msg_oid *id) {
  msg_put put = {.message = m, .key_until_ms = msg_clock_now_ms() + 300000};
  int rc = r->session->ops->put(r->session, &r->actor, &put, 1, &r->err);
  if (rc == MSG_OK)
    *id = put.id;
  return rc;
}

msg_oid local_put(local_rig *r, msg_message *m) {
  msg_oid id;
  expect(r, "put", local_put_rc(r, m, &id));
  return id;
}

msg_oid local_send(local_rig *r, const char *topic, const char *value) {
  msg_message m = local_message(topic, value);
  msg_oid id = local_put(r, &m);
  msg_message_clear(&m);
  return id;
}

static msg_pattern *pattern_of(local_rig *r, const char *text) {
  msg_pattern *p = NULL;
  expect(r, "pattern", msg_pattern_new(text, &p, &r->err));
  return p;
}

int local_claim_rc(local_rig *r, const char *pattern, size_t n, int64_t lease_ms, msg_list *out) {
  msg_pattern *p = pattern_of(r, pattern);
  msg_claim claim = {.pattern = p, .count = n, .lease_ms = lease_ms};
  int rc = r->session->ops->claim(r->session, &r->actor, &claim, out, &r->err);
  msg_pattern_free(p);
  return rc;
}

void local_claim(local_rig *r, const char *pattern, size_t n, msg_list *out) {
  expect(r, "claim", local_claim_rc(r, pattern, n, 30000, out));
}

bool local_claimable(local_rig *r, const char *pattern) {
  msg_pattern *p = pattern_of(r, pattern);
  msg_claim claim = {.pattern = p, .count = 1, .lease_ms = 30000};
  bool out = false;
  expect(r, "claimable", r->session->ops->claimable(r->session, &r->actor, &claim, &out, &r->err));
  msg_pattern_free(p);
  return out;
}

const char *local_claimed(local_rig *r, const char *pattern, size_t n) {
  static char text[1024];
  msg_list list = MSG_LIST_INIT;
  local_claim(r, pattern, n, &list);
  text[0] = '\0';
  for (size_t i = 0; i < list.n; i++)
    snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", i ? "," : "",
             list.at[i].value.p);
  msg_list_clear(&list);
  return text;
}

static bool settle(local_rig *r, const msg_settle *how, const msg_oid *id, const char *token) {
  msg_settle_item item = {.id = *id, .token = token};
  expect(r, "settle", r->session->ops->settle(r->session, &r->actor, how, &item, 1, &r->err));
  return item.done;
}

bool local_settle(local_rig *r, enum msg_settle_verb verb, const msg_oid *id, const char *token) {
  msg_settle how = {.verb = verb, .lease_ms = 60000, .reason = "refused"};
  return settle(r, &how, id, token);
}

bool local_release(local_rig *r, const msg_oid *id, int64_t delay_ms) {
  msg_settle how = {.verb = MSG_SETTLE_RELEASE, .delay_ms = delay_ms};
  return settle(r, &how, id, NULL);
}

int64_t local_purge(local_rig *r, const char *pattern) {
  msg_pattern *p = pattern_of(r, pattern);
  int64_t n = -1;
  expect(r, "purge", r->session->ops->purge(r->session, &r->actor, p, &n, &r->err));
  msg_pattern_free(p);
  return n;
}

int64_t local_redrive(local_rig *r, const char *pattern) {
  msg_pattern *p = pattern_of(r, pattern);
  int64_t n = -1;
  expect(r, "redrive", r->session->ops->redrive(r->session, &r->actor, p, &n, &r->err));
  msg_pattern_free(p);
  return n;
}

void local_sweep(local_rig *r) {
  bool backlog = true;
  for (int i = 0; i < 100 && backlog; i++)
    expect(r, "sweep",
           msg_local_sweep((msg_local_session *)r->session, &r->actor, msg_clock_now_ms(), true,
                           &backlog, &r->err));
}

/* ---- plans ---- */

void local_check_plans(local_rig *r) {
  msg_local_session *s = (msg_local_session *)r->session;
  int n = 0;
  for (size_t i = 0; i < MSG_LOCAL_SLOTS; i++) {
    const char *sql = s->slot[i] ? sqlite3_sql(s->slot[i]) : NULL;
    if (!sql || !strstr(sql, "msg_store_") || strstr(sql, "SAVEPOINT"))
      continue;
    local_plans_check(sql);
    n++;
  }
  local_plans_close();
  assert_true(n > 0);
}
