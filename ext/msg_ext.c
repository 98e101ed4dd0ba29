/* msg_ext.c - the entry point, what a process sets up once, and the adapters by name. */
#define MSG_EXT_MAIN
#include "ext/sqlite.h"
#ifndef SQLITE_CORE
SQLITE_EXTENSION_INIT1
#endif

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "base/thread.h"
#include "ext/aside.h"
#include "ext/nested.h"
#include "ext/tables.h"
#include "store/local/host.h"
#ifdef MSG_HAVE_MONGODB
#include "store/mongo/open.h"
#endif

#define OLDEST_SQLITE 3038000 /* RETURNING, txn_state, built-in JSON */

#ifdef _WIN32
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

/* --- the local store ----------------------------------------------------------------------- */

/* "local" or "local:SCHEMA". */
static const char *schema_of(const char *target) {
  return target[strlen("local")] == ':' ? target + strlen("local:") : "main";
}

static int lend(msg_connection *c, const char *schema, msg_opened *o, msg_err *err) {
  o->schema = msg_strdup(schema);
  o->host = msg_zalloc(sizeof *o->host);
  if (!o->schema || !o->host)
    return msg_err_nomem(err);
  *o->host = (msg_host){msg_connection_db(c), o->schema, msg_nested_interrupted, c};
  return MSG_OK;
}

/* With a reference. Another connection of this process may have the file open already. */
static int find_store(msg_host *host, msg_store **out, msg_err *err) {
  char key[96];
  msg_store *made = NULL;
  int rc = msg_local_identify(host, key, err);
  if (rc != MSG_OK)
    return rc;
  *out = msg_registry_find(key);
  if (*out)
    return MSG_OK;
  rc = msg_local_open(host, &made, err);
  return rc == MSG_OK ? msg_registry_add(key, made, out, err) : rc;
}

/* Only where the user asked for it: the journal mode is theirs. */
static int set_journal_mode(msg_connection *c, const char *schema, const char *mode, msg_err *err) {
  char now[16];
  char *sql = sqlite3_mprintf("PRAGMA \"%w\".journal_mode=%s", schema, mode);
  if (!sql)
    return msg_err_nomem(err);
  int rc = msg_nested_text(c, sql, now, sizeof now, err);
  sqlite3_free(sql);
  if (rc != MSG_OK || sqlite3_stricmp(now, mode) == 0 || strcmp(now, "memory") == 0)
    return rc;
  return msg_err_set(err, MSG_UNSUPPORTED,
                     "schema '%s' stays in journal mode '%s', not '%s': open it without "
                     "journal_mode, or alone",
                     msg_show(schema).s, now, mode);
}

static int open_local(msg_connection *c, const char *target, const msg_settings *settings,
                      msg_opened *o, msg_err *err) {
  const char *schema = schema_of(target);
  msg_store *store;
  int rc = lend(c, schema, o, err);
  if (rc == MSG_OK)
    rc = find_store(o->host, &store, err);
  if (rc != MSG_OK)
    return rc;
  if (settings->journal_mode)
    rc = set_journal_mode(c, schema, settings->journal_mode, err);
  if (rc == MSG_OK)
    rc = store->ops->session_open(store, o->host, msg_settings_queue(settings), settings,
                                  &o->session, err);
  if (rc == MSG_OK)
    rc = msg_node_open(store, settings, &o->node, err);
  msg_registry_unref(store);
  return rc;
}

/* Who opens the file's new holder must not meet the old one. */
static int check_local(msg_opened *o, msg_err *err) {
  bool gone;
  int rc = msg_local_check(o->host, msg_node_store(o->node), &gone, err);
  if (gone)
    msg_registry_forget(msg_node_store(o->node));
  return rc;
}

static bool query_only(msg_connection *c) {
  char on[4];
  return msg_nested_text(c, "PRAGMA query_only", on, sizeof on, NULL) != MSG_OK ||
         strcmp(on, "0") != 0;
}

static int rights_local(msg_opened *o, msg_err *err) {
  msg_rights rights;
  if (msg_local_unchanged(o->session) && o->rights_known)
    return MSG_OK;
  int rc = msg_local_rights(o->host->db, o->schema, &rights, err);
  o->query_only = query_only(o->host->arg);
  o->rights_known = rc == MSG_OK && rights.known;
  o->all_rights = rights.all;
  return rc;
}

static bool host_writes(msg_connection *c) {
  return msg_local_host_writes(msg_connection_db(c));
}

static bool allows_aside_local(msg_opened *o) {
  return sqlite3_db_readonly(o->host->db, o->schema) == 0 && o->all_rights && !o->query_only;
}

static void bind_aside_local(msg_opened *o) {
  msg_local_act_for(o->aside, o->host);
}

static void close_local(msg_opened *o) {
  msg_free(o->host);
  msg_free(o->schema);
}

/* --- the MongoDB store --------------------------------------------------------------------- */

#ifdef MSG_HAVE_MONGODB

static int stop_first_once, stop_first_rc;

/* The driver is up by then, and so are its exit handlers. */
static void stop_first(void) {
  stop_first_rc = msg_engine_stop_first(NULL);
}

