/* sqlite.h - SQLite as ext/ sees it: the host's api table in the extension, linked in tests
 * (SQLITE_CORE). */
#ifndef MSG_EXT_SQLITE_H
#define MSG_EXT_SQLITE_H

#ifdef SQLITE_CORE
#include <sqlite3.h>
#else
#include <sqlite3ext.h>
#ifndef MSG_EXT_MAIN
SQLITE_EXTENSION_INIT3
#endif
#endif

#endif
