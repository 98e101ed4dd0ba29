/* host_admin.c - `host_admin URI`: runs database commands for the tests, line by line.
 *
 * A line in is "DATABASE<tab>COMMAND", the command as extended JSON; a line out is the reply as
 * canonical extended JSON, or {"error": {"domain", "code", "text"}, "reply": the server's}. */
#include <mongoc/mongoc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void answer(const bson_t *reply) {
  char *json = bson_as_canonical_extended_json(reply, NULL);
  puts(json ? json : "{\"error\": {\"text\": \"a reply that is no JSON\"}}");
  bson_free(json);
}

static void answer_error(const bson_error_t *error, const bson_t *reply) {
  bson_t out = BSON_INITIALIZER, inner;
  bson_append_document_begin(&out, "error", -1, &inner);
  bson_append_int64(&inner, "domain", -1, (int64_t)error->domain);
  bson_append_int64(&inner, "code", -1, (int64_t)error->code);
  bson_append_utf8(&inner, "text", -1, error->message, -1);
  bson_append_document_end(&out, &inner);
  if (reply && !bson_empty(reply))
    bson_append_document(&out, "reply", -1, reply);
  answer(&out);
  bson_destroy(&out);
}

static void run(mongoc_client_t *client, const char *database, const char *json) {
  bson_error_t error = {0};
  bson_t reply;
  bson_t *command = bson_new_from_json((const uint8_t *)json, -1, &error);
  if (!command) {
    answer_error(&error, NULL);
    return;
  }
  if (mongoc_client_command_simple(client, database, command, NULL, &reply, &error))
    answer(&reply);
  else
    answer_error(&error, &reply);
  bson_destroy(&reply);
  bson_destroy(command);
}

static mongoc_client_t *connect_to(const char *text) {
  bson_error_t error = {0};
  mongoc_uri_t *uri = mongoc_uri_new_with_error(text, &error);
  if (!uri) {
    fprintf(stderr, "host_admin: %s\n", error.message);
    return NULL;
  }
  mongoc_client_t *client = mongoc_client_new_from_uri(uri);
  mongoc_uri_destroy(uri);
  if (client)
    mongoc_client_set_error_api(client, MONGOC_ERROR_API_VERSION_2);
  return client;
}

int main(int argc, char **argv) {
  char *line = NULL;
  size_t room = 0;
  ssize_t n;
  if (argc != 2) {
    fputs("usage: host_admin URI\n", stderr);
    return 2;
  }
  mongoc_log_set_handler(NULL, NULL); /* what goes wrong is answered */
  mongoc_init();
  mongoc_client_t *client = connect_to(argv[1]);
  if (!client)
    return 1;
  setvbuf(stdout, NULL, _IOLBF, 0);
  while ((n = getline(&line, &room, stdin)) > 0) {
    line[n - 1] = line[n - 1] == '\n' ? 0 : line[n - 1];
    char *tab = strchr(line, '\t');
    if (!tab)
      return 2;
    *tab = 0;
    run(client, line, tab + 1);
  }
  free(line);
  mongoc_client_destroy(client);
  mongoc_cleanup();
  return 0;
}
