#!/usr/bin/env bash
# walls.sh [ROOT]: the walls between the rooms (a room includes only rooms above it), and
# the calls that src/ and ext/ never make; inside a room, files do not call each other in a circle.
# Each violation is one line "wall RULE: FILE: TEXT".
# With MSG_BUILD set, every test file must also be registered there with ctest.
set -euo pipefail
cd "${1:-${MSG_SOURCE:-$(dirname "$0")/../..}}"
cc=${CC:-cc}
violations=0
mongoc=$(pkg-config --cflags mongoc2 2>/dev/null || pkg-config --cflags libmongoc-1.0 2>/dev/null) || true

complain() { # RULE FILE TEXT
  echo "wall $1: $2: $3"
  violations=$((violations + 1))
}

# The room of a path relative to the top level, or nothing.
room_of() {
  case ${1%/*} in
  src/base | src/model | src/store | src/store/local | src/store/mongo | src/engine) echo "${1%/*}" ;;
  ext) echo ext ;;
  esac
}

# The rooms that a file of a room may include.
rooms_above() { # ROOM FILE
  local port="src/base src/model src/store"
  case $1 in
  src/base) echo src/base ;;
  src/model) echo src/base src/model ;;
  src/store) echo "$port" ;;
  src/store/*) echo "$port $1" ;;
  src/engine) echo "$port src/engine" ;;
  ext) if [[ $2 == ext/msg_ext.c ]]; then
    echo "$port src/store/local src/store/mongo src/engine ext"
  else echo "$port src/engine ext"; fi ;;
  esac
}

check_include() { # FILE ROOM QUOTE HEADER
  local file=$1 room=$2 quote=$3 header=$4 target
  case $header in
  sqlite3.h | sqlite3ext.h)
    [[ $room == ext || $room == src/store/local ]] || complain sqlite "$file" "$header"
    return
    ;;
  mongoc.h | bson.h | mongoc/* | bson/* | mongoc-*/* | bson-*/*)
    [[ $room == src/store/mongo ]] || complain mongo "$file" "$header"
    return
    ;;
  pthread.h | threads.h | semaphore.h)
    [[ $file == src/base/thread.c ]] || complain thread "$file" "$header"
    return
    ;;
  esac
  [[ $quote == '"' ]] || return 0
  target=src/$header
  [[ $header == ext/* ]] && target=$header
  if [[ ! -f $target || -z $(room_of "$target") ]]; then
    complain path "$file" "\"$header\" is not written as ROOM/FILE.h"
  elif [[ " $(rooms_above "$room" "$file") " != *" $(room_of "$target") "* ]]; then
    complain room "$file" "$room may not include $header"
  fi
}

# Prints "RULE WORDS" for each RULE REGEX pair that FILE breaks. Comments and literals do not count,
# nor members (x.free, x->free).
forbidden_words() { # FILE {RULE REGEX}...
  perl -e '
    my ($file, %rules) = @ARGV;
    open(my $in, "<", $file) or die "$file: $!";
    local $/;
    my $code = <$in>;
    $code =~ s{/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\])*"|\x27(?:\\.|[^\x27\\])*\x27}{ }gs;
    for my $rule (sort keys %rules) {
      my %seen;
      my @hits = grep { !$seen{$_}++ } $code =~ /(?<![\w.>])($rules{$rule})/g;
      print "$rule @hits\n" if @hits;
    }' "$@"
}

check_source() { # FILE
  local file=$1 room quote header rule hits rules
  room=$(room_of "$file")
  if [[ -z $room ]]; then
    complain place "$file" "is in no room, so nothing compiles it"
    return
  fi
  while read -r quote header; do
    check_include "$file" "$room" "$quote" "$header"
  done < <(sed -nE 's/^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+).*/\1 \2/p' "$file")
  rules=(output '(?:v?f?d?printf|f?puts|putchar|perror|abort|_?exit)\s*\(|stderr\b|stdout\b')
  [[ $file == src/base/mem.c ]] ||
    rules+=(memory '(?:malloc|free|calloc|realloc|reallocarray|strdup|strndup|v?asprintf)\s*\(')
  [[ $file == src/base/thread.c ]] || rules+=(thread 'pthread_\w+')
  [[ $room == ext || $room == src/store/local ]] || rules+=(sqlite 'sqlite3_\w+')
  hits=$(forbidden_words "$file" "${rules[@]}")
  while read -r rule hits; do
    [[ -z $rule ]] || complain "$rule" "$file" "$hits"
  done <<<"$hits"
}

# Prints "FILE OTHERS" for each of a room's files that a call of its own comes back to.
circles() { # FILE...
  perl -e '
    my (%code, %home, %calls);
    local $/;
    for my $file (@ARGV) {
      open(my $in, "<", $file) or die "$file: $!";
      $code{$file} = <$in>;
      $code{$file} =~ s{/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\])*"|\x27(?:\\.|[^\x27\\])*\x27}{ }gs;
      $home{$1} = $file while $code{$file} =~ /^(?!static\b)\w[\w\s*]*?\b(msg_\w+)\s*\([^;{}]*\)\s*\{/mg;
    }
    for my $file (@ARGV) {
      $calls{$file}{$home{$_}} = 1 for grep { $home{$_} } $code{$file} =~ /\b(msg_\w+)\b/g;
      delete $calls{$file}{$file};
    }
    my %reach; # from a file, by any way
    for my $file (@ARGV) {
      my @next = keys %{$calls{$file}};
      while (my $to = shift @next) { push @next, keys %{$calls{$to}} if !$reach{$file}{$to}++; }
    }
    for my $file (@ARGV) {
      my @others = grep { $_ ne $file && $reach{$file}{$_} && $reach{$_}{$file} } sort @ARGV;
      print "$file @others\n" if @others;
    }' "$@"
}

check_circles() { # ROOM
  local file others files
  mapfile -t files < <(find "$1" -maxdepth 1 -name '*.c' | sort)
  while read -r file others; do
    [[ -z $file ]] || complain circle "$file" "calls in a circle with $others"
  done < <(circles "${files[@]}")
}

# A header needs nothing before it, and may come twice.
check_header() { # FILE
  local name=${1#src/} output mongodb=()
  if [[ $name == store/mongo/* ]]; then
    [[ -n $mongoc ]] || return 0 # without libmongoc nothing compiles it
    # shellcheck disable=SC2206 # a list of words
    mongodb=(${mongoc//-I/-isystem })
  fi
  output=$(printf '#include "%s"\n#include "%s"\n' "$name" "$name" |
    "$cc" -x c -std=c11 -D_GNU_SOURCE -DMSG_VERSION='""' -Wall -Wextra -Werror -Wno-unused \
      -fsyntax-only -Isrc -I. "${mongodb[@]}" - 2>&1) || complain header "$1" "$(grep -m1 -E 'error|warning' <<<"$output")"
}

# The names of the build's tests. Asked there, ctest would begin the log of the run anew that we are in.
known_tests() {
  local folder
  folder=$(mktemp -d)
  echo "subdirs(\"$MSG_BUILD\")" >"$folder/CTestTestfile.cmake"
  ctest --test-dir "$folder" -N | sed -nE 's/^ *Test +#[0-9]+: //p'
  rm -rf "$folder"
}

# A test file must have a name that the build picks up and, given a build, be known to ctest.
check_tests() {
  local file folder name known='' without_mongodb=
  if [[ -n ${MSG_BUILD:-} ]]; then
    known=$(known_tests)
    [[ $'\n'$known$'\n' == *$'\n'mongo.start$'\n'* ]] || without_mongodb=yes
  fi
  while read -r file; do
    folder=${file#tests/} && folder=${folder%/*} && name=${file##*/}
    case $folder/$name in
    unit/test_*.c | contract/test_*.c | engine/test_*.c | ext/test_*.c | mongo/test_*.c) ;;
    sql/test_*.sh | hosts/test_*.sh | faults/test_*.sh | mongo/test_*.sh) ;;
    sql/test_*.py | hosts/test_*.py | faults/test_*.py | mongo/test_*.py) ;;
    hosts/host_*.c | faults/host_*.c | mongo/host_*.c | fuzz/fuzz_*.c | bench/*.c | support/*.c) continue ;;
    *.c | */test_*) complain test "$file" "no build rule picks up this name" && continue ;;
    *) continue ;;
    esac
    [[ -z $without_mongodb || $folder/$name != mongo/* && $name != test_mongo* ]] || continue
    name=${name#test_} && name=$folder.${name%.*}
    [[ -z $known || $'\n'$known$'\n' == *$'\n'$name$'\n'* ]] ||
      complain test "$file" "ctest does not know $name"
  done < <(find tests -type f \( -name '*.c' -o -name 'test_*' \) | sort)
}

files=$(find src ext -type f -name '*.[ch]' | sort)
while read -r file; do
  check_source "$file"
  [[ $file != *.h ]] || check_header "$file"
done <<<"$files"
for room in src/base src/model src/store src/store/local src/store/mongo src/engine ext; do
  check_circles "$room"
done
check_tests
((violations == 0)) || { echo "$violations violations" && exit 1; }
