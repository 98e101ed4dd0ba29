/* contract_presence.c - the contract: participants and lanes. */
#include <string.h>

#include "support/contract.h"

static msg_participant person(const char *node, const char *process, bool automatic) {
  return (msg_participant){.node = (char *)node,
                           .host = "h",
                           .implementation = "impl",
                           .layout = "lay",
                           .process = (char *)process,
                           .pid = 42,
                           .automatic = automatic,
                           .started_at_ms = 11,
                           .last_seen_ms = msg_clock_now_ms()};
}

static void announce(contract *k, const msg_participant *p) {
  OK(k->s->ops->presence_put(k->s, p, &k->err));
}

struct listing {
  char text[1024];
  msg_participant last; /* numbers only */
};

static int note_person(void *arg, const msg_participant *p) {
  struct listing *l = arg;
  size_t at = strlen(l->text);
  snprintf(l->text + at, sizeof l->text - at, "%s@%s/%s/%s %s;", p->node, p->host,
           p->implementation, p->layout, p->alive ? "alive" : "dead");
  l->last = *p;
  return MSG_OK;
}

static void people_are(contract *k, const char *want) {
  struct listing l = {.text = ""};
  OK(k->s->ops->presence_list(k->s, note_person, &l, &k->err));
  assert_string_equal(l.text, want);
}

static int withdraw(contract *k, const char *node, bool only_dead) {
  return k->s->ops->presence_withdraw(k->s, node, only_dead, &k->err);
}

static int note_lane(void *arg, const msg_lane *lane) {
  struct listing *l = arg;
  size_t at = strlen(l->text);
  assert_string_not_equal(lane->lane, "");
  assert_int_equal(lane->depth > 0, lane->oldest_ms > 0);
  assert_int_equal(lane->orphan, !lane->owner_alive);
  snprintf(l->text + at, sizeof l->text - at, "%s %d%s;", lane->owner, (int)lane->depth,
           lane->orphan ? " orphan" : "");
  return MSG_OK;
}

static void lanes_are(contract *k, const char *want) {
  struct listing l = {.text = ""};
  OK(k->s->ops->lanes(k->s, note_lane, &l, &k->err));
  assert_string_equal(l.text, want);
}

struct lane_name {
  const char *owner;
  char lane[256];
};

static int take_lane(void *arg, const msg_lane *lane) {
  struct lane_name *name = arg;
  if (strcmp(lane->owner, name->owner) == 0)
    snprintf(name->lane, sizeof name->lane, "%s", lane->lane);
  return MSG_OK;
}

/* Lanes have the store's names: drop the one of this owner, as it is listed. */
static int drop_lane(contract *k, const char *owner) {
  struct lane_name name = {.owner = owner};
  snprintf(name.lane, sizeof name.lane, "%s", owner); /* not listed: no lane of any name */
  OK(k->s->ops->lanes(k->s, take_lane, &name, &k->err));
  return k->s->ops->lane_drop(k->s, name.lane, &k->err);
}

static const char dead_process[] = "not:this:1:1";

static void presence_is_kept(void **state) {
  contract *k = *state;
  struct listing l = {.text = ""};
  people_are(k, "");
  msg_participant p = person("a", msg_process_self(), true);
  announce(k, &p);
  p.last_seen_ms += 5000;
  announce(k, &p); /* refreshed, not doubled */
  OK(k->s->ops->presence_list(k->s, note_person, &l, &k->err));
  assert_string_equal(l.text, "a@h/impl/lay alive;");
  assert_int_equal(l.last.pid, 42);
  assert_true(l.last.automatic);
  assert_int_equal(l.last.started_at_ms, 11);
  assert_int_equal(l.last.last_seen_ms, p.last_seen_ms);
}

