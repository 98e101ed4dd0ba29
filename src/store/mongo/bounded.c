#include "store/mongo/bounded.h"

#include "base/clock.h"

/* Any free number of libmongoc's, which has none for others' streams. */
#define STREAM_TYPE 77

/* Before libmongoc's own stream, which it owns. */
typedef struct bounded {
  mongoc_stream_t vtable;
  mongoc_stream_t *base;
} bounded;

static _Thread_local int64_t bound_ms; /* 0: none */

void msg_mongo_bound(int64_t until_ms) {
  bound_ms = until_ms == MSG_NEVER ? 0 : until_ms;
}

static int32_t within(int32_t timeout_ms) {
  if (!bound_ms)
    return timeout_ms;
  int64_t left_ms = bound_ms - msg_clock_mono_ms();
  if (left_ms < 1)
    left_ms = 1;
  return timeout_ms >= 0 && timeout_ms < left_ms ? timeout_ms : (int32_t)left_ms;
}

static mongoc_stream_t *base_of(mongoc_stream_t *s) {
  return ((bounded *)s)->base;
}

static ssize_t stream_readv(mongoc_stream_t *s, mongoc_iovec_t *iov, size_t n, size_t min_bytes,
                            int32_t timeout_ms) {
  return mongoc_stream_readv(base_of(s), iov, n, min_bytes, within(timeout_ms));
}

static ssize_t stream_writev(mongoc_stream_t *s, mongoc_iovec_t *iov, size_t n,
                             int32_t timeout_ms) {
  return mongoc_stream_writev(base_of(s), iov, n, within(timeout_ms));
}

/* ---- as they are ---- */

static void stream_destroy(mongoc_stream_t *s) {
  mongoc_stream_destroy(base_of(s));
  bson_free(s);
}

static int stream_close(mongoc_stream_t *s) {
  return mongoc_stream_close(base_of(s));
}

static void stream_failed(mongoc_stream_t *s) {
  mongoc_stream_failed(base_of(s));
  bson_free(s);
}

static int stream_flush(mongoc_stream_t *s) {
  return mongoc_stream_flush(base_of(s));
}

static int stream_setsockopt(mongoc_stream_t *s, int level, int name, void *value,
                             mongoc_socklen_t size) {
  return mongoc_stream_setsockopt(base_of(s), level, name, value, size);
}

static bool stream_check_closed(mongoc_stream_t *s) {
  return mongoc_stream_check_closed(base_of(s));
}

static bool stream_timed_out(mongoc_stream_t *s) {
  return mongoc_stream_timed_out(base_of(s));
}

static bool stream_should_retry(mongoc_stream_t *s) {
  return mongoc_stream_should_retry(base_of(s));
}

/* ---- making them ---- */

static mongoc_stream_t *connect_bounded(const mongoc_uri_t *uri, const mongoc_host_list_t *host,
                                        void *client, bson_error_t *error) {
  mongoc_stream_t *base = mongoc_client_default_stream_initiator(uri, host, client, error);
  if (!base)
    return NULL;
  bounded *s = bson_malloc0(sizeof *s); /* it outlives the store: closing.h */
  s->base = base;
  s->vtable = (mongoc_stream_t){.type = STREAM_TYPE,
                                .destroy = stream_destroy,
                                .close = stream_close,
                                .flush = stream_flush,
                                .writev = stream_writev,
                                .readv = stream_readv,
                                .setsockopt = stream_setsockopt,
                                .get_base_stream = base_of,
                                .check_closed = stream_check_closed,
                                .failed = stream_failed,
                                .timed_out = stream_timed_out,
                                .should_retry = stream_should_retry};
  return &s->vtable;
}

void msg_mongo_bounded_client(mongoc_client_t *client) {
  if (mongoc_client_default_stream_initiator)
    mongoc_client_set_stream_initiator(client, connect_bounded, client);
}
