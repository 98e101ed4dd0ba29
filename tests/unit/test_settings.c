#include "model/settings.h"

#include <stdio.h>
#include <string.h>

#include "support/cmocka_compat.h"
#include "support/fail_alloc.h"

#define INT(x)  ((struct given){msg_value_int(x), false})
#define BOOL(x) ((struct given){msg_value_int(x), true})
#define TEXT(x) ((struct given){msg_value_text(x), false})
#define REAL(x) ((struct given){{.type = MSG_REAL, .r = (x)}, false})
#define NOTHING ((struct given){{.type = MSG_NULL}, false})

struct given {
  msg_value v;
  bool is_bool;
};

static msg_settings s;

static int setup(void **state) {
  (void)state;
  msg_settings_init(&s);
  return 0;
}

static int teardown(void **state) {
  (void)state;
  msg_settings_clear(&s);
  return 0;
}

static void good(const char *name, struct given g) {
  msg_err err = MSG_ERR_INIT;
  if (msg_settings_set(&s, name, &g.v, g.is_bool, false, &err) != MSG_OK)
    fail_msg("%s: %s", name, err.text);
}

/* Refused with this text, and nothing changed. */
static void bad(const char *name, struct given g, const char *why) {
  msg_err err = MSG_ERR_INIT;
  msg_settings before = s;
  assert_int_equal(msg_settings_set(&s, name, &g.v, g.is_bool, false, &err), MSG_INVALID);
  assert_string_equal(err.text, why);
  assert_memory_equal(&before, &s, sizeof s);
}

static msg_value get(const char *name) {
  msg_value v;
  assert_true(msg_settings_get(&s, name, &v));
  assert_false(v.owned);
  return v;
}

static void defaults(void **state) {
  (void)state;
  assert_string_equal(get("queue").p, "msg");
  assert_string_equal(msg_settings_queue(&s), "msg");
  assert_int_equal(get("sender_id").type, MSG_NULL);
  assert_int_equal(get("journal_mode").type, MSG_NULL);
  assert_true(get("catch_up").i == 0);
  assert_string_equal(get("indexes").p, "full");
  assert_string_equal(msg_settings_indexes(&s), "full");
  assert_string_equal(get("layout").p, "standard");
  assert_string_equal(msg_settings_layout(&s), "standard");
  assert_string_equal(get("implementation_check").p, "warn");
  assert_string_equal(msg_settings_implementation_check(&s), "warn");
  assert_true(get("use_change_stream").i == 1);
  assert_true(get("write_timeout_ms").i == 5000);
  assert_true(get("busy_timeout_ms").i == 5000);
  assert_true(get("default_ttl_ms").i == 30000);
  assert_true(get("lease_ms").i == 30000);
  assert_true(get("await_timeout_ms").i == 1000);
  assert_true(get("key_window_ms").i == 300000);
  assert_true(get("max_attempts").i == 20);
  assert_true(get("window_size").i == 100);
  assert_true(get("poll_pause_ms").i == 50);
  assert_true(get("participant_timeout_ms").i == 65000);
  assert_true(get("registry_enabled").i == 0);
  assert_string_equal(get("registry_check_topics").p, "ignore");
  assert_string_equal(msg_settings_registry_check_topics(&s), "ignore");
  assert_string_equal(get("registry_check_recipients").p, "ignore");
  assert_string_equal(msg_settings_registry_check_recipients(&s), "ignore");
  assert_true(get("registry_update_interval_s").i == 30);
  assert_true(get("dm_cleanup_orphans_on_startup").i == 1);
  msg_value v;
  assert_false(msg_settings_get(&s, "nonsense", &v));
}