static void alive_by_process_or_by_sign_of_life(void **state) {
  contract *k = *state;
  msg_participant here = person("here", msg_process_self(), false);
  msg_participant far = person("far", dead_process, false);
  msg_participant unknown = person("unknown", "", false);
  here.last_seen_ms -= 1000000000;
  announce(k, &here);
  announce(k, &far);
  announce(k, &unknown);
  people_are(k, "far@h/impl/lay alive;here@h/impl/lay alive;unknown@h/impl/lay alive;");
  contract_pass(k, k->settings.participant_timeout_ms + 1);
  people_are(k, "far@h/impl/lay dead;here@h/impl/lay alive;unknown@h/impl/lay dead;");
}

static void withdraw_removes(void **state) {
  contract *k = *state;
  assert_int_equal(withdraw(k, "a", false), MSG_NOTFOUND);
  msg_participant a = person("a", msg_process_self(), false);
  msg_participant b = person("b", dead_process, false);
  announce(k, &a);
  announce(k, &b);
  contract_pass(k, k->settings.participant_timeout_ms + 1);
  assert_int_equal(withdraw(k, "a", true), MSG_MISUSE);
  OK(withdraw(k, "b", true));
  assert_int_equal(withdraw(k, "b", true), MSG_NOTFOUND);
  OK(withdraw(k, "a", false));
  people_are(k, "");
}

static void withdraw_forgets_what_only_an_automatic_id_needs(void **state) {
  contract *k = *state;
  msg_participant automatic = person("auto", msg_process_self(), true);
  msg_participant given = person("given", msg_process_self(), false);
  announce(k, &automatic);
  announce(k, &given);
  contract_listen(k, "auto", "t", false);
  contract_listen(k, "given", "t", false);
  PUT(.topic = "t", .text = "1");
  OK(withdraw(k, "auto", false));
  OK(withdraw(k, "given", false));
  assert_string_equal(contract_await(k, "auto", "t", 9), "");
  assert_string_equal(contract_await(k, "given", "t", 9), "1");
}

static void lanes_of_participants_and_recipients(void **state) {
  contract *k = *state;
  lanes_are(k, "");
  msg_participant a = person("a", msg_process_self(), false);
  announce(k, &a);
  PUT(.topic = "t", .to = "a", .to_also = "nobody");
  PUT(.topic = "t", .to = "nobody");
  PUT(.topic = "t", .to = "nobody", .exclusive = true);
  PUT(.topic = "t", .to = "brief", .ttl_ms = 10);
  contract_pass(k, 11);
  contract_await(k, "a", NULL, 9);
  struct listing l = {.text = ""};
  OK(k->s->ops->lanes(k->s, note_lane, &l, &k->err));
  assert_non_null(strstr(l.text, "a 0;"));
  assert_non_null(strstr(l.text, "nobody 3 orphan;"));
}

static void lanes_are_dropped_when_empty(void **state) {
  contract *k = *state;
  msg_participant a = person("a", msg_process_self(), false);
  msg_participant gone = person("gone", dead_process, false);
  assert_int_equal(drop_lane(k, "a"), MSG_NOTFOUND);
  announce(k, &a);
  announce(k, &gone);
  contract_pass(k, k->settings.participant_timeout_ms + 1);
  lanes_are(k, "a 0;gone 0 orphan;");
  assert_int_equal(drop_lane(k, "a"), MSG_MISUSE);
  PUT(.topic = "t", .text = "1", .to = "gone");
  lanes_are(k, "a 0;gone 1 orphan;");
  assert_int_equal(drop_lane(k, "gone"), MSG_MISUSE);
  assert_string_equal(contract_await(k, "gone", NULL, 9), "1");
  OK(drop_lane(k, "gone"));
  lanes_are(k, "a 0;");
  assert_int_equal(drop_lane(k, "gone"), MSG_NOTFOUND);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(presence_is_kept),
    cmocka_unit_test(alive_by_process_or_by_sign_of_life),
    cmocka_unit_test(withdraw_removes),
    cmocka_unit_test(withdraw_forgets_what_only_an_automatic_id_needs),
    cmocka_unit_test(lanes_of_participants_and_recipients),
    cmocka_unit_test(lanes_are_dropped_when_empty),
};
const contract_group contract_presences = {"presence", tests, sizeof tests / sizeof *tests};
