#include "model/settings.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "base/str.h"
#include "model/options.h"
#include "model/topic.h"

enum kind { KIND_INT, KIND_TEXT, KIND_BOOL };

/* Where a setting lives and what it may be; same order as INFO. */
struct rule {
  enum kind kind;
  size_t offset; /* in msg_settings: int64_t, char * or bool */
  int64_t lo, hi;
};

#define DAY_MS (24 * 3600 * INT64_C(1000))

/* name, unit, help, default, may change at run time */
static const msg_setting_info INFO[] = {
    {"queue", "", "message space to work in", "msg", false},
    {"sender_id", "", "id of this node; null: automatic", "null", false},
    {"catch_up", "", "take what was sent before this node started; auto: with a given sender_id",
     "auto", false},
    {"journal_mode", "", "journal mode to switch the file to; null: leave it", "null", false},
    {"busy_timeout_ms", "ms", "how long a verb waits for a locked file", "5000", false},
    {"default_ttl_ms", "ms", "life of a broadcast sent without ttl_ms", "30000", true},
    {"lease_ms", "ms", "length of a claim made without lease_ms", "30000", true},
    {"await_timeout_ms", "ms", "wait of an await without timeout_ms", "1000", true},
    {"key_window_ms", "ms", "how long a de-duplication key is remembered", "300000", true},
    {"max_attempts", "", "deliveries after which a message is a dead letter", "20", true},
    {"window_size", "messages", "most messages one look of an await takes", "100", true},
    {"poll_pause_ms", "ms", "pause between looks where no change notice exists", "50", true},
    {"participant_timeout_ms", "ms", "life of a participant of another machine after last_seen",
     "65000", false},
};
#define COUNT (sizeof INFO / sizeof INFO[0])

#define AT(field) offsetof(msg_settings, field)

static const struct rule RULES[COUNT] = {
    {KIND_TEXT, AT(queue), 0, 0},
    {KIND_TEXT, AT(sender_id), 0, 0},
    {KIND_BOOL, AT(catch_up), 0, 0},
    {KIND_TEXT, AT(journal_mode), 0, 0},
    {KIND_INT, AT(busy_timeout_ms), 0, DAY_MS},
    {KIND_INT, AT(default_ttl_ms), 1, MSG_DURATION_MAX_MS},
    {KIND_INT, AT(lease_ms), 1, MSG_DURATION_MAX_MS},
    {KIND_INT, AT(await_timeout_ms), 0, MSG_DURATION_MAX_MS},
    {KIND_INT, AT(key_window_ms), 1, MSG_DURATION_MAX_MS},
    {KIND_INT, AT(max_attempts), 1, INT32_MAX},
    {KIND_INT, AT(window_size), 1, 100000},
    {KIND_INT, AT(poll_pause_ms), 1, 60000},
    {KIND_INT, AT(participant_timeout_ms), 1000, DAY_MS},
};

static const char *const JOURNAL_MODES[] = {"wal", "delete", "truncate", "persist"};

void msg_settings_init(msg_settings *s) {
  *s = (msg_settings){
      .busy_timeout_ms = 5000,
      .default_ttl_ms = MSG_TTL_DEFAULT_MS,
      .lease_ms = 30000,
      .await_timeout_ms = 1000,
      .key_window_ms = 300000,
      .max_attempts = 20,
      .window_size = 100,
      .poll_pause_ms = 50,
      .participant_timeout_ms = 65000,
  };
}

void msg_settings_clear(msg_settings *s) {
  msg_free(s->queue);
  msg_free(s->sender_id);
  msg_free(s->journal_mode);
  msg_settings_init(s);
}

int msg_settings_copy(msg_settings *out, const msg_settings *s) {
  msg_settings copy = *s;
  copy.queue = msg_strdup(s->queue);
  copy.sender_id = msg_strdup(s->sender_id);
  copy.journal_mode = msg_strdup(s->journal_mode);
  if ((s->queue && !copy.queue) || (s->sender_id && !copy.sender_id) ||
      (s->journal_mode && !copy.journal_mode)) {
    msg_settings_clear(&copy);
    msg_settings_init(out);
    return MSG_NOMEM;
  }
  *out = copy;
  return MSG_OK;
}

const char *msg_settings_queue(const msg_settings *s) {
  return s->queue ? s->queue : INFO[0].dflt;
}

bool msg_settings_catch_up(const msg_settings *s) {
  return s->catch_up_set ? s->catch_up : s->sender_id != NULL;
}

size_t msg_settings_count(void) {
  return COUNT;
}

const msg_setting_info *msg_settings_info(size_t i) {
  return i < COUNT ? &INFO[i] : NULL;
}

/* --- setting ------------------------------------------------------------------------------- */

static void *field(msg_settings *s, size_t i) {
  return (char *)s + RULES[i].offset;
}

static const void *field_of(const msg_settings *s, size_t i) {
  return (const char *)s + RULES[i].offset;
}

