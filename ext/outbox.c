#include "ext/outbox.h"

#include <string.h>

#include "base/mem.h"
#include "ext/nested.h"
#include "ext/state.h"

/* --- batches ------------------------------------------------------------------------------- */

static void batch_clear(msg_batch *b) {
  msg_registry_unref(b->store);
  msg_free(b->ids);
  msg_written_free(b->written);
  *b = (msg_batch){0};
}

/* Newest first: the transaction is walked back. */
static void cut(msg_outbox *box, size_t n, bool undone) {
  while (box->n > n) {
    msg_batch *b = &box->at[--box->n];
    if (undone && b->undone)
      b->undone(b);
    batch_clear(b);
  }
}

void msg_outbox_finish(msg_outbox *box, bool undone) {
  cut(box, 0, undone);
  box->failed = false;
  box->mark_count = 0;
}

void msg_outbox_forget(msg_connection *c, const msg_opened *o) {
  for (size_t i = 0; i < c->outbox.n; i++)
    if (c->outbox.at[i].opened == o)
      c->outbox.at[i].opened = NULL;
}

bool msg_outbox_holds(const msg_outbox *box, const msg_opened *o) {
  for (size_t i = 0; i < box->n; i++)
    if (box->at[i].opened == o && box->at[i].written)
      return true;
  return false;
}

void msg_outbox_clear(msg_connection *c) {
  msg_outbox_finish(&c->outbox, false);
  msg_free(c->outbox.at);
  msg_free(c->outbox.marks);
  c->outbox = (msg_outbox){0};
}

/* Nests the marker. The batch stands behind the list's end until xUpdate lets it in, which shows in
 * `open`; from then on it is the list's, whatever becomes of the statement. That is not kept: it
 * would hold the table, and a temp table that a ROLLBACK removed would not disconnect. */
static int insert_marker(msg_connection *c, msg_err *err) {
  sqlite3_stmt *stmt;
  /* An interrupt inside the write would roll the host's whole transaction back. */
  if (msg_nested_interrupted(c))
    return msg_err_set(err, MSG_INTERRUPTED,
                       "transaction marker: call again if it is still wanted");
  int rc = msg_nested_prepare(c, "INSERT INTO temp.msg_outbox(marker) VALUES(1)", &stmt, err);
  if (rc != MSG_OK)
    return rc;
  int step;
  while ((step = sqlite3_step(stmt)) == SQLITE_ROW) /* PRAGMA count_changes */
    ;
  if (step != SQLITE_DONE)
    rc = msg_sqlite_fail(c->db, step, "transaction marker", err);
  msg_nested_give(c, stmt);
  return rc;
}

int msg_outbox_enter(msg_connection *c, msg_opened *o, void (*undone)(const msg_batch *),
                     const msg_oid *ids, size_t n, msg_err *err) {
  msg_outbox *box = &c->outbox;
  msg_batch b = {.undone = undone, .opened = o, .n = n, .store = msg_node_store(o->node)};
  if (msg_grow(&box->at, &box->cap, box->n + 1, sizeof *box->at) != MSG_OK)
    return msg_err_nomem(err);
  if (n > 0) {
    b.ids = msg_alloc(n * sizeof *b.ids);
    if (!b.ids)
      return msg_err_nomem(err);
    memcpy(b.ids, ids, n * sizeof *b.ids);
  }
  msg_registry_ref(b.store);
  box->at[box->n] = b;
  box->open = true;
  int rc = insert_marker(c, err);
  if (box->open)
    batch_clear(&b);
  box->open = false;
  return rc;
}

int msg_outbox_keep(msg_connection *c, msg_opened *o, msg_written *w, msg_err *err) {
  msg_outbox *box = &c->outbox;
  msg_batch b = {.opened = o, .written = w, .store = msg_node_store(o->node)};
  if (msg_grow(&box->at, &box->cap, box->n + 1, sizeof *box->at) != MSG_OK) {
    msg_written_free(w);
    return msg_err_nomem(err);
  }
  msg_registry_ref(b.store);
  size_t before = box->n;
  box->at[before] = b;
  if (box->joined) {
    box->n++;
    return MSG_OK;
  }
  box->open = true;
  int rc = insert_marker(c, err);
  if (box->open)
    batch_clear(&b);
  else if (rc != MSG_OK && box->n > before)
    cut(box, before, false); /* the verb fails: it was not sent */
  box->open = false;
  return rc;
}

bool msg_outbox_let_in(msg_outbox *box) {
  if (!box->open)
    return false;
  box->open = false;
  box->n++;
  return true;
}

/* Compiling connects the table. It is not run: that would read main, which inside a statement of
 * the host stays read until that ends. Where it is refused (a locked file, an authorizer) nothing
 * is kept; the verb itself says why. */
int msg_outbox_own(msg_connection *c, msg_err *err) {
  if (c->owner_up)
    return MSG_OK;
  msg_err own = MSG_ERR_INIT;
  sqlite3_stmt *stmt = NULL;
  int rc = sqlite3_prepare_v2(c->db, "SELECT 1 FROM main.msg_owner", -1, &stmt, NULL);
  rc = rc == SQLITE_OK ? MSG_OK : msg_sqlite_fail(c->db, rc, "nested statement", &own);
  sqlite3_finalize(stmt);
  if (rc != MSG_NOMEM && rc != MSG_INTERRUPTED)
    return MSG_OK;
  if (err)
    *err = own;
  return rc;
}

/* --- savepoints ---------------------------------------------------------------------------- */

/* The temp and the eponymous table may both take part and both report a level. */
int msg_outbox_savepoint(msg_outbox *box, int level) {
  if (box->mark_count > 0 && box->marks[box->mark_count - 1].level >= level)
    return MSG_OK;
  if (msg_grow(&box->marks, &box->mark_cap, box->mark_count + 1, sizeof *box->marks) != MSG_OK)
    return MSG_NOMEM;
  box->marks[box->mark_count++] = (msg_outbox_mark){level, box->n};
  return MSG_OK;
}

/* Index of the lowest mark at `level` or above. */
static size_t find_mark(const msg_outbox *box, int level) {
  size_t i = 0;
  while (i < box->mark_count && box->marks[i].level < level)
    i++;
  return i;
}

void msg_outbox_release(msg_outbox *box, int level) {
  box->mark_count = find_mark(box, level);
}

static bool is_marked(const msg_outbox *box, size_t i, int level) {
  return i < box->mark_count && box->marks[i].level == level;
}

/* A savepoint without a mark was opened before the first batch. */
size_t msg_outbox_left(const msg_outbox *box, int level) {
  size_t i = find_mark(box, level);
  return is_marked(box, i, level) ? box->marks[i].batches : 0;
}

/* The savepoint stays open, and so does its mark. */
void msg_outbox_rollback_to(msg_outbox *box, int level) {
  size_t i = find_mark(box, level);
  cut(box, msg_outbox_left(box, level), true);
  box->mark_count = is_marked(box, i, level) ? i + 1 : i;
}
