#include <string.h>

#include "model/options.h"
#include "support/cmocka_compat.h"

static const char *const KNOWN[] = {"exclusive",  "priority", "ttl_ms", "delay_ms", "recipient",
                                    "recipients", "key",      "msg",    "map",      "id"};
#define COUNT (sizeof KNOWN / sizeof KNOWN[0])

static void nearest_is(const char *name, const char *want) {
  const char *got = msg_nearest(name, KNOWN, COUNT);
  if (want)
    assert_non_null(got);
  else
    assert_null(got);
  if (want)
    assert_string_equal(got, want);
}

static void finds_slips(void **state) {
  (void)state;
  nearest_is("exclusiv", "exclusive");   /* one lost */
  nearest_is("excclusive", "exclusive"); /* one too many */
  nearest_is("exclvsive", "exclusive");  /* one other */
  nearest_is("prioirty", "priority");    /* two swapped */
  nearest_is("TTL_MS", "ttl_ms");        /* case */
  nearest_is("ttlMs", "ttl_ms");         /* camel case */
  nearest_is("ttl", "ttl_ms");           /* its beginning */
  nearest_is("Delay", "delay_ms");       /* the same */
  nearest_is("rec", "recipient");        /* the shorter of two */
  nearest_is("pr", NULL);                /* too little of it */
  nearest_is("recipiens", "recipient");  /* the first of two at distance 1 */
  nearest_is("recipientss", "recipients");
  nearest_is("kye", "key");
  nearest_is("ke", NULL); /* half its length */
  nearest_is("key", "key");
}

static void names_nothing_far_away(void **state) {
  (void)state;
  nearest_is("", NULL);
  nearest_is("x", NULL);
  nearest_is("zzz", NULL);
  nearest_is("completely different", NULL);
  nearest_is("exclwxyz", NULL); /* 4 edits */
}

static void three_edits_are_the_most(void **state) {
  (void)state;
  nearest_is("exclxyzve", "exclusive");
  nearest_is("excwxyzve", NULL);
}

static void long_names_are_harmless(void **state) {
  (void)state;
  char text[300];
  memset(text, 'a', sizeof text);
  text[299] = '\0';
  nearest_is(text, NULL);
  const char *known[] = {text, "b"};
  assert_null(msg_nearest("aaaa", known, 2));
  text[64] = '\0';
  char other[65];
  memcpy(other, text, 65);
  other[30] = 'b';
  assert_string_equal(msg_nearest(other, known, 2), text);
  assert_null(msg_nearest("a", known, 0));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(finds_slips),
      cmocka_unit_test(names_nothing_far_away),
      cmocka_unit_test(three_edits_are_the_most),
      cmocka_unit_test(long_names_are_harmless),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
