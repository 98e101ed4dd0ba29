/* contract_find.c - the contract: find. Every filter is compared with msg_filter_match over all
 * rows. */
#include <string.h>

#include "support/contract.h"

static void find_all(contract *k, const msg_filter *f, msg_list *out) {
  msg_find *find = NULL;
  int rc;
  OK(k->s->ops->find(k->s, f, &find, &k->err));
  for (;;) {
    msg_message m;
    rc = k->s->ops->find_next(find, &m, &k->err);
    if (rc != MSG_OK)
      break;
    msg_message *to = msg_list_add(out);
    assert_non_null(to);
    *to = m;
  }
  assert_int_equal(rc, MSG_NOTFOUND);
  msg_message m;
  assert_int_equal(k->s->ops->find_next(find, &m, &k->err), MSG_NOTFOUND); /* and stays there */
  k->s->ops->find_close(find);
}

/* ---- a store with everything in it ---- */

static const char *const topics[] = {"a", "b", "B", "a.b", "\xc3\xa4"};
static const char *const senders[] = {"s1", "s2", "S1"};

static void fill_waiting(contract *k) {
  unsigned seed = 7;
  for (int i = 0; i < 120; i++) {
    seed = seed * 1103515245u + 12345u;
    unsigned r = seed >> 16;
    bool exclusive = r % 3 != 0;
    PUT(.topic = topics[r % 5], .sender = senders[r / 5 % 3], .exclusive = exclusive, .text = "x",
        .priority = (int)(r / 15 % 3) + 1, .delay_ms = r / 45 % 4 ? 0 : 100000,
        .ttl_ms = r / 180 % 3 ? 0 : 200000, .to = r / 360 % 4 ? NULL : "n1",
        .group = exclusive && r / 720 % 3 == 0 ? "g" : NULL);
    contract_pass(k, 1);
  }
}

static void fill_others(contract *k) {
  msg_list list = MSG_LIST_INIT;
  contract_claim(k, k->s, "n1", "a", 5, 500000, &list);
  contract_claim(k, k->s, "n2", "b", 3, 500000, &list);
  assert_true(list.n > 3);
  assert_true(contract_settle(k, "n1", MSG_SETTLE_REJECT, &list.at[0].id, NULL, 0));
  assert_true(contract_settle(k, "n1", MSG_SETTLE_REJECT, &list.at[1].id, NULL, 0));
  msg_list_clear(&list);
  contract_await(k, "n1", NULL, 4); /* directs: processed */
  for (int i = 0; i < 20; i++)
    PUT(.topic = topics[i % 5], .exclusive = i % 2, .ttl_ms = 50, .to = i % 3 ? NULL : "n1");
  for (int i = 0; i < 20; i++)
    PUT(.topic = topics[i % 5], .exclusive = i % 2, .delay_ms = 40, .to = i % 3 ? NULL : "n1");
  contract_pass(k, 51); /* expired; due, and not swept */
}

static void fill(contract *k) {
  fill_waiting(k);
  fill_others(k);
}

/* ---- comparing ---- */

static bool same_id(const msg_message *a, const msg_message *b) {
  return msg_oid_cmp(&a->id, &b->id) == 0;
}

static int by_seq(const void *a, const void *b) {
  const msg_message *x = a, *y = b;
  return (x->seq > y->seq) - (x->seq < y->seq);
}

static void check_order(const msg_filter *f, const msg_list *got) {
  for (size_t i = 1; i < got->n; i++) {
    const msg_message *x = &got->at[i - 1], *y = &got->at[i];
    if (f->ordered)
      assert_true(x->priority < y->priority ||
                  (x->priority == y->priority &&
                   (x->deliver_at_ms < y->deliver_at_ms ||
                    (x->deliver_at_ms == y->deliver_at_ms && x->seq < y->seq))));
    else if (f->descending_seq)
      assert_true(x->seq > y->seq);
    else if (f->ascending_seq)
      assert_true(x->seq < y->seq);
  }
}

