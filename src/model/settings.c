#include "model/settings.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "base/str.h"
#include "model/options.h"
#include "model/topic.h"

enum kind { KIND_INT, KIND_TEXT, KIND_WORD, KIND_BOOL, KIND_AUTO };

/* Where a setting lives and what it may be; same order as INFO. */
struct rule {
  enum kind kind;
  size_t offset; /* in msg_settings: int64_t, char * or bool */
  int64_t lo, hi;
  const char *const *words; /* of KIND_WORD; NULL ends them */
};

#define DAY_MS (24 * 3600 * INT64_C(1000))

/* name, unit, help, default, may change at run time */
static const msg_setting_info INFO[] = {
    {"queue", "", "message space to work in", "msg", false},
    {"sender_id", "", "id of this node; null: automatic", "null", false},
    {"catch_up", "", "take what was sent before this node started; auto: with a given sender_id",
     "auto", false},
    {"journal_mode", "", "journal mode to switch the file to; null: leave it", "null", false},
    {"indexes", "", "MongoDB: full, or lean for queues without Java nodes", "full", false},
    {"layout", "", "MongoDB: standard, multi or dual, as the other nodes have it", "standard",
     false},
    {"implementation_check", "", "MongoDB: nodes of another layout: warn, throw or ignore", "warn",
     false},
    {"use_change_stream", "", "MongoDB: false: poll every poll_pause_ms", "true", false},
    {"busy_timeout_ms", "ms", "how long a verb waits for a locked file", "5000", false},
    {"default_ttl_ms", "ms", "life of a broadcast sent without ttl_ms", "30000", true},
    {"lease_ms", "ms", "length of a claim made without lease_ms", "30000", true},
    {"await_timeout_ms", "ms", "wait of an await without timeout_ms", "1000", true},
    {"key_window_ms", "ms", "how long a de-duplication key is remembered", "300000", true},
    {"max_attempts", "", "deliveries after which a message is a dead letter", "20", true},
    {"window_size", "messages", "most messages one look of an await takes", "100", true},
    {"poll_pause_ms", "ms", "pause between looks where no change notice exists", "50", true},
    {"write_timeout_ms", "ms", "MongoDB: bound of a write, and of a COMMIT that sends", "5000",
     false},
    {"participant_timeout_ms", "ms", "life of a participant of another machine after last_seen",
     "65000", false},
    {"registry_enabled", "", "know who listens: for the two checks, and to drop lanes of the gone",
     "false", false},
    {"registry_check_topics", "", "a send to a topic nobody listens to: ignore, warn or throw",
     "ignore", true},
    {"registry_check_recipients", "", "a send to a node that is not alive: ignore, warn or throw",
     "ignore", true},
    {"registry_update_interval_s", "s", "MongoDB: pause between heartbeats, and between questions",
     "30", false},
    {"dm_cleanup_orphans_on_startup", "",
     "MongoDB, dual: drop empty lanes of the gone, with the registry", "true", false},
};
#define COUNT (sizeof INFO / sizeof INFO[0])

#define AT(field) offsetof(msg_settings, field)

static const char *const JOURNAL_MODES[] = {"wal", "delete", "truncate", "persist", NULL};
static const char *const INDEXES[] = {"full", "lean", NULL};
static const char *const LAYOUTS[] = {"standard", "multi", "dual", NULL};
static const char *const CHECKS[] = {"warn", "throw", "ignore", NULL};
static const char *const REGISTRY_CHECKS[] = {"ignore", "warn", "throw", NULL};

