/* upkeep.h - what the cursor thread of a queue does beside listening: moves what is due, tells the
 * others of this process's nodes, keeps their lanes. Owner: the cursor thread. Private to
 * store/mongo. */
#ifndef MSG_MONGO_UPKEEP_H
#define MSG_MONGO_UPKEEP_H

#include <stdatomic.h>

#include "store/mongo/rivals.h"

typedef struct msg_mongo_upkeep {
  /* immutable after begin; borrowed */
  msg_mongo_session *session;
  const msg_settings *settings;
  const atomic_bool *stop; /* a sweep ends */
  /* by tend */
  msg_texts rivals;             /* other processes with claims that wait: rivals.h */
  bool claims;                  /* wait here: told to them */
  int64_t due_ms;               /* store's clock: the next deadline */
  int64_t beat_ms;              /* monotonic: the next heartbeat, ... */
  int64_t refresh_ms, asked_ms; /* and the next refresh, the last time the server was asked */
  bool asked;                   /* it shall be asked soon */
  int64_t lanes_ms;             /* monotonic: when to look whether our lanes are there; MSG_NEVER */
} msg_mongo_upkeep;

/** Of a zeroed one. */
void msg_mongo_upkeep_begin(msg_mongo_upkeep *k, msg_mongo_session *session,
                            const msg_settings *settings, const atomic_bool *stop);
/** Do what the time asks for. True: who waits shall look. `streams`: what a sweep moves is told by
 *  the change stream. */
bool msg_mongo_upkeep_tend(msg_mongo_upkeep *k, bool streams);
/** How long to listen: until the next thing to do, the monotonic deadline, or some 500 ms. At least
 *  1. */
int64_t msg_mongo_upkeep_pause_ms(const msg_mongo_upkeep *k, int64_t deadline_mono_ms);

/** Somebody put what is due at `at_ms`, by the store's clock. */
void msg_mongo_upkeep_due(msg_mongo_upkeep *k, int64_t at_ms);
/** Somebody gave something back, perhaps for later: the server is asked for the next deadline. */
void msg_mongo_upkeep_ask(msg_mongo_upkeep *k);
/** Lanes of ours may be gone. */
void msg_mongo_upkeep_lanes(msg_mongo_upkeep *k);

/** Accepts a zeroed one. */
void msg_mongo_upkeep_clear(msg_mongo_upkeep *k);

#endif
