#include "model/options.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "model/topic.h"

/* msg_options_set goes in four steps: find the key among those of the verb, check the value by
 * itself, check it against what was given before, apply. Only the last step writes, so a refusal
 * changes nothing. What the steps need to know of a key stands in one table. */

enum kind { KIND_BOOL, KIND_INT, KIND_TEXT, KIND_TEXTS, KIND_OBJECT, KIND_ARRAY, KIND_ID };

enum key_id {
  KEY_EXCLUSIVE,
  KEY_PRIORITY,
  KEY_TTL,
  KEY_TIMING_OUT,
  KEY_DELAY,
  KEY_DELIVER_AT,
  KEY_RECIPIENT,
  KEY_RECIPIENTS,
  KEY_KEY,
  KEY_GROUP,
  KEY_MSG,
  KEY_MAP,
  KEY_ADDITIONAL,
  KEY_IN_ANSWER_TO,
  KEY_DELETE_AFTER,
  KEY_DELETE_AFTER_MS,
  KEY_ID,
  KEY_ANSWERS,
  KEY_NODE,
  KEY_COUNT
};

struct key {
  const char *name;
  enum kind kind;
  unsigned verbs;
  int64_t lo, hi; /* KIND_INT */
};

#define BIT(i)  (1u << (i))
#define SEND    BIT(MSG_VERB_SEND)
#define ENQUEUE BIT(MSG_VERB_ENQUEUE)
#define REQUEST BIT(MSG_VERB_REQUEST)
#define REPLY   BIT(MSG_VERB_REPLY)
#define ALL     (SEND | ENQUEUE | REQUEST | REPLY)
#define TO_ANY  (SEND | ENQUEUE | REQUEST)

static const char *const VERBS[] = {"msg_send", "msg_enqueue", "msg_request", "msg_reply"};
#define VERB_COUNT (sizeof VERBS / sizeof VERBS[0])

static const struct key KEYS[KEY_COUNT] = {
    [KEY_EXCLUSIVE] = {"exclusive", KIND_BOOL, TO_ANY, 0, 0},
    [KEY_PRIORITY] = {"priority", KIND_INT, ALL, INT32_MIN, INT32_MAX},
    [KEY_TTL] = {"ttl_ms", KIND_INT, ALL, 1, MSG_DURATION_MAX_MS},
    [KEY_TIMING_OUT] = {"timing_out", KIND_BOOL, ALL, 0, 0},
    [KEY_DELAY] = {"delay_ms", KIND_INT, SEND | ENQUEUE, 0, MSG_DURATION_MAX_MS},
    [KEY_DELIVER_AT] = {"deliver_at", KIND_INT, SEND | ENQUEUE, 0, MSG_TIME_MAX_MS},
    [KEY_RECIPIENT] = {"recipient", KIND_TEXT, TO_ANY, 0, 0},
    [KEY_RECIPIENTS] = {"recipients", KIND_TEXTS, TO_ANY, 0, 0},
    [KEY_KEY] = {"key", KIND_TEXT, SEND | ENQUEUE, 0, 0},
    [KEY_GROUP] = {"group", KIND_TEXT, TO_ANY, 0, 0},
    [KEY_MSG] = {"msg", KIND_TEXT, ALL, 0, 0},
    [KEY_MAP] = {"map", KIND_OBJECT, ALL, 0, 0},
    [KEY_ADDITIONAL] = {"additional", KIND_ARRAY, ALL, 0, 0},
    [KEY_IN_ANSWER_TO] = {"in_answer_to", KIND_ID, SEND | ENQUEUE, 0, 0},
    [KEY_DELETE_AFTER] = {"delete_after_processing", KIND_BOOL, ALL, 0, 0},
    [KEY_DELETE_AFTER_MS] = {"delete_after_processing_ms", KIND_INT, ALL, 0, INT32_MAX},
    [KEY_ID] = {"id", KIND_ID, ALL, 0, 0},
    [KEY_ANSWERS] = {"answers", KIND_INT, REQUEST, 1, INT32_MAX},
    [KEY_NODE] = {"node", KIND_TEXT, ALL, 0, 0},
};

void msg_options_init(msg_options *o) {
  *o = (msg_options){.m = MSG_MESSAGE_INIT};
}

void msg_options_clear(msg_options *o) {
  msg_message_clear(&o->m);
  msg_free(o->node);
  msg_options_init(o);
}

/* --- finding the key ----------------------------------------------------------------------- */

