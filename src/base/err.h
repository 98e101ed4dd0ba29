/* err.h - result codes and the error carrier of every room. */
#ifndef MSG_BASE_ERR_H
#define MSG_BASE_ERR_H

#include <stdbool.h>

/* Result of every fallible function. MSG_OK is 0; outs are written only on MSG_OK. */
enum msg_rc {
  MSG_OK = 0,
  /* failures */
  MSG_NOMEM,
  MSG_TOOBIG,
  MSG_INTERRUPTED,
  MSG_BUSY, /* embedded file only */
  MSG_CORRUPT,
  MSG_IO,
  MSG_AUTH,
  MSG_READONLY,
  MSG_INVALID,     /* bad input: nothing was changed */
  MSG_MISUSE,      /* right input, wrong moment (closed node, wait inside a write transaction) */
  MSG_UNSUPPORTED, /* this store or build cannot do it */
  MSG_UNAVAILABLE, /* store out of reach */
  MSG_SHUTDOWN,    /* the node or engine is closing */
  MSG_FORKED,      /* called in a child of the process that opened it */
  MSG_BACKEND,     /* the store refused */
  /* outcomes: SQL NULL or 0, never an error of a verb */
  MSG_NOTFOUND,
  MSG_TIMEOUT,
  MSG_LOCKED, /* the claim is another's, or its lease ended */
  MSG_EXISTS
};

/* Whose number `native` is. */
enum msg_domain {
  MSG_DOMAIN_MSG = 0,
  MSG_DOMAIN_SQLITE,
  MSG_DOMAIN_MONGOC,
  MSG_DOMAIN_SERVER,
  MSG_DOMAIN_ERRNO
};

/* The caller's; always the last parameter; may be NULL where the text is not wanted. */
typedef struct msg_err {
  int rc; /* enum msg_rc */
  enum msg_domain domain;
  int native;     /* code in `domain`, 0 if none (SQLite: the extended code) */
  bool retry;     /* true: the same call may succeed later, and repeating it is safe */
  char text[512]; /* what failed, where, what to do; no credentials; no "msg:" prefix */
} msg_err;

#define MSG_ERR_INIT                                                                               \
  { 0 }

/** The same without clearing the text's room, for what runs at every call. */
static inline void msg_err_init(msg_err *err) {
  err->rc = err->native = 0;
  err->domain = MSG_DOMAIN_MSG;
  err->retry = false;
  err->text[0] = '\0';
}

/** Fill *err (NULL allowed) in domain msg and return rc, so that `return msg_err_set(...)` works.
 *  The text is cut at the buffer's end, never inside a UTF-8 sequence. */
int msg_err_set(msg_err *err, int rc, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/** Same, with the code of another domain. */
int msg_err_native(msg_err *err, int rc, enum msg_domain domain, int native, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

/** Out of memory: text without allocation. Returns MSG_NOMEM. */
int msg_err_nomem(msg_err *err);

/** "INVALID", "NOMEM", ...: the name used in texts. Static. */
const char *msg_rc_name(int rc);

#endif
