#include "store/mongo/json.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define DEPTH_MAX 80 /* the server takes 100 levels */

/* ---- text to BSON ---- */

struct reader {
  const char *at;
  bool failed;
};

static void skip_space(struct reader *r) {
  while (*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r')
    r->at++;
}

static bool take(struct reader *r, char c) {
  skip_space(r);
  if (*r->at != c)
    return false;
  r->at++;
  return true;
}

static unsigned hex4(struct reader *r) {
  unsigned v = 0;
  for (int i = 0; i < 4; i++) {
    char c = *r->at;
    unsigned d = c >= '0' && c <= '9'   ? (unsigned)(c - '0')
                 : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a' + 10)
                 : c >= 'A' && c <= 'F' ? (unsigned)(c - 'A' + 10)
                                        : 16;
    if (d == 16) {
      r->failed = true;
      return 0;
    }
    v = v * 16 + d;
    r->at++;
  }
  return v;
}

static void append_utf8(msg_str *s, unsigned c) {
  char b[4];
  size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
  static const unsigned char first[] = {0, 0, 0xC0, 0xE0, 0xF0};
  for (size_t i = n; i-- > 1; c >>= 6)
    b[i] = (char)(0x80 | (c & 0x3F));
  b[0] = (char)(n == 1 ? c : first[n] | c);
  msg_str_appendn(s, b, n);
}

/* After the backslash and the 'u'. A surrogate alone becomes U+FFFD. */
static void read_unicode(struct reader *r, msg_str *out) {
  unsigned c = hex4(r);
  if (c >= 0xD800 && c < 0xDC00 && r->at[0] == '\\' && r->at[1] == 'u') {
    struct reader ahead = {r->at + 2, false};
    unsigned low = hex4(&ahead);
    if (!ahead.failed && low >= 0xDC00 && low < 0xE000) {
      r->at = ahead.at;
      c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
    }
  }
  append_utf8(out, c >= 0xD800 && c < 0xE000 ? 0xFFFD : c);
}

static void read_escape(struct reader *r, msg_str *out) {
  static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
  const char *known = *r->at ? strchr(from, *r->at) : NULL;
  if (known) {
    msg_str_appendn(out, &to[known - from], 1);
    r->at++;
  } else if (*r->at == 'u') {
    r->at++;
    read_unicode(r, out);
  } else {
    r->failed = true;
  }
}

static void read_string(struct reader *r, msg_str *out) {
  if (!take(r, '"')) {
    r->failed = true;
    return;
  }
  while (!r->failed && *r->at != '"') {
    size_t n = strcspn(r->at, "\"\\");
    msg_str_appendn(out, r->at, n);
    r->at += n;
    if (*r->at == '\\') {
      r->at++;
      read_escape(r, out);
    } else if (*r->at == '\0') {
      r->failed = true;
    }
  }
  r->at += !r->failed;
}

static void read_number(struct reader *r, bson_t *doc, const char *key, int len) {
  size_t n = strspn(r->at, "+-0123456789.eE");
  char *end = NULL;
  if (n == 0) {
    r->failed = true;
    return;
  }
  bool whole = strcspn(r->at, ".eE") >= n;
  errno = 0;
  long long i = strtoll(r->at, &end, 10);
  if (whole && end == r->at + n && errno != ERANGE) {
    if (i >= INT32_MIN && i <= INT32_MAX)
      bson_append_int32(doc, key, len, (int32_t)i);
    else
      bson_append_int64(doc, key, len, i);
  } else {
    bson_append_double(doc, key, len, strtod(r->at, &end));
    r->failed = r->failed || end != r->at + n;
  }
  r->at += n;
}

static bool take_word(struct reader *r, const char *word) {
  size_t n = strlen(word);
  if (strncmp(r->at, word, n) != 0)
    return false;
  r->at += n;
  return true;
}

static void read_value(struct reader *r, bson_t *doc, const char *key, int len, int depth);

static void read_members(struct reader *r, bson_t *doc, int depth) {
  if (take(r, '}'))
    return;
  do {
    msg_str key = MSG_STR_INIT;
    skip_space(r);
    read_string(r, &key);
    if (key.nomem || !take(r, ':') || (key.n && strlen(key.s) != key.n))
      r->failed = true;
    if (!r->failed)
      read_value(r, doc, key.n ? key.s : "", (int)key.n, depth);
    msg_str_clear(&key);
  } while (!r->failed && take(r, ','));
  r->failed = r->failed || !take(r, '}');
}

static void read_elements(struct reader *r, bson_t *array, int depth) {
  char buffer[16];
  const char *key;
  uint32_t i = 0;
  if (take(r, ']'))
    return;
  do {
    size_t n = bson_uint32_to_string(i++, &key, buffer, sizeof buffer);
    read_value(r, array, key, (int)n, depth);
  } while (!r->failed && take(r, ','));
  r->failed = r->failed || !take(r, ']');
}

static void read_text(struct reader *r, bson_t *doc, const char *key, int len) {
  msg_str s = MSG_STR_INIT;
  read_string(r, &s);
  r->failed = r->failed || s.nomem;
  if (!r->failed)
    bson_append_utf8(doc, key, len, s.n ? s.s : "", (int)s.n);
  msg_str_clear(&s);
}

static void read_word(struct reader *r, bson_t *doc, const char *key, int len) {
  if (take_word(r, "true"))
    bson_append_bool(doc, key, len, true);
  else if (take_word(r, "false"))
    bson_append_bool(doc, key, len, false);
  else if (take_word(r, "null"))
    bson_append_null(doc, key, len);
  else
    read_number(r, doc, key, len);
}

static void read_value(struct reader *r, bson_t *doc, const char *key, int len, int depth) {
  bson_t child;
  skip_space(r);
  if (depth > DEPTH_MAX) {
    r->failed = true;
  } else if (*r->at == '{') {
    r->at++;
    bson_append_document_begin(doc, key, len, &child);
    read_members(r, &child, depth + 1);
    bson_append_document_end(doc, &child);
  } else if (*r->at == '[') {
    r->at++;
    bson_append_array_begin(doc, key, len, &child);
    read_elements(r, &child, depth + 1);
    bson_append_array_end(doc, &child);
  } else if (*r->at == '"') {
    read_text(r, doc, key, len);
  } else {
    read_word(r, doc, key, len);
  }
}

int msg_mongo_json_append(bson_t *doc, const char *key, const char *text, msg_err *err) {
  struct reader r = {text, false};
  skip_space(&r);
  r.failed = *r.at != '{' && *r.at != '[';
  if (!r.failed)
    read_value(&r, doc, key, -1, 0);
  skip_space(&r);
  if (r.failed || *r.at)
    return msg_err_set(err, MSG_INVALID, "%s is no JSON object or array that MongoDB can keep: %s",
                       key, msg_show(text).s);
  return MSG_OK;
}

/* ---- BSON to text ---- */

static void write_string(msg_str *out, const char *s, size_t n) {
  size_t from = 0;
  msg_str_append(out, "\"");
  for (size_t i = 0; i < n; i++) {
    unsigned char c = (unsigned char)s[i];
    if (c >= 0x20 && c != '"' && c != '\\')
      continue;
    msg_str_appendn(out, s + from, i - from);
    from = i + 1;
    static const char letters[] = "btn?fr"; /* 8 to 13 */
    if (c == '"' || c == '\\')
      msg_str_appendf(out, "\\%c", c);
    else if (c >= 8 && c <= 13 && c != 11)
      msg_str_appendf(out, "\\%c", letters[c - 8]);
    else
      msg_str_appendf(out, "\\u%04x", c);
  }
  msg_str_appendn(out, s + from, n - from);
  msg_str_append(out, "\"");
}

/* The shortest text that reads back as the same double, and as a double. */
static void write_double(msg_str *out, double d) {
  char text[40];
  if (!isfinite(d)) {
    msg_str_append(out, "null");
    return;
  }
  for (int digits = 15; digits <= 17; digits++) {
    snprintf(text, sizeof text, "%.*g", digits, d);
    if (strtod(text, NULL) == d)
      break;
  }
  msg_str_append(out, text);
  if (!strpbrk(text, ".e"))
    msg_str_append(out, ".0");
}

static void write_children(msg_str *out, const bson_iter_t *parent, bool keys) {
  bson_iter_t it;
  bool first = true;
  msg_str_append(out, keys ? "{" : "[");
  if (bson_iter_recurse(parent, &it)) {
    while (bson_iter_next(&it)) {
      msg_str_append(out, first ? "" : ",");
      first = false;
      if (keys) {
        write_string(out, bson_iter_key(&it), strlen(bson_iter_key(&it)));
        msg_str_append(out, ":");
      }
      msg_mongo_json_value(out, &it);
    }
  }
  msg_str_append(out, keys ? "}" : "]");
}

static void write_binary(msg_str *out, const bson_iter_t *it) {
  uint32_t n;
  const uint8_t *bytes;
  bson_iter_binary(it, NULL, &n, &bytes);
  msg_str_append(out, "{\"$binary\":\"");
  msg_str_append_base64(out, bytes, n);
  msg_str_append(out, "\"}");
}

/* What JSON has no word for. */
static void write_other(msg_str *out, const bson_iter_t *it) {
  char text[BSON_DECIMAL128_STRING];
  bson_decimal128_t decimal;
  switch (bson_iter_type(it)) {
  case BSON_TYPE_OID:
    bson_oid_to_string(bson_iter_oid(it), text);
    msg_str_appendf(out, "{\"$oid\":\"%s\"}", text);
    break;
  case BSON_TYPE_DATE_TIME:
    msg_str_appendf(out, "{\"$date\":%lld}", (long long)bson_iter_date_time(it));
    break;
  case BSON_TYPE_BINARY: write_binary(out, it); break;
  case BSON_TYPE_DECIMAL128:
    bson_iter_decimal128(it, &decimal);
    bson_decimal128_to_string(&decimal, text);
    msg_str_append(out, text);
    break;
  default: msg_str_append(out, "null"); break;
  }
}

void msg_mongo_json_value(msg_str *out, const bson_iter_t *it) {
  uint32_t n;
  const char *s;
  switch (bson_iter_type(it)) {
  case BSON_TYPE_UTF8:
    s = bson_iter_utf8(it, &n);
    write_string(out, s, n);
    break;
  case BSON_TYPE_DOCUMENT: write_children(out, it, true); break;
  case BSON_TYPE_ARRAY: write_children(out, it, false); break;
  case BSON_TYPE_BOOL: msg_str_append(out, bson_iter_bool(it) ? "true" : "false"); break;
  case BSON_TYPE_INT32: msg_str_appendf(out, "%d", (int)bson_iter_int32(it)); break;
  case BSON_TYPE_INT64: msg_str_appendf(out, "%lld", (long long)bson_iter_int64(it)); break;
  case BSON_TYPE_DOUBLE: write_double(out, bson_iter_double(it)); break;
  case BSON_TYPE_NULL:
  case BSON_TYPE_UNDEFINED: msg_str_append(out, "null"); break;
  default: write_other(out, it); break;
  }
}
