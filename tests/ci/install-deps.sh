#!/usr/bin/env bash
# install-deps.sh run|test|ci: install from apt what is missing for a goal. With nothing missing apt is
# not touched. Neither root nor password-less sudo: print the line to run, and exit 1 unless it is
# only MongoDB that would be left out.
set -euo pipefail
goal=${1:-}
missing=() # without which it does not go
wanted=()  # what MongoDB needs

# need PACKAGES COMMAND...: PACKAGES are missing if COMMAND fails.
need() {
  local packages=$1
  shift
  # shellcheck disable=SC2206 # a list of words
  "$@" >/dev/null 2>&1 || missing+=($packages)
}
# want PACKAGE COMMAND...: the same for MongoDB, unless the build is told to leave it out.
want() { [[ ${CMAKE_FLAGS:-} == *-DMSG_MONGODB=OFF* ]] || "${@:2}" >/dev/null 2>&1 || wanted+=("$1"); }
compiles() { echo "#include <stdio.h>" | "$1" -x c -fsyntax-only -; }
links() { echo "int main(void){return 0;}" | "$1" -x c "$2" -o /dev/null -; }
mongoc_found() { pkg-config --exists mongoc2 || pkg-config --exists 'libmongoc-1.0 >= 1.23'; }
mongod_found() {
  [[ -n ${MSG_TEST_MONGODB_URI:-} ]] || command -v mongod || /usr/bin/python3 -m pip --version
}
has_library() { [[ $(ldconfig -p) == *"$1 "* ]]; }
formats() { [[ $(clang-format-14 --version) == *"version 14."* ]]; }

check_run() {
  need "gcc libc6-dev" compiles gcc
  need make command -v make
  need cmake command -v cmake
  need ninja-build command -v ninja
  need pkg-config command -v pkg-config
  need sqlite3 command -v "${SQLITE3:-sqlite3}"
  need libsqlite3-dev pkg-config --exists sqlite3
  need iso-codes test -e /usr/share/iso-codes/json
  want libmongoc-dev mongoc_found
}
check_test() {
  check_run
  need libcmocka-dev pkg-config --exists cmocka
  need python3 test -x /usr/bin/python3
  want python3-pip mongod_found # the tests' server
  want openssl command -v openssl
  want libcurl4 has_library libcurl.so.4
  want libssl3 has_library libssl.so.3
}
check_ci() {
  check_test
  need clang-14 compiles clang-14
  need libclang-rt-14-dev links clang-14 -fsanitize=address
  need clang-format-14 formats
  need debootstrap test -e /usr/sbin/debootstrap
  need dpkg-dev command -v dpkg-source
  need tcl command -v tclsh
  need util-linux command -v unshare
}

case $goal in
run | test | ci) "check_$goal" ;;
*) echo "usage: install-deps.sh run|test|ci" >&2 && exit 2 ;;
esac
((${#missing[@]} + ${#wanted[@]})) || exit 0

root=()
[[ $(id -u) == 0 ]] || root=(sudo)
line="${root[*]} apt-get install -y --no-install-recommends ${missing[*]} ${wanted[*]}"
unable() {
  echo "$*" >&2
  ((${#missing[@]} == 0)) || exit 1
  echo "going on without MongoDB" >&2
  exit 0
}
command -v apt-get >/dev/null || unable "missing (Debian's package names): ${missing[*]} ${wanted[*]}"
((${#root[@]} == 0)) || sudo -n true 2>/dev/null || unable "missing packages; run:  ${line# }"
echo "installing: ${missing[*]} ${wanted[*]}"
"${root[@]}" apt-get update -q
"${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -yq --no-install-recommends "${missing[@]}" "${wanted[@]}"
