#include "store/mongo/rivals.h"

#include <string.h>

#include "base/process.h"

/* FNV-1a, and a mix of its high bits. */
static uint64_t weight(const char *process, const msg_oid *id) {
  uint64_t h = UINT64_C(14695981039346656037);
  for (const char *p = process; *p; p++)
    h = (h ^ (unsigned char)*p) * UINT64_C(1099511628211);
  for (size_t i = 0; i < sizeof id->b; i++)
    h = (h ^ id->b[i]) * UINT64_C(1099511628211);
  h = (h ^ h >> 31) * UINT64_C(0x9e3779b97f4a7c15);
  return h ^ h >> 29;
}

size_t msg_mongo_rivals_before(const msg_texts *r, const char *self, const msg_oid *id) {
  uint64_t mine = weight(self, id);
  size_t before = 0;
  for (size_t i = 0; i < r->n; i++) {
    uint64_t theirs = weight(r->at[i], id);
    before += theirs > mine || (theirs == mine && strcmp(r->at[i], self) > 0);
  }
  return before;
}

static int note_rival(void *arg, const bson_t *doc, msg_err *err) {
  const char *process = msg_mongo_get_text(doc, "sq.process");
  if (!process || strcmp(process, msg_process_self()) == 0)
    return MSG_OK;
  return msg_texts_note(arg, process) == MSG_OK ? MSG_OK : msg_err_nomem(err);
}

int msg_mongo_rivals_load(msg_mongo_session *s, msg_mongo_use *u, msg_texts *r, msg_err *err) {
  msg_texts now = {0};
  bson_t *filter =
      BCON_NEW("sq.claims", BCON_BOOL(true), "last_seen", "{", "$gte",
               BCON_INT64(msg_mongo_now_ms(s->store) - s->participant_timeout_ms), "}");
  bson_t *opts = BCON_NEW("projection", "{", "sq.process", BCON_INT32(1), "}");
  int rc = msg_mongo_each(u, s->names.participants, "watch", filter, opts, note_rival, &now, err);
  bson_destroy(opts);
  bson_destroy(filter);
  if (rc == MSG_OK) {
    msg_texts old = *r;
    *r = now;
    now = old;
  }
  msg_texts_clear(&now);
  return rc;
}
