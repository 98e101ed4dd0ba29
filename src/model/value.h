/* value.h - one SQL value: keeps its SQLite type. */
#ifndef MSG_MODEL_VALUE_H
#define MSG_MODEL_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum msg_type { MSG_NULL = 0, MSG_INT, MSG_REAL, MSG_TEXT, MSG_BLOB };

typedef struct msg_value {
  enum msg_type type;
  bool json;  /* text that carries SQLite's JSON subtype: nests when shown as JSON */
  bool owned; /* p belongs to this value (msg_free) */
  int64_t i;  /* MSG_INT */
  double r;   /* MSG_REAL */
  char *p;    /* MSG_TEXT (NUL-terminated), MSG_BLOB (may be NULL when n == 0) */
  size_t n;   /* bytes of p without the NUL */
} msg_value;

/** Free what is owned; the value becomes MSG_NULL. */
void msg_value_clear(msg_value *v);
/** Deep copy into *out (which is overwritten, not cleared). MSG_NOMEM leaves *out MSG_NULL. */
int msg_value_copy(msg_value *out, const msg_value *v);
/** Borrowing constructors: p must outlive the value. */
msg_value msg_value_text(const char *s); /* NULL gives MSG_NULL */
msg_value msg_value_int(int64_t i);
/** "null", "integer", "real", "text", "blob". */
const char *msg_type_name(enum msg_type t);

#endif
