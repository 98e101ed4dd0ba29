/* fail.c - a driver's or server's error in our words. Texts of the driver name hosts, never
 * credentials. */
#include <string.h>

#include "base/str.h"
#include "store/mongo/mongo.h"

#define DUPLICATE_KEY 11000

bool msg_mongo_has_label(const bson_t *reply, const char *label) {
  return reply && mongoc_error_has_label(reply, label);
}

bool msg_mongo_is_duplicate(const bson_error_t *error, const bson_t *reply) {
  (void)reply;
  return error->code == DUPLICATE_KEY || error->code == 11001 || error->code == 12582;
}

static bool is_of_server(const bson_error_t *error) {
  return error->domain == MONGOC_ERROR_SERVER || error->domain == MONGOC_ERROR_WRITE_CONCERN ||
         error->domain == MONGOC_ERROR_QUERY || error->domain == MONGOC_ERROR_COMMAND;
}

/* Codes of a server that is not, or no longer, the primary, or on its way out. */
static bool is_stepdown(uint32_t code) {
  static const uint32_t codes[] = {6, 7, 89, 91, 189, 262, 317, 10107, 11600, 11602, 13435, 13436};
  for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++)
    if (codes[i] == code)
      return true;
  return false;
}

bool msg_mongo_is_passing(const bson_error_t *error, const bson_t *reply) {
  if (msg_mongo_has_label(reply, "RetryableWriteError"))
    return true;
  return error->domain == MONGOC_ERROR_STREAM || (is_of_server(error) && is_stepdown(error->code));
}

static int rc_of_server(uint32_t code) {
  switch (code) {
  case 13:
  case 18: return MSG_AUTH;
  case DUPLICATE_KEY: return MSG_EXISTS;
  case 10334: return MSG_TOOBIG; /* BSONObjectTooLarge */
  case 20:
  case 263:
  case 40573: return MSG_UNSUPPORTED;
  case 50:  /* MaxTimeMSExpired */
  case 64:  /* WriteConcernFailed: it may be there all the same */
  case 100: /* UnsatisfiableWriteConcern */
  case 112: return MSG_UNAVAILABLE;
  default: return is_stepdown(code) ? MSG_UNAVAILABLE : MSG_BACKEND;
  }
}

static int rc_of(const bson_error_t *error) {
  if (is_of_server(error))
    return rc_of_server(error->code);
  switch (error->domain) {
  case MONGOC_ERROR_STREAM:
  case MONGOC_ERROR_SERVER_SELECTION: return MSG_UNAVAILABLE;
  case MONGOC_ERROR_CLIENT:
    return error->code == MONGOC_ERROR_CLIENT_AUTHENTICATE ? MSG_AUTH : MSG_UNAVAILABLE;
  case MONGOC_ERROR_SASL:
  case MONGOC_ERROR_SCRAM: return MSG_AUTH;
  case MONGOC_ERROR_BSON:
    return error->code == MONGOC_ERROR_BSON_INVALID ? MSG_INVALID : MSG_TOOBIG;
  default: return MSG_BACKEND;
  }
}

int msg_mongo_fail(const msg_mongo_store *store, const char *what, const bson_error_t *error,
                   const bson_t *reply, msg_err *err) {
  int rc = rc_of(error);
  bool passing = msg_mongo_is_passing(error, reply) ||
                 error->domain == MONGOC_ERROR_SERVER_SELECTION || error->code == 112;
  if (strstr(error->message, "uthentication failed")) /* wrapped by the search for a server */
    rc = MSG_AUTH;
  msg_err_native(err, rc, is_of_server(error) ? MSG_DOMAIN_SERVER : MSG_DOMAIN_MONGOC,
                 (int)error->code, "%s: %s (MongoDB at %s)", what, error->message, store->hosts);
  if (err)
    err->retry = passing;
  return rc;
}