static bool find_setting(const char *name, size_t *out) {
  for (size_t i = 0; i < COUNT; i++) {
    if (strcmp(INFO[i].name, name) == 0) {
      *out = i;
      return true;
    }
  }
  return false;
}

static int unknown_setting(const char *name, msg_err *err) {
  const char *known[COUNT];
  for (size_t i = 0; i < COUNT; i++)
    known[i] = INFO[i].name;
  const char *nearest = msg_nearest(name, known, COUNT);
  if (nearest)
    return msg_err_set(err, MSG_INVALID, "unknown setting '%s': did you mean '%s'?",
                       msg_show(name).s, nearest);
  return msg_err_set(err, MSG_INVALID, "unknown setting '%s': see table msg_settings",
                     msg_show(name).s);
}

static int wrong_type(size_t i, const msg_value *v, bool is_bool, msg_err *err) {
  static const char *const TAKES[] = {"an integer", "text", "true, false or 'auto'"};
  return msg_err_set(err, MSG_INVALID, "setting '%s' takes %s, not %s (default %s)", INFO[i].name,
                     TAKES[RULES[i].kind], is_bool ? "boolean" : msg_type_name(v->type),
                     INFO[i].dflt);
}

static int set_int(msg_settings *s, size_t i, const msg_value *v, bool is_bool, msg_err *err) {
  const struct rule *r = &RULES[i];
  if (v->type != MSG_INT || is_bool)
    return wrong_type(i, v, is_bool, err);
  if (v->i < r->lo || v->i > r->hi)
    return msg_err_set(err, MSG_INVALID,
                       "setting '%s' is %" PRId64 ": give it %" PRId64 " to %" PRId64 "%s%s",
                       INFO[i].name, v->i, r->lo, r->hi, INFO[i].unit[0] ? " " : "", INFO[i].unit);
  int64_t *at = field(s, i);
  *at = v->i;
  return MSG_OK;
}

static int check_journal_mode(const char *text, const char **out, msg_err *err) {
  for (size_t i = 0; i < sizeof JOURNAL_MODES / sizeof JOURNAL_MODES[0]; i++) {
    if (strcasecmp(text, JOURNAL_MODES[i]) == 0) {
      *out = JOURNAL_MODES[i];
      return MSG_OK;
    }
  }
  return msg_err_set(err, MSG_INVALID,
                     "setting 'journal_mode' is '%s': give it wal, delete, truncate or persist",
                     msg_show(text).s);
}

static int set_text(msg_settings *s, size_t i, const msg_value *v, msg_err *err) {
  if (v->type != MSG_TEXT || v->json)
    return wrong_type(i, v, false, err);
  if (memchr(v->p, '\0', v->n))
    return msg_err_set(err, MSG_INVALID, "setting '%s' holds a NUL character: remove it",
                       INFO[i].name);
  const char *text = v->p;
  char **at = field(s, i);
  int rc = at == &s->queue       ? msg_queue_check(text, err)
           : at == &s->sender_id ? msg_node_name_check(text, err)
                                 : check_journal_mode(v->p, &text, err);
  if (rc != MSG_OK)
    return rc;
  char *copy = msg_strdup(text);
  if (!copy)
    return msg_err_nomem(err);
  msg_free(*at);
  *at = copy;
  return MSG_OK;
}

/* catch_up alone. */
static int set_bool(msg_settings *s, size_t i, const msg_value *v, bool is_bool, msg_err *err) {
  bool automatic = v->type == MSG_TEXT && !v->json && v->n == 4 && strcmp(v->p, "auto") == 0;
  if (!automatic && (v->type != MSG_INT || (v->i != 0 && v->i != 1)))
    return wrong_type(i, v, is_bool, err);
  s->catch_up_set = !automatic;
  s->catch_up = !automatic && v->i != 0;
  return MSG_OK;
}

int msg_settings_set(msg_settings *s, const char *name, const msg_value *v, bool is_bool,
                     bool running, msg_err *err) {
  size_t i;
  if (!find_setting(name, &i))
    return unknown_setting(name, err);
  if (running && !INFO[i].runtime)
    return msg_err_set(err, MSG_MISUSE,
                       "setting '%s' is fixed while the node is open: give it to msg_open",
                       INFO[i].name);
  switch (RULES[i].kind) {
  case KIND_INT: return set_int(s, i, v, is_bool, err);
  case KIND_TEXT: return set_text(s, i, v, err);
  case KIND_BOOL: break;
  }
  return set_bool(s, i, v, is_bool, err);
}

bool msg_settings_get(const msg_settings *s, const char *name, msg_value *out) {
  size_t i;
  if (!find_setting(name, &i))
    return false;
  if (RULES[i].kind == KIND_INT) {
    const int64_t *at = field_of(s, i);
    *out = msg_value_int(*at);
  } else if (RULES[i].kind == KIND_BOOL) {
    *out = msg_value_int(msg_settings_catch_up(s));
  } else {
    char *const *at = field_of(s, i);
    *out = msg_value_text(at == &s->queue ? msg_settings_queue(s) : *at);
  }
  return true;
}
