#include "engine/inbox.h"

#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

/* How long what came is taken to be still there. */
#define SOON_MS 5000
/* How long nothing is, nor kept, once that was in doubt: what is on its way comes first. */
#define DOUBT_MS (2 * SOON_MS)

struct msg_parcel {
  msg_message message; /* immutable */
  size_t bytes;
  int64_t told_ms;
  atomic_int refs;
};

/* --- parcels ------------------------------------------------------------------------------- */

static size_t text_bytes(const char *s) {
  return s ? strlen(s) + 1 : 0;
}

static size_t bytes_of(const msg_message *m) {
  size_t n = sizeof(msg_parcel) + m->value.n + text_bytes(m->topic) + text_bytes(m->msg) +
             text_bytes(m->map) + text_bytes(m->additional) + text_bytes(m->sender) +
             text_bytes(m->sender_host);
  for (size_t i = 0; i < m->recipient_count; i++)
    n += text_bytes(m->recipients[i]) + sizeof(char *);
  return n;
}

msg_parcel *msg_parcel_new(msg_message *m, int64_t told_ms) {
  msg_parcel *p = msg_alloc(sizeof *p);
  if (!p) {
    msg_message_clear(m);
    return NULL;
  }
  p->message = *m;
  p->bytes = bytes_of(m);
  p->told_ms = told_ms;
  atomic_init(&p->refs, 1);
  msg_message_init(m);
  return p;
}

void msg_parcel_ref(msg_parcel *p) {
  atomic_fetch_add(&p->refs, 1);
}

void msg_parcel_unref(msg_parcel *p) {
  if (!p || atomic_fetch_sub(&p->refs, 1) > 1)
    return;
  msg_message_clear(&p->message);
  msg_free(p);
}

const msg_message *msg_parcel_message(const msg_parcel *p) {
  return &p->message;
}

/* --- the inbox ----------------------------------------------------------------------------- */

static void drop_at(msg_inbox *b, size_t i) {
  b->bytes -= b->at[i].parcel->bytes;
  msg_parcel_unref(b->at[i].parcel);
  b->n--;
  memmove(&b->at[i], &b->at[i + 1], (b->n - i) * sizeof *b->at);
}

static void empty(msg_inbox *b) {
  while (b->n > 0)
    drop_at(b, b->n - 1);
}

void msg_inbox_lose(msg_inbox *b) {
  empty(b);
  b->epoch++;
  b->rung = true;
}

void msg_inbox_doubt(msg_inbox *b) {
  msg_inbox_lose(b);
  b->doubted_ms = msg_clock_mono_ms();
}

/* Another thread has it, or has had it since a look began that may give it. */
static bool is_gone(const msg_inbox *b, const msg_oid *id) {
  size_t n = b->taking_count + b->taken_count;
  return msg_oid_index(b->taking, n, id) < n;
}

static bool put(msg_inbox *b, msg_parcel *parcel, size_t max, bool found) {
  size_t i = b->n;
  int order = 1;
  while (i > 0 && (order = msg_message_cmp(&b->at[i - 1].parcel->message, &parcel->message)) > 0)
    i--;
  if (order == 0 || is_gone(b, &parcel->message.id))
    return true;
  bool fits = b->n < max && (b->n == 0 || b->bytes + parcel->bytes <= MSG_INBOX_MAX_BYTES) &&
              msg_grow(&b->at, &b->cap, b->n + 1, sizeof *b->at) == MSG_OK;
  if (!fits) {
    msg_inbox_lose(b);
    return false;
  }
  memmove(&b->at[i + 1], &b->at[i], (b->n++ - i) * sizeof *b->at);
  msg_parcel_ref(parcel);
  b->at[i] = (struct msg_inbox_item){parcel, ++b->pushes, msg_clock_mono_ms(), found};
  b->bytes += parcel->bytes;
  b->rung = true;
  return true;
}

static bool is_doubtful(const msg_inbox *b, int64_t now_ms) {
  return b->doubted_ms != 0 && now_ms - b->doubted_ms < DOUBT_MS;
}

bool msg_inbox_push(msg_inbox *b, msg_parcel *parcel, size_t max) {
  if (!is_doubtful(b, msg_clock_mono_ms()))
    return put(b, parcel, max, false);
  msg_inbox_lose(b);
  return false;
}

/* --- taking -------------------------------------------------------------------------------- */

/* Nobody else has it, or there is one copy more. */
static int take_out(msg_parcel *p, msg_message *to) {
  if (atomic_load(&p->refs) > 1)
    return msg_message_copy(to, &p->message);
  *to = p->message;
  msg_message_init(&p->message);
  return MSG_OK;
}

/* It came by one way alone: from a look, or told by itself after the last that found something. */
static bool is_new(const msg_inbox *b, const struct msg_inbox_item *item, int64_t now_ms) {
  bool once = item->found || b->scanned_ms == 0 || item->parcel->told_ms > b->scanned_ms;
  return once && !is_doubtful(b, now_ms) && now_ms - item->at_ms < SOON_MS;
}

static int make_room(msg_inbox *b, size_t n) {
  return msg_grow(&b->taking, &b->taking_cap, b->taking_count + b->taken_count + n,
                  sizeof *b->taking);
}

static void add_taking(msg_inbox *b, const msg_oid *id) {
  b->taking[b->taking_count + b->taken_count] = b->taking[b->taking_count];
  b->taking[b->taking_count++] = *id;
}