/* Names the nearest key of this verb, not of another: taking the advice must not fail again. */
static int unknown_key(enum msg_verb verb, const char *name, msg_err *err) {
  const char *known[KEY_COUNT];
  char list[400];
  size_t n = 0;
  int at = 0;
  for (size_t i = 0; i < KEY_COUNT; i++) {
    if (!(KEYS[i].verbs & BIT(verb)))
      continue;
    at += snprintf(list + at, sizeof list - (size_t)at, n ? ", %s" : "%s", KEYS[i].name);
    known[n++] = KEYS[i].name;
  }
  const char *nearest = msg_nearest(name, known, n);
  if (nearest)
    return msg_err_set(err, MSG_INVALID, "unknown option '%s': did you mean '%s'?",
                       msg_show(name).s, nearest);
  return msg_err_set(err, MSG_INVALID, "unknown option '%s': known are %s", msg_show(name).s, list);
}

static int wrong_verb(enum msg_verb verb, const struct key *k, msg_err *err) {
  char list[64];
  int at = 0;
  for (size_t i = 0; i < VERB_COUNT; i++)
    if (k->verbs & BIT(i))
      at += snprintf(list + at, sizeof list - (size_t)at, at ? ", %s" : "%s", VERBS[i]);
  return msg_err_set(err, MSG_INVALID, "option '%s' is not for %s: use it with %s", k->name,
                     VERBS[verb], list);
}

static int find_key(enum msg_verb verb, const char *name, enum key_id *out, msg_err *err) {
  for (size_t i = 0; i < KEY_COUNT; i++) {
    if (strcmp(KEYS[i].name, name) != 0)
      continue;
    if (!(KEYS[i].verbs & BIT(verb)))
      return wrong_verb(verb, &KEYS[i], err);
    *out = (enum key_id)i;
    return MSG_OK;
  }
  return unknown_key(verb, name, err);
}

/* --- checking the value -------------------------------------------------------------------- */

static const char *takes(const struct key *k) {
  switch (k->kind) {
  case KIND_BOOL: return "true or false";
  case KIND_INT:
    return k == &KEYS[KEY_DELIVER_AT] ? "an integer (ms since 1970, UTC)" : "an integer";
  case KIND_TEXT: return "text";
  case KIND_TEXTS: return "an array of text";
  case KIND_OBJECT: return "a JSON object";
  case KIND_ARRAY: return "a JSON array";
  case KIND_ID: break;
  }
  return "a message id";
}

static bool starts_with(const char *json, char c) {
  json += strspn(json, " \t\r\n");
  return *json == c;
}

static const char *got(const msg_value *v, bool is_bool) {
  if (is_bool)
    return "boolean";
  if (v->type != MSG_TEXT || !v->json)
    return msg_type_name(v->type);
  return starts_with(v->p, '{')   ? "a JSON object"
         : starts_with(v->p, '[') ? "a JSON array"
                                  : "JSON";
}

static int wrong_type(const struct key *k, const msg_value *v, bool is_bool, msg_err *err) {
  return msg_err_set(err, MSG_INVALID, "option '%s' takes %s, not %s%s", k->name, takes(k),
                     got(v, is_bool), v->type == MSG_NULL ? ": leave it out for the default" : "");
}

/* Every text we keep is a C string, and goes into BSON. */
static int check_utf8(const struct key *k, const msg_value *v, msg_err *err) {
  if (memchr(v->p, '\0', v->n))
    return msg_err_set(err, MSG_INVALID, "option '%s' holds a NUL character: remove it", k->name);
  if (!msg_utf8_valid(v->p, v->n))
    return msg_err_set(err, MSG_INVALID,
                       "option '%s' with '%s' is not valid UTF-8: encode it as UTF-8", k->name,
                       msg_show(v->p).s);
  return MSG_OK;
}

static int check_int(const struct key *k, int64_t i, msg_err *err) {
  if (i >= k->lo && i <= k->hi)
    return MSG_OK;
  return msg_err_set(err, MSG_INVALID,
                     "option '%s' is %" PRId64 ": give it %" PRId64 " to %" PRId64, k->name, i,
                     k->lo, k->hi);
}

static int check_id(const struct key *k, const char *text, msg_err *err) {
  msg_oid id;
  if (!msg_oid_parse(text, &id))
    return msg_err_set(err, MSG_INVALID,
                       "option '%s' is '%s', no message id: give it 24 hex digits", k->name,
                       msg_show(text).s);
  if (msg_oid_is_zero(&id))
    return msg_err_set(err, MSG_INVALID, "option '%s' is the zero id: give it the id of a message",
                       k->name);
  return MSG_OK;
}

