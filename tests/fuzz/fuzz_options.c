/* Options of a send and settings of a node: any key, any value; what is refused changes nothing. */
#include "fuzz/bytes.h"
#include "model/options.h"
#include "model/settings.h"

static const char *const KEYS[] = {"exclusive",
                                   "priority",
                                   "ttl_ms",
                                   "timing_out",
                                   "delay_ms",
                                   "deliver_at",
                                   "recipient",
                                   "recipients",
                                   "key",
                                   "group",
                                   "msg",
                                   "map",
                                   "additional",
                                   "in_answer_to",
                                   "delete_after_processing",
                                   "delete_after_processing_ms",
                                   "id",
                                   "answers",
                                   "node"};
#define KEY_COUNT (sizeof KEYS / sizeof KEYS[0])

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A value of any type; its text, if any, is *text (free). */
static msg_value take_value(bytes *b, char **text, bool *is_bool) {
  size_t n;
  uint8_t how = bytes_u8(b);
  msg_value v = {.type = (enum msg_type)(how % 5), .json = (how & 0x80) != 0, .r = 0.5};
  *text = bytes_text(b, &n);
  v.i = v.type == MSG_INT ? bytes_i64(b) : 0;
  *is_bool = v.type == MSG_INT && (how & 0x40);
  v.i = *is_bool ? v.i & 1 : v.i;
  if (v.type == MSG_TEXT || v.type == MSG_BLOB) {
    v.p = *text;
    v.n = n;
  }
  if (v.type == MSG_TEXT && (how & 0x20)) /* often an id */
    v = msg_value_text("0123456789abcdef01234567");
  return v;
}

static void checked_text(const msg_err *err, int rc) {
  if (rc == MSG_OK)
    return;
  must(rc == MSG_INVALID || rc == MSG_MISUSE);
  must(err->rc == rc && err->text[0] && strlen(err->text) < sizeof err->text);
  for (const char *c = err->text; *c; c++)
    must((unsigned char)*c >= 0x20);
}

static void one_option(msg_options *o, enum msg_verb verb, bytes *b) {
  char *text, *name;
  size_t n;
  bool is_bool;
  msg_err err = MSG_ERR_INIT;
  uint8_t which = bytes_u8(b);
  name = bytes_text(b, &n);
  msg_value v = take_value(b, &text, &is_bool);
  const char *key = which < 200 ? KEYS[which % KEY_COUNT] : name;
  const msg_options before = *o;
  int rc = msg_options_is_array(key) && (which & 1)
               ? msg_options_add(o, verb, key, which & 2 ? &v : NULL, &err)
               : msg_options_set(o, verb, key, &v, is_bool, &err);
  checked_text(&err, rc);
  if (rc != MSG_OK)
    must(memcmp(&before, o, sizeof before) == 0);
  free(name);
  free(text);
}

static void one_setting(msg_settings *s, bytes *b) {
  char *text, *name;
  size_t n;
  bool is_bool;
  msg_err err = MSG_ERR_INIT;
  uint8_t which = bytes_u8(b);
  name = bytes_text(b, &n);
  msg_value v = take_value(b, &text, &is_bool), got;
  const char *key = which < 200 ? msg_settings_info(which % msg_settings_count())->name : name;
  const msg_settings before = *s;
  int rc = msg_settings_set(s, key, &v, is_bool, (which & 7) == 0, &err);
  checked_text(&err, rc);
  if (rc != MSG_OK)
    must(memcmp(&before, s, sizeof before) == 0);
  else
    must(msg_settings_get(s, key, &got));
  free(name);
  free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  bytes b = {data, size};
  msg_err err = MSG_ERR_INIT;
  msg_options o;
  msg_settings s, copy;
  enum msg_verb verb = (enum msg_verb)(bytes_u8(&b) % 4);
  msg_options_init(&o);
  msg_settings_init(&s);
  while (b.n > 0) {
    one_option(&o, verb, &b);
    one_setting(&s, &b);
  }
  checked_text(&err, msg_options_finish(&o, verb, &err));
  must(msg_settings_copy(&copy, &s) == MSG_OK);
  msg_settings_clear(&copy);
  msg_settings_clear(&s);
  msg_options_clear(&o);
  return 0;
}
