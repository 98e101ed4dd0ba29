/* policy.h - what a node goes by at one moment: its settings and its pauses. Immutable, shared by
 * the calls under way; a change makes a new one. Private to engine/. */
#ifndef MSG_ENGINE_POLICY_H
#define MSG_ENGINE_POLICY_H

#include "base/err.h"
#include "model/settings.h"
#include "model/topic.h"

typedef struct msg_policy {
  int refs; /* guarded by the node's mutex */
  msg_settings settings;
  msg_pattern **paused; /* topics to leave alone */
  size_t paused_count;
} msg_policy;

/** Owns: *out, one reference. Errors: MSG_NOMEM. */
int msg_policy_new(const msg_settings *settings, msg_policy **out, msg_err *err);
/** A copy with one setting changed. Errors: as msg_settings_set for a running node, and
 *  as msg_settings_check. */
int msg_policy_configured(const msg_policy *p, const char *name, const msg_value *v, bool is_bool,
                          msg_policy **out, msg_err *err);
/** A copy with one pause more or less; *out NULL: that would change nothing. Errors: MSG_INVALID
 *  the pattern, MSG_NOMEM. */
int msg_policy_paused(const msg_policy *p, const char *pattern, msg_policy **out, msg_err *err);
int msg_policy_resumed(const msg_policy *p, const char *pattern, msg_policy **out, msg_err *err);
bool msg_policy_pauses(const msg_policy *p, const char *topic);
/** Free one without references. NULL allowed. */
void msg_policy_free(msg_policy *p);

#endif