static bool type_ok(const struct key *k, const msg_value *v, bool is_bool) {
  switch (k->kind) {
  case KIND_BOOL: return v->type == MSG_INT && (v->i == 0 || v->i == 1);
  case KIND_INT: return v->type == MSG_INT && !is_bool;
  case KIND_OBJECT: return v->type == MSG_TEXT && v->json && starts_with(v->p, '{');
  case KIND_ARRAY: return v->type == MSG_TEXT && v->json && starts_with(v->p, '[');
  case KIND_TEXT:
  case KIND_ID: return v->type == MSG_TEXT && !v->json;
  case KIND_TEXTS: break;
  }
  return false;
}

/* The name of a node: the rule speaks of sender ids, so the option is named in front. */
static int check_node(const struct key *k, const char *name, msg_err *err) {
  int rc = msg_node_name_check(name, err);
  if (rc != MSG_OK && err)
    return msg_err_set(err, rc, "option '%s': %s", k->name, err->text);
  return rc;
}

/* The rules of a text key. */
static int check_name(enum key_id id, const char *text, msg_err *err) {
  switch (id) {
  case KEY_RECIPIENT:
  case KEY_RECIPIENTS:
  case KEY_NODE: return check_node(&KEYS[id], text, err);
  case KEY_KEY:
  case KEY_GROUP: return msg_key_check(KEYS[id].name, text, err);
  default: return MSG_OK;
  }
}

static int check_value(enum key_id id, const msg_value *v, bool is_bool, msg_err *err) {
  const struct key *k = &KEYS[id];
  if (!type_ok(k, v, is_bool))
    return wrong_type(k, v, is_bool, err);
  if (k->kind == KIND_BOOL)
    return MSG_OK;
  if (k->kind == KIND_INT)
    return check_int(k, v->i, err);
  int rc = check_utf8(k, v, err);
  if (rc != MSG_OK)
    return rc;
  return k->kind == KIND_ID ? check_id(k, v->p, err) : check_name(id, v->p, err);
}

/* --- contradictions ------------------------------------------------------------------------ */

static bool given(const msg_options *o, enum key_id id) {
  return (o->given & BIT(id)) != 0;
}

/* In the order they were given, as the text quotes them. */
static int check_pair(const msg_options *o, enum key_id mine, enum key_id other, msg_err *err) {
  if (!given(o, other))
    return MSG_OK;
  return msg_err_set(err, MSG_INVALID, "options '%s' and '%s' contradict each other: give one",
                     KEYS[other].name, KEYS[mine].name);
}

static int check_against(const msg_options *o, enum msg_verb verb, enum key_id id,
                         const msg_value *v, msg_err *err) {
  if (given(o, id))
    return msg_err_set(err, MSG_INVALID, "option '%s' is given twice: keep one", KEYS[id].name);
  switch (id) {
  case KEY_DELAY: return check_pair(o, id, KEY_DELIVER_AT, err);
  case KEY_DELIVER_AT: return check_pair(o, id, KEY_DELAY, err);
  case KEY_RECIPIENT: return check_pair(o, id, KEY_RECIPIENTS, err);
  case KEY_RECIPIENTS: return check_pair(o, id, KEY_RECIPIENT, err);
  case KEY_TTL: return o->m.timing_out ? MSG_OK : check_pair(o, id, KEY_TIMING_OUT, err);
  case KEY_TIMING_OUT: return v->i ? MSG_OK : check_pair(o, id, KEY_TTL, err);
  case KEY_EXCLUSIVE:
    if (verb == MSG_VERB_ENQUEUE && !v->i)
      return msg_err_set(
          err, MSG_INVALID,
          "option 'exclusive' is false, but msg_enqueue sends to one owner: use msg_send");
    return MSG_OK;
  default: return MSG_OK;
  }
}

/* --- setting ------------------------------------------------------------------------------- */

static void apply_bool(msg_options *o, enum key_id id, bool b) {
  if (id == KEY_EXCLUSIVE) {
    o->m.exclusive = b;
    o->has_exclusive = true;
  } else if (id == KEY_TIMING_OUT) {
    o->m.timing_out = b;
    o->has_timing_out = true;
  } else {
    o->m.delete_after_processing = b;
  }
}

static void apply_int(msg_options *o, enum key_id id, int64_t i) {
  switch (id) {
  case KEY_PRIORITY:
    o->m.priority = (int32_t)i;
    o->has_priority = true;
    break;
  case KEY_TTL:
    o->m.ttl_ms = i;
    o->has_ttl = true;
    break;
  case KEY_DELAY:
    o->delay_ms = i;
    o->has_delay = true;
    break;
  case KEY_DELIVER_AT:
    o->m.deliver_at_ms = i;
    o->has_deliver_at = true;
    break;
  case KEY_DELETE_AFTER_MS: o->m.delete_after_processing_ms = (int32_t)i; break;
  default: o->answers = (int32_t)i; break;
  }
}

