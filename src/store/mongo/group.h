/* group.h - FIFO groups: of each the oldest message is the head, which alone may be claimed. */
#ifndef MSG_MONGO_GROUP_H
#define MSG_MONGO_GROUP_H

#include "store/mongo/query.h"

typedef struct msg_mongo_groups {
  struct msg_mongo_group {
    char *topic, *group;
    bool head; /* free for callers */
  } * at;
  size_t n, cap;
} msg_mongo_groups;

/** Add one, if it is not there. Returns its place, NULL when memory is out. */
struct msg_mongo_group *msg_mongo_groups_add(msg_mongo_groups *g, const char *topic,
                                             const char *group);
void msg_mongo_groups_clear(msg_mongo_groups *g);
/** Add the group of a document, if it has one. */
int msg_mongo_groups_add_of(msg_mongo_groups *g, const bson_t *doc, msg_err *err);
/** $or over the groups: {topic, sq.group, state}. Call with n > 0. */
void msg_mongo_append_groups(bson_t *doc, const msg_mongo_groups *g);

/** Make the oldest waiting message of each group its head where it has none. Two calls, whatever
 *  their number. */
int msg_mongo_groups_promote(msg_mongo_session *s, msg_mongo_use *u, const msg_mongo_groups *g,
                             msg_err *err);
/** The groups of these messages, then as above. One call when none has a group. */
int msg_mongo_groups_after(msg_mongo_session *s, msg_mongo_use *u, const msg_oid *ids, size_t n,
                           msg_err *err);
/** Heads that Java nodes have processed let their groups go on. *moved: how many. */
int msg_mongo_groups_pass(msg_mongo_session *s, msg_mongo_use *u, int *moved, msg_err *err);
/** Groups that lost their head without anybody's doing: found and given one. */
int msg_mongo_groups_repair(msg_mongo_session *s, msg_mongo_use *u, msg_err *err);
/** The queue has groups / may have. */
void msg_mongo_note_grouped(msg_mongo_session *s);
bool msg_mongo_is_grouped(msg_mongo_session *s);
/** One look whether there is a head, where none was met yet. Errors: as msg_mongo_fail; MSG_BACKEND
 *  also while there are no indexes. */
int msg_mongo_look_grouped(msg_mongo_session *s, msg_mongo_use *u, msg_err *err);

#endif
