/* node.h - a participant: what it sends, awaits, claims and answers, on any store.
 *
 * A node is shared by the connections of this process that name the same sender id on the same
 * queue of the same store. It owns no session: each call brings its own (struct msg_call).
 * All functions: any thread, several at once on one node. No lock is held across a store call.
 * Waits hold nothing. A child made by fork() gets MSG_FORKED for the nodes of its parent, frees
 * nothing of them, and may open its own. */
#ifndef MSG_ENGINE_NODE_H
#define MSG_ENGINE_NODE_H

#include "engine/registry.h"
#include "model/options.h"
#include "store/store.h"

typedef struct msg_node msg_node;

/* What a caller lends for one call. */
typedef struct msg_call {
  /* Verbs run here. */
  msg_session *session;
  /* Not NULL: the host is inside BEGIN without a transaction on the messages yet. Listening,
   * looking and requests run here until there is something to take, so that the host's transaction
   * stays free. */
  msg_session *aside;
  /* Not NULL: the host is in a transaction that the store cannot join. What is sent and settled
   * goes here, until it commits. Has put and settle alone. */
  msg_session *writes;
  /* A wait could see nothing new (the host's transaction already holds a snapshot): waiting verbs
   * with a time-out above 0 that find nothing at once return MSG_MISUSE with the cure. */
  bool blind;
  /* An await that goes on where another ended: what is known since is enough. */
  bool goes_on;
  /* A claim for which msg_claim.brief is enough. */
  bool brief;
  /* Probed every 90 ms or sooner while a verb waits; NULL: never. */
  bool (*interrupted)(void *arg);
  void *arg;
  /* Told what users should read; NULL: nobody is. */
  void (*warn)(const char *text);
} msg_call;

/** The node (settings->sender_id, settings->queue) on `store`, made if this process has none; an
 *  automatic id `<host>-<program>-<pid>-<n>` if none is given. Takes its own reference to the
 *  store. Settings of an existing node stay as they are.
 *  Errors: MSG_INVALID name, MSG_MISUSE store not registered, MSG_NOMEM. */
int msg_node_open(msg_store *store, const msg_settings *settings, msg_node **out, msg_err *err);
/** Give a reference back; the last one ends its waits (MSG_SHUTDOWN), stops and joins the cursor
 *  thread if it was the last of its store. NULL allowed. */
void msg_node_close(msg_node *node);
/** End every wait of this node now with MSG_SHUTDOWN text "node closed"; later calls fail with
 *  MSG_MISUSE, and msg_node_open makes a new node of the name. msg_close() uses it. */
void msg_node_shut(msg_node *node);
bool msg_node_is_shut(const msg_node *node);

/** Does nobody else in this process have the node open? */
bool msg_node_is_last(const msg_node *node);
const char *msg_node_id(const msg_node *node);
bool msg_node_automatic(const msg_node *node);
msg_store *msg_node_store(const msg_node *node);
/** A copy of the settings in force (msg_settings_clear it). */
int msg_node_settings(msg_node *node, msg_settings *out, msg_err *err);
int msg_node_configure(msg_node *node, const char *name, const msg_value *v, bool is_bool,
                       msg_err *err);

/** A connection that may wait is there / is gone. While none is, waiters look every poll_pause_ms.
 *  The cursor thread of the store starts at the first wait and is stopped and joined when the last
 *  attached connection of the store leaves (from xDisconnect, before SQLite closes the file). */
void msg_node_attach(msg_node *node);
void msg_node_detach(msg_node *node);

/** Announce as participant. withdraw: on close; best effort, also after msg_node_shut. */
int msg_node_announce(msg_node *node, msg_call *call, msg_err *err);
int msg_node_withdraw(msg_node *node, msg_call *call, msg_err *err);
/** The host rolled back: what the store was told on the host's connection (listening) may be lost,
 *  and is told again at the next await. */
void msg_node_forget(msg_node *node);

/* ---- sending ---- */

/** Fill in what a send leaves open: id, sender, sender_host, timestamp, ttl / timing_out /
 *  delete_at (broadcast: default_ttl_ms unless ttl or timing_out was given; exclusive: none unless
 *  ttl given; life counts from deliver_at), deliver_at (= timestamp, or now + delay), and check
 *  topic, recipients, key, group. options may be NULL: nothing was given. Where m->lent says so,
 *  the sender's names are the node's own. */
int msg_node_fill(msg_node *node, msg_message *m, const msg_options *options, msg_err *err);
/** Fill one and put it. *id as in msg_put. */
int msg_node_send_one(msg_node *node, msg_call *call, msg_message *m, const msg_options *options,
                      msg_oid *id, msg_err *err);
/** Put filled messages as one batch. ids[i], existed[i] (either may be NULL) as in msg_put. */
int msg_node_send(msg_node *node, msg_call *call, const msg_message *messages, size_t n,
                  msg_oid *ids, bool *existed, msg_err *err);