/* Rows, state and processed_by are those of the full scan; in order where one is asked for. */
static void check(contract *k, const msg_list *all, const msg_filter *f) {
  msg_list got = MSG_LIST_INIT, want = MSG_LIST_INIT;
  find_all(k, f, &got);
  for (size_t i = 0; i < all->n; i++)
    if (msg_filter_match(f, &all->at[i]))
      assert_int_equal(msg_message_copy(msg_list_add(&want), &all->at[i]), MSG_OK);
  assert_int_equal(got.n, want.n);
  check_order(f, &got);
  if (got.n) {
    qsort(got.at, got.n, sizeof *got.at, by_seq);
    qsort(want.at, want.n, sizeof *want.at, by_seq);
  }
  for (size_t i = 0; i < got.n; i++) {
    assert_true(same_id(&got.at[i], &want.at[i]));
    assert_int_equal(got.at[i].state, want.at[i].state);
    assert_string_equal(got.at[i].processed_by, want.at[i].processed_by);
  }
  msg_list_clear(&got);
  msg_list_clear(&want);
}

/* Limit and offset cut the ordered rows. */
static void check_limit(contract *k, msg_filter *f, int64_t limit, int64_t offset) {
  msg_list whole = MSG_LIST_INIT, part = MSG_LIST_INIT;
  f->limit = -1;
  f->offset = 0;
  find_all(k, f, &whole);
  f->limit = limit;
  f->offset = offset;
  find_all(k, f, &part);
  size_t from = (size_t)offset < whole.n ? (size_t)offset : whole.n;
  size_t n = whole.n - from;
  if (limit >= 0 && (size_t)limit < n)
    n = (size_t)limit;
  assert_int_equal(part.n, n);
  for (size_t i = 0; i < n; i++)
    assert_true(same_id(&part.at[i], &whole.at[from + i]));
  msg_list_clear(&whole);
  msg_list_clear(&part);
}

static void load(contract *k, msg_list *all) {
  msg_filter f;
  msg_filter_init(&f);
  find_all(k, &f, all);
  msg_filter_clear(&f);
}

/* ---- tests ---- */

static void find_shows_every_state(void **state) {
  contract *k = *state;
  msg_list all = MSG_LIST_INIT;
  unsigned seen = 0;
  fill(k);
  load(k, &all);
  for (size_t i = 0; i < all.n; i++)
    seen |= 1u << all.at[i].state;
  assert_int_equal(seen, (1u << MSG_STATE_COUNT) - 1);
  msg_list_clear(&all);
}

static void find_by_one_term(void **state) {
  contract *k = *state;
  msg_list all = MSG_LIST_INIT;
  msg_filter f;
  fill(k);
  load(k, &all);
  const msg_message *m = &all.at[all.n / 2];
  const msg_range ranges[] = {
      {m->seq, m->seq}, {m->seq, INT64_MAX}, {INT64_MIN, m->seq}, {m->seq - 10, m->seq + 10},
      {5, 4},           {INT64_MIN, 0}};
  for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
    for (int column = 0; column < 4; column++) {
      int64_t by = column == 1   ? m->timestamp_ms - m->seq
                   : column == 2 ? m->deliver_at_ms - m->seq
                   : column == 3 ? 2 - m->seq
                                 : 0;
      msg_range r = ranges[i];
      r.lo = r.lo == INT64_MIN ? r.lo : r.lo + by;
      r.hi = r.hi == INT64_MAX ? r.hi : r.hi + by;
      msg_filter_init(&f);
      *(column == 0   ? &f.seq
        : column == 1 ? &f.timestamp_ms
        : column == 2 ? &f.deliver_at_ms
                      : &f.priority) = r;
      check(k, &all, &f);
      msg_filter_clear(&f);
    }
  }
  for (unsigned states = 0; states < 1u << MSG_STATE_COUNT; states++) {
    msg_filter_init(&f);
    f.states = states;
    check(k, &all, &f);
    msg_filter_clear(&f);
  }
  msg_filter_init(&f);
  f.none = true;
  check(k, &all, &f);
  msg_filter_clear(&f);
  msg_list_clear(&all);
}