static void table_tells_the_truth(void **state) {
  (void)state;
  assert_int_equal(msg_settings_count(), 23);
  for (size_t i = 0; i < msg_settings_count(); i++) {
    const msg_setting_info *info = msg_settings_info(i);
    msg_value v = get(info->name);
    assert_true(strlen(info->help) > 0);
    size_t n = strlen(info->name);
    bool is_ms = n > 3 && strcmp(info->name + n - 3, "_ms") == 0;
    bool is_s = n > 2 && strcmp(info->name + n - 2, "_s") == 0;
    assert_string_equal(info->unit, is_ms                               ? "ms"
                                    : is_s                              ? "s"
                                    : strcmp(info->name, "window_size") ? ""
                                                                        : "messages");
    char text[32];
    bool is_bool = strcmp(info->name, "catch_up") == 0 || strcmp(info->dflt, "true") == 0 ||
                   strcmp(info->dflt, "false") == 0;
    if (v.type == MSG_INT && !is_bool) {
      snprintf(text, sizeof text, "%lld", (long long)v.i);
      assert_string_equal(info->dflt, text);
      bool of_session = strcmp(info->name, "busy_timeout_ms") == 0 ||
                        strcmp(info->name, "write_timeout_ms") == 0 ||
                        strcmp(info->name, "participant_timeout_ms") == 0 || is_s;
      assert_int_equal(info->runtime, !of_session);
    } else {
      bool is_check = strncmp(info->name, "registry_check_", 15) == 0;
      assert_int_equal(info->runtime, is_check);
    }
  }
  assert_null(msg_settings_info(msg_settings_count()));
}

static void checks_need_the_registry(void **state) {
  (void)state;
  static const char *const CHECKS[] = {"registry_check_topics", "registry_check_recipients"};
  msg_err err = MSG_ERR_INIT;
  assert_int_equal(msg_settings_check(&s, NULL), MSG_OK);
  for (int i = 0; i < 2; i++) {
    char why[120];
    good("registry_enabled", BOOL(0));
    good(CHECKS[i], TEXT("Throw"));
    assert_string_equal(get(CHECKS[i]).p, "throw");
    assert_int_equal(msg_settings_check(&s, &err), MSG_INVALID);
    snprintf(why, sizeof why, "setting '%s' is 'throw' while registry_enabled is false", CHECKS[i]);
    assert_non_null(strstr(err.text, why));
    good("registry_enabled", BOOL(1));
    assert_int_equal(msg_settings_check(&s, NULL), MSG_OK);
    good(CHECKS[i], TEXT("ignore"));
  }
  bad("registry_check_topics", TEXT("no"),
      "setting 'registry_check_topics' is 'no': give it ignore, warn or throw");
}

static void numbers(void **state) {
  (void)state;
  static const struct {
    const char *name;
    int64_t lo, hi;
    const char *unit;
  } BOUNDS[] = {
      {"busy_timeout_ms", 0, 86400000, " ms"},
      {"default_ttl_ms", 1, 3153600000000, " ms"},
      {"lease_ms", 1, 3153600000000, " ms"},
      {"await_timeout_ms", 0, 3153600000000, " ms"},
      {"key_window_ms", 1, 3153600000000, " ms"},
      {"max_attempts", 1, 2147483647, ""},
      {"window_size", 1, 100000, " messages"},
      {"poll_pause_ms", 1, 60000, " ms"},
      {"write_timeout_ms", 100, 86400000, " ms"},
      {"participant_timeout_ms", 1000, 86400000, " ms"},
      {"registry_update_interval_s", 1, 86400, " s"},
  };
  char why[200];
  for (size_t i = 0; i < sizeof BOUNDS / sizeof BOUNDS[0]; i++) {
    const char *name = BOUNDS[i].name;
    long long lo = BOUNDS[i].lo, hi = BOUNDS[i].hi;
    good(name, INT(lo));
    assert_true(get(name).i == lo);
    good(name, INT(hi));
    assert_true(get(name).i == hi);
    snprintf(why, sizeof why, "setting '%s' is %lld: give it %lld to %lld%s", name, lo - 1, lo, hi,
             BOUNDS[i].unit);
    bad(name, INT(lo - 1), why);
    snprintf(why, sizeof why, "setting '%s' is %lld: give it %lld to %lld%s", name, hi + 1, lo, hi,
             BOUNDS[i].unit);
    bad(name, INT(hi + 1), why);
  }
  bad("lease_ms", TEXT("30 s"), "setting 'lease_ms' takes an integer, not text (default 30000)");
  bad("lease_ms", REAL(1), "setting 'lease_ms' takes an integer, not real (default 30000)");
  bad("lease_ms", BOOL(1), "setting 'lease_ms' takes an integer, not boolean (default 30000)");
  bad("lease_ms", NOTHING, "setting 'lease_ms' takes an integer, not null (default 30000)");
}

