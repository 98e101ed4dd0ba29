#include "store/mongo/layout.h"

#include <stdio.h>
#include <string.h>

#include "base/str.h"

static const msg_mongo_layout LAYOUTS[] = {
    {"standard", "StandardMessaging", false, false, false},
    {"multi", "MultiCollectionMessaging", true, true, true},
    {"dual", "DualChannelMessaging", false, true, false},
};
enum { COUNT = sizeof LAYOUTS / sizeof LAYOUTS[0] };

const msg_mongo_layout *msg_mongo_layout_of(const char *name) {
  if (!name || !name[0])
    return &LAYOUTS[0];
  for (size_t i = 0; i < COUNT; i++)
    if (strcmp(LAYOUTS[i].name, name) == 0)
      return &LAYOUTS[i];
  return NULL;
}

const msg_mongo_layout *msg_mongo_layout_announced(const char *implementation) {
  for (size_t i = 0; implementation && i < COUNT; i++)
    if (strcmp(LAYOUTS[i].implementation, implementation) == 0)
      return &LAYOUTS[i];
  return &LAYOUTS[0];
}

/* ---- which one ---- */

/* One of several recipients owns an exclusive message: not in their lanes, where each would. What
 * is hidden in a lane would be handed out by the stream of a Java node. */
enum msg_mongo_goes msg_mongo_goes(const msg_mongo_layout *layout, const msg_message *m,
                                   bool later) {
  bool laned = layout->lanes && m->recipient_count > 0 &&
               (!m->exclusive || (layout->topics && m->recipient_count == 1));
  if (later && layout->apart && (laned || !m->exclusive))
    return MSG_MONGO_APART;
  if (laned && !later)
    return MSG_MONGO_LANES;
  return layout->topics ? MSG_MONGO_TOPIC : MSG_MONGO_MAIN;
}

/* Who has lanes looks at the one collection too, but not the other way round. */
bool msg_mongo_layout_answers(const msg_mongo_layout *of, const msg_mongo_layout *asker,
                              const msg_message *request) {
  if (of == asker)
    return true;
  if (of->topics || asker->topics || of->lanes)
    return false;
  return msg_mongo_goes(asker, request, false) != MSG_MONGO_LANES;
}

/* ---- names ---- */

/* out is MSG_MONGO_NAME_MAX bytes; what is longer is cut: no queue's name nor a node's is so
 * long. */
static void join(char *out, const char *a, const char *b) {
  size_t n = 0;
  for (; *a && n < MSG_MONGO_NAME_MAX - 1; a++)
    out[n++] = *a;
  for (; *b && n < MSG_MONGO_NAME_MAX - 1; b++)
    out[n++] = *b;
  out[n] = '\0';
}

void msg_mongo_at_main(const msg_mongo_names *names, msg_mongo_at *out) {
  memcpy(out->messages, names->messages, sizeof out->messages);
  memcpy(out->locks, names->locks, sizeof out->locks);
}

/* "<queue>_" and "<queue>_lck_" as they stand in front of a folded topic. */
static void prefixes(const char *queue, char *of_topics, char *of_locks) {
  join(of_topics, queue, "_");
  join(of_locks, queue, "_lck_");
  msg_mongo_fold_topic(of_topics);
  msg_mongo_fold_topic(of_locks);
}

static bool starts_with(const char *s, const char *prefix) {
  return strncmp(s, prefix, strlen(prefix)) == 0;
}

/* A collection beside those of the topics, which a topic's name could hit; NULL: none. */
static const char *beside(const char *queue, const msg_mongo_names *names, const char *collection) {
  char topics[MSG_MONGO_NAME_MAX], locks[MSG_MONGO_NAME_MAX], dual[MSG_MONGO_NAME_MAX];
  prefixes(queue, topics, locks);
  join(dual, names->messages, "_dm_");
  if (starts_with(collection, locks))
    return "the locks of another topic";
  if (strcmp(collection, names->participants) == 0)
    return "the queue's participants";
  if (strcmp(collection, names->keys) == 0 || strcmp(collection, names->listeners) == 0 ||
      strcmp(collection, names->leases) == 0 || strcmp(collection, names->locks) == 0)
    return "a collection beside the queue's messages";
  msg_mongo_at apart;
  msg_mongo_at_apart(names, &apart);
  if (strcmp(collection, apart.messages) == 0)
    return "what waits for its time";
  if (starts_with(collection, dual))
    return "a lane of layout dual";
  if (starts_with(collection, "dm_"))
    return "a lane";
  return NULL;
}

