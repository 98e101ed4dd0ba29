#include "base/err.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static const char *const NAMES[] = {
    [MSG_OK] = "OK",
    [MSG_NOMEM] = "NOMEM",
    [MSG_TOOBIG] = "TOOBIG",
    [MSG_INTERRUPTED] = "INTERRUPTED",
    [MSG_BUSY] = "BUSY",
    [MSG_CORRUPT] = "CORRUPT",
    [MSG_IO] = "IO",
    [MSG_AUTH] = "AUTH",
    [MSG_READONLY] = "READONLY",
    [MSG_INVALID] = "INVALID",
    [MSG_MISUSE] = "MISUSE",
    [MSG_UNSUPPORTED] = "UNSUPPORTED",
    [MSG_UNAVAILABLE] = "UNAVAILABLE",
    [MSG_SHUTDOWN] = "SHUTDOWN",
    [MSG_FORKED] = "FORKED",
    [MSG_BACKEND] = "BACKEND",
    [MSG_NOTFOUND] = "NOTFOUND",
    [MSG_TIMEOUT] = "TIMEOUT",
    [MSG_LOCKED] = "LOCKED",
    [MSG_EXISTS] = "EXISTS",
};

/* Drops a UTF-8 sequence that the end of a full buffer cut short. */
static void trim_partial_utf8(char *text, size_t n) {
  size_t lead = n;
  while (lead > 0 && n - lead < 3 && ((unsigned char)text[lead - 1] & 0xC0) == 0x80)
    lead--;
  if (lead == 0)
    return;
  unsigned char c = (unsigned char)text[--lead];
  size_t want = c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : c >= 0xC0 ? 2 : 1;
  if (want > n - lead)
    text[lead] = '\0';
}

/* Formats beside *err first: an argument may be err->text itself, when a caller adds context. */
static void fill(msg_err *err, int rc, enum msg_domain domain, int native, const char *fmt,
                 va_list ap) {
  char text[sizeof err->text];
  int n = vsnprintf(text, sizeof text, fmt, ap);
  if (n < 0)
    text[0] = '\0';
  else if ((size_t)n >= sizeof text)
    trim_partial_utf8(text, sizeof text - 1);
  err->rc = rc;
  err->domain = domain;
  err->native = native;
  err->retry = false; /* only who knows that nothing was done says otherwise, afterwards */
  memcpy(err->text, text, strlen(text) + 1);
}

int msg_err_set(msg_err *err, int rc, const char *fmt, ...) {
  if (!err)
    return rc;
  va_list ap;
  va_start(ap, fmt);
  fill(err, rc, MSG_DOMAIN_MSG, 0, fmt, ap);
  va_end(ap);
  return rc;
}

int msg_err_native(msg_err *err, int rc, enum msg_domain domain, int native, const char *fmt, ...) {
  if (!err)
    return rc;
  va_list ap;
  va_start(ap, fmt);
  fill(err, rc, domain, native, fmt, ap);
  va_end(ap);
  return rc;
}

int msg_err_nomem(msg_err *err) {
  return msg_err_set(err, MSG_NOMEM, "out of memory");
}

const char *msg_rc_name(int rc) {
  if (rc < 0 || rc >= (int)(sizeof NAMES / sizeof NAMES[0]))
    return "UNKNOWN";
  return NAMES[rc];
}
