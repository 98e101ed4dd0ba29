#include "store/mongo/acked.h"

#include <stdlib.h>
#include <string.h>

#include "store/mongo/query.h"

static int note_acked(void *arg, const bson_t *doc, msg_err *err) {
  const char *token = msg_mongo_get_text(doc, "_id");
  return token && msg_texts_add(arg, token) != MSG_OK ? msg_err_nomem(err) : MSG_OK;
}

static int acked_read(const msg_mongo_session *s, msg_mongo_use *u, msg_mongo_acked *acked,
                      msg_err *err) {
  bson_t *filter = BCON_NEW("done", BCON_BOOL(true));
  bson_t *opts = BCON_NEW("projection", "{", "_id", BCON_INT32(1), "}", "sort", "{", "_id",
                          BCON_INT32(1), "}");
  int rc = msg_mongo_each(u, s->queue->names.leases, "look at leases", filter, opts, note_acked,
                          &acked->tokens, err);
  acked->known = rc == MSG_OK;
  bson_destroy(opts);
  bson_destroy(filter);
  return rc;
}

static int by_text(const void *key, const void *text) {
  return strcmp(key, *(char *const *)text);
}

/* Who empties processed_by by hand wants it to be handed out again. */
static bool is_leased(const bson_t *doc) {
  const char *state = msg_mongo_get_text(doc, "sq.state");
  bson_iter_t field, it;
  return state && strcmp(state, "claimed") == 0 && msg_mongo_get_int(doc, "sq.lease", 0) != 0 &&
         bson_iter_init_find(&field, doc, "processed_by") && BSON_ITER_HOLDS_ARRAY(&field) &&
         bson_iter_recurse(&field, &it) && bson_iter_next(&it);
}

int msg_mongo_is_acked(const msg_mongo_session *s, msg_mongo_use *u, msg_mongo_acked *acked,
                       const bson_t *doc, bool *out, msg_err *err) {
  *out = false;
  if (!is_leased(doc))
    return MSG_OK;
  int rc = acked->known ? MSG_OK : acked_read(s, u, acked, err);
  const char *token = msg_mongo_get_text(doc, "sq.token");
  *out = rc == MSG_OK && token && acked->tokens.n &&
         bsearch(token, acked->tokens.at, acked->tokens.n, sizeof *acked->tokens.at, by_text);
  return rc;
}

void msg_mongo_acked_clear(msg_mongo_acked *acked) {
  msg_texts_clear(&acked->tokens);
  acked->known = false;
}

void msg_mongo_append_unacked(bson_t *lookup, bson_t *match, const msg_mongo_session *s,
                              const char *field) {
  BCON_APPEND(lookup, "from", BCON_UTF8(s->queue->names.leases), "localField", BCON_UTF8(field),
              "foreignField", BCON_UTF8("_id"), "as", BCON_UTF8("lease"));
  BCON_APPEND(match, "lease.done", "{", "$ne", BCON_BOOL(true), "}");
}
