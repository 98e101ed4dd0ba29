/* Patterns and topics: no pattern takes the machine down, and what a send accepts an exact listen
 * hears. */
#include <sqlite3.h>

#include "fuzz/bytes.h"
#include "model/topic.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_exact(const char *topic) {
  msg_pattern *p = NULL;
  must(msg_pattern_new(topic, &p, NULL) == MSG_OK);
  must(msg_pattern_kind_of(p) == MSG_PATTERN_EXACT);
  must(msg_pattern_match(p, topic));
  msg_pattern_free(p);
}

/* The rest of the input, as it is or between slashes. */
static char *take_pattern(bytes *b) {
  bool regex = bytes_u8(b) & 1;
  char *text = calloc(1, b->n + 3);
  must(text != NULL);
  memcpy(text + regex, b->at, b->n);
  if (regex) {
    text[0] = '/';
    text[strlen(text)] = '/';
  }
  return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  bytes b = {data, size};
  size_t n;
  char *topic = bytes_text(&b, &n);
  char *text = take_pattern(&b);
  msg_pattern *p = NULL;
  msg_err err = MSG_ERR_INIT;
  msg_pattern_set_glob(sqlite3_strglob);
  int rc = msg_pattern_new(text, &p, &err);
  if (rc == MSG_OK) {
    must(strcmp(msg_pattern_text(p), text) == 0);
    msg_pattern_match(p, topic);
  } else {
    must(rc == MSG_INVALID && !p && err.text[0]);
  }
  msg_pattern_free(p);
  if (msg_topic_check(topic, NULL) == MSG_OK)
    check_exact(topic);
  msg_node_name_check(topic, NULL);
  msg_queue_check(topic, NULL);
  free(topic);
  free(text);
  return 0;
}
