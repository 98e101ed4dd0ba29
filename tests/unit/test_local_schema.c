/* schema.c: what is there, making it, versions. */
#include <string.h>

#include "support/cmocka_compat.h"
#include "support/local_rig.h"

static local_rig rig;

static int look_into(enum msg_schema_state *out) {
  return msg_local_schema_state((msg_local_session *)rig.session, out, &rig.err);
}

static enum msg_schema_state look(void) {
  enum msg_schema_state state;
  assert_int_equal(look_into(&state), MSG_OK);
  return state;
}

static void opening_touches_nothing(void **state) {
  (void)state;
  assert_int_equal(look(), MSG_SCHEMA_NONE);
  assert_int_equal(local_number(&rig, "SELECT count(*) FROM sqlite_schema"), 0);
}

static void made_once_with_an_id(void **state) {
  (void)state;
  assert_int_equal(msg_schema_make(rig.db, "main", &rig.err), MSG_OK);
  assert_int_equal(look(), MSG_SCHEMA_CURRENT);
  assert_int_equal(
      local_number(&rig, "SELECT version = 1 AND length(store_id) = 32 FROM msg_store"), 1);
  int64_t tables = local_number(&rig, "SELECT count(*) FROM sqlite_schema");
  assert_int_equal(msg_schema_make(rig.db, "main", &rig.err), MSG_OK);
  assert_int_equal(local_number(&rig, "SELECT count(*) FROM sqlite_schema"), tables);
  assert_int_equal(local_number(&rig, "SELECT count(*) FROM msg_store"), 1);
  assert_int_equal(local_number(&rig, "PRAGMA user_version"), 0);
}

static void ids_of_stores_differ(void **state) {
  (void)state;
  local_sql(&rig, "ATTACH ':memory:' AS \"o\"\"ther\"");
  assert_int_equal(msg_schema_make(rig.db, "main", &rig.err), MSG_OK);
  assert_int_equal(msg_schema_make(rig.db, "o\"ther", &rig.err), MSG_OK);
  assert_int_equal(local_number(&rig, "SELECT a.store_id = b.store_id FROM main.msg_store AS a, "
                                      "\"o\"\"ther\".msg_store AS b"),
                   0);
}

static void everything_is_ours_by_name(void **state) {
  (void)state;
  assert_int_equal(msg_schema_make(rig.db, "main", &rig.err), MSG_OK);
  assert_int_equal(
      local_number(&rig, "SELECT count(*) FROM sqlite_schema WHERE name NOT LIKE "
                         "'msg\\_store%' ESCAPE '\\' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"),
      0);
}

static void newer_version_is_refused(void **state) {
  (void)state;
  local_send(&rig, "t", "x");
  local_sql(&rig, "UPDATE msg_store SET version = 7");
  enum msg_schema_state found;
  assert_int_equal(look_into(&found), MSG_UNSUPPORTED);
  assert_non_null(strstr(rig.err.text, "version 7"));
  assert_non_null(strstr(rig.err.text, "up to 1"));
  assert_non_null(strstr(rig.err.text, "newer msg.so"));
  assert_int_equal(msg_schema_make(rig.db, "main", &rig.err), MSG_UNSUPPORTED);
  rig.session->ops->session_release(rig.session);
  msg_message m = local_message("t", "x");
  msg_oid id;
  assert_int_equal(local_put_rc(&rig, &m, &id), MSG_UNSUPPORTED);
  msg_message_clear(&m);
  assert_int_equal(local_number(&rig, "SELECT count(*) FROM msg_store_message"), 1);
}

static void broken_version_row_is_corrupt(void **state) {
  (void)state;
  enum msg_schema_state found;
  local_send(&rig, "t", "x");
  local_sql(&rig, "UPDATE msg_store SET version = 0");
  assert_int_equal(look_into(&found), MSG_CORRUPT);
  local_sql(&rig, "DELETE FROM msg_store");
  assert_int_equal(look_into(&found), MSG_CORRUPT);
}

static void names_that_are_taken_are_left_alone(void **state) {
  (void)state;
  local_sql(&rig, "CREATE TABLE msg_store_lane(mine)");
  msg_message m = local_message("t", "x");
  msg_oid id;
  assert_int_equal(local_put_rc(&rig, &m, &id), MSG_BACKEND);
  assert_non_null(strstr(rig.err.text, "msg_store_lane already exists"));
  assert_int_equal(look(), MSG_SCHEMA_NONE);
  assert_int_equal(local_number(&rig, "SELECT count(*) FROM sqlite_schema WHERE type = 'table'"),
                   1);
  msg_message_clear(&m);
}

static void utf16_databases_work(void **state) {
  (void)state;
  local_sql(&rig, "PRAGMA encoding = 'UTF-16'");
  local_send(&rig, "Zoë", "wärme");
  assert_string_equal(local_claimed(&rig, "Zoë", 1), "wärme");
}

#define TEST(f) LOCAL_TEST(f, &rig)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(opening_touches_nothing),
      TEST(made_once_with_an_id),
      TEST(ids_of_stores_differ),
      TEST(everything_is_ours_by_name),
      TEST(newer_version_is_refused),
      TEST(broken_version_row_is_corrupt),
      TEST(names_that_are_taken_are_left_alone),
      TEST(utf16_databases_work),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
