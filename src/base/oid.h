/* oid.h - ObjectIds (MongoDB): 4 bytes seconds, 5 bytes random per process, 3 bytes counter. */
#ifndef MSG_BASE_OID_H
#define MSG_BASE_OID_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MSG_OID_HEX 24

typedef struct msg_oid {
  uint8_t b[12];
} msg_oid;

/** A new id, unique over processes and after fork (reseeded in the child). Thread: any. */
msg_oid msg_oid_new(void);
/** The same for who knows what time it is. */
msg_oid msg_oid_at(int64_t now_ms);
/** Lower-case hex, NUL-terminated, into out[25]. */
void msg_oid_hex(const msg_oid *id, char out[MSG_OID_HEX + 1]);
/** False unless s is exactly 24 hex digits (either case). */
bool msg_oid_parse(const char *s, msg_oid *out);
int msg_oid_cmp(const msg_oid *a, const msg_oid *b);
bool msg_oid_is_zero(const msg_oid *id);
/** Where the first of `n` is that equals `id`; n: none. */
size_t msg_oid_index(const msg_oid *ids, size_t n, const msg_oid *id);
/** Of `n` rows of `size` bytes that begin with their ids and are in their order: where that of `id`
 *  is, or would be. What comes late is behind the others. */
size_t msg_oid_place(const void *rows, size_t n, size_t size, const msg_oid *id);

#endif
