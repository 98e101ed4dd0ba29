#include "ext/marks.h"

#include <string.h>

#include "base/mem.h"
#include "ext/values.h"
#include "model/topic.h"

/* Sender ids: borrowed while the arrays are read, so each is copied. */
struct names {
  char **at;
  size_t n, cap;
};

static void names_clear(struct names *names) {
  for (size_t i = 0; i < names->n; i++)
    msg_free(names->at[i]);
  msg_free(names->at);
}

static bool has(const struct names *names, const char *name) {
  for (size_t i = 0; i < names->n; i++)
    if (strcmp(names->at[i], name) == 0)
      return true;
  return false;
}

static int add(void *arg, const char *key, const msg_value *v, bool is_bool, msg_err *err) {
  struct names *names = arg;
  (void)key, (void)is_bool;
  if (v->type != MSG_TEXT || v->json)
    return msg_err_set(err, MSG_INVALID, "column processed_by: give a JSON array of sender ids");
  int rc = msg_name_check("sender id", v->p, MSG_NODE_MAX, err);
  if (rc != MSG_OK || has(names, v->p))
    return rc;
  if (msg_grow(&names->at, &names->cap, names->n + 1, sizeof *names->at) != MSG_OK ||
      !(names->at[names->n] = msg_strdup(v->p)))
    return msg_err_nomem(err);
  names->n++;
  return MSG_OK;
}

static int mark(const msg_target *target, const msg_actor *actor, const char *node, msg_err *err) {
  msg_session *session = target->call.session;
  msg_actor as = *actor;
  msg_message m = target->m;
  msg_list one = {&m, 1, 1};
  bool won;
  as.node = node;
  return session->ops->seen(session, &as, &one, &won, err);
}

int msg_marks_add(msg_connection *c, const msg_target *target, const msg_actor *actor,
                  sqlite3_value *array, msg_err *err) {
  struct names names = {0};
  msg_value text;
  int rc = msg_value_read(array, &text, err);
  if (rc == MSG_OK && text.type != MSG_TEXT)
    rc = msg_err_set(err, MSG_INVALID, "column processed_by is %s: give a JSON array of sender ids",
                     msg_type_name(text.type));
  if (rc == MSG_OK)
    rc = msg_json_array(c, &text, "column processed_by", add, &names, err);
  if (rc == MSG_OK && names.n && target->m.exclusive)
    rc = msg_err_set(err, MSG_INVALID,
                     "column processed_by of an exclusive message: it has one owner, claim and "
                     "acknowledge it");
  for (size_t i = 0; rc == MSG_OK && i < names.n; i++)
    rc = mark(target, actor, names.at[i], err);
  names_clear(&names);
  return rc;
}
