#include "store/mongo/server.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/str.h"

#define OLDEST_WIRE 8 /* MongoDB 4.2: updates by pipeline, transactions on sharded clusters */
#define CLOCK_TRIES 3
#define DIAGNOSES   3 /* hosts asked one by one why none fits */
#define DIAGNOSE_MS 1000

/* --- replies ------------------------------------------------------------------------------- */

static bool command(mongoc_client_t *client, const char *name, bson_t *reply, bson_error_t *error) {
  bson_t cmd = BSON_INITIALIZER;
  BSON_APPEND_INT32(&cmd, name, 1);
  bool ok = mongoc_client_command_simple(client, "admin", &cmd, NULL, reply, error);
  bson_destroy(&cmd);
  return ok;
}

static const char *text_of(const bson_t *doc, const char *key) {
  bson_iter_t it;
  return bson_iter_init_find(&it, doc, key) && BSON_ITER_HOLDS_UTF8(&it) ? bson_iter_utf8(&it, NULL)
                                                                         : NULL;
}

static int64_t number_of(const bson_t *doc, const char *key) {
  bson_iter_t it;
  return bson_iter_init_find(&it, doc, key) ? bson_iter_as_int64(&it) : 0;
}

/* --- the clock ----------------------------------------------------------------------------- */

bool msg_mongo_server_clock(mongoc_client_t *client, int64_t *offset_ms, int64_t *within_ms) {
  bool known = false;
  for (int i = 0; i < CLOCK_TRIES; i++) {
    bson_t reply;
    bson_iter_t it;
    int64_t before = msg_clock_now_ms() - msg_clock_shifted();
    bool ok = command(client, "hello", &reply, NULL);
    int64_t after = msg_clock_now_ms() - msg_clock_shifted();
    int64_t half = (after - before + 1) / 2;
    if (ok && bson_iter_init_find(&it, &reply, "localTime") && BSON_ITER_HOLDS_DATE_TIME(&it) &&
        (!known || half < *within_ms)) {
      known = true;
      *within_ms = half;
      *offset_ms = bson_iter_date_time(&it) - before - half;
    }
    bson_destroy(&reply);
  }
  return known;
}

/* --- why none fits ------------------------------------------------------------------------- */

/* Asks one host for its replica set, whatever set was wanted. False: no answer. */
static bool ask_set(const mongoc_uri_t *like, const mongoc_host_list_t *host, char *out,
                    size_t size) {
  char text[320];
  bson_t reply;
  bson_error_t error = {0};
  snprintf(text, sizeof text, "mongodb://%s/?directConnection=true", host->host_and_port);
  mongoc_uri_t *uri = mongoc_uri_new(text);
  if (!uri)
    return false;
  mongoc_uri_set_option_as_int32(uri, MONGOC_URI_SERVERSELECTIONTIMEOUTMS, DIAGNOSE_MS);
  mongoc_uri_set_option_as_int32(uri, MONGOC_URI_CONNECTTIMEOUTMS, DIAGNOSE_MS);
  mongoc_uri_set_option_as_int32(uri, MONGOC_URI_SOCKETTIMEOUTMS, DIAGNOSE_MS);
  if (mongoc_uri_get_tls(like))
    mongoc_uri_set_option_as_bool(uri, MONGOC_URI_TLS, true);
  mongoc_client_t *client = mongoc_client_new_from_uri(uri);
  mongoc_uri_destroy(uri);
  if (!client)
    return false;
  bool ok = command(client, "hello", &reply, &error);
  if (ok)
    snprintf(out, size, "%s", text_of(&reply, "setName") ? text_of(&reply, "setName") : "");
  bson_destroy(&reply);
  mongoc_client_destroy(client);
  return ok;
}

/* Adds to the text that the hosts are of another replica set, if that is why. */
static void diagnose(const mongoc_uri_t *uri, msg_err *err) {
  const char *wanted = mongoc_uri_get_replica_set(uri);
  const mongoc_host_list_t *host = mongoc_uri_get_hosts(uri);
  char set[128], before[sizeof err->text];
  if (!err || !wanted || mongoc_uri_get_srv_hostname(uri))
    return;
  for (int i = 0; host && i < DIAGNOSES; i++, host = host->next) {
    if (!ask_set(uri, host, set, sizeof set) || strcmp(set, wanted) == 0)
      continue;
    memcpy(before, err->text, sizeof before);
    msg_err_native(err, err->rc, err->domain, err->native, "open: %s is %s%s%s, not of '%s'%s: %s",
                   host->host_and_port, set[0] ? "of replica set '" : "no member of a replica set",
                   msg_show(set).s, set[0] ? "'" : "", msg_show(wanted).s,
                   set[0] ? ": correct replicaSet" : ": leave replicaSet out", before);
    err->retry = true;
    return;
  }
}

/* --- meeting ------------------------------------------------------------------------------- */

/* Morphium's own server takes no update by pipeline, which marks, claims and settling are, and
 * leaves out what it cannot compute. */
static bool is_poppydb(const bson_t *hello) {
  bson_iter_t it;
  return bson_iter_init_find(&it, hello, "poppyDB") && bson_iter_as_bool(&it);
}

static int read_hello(msg_mongo_store *s, const bson_t *hello, msg_err *err) {
  const char *kind = text_of(hello, "msg");
  if (is_poppydb(hello))
    return msg_err_set(err, MSG_UNSUPPORTED,
                       "open: the server is PoppyDB, which takes no updates by pipeline: use "
                       "MongoDB 4.2 or newer, for the Java nodes too (MongoDB at %s)",
                       s->hosts);
  s->sharded = kind && strcmp(kind, "isdbgrid") == 0;
  s->replicated = s->sharded || text_of(hello, "setName") != NULL;
  if (number_of(hello, "maxWireVersion") >= OLDEST_WIRE)
    return MSG_OK;
  return msg_err_set(err, MSG_UNSUPPORTED,
                     "open: the server is older than MongoDB 4.2: upgrade it (MongoDB at %s)",
                     s->hosts);
}

static int meet(msg_mongo_store *s, mongoc_client_t *client, msg_err *err) {
  bson_t reply;
  bson_error_t error = {0};
  int64_t offset_ms, within_ms;
  int rc = command(client, "hello", &reply, &error) ? read_hello(s, &reply, err)
                                                    : msg_mongo_fail(s, "open", &error, NULL, err);
  bson_destroy(&reply);
  if (rc != MSG_OK)
    return rc;
  if (command(client, "buildInfo", &reply, &error) && text_of(&reply, "version"))
    snprintf(s->version, sizeof s->version, "%s", text_of(&reply, "version"));
  bson_destroy(&reply);
  if (msg_mongo_server_clock(client, &offset_ms, &within_ms) &&
      (offset_ms > within_ms || -offset_ms > within_ms))
    s->clock_offset_ms = offset_ms;
  return MSG_OK;
}

int msg_mongo_server_meet(msg_mongo_store *s, const mongoc_uri_t *uri, msg_err *err) {
  msg_mongo_use u;
  int rc = msg_mongo_take(s, "open", &u, err);
  if (rc != MSG_OK)
    return rc;
  rc = meet(s, u.client, err);
  msg_mongo_give(&u);
  if (rc == MSG_UNAVAILABLE)
    diagnose(uri, err);
  return rc;
}