static void add_random_terms(msg_filter *f, const msg_list *all, unsigned (*next)(void)) {
  const msg_message *m = &all->at[next() % all->n];
  unsigned terms = next();
  for (unsigned n = terms & 3; n > 1; n--)
    assert_int_equal(msg_filter_add_topic(f, topics[next() % 5]), MSG_OK);
  if ((terms >> 2 & 3) == 0)
    assert_int_equal(msg_filter_add_sender(f, senders[next() % 3]), MSG_OK);
  if ((terms >> 4 & 3) == 0)
    for (unsigned n = next() % 20; n; n--)
      assert_int_equal(msg_filter_add_id(f, &all->at[next() % all->n].id), MSG_OK);
  if ((terms >> 6 & 3) == 0)
    f->states = next() & ((1u << MSG_STATE_COUNT) - 1);
  if ((terms >> 8 & 7) == 0) {
    f->has_id_lo = next() % 2;
    f->id_lo = m->id;
  }
  if ((terms >> 11 & 7) == 0) {
    f->has_id_hi = next() % 2;
    f->id_hi = m->id;
  }
}

static void add_random_ranges(msg_filter *f, const msg_list *all, unsigned (*next)(void)) {
  const msg_message *m = &all->at[next() % all->n];
  unsigned terms = next();
  if ((terms & 7) == 0)
    msg_range_cut(&f->priority, m->priority, INT64_MAX);
  if ((terms >> 3 & 7) == 0)
    msg_range_cut(&f->timestamp_ms, INT64_MIN, m->timestamp_ms);
  if ((terms >> 6 & 7) == 0)
    msg_range_cut(&f->seq, m->seq, INT64_MAX);
  if ((terms >> 9 & 7) == 0)
    msg_range_cut(&f->deliver_at_ms, m->deliver_at_ms - 20, m->deliver_at_ms + 20);
  f->ordered = terms >> 12 & 1;
  f->descending_seq = !f->ordered && (terms >> 13 & 1);
  f->ascending_seq = !f->ordered && !f->descending_seq && (terms >> 14 & 1);
}

static unsigned seed;

static unsigned next_random(void) {
  seed = seed * 1664525u + 1013904223u;
  return seed >> 12;
}

static void find_by_any_terms(void **state) {
  contract *k = *state;
  msg_list all = MSG_LIST_INIT;
  fill(k);
  load(k, &all);
  seed = 3;
  for (int i = 0; i < 1500; i++) {
    msg_filter f;
    msg_filter_init(&f);
    add_random_terms(&f, &all, next_random);
    add_random_ranges(&f, &all, next_random);
    check(k, &all, &f);
    if (f.ordered || f.descending_seq)
      check_limit(k, &f, (int64_t)(next_random() % 12) - 1, next_random() % 4 * 3);
    msg_filter_clear(&f);
  }
  msg_list_clear(&all);
}

static void find_by_very_many_names(void **state) {
  contract *k = *state;
  msg_list all = MSG_LIST_INIT;
  msg_filter f;
  char name[32];
  fill(k);
  load(k, &all);
  msg_filter_init(&f);
  for (int i = 0; i < 40000; i++) {
    msg_oid id = msg_oid_new();
    snprintf(name, sizeof name, "none%d", i);
    assert_int_equal(msg_filter_add_topic(&f, i == 20000 ? "a" : i == 30000 ? "B" : name), MSG_OK);
    assert_int_equal(msg_filter_add_sender(&f, i == 39999 ? "s1" : name), MSG_OK);
    assert_int_equal(msg_filter_add_id(&f, i < (int)all.n && i % 2 ? &all.at[i].id : &id), MSG_OK);
  }
  f.ordered = true;
  check(k, &all, &f);
  check_limit(k, &f, 3, 1);
  check_limit(k, &f, 3, 0);
  check_limit(k, &f, 0, 0);
  f.none = true;
  f.limit = -1;
  f.offset = 0;
  check(k, &all, &f);
  msg_filter_clear(&f);
  msg_list_clear(&all);
}

static void find_in_an_empty_place(void **state) {
  contract *k = *state;
  assert_int_equal(contract_count(k), 0);
}

