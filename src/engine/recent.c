#include "engine/recent.h"

#include <string.h>

#include "base/mem.h"

struct msg_recent_item {
  msg_oid id;
  bool timing_out, delete_after_processing, has_msg;
  int32_t delete_after_processing_ms, priority;
  int64_t ttl_ms;
  size_t bytes;
  size_t sender, msg; /* where these begin in texts; the topic is at 0 */
  char texts[];
};

static msg_recent_item *new_item(const msg_message *m) {
  const char *sender = m->sender ? m->sender : "", *text = m->msg ? m->msg : "";
  size_t topic_n = strlen(m->topic) + 1, sender_n = strlen(sender) + 1, text_n = strlen(text) + 1;
  size_t bytes = sizeof(msg_recent_item) + topic_n + sender_n + text_n;
  if (bytes > MSG_RECENT_MAX_BYTES)
    return NULL; /* it is still in the store, or cannot be answered */
  msg_recent_item *i = msg_alloc(bytes);
  if (!i)
    return NULL;
  *i = (msg_recent_item){
      .id = m->id,
      .timing_out = m->timing_out,
      .delete_after_processing = m->delete_after_processing,
      .has_msg = m->msg != NULL,
      .delete_after_processing_ms = m->delete_after_processing_ms,
      .priority = m->priority,
      .ttl_ms = m->ttl_ms,
      .bytes = bytes,
      .sender = topic_n,
      .msg = topic_n + sender_n,
  };
  memcpy(i->texts, m->topic, topic_n);
  memcpy(i->texts + i->sender, sender, sender_n);
  memcpy(i->texts + i->msg, text, text_n);
  return i;
}

/* `back` counts from the newest, which is 1. */
static msg_recent_item **slot(const msg_recent *r, size_t back) {
  return &r->at[(r->next + MSG_RECENT_MAX - back) % MSG_RECENT_MAX];
}

static void drop_oldest(msg_recent *r) {
  msg_recent_item **oldest = slot(r, r->n);
  r->bytes -= (*oldest)->bytes;
  r->n--;
  msg_free(*oldest);
  *oldest = NULL;
}

static void add_one(msg_recent *r, const msg_message *m) {
  msg_recent_item *item = new_item(m);
  if (!item)
    return;
  while (r->n == MSG_RECENT_MAX || (r->n > 0 && r->bytes + item->bytes > MSG_RECENT_MAX_BYTES))
    drop_oldest(r);
  r->at[r->next] = item;
  r->next = (r->next + 1) % MSG_RECENT_MAX;
  r->n++;
  r->bytes += item->bytes;
}

void msg_recent_add(msg_recent *r, const msg_list *list, size_t from) {
  if (from == list->n)
    return;
  if (!r->at)
    r->at = msg_zalloc(MSG_RECENT_MAX * sizeof *r->at);
  if (!r->at)
    return;
  if (list->n - from > MSG_RECENT_MAX)
    from = list->n - MSG_RECENT_MAX;
  for (; from < list->n; from++)
    add_one(r, &list->at[from]);
}

static int copy_out(const msg_recent_item *i, msg_message *out) {
  msg_message m;
  msg_message_init(&m);
  m.id = i->id;
  m.timing_out = i->timing_out;
  m.delete_after_processing = i->delete_after_processing;
  m.delete_after_processing_ms = i->delete_after_processing_ms;
  m.priority = i->priority;
  m.ttl_ms = i->ttl_ms;
  m.topic = msg_strdup(i->texts);
  m.sender = msg_strdup(i->texts + i->sender);
  m.msg = i->has_msg ? msg_strdup(i->texts + i->msg) : NULL;
  if (!m.topic || !m.sender || (i->has_msg && !m.msg)) {
    msg_message_clear(&m);
    return MSG_NOMEM;
  }
  *out = m;
  return MSG_OK;
}

static const msg_recent_item *find(const msg_recent *r, const msg_oid *id) {
  for (size_t back = 1; back <= r->n; back++)
    if (msg_oid_cmp(&(*slot(r, back))->id, id) == 0)
      return *slot(r, back);
  return NULL;
}

bool msg_recent_has(const msg_recent *r, const msg_oid *id) {
  return find(r, id) != NULL;
}

int msg_recent_get(const msg_recent *r, const msg_oid *id, msg_message *out) {
  const msg_recent_item *item = find(r, id);
  return item ? copy_out(item, out) : MSG_NOTFOUND;
}

void msg_recent_clear(msg_recent *r) {
  while (r->n > 0)
    drop_oldest(r);
  msg_free(r->at);
  *r = (msg_recent){0};
}
