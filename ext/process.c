/* The inspection tables of this process: msg_cursors, msg_stats, msg_settings, msg_doctor. */
#include <string.h>

#include "base/mem.h"
#include "engine/cursors.h"
#include "ext/doctor.h"
#include "ext/snapshot.h"
#include "ext/values.h"

/* --- msg_cursors --------------------------------------------------------------------------- */

static msg_value unless(int64_t i, int64_t none) {
  return i == none ? (msg_value){0} : msg_value_int(i);
}

static int add_cursor(void *arg, const msg_cursor_info *info) {
  msg_rows *rows = arg;
  msg_value *row = msg_rows_add(rows);
  if (!row)
    return MSG_NOMEM;
  msg_rows_text(rows, &row[0], info->store);
  msg_rows_text(rows, &row[1], info->state);
  msg_rows_text(rows, &row[2], info->how);
  row[3] = unless(info->last_event_ms, 0);
  row[4] = unless(info->token_age_ms, -1);
  row[5] = unless(info->lag_ms, -1);
  row[6] = msg_value_int(info->restarts);
  msg_rows_text(rows, &row[7], info->last_error && info->last_error[0] ? info->last_error : NULL);
  row[8] = msg_value_int(info->waiters);
  return msg_rows_status(rows);
}

static int load_cursors(msg_table *t, msg_rows *rows, msg_err *err) {
  msg_opened *o;
  int rc = msg_connection_node(t->c, NULL, &o, err); /* checks the fork */
  return rc == MSG_OK ? msg_engine_cursors(add_cursor, rows, err) : rc;
}

/* --- msg_stats ----------------------------------------------------------------------------- */

static int load_stats(msg_table *t, msg_rows *rows, msg_err *err) {
  msg_opened *o;
  int rc = msg_connection_node(t->c, NULL, &o, err);
  if (rc != MSG_OK)
    return rc;
  for (o = msg_connection_next(t->c, NULL); o; o = msg_connection_next(t->c, o)) {
    for (int s = 0; s < MSG_STAT_COUNT; s++) {
      msg_value *row = msg_rows_add(rows);
      if (!row)
        return msg_err_nomem(err);
      msg_rows_text(rows, &row[0], msg_node_id(o->node));
      msg_rows_text(rows, &row[1], msg_stat_name((enum msg_stat)s));
      row[2] = msg_value_int(msg_node_stat(o->node, (enum msg_stat)s));
    }
  }
  return MSG_OK;
}

/* --- msg_settings -------------------------------------------------------------------------- */

static void add_setting(msg_rows *rows, const msg_settings *settings,
                        const msg_setting_info *info) {
  msg_value value;
  msg_value *row = msg_rows_add(rows);
  if (!row)
    return;
  msg_rows_text(rows, &row[0], info->name);
  if (msg_settings_get(settings, info->name, &value) && msg_value_copy(&row[1], &value) != MSG_OK)
    rows->nomem = true;
  msg_rows_text(rows, &row[2], info->dflt);
  msg_rows_text(rows, &row[3], info->unit[0] ? info->unit : NULL);
  row[4] = msg_value_int(info->runtime);
  msg_rows_text(rows, &row[5], info->help);
}

static int load_settings(msg_table *t, msg_rows *rows, msg_err *err) {
  msg_opened *o;
  msg_settings settings;
  int rc = msg_connection_node(t->c, NULL, &o, err);
  if (rc == MSG_OK)
    rc = msg_node_settings(o->node, &settings, err);
  if (rc != MSG_OK)
    return rc;
  for (size_t i = 0; i < msg_settings_count(); i++)
    add_setting(rows, &settings, msg_settings_info(i));
  msg_settings_clear(&settings);
  return MSG_OK;
}

static int change_setting(msg_table *t, const char *key, sqlite3_value *value, msg_err *err) {
  msg_opened *o;
  msg_value v;
  int rc = msg_value_read(value, &v, err);
  if (rc == MSG_OK)
    rc = msg_connection_node(t->c, NULL, &o, err);
  return rc == MSG_OK ? msg_node_configure(o->node, key, &v, false, err) : rc;
}

/* --- msg_doctor ---------------------------------------------------------------------------- */

static int add_fact(void *arg, const char *item, const char *value, const char *advice) {
  msg_rows *rows = arg;
  msg_value *row = msg_rows_add(rows);
  if (!row)
    return MSG_NOMEM;
  msg_rows_text(rows, &row[0], item);
  msg_rows_text(rows, &row[1], value);
  msg_rows_text(rows, &row[2], advice);
  return msg_rows_status(rows);
}

static int load_doctor(msg_table *t, msg_rows *rows, msg_err *err) {
  return msg_doctor_rows(t->c, add_fact, rows, err);
}

/* ------------------------------------------------------------------------------------------- */

const msg_snapshot_def msg_process_tables[] = {
    {.name = "msg_cursors",
     .sql = "CREATE TABLE x(store TEXT, state TEXT, how TEXT, last_event INTEGER,"
            " token_age_ms INTEGER, lag_ms INTEGER, restarts INTEGER, last_error TEXT,"
            " waiters INTEGER)",
     .columns = 9,
     .load = load_cursors},
    {.name = "msg_stats",
     .sql = "CREATE TABLE x(node TEXT, name TEXT, value INTEGER)",
     .columns = 3,
     .load = load_stats},
    {.name = "msg_settings",
     .sql = "CREATE TABLE x(name TEXT PRIMARY KEY NOT NULL, value, \"default\" TEXT, unit TEXT,"
            " runtime INTEGER, help TEXT) WITHOUT ROWID",
     .columns = 6,
     .load = load_settings,
     .update = change_setting,
     .changing = 1},
    {.name = "msg_doctor",
     .sql = "CREATE TABLE x(item TEXT, value TEXT, advice TEXT)",
     .columns = 3,
     .load = load_doctor},
};
const size_t msg_process_table_count = sizeof msg_process_tables / sizeof msg_process_tables[0];