/* With a reference. One a queue: each has a cursor thread of its own. */
static int find_mongo(const char *target, const char *queue, msg_store **out, msg_err *err) {
  char key[MSG_MONGO_KEY_MAX + MSG_QUEUE_MAX + 2], *end;
  msg_store *made = NULL;
  int rc = msg_mongo_identify(target, key, err);
  if (rc != MSG_OK)
    return rc;
  msg_once(&stop_first_once, stop_first);
  if (stop_first_rc != MSG_OK)
    return msg_err_nomem(err);
  end = key + strlen(key);
  sqlite3_snprintf((int)(key + sizeof key - end), end, "#%s", queue);
  *out = msg_registry_find(key);
  if (*out)
    return MSG_OK;
  rc = msg_mongo_open(target, &made, err);
  return rc == MSG_OK ? msg_registry_add(key, made, out, err) : rc;
}

static int open_mongo(msg_connection *c, const char *target, const msg_settings *settings,
                      msg_opened *o, msg_err *err) {
  const char *queue = msg_settings_queue(settings);
  msg_store *store;
  (void)c;
  int rc = find_mongo(target, queue, &store, err);
  if (rc != MSG_OK)
    return rc;
  rc = store->ops->session_open(store, NULL, queue, settings, &o->session, err);
  if (rc == MSG_OK)
    rc = msg_node_open(store, settings, &o->node, err);
  msg_registry_unref(store);
  return rc;
}

#endif

static const msg_adapter ADAPTERS[] = {
    {"local", open_local, check_local, rights_local, host_writes, allows_aside_local,
     bind_aside_local, close_local},
#ifdef MSG_HAVE_MONGODB
    {"mongodb", open_mongo, NULL, NULL, host_writes, NULL, NULL, NULL},
    {"mongodb+srv", open_mongo, NULL, NULL, host_writes, NULL, NULL, NULL},
#endif
};

/* --- the process --------------------------------------------------------------------------- */

static void *host_alloc(size_t n) {
  return sqlite3_malloc64(n);
}

static void *host_resize(void *p, size_t n) {
  return sqlite3_realloc64(p, n);
}

static void host_release(void *p) {
  sqlite3_free(p);
}

static int glob(const char *pattern, const char *text) {
  return sqlite3_strglob(pattern, text);
}

static int setup_once;

static void setup(void) {
  static const msg_mem_hooks HOOKS = {host_alloc, host_resize, host_release};
  msg_mem_set(&HOOKS);
  msg_pattern_set_glob(glob);
  msg_connection_set_adapters(ADAPTERS, sizeof ADAPTERS / sizeof ADAPTERS[0]);
}

/* --- a connection -------------------------------------------------------------------------- */

static int register_all(msg_connection *c) {
  static int (*const REGISTER[])(msg_connection *) = {
      msg_table_outbox_register,  msg_table_messages_register, msg_table_queue_register,
      msg_table_receive_register, msg_table_status_register,   msg_functions_register,
  };
  int rc = SQLITE_OK;
  for (size_t i = 0; rc == SQLITE_OK && i < sizeof REGISTER / sizeof REGISTER[0]; i++)
    rc = REGISTER[i](c);
  return rc;
}

static int refuse(char **error, const char *text) {
  if (error)
    *error = sqlite3_mprintf("msg: UNSUPPORTED: %s", text);
  return SQLITE_ERROR;
}

static int check_host(char **error) {
  if (sqlite3_libversion_number() < OLDEST_SQLITE)
    return refuse(error, "SQLite is older than 3.38: load msg into a newer one");
  if (sqlite3_threadsafe() == 0)
    return refuse(error,
                  "this SQLite was built with SQLITE_THREADSAFE=0, and msg waits in threads: "
                  "use one built with 1 or 2");
  return SQLITE_OK;
}

/* Loaded a second time on one connection: all is there. */
static int connect_host(sqlite3 *db, char **error) {
  msg_connection *c;
  msg_err err = MSG_ERR_INIT;
  if (msg_connection_find(db))
    return SQLITE_OK_LOAD_PERMANENTLY;
  if (msg_engine_start(&err) != MSG_OK || msg_connection_new(db, &c, &err) != MSG_OK)
    return err.rc == MSG_NOMEM ? SQLITE_NOMEM : refuse(error, err.text);
  int rc = register_all(c);
  msg_connection_unref(c);
  return rc == SQLITE_OK ? SQLITE_OK_LOAD_PERMANENTLY : rc;
}

#ifndef SQLITE_CORE
/* Written once: other threads read it without a lock. False: it is another SQLite's. */
static bool adopt_api(const sqlite3_api_routines *api) {
  msg_global_lock();
  if (!sqlite3_api)
    SQLITE_EXTENSION_INIT2(api);
  bool same = sqlite3_api == api;
  msg_global_unlock();
  return same;
}
#endif

EXPORT int sqlite3_msg_init(sqlite3 *db, char **error, const sqlite3_api_routines *api);

/** Register everything on `db`. Reads and writes no database file. */
int sqlite3_msg_init(sqlite3 *db, char **error, const sqlite3_api_routines *api) {
#ifndef SQLITE_CORE
  if (!adopt_api(api)) {
    if (error) /* freed by the SQLite that asks */
      *error = api->mprintf("msg: UNSUPPORTED: this process holds a second copy of SQLite, and msg "
                            "serves the first: two break each other's file locks");
    return SQLITE_ERROR;
  }
#else
  (void)api;
#endif
  int rc = check_host(error);
  if (rc != SQLITE_OK)
    return rc;
  msg_once(&setup_once, setup);
  return connect_host(db, error);
}
