/* types.h - what goes in and out of the verbs of store.h: plain values.
 * Texts in what goes in are borrowed for the call; texts in what comes out are the caller's, or in
 * a row of a listing borrowed. Times are ms since the epoch, judged by the store's clock. */
#ifndef MSG_STORE_TYPES_H
#define MSG_STORE_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/oid.h"
#include "model/message.h"
#include "model/settings.h"
#include "model/topic.h"

/* Who acts: borrowed for the call. */
typedef struct msg_actor {
  const char *node;    /* sender id */
  const char *process; /* msg_process_self() */
  const msg_settings *settings;
} msg_actor;

/* One message to put. The engine has filled every field except seq, state and claim. */
typedef struct msg_put {
  const msg_message *message;
  int64_t key_until_ms; /* with message->key: remembered until then */
  msg_oid id;           /* out: the id in the store: of the first send, when the key was seen */
  bool existed;         /* out: key seen within its window: nothing was added */
} msg_put;

/* What one node may be handed now. */
typedef struct msg_unseen {
  /* NULL: every pattern the node listens to, and directs of any topic */
  const msg_pattern *pattern;
  const msg_oid *answers_to; /* only answers to this request; NULL: any */
  const msg_oid *reserved;   /* answers to these requests belong to other waiters: leave them */
  size_t reserved_count;
  const msg_pattern *const *paused; /* topics to leave alone */
  size_t paused_count;
  size_t max; /* > 0 */
} msg_unseen;

typedef struct msg_claim {
  const msg_pattern *pattern;
  const msg_pattern *const *paused;
  size_t paused_count;
  size_t count;     /* > 0 */
  int64_t lease_ms; /* > 0 */
  bool waits;       /* for what comes: the watch shall tell it */
  bool brief; /* of the messages sender, sender_host, in_answer_to, map, additional, key, group,
                 owner, ttl, timing_out and delete_after_processing are not asked for, and may be
                 left out */
  /* Not 0: only these, which were pushed and match; the store need not look for others. */
  const msg_oid *offered;
  size_t offered_count;
} msg_claim;

enum msg_settle_verb {
  MSG_SETTLE_ACK,
  MSG_SETTLE_RELEASE,
  MSG_SETTLE_EXTEND,
  MSG_SETTLE_REJECT,
  MSG_SETTLE_FREE
};

typedef struct msg_settle_item {
  msg_oid id;
  const char *token; /* NULL: this node's own claim */
  bool done;         /* out: false when the lease is no longer theirs */
} msg_settle_item;

typedef struct msg_settle {
  enum msg_settle_verb verb; /* FREE: by an operator, whoever owns it; ready again at once */
  int64_t delay_ms;          /* RELEASE: >= 0 */
  int64_t lease_ms;          /* EXTEND: > 0, from now */
  const char *reason;        /* REJECT */
} msg_settle;

/* What a transaction of the host did, to go out as one. */
typedef struct msg_unit {
  struct msg_unit_settle {
    msg_settle how;
    msg_settle_item *items; /* every one with its token */
    size_t n;
  } * settles; /* these first */
  size_t settle_count;
  msg_put *puts; /* in order */
  size_t put_count;
  bool reached; /* out of a failed apply: something of it may be in the store all the same.
                 * In of an undo: it was such a failure */
} msg_unit;

/* Change of one message; only what is set. */
typedef struct msg_update {
  bool has_priority, has_deliver_at, has_ttl;
  int32_t priority;
  int64_t deliver_at_ms;
  int64_t ttl_ms; /* new life from now; 0: no expiry */
} msg_update;

/* Counts of one topic or one queue.
 * depth = everything that waits: ready + delayed + claimed + blocked. */
typedef struct msg_count {
  char *name; /* topic or queue */
  int64_t depth, ready, delayed, claimed, blocked, dead;
  int64_t broadcasts; /* live broadcasts and directs, part of ready */
  int64_t listeners;  /* nodes alive that listen (a queue: to anything) */
  int64_t oldest_ms;  /* timestamp of the oldest waiting; 0 if none */
} msg_count;

typedef struct msg_participant {
  char *node, *host, *implementation;
  char *layout;   /* in, NULL: the store's own */
  char *process;  /* identity of its process; "" unknown */
  int pid;        /* 0 unknown */
  bool automatic; /* its id was made, not given */
  bool alive;     /* out */
  int64_t started_at_ms, last_seen_ms;
} msg_participant;

/** Frees the texts. Thread: any. */
void msg_participant_clear(msg_participant *p);

typedef struct msg_lane {
  char *lane, *owner;
  int64_t depth, oldest_ms;
  bool owner_alive, orphan; /* orphan: its owner is not alive */
  bool indexed;             /* what is in it goes when its time is over */
} msg_lane;

typedef struct msg_listener {
  char *node, *pattern;
  bool alive; /* the node is, as far as the store can tell */
} msg_listener;

enum msg_event_kind {
  MSG_EVENT_CHANGED, /* something may have changed: look again (a hint) */
  MSG_EVENT_MESSAGE, /* MSG_CAP_PUSH: `message` arrived */
  MSG_EVENT_LOST     /* history lost: rescan */
};
typedef struct msg_event {
  enum msg_event_kind kind;
  msg_message message; /* the caller's (msg_message_clear); empty unless MSG_EVENT_MESSAGE. Of an
                          exclusive one all but its value, map, additional, msg */
  bool more;           /* the next event is there already */
  /* MSG_CAP_PUSH: monotonic; what was durable before then was told by earlier events. 0: unknown */
  int64_t told_ms;
  int64_t turn_ms; /* of an exclusive message: how long other processes go first */
} msg_event;

typedef struct msg_watch_info { /* for msg_cursors */
  const char *what;             /* file or collection; lives as long as the watch */
  const char *how;              /* "inotify", "poll", "change stream"; static */
  int64_t token_age_ms;         /* -1 where there is no resume token */
} msg_watch_info;

#endif
