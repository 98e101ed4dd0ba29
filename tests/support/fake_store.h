/* fake_store.h - the smallest store behind the port, in memory: shows the engine alone, without
 * SQLite.
 *
 * One mutex guards everything; a watch is woken by every change. Exact topics and the patterns of
 * model/topic.h. No groups, keys, delays by sweep, or transactions: what is due is due by the
 * clock. Browsing and inspecting are not there. */
#ifndef MSG_TESTS_FAKE_STORE_H
#define MSG_TESTS_FAKE_STORE_H

#include "store/store.h"

/** caps: any of MSG_CAP_WATCH, MSG_CAP_PUSH, MSG_CAP_HOST_TXN; MSG_CAP_OWN always. NULL when
 *  memory is out. */
msg_store *fake_store_new(unsigned caps);
/** Rows of the participants' table. */
int fake_store_participants(msg_store *store);

#endif
