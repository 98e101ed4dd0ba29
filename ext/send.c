#include "ext/functions.h"
#include "ext/values.h"

/* A send being made up: from arguments to a filled message. */
struct sending {
  msg_options options; /* its m is the message */
  msg_opened *o;
  msg_call call;
};

/* Everything that only reads the arguments, so that bad input changes nothing. */
static int read_arguments(msg_invocation *in, int options_at, struct sending *s, msg_err *err) {
  const char *topic;
  int rc = msg_in_text(in, 0, "topic", &topic, err);
  if (rc == MSG_OK)
    rc = msg_topic_check(topic, err);
  msg_value none = {0};
  s->options.m.value = none;
  if (rc == MSG_OK)
    rc = msg_in_value(in, 1, &s->options.m.value, err);
  if (rc == MSG_OK && in->argc > options_at)
    rc = msg_options_read(in->c, in->argv[options_at], (enum msg_verb)in->verb, &s->options, err);
  if (rc != MSG_OK)
    return rc;
  if (in->verb == MSG_VERB_ENQUEUE)
    s->options.m.exclusive = true;
  s->options.m.topic = (char *)(uintptr_t)topic;
  s->options.m.lent = true;
  return MSG_OK;
}

int msg_run_send(msg_invocation *in, msg_err *err) {
  struct sending s; /* the options at once, the rest by msg_in_call */
  msg_oid id;
  msg_options_init(&s.options);
  int rc = read_arguments(in, 2, &s, err);
  if (rc == MSG_OK)
    rc = msg_in_call(in, s.options.node, MSG_CALL_WRITE, &s.o, &s.call, err);
  if (rc == MSG_OK)
    rc = msg_node_send_one(s.o->node, &s.call, &s.options.m, &s.options, &id, err);
  if (rc == MSG_OK)
    msg_result_oid(in->ctx, &id);
  msg_options_clear(&s.options);
  return rc;
}

int msg_run_request(msg_invocation *in, msg_err *err) {
  struct sending s = {0};
  msg_list answers = MSG_LIST_INIT;
  int64_t timeout_ms = -1;
  msg_options_init(&s.options);
  int rc = msg_in_int(in, 2, "timeout_ms", 0, MSG_DURATION_MAX_MS, &timeout_ms, err);
  if (rc == MSG_OK && timeout_ms < 0)
    rc = msg_err_set(err, MSG_INVALID, "%s: timeout_ms is null: give it an integer", in->name);
  if (rc == MSG_OK)
    rc = read_arguments(in, 3, &s, err);
  if (rc == MSG_OK && s.options.answers > 1)
    rc = msg_err_set(err, MSG_INVALID,
                     "%s: the scalar form returns one answer: use SELECT * FROM %s(...)", in->name,
                     in->name);
  if (rc == MSG_OK)
    rc = msg_in_call(in, s.options.node, MSG_CALL_REQUEST, &s.o, &s.call, err);
  if (rc == MSG_OK)
    rc = msg_node_fill(s.o->node, &s.options.m, &s.options, err);
  if (rc == MSG_OK)
    rc = msg_node_request(s.o->node, &s.call, &s.options.m, timeout_ms, 1, NULL, &answers, err);
  if (rc == MSG_OK && answers.n > 0)
    msg_result_value(in->ctx, &answers.at[0].value);
  msg_list_clear(&answers);
  msg_options_clear(&s.options);
  return rc == MSG_TIMEOUT ? MSG_OK : rc;
}

static int reply(struct sending *s, const msg_oid *id, const msg_value *value, msg_oid *answer,
                 msg_err *err) {
  char hex[MSG_OID_HEX + 1];
  int rc = msg_node_reply(s->o->node, &s->call, id, value, &s->options, answer, err);
  if (rc != MSG_NOTFOUND)
    return rc;
  msg_oid_hex(id, hex);
  return msg_err_set(err, MSG_NOTFOUND,
                     "msg_reply: no message '%s': it is gone, and this node did not take it", hex);
}

int msg_run_reply(msg_invocation *in, msg_err *err) {
  struct sending s = {0};
  msg_value value = {0};
  msg_oid id, answer;
  msg_options_init(&s.options);
  int rc = msg_arg_oid(in->argv[0], "msg_reply: id", &id, err);
  if (rc == MSG_OK)
    rc = msg_in_value(in, 1, &value, err);
  if (rc == MSG_OK && in->argc > 2)
    rc = msg_options_read(in->c, in->argv[2], MSG_VERB_REPLY, &s.options, err);
  if (rc == MSG_OK)
    rc = msg_in_call(in, s.options.node, MSG_CALL_WRITE, &s.o, &s.call, err);
  if (rc == MSG_OK)
    rc = reply(&s, &id, &value, &answer, err);
  if (rc == MSG_OK)
    msg_result_oid(in->ctx, &answer);
  msg_options_clear(&s.options);
  return rc;
}