static char **text_field(msg_options *o, enum key_id id) {
  switch (id) {
  case KEY_KEY: return &o->m.key;
  case KEY_GROUP: return &o->m.group;
  case KEY_MSG: return &o->m.msg;
  case KEY_MAP: return &o->m.map;
  case KEY_ADDITIONAL: return &o->m.additional;
  default: return &o->node;
  }
}

static int apply_text(msg_options *o, enum key_id id, const char *text, msg_err *err) {
  if (id == KEY_RECIPIENT)
    return msg_message_add_recipient(&o->m, text) == MSG_OK ? MSG_OK : msg_err_nomem(err);
  char *copy = msg_strdup(text);
  if (!copy)
    return msg_err_nomem(err);
  *text_field(o, id) = copy;
  return MSG_OK;
}

static int apply(msg_options *o, enum key_id id, const msg_value *v, msg_err *err) {
  int rc = MSG_OK;
  switch (KEYS[id].kind) {
  case KIND_BOOL: apply_bool(o, id, v->i != 0); break;
  case KIND_INT: apply_int(o, id, v->i); break;
  case KIND_ID: msg_oid_parse(v->p, id == KEY_ID ? &o->m.id : &o->m.in_answer_to); break;
  default: rc = apply_text(o, id, v->p, err);
  }
  if (rc == MSG_OK)
    o->given |= BIT(id);
  return rc;
}

int msg_options_set(msg_options *o, enum msg_verb verb, const char *key, const msg_value *v,
                    bool is_bool, msg_err *err) {
  enum key_id id;
  int rc = find_key(verb, key, &id, err);
  if (rc == MSG_OK)
    rc = check_value(id, v, is_bool, err);
  if (rc == MSG_OK)
    rc = check_against(o, verb, id, v, err);
  return rc == MSG_OK ? apply(o, id, v, err) : rc;
}

/* Also checks that it is the only one, and the only way recipients are given. */
static int start_array(msg_options *o, enum msg_verb verb, enum key_id id, msg_err *err) {
  int rc = check_against(o, verb, id, NULL, err);
  if (rc == MSG_OK)
    o->given |= BIT(id);
  return rc;
}

int msg_options_add(msg_options *o, enum msg_verb verb, const char *key, const msg_value *v,
                    msg_err *err) {
  enum key_id id;
  int rc = find_key(verb, key, &id, err);
  if (rc != MSG_OK)
    return rc;
  if (KEYS[id].kind != KIND_TEXTS)
    return msg_err_set(err, MSG_INVALID, "option '%s' takes %s, not an array", key,
                       takes(&KEYS[id]));
  if (!v)
    return start_array(o, verb, id, err);
  if (v->type != MSG_TEXT || v->json)
    return wrong_type(&KEYS[id], v, false, err);
  rc = check_utf8(&KEYS[id], v, err);
  if (rc == MSG_OK)
    rc = check_name(id, v->p, err);
  if (rc == MSG_OK && !given(o, id))
    rc = start_array(o, verb, id, err);
  if (rc != MSG_OK || msg_message_has_recipient(&o->m, v->p))
    return rc;
  return msg_message_add_recipient(&o->m, v->p) == MSG_OK ? MSG_OK : msg_err_nomem(err);
}

bool msg_options_is_array(const char *key) {
  for (size_t i = 0; i < KEY_COUNT; i++)
    if (KEYS[i].kind == KIND_TEXTS && strcmp(KEYS[i].name, key) == 0)
      return true;
  return false;
}

int msg_options_finish(msg_options *o, enum msg_verb verb, msg_err *err) {
  if (given(o, KEY_RECIPIENTS) && o->m.recipient_count == 0)
    return msg_err_set(err, MSG_INVALID,
                       "option 'recipients' is empty: name a node, or leave it out for everybody");
  if (o->m.group && verb != MSG_VERB_ENQUEUE && !o->m.exclusive)
    return msg_err_set(err, MSG_INVALID,
                       "option 'group' needs one owner: add exclusive: true, or use msg_enqueue");
  if (given(o, KEY_DELETE_AFTER_MS) && !o->m.delete_after_processing)
    return msg_err_set(
        err, MSG_INVALID,
        "option 'delete_after_processing_ms' needs delete_after_processing: true: add it");
  if (verb == MSG_VERB_ENQUEUE)
    o->m.exclusive = true;
  return MSG_OK;
}