static const struct rule RULES[COUNT] = {
    {KIND_TEXT, AT(queue), 0, 0, NULL},
    {KIND_TEXT, AT(sender_id), 0, 0, NULL},
    {KIND_AUTO, AT(catch_up), 0, 0, NULL},
    {KIND_WORD, AT(journal_mode), 0, 0, JOURNAL_MODES},
    {KIND_WORD, AT(indexes), 0, 0, INDEXES},
    {KIND_WORD, AT(layout), 0, 0, LAYOUTS},
    {KIND_WORD, AT(implementation_check), 0, 0, CHECKS},
    {KIND_BOOL, AT(use_change_stream), 0, 0, NULL},
    {KIND_INT, AT(busy_timeout_ms), 0, DAY_MS, NULL},
    {KIND_INT, AT(default_ttl_ms), 1, MSG_DURATION_MAX_MS, NULL},
    {KIND_INT, AT(lease_ms), 1, MSG_DURATION_MAX_MS, NULL},
    {KIND_INT, AT(await_timeout_ms), 0, MSG_DURATION_MAX_MS, NULL},
    {KIND_INT, AT(key_window_ms), 1, MSG_DURATION_MAX_MS, NULL},
    {KIND_INT, AT(max_attempts), 1, INT32_MAX, NULL},
    {KIND_INT, AT(window_size), 1, 100000, NULL},
    {KIND_INT, AT(poll_pause_ms), 1, 60000, NULL},
    {KIND_INT, AT(write_timeout_ms), 100, DAY_MS, NULL},
    {KIND_INT, AT(participant_timeout_ms), 1000, DAY_MS, NULL},
    {KIND_BOOL, AT(registry_enabled), 0, 0, NULL},
    {KIND_WORD, AT(registry_check_topics), 0, 0, REGISTRY_CHECKS},
    {KIND_WORD, AT(registry_check_recipients), 0, 0, REGISTRY_CHECKS},
    {KIND_INT, AT(registry_update_interval_s), 1, 24 * 3600, NULL},
    {KIND_BOOL, AT(dm_cleanup_orphans_on_startup), 0, 0, NULL},
};

void msg_settings_init(msg_settings *s) {
  *s = (msg_settings){
      .use_change_stream = true,
      .busy_timeout_ms = 5000,
      .default_ttl_ms = MSG_TTL_DEFAULT_MS,
      .lease_ms = 30000,
      .await_timeout_ms = 1000,
      .key_window_ms = 300000,
      .max_attempts = 20,
      .window_size = 100,
      .poll_pause_ms = 50,
      .write_timeout_ms = 5000,
      .participant_timeout_ms = 65000,
      .registry_update_interval_s = 30,
      .dm_cleanup_orphans_on_startup = true,
  };
}

static bool is_text(enum kind kind) {
  return kind == KIND_TEXT || kind == KIND_WORD;
}

static void *field(msg_settings *s, size_t i) {
  return (char *)s + RULES[i].offset;
}

static const void *field_of(const msg_settings *s, size_t i) {
  return (const char *)s + RULES[i].offset;
}

void msg_settings_clear(msg_settings *s) {
  for (size_t i = 0; i < COUNT; i++)
    if (is_text(RULES[i].kind))
      msg_free(*(char **)field(s, i));
  msg_settings_init(s);
}

