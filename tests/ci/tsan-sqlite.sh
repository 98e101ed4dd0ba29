#!/usr/bin/env bash
# Builds Debian's own SQLite, from its source package, with ThreadSanitizer, into $MSG_CACHE, and
# prints the folder of its sqlite3.pc. Without it TSan sees races through SQLite that are none, and
# not those that are.
set -euo pipefail
. "$(dirname "$0")/debian.sh"
cc=${CC:-gcc}
version=$(dpkg-query -W -f '${source:Version}' libsqlite3-dev)
prefix=$MSG_CACHE/sqlite-tsan-$version-$("$cc" -dumpversion)

if [[ ! -e $prefix/sqlite3.pc ]]; then
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  chmod 755 "$work"
  mkdir -p "$work/lists/partial" "$work/parts" "$prefix.new"
  debian_archives | sed 's|^|deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] |' >"$work/sources.list"
  apt=(apt-get -q -o Dir::Etc::SourceList="$work/sources.list" -o Dir::Etc::SourceParts="$work/parts"
    -o Dir::State::Lists="$work/lists" -o APT::Sandbox::User=root)
  {
    "${apt[@]}" update
    (cd "$work" && "${apt[@]}" source "sqlite3=$version")
    cd "$work"/sqlite3-*/
    mkdir amalgamation && cd amalgamation
    ../configure --disable-tcl && make sqlite3.c sqlite3.h
    mapfile -t options < <(sqlite3 :memory: 'PRAGMA compile_options' | grep -E '^(ENABLE_|THREADSAFE=|MAX_|SECURE_DELETE)' | sed 's/^/-DSQLITE_/')
    "$cc" -g -O1 -fno-omit-frame-pointer -fsanitize=thread -fPIC -shared "${options[@]}" -Wl,-soname,libsqlite3.so.0 \
      sqlite3.c -o "$prefix.new/libsqlite3.so.0" -lm -lpthread -ldl
    cp sqlite3.h ../src/sqlite3ext.h "$prefix.new"
  } >"$MSG_CACHE/sqlite-tsan.log" 2>&1 || { tail -20 "$MSG_CACHE/sqlite-tsan.log" >&2 && exit 1; }
  ln -sf libsqlite3.so.0 "$prefix.new/libsqlite3.so"
  cat >"$prefix.new/sqlite3.pc" <<PC
Name: SQLite
Description: SQLite $version with ThreadSanitizer
Version: ${version%%-*}
Libs: -L$prefix -lsqlite3
Cflags: -I$prefix
PC
  rm -rf "$prefix"
  mv "$prefix.new" "$prefix"
fi
echo "$prefix"
