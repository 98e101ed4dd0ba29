/* clock.c - the server's time. The tests' shift of this process's clock moves it too. */
#include "base/clock.h"

#include "store/mongo/mongo.h"

int64_t msg_mongo_now_ms(const msg_mongo_store *store) {
  return msg_clock_now_ms() + store->clock_offset_ms;
}

void msg_mongo_append_now(bson_t *doc, const char *key, int64_t plus_ms) {
  int64_t plus = plus_ms + msg_clock_shifted();
  bson_t sum, terms;
  if (plus == 0) {
    BSON_APPEND_UTF8(doc, key, "$$NOW");
    return;
  }
  BSON_APPEND_DOCUMENT_BEGIN(doc, key, &sum);
  BSON_APPEND_ARRAY_BEGIN(&sum, "$add", &terms);
  BSON_APPEND_UTF8(&terms, "0", "$$NOW");
  BSON_APPEND_INT64(&terms, "1", plus);
  bson_append_array_end(&sum, &terms);
  bson_append_document_end(doc, &sum);
}
