/* Every statement of the store, whatever statistics there are. The statements are read out of
 * msg.so, so that none is forgotten; those that find.c builds: test_local_read.c. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/cmocka_compat.h"
#include "support/local_plans.h"

static char *load(size_t *n) {
  FILE *f = fopen(MSG_SO_PATH, "rb");
  assert_non_null(f);
  assert_int_equal(fseek(f, 0, SEEK_END), 0);
  *n = (size_t)ftell(f);
  rewind(f);
  char *bytes = malloc(*n + 1);
  assert_non_null(bytes);
  assert_int_equal(fread(bytes, 1, *n, f), *n);
  bytes[*n] = '\0';
  fclose(f);
  return bytes;
}

static int begins(const char *text, const char *const *with) {
  for (; *with; with++)
    if (strncmp(text, *with, strlen(*with)) == 0)
      return 1;
  return 0;
}

/* Of a text that names a table of the store: to be checked, or known to be no whole statement. */
static int is_statement(const char *text) {
  static const char *const first[] = {"SELECT ", "INSERT ", "UPDATE ", "DELETE ", "WITH ", NULL};
  static const char *const unfinished[] = {
      "SELECT tbl,",                                           /* SQLite's */
      "INSERT INTO @.msg_store(version, store_id) VALUES(%d,", /* schema.c */
      "UPDATE @.msg_store SET version = %d", NULL};
  if (!begins(text, first) || begins(text, unfinished))
    return 0;
  const char *end = text + strlen(text);
  return strcmp(end - 1, "(") != 0 && strcmp(end - 5, " AS m") != 0; /* find.c goes on */
}

/* A part of one must not look like something else. */
static void check_rest(const char *text) {
  static const char *const known[] = {"CREATE ", "EXPLAIN ", "INSERT INTO @.msg_store(version",
                                      "UPDATE @.msg_store SET version = %d", "SELECT m.seq AS seq,",
                                      /* parts of find.c's */
                                      "m.state ", " FROM @.msg_store_message AS w", NULL};
  if (strstr(text, "@.msg_store") && !begins(text, known))
    fail_msg("what is this? %s", text);
}

static void every_statement_goes_one_way(void **state) {
  (void)state;
  size_t n, found = 0;
  char *bytes = load(&n);
  for (size_t i = 0, len; i < n; i += len + 1) {
    const char *text = bytes + i;
    len = strlen(text);
    const char *end = text + len;
    while (end > text && (isprint((unsigned char)end[-1])))
      end--;
    if (!strstr(end, "msg_store_") && !strstr(end, "@.msg_store"))
      continue;
    if (is_statement(end)) {
      local_plans_check(end);
      found++;
    } else {
      check_rest(end);
    }
  }
  free(bytes);
  local_plans_close();
  if (found < 120)
    fail_msg("only %zu statements", found);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_statement_goes_one_way)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
