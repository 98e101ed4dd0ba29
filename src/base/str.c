#include "base/str.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

/* Room for n more bytes and the NUL. */
static bool reserve(msg_str *s, size_t n) {
  if (s->nomem)
    return false;
  if (n >= SIZE_MAX - s->n || msg_grow(&s->s, &s->cap, s->n + n + 1, 1) != 0) {
    s->nomem = true;
    return false;
  }
  s->s[s->n] = '\0';
  return true;
}

void msg_str_append(msg_str *s, const char *text) {
  if (text)
    msg_str_appendn(s, text, strlen(text));
}

void msg_str_appendn(msg_str *s, const void *bytes, size_t n) {
  if (!reserve(s, n) || n == 0)
    return;
  memcpy(s->s + s->n, bytes, n);
  s->n += n;
  s->s[s->n] = '\0';
}

void msg_str_appendf(msg_str *s, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  int n = vsnprintf(NULL, 0, fmt, ap);
  va_end(ap);
  if (n < 0) {
    s->nomem = true; /* only an encoding or size failure inside libc: nothing sensible to append */
    return;
  }
  if (!reserve(s, (size_t)n))
    return;
  va_start(ap, fmt);
  vsnprintf(s->s + s->n, (size_t)n + 1, fmt, ap);
  va_end(ap);
  s->n += (size_t)n;
}

void msg_str_append_base64(msg_str *s, const void *bytes, size_t n) {
  static const char DIGITS[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const uint8_t *in = bytes;
  if (n > SIZE_MAX / 4) {
    s->nomem = true;
    return;
  }
  size_t quads = (n + 2) / 3;
  if (!reserve(s, quads * 4))
    return;
  char *out = s->s + s->n;
  for (size_t i = 0; i < n; i += 3) {
    size_t have = n - i;
    unsigned bits = (unsigned)in[i] << 16;
    bits |= have > 1 ? (unsigned)in[i + 1] << 8 : 0;
    bits |= have > 2 ? (unsigned)in[i + 2] : 0;
    *out++ = DIGITS[bits >> 18];
    *out++ = DIGITS[bits >> 12 & 63];
    *out++ = have > 1 ? DIGITS[bits >> 6 & 63] : '=';
    *out++ = have > 2 ? DIGITS[bits & 63] : '=';
  }
  s->n += quads * 4;
  s->s[s->n] = '\0';
}

char *msg_str_take(msg_str *s) {
  reserve(s, 0);
  char *text = s->nomem ? NULL : s->s;
  if (text)
    s->s = NULL;
  msg_str_clear(s);
  return text;
}

void msg_str_clear(msg_str *s) {
  msg_free(s->s);
  *s = (msg_str)MSG_STR_INIT;
}

/* Second bytes are bounded more tightly after E0, ED, F0 and F4 (Unicode table 3-7). */
static bool second_byte_ok(uint8_t lead, uint8_t second) {
  uint8_t lo = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  uint8_t hi = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  return second >= lo && second <= hi;
}

size_t msg_utf8_sequence(const char *s, size_t n) {
  const uint8_t *u = (const uint8_t *)s;
  if (n == 0 || u[0] == 0)
    return 0;
  if (u[0] < 0x80)
    return 1;
  if (u[0] < 0xC2 || u[0] > 0xF4)
    return 0;
  size_t len = u[0] >= 0xF0 ? 4 : u[0] >= 0xE0 ? 3 : 2;
  if (len > n || !second_byte_ok(u[0], u[1]))
    return 0;
  for (size_t i = 2; i < len; i++)
    if ((u[i] & 0xC0) != 0x80)
      return 0;
  return len;
}

static bool is_control(const char *s, size_t len) {
  uint8_t c = (uint8_t)s[0];
  return len == 1 ? c < 0x20 || c == 0x7F : len == 2 && c == 0xC2 && (uint8_t)s[1] < 0xA0;
}

/* Escapes rather than drops: two names that differ must not look alike in an error. */
msg_shown msg_show(const char *s) {
  msg_shown shown = {{0}};
  const size_t room = sizeof shown.s - 1 - 3; /* the NUL and the dots */
  size_t at = 0, n = s ? strlen(s) : 0;
  for (size_t i = 0, len; i < n; i += len) {
    len = msg_utf8_sequence(s + i, n - i);
    bool escape = len == 0 || is_control(s + i, len);
    len = escape ? 1 : len;
    size_t width = escape ? 4 : len;
    if (at + width > room) {
      memcpy(shown.s + at, "...", 4);
      break;
    }
    if (escape)
      snprintf(shown.s + at, 5, "\\x%02x", (unsigned)(uint8_t)s[i]);
    else
      memcpy(shown.s + at, s + i, len);
    at += width;
  }
  return shown;
}
