#include "store/local/firsts.h"

#include <stdlib.h>

#include "base/mem.h"

msg_rank msg_local_first_read(sqlite3_stmt *stmt) {
  return (msg_rank){.priority = sqlite3_column_int(stmt, 0),
                    .deliver_at_ms = sqlite3_column_int64(stmt, 1),
                    .seq = sqlite3_column_int64(stmt, 2)};
}

static int by_delivery(const void *a, const void *b) {
  return msg_rank_cmp(a, b);
}

void msg_local_firsts_trim(msg_local_firsts *f) {
  size_t n = 0;
  if (f->n > 1)
    qsort(f->at, f->n, sizeof *f->at, by_delivery);
  for (size_t i = 0; i < f->n && n < f->max; i++)
    if (n == 0 || f->at[n - 1].seq != f->at[i].seq)
      f->at[n++] = f->at[i];
  f->n = n;
  f->full = n == f->max;
}

int msg_local_firsts_add(msg_local_firsts *f, const msg_rank *one, bool *wanted, msg_err *err) {
  *wanted = !f->full || by_delivery(one, &f->at[f->max - 1]) < 0;
  if (!*wanted)
    return MSG_OK;
  if (msg_grow(&f->at, &f->cap, f->n + 1, sizeof *f->at) != MSG_OK)
    return msg_err_nomem(err);
  f->at[f->n++] = *one;
  if (f->full ? f->n / 2 > f->max + 32 : f->n >= f->max)
    msg_local_firsts_trim(f);
  return MSG_OK;
}

void msg_local_firsts_clear(msg_local_firsts *f) {
  msg_free(f->at);
  *f = (msg_local_firsts){.max = f->max};
}
