/* contract.c - see contract.h: the runner and what the tests share. */
#include "support/contract.h"

#include <string.h>

#include "base/str.h"

static const contract_adapter *current;

static char *copy(const char *s) {
  char *c = msg_strdup(s);
  assert_true(c || !s);
  return c;
}

/* ---- life of a test ---- */

static int setup(void **state) {
  contract *k = calloc(1, sizeof *k);
  assert_non_null(k);
  k->adapter = current;
  msg_clock_shift(0);
  msg_settings_init(&k->settings);
  k->settings.busy_timeout_ms = 20000;
  k->settings.layout = copy(current->layout);
  current->setup(&k->place, &k->store);
  k->s = contract_session(k, "msg");
  *state = k;
  return 0;
}

static int teardown(void **state) {
  contract *k = *state;
  for (size_t i = 0; i < k->session_count; i++)
    current->session_end(k->place, k->sessions[i]);
  current->teardown(k->place, k->store);
  msg_settings_clear(&k->settings);
  msg_clock_shift(0);
  free(k);
  return 0;
}

static int run_group(const contract_group *g) {
  struct CMUnitTest tests[64];
  char name[128];
  assert_true(g->n <= sizeof tests / sizeof *tests);
  for (size_t i = 0; i < g->n; i++) {
    tests[i] = g->tests[i];
    tests[i].setup_func = setup;
    tests[i].teardown_func = teardown;
  }
  snprintf(name, sizeof name, "%s: %s", current->name, g->name);
  return _cmocka_run_group_tests(name, tests, g->n, NULL, NULL);
}

int contract_run(const contract_adapter *adapter) {
  static const contract_group *const groups[] = {
      &contract_puts,      &contract_finds,   &contract_listens, &contract_directs,
      &contract_claims,    &contract_settles, &contract_admins,  &contract_counts,
      &contract_presences, &contract_watches, &contract_threads};
  int failed = 0;
  current = adapter;
  for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
    failed += run_group(groups[i]);
  return failed;
}

/* ---- helpers ---- */

void contract_ok(int rc, const msg_err *err, const char *file, int line) {
  if (rc == MSG_OK)
    return;
  print_error("%s:%d: %s: %s\n", file, line, msg_rc_name(rc), err->text);
  _fail(file, line);
}

msg_session *contract_session(contract *k, const char *queue) {
  assert_true(k->session_count < CONTRACT_SESSIONS);
  msg_session *s = k->adapter->session(k->place, k->store, queue, &k->settings);
  k->sessions[k->session_count++] = s;
  return s;
}

void contract_needs(contract *k, unsigned caps) {
  if ((k->store->ops->caps(k->store) & caps) != caps)
    skip();
}

void contract_pass(contract *k, int64_t ms) {
  k->shift_ms += ms;
  msg_clock_shift(k->shift_ms);
  if (k->adapter->clock_shift)
    k->adapter->clock_shift(k->place, k->store, k->shift_ms);
}

msg_actor contract_actor(contract *k, const char *node) {
  return (msg_actor){.node = node, .process = msg_process_self(), .settings = &k->settings};
}

msg_pattern *contract_pattern(const char *text) {
  msg_pattern *p = NULL;
  msg_err err = MSG_ERR_INIT;
  contract_ok(msg_pattern_new(text, &p, &err), &err, __FILE__, __LINE__);
  return p;
}

void contract_message(const contract_spec *spec, msg_message *out) {
  msg_message_init(out);
  out->id = msg_oid_is_zero(&spec->id) ? msg_oid_new() : spec->id;
  out->topic = copy(spec->topic);
  if (spec->text) {
    msg_value text = msg_value_text(spec->text);
    assert_int_equal(msg_value_copy(&out->value, &text), MSG_OK);
  }
  out->sender = copy(spec->sender ? spec->sender : "sender");
  out->sender_host = copy("host");
  out->exclusive = spec->exclusive;
  out->priority = spec->priority ? spec->priority : MSG_PRIORITY_DEFAULT;
  out->timestamp_ms = msg_clock_now_ms();
  out->deliver_at_ms = out->timestamp_ms + spec->delay_ms;
  out->timing_out = spec->ttl_ms > 0;
  out->ttl_ms = spec->ttl_ms;
  out->delete_at_ms = spec->ttl_ms ? out->deliver_at_ms + spec->ttl_ms : MSG_NEVER;
  if (spec->to)
    assert_int_equal(msg_message_add_recipient(out, spec->to), MSG_OK);
  if (spec->to_also)
    assert_int_equal(msg_message_add_recipient(out, spec->to_also), MSG_OK);
  if (spec->answers)
    out->in_answer_to = *spec->answers;
  out->group = copy(spec->group);
  out->key = copy(spec->key);
  out->delete_after_processing = spec->delete_after;
  out->delete_after_processing_ms = spec->delete_after_ms;
}

