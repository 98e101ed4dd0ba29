/* contract.h - the contract of src/store/store.h as tests. An adapter gives a fixture; nothing
 * here knows what is behind it.
 *
 * A test has an empty place with one store and one session (k->s); more sessions come by
 * contract_session and end with the test. The wall clock is the tests' to shift: it is restored
 * afterwards. */
#ifndef MSG_TESTS_CONTRACT_H
#define MSG_TESTS_CONTRACT_H

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/process.h"
#include "base/thread.h"
#include "store/store.h"
#include "support/cmocka_compat.h"

typedef struct contract_adapter {
  const char *name;
  const char *layout; /* the setting; NULL: not set */
  /** A new, empty place and a store on it. */
  void (*setup)(void **place, msg_store **store);
  /** A session for another thread, or, where the store has no MSG_CAP_OWN, for this one.
   *  `settings` are borrowed. */
  msg_session *(*session)(void *place, msg_store *store, const char *queue,
                          const msg_settings *settings);
  void (*session_end)(void *place, msg_session *session);
  void (*teardown)(void *place, msg_store *store);
  /** The store's clock goes, to `shift_ms` in all since setup; this process's has. Optional: NULL
   *  where the store goes by this process's clock. */
  void (*clock_shift)(void *place, msg_store *store, int64_t shift_ms);
} contract_adapter;

enum { CONTRACT_SESSIONS = 16 };

typedef struct contract {
  const contract_adapter *adapter;
  void *place;
  msg_store *store;
  msg_session *s;
  msg_settings settings;
  msg_session *sessions[CONTRACT_SESSIONS];
  size_t session_count;
  int64_t shift_ms;
  msg_err err;
} contract;

/** Run the whole suite. Returns the number of failed tests. */
int contract_run(const contract_adapter *adapter);

/* ---- helpers of the suite ---- */

/** Fails the test with the error's text unless rc is MSG_OK. */
void contract_ok(int rc, const msg_err *err, const char *file, int line);
#define OK(call) contract_ok((call), &k->err, __FILE__, __LINE__)

msg_session *contract_session(contract *k, const char *queue);
/** Skips the test where the store lacks one of `caps`. */
void contract_needs(contract *k, unsigned caps);
/** Move the wall clock, the store's too; back when negative. */
void contract_pass(contract *k, int64_t ms);
msg_actor contract_actor(contract *k, const char *node);
msg_pattern *contract_pattern(const char *text);

/* A message in short; what is zero or NULL is as msg_node_fill leaves it. */
typedef struct contract_spec {
  const char *topic, *text, *sender; /* sender: "sender" */
  bool exclusive;
  int32_t priority;         /* 0: 1000 */
  int64_t delay_ms, ttl_ms; /* ttl 0: no expiry */
  const char *to, *to_also;
  const msg_oid *answers;
  const char *group, *key;
  bool delete_after;
  int32_t delete_after_ms;
  msg_oid id;
} contract_spec;

/** The message of a spec; the caller's. */
void contract_message(const contract_spec *spec, msg_message *out);
/** Put one through `s`; its id. */
msg_oid contract_put(contract *k, msg_session *s, const contract_spec *spec);
#define PUT(...) contract_put(k, k->s, &(contract_spec){__VA_ARGS__})

/** What a claim of up to n gives; appends nothing if none. */
void contract_claim(contract *k, msg_session *s, const char *node, const char *pattern, size_t n,
                    int64_t lease_ms, msg_list *out);
/** Settle one: done? */
bool contract_settle(contract *k, const char *node, enum msg_settle_verb verb, const msg_oid *id,
                     const char *token, int64_t ms);
/** Listen from the beginning (catch_up) or from now on. */
void contract_listen(contract *k, const char *node, const char *pattern, bool catch_up);
/** Look, without marking. */
void contract_unseen(contract *k, const char *node, const char *pattern, size_t max, msg_list *out);
/** Look and mark: the texts handed out, joined by ' '; static until the next call. */
const char *contract_await(contract *k, const char *node, const char *pattern, size_t max);
/** Texts of a list joined by ' '; static until the next call. */
const char *contract_texts(const msg_list *list);
/** Claim and forget the rows: their texts. */
const char *contract_claimed(contract *k, const char *node, const char *pattern, size_t n);
/** State of a message as shown; -1 when it is gone. */
int contract_state(contract *k, const msg_oid *id);
int64_t contract_count(contract *k);

/* ---- the groups ---- */
typedef struct contract_group {
  const char *name;
  const struct CMUnitTest *tests;
  size_t n;
} contract_group;
extern const contract_group contract_puts, contract_finds, contract_listens, contract_directs,
    contract_claims, contract_settles, contract_admins, contract_counts, contract_presences,
    contract_watches, contract_threads;

#endif
