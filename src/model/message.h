/* message.h - a message: the fields of Morphium's documents plus ours. A pure value. */
#ifndef MSG_MODEL_MESSAGE_H
#define MSG_MODEL_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/oid.h"
#include "base/texts.h"
#include "model/value.h"

/* What msg_messages.state shows. */
enum msg_state {
  MSG_STATE_READY = 0,
  MSG_STATE_DELAYED,
  MSG_STATE_CLAIMED,
  MSG_STATE_BLOCKED,   /* waits behind the head of its group */
  MSG_STATE_PROCESSED, /* every recipient took it, or settled and not yet removed */
  MSG_STATE_DEAD,
  MSG_STATE_EXPIRED /* past delete_at and not yet swept */
};
#define MSG_STATE_COUNT 7

#define MSG_PRIORITY_DEFAULT 1000
#define MSG_TTL_DEFAULT_MS   30000

typedef struct msg_message {
  /* Morphium's */
  msg_oid id; /* zero until put gives one */
  char *topic;
  char *msg; /* free text or NULL */
  msg_value value;
  char *map;        /* JSON object text or NULL (map_value) */
  char *additional; /* JSON array text or NULL */
  char *sender, *sender_host;
  char **recipients; /* NULL: everybody */
  size_t recipient_count;
  msg_oid in_answer_to; /* zero: not an answer */
  char *processed_by;   /* JSON array text; from find, "[]" if nobody, and to put, of a copy */
  bool exclusive;
  bool timing_out;
  bool delete_after_processing;
  int32_t delete_after_processing_ms;
  int32_t priority;     /* lower is more urgent */
  int64_t timestamp_ms; /* sent */
  int64_t ttl_ms;       /* 0 when !timing_out */
  int64_t delete_at_ms; /* MSG_NEVER: none */
  /* ours */
  int64_t seq;           /* store order; 0 where the store has none */
  int64_t deliver_at_ms; /* 0: at once */
  char *key;             /* de-duplication, or NULL */
  char *group;           /* FIFO, or NULL */
  enum msg_state state;
  int32_t attempts;            /* deliveries */
  char *reason;                /* dead-letter reason or NULL */
  char *owner;                 /* claim: node, or NULL */
  char token[MSG_OID_HEX + 1]; /* claim: "" if none */
  int64_t since_ms, until_ms;  /* claim: start and lease end; 0 if none */
  /* To put: one that was sent before, elsewhere. Sender, times, who has seen it, attempts and a
   * dead letter's state stay, and its key is remembered, but finds nothing. */
  bool copied;
  bool lent; /* topic, sender and sender_host are others', who outlive it: clear leaves them */
} msg_message;

/** Defaults: priority 1000, timing_out, delete_at MSG_NEVER, everything else zero. */
#define MSG_MESSAGE_INIT                                                                           \
  { .priority = MSG_PRIORITY_DEFAULT, .timing_out = true, .delete_at_ms = MSG_NEVER }
void msg_message_init(msg_message *m);
/** Free everything and start again from the defaults. */
void msg_message_clear(msg_message *m);
/** Deep copy, of which nothing is lent; on MSG_NOMEM *out is initialised and empty. */
int msg_message_copy(msg_message *out, const msg_message *m);
/** Append one recipient (copied): MSG_OK, or MSG_NOMEM with m unchanged. */
int msg_message_add_recipient(msg_message *m, const char *node);
bool msg_message_has_recipient(const msg_message *m, const char *node);
/** Names of states as shown in SQL ("ready", ...); parse returns false for any other text.
 *  Case-sensitive. */
const char *msg_state_name(enum msg_state s);
bool msg_state_parse(const char *s, enum msg_state *out);

/* A growable list of messages, in hand-out order. */
typedef struct msg_list {
  msg_message *at;
  size_t n, cap;
  msg_texts lends; /* texts that its messages have from it (msg_message.lent) */
} msg_list;
#define MSG_LIST_INIT                                                                              \
  { 0 }
/** Append an initialised message and return it, NULL when memory is out. */
msg_message *msg_list_add(msg_list *l);
/** Make room for n more: MSG_OK or MSG_NOMEM. */
int msg_list_reserve(msg_list *l, size_t n);
/** The list's copy of a text, which lives until clear; NULL when memory is out. For a few texts. */
char *msg_list_lend(msg_list *l, const char *text);
/** Free the messages and the list; it can be used again. */
void msg_list_clear(msg_list *l);
/** Keep those, each at[i], of which `keeps` says so; the others are cleared. */
void msg_list_keep(msg_list *l, bool (*keeps)(void *arg, size_t i, const msg_message *m),
                   void *arg);
/** Sort by msg_message_cmp. */
void msg_list_sort(msg_list *l);
/** Is a message of this id among those from `from` on? */
bool msg_list_has(const msg_list *l, size_t from, const msg_oid *id);

/* A place in delivery order. */
typedef struct msg_rank {
  int32_t priority;
  int64_t deliver_at_ms, seq;
  msg_oid id;
} msg_rank;
msg_rank msg_message_rank(const msg_message *m);
/** Which is delivered first: by priority, deliver_at, seq, id. */
int msg_rank_cmp(const msg_rank *a, const msg_rank *b);
int msg_message_cmp(const msg_message *a, const msg_message *b);
/** Is it delivered behind that place? */
bool msg_message_is_behind(const msg_message *m, const msg_rank *rank);

#endif
