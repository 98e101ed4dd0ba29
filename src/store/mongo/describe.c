/* describe.c - what msg_doctor says of a MongoDB store. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "store/mongo/server.h"
#include "store/mongo/tend.h"

#define CLOCK_WARN_MS 1000

/* One listing under way. */
struct telling {
  msg_mongo_session *s;
  msg_mongo_use *u;
  msg_describe_fn fn;
  void *arg;
};

static int tell(const struct telling *t, const char *item, const char *value, const char *advice) {
  return t->fn(t->arg, item, value, advice);
}

/* What cannot be had is told as that. */
static int tell_failure(const struct telling *t, const char *item, const bson_error_t *error) {
  msg_err err = MSG_ERR_INIT;
  msg_mongo_fail(t->s->store, item, error, NULL, &err);
  return tell(t, item, "unknown", err.text);
}

static bool command(const struct telling *t, const bson_t *cmd, bson_t *reply, bson_error_t *e) {
  return mongoc_client_command_simple(t->u->client, "admin", cmd, NULL, reply, e);
}

static const char *text_of(const bson_t *doc, const char *path) {
  bson_iter_t it, at;
  return bson_iter_init(&it, doc) && bson_iter_find_descendant(&it, path, &at) &&
                 BSON_ITER_HOLDS_UTF8(&at)
             ? bson_iter_utf8(&at, NULL)
             : NULL;
}

/* --- the driver ---------------------------------------------------------------------------- */

static int tell_driver(const struct telling *t) {
  char text[80];
  snprintf(text, sizeof text, "%s (msg was built for %s)", mongoc_get_version(), MONGOC_VERSION_S);
  int rc = tell(t, "libmongoc", text, NULL);
  if (rc != MSG_OK)
    return rc;
  const mongoc_uri_t *uri = mongoc_client_get_uri(t->u->client);
  bool tls = mongoc_uri_get_tls(uri), local = true;
  for (const mongoc_host_list_t *h = mongoc_uri_get_hosts(uri); h; h = h->next)
    local = local && (h->host[0] == '/' || strcmp(h->host, "localhost") == 0 ||
                      strncmp(h->host, "127.", 4) == 0 || strcmp(h->host, "::1") == 0);
  return tell(t, "TLS", tls ? "on" : "off",
              tls || local ? NULL : "messages and names pass in the clear: add tls=true");
}

/* --- the servers --------------------------------------------------------------------------- */

static int tell_server(const struct telling *t) {
  return tell(t, "server", t->s->store->version[0] ? t->s->store->version : "unknown", NULL);
}

static void append_hosts(msg_str *s, const bson_t *hello) {
  bson_iter_t it, host;
  const char *primary = text_of(hello, "primary");
  if (!bson_iter_init_find(&it, hello, "hosts") || !BSON_ITER_HOLDS_ARRAY(&it) ||
      !bson_iter_recurse(&it, &host))
    return;
  while (bson_iter_next(&host)) {
    const char *name = BSON_ITER_HOLDS_UTF8(&host) ? bson_iter_utf8(&host, NULL) : "";
    msg_str_appendf(s, "%s %s%s", s->n ? "," : "", name,
                    primary && strcmp(primary, name) == 0 ? " (primary)" : "");
  }
}

static int tell_topology(const struct telling *t) {
  bson_t reply;
  bson_error_t error = {0};
  msg_str s = MSG_STR_INIT;
  const char *advice = NULL;
  bson_t *hello = BCON_NEW("hello", BCON_INT32(1));
  bool ok = command(t, hello, &reply, &error);
  bson_destroy(hello);
  const char *set = ok ? text_of(&reply, "setName") : NULL;
  if (set) {
    append_hosts(&s, &reply);
    char *hosts = msg_str_take(&s);
    msg_str_appendf(&s, "replica set '%s':%s", set, hosts ? hosts : "");
    msg_free(hosts);
    if (!mongoc_uri_get_replica_set(mongoc_client_get_uri(t->u->client)))
      advice = "the connection string names one member alone, so a failover is not followed: add "
               "replicaSet";
  } else if (t->s->store->sharded) {
    msg_str_append(&s, "sharded cluster");
    advice = "shard queues by _id alone, and without groups";
  } else {
    msg_str_append(&s, "standalone");
    advice = "no change streams and no transactions: polled every poll_pause_ms; start mongod with "
             "--replSet";
  }
  int rc = ok ? tell(t, "topology", s.s ? s.s : "", advice) : tell_failure(t, "topology", &error);
  msg_str_clear(&s);
  bson_destroy(&reply);
  return rc;
}

