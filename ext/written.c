#include "ext/written.h"

#include "base/mem.h"

msg_written *msg_written_new(bool settles) {
  msg_written *w = msg_zalloc(sizeof *w);
  if (!w)
    return NULL;
  msg_message_init(&w->message);
  w->settles = settles;
  return w;
}

void msg_written_free(msg_written *w) {
  if (!w)
    return;
  msg_message_clear(&w->message);
  msg_free((char *)w->how.reason);
  msg_free(w->items);
  msg_free(w->tokens);
  msg_free(w);
}
