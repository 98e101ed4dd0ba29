/* inbox.h - what a store's watch pushed to a node that looks for it now and then, and what a look
 * found beyond what its caller wanted. It is never all there is: whoever relies on it has looked at
 * the store before, and knows by the epoch that nothing was lost since. What does not fit is
 * dropped, which moves the epoch: the store has it. Not thread-safe: the node's mutex guards it.
 * Private to engine/. */
#ifndef MSG_ENGINE_INBOX_H
#define MSG_ENGINE_INBOX_H

#include "model/message.h"

#define MSG_INBOX_MAX_BYTES (16 * 1024 * 1024) /* but one message always fits */

/* A pushed message, shared by the inboxes it is in. */
typedef struct msg_parcel msg_parcel;

/** Owns: *m, which is emptied, also on failure. `told_ms` as in msg_event. NULL: no memory. */
msg_parcel *msg_parcel_new(msg_message *m, int64_t told_ms);
/** Any thread; unref: NULL allowed. */
void msg_parcel_ref(msg_parcel *p);
void msg_parcel_unref(msg_parcel *p);
const msg_message *msg_parcel_message(const msg_parcel *p);

/* How far the store was looked at for something: what it had then is handed out or in the inbox. */
typedef struct msg_looked {
  uint64_t epoch;  /* as of look.c: it changes when something was not kept; 0: there was no look */
  uint64_t pushes; /* what was pushed before it was there for the look to find */
  uint64_t puts;   /* of this process, for the node, until then */
  bool part;       /* only as far as `upto`: there may be more behind it */
  bool found;      /* something, the last of it at `upto` */
  msg_rank upto;
} msg_looked;

typedef struct msg_inbox {
  struct msg_inbox_item {
    msg_parcel *parcel;
    uint64_t number; /* of the push */
    int64_t at_ms;   /* monotonic: when it came here */
    bool found;      /* by a look, not pushed */
  } * at;            /* in delivery order */
  size_t n, cap, bytes;
  uint64_t pushes;
  uint32_t epoch;     /* moves when something was not kept */
  int64_t scanned_ms; /* monotonic: the last look at the store that found something; 0 none */
  int64_t doubted_ms; /* monotonic: the last msg_inbox_doubt; 0 never */
  bool rung;          /* something came that the node's waits were not woken for */
  bool looking;       /* one look at the store at a time; it may find what is taken meanwhile */
  msg_oid *taking;    /* taken: the mark is under way; behind those, marked since a look began */
  size_t taking_count, taken_count, taking_cap;
} msg_inbox;

/** Keep it, among at most `max` and MSG_INBOX_MAX_BYTES, unless it is there or being taken.
 *  False: no room, or in doubt, all were dropped. */
bool msg_inbox_push(msg_inbox *b, msg_parcel *parcel, size_t max);
/** Something of what is here, or of what is on its way, may be gone or changed: all is dropped, and
 *  for a while what is pushed as well, and nothing is given *soon. */
void msg_inbox_doubt(msg_inbox *b);
/** Drop all: only the store knows now. */
void msg_inbox_lose(msg_inbox *b);

/** Is this one to be taken? */
typedef bool (*msg_inbox_fn)(const void *arg, const msg_message *m);
/** Move the first `max` that are to be taken, and came since that look, to *out, which is empty, in
 *  delivery order. Until msg_inbox_took they are in `taking`. *soon: they came not long ago, and
 *  none can have been given before. Errors: MSG_NOMEM: only the store knows now. */
int msg_inbox_take(msg_inbox *b, msg_inbox_fn wants, const void *arg, size_t max,
                   const msg_looked *since, msg_list *out, bool *soon);
/** Append to *out the first `max` that msg_inbox_take would give, by their ids alone, if the first
 *  of them would not be given *soon but for the store's word. Errors: MSG_NOMEM. */
int msg_inbox_unsure(const msg_inbox *b, msg_inbox_fn wants, const void *arg, size_t max,
                     const msg_looked *since, msg_list *out);
/** The store was asked: those of the list that came until push number `upto` and are `still`
 *  unseen are as if a look had given them now, the others go. */
void msg_inbox_asked(msg_inbox *b, const msg_list *list, const bool *still, uint64_t upto);
/** These are being taken, too. Errors: MSG_NOMEM, none is. */
int msg_inbox_taking(msg_inbox *b, const msg_list *list);
/** The mark of these is done. */
void msg_inbox_took(msg_inbox *b, const msg_oid *ids, size_t n);
/** A look at the store begins. False: there is one. */
bool msg_inbox_look(msg_inbox *b);
void msg_inbox_look_end(msg_inbox *b);
/** A look gave these: they go from the inbox, and those that another thread takes or took meanwhile
 *  go from the list. */
void msg_inbox_looked(msg_inbox *b, msg_list *found);
/** Keep those from `from` on, which the look's caller does not want. They go from the list. */
void msg_inbox_keep(msg_inbox *b, msg_list *found, size_t from, size_t max);
void msg_inbox_clear(msg_inbox *b);

#endif
