/* mongod.h - the MongoDB server that the tests of a run share (tests/support/mongod.py). */
#ifndef MSG_TESTS_MONGOD_H
#define MSG_TESTS_MONGOD_H

#include <stddef.h>

/** The server's URI without a database; exits with ctest's "skipped" when there is no server. The
 *  first call is the main thread's. */
const char *mongod_uri(void);
/** The URI of database `name` there, with more options ("a=b&c=d") or NULL. */
void mongod_database(const char *name, const char *options, char *out, size_t size);

#endif
