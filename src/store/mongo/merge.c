#include "store/mongo/merge.h"

#include <string.h>

void msg_mongo_rows_begin(msg_mongo_rows *r, mongoc_cursor_t *cursor) {
  *r = (msg_mongo_rows){.cursor = cursor};
}

void msg_mongo_rows_begin_merged(msg_mongo_rows *r, mongoc_cursor_t *cursor, const bson_t *first) {
  *r = (msg_mongo_rows){.cursor = cursor, .merges = true, .ended = !first};
  r->ahead = first ? bson_copy(first) : NULL;
}

static void drop(bson_t **doc) {
  if (*doc)
    bson_destroy(*doc);
  *doc = NULL;
}

void msg_mongo_rows_end(msg_mongo_rows *r) {
  if (r->cursor)
    mongoc_cursor_destroy(r->cursor);
  r->cursor = NULL;
  drop(&r->row);
  drop(&r->ahead);
}

static bool is_same(const bson_t *a, const bson_t *b) {
  msg_oid x, y;
  return msg_mongo_get_oid(a, "_id", &x) && msg_mongo_get_oid(b, "_id", &y) &&
         msg_oid_cmp(&x, &y) == 0;
}

static void append_names(bson_t *array, uint32_t *n, const bson_t *doc) {
  bson_iter_t it, name;
  char buffer[16];
  const char *key;
  if (!bson_iter_init_find(&it, doc, "processed_by") || !BSON_ITER_HOLDS_ARRAY(&it) ||
      !bson_iter_recurse(&it, &name))
    return;
  while (bson_iter_next(&name)) {
    bson_uint32_to_string((*n)++, &key, buffer, sizeof buffer);
    bson_append_iter(array, key, -1, &name);
  }
}

/* `doc`, processed by those of the copy as well. */
static bson_t *merged(const bson_t *doc, const bson_t *copy) {
  bson_t *out = bson_new(), array;
  uint32_t n = 0;
  bson_copy_to_excluding_noinit(doc, out, "processed_by", NULL);
  BSON_APPEND_ARRAY_BEGIN(out, "processed_by", &array);
  append_names(&array, &n, doc);
  append_names(&array, &n, copy);
  bson_append_array_end(out, &array);
  return out;
}

int msg_mongo_rows_next(msg_mongo_rows *r, msg_mongo_use *u, const char *what, const bson_t **doc,
                        msg_err *err) {
  const bson_t *next;
  int rc = MSG_NOTFOUND;
  if (!r->merges)
    return msg_mongo_next(u, r->cursor, what, doc, err);
  drop(&r->row);
  r->row = r->ahead;
  r->ahead = NULL;
  while (!r->ended && (rc = msg_mongo_next(u, r->cursor, what, &next, err)) == MSG_OK) {
    if (!r->row) {
      r->row = bson_copy(next);
    } else if (is_same(r->row, next)) {
      bson_t *both = merged(r->row, next);
      drop(&r->row);
      r->row = both;
    } else {
      r->ahead = bson_copy(next);
      break;
    }
  }
  r->ended = r->ended || rc != MSG_OK;
  if (rc == MSG_NOTFOUND && r->row)
    rc = MSG_OK;
  *doc = r->row;
  return rc;
}
