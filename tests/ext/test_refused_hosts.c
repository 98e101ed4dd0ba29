/* Hosts that msg refuses, each in a process of its own: SQLite too old or without mutexes, and a
 * second copy of SQLite. What such a host is, its API table says. */
#include "support/cmocka_compat.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include <sqlite3ext.h>

#include "support/child.h"
#include "support/host.h"

typedef int (*entry)(sqlite3 *db, char **error, const sqlite3_api_routines *api);

static const sqlite3_api_routines *own; /* the API table of the SQLite linked here */

static int take_api(sqlite3 *db, char **error, const sqlite3_api_routines *api) {
  (void)db;
  (void)error;
  own = api;
  return SQLITE_OK;
}

static int none(void) {
  return 0;
}

static int old(void) {
  return 3037002;
}

/* What the entry point says; "" when it loads. */
static const char *load(const sqlite3_api_routines *api) {
  static char text[256];
  char *error = NULL;
  sqlite3 *db = NULL;
  const char *so = getenv("MSG_SO");
  void *library = dlopen(so ? so : MSG_SO_PATH, RTLD_NOW);
  entry init = NULL;
  if (library)
    *(void **)&init = dlsym(library, "sqlite3_msg_init");
  if (!init || sqlite3_open(":memory:", &db) != SQLITE_OK)
    return "cannot try";
  int rc = init(db, &error, api);
  sqlite3_snprintf((int)sizeof text, text, "%s",
                   error                              ? error
                   : rc == SQLITE_OK_LOAD_PERMANENTLY ? ""
                                                      : "an error without a text");
  sqlite3_free(error);
  sqlite3_close(db);
  return text;
}

static int is(const char *want, const sqlite3_api_routines *api) {
  const char *text = load(api);
  if (want[0] ? strstr(text, want) != NULL : !text[0])
    return 0;
  print_error("wanted \"%s\", got \"%s\"\n", want, text);
  return 1;
}

static int without_mutexes(void *arg) {
  static sqlite3_api_routines api;
  (void)arg;
  api = *own;
  api.xthreadsafe = none;
  return is("msg: UNSUPPORTED: this SQLite was built with SQLITE_THREADSAFE=0", &api);
}

static int too_old(void *arg) {
  static sqlite3_api_routines api;
  (void)arg;
  api = *own;
  api.libversion_number = old;
  return is("msg: UNSUPPORTED: SQLite is older than 3.38", &api);
}

/* The first one is served, before and after. */
static int second_copy(void *arg) {
  static sqlite3_api_routines other;
  (void)arg;
  other = *own;
  return is("", own) + is("msg: UNSUPPORTED: this process holds a second copy of SQLite", &other) +
         is("", own);
}

static void run(int (*f)(void *)) {
  sqlite3_auto_extension((void (*)(void))take_api);
  host_close(host_plain(":memory:", 0));
  sqlite3_cancel_auto_extension((void (*)(void))take_api);
  assert_non_null(own);
  assert_int_equal(child_run(f, NULL), 0);
}

static void a_host_without_mutexes(void **state) {
  (void)state;
  run(without_mutexes);
}

static void a_host_that_is_too_old(void **state) {
  (void)state;
  run(too_old);
}

static void a_second_copy_of_sqlite(void **state) {
  (void)state;
  run(second_copy);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_host_without_mutexes),
      cmocka_unit_test(a_host_that_is_too_old),
      cmocka_unit_test(a_second_copy_of_sqlite),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