static void find_closed_early(void **state) {
  contract *k = *state;
  msg_filter f;
  msg_find *find = NULL;
  msg_message m;
  fill(k);
  msg_filter_init(&f);
  OK(k->s->ops->find(k->s, &f, &find, &k->err));
  k->s->ops->find_close(find);
  OK(k->s->ops->find(k->s, &f, &find, &k->err));
  OK(k->s->ops->find_next(find, &m, &k->err));
  msg_message_clear(&m);
  k->s->ops->find_close(find);
  PUT(.topic = "t");
}

static void find_two_at_once(void **state) {
  contract *k = *state;
  msg_filter f;
  msg_find *one = NULL, *two = NULL;
  msg_message a, b;
  msg_oid id = PUT(.topic = "t", .text = "1");
  PUT(.topic = "t", .text = "2");
  msg_filter_init(&f);
  assert_int_equal(msg_filter_add_id(&f, &id), MSG_OK);
  OK(k->s->ops->find(k->s, &f, &one, &k->err));
  OK(k->s->ops->find(k->s, &f, &two, &k->err));
  OK(k->s->ops->find_next(one, &a, &k->err));
  OK(k->s->ops->find_next(two, &b, &k->err));
  assert_true(same_id(&a, &b));
  k->s->ops->find_close(one);
  assert_int_equal(k->s->ops->find_next(two, &a, &k->err), MSG_NOTFOUND);
  k->s->ops->find_close(two);
  msg_message_clear(&a);
  msg_message_clear(&b);
  msg_filter_clear(&f);
}

static void processed_by_is(contract *k, const msg_oid *id, const char *want) {
  msg_message m;
  OK(k->s->ops->get(k->s, id, &m, &k->err));
  assert_string_equal(m.processed_by, want);
  msg_message_clear(&m);
}

static void find_names_who_took_a_broadcast(void **state) {
  contract *k = *state;
  contract_listen(k, "n1", "t", false);
  contract_listen(k, "n \"2\"", "t*", false);
  contract_listen(k, "sender", "t", false);
  contract_listen(k, "n3", "other", false);
  msg_oid id = PUT(.topic = "t", .text = "1");
  processed_by_is(k, &id, "[]");
  assert_string_equal(contract_await(k, "n1", "t", 1), "1");
  processed_by_is(k, &id, "[\"n1\"]");
  assert_string_equal(contract_await(k, "n \"2\"", NULL, 1), "1");
  processed_by_is(k, &id, "[\"n \\\"2\\\"\",\"n1\"]");
  for (int i = 0; i < 100; i++) { /* the mark becomes a floor */
    PUT(.topic = "t");
    contract_await(k, "n1", "t", 1);
  }
  contract_listen(k, "late", "t", false);
  processed_by_is(k, &id, "[\"n \\\"2\\\"\",\"n1\"]");
  assert_int_equal(contract_state(k, &id), MSG_STATE_READY);
}

static void find_names_who_took_a_direct(void **state) {
  contract *k = *state;
  msg_oid id = PUT(.topic = "t", .text = "1", .to = "n1", .to_also = "n2");
  processed_by_is(k, &id, "[]");
  assert_string_equal(contract_await(k, "n2", NULL, 1), "1");
  processed_by_is(k, &id, "[\"n2\"]");
  assert_int_equal(contract_state(k, &id), MSG_STATE_READY);
  assert_string_equal(contract_await(k, "n1", NULL, 1), "1");
  processed_by_is(k, &id, "[\"n1\",\"n2\"]");
  assert_int_equal(contract_state(k, &id), MSG_STATE_PROCESSED);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(find_shows_every_state),
    cmocka_unit_test(find_by_one_term),
    cmocka_unit_test(find_by_any_terms),
    cmocka_unit_test(find_by_very_many_names),
    cmocka_unit_test(find_in_an_empty_place),
    cmocka_unit_test(find_closed_early),
    cmocka_unit_test(find_two_at_once),
    cmocka_unit_test(find_names_who_took_a_broadcast),
    cmocka_unit_test(find_names_who_took_a_direct),
};
const contract_group contract_finds = {"find", tests, sizeof tests / sizeof *tests};