static void texts(void **state) {
  (void)state;
  good("queue", TEXT("billing"));
  good("queue", TEXT("orders"));
  assert_string_equal(get("queue").p, "orders");
  assert_string_equal(msg_settings_queue(&s), "orders");
  good("sender_id", TEXT("worker-1"));
  assert_string_equal(get("sender_id").p, "worker-1");
  bad("queue", TEXT("a b"),
      "queue name 'a b' is not plain: use letters, digits, '_', '-', '.', and "
      "start with a letter or digit");
  bad("queue", INT(1), "setting 'queue' takes text, not integer (default msg)");
  bad("queue", NOTHING, "setting 'queue' takes text, not null (default msg)");
  bad("sender_id", TEXT("self"), "sender id 'self' is reserved by Morphium: choose another name");
  struct given nul = {{.type = MSG_TEXT, .p = "a\0b", .n = 3}, false};
  bad("sender_id", nul, "setting 'sender_id' holds a NUL character: remove it");
}

static void journal_mode(void **state) {
  (void)state;
  static const char *const MODES[] = {"wal", "delete", "truncate", "persist"};
  for (size_t i = 0; i < 4; i++) {
    good("journal_mode", TEXT(MODES[i]));
    assert_string_equal(s.journal_mode, MODES[i]);
  }
  good("journal_mode", TEXT("WAL"));
  assert_string_equal(get("journal_mode").p, "wal");
  bad("journal_mode", TEXT("off"),
      "setting 'journal_mode' is 'off': give it wal, delete, truncate or persist");
  bad("journal_mode", TEXT(""),
      "setting 'journal_mode' is '': give it wal, delete, truncate or persist");
}

static void words_and_truths(void **state) {
  (void)state;
  good("indexes", TEXT("LEAN"));
  assert_string_equal(msg_settings_indexes(&s), "lean");
  bad("indexes", TEXT("none"), "setting 'indexes' is 'none': give it full or lean");
  good("layout", TEXT("Dual"));
  assert_string_equal(msg_settings_layout(&s), "dual");
  bad("layout", TEXT("triple"), "setting 'layout' is 'triple': give it standard, multi or dual");
  good("implementation_check", TEXT("Throw"));
  assert_string_equal(msg_settings_implementation_check(&s), "throw");
  bad("implementation_check", TEXT("no"),
      "setting 'implementation_check' is 'no': give it warn, throw or ignore");
  good("use_change_stream", BOOL(0));
  assert_false(s.use_change_stream);
  good("use_change_stream", INT(1));
  assert_true(s.use_change_stream);
  bad("use_change_stream", TEXT("auto"),
      "setting 'use_change_stream' takes true or false, not text (default true)");
  bad("use_change_stream", INT(2),
      "setting 'use_change_stream' takes true or false, not integer (default true)");
}

static void catch_up(void **state) {
  (void)state;
  assert_false(msg_settings_catch_up(&s));
  good("sender_id", TEXT("n"));
  assert_true(msg_settings_catch_up(&s));
  assert_true(get("catch_up").i == 1);
  good("catch_up", BOOL(0));
  assert_true(s.catch_up_set && !s.catch_up);
  assert_false(msg_settings_catch_up(&s));
  good("catch_up", TEXT("auto"));
  assert_false(s.catch_up_set);
  assert_true(msg_settings_catch_up(&s));
  good("catch_up", INT(1));
  assert_true(s.catch_up_set && s.catch_up);
  bad("catch_up", TEXT("yes"),
      "setting 'catch_up' takes true, false or 'auto', not text (default auto)");
  bad("catch_up", INT(2),
      "setting 'catch_up' takes true, false or 'auto', not integer (default auto)");
  bad("catch_up", NOTHING,
      "setting 'catch_up' takes true, false or 'auto', not null (default auto)");
}