static int tell_clock(const struct telling *t) {
  int64_t offset_ms, within_ms;
  char text[80];
  if (!msg_mongo_server_clock(t->u->client, &offset_ms, &within_ms))
    return tell(t, "clock difference", "unknown", NULL);
  snprintf(text, sizeof text, "server %+lld ms, within %lld ms", (long long)offset_ms,
           (long long)within_ms);
  bool far = offset_ms - within_ms > CLOCK_WARN_MS || offset_ms + within_ms < -CLOCK_WARN_MS;
  return tell(t, "clock difference", text,
              far ? "Java nodes judge lives by their own clocks: keep all machines on NTP" : NULL);
}

/* Java's locks and marks are written with the server's default. */
static int tell_concern(const struct telling *t) {
  bson_t reply;
  bson_error_t error = {0};
  bson_iter_t it, at;
  char text[40] = "server's own (majority)";
  bool majority = true;
  bson_t *cmd = BCON_NEW("getDefaultRWConcern", BCON_INT32(1));
  bool ok = command(t, cmd, &reply, &error);
  bson_destroy(cmd);
  if (ok && bson_iter_init(&it, &reply) &&
      bson_iter_find_descendant(&it, "defaultWriteConcern.w", &at)) {
    const char *w = BSON_ITER_HOLDS_UTF8(&at) ? bson_iter_utf8(&at, NULL) : NULL;
    majority = w && strcmp(w, "majority") == 0;
    if (w)
      snprintf(text, sizeof text, "w: %.30s", w);
    else
      snprintf(text, sizeof text, "w: %lld", (long long)bson_iter_as_int64(&at));
  } else if (ok && strncmp(t->s->store->version, "4.", 2) == 0) { /* 5.0 made majority implicit */
    majority = false;
    snprintf(text, sizeof text, "server's own (w: 1)");
  }
  bson_destroy(&reply);
  if (!ok && !t->s->store->replicated)
    return tell(t, "default write concern", "w: 1 (standalone)", NULL);
  if (!ok && error.code == 13) /* Unauthorized */
    return tell(t, "default write concern", "unknown",
                "this user may not see it: give it the role clusterMonitor, or look by "
                "getDefaultRWConcern that w is 'majority'");
  if (!ok)
    return tell_failure(t, "default write concern", &error);
  return tell(t, "default write concern", text,
              majority
                  ? NULL
                  : "Java nodes' locks can be lost in a failover: run setDefaultRWConcern with "
                    "w: 'majority'");
}

static int tell_layout(const struct telling *t) {
  msg_mongo_tend *tend = t->s->store->tend;
  char text[sizeof tend->layout.text];
  msg_mutex_lock(tend->mtx);
  memcpy(text, tend->layout.text, sizeof text);
  msg_mutex_unlock(tend->mtx);
  if (!text[0])
    return tell(t, "layout", t->s->queue->layout->name, NULL);
  return tell(t, "layout", text,
              "give all nodes of the queue one layout, or the others another queue");
}

int msg_mongo_describe(msg_session *base, msg_describe_fn fn, void *arg, msg_err *err) {
  msg_mongo_session *s = (msg_mongo_session *)base;
  msg_mongo_use u;
  int rc = fn(arg, "store", "mongodb", NULL);
  if (rc == MSG_OK)
    rc = fn(arg, "hosts", s->store->hosts, NULL);
  if (rc == MSG_OK)
    rc = fn(arg, "database", s->store->db, NULL);
  if (rc == MSG_OK)
    rc = msg_mongo_take(s->store, "doctor", &u, err);
  if (rc != MSG_OK)
    return rc;
  const struct telling t = {s, &u, fn, arg};
  static int (*const TELLERS[])(const struct telling *) = {tell_driver, tell_server,  tell_topology,
                                                           tell_clock,  tell_concern, tell_layout};
  for (size_t i = 0; rc == MSG_OK && i < sizeof TELLERS / sizeof TELLERS[0]; i++)
    rc = TELLERS[i](&t);
  msg_mongo_give(&u);
  return rc;
}
