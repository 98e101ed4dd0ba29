/* clock.c - the server's time. The tests' shift of this process's clock moves it too. */
#include "base/clock.h"

#include "store/mongo/mongo.h"

int64_t msg_mongo_now_ms(const msg_mongo_store *store) {
  return msg_clock_now_ms() + store->clock_offset_ms;
}
