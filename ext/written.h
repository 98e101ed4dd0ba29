/* written.h - one send or one settle that waits for the host's COMMIT: a value. */
#ifndef MSG_EXT_WRITTEN_H
#define MSG_EXT_WRITTEN_H

#include "store/store.h"

typedef struct msg_written {
  bool settles;
  /* a put */
  msg_message message;
  int64_t key_until_ms;
  /* a settle */
  msg_settle how; /* reason owned */
  msg_settle_item *items;
  char (*tokens)[MSG_OID_HEX + 1]; /* behind items[].token */
  size_t n;
} msg_written;

/** NULL when memory is out. */
msg_written *msg_written_new(bool settles);
/** NULL allowed. */
void msg_written_free(msg_written *w);

#endif
