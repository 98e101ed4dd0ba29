# shellcheck shell=bash disable=SC2034
# support.sh: sourced by the tests here. A temp directory as working directory, and the shell with msg.so.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source_dir=${MSG_SOURCE:-$(cd "$here/../.." && pwd)}
export MSG_SO=${MSG_SO:-$source_dir/build/msg.so}
export SQLITE3=${SQLITE3:-sqlite3}
export MONGOC_DISABLE_SHM=1 # libmongoc warns where a killed process of the same number left its counters
failed=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

shell() { "$SQLITE3" -batch -bail -cmd ".load '$MSG_SO'" "$@"; }
fail() {
  echo "FAILED: $*"
  failed=1
}
# same FILE WANTED WHAT: compare; MSG_UPDATE=1 writes FILE as what is wanted instead.
same() {
  if [[ ${MSG_UPDATE:-} ]]; then
    cp "$1" "$2"
  elif ! diff -u "$2" "$1"; then
    fail "$3 (MSG_UPDATE=1 accepts it)"
  fi
}
# Ids, times and automatic sender ids differ from run to run.
normalise() {
  sed -E -e 's/\b[0-9a-f]{24}\b/<id>/g' -e 's/\b1[0-9]{12}\b/<time>/g' \
    -e 's/ +$//' -e "s/\\b[a-z0-9.-]+-sqlite3[a-z0-9.-]*-[0-9]+-[0-9]+\\b/<node>/g"
}
