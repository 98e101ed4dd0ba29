#!/usr/bin/env bash
# sql/schema.sql is what msg.so creates, and recreates it. MSG_UPDATE=1 writes it anew.
. "$(dirname "$0")/support.sh"

dump() { # the local store's objects of a file, without SQLite's own
  "$SQLITE3" -batch "$1" "SELECT sql || ';' FROM sqlite_schema
    WHERE name GLOB 'msg_store*' AND sql IS NOT NULL ORDER BY rowid"
}
shell a.db "SELECT msg_enqueue('t', 1) IS NOT NULL" >/dev/null
{
  echo "-- schema.sql: the tables of the local store, version $("$SQLITE3" a.db 'SELECT version FROM msg_store'), as msg.so creates them. For reading only:"
  echo "-- msg makes and migrates them itself, and their inside may change with the version."
  dump a.db
} >schema.sql
same schema.sql "$source_dir/sql/schema.sql" "sql/schema.sql is not what msg.so creates"

"$SQLITE3" -batch -bail b.db <"$source_dir/sql/schema.sql" || fail "schema.sql does not run"
diff <(dump a.db) <(dump b.db) || fail "schema.sql makes other tables"

# Nothing else is left in the user's file.
others=$("$SQLITE3" a.db "SELECT name FROM sqlite_schema WHERE name NOT GLOB 'msg_store*' AND name NOT GLOB 'sqlite_*'")
[[ -z $others ]] || fail "also made in the user's file: $others"
exit "$failed"
