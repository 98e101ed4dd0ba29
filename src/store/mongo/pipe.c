#include "store/mongo/pipe.h"

#include <string.h>

#include "store/mongo/document.h"

#define TAG "at"

static void append_stage(bson_t *stages, uint32_t *n, const char *name, const bson_t *what) {
  bson_t stage;
  char buffer[16];
  const char *key;
  bson_uint32_to_string((*n)++, &key, buffer, sizeof buffer);
  BSON_APPEND_DOCUMENT_BEGIN(stages, key, &stage);
  BSON_APPEND_DOCUMENT(&stage, name, what);
  bson_append_document_end(stages, &stage);
}

static void append_limit(bson_t *stages, uint32_t *n) {
  char buffer[16];
  const char *key;
  bson_uint32_to_string((*n)++, &key, buffer, sizeof buffer);
  BCON_APPEND(stages, key, "{", "$limit", BCON_INT32(1), "}");
}

/* Those of place number i. */
static void append_part(const msg_mongo_pipe *p, bson_t *stages, uint32_t *n, size_t i,
                        const bson_t *match, const bson_t *project) {
  const msg_mongo_places *places = p->places;
  append_stage(stages, n, "$match", match);
  if (p->one)
    append_limit(stages, n);
  if (project)
    append_stage(stages, n, "$project", project);
  if (places->n > 1 || places->at[i]->kind == MSG_MONGO_LANES) {
    bson_t *tag = BCON_NEW(TAG, "{", "$literal", BCON_INT32((int32_t)i), "}", "lane", "{",
                           "$literal", BCON_BOOL(places->at[i]->kind == MSG_MONGO_LANES), "}");
    append_stage(stages, n, "$addFields", tag);
    bson_destroy(tag);
  }
}

static const char *collection(const msg_mongo_pipe *p, size_t i) {
  const msg_mongo_at *at = &p->places->at[i]->at;
  return p->locks ? at->locks : at->messages;
}

/* Places may share their locks. */
static bool is_first(const msg_mongo_pipe *p, size_t i) {
  for (size_t k = 0; p->locks && k < i; k++)
    if (strcmp(collection(p, k), collection(p, i)) == 0)
      return false;
  return true;
}

static void append_union(msg_mongo_pipe *p, size_t i, const bson_t *match, const bson_t *project) {
  bson_t with = BSON_INITIALIZER, part;
  uint32_t n = 0;
  BSON_APPEND_UTF8(&with, "coll", collection(p, i));
  BSON_APPEND_ARRAY_BEGIN(&with, "pipeline", &part);
  append_part(p, &part, &n, i, match, project);
  bson_append_array_end(&with, &part);
  append_stage(&p->stages, &p->n, "$unionWith", &with);
  bson_destroy(&with);
}

static void begin(msg_mongo_pipe *p, const bson_t *match, const bson_t *project) {
  const msg_mongo_places *places = p->places;
  bson_init(&p->doc);
  p->n = 0;
  BSON_APPEND_ARRAY_BEGIN(&p->doc, "pipeline", &p->stages);
  append_part(p, &p->stages, &p->n, 0, match, project);
  for (size_t i = 1; i < places->n; i++)
    if (is_first(p, i))
      append_union(p, i, match, project);
}

void msg_mongo_pipe_begin(msg_mongo_pipe *p, const msg_mongo_places *places, const bson_t *match,
                          const bson_t *project) {
  *p = (msg_mongo_pipe){.places = places};
  begin(p, match, project);
}

void msg_mongo_pipe_begin_locks(msg_mongo_pipe *p, const msg_mongo_places *places,
                                const bson_t *match) {
  *p = (msg_mongo_pipe){.places = places, .locks = true};
  begin(p, match, NULL);
}

void msg_mongo_pipe_begin_one(msg_mongo_pipe *p, const msg_mongo_places *places,
                              const bson_t *match, const bson_t *project) {
  *p = (msg_mongo_pipe){.places = places, .one = true};
  begin(p, match, project);
}

void msg_mongo_pipe_add(msg_mongo_pipe *p, const char *name, const bson_t *what) {
  append_stage(&p->stages, &p->n, name, what);
}

int msg_mongo_pipe_run(msg_mongo_pipe *p, msg_mongo_use *u, const char *what, const bson_t *opts,
                       mongoc_cursor_t **cursor, const bson_t **first, msg_err *err) {
  bson_append_array_end(&p->doc, &p->stages);
  int rc = msg_mongo_aggregate(u, collection(p, 0), what, &p->doc, opts, cursor, first, err);
  bson_destroy(&p->doc);
  return rc;
}

int msg_mongo_pipe_each(msg_mongo_pipe *p, msg_mongo_use *u, const char *what, msg_mongo_row_fn row,
                        void *arg, msg_err *err) {
  bson_append_array_end(&p->doc, &p->stages);
  int rc = msg_mongo_aggregate_each(u, collection(p, 0), what, &p->doc, row, arg, err);
  bson_destroy(&p->doc);
  return rc;
}

msg_mongo_place *msg_mongo_pipe_place(const msg_mongo_places *places, const bson_t *doc) {
  int64_t i = places->n > 1 ? msg_mongo_get_int(doc, TAG, -1) : 0;
  return i >= 0 && i < (int64_t)places->n ? places->at[i] : NULL;
}
