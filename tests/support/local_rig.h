/* local_rig.h - a local store under test: connections of a host, their sessions, short forms of the
 * verbs. Every short form asserts. */
#ifndef MSG_TESTS_LOCAL_RIG_H
#define MSG_TESTS_LOCAL_RIG_H

#include <sqlite3.h>
#include <stdbool.h>

#include "store/local/host.h"
#include "store/local/session.h"
#include "store/store.h"

typedef struct local_rig {
  sqlite3 *db;
  msg_host host;
  msg_store *store;
  msg_session *session;
  msg_settings settings;
  msg_actor actor;
  int interrupts; /* calls of the probe until it says stop; 0: never */
  msg_err err;    /* of the last call */
} local_rig;

/** A new file below the temporary directory, removed with everything beside it by
 * local_path_remove. */
void local_path_new(char out[64]);
void local_path_remove(const char *path);

/** A connection on `path` with a session of node `node` on queue "msg". busy_timeout_ms 0. */
void local_rig_open(local_rig *r, const char *path, const char *node);
/** Whole, also on an attached schema. */
void local_rig_open_schema(local_rig *r, const char *path, const char *schema, const char *attach,
                           const char *node);
void local_rig_close(local_rig *r);

/* A test with one rig, whose address is the initial state: in memory, of node "me". The wall clock
 * is set right afterwards. */
int local_rig_setup(void **state);
int local_rig_teardown(void **state);
#define LOCAL_TEST(f, rig)                                                                         \
  cmocka_unit_test_prestate_setup_teardown(f, local_rig_setup, local_rig_teardown, rig)

/** SQL on the host's connection; asserts that it works. */
void local_sql(local_rig *r, const char *sql);
/** The first column of the first row as integer (-1: no row). '@' is not replaced. */
int64_t local_number(local_rig *r, const char *sql);
/** Rows of msg_store_message in a stored state. */
int64_t local_count(local_rig *r, int state);

/** A message to put: text value, sender "sender", topic; exclusive. */
msg_message local_message(const char *topic, const char *value);
/** Put one; returns its id. m keeps its allocations. */
msg_oid local_put(local_rig *r, msg_message *m);
/** Put an exclusive message with default fields. */
msg_oid local_send(local_rig *r, const char *topic, const char *value);
int local_put_rc(local_rig *r, msg_message *m, msg_oid *id);

/** Claim up to n of a pattern for 30 s; appends. */
void local_claim(local_rig *r, const char *pattern, size_t n, msg_list *out);
int local_claim_rc(local_rig *r, const char *pattern, size_t n, int64_t lease_ms, msg_list *out);
bool local_claimable(local_rig *r, const char *pattern);
/** The values of what a claim of n gives, joined by ','. Static storage. */
const char *local_claimed(local_rig *r, const char *pattern, size_t n);

/** Settle one by token (NULL: own); true when done. */
bool local_settle(local_rig *r, enum msg_settle_verb verb, const msg_oid *id, const char *token);
bool local_release(local_rig *r, const msg_oid *id, int64_t delay_ms);
int64_t local_purge(local_rig *r, const char *pattern);
int64_t local_redrive(local_rig *r, const char *pattern);
/** Sweep whatever is due, also just after a look. */
void local_sweep(local_rig *r);

/** Every kept statement of the connection: local_plans_check. */
void local_check_plans(local_rig *r);

#endif
