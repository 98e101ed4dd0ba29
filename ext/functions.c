#include "ext/functions.h"

#include <stdio.h>

#include "base/mem.h"
#include "ext/state.h"
#include "ext/tables.h"
#include "ext/values.h"

/* The header may be older than the host: the flag is asked for by number. */
#ifndef SQLITE_RESULT_SUBTYPE
#define SQLITE_RESULT_SUBTYPE 0x001000000
#endif
#define RESULT_SUBTYPE_SINCE 3045000

/* Verbs inside verbs, by triggers of the schema: more is a circle, which would end in the stack. */
#define DEPTH_MAX 16

enum {
  TAKES_VALUE = SQLITE_SUBTYPE,
  GIVES_JSON = SQLITE_RESULT_SUBTYPE,
  DIRECT = SQLITE_DIRECTONLY /* a hostile schema must not consume, block or reconfigure */
};

typedef struct msg_function {
  const char *name;
  int lo, hi; /* arguments */
  int flags;
  int verb;
  msg_function_run run;
} msg_function;

static const msg_function FUNCTIONS[] = {
    {"msg_open", 0, 2, DIRECT, 0, msg_run_open},
    {"msg_close", 0, 1, DIRECT, 0, msg_run_close},
    {"msg_config", 1, 2, DIRECT, 0, msg_run_config},
    {"msg_version", 0, 0, 0, 0, msg_run_version},
    {"msg_doctor", 0, 0, GIVES_JSON, 0, msg_run_doctor},
    {"msg_send", 2, 3, TAKES_VALUE, MSG_VERB_SEND, msg_run_send},
    {"msg_enqueue", 2, 3, TAKES_VALUE, MSG_VERB_ENQUEUE, msg_run_send},
    {"msg_request", 3, 4, DIRECT | TAKES_VALUE | GIVES_JSON, MSG_VERB_REQUEST, msg_run_request},
    {"msg_reply", 2, 3, TAKES_VALUE, MSG_VERB_REPLY, msg_run_reply},
    {"msg_await", 0, 3, DIRECT | GIVES_JSON, 0, msg_run_await},
    {"msg_claim", 1, 4, DIRECT | GIVES_JSON, 0, msg_run_claim},
    {"msg_ack", 1, 2, 0, MSG_SETTLE_ACK, msg_run_ack},
    {"msg_release", 1, 3, 0, MSG_SETTLE_RELEASE, msg_run_release},
    {"msg_extend", 2, 3, 0, MSG_SETTLE_EXTEND, msg_run_extend},
    {"msg_reject", 2, 3, 0, MSG_SETTLE_REJECT, msg_run_reject},
    {"msg_listen", 1, 2, 0, 0, msg_run_listen},
    {"msg_unlisten", 1, 1, 0, 0, msg_run_unlisten},
    {"msg_pause", 1, 1, 0, 0, msg_run_pause},
    {"msg_resume", 1, 1, 0, 0, msg_run_resume},
    {"msg_purge", 1, 1, DIRECT, 0, msg_run_purge},
    {"msg_redrive", 1, 1, DIRECT, 0, msg_run_redrive},
};

/* What SQLite carries for one function and number of arguments. */
typedef struct registration {
  msg_connection *c; /* a reference */
  const msg_function *function;
} registration;

static void registration_free(void *p) {
  registration *r = p;
  msg_connection_unref(r->c);
  msg_free(r);
}

/* The one door: nested writes must not show in the host's last_insert_rowid(). */
static void run(sqlite3_context *ctx, int argc, sqlite3_value **argv) {
  registration *r = sqlite3_user_data(ctx);
  msg_connection *c = r->c;
  sqlite3 *db = msg_connection_db(c);
  sqlite3_int64 last = sqlite3_last_insert_rowid(db);
  msg_invocation in = {ctx, c, argc, argv, r->function->name, r->function->verb};
  msg_err err;
  msg_err_init(&err);
  int rc =
      ++c->depth <= DEPTH_MAX
          ? r->function->run(&in, &err)
          : msg_err_set(&err, MSG_MISUSE,
                        "%s: called from within itself %d times: look for a trigger that calls it "
                        "on a table of the messages",
                        in.name, DEPTH_MAX);
  c->depth--;
  if (rc != MSG_OK) {
    err.rc = rc;
    msg_result_error(ctx, &err);
  }
  if (sqlite3_last_insert_rowid(db) != last)
    sqlite3_set_last_insert_rowid(db, last);
  msg_connection_settle_down(c);
}

static int register_arity(msg_connection *c, const msg_function *f, int argc) {
  int flags = f->flags;
  if (sqlite3_libversion_number() < RESULT_SUBTYPE_SINCE)
    flags &= ~SQLITE_RESULT_SUBTYPE;
  registration *r = msg_alloc(sizeof *r);
  if (!r)
    return SQLITE_NOMEM;
  *r = (registration){c, f};
  msg_connection_ref(c);
  return sqlite3_create_function_v2(msg_connection_db(c), f->name, argc, SQLITE_UTF8 | flags, r,
                                    run, NULL, NULL, registration_free);
}

int msg_functions_register(msg_connection *c) {
  int rc = SQLITE_OK;
  for (size_t i = 0; rc == SQLITE_OK && i < sizeof FUNCTIONS / sizeof FUNCTIONS[0]; i++)
    for (int argc = FUNCTIONS[i].lo; rc == SQLITE_OK && argc <= FUNCTIONS[i].hi; argc++)
      rc = register_arity(c, &FUNCTIONS[i], argc);
  return rc;
}
