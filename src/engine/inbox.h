/* inbox.h - what a store's watch pushed to a node while somebody looks for it. It is never all
 * there is: whoever takes from it has looked at the store before, and knows by the epoch that
 * nothing was lost since. What does not fit is dropped, which moves the epoch: the store has it.
 * Not thread-safe: the node's mutex guards it. Private to engine/. */
#ifndef MSG_ENGINE_INBOX_H
#define MSG_ENGINE_INBOX_H

#include "model/message.h"

#define MSG_INBOX_MAX_BYTES (4 * 1024 * 1024) /* but one message always fits */

/* A pushed message, shared by the inboxes it is in. */
typedef struct msg_parcel msg_parcel;

/** Owns: *m, which is emptied, also on failure. `told_ms` as in msg_event. NULL: no memory. */
msg_parcel *msg_parcel_new(msg_message *m, int64_t told_ms);
/** Any thread; unref: NULL allowed. */
void msg_parcel_ref(msg_parcel *p);
void msg_parcel_unref(msg_parcel *p);
const msg_message *msg_parcel_message(const msg_parcel *p);

typedef struct msg_inbox {
  struct msg_inbox_item {
    msg_parcel *parcel;
    uint64_t number; /* of the push */
  } * at;            /* in delivery order */
  size_t n, cap, bytes;
  uint64_t pushes;
  uint32_t epoch;     /* moves when something was not kept */
  int64_t scanned_ms; /* monotonic: the last look at the store that found something; 0 none */
  bool rung;          /* something came that the node's waits were not woken for */
  msg_oid *taking;    /* taken, the mark is under way */
  size_t taking_count, taking_cap;
} msg_inbox;

/** Keep it, among at most `max` and MSG_INBOX_MAX_BYTES. False: no room, all were dropped. */
bool msg_inbox_push(msg_inbox *b, msg_parcel *parcel, size_t max);
/** Drop all: only the store knows now. */
void msg_inbox_lose(msg_inbox *b);
/** Drop all: nobody looks. */
void msg_inbox_empty(msg_inbox *b);

/** Is this one to be taken? */
typedef bool (*msg_inbox_fn)(const void *arg, const msg_message *m);
/** Move the first `max` that came after push number `since` and are to be taken to *out, which is
 *  empty, in delivery order. Until msg_inbox_took they are in `taking`. *soon: no look at the store
 *  can have given any of them. Errors: MSG_NOMEM: only the store knows now. */
int msg_inbox_take(msg_inbox *b, msg_inbox_fn wants, const void *arg, size_t max, uint64_t since,
                   msg_list *out, bool *soon);
/** The mark of these is done. */
void msg_inbox_took(msg_inbox *b, const msg_oid *ids, size_t n);
/** A look at the store gave these: they go from the inbox, and those that another thread is taking
 *  go from the list. */
void msg_inbox_scanned(msg_inbox *b, msg_list *found);
void msg_inbox_clear(msg_inbox *b);

#endif
