#include "store/mongo/foreign.h"

#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "store/mongo/document.h"
#include "store/mongo/people.h"
#include "store/mongo/tend.h"

/* --- the implementation check -------------------------------------------------------------- */

/* What was announced by somebody who lives and lays the queue out otherwise. */
struct foreign {
  int64_t since_ms;
  char node[80], implementation[80];
  int count;
};

static int note_foreign(void *arg, const bson_t *doc, msg_err *err) {
  struct foreign *f = arg;
  const char *node = msg_mongo_get_text(doc, "_id");
  const char *named = msg_mongo_get_text(doc, "implementation");
  (void)err;
  if (!node || !named || msg_mongo_get_int(doc, "last_seen", 0) < f->since_ms)
    return MSG_OK;
  if (f->count++ == 0) {
    snprintf(f->node, sizeof f->node, "%s", msg_show(node).s);
    snprintf(f->implementation, sizeof f->implementation, "%s", msg_show(named).s);
  }
  return MSG_OK;
}

static int find_foreign(msg_mongo_session *s, msg_mongo_use *u, struct foreign *f, msg_err *err) {
  f->since_ms = msg_mongo_now_ms(s->store) - s->participant_timeout_ms;
  bson_t *filter = BCON_NEW("implementation", "{", "$nin", "[",
                            BCON_UTF8(s->queue->layout->implementation), BCON_NULL, "]", "}");
  int rc = msg_mongo_each(u, s->names.participants, "announce", filter, NULL, note_foreign, f, err);
  bson_destroy(filter);
  return rc;
}

static void set_warning(msg_mongo_session *s, const struct foreign *f) {
  char text[sizeof s->store->tend->layout.text] = "";
  if (f->count > 0)
    snprintf(
        text, sizeof text,
        "%d node%s of another layout on queue '%s', such as '%.60s' (%.60s): messages get lost "
        "between layouts",
        f->count, f->count == 1 ? "" : "s", s->queue->name, f->node, f->implementation);
  msg_mongo_warn(s->store, &s->store->tend->layout, text);
}

int msg_mongo_foreign_check(msg_mongo_session *s, msg_mongo_use *u, const char *node,
                            msg_err *err) {
  struct foreign f = {0};
  if (s->check == 'i')
    return MSG_OK;
  int rc = find_foreign(s, u, &f, err);
  if (rc != MSG_OK)
    return rc;
  set_warning(s, &f);
  if (f.count == 0 || s->check != 't' || !node)
    return MSG_OK;
  return msg_err_set(err, MSG_MISUSE,
                     "announce '%s': node '%s' lays queue '%s' out as %s, and messages get lost "
                     "between layouts: give all its nodes one, or open with implementation_check "
                     "'warn'",
                     msg_show(node).s, f.node, s->queue->name, f.implementation);
}

/* --- a request that nobody answered -------------------------------------------------------- */

/* One who may have been asked, and whose answer cannot come; NULL: none. */
static const msg_participant *find_mute(const msg_mongo_session *s, const msg_mongo_people *people,
                                        const char *asker, const msg_message *request) {
  for (size_t i = 0; i < people->n; i++) {
    const msg_participant *p = &people->at[i];
    const msg_mongo_layout *layout = msg_mongo_layout_of(p->layout);
    bool asked = request->recipient_count == 0 || msg_message_has_recipient(request, p->node);
    if (p->alive && asked && strcmp(p->node, asker) != 0 && layout &&
        !msg_mongo_layout_answers(layout, s->queue->layout, request))
      return p;
  }
  return NULL;
}

int msg_mongo_unanswered(msg_session *base, const msg_actor *actor, const msg_message *request,
                         msg_err *err) {
  msg_mongo_session *s = (msg_mongo_session *)base;
  msg_mongo_people people = {0};
  msg_mongo_use u;
  if (s->check == 'i')
    return MSG_OK;
  int rc = msg_mongo_take_bounded(s, "request", &u, err);
  if (rc != MSG_OK)
    return rc;
  rc = msg_mongo_people_load(s, &u, &people, err);
  msg_mongo_give(&u);
  const msg_participant *mute = rc == MSG_OK ? find_mute(s, &people, actor->node, request) : NULL;
  if (mute)
    rc =
        msg_err_set(err, MSG_MISUSE,
                    "request on '%s': no answer came, and none can come from node '%s', which lays "
                    "queue '%s' out as '%s', not '%s': give all its nodes one layout, or open with "
                    "implementation_check 'ignore' to get NULL",
                    msg_show(request->topic).s, msg_show(mute->node).s, s->queue->name,
                    mute->layout, s->queue->layout->name);
  msg_mongo_people_clear(&people);
  return rc;
}
