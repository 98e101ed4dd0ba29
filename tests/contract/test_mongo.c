/* The contract on MongoDB: a database a test, on the server that the run shares. Other layouts:
 * test_mongo_multi.c, test_mongo_dual.c. */
#include <mongoc/mongoc.h>
#include <sqlite3.h>
#include <unistd.h>

#include "store/mongo/open.h"
#include "support/contract.h"
#include "support/mongod.h"

#ifndef LAYOUT
#define LAYOUT "standard"
#endif

static mongoc_client_t *client;

struct place {
  char database[64];
};

static void setup(void **place, msg_store **store) {
  static int number;
  char uri[1200];
  msg_err err = MSG_ERR_INIT;
  struct place *p = calloc(1, sizeof *p);
  assert_non_null(p);
  snprintf(p->database, sizeof p->database, "contract_%ld_%d", (long)getpid(), number++);
  mongod_database(p->database, NULL, uri, sizeof uri);
  contract_ok(msg_mongo_open(uri, store, &err), &err, __FILE__, __LINE__);
  *place = p;
}

static msg_session *session(void *place, msg_store *store, const char *queue,
                            const msg_settings *settings) {
  msg_session *s = NULL;
  msg_err err = MSG_ERR_INIT;
  (void)place;
  contract_ok(store->ops->session_open(store, NULL, queue, settings, &s, &err), &err, __FILE__,
              __LINE__);
  return s;
}

static void session_end(void *place, msg_session *s) {
  (void)place;
  s->ops->session_close(s);
}

static void drop(const char *name) {
  bson_error_t error;
  mongoc_database_t *database = mongoc_client_get_database(client, name);
  if (!mongoc_database_drop(database, &error))
    print_error("%s stays: %s\n", name, error.message);
  mongoc_database_destroy(database);
}

static void teardown(void *place, msg_store *store) {
  struct place *p = place;
  store->ops->store_close(store);
  drop(p->database);
  free(p);
}

int main(void) {
  static const contract_adapter mongo = {.name = "MongoDB, layout " LAYOUT,
                                         .layout = LAYOUT,
                                         .setup = setup,
                                         .session = session,
                                         .session_end = session_end,
                                         .teardown = teardown};
  const char *uri = mongod_uri();
  msg_pattern_set_glob(sqlite3_strglob);
  mongoc_init();
  client = mongoc_client_new(uri);
  if (!client)
    return 1;
  int failed = contract_run(&mongo);
  mongoc_client_destroy(client);
  return failed;
}
