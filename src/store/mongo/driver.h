/* driver.h - libmongoc 1.23 to 2.x as the rest of this room sees it: the one place where versions
 * differ. */
#ifndef MSG_MONGO_DRIVER_H
#define MSG_MONGO_DRIVER_H

#include <mongoc/mongoc.h>
#include <string.h>

#if !MONGOC_CHECK_VERSION(1, 23, 0)
#error "libmongoc 1.23 or newer is needed"
#endif

/* Deprecated in 2.x for want of a check of the keys, which are always made by us. */
#if MONGOC_CHECK_VERSION(2, 0, 0)
#undef bson_append_array_begin
#undef BSON_APPEND_ARRAY_BEGIN
#define bson_append_array_begin bson_append_array_unsafe_begin
#define BSON_APPEND_ARRAY_BEGIN(b, key, child)                                                     \
  bson_append_array_unsafe_begin(b, key, (int)strlen(key), child)
#endif

/* How libmongoc connects when nobody says otherwise: exported, and in no header. */
#if !MONGOC_CHECK_VERSION(1, 27, 0)
extern mongoc_stream_t *mongoc_client_default_stream_initiator(const mongoc_uri_t *,
                                                               const mongoc_host_list_t *,
                                                               void *client, bson_error_t *);
#endif

#endif
