#include "model/topic.h"

#include <stdint.h>
#include <string.h>
#include <strings.h>

#include "base/str.h"

bool msg_utf8_valid(const char *s, unsigned long n) {
  for (size_t i = 0, len; i < n; i += len) {
    len = msg_utf8_sequence(s + i, n - i);
    if (len == 0)
      return false;
  }
  return true;
}

/* C0, DEL and C1 (as UTF-8): none of them belongs in a name. */
static bool has_control(const char *s) {
  for (const uint8_t *u = (const uint8_t *)s; *u; u++)
    if (*u < 0x20 || *u == 0x7F || (*u == 0xC2 && u[1] < 0xA0))
      return true;
  return false;
}

/* What all names share. `what` is the noun of the text. */
static int check_text(const char *what, const char *s, size_t max, msg_err *err) {
  size_t n = s ? strlen(s) : 0;
  if (n == 0)
    return msg_err_set(err, MSG_INVALID, "empty %s: give it 1 to %zu bytes", what, max);
  if (n > max)
    return msg_err_set(err, MSG_INVALID, "%s '%s' has %zu bytes: shorten it to %zu", what,
                       msg_show(s).s, n, max);
  if (!msg_utf8_valid(s, n))
    return msg_err_set(err, MSG_INVALID, "%s '%s' is not valid UTF-8: encode it as UTF-8", what,
                       msg_show(s).s);
  return MSG_OK;
}

int msg_name_check(const char *what, const char *name, unsigned long max, msg_err *err) {
  int rc = check_text(what, name, max, err);
  if (rc == MSG_OK && has_control(name))
    return msg_err_set(err, MSG_INVALID, "%s '%s' holds a control character: remove it", what,
                       msg_show(name).s);
  return rc;
}

static bool is_alnum(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/* 1 to max letters, digits, '_', '-' and '.', the first a letter or digit. */
static bool is_plain(const char *s, size_t max) {
  size_t n = 0;
  if (!s || !is_alnum(s[0]))
    return false;
  while (is_alnum(s[n]) || s[n] == '_' || s[n] == '-' || s[n] == '.')
    n++;
  return s[n] == '\0' && n <= max;
}

/* Most are plain: looked at in one go. */
int msg_topic_check(const char *topic, msg_err *err) {
  if (is_plain(topic, MSG_TOPIC_MAX))
    return MSG_OK;
  int rc = msg_name_check("topic", topic, MSG_TOPIC_MAX, err);
  if (rc != MSG_OK)
    return rc;
  size_t n = strlen(topic);
  if (n > 1 && topic[0] == '/' && topic[n - 1] == '/')
    return msg_err_set(err, MSG_INVALID,
                       "topic '%s' stands between slashes, as a regular expression: send to an "
                       "exact name, listen with patterns",
                       msg_show(topic).s);
  if (strpbrk(topic, "*?["))
    return msg_err_set(
        err, MSG_INVALID,
        "topic '%s' holds a GLOB character: send to an exact name, listen with patterns",
        msg_show(topic).s);
  return MSG_OK;
}

int msg_node_name_check(const char *name, msg_err *err) {
  int rc = msg_name_check("sender id", name, MSG_NODE_MAX, err);
  if (rc != MSG_OK)
    return rc;
  if (name[0] == '_' || strstr(name, "__"))
    return msg_err_set(err, MSG_INVALID,
                       "sender id '%s' has a leading or double underscore, which Morphium cannot "
                       "fold: use '-' instead",
                       msg_show(name).s);
  if (strcasecmp(name, "self") == 0)
    return msg_err_set(err, MSG_INVALID,
                       "sender id '%s' is reserved by Morphium: choose another name",
                       msg_show(name).s);
  return MSG_OK;
}

int msg_queue_check(const char *queue, msg_err *err) {
  int rc = check_text("queue name", queue, MSG_QUEUE_MAX, err);
  if (rc != MSG_OK)
    return rc;
  if (!is_plain(queue, MSG_QUEUE_MAX))
    return msg_err_set(
        err, MSG_INVALID,
        "queue name '%s' is not plain: use letters, digits, '_', '-', '.', and start "
        "with a letter or digit",
        msg_show(queue).s);
  return MSG_OK;
}

int msg_key_check(const char *what, const char *key, msg_err *err) {
  return check_text(what, key, MSG_KEY_MAX, err);
}
