#include "support/mongod.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/cmocka_compat.h"

enum { SKIPPED = 77 };

static char uri[1024];

/* The file is JSON of our own making: {"uri": "...", ...} or {"why": "..."}. */
static void read_file(const char *path) {
  static const char KEY[] = "\"uri\": \"";
  char text[2048];
  FILE *file = path ? fopen(path, "r") : NULL;
  size_t n = file ? fread(text, 1, sizeof text - 1, file) : 0;
  if (file)
    fclose(file);
  text[n] = 0;
  char *start = strstr(text, KEY);
  if (start)
    snprintf(uri, sizeof uri, "%.*s", (int)strcspn(start + strlen(KEY), "\""), start + strlen(KEY));
}

const char *mongod_uri(void) {
  const char *given = getenv("MSG_TEST_MONGODB_URI");
  if (!uri[0] && given)
    snprintf(uri, sizeof uri, "%s", given);
  if (!uri[0])
    read_file(getenv("MSG_MONGODB_FILE"));
  if (!uri[0]) {
    puts("SKIPPED: no MongoDB");
    exit(SKIPPED);
  }
  return uri;
}

void mongod_database(const char *name, const char *options, char *out, size_t size) {
  const char *host = strstr(mongod_uri(), "://");
  assert_non_null(host);
  const char *query = strchr(uri, '?');
  const char *path = strchr(host + 3, '/');
  size_t n = path ? (size_t)(path - uri) : query ? (size_t)(query - uri) : strlen(uri);
  snprintf(out, size, "%.*s/%s?%s%s%s", (int)n, uri, name, query ? query + 1 : "",
           query && query[1] && options ? "&" : "", options ? options : "");
}
