#include "model/value.h"

#include <string.h>

#include "base/mem.h"

void msg_value_clear(msg_value *v) {
  if (v->owned)
    msg_free(v->p);
  *v = (msg_value){0};
}

int msg_value_copy(msg_value *out, const msg_value *v) {
  msg_value copy = *v;
  copy.owned = false;
  bool bytes = v->type == MSG_TEXT || (v->type == MSG_BLOB && v->n > 0);
  *out = (msg_value){0};
  if (!bytes) {
    copy.p = NULL;
  } else {
    copy.p = msg_alloc(v->n + 1);
    if (!copy.p)
      return MSG_NOMEM;
    if (v->n > 0)
      memcpy(copy.p, v->p, v->n);
    copy.p[v->n] = '\0';
    copy.owned = true;
  }
  *out = copy;
  return MSG_OK;
}

/* The cast is safe: without `owned` nobody writes to or frees p. */
msg_value msg_value_text(const char *s) {
  if (!s)
    return (msg_value){0};
  return (msg_value){.type = MSG_TEXT, .p = (char *)(uintptr_t)s, .n = strlen(s)};
}

msg_value msg_value_int(int64_t i) {
  return (msg_value){.type = MSG_INT, .i = i};
}

const char *msg_type_name(enum msg_type t) {
  static const char *const NAMES[] = {"null", "integer", "real", "text", "blob"};
  return (unsigned)t < sizeof NAMES / sizeof NAMES[0] ? NAMES[t] : "unknown";
}