/** These were put without the functions here: whoever in this process awaits from now on finds
 *  them. */
void msg_node_put_beside(msg_node *node, const msg_put *puts, size_t n);
/** Messages were removed or changed without the functions here: what was pushed to this process is
 *  looked for in the store before it is handed out. */
void msg_node_doubt(msg_node *node);
/** Send a request (filled) and wait for up to `answers` answers. Appends what came. None:
 *  MSG_TIMEOUT, or MSG_MISUSE (text says why none can come). The request's id in *id (NULL
 *  allowed) even then. Inside a transaction of the host it leaves at once, through `aside`.
 *  Errors: MSG_MISUSE the host's transaction is on the messages already (text says the cure). */
int msg_node_request(msg_node *node, msg_call *call, msg_message *request, int64_t timeout_ms,
                     size_t answers, msg_oid *id, msg_list *out, msg_err *err);
/** Answer message `id` (handed to this node among the last 1024, or still in the store): topic,
 *  msg, life copied from it as Morphium's factory does, priority - 10, recipient = its sender,
 *  in_answer_to = id; options override msg, map, additional, ttl, priority. MSG_NOTFOUND: unknown
 *  id. */
int msg_node_reply(msg_node *node, msg_call *call, const msg_oid *id, const msg_value *value,
                   const msg_options *options, msg_oid *out, msg_err *err);

/* ---- receiving ---- */

/** catch_up NULL: as the settings say. MSG_EXISTS: it listened already, and goes on as it did. */
int msg_node_listen(msg_node *node, msg_call *call, const char *pattern, const bool *catch_up,
                    msg_err *err);
int msg_node_unlisten(msg_node *node, msg_call *call, const char *pattern,
                      msg_err *err); /* MSG_NOTFOUND */
/** Next messages not seen yet, marked seen. pattern NULL: everything listened to. Listens to it
 *  from the first call on. timeout_ms 0: look once. Nothing came: MSG_TIMEOUT. */
int msg_node_await(msg_node *node, msg_call *call, const char *pattern, int64_t timeout_ms,
                   size_t max, msg_list *out, msg_err *err);
/** Lease. wait_ms 0: look once. None: MSG_TIMEOUT. lease_ms 0: the node's setting. */
int msg_node_claim(msg_node *node, msg_call *call, const char *pattern, size_t count,
                   int64_t lease_ms, int64_t wait_ms, msg_list *out, msg_err *err);
int msg_node_settle(msg_node *node, msg_call *call, const msg_settle *how, msg_settle_item *items,
                    size_t n, msg_err *err);
/** These claims were rolled back by the host. No I/O, never fails. */
void msg_node_undone(msg_node *node, const msg_oid *ids, size_t n);

/* ---- pausing: this node alone, in memory ---- */

int msg_node_pause(msg_node *node, const char *pattern, bool *changed, msg_err *err);
int msg_node_resume(msg_node *node, const char *pattern, bool *changed, msg_err *err);
bool msg_node_is_paused(msg_node *node, const char *topic);
/** True when this node's last claim on the topic found nothing. If messages are ready there all the
 *  same (msg_count: ready > 0 and broadcasts == ready), they are broadcasts, which only an await
 *  takes: msg_topics and the doctor say so. The last 64 patterns are remembered. */
bool msg_node_claimed_in_vain(msg_node *node, const char *topic);

/** The i-th of the last 16 topics and recipients that a check of the registry warned of and that
 *  nothing reached since. False: there are fewer. */
bool msg_node_missed(msg_node *node, size_t i, char *name, size_t size, bool *topic);

/* ---- counters, since the node was opened ---- */

/* One table of names: msg_stats. */
enum msg_stat {
  MSG_STAT_SENT,
  MSG_STAT_DEDUPLICATED,
  MSG_STAT_AWAITED,
  MSG_STAT_CLAIMED,
  MSG_STAT_ACKED,
  MSG_STAT_RELEASED,
  MSG_STAT_EXTENDED,
  MSG_STAT_REJECTED,
  MSG_STAT_LATE,   /* settlings refused because the lease was no longer theirs */
  MSG_STAT_UNDONE, /* claims rolled back */
  MSG_STAT_REQUESTS,
  MSG_STAT_ANSWERS,
  MSG_STAT_TIMEOUTS,
  MSG_STAT_REPLIES,
  MSG_STAT_STORE_CALLS, /* calls of store verbs */
  MSG_STAT_WAKES,       /* wakes of waiters by the cursor thread, or by a change of this process */
  MSG_STAT_COUNT
};
const char *msg_stat_name(enum msg_stat s);
int64_t msg_node_stat(msg_node *node, enum msg_stat s);
/** Count what happened outside of the functions above: calls of store verbs by ext/. */
void msg_node_count(msg_node *node, enum msg_stat s, int64_t n);

#endif
