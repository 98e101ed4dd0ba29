/* functions.h - the scalar functions: one row of functions.c each, run through one door. */
#ifndef MSG_EXT_FUNCTIONS_H
#define MSG_EXT_FUNCTIONS_H

#include "ext/calls.h"

/* One evaluation. All borrowed for its length. */
typedef struct msg_invocation {
  sqlite3_context *ctx;
  msg_connection *c;
  int argc;
  sqlite3_value **argv;
  const char *name; /* "msg_send": begins texts about arguments */
  int verb;         /* enum msg_verb or msg_settle_verb of functions that share their code */
} msg_invocation;

/** Sets the result on MSG_OK; any other code is reported as the error in *err. */
typedef int (*msg_function_run)(msg_invocation *in, msg_err *err);

/* open.c */
int msg_run_open(msg_invocation *in, msg_err *err);
int msg_run_close(msg_invocation *in, msg_err *err);
int msg_run_config(msg_invocation *in, msg_err *err);
int msg_run_version(msg_invocation *in, msg_err *err);
/* doctor.c */
int msg_run_doctor(msg_invocation *in, msg_err *err);
/* send.c: verb is an enum msg_verb */
int msg_run_send(msg_invocation *in, msg_err *err);
int msg_run_reply(msg_invocation *in, msg_err *err);
int msg_run_request(msg_invocation *in, msg_err *err);
/* take.c */
int msg_run_await(msg_invocation *in, msg_err *err);
int msg_run_claim(msg_invocation *in, msg_err *err);
/* settle.c */
int msg_run_ack(msg_invocation *in, msg_err *err);
int msg_run_release(msg_invocation *in, msg_err *err);
int msg_run_extend(msg_invocation *in, msg_err *err);
int msg_run_reject(msg_invocation *in, msg_err *err);
/* topics.c */
int msg_run_listen(msg_invocation *in, msg_err *err);
int msg_run_unlisten(msg_invocation *in, msg_err *err);
int msg_run_pause(msg_invocation *in, msg_err *err);
int msg_run_resume(msg_invocation *in, msg_err *err);
int msg_run_purge(msg_invocation *in, msg_err *err);
int msg_run_redrive(msg_invocation *in, msg_err *err);

/* ---- for their files: invocation.c ---- */

/** Was argument i given, and not NULL? */
bool msg_in_has(const msg_invocation *in, int i);
/** Text of argument i; `what` names it: "topic". */
int msg_in_text(const msg_invocation *in, int i, const char *what, const char **out, msg_err *err);
/** Integer of argument i; absent or NULL leaves *out alone. */
int msg_in_int(const msg_invocation *in, int i, const char *what, int64_t lo, int64_t hi,
               int64_t *out, msg_err *err);
/** Any value of argument i, borrowed. */
int msg_in_value(const msg_invocation *in, int i, msg_value *out, msg_err *err);

/** Node (NULL: the current one) and call in one. */
int msg_in_call(const msg_invocation *in, const char *node, enum msg_call_kind kind, msg_opened **o,
                msg_call *call, msg_err *err);

#endif
