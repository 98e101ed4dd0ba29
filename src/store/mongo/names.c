#include "store/mongo/names.h"

#include <string.h>

#include "base/str.h"
#include "model/topic.h"

#define PREFIX "mmsg_"

static const char *const SUFFIXES[] = {"_lck",       "_participants", "_keys",
                                       "_listeners", "_delayed",      "_leases"};
enum { SUFFIX_COUNT = sizeof SUFFIXES / sizeof SUFFIXES[0] };

/* The length of s without a suffix that only our own collections have, or a lane's; its whole
 * length if none. */
static size_t stem_length(const char *s) {
  const char *lane = strstr(s, "_dm_");
  size_t n = strlen(s);
  if (lane && lane > s)
    return (size_t)(lane - s);
  for (size_t i = 0; i < SUFFIX_COUNT; i++) {
    size_t k = strlen(SUFFIXES[i]);
    if (n > k && strcmp(s + n - k, SUFFIXES[i]) == 0)
      return n - k;
  }
  return n;
}

/* Both fit: names_of has seen to it. */
static void join(char *out, const char *base, const char *suffix) {
  size_t n = strlen(base), k = strlen(suffix);
  memcpy(out, base, n);
  memcpy(out + n, suffix, k + 1);
}

int msg_mongo_names_of(const char *queue, msg_mongo_names *out, msg_err *err) {
  bool standard = strcmp(queue, "msg") == 0;
  char base[MSG_MONGO_NAME_MAX];
  if (!standard && strlen(queue) > MSG_QUEUE_MAX)
    return msg_err_set(err, MSG_INVALID, "queue '%s' is too long for MongoDB", msg_show(queue).s);
  if (!standard && stem_length(queue) < strlen(queue))
    return msg_err_set(err, MSG_INVALID,
                       "queue '%s' ends with '%s', as a collection beside another queue's does: "
                       "choose another name",
                       msg_show(queue).s, queue + stem_length(queue));
  join(base, standard ? "msg" : PREFIX, standard ? "" : queue);
  join(out->messages, base, "");
  join(out->locks, base, SUFFIXES[0]);
  join(out->participants, base, SUFFIXES[1]);
  join(out->keys, base, SUFFIXES[2]);
  join(out->listeners, base, SUFFIXES[3]);
  join(out->leases, base, SUFFIXES[5]);
  return MSG_OK;
}

bool msg_mongo_queue_of_collection(const char *collection, char *queue) {
  size_t n = stem_length(collection), skip = 0;
  if (n != 3 || strncmp(collection, "msg", n) != 0) {
    skip = strlen(PREFIX);
    if (strncmp(collection, PREFIX, skip) != 0)
      return false;
    if (n < skip) /* a queue that is called like a suffix */
      n = strlen(collection);
    if (n <= skip || n - skip >= MSG_MONGO_NAME_MAX)
      return false;
  }
  memcpy(queue, collection + skip, n - skip);
  queue[n - skip] = '\0';
  return true;
}

static char lower(char c) {
  return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

void msg_mongo_fold(const char *id, char *out) {
  bool up = false;
  for (; *id; id++) {
    char c = lower(*id);
    if (c == '_') {
      up = true;
      continue;
    }
    *out++ = up && c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c;
    up = false;
  }
  *out = '\0';
}

void msg_mongo_fold_topic(char *name) {
  char *out = name;
  for (; *name; name++)
    if (!strchr(" \t\n\v\f\r-/", *name))
      *out++ = *name == '.' ? '_' : *name;
  *out = '\0';
}
