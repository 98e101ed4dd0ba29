#include "engine/policy.h"

#include <string.h>

#include "base/mem.h"

static int add_pause(msg_policy *p, const char *pattern, msg_err *err) {
  size_t n = p->paused_count;
  msg_pattern **grown = msg_resize(p->paused, (n + 1) * sizeof *grown);
  if (!grown)
    return msg_err_nomem(err);
  p->paused = grown;
  int rc = msg_pattern_new(pattern, &p->paused[n], err);
  if (rc == MSG_OK)
    p->paused_count++;
  return rc;
}

/* Patterns have one owner, so a copy compiles them anew: pausing is rare. */
static int add_pauses_but(msg_policy *p, const msg_policy *of, const char *without, msg_err *err) {
  int rc = MSG_OK;
  for (size_t i = 0; i < of->paused_count && rc == MSG_OK; i++) {
    const char *text = msg_pattern_text(of->paused[i]);
    if (!without || strcmp(text, without) != 0)
      rc = add_pause(p, text, err);
  }
  return rc;
}

static int copy(const msg_policy *p, const char *without_pause, msg_policy **out, msg_err *err) {
  msg_policy *c;
  int rc = msg_policy_new(&p->settings, &c, err);
  if (rc != MSG_OK)
    return rc;
  rc = add_pauses_but(c, p, without_pause, err);
  if (rc == MSG_OK)
    *out = c;
  else
    msg_policy_free(c);
  return rc;
}

static bool has_pause(const msg_policy *p, const char *pattern) {
  for (size_t i = 0; i < p->paused_count; i++)
    if (strcmp(msg_pattern_text(p->paused[i]), pattern) == 0)
      return true;
  return false;
}

int msg_policy_new(const msg_settings *settings, msg_policy **out, msg_err *err) {
  msg_policy *p = msg_zalloc(sizeof *p);
  if (!p)
    return msg_err_nomem(err);
  p->refs = 1;
  if (msg_settings_copy(&p->settings, settings) != MSG_OK) {
    msg_free(p);
    return msg_err_nomem(err);
  }
  *out = p;
  return MSG_OK;
}

int msg_policy_configured(const msg_policy *p, const char *name, const msg_value *v, bool is_bool,
                          msg_policy **out, msg_err *err) {
  msg_policy *c;
  int rc = copy(p, NULL, &c, err);
  if (rc != MSG_OK)
    return rc;
  rc = msg_settings_set(&c->settings, name, v, is_bool, true, err);
  if (rc == MSG_OK)
    rc = msg_settings_check(&c->settings, err);
  if (rc == MSG_OK)
    *out = c;
  else
    msg_policy_free(c);
  return rc;
}

int msg_policy_paused(const msg_policy *p, const char *pattern, msg_policy **out, msg_err *err) {
  if (has_pause(p, pattern)) {
    *out = NULL;
    return MSG_OK;
  }
  msg_policy *c;
  int rc = copy(p, NULL, &c, err);
  if (rc != MSG_OK)
    return rc;
  rc = add_pause(c, pattern, err);
  if (rc == MSG_OK)
    *out = c;
  else
    msg_policy_free(c);
  return rc;
}

int msg_policy_resumed(const msg_policy *p, const char *pattern, msg_policy **out, msg_err *err) {
  if (has_pause(p, pattern))
    return copy(p, pattern, out, err);
  *out = NULL;
  return MSG_OK;
}

bool msg_policy_pauses(const msg_policy *p, const char *topic) {
  for (size_t i = 0; i < p->paused_count; i++)
    if (msg_pattern_match(p->paused[i], topic))
      return true;
  return false;
}

void msg_policy_free(msg_policy *p) {
  if (!p)
    return;
  for (size_t i = 0; i < p->paused_count; i++)
    msg_pattern_free(p->paused[i]);
  msg_free(p->paused);
  msg_settings_clear(&p->settings);
  msg_free(p);
}
