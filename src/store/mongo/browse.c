#include "store/mongo/browse.h"

#include <stdio.h>
#include <string.h>

#include "store/mongo/query.h"
#include "store/mongo/topics.h"

#define LIST_MAX 10000 /* longer lists are compared by the caller */

static bool has_only(unsigned states, unsigned those) {
  return states != 0 && (states & ~those) == 0;
}

static unsigned bit(enum msg_state s) {
  return 1u << s;
}

/* States that only documents of ours can have. */
static void append_states(bson_t *filter, unsigned states, bool locked) {
  if (has_only(states, bit(MSG_STATE_DEAD)))
    BSON_APPEND_UTF8(filter, "sq.state", "dead");
  else if (has_only(states, bit(MSG_STATE_DELAYED)))
    BSON_APPEND_UTF8(filter, "sq.state", "delayed");
  else if (has_only(states, bit(MSG_STATE_BLOCKED)))
    BSON_APPEND_UTF8(filter, "sq.state", "blocked");
  else if (has_only(states, bit(MSG_STATE_CLAIMED)) && !locked)
    BSON_APPEND_UTF8(filter, "sq.state", "claimed");
  else
    msg_mongo_append_there(filter);
}

static void append_range(bson_t *filter, const char *key, const msg_range *r) {
  bson_t in;
  if (r->lo == INT64_MIN && r->hi == INT64_MAX)
    return;
  BSON_APPEND_DOCUMENT_BEGIN(filter, key, &in);
  if (r->lo != INT64_MIN)
    BSON_APPEND_INT64(&in, "$gte", r->lo);
  if (r->hi != INT64_MAX)
    BSON_APPEND_INT64(&in, "$lte", r->hi);
  bson_append_document_end(filter, &in);
}

/* The least and the greatest id of a second. */
static msg_oid edge(int64_t seq, int fill) {
  msg_oid id;
  int64_t seconds = seq >> 24;
  memset(&id, fill, sizeof id);
  for (int i = 0; i < 4; i++)
    id.b[i] = (uint8_t)(seconds >> 8 * (3 - i));
  return id;
}

static void append_id_bound(bson_t *and_, int *n, const char *op, const msg_oid *id) {
  bson_t one, in;
  char key[16];
  snprintf(key, sizeof key, "%d", (*n)++);
  BSON_APPEND_DOCUMENT_BEGIN(and_, key, &one);
  BSON_APPEND_DOCUMENT_BEGIN(&one, "_id", &in);
  msg_mongo_append_oid(&in, op, id);
  bson_append_document_end(&one, &in);
  bson_append_document_end(and_, &one);
}

#define SEQ_MAX ((INT64_C(1) << 56) - 1)

static void append_id_bounds(bson_t *filter, const msg_filter *f) {
  bson_t and_;
  int n = 0;
  bool lo = f->seq.lo > 0, hi = f->seq.hi < SEQ_MAX;
  if (!f->has_id_lo && !f->has_id_hi && !lo && !hi)
    return;
  BSON_APPEND_ARRAY_BEGIN(filter, "$and", &and_);
  if (f->has_id_lo)
    append_id_bound(&and_, &n, "$gte", &f->id_lo);
  if (f->has_id_hi)
    append_id_bound(&and_, &n, "$lte", &f->id_hi);
  if (lo) {
    msg_oid id = edge(f->seq.lo < SEQ_MAX ? f->seq.lo : SEQ_MAX, 0);
    append_id_bound(&and_, &n, "$gte", &id);
  }
  if (hi) {
    msg_oid id = edge(f->seq.hi > 0 ? f->seq.hi : 0, 0xFF);
    append_id_bound(&and_, &n, "$lte", &id);
  }
  bson_append_array_end(filter, &and_);
}

void msg_mongo_browse_append(bson_t *filter, const msg_filter *f, bool locked) {
  if (f->topic_count && f->topic_count <= LIST_MAX)
    msg_mongo_append_topics(filter, f->topics, f->topic_count);
  if (f->sender_count && f->sender_count <= LIST_MAX)
    msg_mongo_append_texts(filter, "sender", "$in", f->senders, f->sender_count, false);
  if (f->id_count && f->id_count <= LIST_MAX)
    msg_mongo_append_ids(filter, "_id", "$in", f->ids, f->id_count);
  append_id_bounds(filter, f);
  append_range(filter, "priority", &f->priority);
  append_range(filter, "timestamp", &f->deliver_at_ms);
  append_states(filter, f->states, locked);
}

bson_t *msg_mongo_browse_sort(const msg_filter *f) {
  if (f->ordered)
    return BCON_NEW("priority", BCON_INT32(1), "timestamp", BCON_INT32(1), "_id", BCON_INT32(1));
  return BCON_NEW("_id", BCON_INT32(f->descending_seq ? -1 : 1));
}
