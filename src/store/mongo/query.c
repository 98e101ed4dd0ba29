#include "store/mongo/query.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

/* ---- pieces ---- */

void msg_mongo_append_oids(bson_t *doc, const char *key, const msg_oid *ids, size_t n) {
  bson_t array;
  char buffer[16];
  const char *k;
  BSON_APPEND_ARRAY_BEGIN(doc, key, &array);
  for (size_t i = 0; i < n; i++) {
    bson_uint32_to_string((uint32_t)i, &k, buffer, sizeof buffer);
    msg_mongo_append_oid(&array, k, &ids[i]);
  }
  bson_append_array_end(doc, &array);
}

void msg_mongo_append_ids(bson_t *doc, const char *key, const char *op, const msg_oid *ids,
                          size_t n) {
  bson_t in;
  BSON_APPEND_DOCUMENT_BEGIN(doc, key, &in);
  msg_mongo_append_oids(&in, op, ids, n);
  bson_append_document_end(doc, &in);
}

void msg_mongo_append_texts(bson_t *doc, const char *key, const char *op, char *const *texts,
                            size_t n, bool null) {
  bson_t in, array;
  char buffer[16];
  const char *k;
  BSON_APPEND_DOCUMENT_BEGIN(doc, key, &in);
  BSON_APPEND_ARRAY_BEGIN(&in, op, &array);
  for (size_t i = 0; i < n; i++) {
    bson_uint32_to_string((uint32_t)i, &k, buffer, sizeof buffer);
    BSON_APPEND_UTF8(&array, k, texts[i]);
  }
  if (null) {
    bson_uint32_to_string((uint32_t)n, &k, buffer, sizeof buffer);
    BSON_APPEND_NULL(&array, k);
  }
  bson_append_array_end(&in, &array);
  bson_append_document_end(doc, &in);
}

void msg_mongo_append_alive(bson_t *doc, int64_t now_ms) {
  BCON_APPEND(doc, "delete_at", "{", "$not", "{", "$lte", BCON_DATE_TIME(now_ms), "}", "}");
}

void msg_mongo_append_alive_now(bson_t *doc) {
  bson_t now;
  msg_mongo_now_expr(&now, 0);
  BCON_APPEND(doc, "$expr", "{", "$or", "[", "{", "$lte", "[", BCON_UTF8("$delete_at"), BCON_NULL,
              "]", "}", "{", "$gt", "[", BCON_UTF8("$delete_at"), BCON_DOCUMENT(&now), "]", "}",
              "]", "}");
  bson_destroy(&now);
}

void msg_mongo_append_untaken(bson_t *doc) {
  BCON_APPEND(doc, "processed_by", "{", "$in", "[", BCON_NULL, "[", "]", "]", "}");
}

void msg_mongo_append_there(bson_t *doc) {
  BCON_APPEND(doc, "sq.state", "{", "$ne", BCON_UTF8("done"), "}");
}

void msg_mongo_now_expr(bson_t *out, int64_t plus_ms) {
  bson_t terms;
  bson_init(out);
  BSON_APPEND_ARRAY_BEGIN(out, "$add", &terms);
  BSON_APPEND_UTF8(&terms, "0", "$$NOW");
  BSON_APPEND_INT64(&terms, "1", plus_ms + msg_clock_shifted());
  bson_append_array_end(out, &terms);
}

void msg_mongo_append_quoted(msg_str *regex, const char *text) {
  for (; *text; text++) {
    if (strchr("\\^$.|?*+()[]{}-", *text))
      msg_str_append(regex, "\\");
    msg_str_appendn(regex, text, 1);
  }
}

/* ---- is there one? ---- */

static int note_one(void *arg, const bson_t *doc, msg_err *err) {
  (void)doc, (void)err;
  *(bool *)arg = true;
  return MSG_OK;
}

int msg_mongo_any(msg_mongo_use *u, const char *collection, const char *what, const bson_t *filter,
                  const char *hint, int64_t max_ms, bool *out, msg_err *err) {
  bson_t *opts = BCON_NEW("limit", BCON_INT64(1), "projection", "{", "_id", BCON_INT32(1), "}");
  if (hint)
    BSON_APPEND_UTF8(opts, "hint", hint);
  if (max_ms > 0)
    BSON_APPEND_INT64(opts, "maxTimeMS", max_ms);
  *out = false;
  int rc = msg_mongo_each(u, collection, what, filter, opts, note_one, out, err);
  bson_destroy(opts);
  return rc;
}