/* Room for what is taken comes first, so that nothing is lost on the way. */
static int take_one(msg_inbox *b, const struct msg_inbox_item *item, msg_list *out) {
  if (make_room(b, 1) != MSG_OK)
    return MSG_NOMEM;
  msg_message *to = msg_list_add(out);
  if (!to)
    return MSG_NOMEM;
  if (take_out(item->parcel, to) != MSG_OK) {
    out->n--;
    return MSG_NOMEM;
  }
  add_taking(b, &to->id);
  return MSG_OK;
}

/* Before what is behind it comes what only the store has. */
static bool is_beyond(const struct msg_inbox_item *item, const msg_looked *l) {
  return l->part && msg_message_is_behind(&item->parcel->message, &l->upto);
}

int msg_inbox_take(msg_inbox *b, msg_inbox_fn wants, const void *arg, size_t max,
                   const msg_looked *since, msg_list *out, bool *soon) {
  size_t kept = 0, i = 0;
  int rc = MSG_OK;
  *soon = true;
  if (b->n == 0)
    return MSG_OK;
  int64_t now_ms = msg_clock_mono_ms();
  for (; i < b->n && out->n < max && rc == MSG_OK; i++) {
    struct msg_inbox_item item = b->at[i];
    if (is_beyond(&item, since))
      break;
    if (item.number <= since->pushes || !wants(arg, &item.parcel->message)) {
      b->at[kept++] = item;
      continue;
    }
    *soon = *soon && is_new(b, &item, now_ms);
    rc = take_one(b, &item, out);
    b->bytes -= item.parcel->bytes;
    msg_parcel_unref(item.parcel);
  }
  memmove(&b->at[kept], &b->at[i], (b->n - i) * sizeof *b->at);
  b->n -= i - kept;
  if (rc != MSG_OK) {
    for (size_t k = 0; k < out->n; k++)
      msg_inbox_took(b, &out->at[k].id, 1);
    msg_inbox_lose(b);
  }
  return rc;
}

int msg_inbox_unsure(const msg_inbox *b, msg_inbox_fn wants, const void *arg, size_t max,
                     const msg_looked *since, msg_list *out) {
  int64_t now_ms = msg_clock_mono_ms();
  if (is_doubtful(b, now_ms))
    return MSG_OK;
  for (size_t i = 0; i < b->n && out->n < max && !is_beyond(&b->at[i], since); i++) {
    const struct msg_inbox_item *item = &b->at[i];
    if (item->number <= since->pushes || !wants(arg, &item->parcel->message))
      continue;
    if (out->n == 0 && is_new(b, item, now_ms))
      return MSG_OK;
    msg_message *to = msg_list_add(out);
    if (!to)
      return MSG_NOMEM;
    to->id = item->parcel->message.id;
  }
  return MSG_OK;
}

void msg_inbox_asked(msg_inbox *b, const msg_list *list, const bool *still, uint64_t upto) {
  int64_t now_ms = msg_clock_mono_ms();
  for (size_t k = 0; k < list->n; k++) {
    size_t i = 0;
    while (i < b->n && msg_oid_cmp(&b->at[i].parcel->message.id, &list->at[k].id) != 0)
      i++;
    if (i == b->n || b->at[i].number > upto)
      continue;
    if (!still[k]) {
      drop_at(b, i);
      continue;
    }
    b->at[i].found = true;
    b->at[i].at_ms = now_ms;
  }
}

int msg_inbox_taking(msg_inbox *b, const msg_list *list) {
  if (make_room(b, list->n) != MSG_OK)
    return MSG_NOMEM;
  for (size_t i = 0; i < list->n; i++)
    add_taking(b, &list->at[i].id);
  return MSG_OK;
}

void msg_inbox_took(msg_inbox *b, const msg_oid *ids, size_t n) {
  for (size_t i = 0; i < n; i++) {
    size_t k = msg_oid_index(b->taking, b->taking_count, &ids[i]);
    if (k == b->taking_count)
      continue;
    b->taking[k] = b->taking[--b->taking_count];
    b->taking[b->taking_count] = ids[i];
    b->taken_count += b->looking; /* else there are none */
  }
}

/* --- looks at the store -------------------------------------------------------------------- */

bool msg_inbox_look(msg_inbox *b) {
  bool first = !b->looking;
  b->looking = true;
  return first;
}

void msg_inbox_look_end(msg_inbox *b) {
  b->looking = false;
  b->taken_count = 0;
}

/* Nobody else has it. */
static bool is_free(void *inbox, size_t i, const msg_message *m) {
  (void)i;
  return !is_gone(inbox, &m->id);
}

void msg_inbox_looked(msg_inbox *b, msg_list *found) {
  msg_list_keep(found, is_free, b);
  if (found->n == 0)
    return;
  b->scanned_ms = msg_clock_mono_ms();
  for (size_t i = b->n; i > 0; i--)
    if (msg_list_has(found, 0, &b->at[i - 1].parcel->message.id))
      drop_at(b, i - 1);
}

void msg_inbox_keep(msg_inbox *b, msg_list *found, size_t from, size_t max) {
  bool all = true;
  for (size_t i = from; i < found->n; i++) {
    msg_parcel *p = all ? msg_parcel_new(&found->at[i], 0) : NULL;
    if (!p)
      msg_message_clear(&found->at[i]);
    all = p && put(b, p, max, true);
    msg_parcel_unref(p);
  }
  found->n = from < found->n ? from : found->n;
  if (!all)
    msg_inbox_lose(b);
}

void msg_inbox_clear(msg_inbox *b) {
  empty(b);
  msg_free(b->at);
  msg_free(b->taking);
  *b = (msg_inbox){0};
}
