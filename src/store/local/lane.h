/* lane.h - walks over what waits in the lane of a recipient. Reads only. Private to store/local. */
#ifndef MSG_LOCAL_LANE_H
#define MSG_LOCAL_LANE_H

#include "store/local/firsts.h"
#include "store/local/session.h"

/* The primary key of msg_store_lane as an index: delivery order. */
#define MSG_LOCAL_LANE_ORDER "sqlite_autoindex_msg_store_lane_1"

/* What of a lane is wanted. Everything is borrowed for the walk. */
typedef struct msg_local_lane {
  const char *node;
  bool exclusive;             /* what it may claim, else what it may be handed */
  const msg_pattern *pattern; /* NULL: of any topic */
  const msg_pattern *const *paused;
  size_t paused_count;
  int64_t now_ms; /* what expires until then is left out */
} msg_local_lane;

typedef struct msg_local_waiting {
  msg_rank first;
  const char *in_answer_to; /* as stored; NULL none */
  size_t nth;               /* from 1, in its part of the walk */
} msg_local_waiting;

/** Takes one. *more (true before): false ends its part of the walk, for what follows there is not
 *  needed. */
typedef int (*msg_local_waiting_fn)(void *arg, const msg_local_waiting *, bool *more, msg_err *);

/** Hand what is wanted to `take`, each once. The first part is in delivery order; ended by `take`,
 *  it was the whole walk. When too much of other topics is in between, the rest comes topic by
 *  topic, each a part in delivery order. An exact pattern is one part that reads its topic only.
 *  Errors: of take, which end the walk. */
int msg_local_lane_walk(msg_local_session *s, const msg_local_lane *lane, msg_local_waiting_fn take,
                        void *arg, msg_err *err);

#endif