msg_oid contract_put(contract *k, msg_session *s, const contract_spec *spec) {
  msg_message m;
  contract_message(spec, &m);
  msg_actor actor = contract_actor(k, m.sender);
  msg_put put = {.message = &m, .key_until_ms = msg_clock_now_ms() + 300000};
  OK(s->ops->put(s, &actor, &put, 1, &k->err));
  msg_message_clear(&m);
  return put.id;
}

void contract_claim(contract *k, msg_session *s, const char *node, const char *pattern, size_t n,
                    int64_t lease_ms, msg_list *out) {
  msg_pattern *p = contract_pattern(pattern);
  msg_actor actor = contract_actor(k, node);
  msg_claim claim = {.pattern = p, .count = n, .lease_ms = lease_ms};
  OK(s->ops->claim(s, &actor, &claim, out, &k->err));
  msg_pattern_free(p);
}

bool contract_settle(contract *k, const char *node, enum msg_settle_verb verb, const msg_oid *id,
                     const char *token, int64_t ms) {
  msg_actor actor = contract_actor(k, node);
  msg_settle how = {.verb = verb, .delay_ms = ms, .lease_ms = ms, .reason = "refused"};
  msg_settle_item item = {.id = *id, .token = token, .done = false};
  OK(k->s->ops->settle(k->s, &actor, &how, &item, 1, &k->err));
  return item.done;
}

void contract_listen(contract *k, const char *node, const char *pattern, bool catch_up) {
  msg_actor actor = contract_actor(k, node);
  OK(k->s->ops->listen(k->s, &actor, pattern, catch_up, &k->err));
}

void contract_unseen(contract *k, const char *node, const char *pattern, size_t max,
                     msg_list *out) {
  msg_pattern *p = pattern ? contract_pattern(pattern) : NULL;
  msg_actor actor = contract_actor(k, node);
  msg_unseen u = {.pattern = p, .max = max};
  OK(k->s->ops->unseen(k->s, &actor, &u, out, &k->err));
  msg_pattern_free(p);
}

const char *contract_texts(const msg_list *list) {
  static char text[4096];
  size_t n = 0;
  text[0] = 0;
  for (size_t i = 0; i < list->n && n < sizeof text - 64; i++)
    n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", i ? " " : "",
                          list->at[i].value.type == MSG_TEXT ? list->at[i].value.p : "?");
  return text;
}

const char *contract_await(contract *k, const char *node, const char *pattern, size_t max) {
  msg_list list = MSG_LIST_INIT;
  msg_actor actor = contract_actor(k, node);
  contract_unseen(k, node, pattern, max, &list);
  bool won[1024] = {false};
  assert_true(list.n <= max && list.n <= 1024);
  OK(k->s->ops->seen(k->s, &actor, &list, won, &k->err));
  for (size_t i = 0; i < list.n; i++)
    assert_true(won[i]);
  const char *texts = contract_texts(&list);
  msg_list_clear(&list);
  return texts;
}

const char *contract_claimed(contract *k, const char *node, const char *pattern, size_t n) {
  msg_list list = MSG_LIST_INIT;
  contract_claim(k, k->s, node, pattern, n, 30000, &list);
  const char *texts = contract_texts(&list);
  msg_list_clear(&list);
  return texts;
}

int contract_state(contract *k, const msg_oid *id) {
  msg_message m;
  int rc = k->s->ops->get(k->s, id, &m, &k->err);
  if (rc == MSG_NOTFOUND)
    return -1;
  OK(rc);
  int state = (int)m.state;
  msg_message_clear(&m);
  return state;
}

int64_t contract_count(contract *k) {
  msg_filter f;
  msg_find *find = NULL;
  msg_message m;
  int64_t n = 0;
  msg_filter_init(&f);
  OK(k->s->ops->find(k->s, &f, &find, &k->err));
  int rc;
  while ((rc = k->s->ops->find_next(find, &m, &k->err)) == MSG_OK) {
    msg_message_clear(&m);
    n++;
  }
  assert_int_equal(rc, MSG_NOTFOUND);
  k->s->ops->find_close(find);
  msg_filter_clear(&f);
  return n;
}