int msg_settings_copy(msg_settings *out, const msg_settings *s) {
  msg_settings copy = *s;
  bool nomem = false;
  for (size_t i = 0; i < COUNT; i++) {
    if (!is_text(RULES[i].kind))
      continue;
    char *const *from = field_of(s, i);
    char **to = field(&copy, i);
    *to = msg_strdup(*from);
    nomem = nomem || (*from && !*to);
  }
  if (nomem) {
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

const char *msg_settings_indexes(const msg_settings *s) {
  return s->indexes ? s->indexes : INDEXES[0];
}

const char *msg_settings_layout(const msg_settings *s) {
  return s->layout ? s->layout : LAYOUTS[0];
}

const char *msg_settings_implementation_check(const msg_settings *s) {
  return s->implementation_check ? s->implementation_check : CHECKS[0];
}

const char *msg_settings_registry_check_topics(const msg_settings *s) {
  return s->registry_check_topics ? s->registry_check_topics : REGISTRY_CHECKS[0];
}

const char *msg_settings_registry_check_recipients(const msg_settings *s) {
  return s->registry_check_recipients ? s->registry_check_recipients : REGISTRY_CHECKS[0];
}

static int needs_registry(const char *name, const char *word, msg_err *err) {
  if (strcmp(word, REGISTRY_CHECKS[0]) == 0)
    return MSG_OK;
  return msg_err_set(err, MSG_INVALID,
                     "setting '%s' is '%s' while registry_enabled is false: give msg_open "
                     "\"registry_enabled\": true",
                     name, word);
}

int msg_settings_check(const msg_settings *s, msg_err *err) {
  if (s->registry_enabled)
    return MSG_OK;
  int rc = needs_registry("registry_check_topics", msg_settings_registry_check_topics(s), err);
  if (rc != MSG_OK)
    return rc;
  return needs_registry("registry_check_recipients", msg_settings_registry_check_recipients(s),
                        err);
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
  static const char *const TAKES[] = {
      [KIND_INT] = "an integer",
      [KIND_TEXT] = "text",
      [KIND_WORD] = "text",
      [KIND_BOOL] = "true or false",
      [KIND_AUTO] = "true, false or 'auto'",
  };
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

/* One of the rule's words, in its own spelling. */
static int check_word(size_t i, const char *text, const char **out, msg_err *err) {
  msg_str list = MSG_STR_INIT;
  const char *const *words = RULES[i].words;
  for (size_t w = 0; words[w]; w++) {
    if (strcasecmp(text, words[w]) == 0) {
      *out = words[w];
      return MSG_OK;
    }
  }
  for (size_t w = 0; words[w]; w++)
    msg_str_appendf(&list, "%s%s", w == 0 ? "" : words[w + 1] ? ", " : " or ", words[w]);
  int rc = msg_err_set(err, MSG_INVALID, "setting '%s' is '%s': give it %s", INFO[i].name,
                       msg_show(text).s, list.s ? list.s : "another");
  msg_str_clear(&list);
  return rc;
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
                                 : check_word(i, v->p, &text, err);
  if (rc != MSG_OK)
    return rc;
  char *copy = msg_strdup(text);
  if (!copy)
    return msg_err_nomem(err);
  msg_free(*at);
  *at = copy;
  return MSG_OK;
}

static int set_bool(msg_settings *s, size_t i, const msg_value *v, bool is_bool, msg_err *err) {
  if (v->type != MSG_INT || (v->i != 0 && v->i != 1))
    return wrong_type(i, v, is_bool, err);
  bool *at = field(s, i);
  *at = v->i != 0;
  return MSG_OK;
}

/* catch_up alone. */
static int set_auto(msg_settings *s, size_t i, const msg_value *v, bool is_bool, msg_err *err) {
  bool automatic = v->type == MSG_TEXT && !v->json && v->n == 4 && strcmp(v->p, "auto") == 0;
  if (automatic)
    s->catch_up = false;
  else if (set_bool(s, i, v, is_bool, NULL) != MSG_OK)
    return wrong_type(i, v, is_bool, err);
  s->catch_up_set = !automatic;
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
  case KIND_TEXT:
  case KIND_WORD: return set_text(s, i, v, err);
  case KIND_BOOL: return set_bool(s, i, v, is_bool, err);
  case KIND_AUTO: break;
  }
  return set_auto(s, i, v, is_bool, err);
}

/* What is in force, or NULL where nothing is unless it is set. */
static const char *shown_text(const msg_settings *s, size_t i) {
  const char *set = *(char *const *)field_of(s, i);
  return set || strcmp(INFO[i].dflt, "null") == 0 ? set : INFO[i].dflt;
}

bool msg_settings_get(const msg_settings *s, const char *name, msg_value *out) {
  size_t i;
  if (!find_setting(name, &i))
    return false;
  switch (RULES[i].kind) {
  case KIND_INT: *out = msg_value_int(*(const int64_t *)field_of(s, i)); break;
  case KIND_BOOL: *out = msg_value_int(*(const bool *)field_of(s, i)); break;
  case KIND_AUTO: *out = msg_value_int(msg_settings_catch_up(s)); break;
  default: *out = msg_value_text(shown_text(s, i));
  }
  return true;
}
