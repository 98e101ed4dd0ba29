#include "ext/marks.h"

#include "ext/values.h"
#include "model/topic.h"

/* Borrowed while the array is read, so each is copied. */
static int add(void *arg, const char *key, const msg_value *v, bool is_bool, msg_err *err) {
  (void)key, (void)is_bool;
  if (v->type != MSG_TEXT || v->json)
    return msg_err_set(err, MSG_INVALID, "column processed_by: give a JSON array of sender ids");
  int rc = msg_name_check("sender id", v->p, MSG_NODE_MAX, err);
  if (rc != MSG_OK)
    return rc;
  return msg_texts_note(arg, v->p) == MSG_OK ? MSG_OK : msg_err_nomem(err);
}

int msg_marks_read(msg_connection *c, const msg_value *array, msg_texts *out, msg_err *err) {
  if (array->type != MSG_TEXT)
    return msg_err_set(err, MSG_INVALID,
                       "column processed_by is %s: give a JSON array of sender ids",
                       msg_type_name(array->type));
  return msg_json_array(c, array, "column processed_by", add, out, err);
}

static int mark(const msg_target *target, const msg_actor *actor, const char *node, msg_err *err) {
  msg_session *session = target->call.session;
  msg_actor as = *actor;
  msg_message m = target->m;
  msg_list one = {.at = &m, .n = 1};
  bool won;
  as.node = node;
  return session->ops->seen(session, &as, &one, &won, err);
}

int msg_marks_add(msg_connection *c, const msg_target *target, const msg_actor *actor,
                  sqlite3_value *array, msg_err *err) {
  msg_texts names = {0};
  msg_value text;
  int rc = msg_value_read(array, &text, err);
  if (rc == MSG_OK)
    rc = msg_marks_read(c, &text, &names, err);
  if (rc == MSG_OK && names.n && target->m.exclusive)
    rc = msg_err_set(err, MSG_INVALID,
                     "column processed_by of an exclusive message: it has one owner, claim and "
                     "acknowledge it");
  for (size_t i = 0; rc == MSG_OK && i < names.n; i++)
    rc = mark(target, actor, names.at[i], err);
  msg_texts_clear(&names);
  return rc;
}
