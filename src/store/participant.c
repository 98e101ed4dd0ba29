#include "base/mem.h"
#include "store/types.h"

void msg_participant_clear(msg_participant *p) {
  msg_free(p->node);
  msg_free(p->host);
  msg_free(p->implementation);
  msg_free(p->layout);
  msg_free(p->process);
}
