/* host.h - a host of the extension, as short as a shell. Everything fails the cmocka test by
 * itself. */
#ifndef MSG_TESTS_HOST_H
#define MSG_TESTS_HOST_H

#include <stdbool.h>
#include <stdint.h>

#include <sqlite3.h>

/** Path of a database file that does not exist yet, in a directory of this process that is removed
 *  at its end. Static storage: good until the next call but seven. */
const char *host_path(void);
bool host_exists(const char *path, const char *suffix);

/** A connection without the extension; flags: SQLITE_OPEN_*, 0: read-write, create. */
sqlite3 *host_plain(const char *path, int flags);
/** Load msg.so, as a program does. */
void host_load(sqlite3 *db);
/** Both. */
sqlite3 *host_open(const char *path);
/** Linked statically instead. */
sqlite3 *host_open_static(const char *path);
/** host_open, in WAL mode, with its node open. */
sqlite3 *host_open_node(const char *path, const char *sender_id);
/** sqlite3_close must give SQLITE_OK. */
void host_close(sqlite3 *db);

/** Run SQL, formatted as by printf, to its end; it must go well. */
void host_run(sqlite3 *db, const char *sql, ...);
/** First column of the first row, as text; "null" for NULL, "none" without a row, "error CODE:
 *  TEXT" (extended code) for a failure. Static storage of the thread: good until the next call but
 *  seven. */
const char *host_text(sqlite3 *db, const char *sql, ...);
int64_t host_int(sqlite3 *db, const char *sql, ...);
/** The statement fails, with this code and a text that holds `text`. */
void host_fails(sqlite3 *db, int code, const char *text, const char *sql, ...);

/* A test with one connection, a sqlite3 *, whose address is the initial state: a new file, of node
 * "me". */
int host_setup(void **state);
int host_teardown(void **state);
#define HOST_TEST(f, db) cmocka_unit_test_prestate_setup_teardown(f, host_setup, host_teardown, db)

void host_sleep_ms(int ms);
int64_t host_now_ms(void);

#endif
