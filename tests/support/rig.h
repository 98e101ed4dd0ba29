/* rig.h - a store behind a fault_store, and peers on it: a node with its session, each used by one
 * thread at a time. */
#ifndef MSG_TESTS_RIG_H
#define MSG_TESTS_RIG_H

#include <stdatomic.h>

#include "base/thread.h"
#include "engine/cursors.h"
#include "engine/node.h"
#include "support/fault_store.h"

struct sqlite3;

enum rig_kind {
  RIG_FAKE,     /* fake_store: the engine alone */
  RIG_PUSH,     /* fake_store with MSG_CAP_PUSH and MSG_CAP_TEND */
  RIG_NO_WATCH, /* fake_store without MSG_CAP_WATCH */
  RIG_FILE,     /* the local store in a file; a connection a peer */
  RIG_MEMORY    /* the local store in memory; one connection for all peers, so one thread */
};

typedef struct peer peer;

enum { RIG_PEERS = 16 };

typedef struct rig {
  enum rig_kind kind;
  msg_store *store;   /* the fault_store, referenced */
  struct sqlite3 *db; /* the connection that showed the file; NULL: fake */
  char path[64];
  int others;             /* stores that an earlier, failed test left behind */
  peer *peers[RIG_PEERS]; /* open, in the order of opening */
  int peer_count;
} rig;

/** Fails the test when it cannot. */
void rig_open(rig *r, enum rig_kind kind);
/** The usual scene: two peers on it. */
void rig_open_pair(rig *r, enum rig_kind kind, peer *a, const char *a_id, peer *b,
                   const char *b_id);
/** Closes the peers still open and gives the reference back; the store must be gone then. */
void rig_close(rig *r);

struct peer {
  rig *rig;
  struct sqlite3 *db;
  void *host; /* msg_host of the local store */
  msg_session *session;
  msg_node *node;
  msg_call call;
  atomic_bool interrupt;
};

/** sender_id NULL: automatic. Attached. *p stays where it is until it is closed. */
void peer_open(rig *r, peer *p, const char *sender_id);
/** With settings; not attached. */
void peer_open_with(rig *r, peer *p, const msg_settings *settings);
/** Earlier than rig_close does it. node NULL: the test has closed it. */
void peer_close(peer *p);

/** SQL on the peer's connection; an SQLite code. */
int peer_sql(peer *p, const char *sql);

/** Send text; returns its id. */
msg_oid peer_send(peer *p, const char *topic, const char *text);
msg_oid peer_enqueue(peer *p, const char *topic, const char *text);
/** Await or claim one; the text, or NULL. The list of the last one is kept in *out (may be
 *  NULL). */
int peer_await(peer *p, const char *topic, int64_t timeout_ms, size_t max, msg_list *out);
int peer_claim(peer *p, const char *topic, int64_t wait_ms, size_t count, msg_list *out);

/* A wait in another thread. */
typedef struct rig_wait {
  peer *p;
  const char *topic;
  bool claims;
  int64_t timeout_ms;
  size_t max;
  /* out */
  int rc;
  msg_err err;
  msg_list list;
  int64_t took_ms;
  msg_thread *thread;
  atomic_bool done;
} rig_wait;
void rig_wait_start(rig_wait *w);
/** Start, and wait until it sleeps, alone. */
void rig_wait_begin(rig_wait *w);
/** Join; w->list is the caller's. */
void rig_wait_join(rig_wait *w);
/** Join; it got one message, of this text. */
void rig_wait_expect(rig_wait *w, const char *text);
/** Wait until this many waits of the rig's store sleep. */
void rig_until_waiters(rig *r, int n);
/** Wait until the store's cursor thread is in `state` (at most 5 s; fails the test). */
void rig_until_state(rig *r, const char *state);
/** A copy of the store's row in msg_engine_cursors; its texts are static or live as long as the
 *  store, last_error is in *error. */
msg_cursor_info rig_cursor(rig *r, char error[512]);
void rig_sleep(int64_t ms);

/* "At once": within 100 ms, and what a sanitizer on a busy machine makes of it. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define RIG_PROMPT_MS 1000
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define RIG_PROMPT_MS 1000
#endif
#endif
#ifndef RIG_PROMPT_MS
#define RIG_PROMPT_MS 100
#endif

/* Tests that run on several kinds of stores: the kind is the initial state. */
extern enum rig_kind rig_fake, rig_push, rig_no_watch, rig_file, rig_memory;
#define RIG_TEST(f, kind)                                                                          \
  { #f " [" #kind "]", f, NULL, NULL, &rig_##kind }
#define RIG_KIND(state) (*(enum rig_kind *)*(state))

#endif
