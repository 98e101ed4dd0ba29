#include "store/mongo/bounded.h"

#include "base/clock.h"

static int32_t left_of(int64_t until_ms) {
  int64_t left_ms = until_ms - msg_clock_mono_ms();
  return left_ms < 1 ? 1 : left_ms > INT32_MAX ? INT32_MAX : (int32_t)left_ms;
}

#if MONGOC_CHECK_VERSION(1, 27, 0)

void msg_mongo_boundable_client(mongoc_client_t *client) {
  (void)client;
}

void msg_mongo_bound_client(mongoc_client_t *client, int64_t until_ms) {
  mongoc_client_set_sockettimeoutms(client, left_of(until_ms));
}

/* The pool does it. */
void msg_mongo_unbound_client(mongoc_client_t *client) {
  (void)client;
}

#else

/* Older ones cannot be told: their connections are wrapped, and obey the bound of the thread that
 * uses them. */

/* Any free number of libmongoc's, which has none for others' streams. */
#define STREAM_TYPE 77

/* Before libmongoc's own stream, which it owns. */
typedef struct bounded {
  mongoc_stream_t vtable;
  mongoc_stream_t *base;
} bounded;

static _Thread_local int64_t bound_ms; /* 0: none */

static int32_t within(int32_t timeout_ms) {
  int32_t left_ms = bound_ms ? left_of(bound_ms) : INT32_MAX;
  return timeout_ms >= 0 && timeout_ms < left_ms ? timeout_ms : left_ms;
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

void msg_mongo_boundable_client(mongoc_client_t *client) {
  mongoc_client_set_stream_initiator(client, connect_bounded, client);
}

void msg_mongo_bound_client(mongoc_client_t *client, int64_t until_ms) {
  (void)client;
  bound_ms = until_ms;
}

void msg_mongo_unbound_client(mongoc_client_t *client) {
  (void)client;
  bound_ms = 0;
}

#endif
