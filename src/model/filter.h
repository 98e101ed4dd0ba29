/* filter.h - which messages a browse wants: a superset is allowed, SQLite filters again. */
#ifndef MSG_MODEL_FILTER_H
#define MSG_MODEL_FILTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/oid.h"
#include "model/message.h"

/* Closed integer range; lo > hi matches nothing. */
typedef struct msg_range {
  int64_t lo, hi;
} msg_range;

typedef struct msg_filter {
  bool none; /* contradiction: no rows */
  char **topics;
  size_t topic_count; /* any of; NULL: all */
  char **senders;
  size_t sender_count;
  msg_oid *ids;
  size_t id_count;
  bool has_id_lo, has_id_hi; /* closed range on id */
  msg_oid id_lo, id_hi;
  unsigned states; /* bit 1<<enum msg_state; 0: all */
  msg_range priority, timestamp_ms, deliver_at_ms, seq;
  bool ordered;          /* wanted in delivery order: priority, deliver_at, seq */
  bool descending_seq;   /* wanted newest first (only with !ordered) */
  bool ascending_seq;    /* wanted oldest first (only with !ordered and !descending_seq) */
  int64_t limit, offset; /* -1 / 0: none; set only when the store applies every term exactly */
  bool bare;             /* nobody looks at processed_by: leave it NULL (it costs look-ups) */
} msg_filter;

/** Everything, in store order. */
void msg_filter_init(msg_filter *f);
/** Free the lists and start again from everything. */
void msg_filter_clear(msg_filter *f);
/** Append one more (copied): MSG_OK, or MSG_NOMEM with f unchanged. */
int msg_filter_add_topic(msg_filter *f, const char *topic);
int msg_filter_add_sender(msg_filter *f, const char *sender);
int msg_filter_add_id(msg_filter *f, const msg_oid *id);
/** Narrow r to its cut with [lo, hi]. */
void msg_range_cut(msg_range *r, int64_t lo, int64_t hi);
/** Does the filter admit m? Used by stores without an index for a term, and by tests.
 *  Not for limit/offset/order. A message without topic or sender matches no list of them. */
bool msg_filter_match(const msg_filter *f, const msg_message *m);

#endif