int msg_mongo_at_topic(const char *queue, const char *topic, size_t room, msg_mongo_at *out,
                       msg_err *err) {
  msg_mongo_names names;
  int rc = msg_mongo_names_of(queue, &names, err);
  if (rc != MSG_OK)
    return rc;
  char locks[1024], messages[1024]; /* folding shortens */
  snprintf(locks, sizeof locks, "%s_lck_%s", queue, topic);
  snprintf(messages, sizeof messages, "%s_%s", queue, topic);
  msg_mongo_fold_topic(locks);
  msg_mongo_fold_topic(messages);
  room = room < MSG_MONGO_NAME_MAX ? room : MSG_MONGO_NAME_MAX - 1;
  if (strlen(locks) > room)
    return msg_err_set(err, MSG_INVALID,
                       "topic '%s': in layout 'multi' it names a collection, which is too long by "
                       "%zu bytes: choose a shorter one",
                       msg_show(topic).s, strlen(locks) - room);
  join(out->locks, locks, "");
  join(out->messages, messages, "");
  const char *other = beside(queue, &names, out->messages);
  if (!other)
    return MSG_OK;
  return msg_err_set(
      err, MSG_INVALID,
      "topic '%s': in layout 'multi' its collection '%s' would be that of %s: choose "
      "another name",
      msg_show(topic).s, msg_show(out->messages).s, other);
}

void msg_mongo_at_topic_locks(const char *queue, const char *collection, msg_mongo_at *out) {
  char topics[MSG_MONGO_NAME_MAX], locks[MSG_MONGO_NAME_MAX];
  prefixes(queue, topics, locks);
  join(out->locks, locks, collection + strlen(topics));
}

/* Where lanes begin. */
static void lane_prefix(const msg_mongo_layout *layout, const msg_mongo_names *names, char *out) {
  join(out, layout->topics ? "" : names->messages, layout->topics ? "dm_" : "_dm_");
}

void msg_mongo_at_lane(const msg_mongo_layout *layout, const msg_mongo_names *names,
                       const char *node, msg_mongo_at *out) {
  char prefix[MSG_MONGO_NAME_MAX], folded[MSG_MONGO_NAME_MAX];
  lane_prefix(layout, names, prefix);
  join(folded, node, "");
  msg_mongo_fold(folded, folded);
  join(out->messages, prefix, folded);
  memcpy(out->locks, names->locks, sizeof out->locks);
}

void msg_mongo_at_apart(const msg_mongo_names *names, msg_mongo_at *out) {
  join(out->messages, names->messages, "_delayed");
  memcpy(out->locks, names->locks, sizeof out->locks);
}

bool msg_mongo_is_lane(const msg_mongo_layout *layout, const msg_mongo_names *names,
                       const char *collection, const char **owner) {
  char prefix[MSG_MONGO_NAME_MAX];
  if (!layout->lanes)
    return false;
  lane_prefix(layout, names, prefix);
  if (!starts_with(collection, prefix) || !collection[strlen(prefix)])
    return false;
  *owner = collection + strlen(prefix);
  return !strchr(*owner, '_'); /* folded ids have none: it is beside some queue's messages */
}

bool msg_mongo_may_be_topic(const char *queue, const msg_mongo_names *names,
                            const char *collection) {
  char topics[MSG_MONGO_NAME_MAX], locks[MSG_MONGO_NAME_MAX];
  prefixes(queue, topics, locks);
  return starts_with(collection, topics) && !beside(queue, names, collection);
}
