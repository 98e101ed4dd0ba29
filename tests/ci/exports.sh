#!/usr/bin/env bash
# msg.so exports exactly its entry point, links no libsqlite3 and is never unloaded.
set -euo pipefail
so=${1:-${MSG_SO:?}}
rc=0
complain() { echo "exports: $*" && rc=1; }

exported=$(nm -D --defined-only "$so" | awk '{print $NF}' | sort | tr '\n' ' ')
[[ $exported == "sqlite3_msg_init " ]] || complain "exported: $exported"
unresolved=$(nm -D --undefined-only "$so" | awk '$NF ~ /^sqlite3_/ {print $NF}' | tr '\n' ' ')
[[ -z $unresolved ]] || complain "reaches SQLite around the API table: $unresolved"
dynamic=$(readelf -dW "$so")
[[ $dynamic != *libsqlite3* ]] || complain "links libsqlite3"
[[ $dynamic == *NODELETE* ]] || complain "linked without -z nodelete"
exit $rc
