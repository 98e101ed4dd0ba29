#include "store/mongo/open.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "store/mongo/closing.h"
#include "store/mongo/marks.h"
#include "store/mongo/mongo.h"
#include "store/mongo/server.h"
#include "store/mongo/tend.h"

/* A server that refused once is asked again by then: libmongoc's 10 s would be a long pause. */
#define HEARTBEAT_MS 1000
/* How long a server may be silent when nothing keeps it. */
#define ANSWER_MS 4000

/* --- the process --------------------------------------------------------------------------- */

static int start_once;

/* What libmongoc has to say comes back as errors; its own log goes to the host's terminal. */
static void quiet(mongoc_log_level_t level, const char *domain, const char *text, void *arg) {
  (void)level, (void)domain, (void)text, (void)arg;
}

/* mongoc_cleanup never follows: the host may use libmongoc too, and it cannot be started again. */
static void start(void) {
  mongoc_log_set_handler(quiet, NULL);
  mongoc_init();
  msg_mongo_closing_start();
}

/* --- the connection string ----------------------------------------------------------------- */

/* Does a text of the driver's repeat what stands between user and host? */
static bool betrays(const char *text, const char *uri) {
  const char *from = strstr(uri, "://");
  const char *at = from ? strrchr(from, '@') : NULL;
  const char *colon = at ? memchr(from + 3, ':', (size_t)(at - from - 3)) : NULL;
  char secret[256];
  if (!colon || at == colon + 1)
    return false;
  snprintf(secret, sizeof secret, "%.*s", (int)(at - colon - 1), colon + 1);
  return strstr(text, secret) != NULL;
}