static void unknown_names(void **state) {
  (void)state;
  bad("lease", INT(1), "unknown setting 'lease': did you mean 'lease_ms'?");
  bad("patience", INT(1), "unknown setting 'patience': see table msg_settings");
  bad("leese_ms", INT(1), "unknown setting 'leese_ms': did you mean 'lease_ms'?");
  bad("", INT(1), "unknown setting '': see table msg_settings");
}

static void open_nodes_keep_what_is_fixed(void **state) {
  (void)state;
  static const char *const FIXED[] = {"queue",
                                      "sender_id",
                                      "catch_up",
                                      "journal_mode",
                                      "indexes",
                                      "layout",
                                      "implementation_check",
                                      "use_change_stream"};
  msg_value v = msg_value_text("wal"), n = msg_value_int(7);
  msg_err err = MSG_ERR_INIT;
  for (size_t i = 0; i < sizeof FIXED / sizeof FIXED[0]; i++) {
    char why[100];
    assert_int_equal(msg_settings_set(&s, FIXED[i], &v, false, true, &err), MSG_MISUSE);
    snprintf(why, sizeof why, "setting '%s' is fixed while the node is open: give it to msg_open",
             FIXED[i]);
    assert_string_equal(err.text, why);
  }
  assert_null(s.queue);
  assert_int_equal(msg_settings_set(&s, "window_size", &n, false, true, &err), MSG_OK);
  assert_true(s.window_size == 7);
}

static void copies(void **state) {
  (void)state;
  msg_settings copy;
  good("queue", TEXT("q"));
  good("sender_id", TEXT("n"));
  good("journal_mode", TEXT("wal"));
  good("lease_ms", INT(7));
  assert_int_equal(msg_settings_copy(&copy, &s), MSG_OK);
  assert_string_equal(copy.queue, "q");
  assert_ptr_not_equal(copy.queue, s.queue);
  assert_string_equal(copy.sender_id, "n");
  assert_string_equal(copy.journal_mode, "wal");
  assert_true(copy.lease_ms == 7);
  msg_settings_clear(&copy);
  assert_null(copy.queue);
  assert_true(copy.lease_ms == 30000);
  teardown(NULL);
  assert_int_equal(msg_settings_copy(&copy, &s), MSG_OK);
  assert_null(copy.queue);
}

static int set_and_copy(void *arg) {
  (void)arg;
  msg_settings a, b;
  msg_value q = msg_value_text("q"), w = msg_value_text("WAL");
  msg_settings_init(&a);
  msg_settings_init(&b);
  int rc = msg_settings_set(&a, "queue", &q, false, false, NULL);
  if (rc == MSG_OK)
    rc = msg_settings_set(&a, "sender_id", &q, false, false, NULL);
  if (rc == MSG_OK)
    rc = msg_settings_set(&a, "journal_mode", &w, false, false, NULL);
  if (rc == MSG_OK)
    rc = msg_settings_set(&a, "queue", &q, false, false, NULL);
  if (rc == MSG_OK)
    rc = msg_settings_copy(&b, &a);
  msg_settings_clear(&a);
  msg_settings_clear(&b);
  return rc;
}

static void allocation_failures(void **state) {
  (void)state;
  fail_alloc_install();
  assert_int_equal(fail_alloc_each(set_and_copy, NULL), 7);
  fail_alloc_remove();
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(defaults),
      TEST(table_tells_the_truth),
      TEST(checks_need_the_registry),
      TEST(numbers),
      TEST(texts),
      TEST(journal_mode),
      TEST(catch_up),
      TEST(unknown_names),
      TEST(open_nodes_keep_what_is_fixed),
      TEST(words_and_truths),
      TEST(copies),
      TEST(allocation_failures),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
