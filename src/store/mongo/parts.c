/* parts.c - see settle.h. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "store/mongo/query.h"
#include "store/mongo/settle.h"

static int cmp_token(const char *a, const char *b) {
  if (!a || !b)
    return (a != NULL) - (b != NULL);
  return strcmp(a, b);
}

static int by_token(const void *pa, const void *pb) {
  const msg_settle_item *a = *(msg_settle_item *const *)pa, *b = *(msg_settle_item *const *)pb;
  int c = cmp_token(a->token, b->token);
  return c ? c : msg_oid_cmp(&a->id, &b->id);
}

/* And as they were given. */
static int by_id(const void *pa, const void *pb) {
  const msg_settle_item *a = *(msg_settle_item *const *)pa, *b = *(msg_settle_item *const *)pb;
  int c = msg_oid_cmp(&a->id, &b->id);
  return c ? c : (a > b) - (a < b);
}

/* The first of each id stays, the others are the rest. */
static void set_apart(msg_mongo_parts *p, size_t n) {
  qsort(p->items, n, sizeof *p->items, by_id);
  p->item_count = p->rest_count = 0;
  for (size_t i = 0; i < n; i++) {
    msg_settle_item *item = p->items[i];
    if (p->item_count > 0 && msg_oid_cmp(&p->items[p->item_count - 1]->id, &item->id) == 0)
      p->rest[p->rest_count++] = item;
    else
      p->items[p->item_count++] = item;
  }
}

static void cut(msg_mongo_parts *p) {
  qsort(p->items, p->item_count, sizeof *p->items, by_token);
  p->n = 0;
  for (size_t i = 0; i < p->item_count; i++) {
    const char *token = p->items[i]->token;
    if (p->n == 0 || cmp_token(p->at[p->n - 1].token, token) != 0)
      p->at[p->n++] = (msg_mongo_part){token, i, 0};
    p->at[p->n - 1].n++;
    p->ids[i] = p->items[i]->id;
  }
}

int msg_mongo_parts_of(msg_settle_item *items, size_t n, msg_mongo_parts *out, msg_err *err) {
  *out = (msg_mongo_parts){.items = msg_alloc(2 * n * sizeof *out->items),
                           .ids = msg_alloc(n * sizeof *out->ids),
                           .at = msg_alloc(n * sizeof *out->at)};
  if (!out->items || !out->ids || !out->at) {
    msg_mongo_parts_clear(out);
    return msg_err_nomem(err);
  }
  out->rest = out->items + n;
  for (size_t i = 0; i < n; i++) {
    items[i].done = false;
    out->items[i] = &items[i];
  }
  set_apart(out, n);
  cut(out);
  return MSG_OK;
}

bool msg_mongo_parts_next(msg_mongo_parts *p) {
  size_t n = 0, left = 0;
  if (p->rest_count == 0)
    return false;
  qsort(p->items, p->item_count, sizeof *p->items, by_id);
  for (size_t i = 0; i < p->rest_count; i++) {
    while (msg_oid_cmp(&p->items[n]->id, &p->rest[i]->id) != 0)
      n++;
    if (!p->items[n]->done)
      p->rest[left++] = p->rest[i];
  }
  memcpy(p->items, p->rest, left * sizeof *p->items);
  set_apart(p, left);
  cut(p);
  return left > 0;
}

void msg_mongo_parts_clear(msg_mongo_parts *p) {
  msg_free(p->items);
  msg_free(p->ids);
  msg_free(p->at);
  *p = (msg_mongo_parts){0};
}

static void append_claimed(bson_t *filter, const msg_mongo_part *part, const char *node,
                           enum msg_settle_verb verb) {
  bson_t now;
  BSON_APPEND_UTF8(filter, "sq.state", "claimed");
  if (verb == MSG_SETTLE_FREE)
    return;
  msg_mongo_now_expr(&now, 0);
  if (part->token)
    BSON_APPEND_UTF8(filter, "sq.token", part->token);
  else
    BSON_APPEND_UTF8(filter, "sq.owner", node);
  BCON_APPEND(filter, "$expr", "{", "$gt", "[", BCON_UTF8("$sq.until"), BCON_DOCUMENT(&now), "]",
              "}");
  bson_destroy(&now);
}

void msg_mongo_append_held(bson_t *filter, const msg_mongo_parts *p, const msg_mongo_part *part,
                           const char *node, enum msg_settle_verb verb) {
  msg_mongo_append_ids(filter, "_id", "$in", p->ids + part->first, part->n);
  append_claimed(filter, part, node, verb);
}

void msg_mongo_append_theirs(bson_t *filter, const msg_mongo_parts *p, const msg_mongo_part *part,
                             const char *node, enum msg_settle_verb verb) {
  msg_mongo_append_held(filter, p, part, node, verb);
  BCON_APPEND(filter, "sq.lease", "{", "$ne", BCON_BOOL(true), "}");
}

bson_t *msg_mongo_change_of(const msg_settle *how, const char *mark, int64_t max_attempts) {
  switch (how->verb) {
  case MSG_SETTLE_ACK: return msg_mongo_change_ack(mark);
  case MSG_SETTLE_RELEASE: return msg_mongo_change_free(mark, how->delay_ms, max_attempts);
  case MSG_SETTLE_EXTEND: return msg_mongo_change_extend(mark, how->lease_ms);
  case MSG_SETTLE_REJECT: return msg_mongo_change_bury(mark, how->reason);
  case MSG_SETTLE_FREE: break;
  }
  return msg_mongo_change_free(mark, 0, INT64_MAX);
}