/* A list of hosts and ports, and nothing that could be a mistyped password? */
static bool is_hosts(const char *s) {
  bool port = false;
  for (; *s; s++) {
    bool digit = *s >= '0' && *s <= '9';
    bool letter = (*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') || *s == '.' || *s == '-';
    if (*s == ':')
      port = true;
    else if (*s == ',')
      port = false;
    else if (!digit && (port || !letter))
      return false;
  }
  return true;
}

/* What stands between credentials and database, for texts; "?" if it may be something else. */
static msg_shown hosts_in(const char *text) {
  char hosts[128];
  const char *from = strstr(text, "://");
  from = from ? from + 3 : text + strlen(text);
  const char *at = strrchr(from, '@');
  from = at ? at + 1 : from;
  snprintf(hosts, sizeof hosts, "%.*s", (int)strcspn(from, "/?"), from);
  return msg_show(is_hosts(hosts) ? hosts : "?");
}

/* libmongoc takes what follows an '@' of the password for a host, and names it. */
static bool names_hosts(const mongoc_uri_t *uri) {
  const mongoc_host_list_t *h = mongoc_uri_get_hosts(uri);
  while (h && !strchr(h->host, '@'))
    h = h->next;
  return h == NULL;
}

static int parse(const char *text, mongoc_uri_t **out, msg_err *err) {
  bson_error_t error = {0};
  mongoc_uri_t *uri = mongoc_uri_new_with_error(text, &error);
  if (uri && !names_hosts(uri)) {
    mongoc_uri_destroy(uri);
    uri = NULL;
    snprintf(error.message, sizeof error.message, "an '@' too many");
  }
  if (!uri) {
    msg_shown hosts = hosts_in(text);
    bool told = strcmp(hosts.s, "?") != 0 && !betrays(error.message, text);
    return msg_err_set(err, MSG_INVALID,
                       "target 'mongodb' at '%s': %s: give mongodb://[user:password@]host[:port],"
                       ".../database[?options], with %%40 for an '@' in a name or password",
                       hosts.s, told ? error.message : "not a connection string");
  }
  const char *db = mongoc_uri_get_database(uri);
  if (!db || !db[0]) {
    mongoc_uri_destroy(uri);
    return msg_err_set(err, MSG_INVALID,
                       "target 'mongodb': the connection string names no database: give "
                       "mongodb://host/database");
  }
  *out = uri;
  return MSG_OK;
}

/* "host:port,host:port"; the name to look up of a mongodb+srv://. */
static char *hosts_of(const mongoc_uri_t *uri) {
  msg_str s = MSG_STR_INIT;
  const char *srv = mongoc_uri_get_srv_hostname(uri);
  if (srv)
    msg_str_append(&s, srv);
  for (const mongoc_host_list_t *h = mongoc_uri_get_hosts(uri); h && !srv; h = h->next)
    msg_str_appendf(&s, "%s%s", s.n ? "," : "", h->host_and_port);
  return msg_str_take(&s);
}

/* FNV-1a. */
static uint64_t digest(const char *text, uint64_t seed) {
  uint64_t h = UINT64_C(14695981039346656037) ^ seed;
  for (; *text; text++)
    h = (h ^ (unsigned char)*text) * UINT64_C(1099511628211);
  return h;
}

int msg_mongo_identify(const char *text, char *out, msg_err *err) {
  mongoc_uri_t *uri;
  msg_once(&start_once, start);
  int rc = parse(text, &uri, err);
  if (rc != MSG_OK)
    return rc;
  char *hosts = hosts_of(uri);
  snprintf(out, MSG_MONGO_KEY_MAX, "mongo:%016llx%016llx:%s/%s",
           (unsigned long long)digest(text, 0),
           (unsigned long long)digest(text, UINT64_C(0x9e3779b97f4a7c15)), hosts ? hosts : "",
           mongoc_uri_get_database(uri));
  mongoc_uri_destroy(uri);
  if (!hosts)
    return msg_err_nomem(err);
  msg_free(hosts);
  return MSG_OK;
}

/* Concerns and time limits are ours: a message must not be lost, a call must end. */
static bool set_defaults(mongoc_uri_t *uri) {
  mongoc_write_concern_t *wc = mongoc_write_concern_new();
  mongoc_read_prefs_t *primary = mongoc_read_prefs_new(MONGOC_READ_PRIMARY);
  mongoc_write_concern_set_wmajority(wc, MSG_MONGO_WRITE_MS);
  mongoc_write_concern_set_journal(wc, true);
  mongoc_uri_set_write_concern(uri, wc);
  mongoc_uri_set_read_prefs_t(uri, primary);
  mongoc_write_concern_destroy(wc);
  mongoc_read_prefs_destroy(primary);
  return mongoc_uri_set_option_as_int32(uri, MONGOC_URI_SERVERSELECTIONTIMEOUTMS,
                                        MSG_MONGO_SELECT_MS) &&
         mongoc_uri_set_option_as_int32(uri, MONGOC_URI_SOCKETTIMEOUTMS, MSG_MONGO_SOCKET_MS) &&
         mongoc_uri_set_option_as_int32(uri, MONGOC_URI_CONNECTTIMEOUTMS, MSG_MONGO_SELECT_MS) &&
         mongoc_uri_set_option_as_int32(uri, MONGOC_URI_WAITQUEUETIMEOUTMS, MSG_MONGO_POOL_MS) &&
         mongoc_uri_set_option_as_int32(uri, MONGOC_URI_HEARTBEATFREQUENCYMS, HEARTBEAT_MS) &&
         mongoc_uri_set_option_as_bool(uri, MONGOC_URI_RETRYWRITES, true) &&
         mongoc_uri_set_option_as_bool(uri, MONGOC_URI_RETRYREADS, true);
}

/* --- opening ------------------------------------------------------------------------------- */

static mongoc_client_pool_t *new_pool(const mongoc_uri_t *uri, uint32_t size, bson_error_t *error) {
  mongoc_client_pool_t *pool = mongoc_client_pool_new_with_error(uri, error);
  if (!pool)
    return NULL;
  mongoc_client_pool_max_size(pool, size);
  mongoc_client_pool_set_error_api(pool, MONGOC_ERROR_API_VERSION_2);
  if (!mongoc_uri_get_option_as_utf8(uri, MONGOC_URI_APPNAME, NULL))
    mongoc_client_pool_set_appname(pool, "sqlite-msg");
  return pool;
}

static int connect_pools(msg_mongo_store *s, mongoc_uri_t *uri, msg_err *err) {
  bson_error_t error = {0};
  s->operations = new_pool(uri, MSG_MONGO_OPERATIONS, &error);
  mongoc_uri_set_option_as_int32(uri, MONGOC_URI_SOCKETTIMEOUTMS, MSG_MONGO_AWAIT_MS + ANSWER_MS);
  if (s->operations)
    s->cursors = new_pool(uri, MSG_MONGO_CURSORS, &error);
  if (s->cursors)
    return MSG_OK;
  int rc = msg_mongo_fail(s, mongoc_uri_get_srv_hostname(uri) ? "open: look-up of SRV" : "open",
                          &error, NULL, err);
  if (err && mongoc_uri_get_srv_hostname(uri))
    msg_err_set(err, rc, "%.400s: or give the seed list, mongodb://host,host/database", err->text);
  return rc;
}

static int build(msg_mongo_store *s, mongoc_uri_t *uri, msg_err *err) {
  s->base.ops = &msg_mongo_ops;
  s->generation = msg_fork_generation();
  s->hosts = hosts_of(uri);
  s->db = msg_strdup(mongoc_uri_get_database(uri));
  s->mtx = msg_mutex_new();
  s->tend = msg_mongo_tend_new();
  s->chores = msg_mongo_marker_run;
  if (!s->hosts || !s->db || !s->mtx || !s->tend)
    return msg_err_nomem(err);
  if (!set_defaults(uri))
    return msg_err_set(err, MSG_INVALID,
                       "target 'mongodb': the time limits of the connection string cannot be set: "
                       "leave them out");
  int rc = connect_pools(s, uri, err);
  return rc == MSG_OK ? msg_mongo_server_meet(s, uri, err) : rc;
}

int msg_mongo_open(const char *text, msg_store **out, msg_err *err) {
  mongoc_uri_t *uri;
  msg_once(&start_once, start);
  int rc = parse(text, &uri, err);
  if (rc != MSG_OK)
    return rc;
  msg_mongo_store *s = msg_zalloc(sizeof *s);
  rc = s ? build(s, uri, err) : msg_err_nomem(err);
  mongoc_uri_destroy(uri);
  if (rc == MSG_OK)
    *out = &s->base;
  else if (s)
    s->base.ops->store_close(&s->base);
  return rc;
}
