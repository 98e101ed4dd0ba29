/* sqlite.h - SQLite as this room sees it: through the host's api table in the extension,
 * linked in tests. */
#ifndef MSG_LOCAL_SQLITE_H
#define MSG_LOCAL_SQLITE_H

#ifdef SQLITE_CORE
#include <sqlite3.h>
#else
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT3
#endif

#endif
