#include "model/message.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/sort.h"

static const char *const STATES[MSG_STATE_COUNT] = {"ready",     "delayed", "claimed", "blocked",
                                                    "processed", "dead",    "expired"};

void msg_message_init(msg_message *m) {
  *m = (msg_message)MSG_MESSAGE_INIT;
}

static void free_texts(msg_message *m) {
  char *texts[] = {m->msg, m->map,   m->additional, m->processed_by,
                   m->key, m->group, m->reason,     m->owner};
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
    if (texts[i])
      msg_free(texts[i]);
  if (m->lent)
    return;
  msg_free(m->topic);
  msg_free(m->sender);
  msg_free(m->sender_host);
}

void msg_message_clear(msg_message *m) {
  free_texts(m);
  msg_value_clear(&m->value);
  for (size_t i = 0; i < m->recipient_count; i++)
    msg_free(m->recipients[i]);
  msg_free(m->recipients);
  msg_message_init(m);
}

/* Replaces the text that *field borrows from the source by a copy. */
static bool own_text(char **field) {
  if (!*field)
    return true;
  *field = msg_strdup(*field);
  return *field != NULL;
}

/* Takes over every text; those after a failed one become NULL, so that clear frees no borrowed
 * text. */
static bool own_texts(msg_message *m) {
  char **fields[] = {&m->topic,  &m->msg,         &m->map,         &m->additional,
                     &m->sender, &m->sender_host, &m->key,         &m->group,
                     &m->reason, &m->owner,       &m->processed_by};
  bool ok = true;
  for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
    if (ok)
      ok = own_text(fields[i]);
    else
      *fields[i] = NULL;
  }
  return ok;
}

/* Starts as a flat copy, whose pointers are replaced one by one; *out is written at the end. */
int msg_message_copy(msg_message *out, const msg_message *m) {
  msg_message copy = *m;
  copy.value = (msg_value){0};
  copy.recipients = NULL;
  copy.recipient_count = 0;
  copy.lent = false;
  msg_message_init(out);
  if (!own_texts(&copy) || msg_value_copy(&copy.value, &m->value) != MSG_OK)
    goto nomem;
  for (size_t i = 0; i < m->recipient_count; i++)
    if (msg_message_add_recipient(&copy, m->recipients[i]) != MSG_OK)
      goto nomem;
  *out = copy;
  return MSG_OK;
nomem:
  msg_message_clear(&copy);
  return MSG_NOMEM;
}

int msg_message_add_recipient(msg_message *m, const char *node) {
  char *copy = msg_strdup(node);
  char **grown = copy ? msg_resize(m->recipients, (m->recipient_count + 1) * sizeof *grown) : NULL;
  if (!grown) {
    msg_free(copy);
    return MSG_NOMEM;
  }
  m->recipients = grown;
  m->recipients[m->recipient_count++] = copy;
  return MSG_OK;
}

bool msg_message_has_recipient(const msg_message *m, const char *node) {
  for (size_t i = 0; i < m->recipient_count; i++)
    if (strcmp(m->recipients[i], node) == 0)
      return true;
  return false;
}

const char *msg_state_name(enum msg_state s) {
  return (unsigned)s < MSG_STATE_COUNT ? STATES[s] : "unknown";
}

bool msg_state_parse(const char *s, enum msg_state *out) {
  for (unsigned i = 0; s && i < MSG_STATE_COUNT; i++) {
    if (strcmp(s, STATES[i]) == 0) {
      *out = (enum msg_state)i;
      return true;
    }
  }
  return false;
}

/* --- lists --------------------------------------------------------------------------------- */

int msg_list_reserve(msg_list *l, size_t n) {
  return msg_grow(&l->at, &l->cap, l->n + n, sizeof *l->at);
}

msg_message *msg_list_add(msg_list *l) {
  if (msg_list_reserve(l, 1) != MSG_OK)
    return NULL;
  msg_message *m = &l->at[l->n++];
  msg_message_init(m);
  return m;
}

char *msg_list_lend(msg_list *l, const char *text) {
  return msg_texts_keep(&l->lends, text);
}

void msg_list_clear(msg_list *l) {
  for (size_t i = 0; i < l->n; i++)
    msg_message_clear(&l->at[i]);
  msg_free(l->at);
  msg_texts_clear(&l->lends);
  *l = (msg_list)MSG_LIST_INIT;
}

void msg_list_keep(msg_list *l, bool (*keeps)(void *arg, size_t i, const msg_message *m),
                   void *arg) {
  size_t n = 0;
  for (size_t i = 0; i < l->n; i++) {
    if (keeps(arg, i, &l->at[i]))
      l->at[n++] = l->at[i];
    else
      msg_message_clear(&l->at[i]);
  }
  l->n = n;
}

/* By comparison: a difference of two times may overflow. */
static int cmp_i64(int64_t a, int64_t b) {
  return (a > b) - (a < b);
}

msg_rank msg_message_rank(const msg_message *m) {
  return (msg_rank){m->priority, m->deliver_at_ms, m->seq, m->id};
}

int msg_rank_cmp(const msg_rank *a, const msg_rank *b) {
  int c = cmp_i64(a->priority, b->priority);
  if (c == 0)
    c = cmp_i64(a->deliver_at_ms, b->deliver_at_ms);
  if (c == 0)
    c = cmp_i64(a->seq, b->seq);
  return c != 0 ? c : msg_oid_cmp(&a->id, &b->id);
}

int msg_message_cmp(const msg_message *a, const msg_message *b) {
  msg_rank x = msg_message_rank(a), y = msg_message_rank(b);
  return msg_rank_cmp(&x, &y);
}

bool msg_message_is_behind(const msg_message *m, const msg_rank *rank) {
  msg_rank own = msg_message_rank(m);
  return msg_rank_cmp(&own, rank) > 0;
}

static int cmp_delivery(const void *a, const void *b) {
  return msg_message_cmp(a, b);
}

void msg_list_sort(msg_list *l) {
  msg_sort(l->at, l->n, sizeof *l->at, cmp_delivery);
}

bool msg_list_has(const msg_list *l, size_t from, const msg_oid *id) {
  while (from < l->n && msg_oid_cmp(&l->at[from].id, id) != 0)
    from++;
  return from < l->n;
}
