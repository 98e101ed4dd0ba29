/* Filters: a filter built term by term admits what all its terms admit. */
#include "fuzz/bytes.h"
#include "model/filter.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const NAMES[] = {"a", "b", "c", ""};

static void take_message(bytes *b, msg_message *m) {
  msg_message_init(m);
  uint8_t how = bytes_u8(b);
  m->topic = how & 4 ? NULL : (char *)(uintptr_t)NAMES[how & 3];
  m->sender = how & 32 ? NULL : (char *)(uintptr_t)NAMES[how >> 3 & 3];
  m->id.b[0] = bytes_u8(b) & 3;
  m->state = (enum msg_state)(bytes_u8(b) % MSG_STATE_COUNT);
  m->priority = (int32_t)bytes_i64(b);
  m->timestamp_ms = bytes_i64(b);
  m->deliver_at_ms = bytes_i64(b);
  m->seq = bytes_i64(b);
}

static bool cut(msg_range *r, int64_t value, bytes *b) {
  int64_t lo = bytes_i64(b), hi = bytes_i64(b);
  msg_range_cut(r, lo, hi);
  return value >= lo && value <= hi;
}

/* The lists of wishes: any of the names, so one match in a list is enough. */
struct lists {
  bool topic, sender, id, has_topic, has_sender, has_id;
};

static bool lists_admit(const struct lists *l) {
  return (!l->has_topic || l->topic) && (!l->has_sender || l->sender) && (!l->has_id || l->id);
}

static void add_name(msg_filter *f, const msg_message *m, struct lists *l, uint8_t which) {
  const char *name = NAMES[which & 3];
  if (which & 4) {
    must(msg_filter_add_topic(f, name) == MSG_OK);
    l->has_topic = true;
    l->topic |= m->topic && strcmp(m->topic, name) == 0;
  } else {
    must(msg_filter_add_sender(f, name) == MSG_OK);
    l->has_sender = true;
    l->sender |= m->sender && strcmp(m->sender, name) == 0;
  }
}

static void add_id(msg_filter *f, const msg_message *m, struct lists *l, uint8_t which) {
  msg_oid id = {{(uint8_t)(which & 3)}};
  must(msg_filter_add_id(f, &id) == MSG_OK);
  l->has_id = true;
  l->id |= m->id.b[0] == id.b[0];
}

/* Adds one term; false: it refuses m. */
static bool add_term(msg_filter *f, const msg_message *m, struct lists *l, bytes *b) {
  uint8_t kind = bytes_u8(b) % 8, which = bytes_u8(b);
  switch (kind) {
  case 0: add_name(f, m, l, which); return true;
  case 1: add_id(f, m, l, which); return true;
  case 2: f->states |= 1u << which % MSG_STATE_COUNT; return true; /* judged at the end */
  case 3: return cut(&f->priority, m->priority, b);
  case 4: return cut(&f->timestamp_ms, m->timestamp_ms, b);
  case 5: return cut(&f->deliver_at_ms, m->deliver_at_ms, b);
  case 6: return cut(&f->seq, m->seq, b);
  default:
    if (f->has_id_lo)
      return true;
    f->has_id_lo = true;
    f->id_lo.b[0] = which & 3;
    return m->id.b[0] >= (which & 3);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  bytes b = {data, size};
  msg_message m;
  msg_filter f;
  struct lists l = {0};
  bool admits = true;
  take_message(&b, &m);
  msg_filter_init(&f);
  while (b.n > 0)
    admits &= add_term(&f, &m, &l, &b);
  admits &= lists_admit(&l) && (f.states == 0 || (f.states & 1u << m.state));
  must(msg_filter_match(&f, &m) == admits);
  f.none = true;
  must(!msg_filter_match(&f, &m));
  msg_filter_clear(&f);
  return 0;
}
