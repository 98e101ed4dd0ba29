#!/usr/bin/env bash
# Plants one violation of each kind in a copy of the tree and sees walls.sh report exactly those.
set -euo pipefail
source=${MSG_SOURCE:-$(cd "$(dirname "$0")/../.." && pwd)}
unset MSG_BUILD
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
cd "$source" && tar cf - src ext tests | tar xf - -C "$copy"
cd "$copy"
mkdir -p src/{base,model,store/local,store/mongo,engine,stray} ext tests/{unit,odd}

expected=()
plant() { # RULE FILE LINE...
  expected+=("wall $1: $2:")
  printf '%s\n' "${@:3}" >"$2"
}
header() { # FILE LINE...: a sound header, to be included by what is planted
  printf '#ifndef %s\n#define %s\n%s\n#endif\n' "P_${1//[^a-zA-Z]/_}" "P_${1//[^a-zA-Z]/_}" "${*:2}" >"$1"
}

for room in base model store store/local store/mongo engine; do header src/$room/planted.h; done
header ext/planted.h
# What must not be reported: comments, literals, members, look-alikes, and every room from above.
cat >src/engine/planted_ok.c <<'C'
#include "base/planted.h"
#include "model/planted.h"
#include "store/planted.h"
#include "engine/planted.h" /* #include <pthread.h> */
// malloc(1); fprintf(stderr); sqlite3_open(); pthread_create();
/* abort(); */
struct ops { void (*free)(void *); };
static const char text[] = "free(x); stderr \" printf(";
static void msg_planted_static(void) { msg_planted_one(0); }
int planted_ok(struct ops *o, char c) { o->free(0); msg_free(o); return c == '"' ? snprintf(0, 0, text) : 0; }
C
printf '#include <pthread.h>\n' >>src/base/thread.c
printf 'void *planted(void) { return malloc(1); }\n' >>src/base/mem.c
printf '#include "store/local/planted.h"\n#include "store/mongo/planted.h"\n' >>ext/msg_ext.c

plant room src/base/planted_model.c '#include "model/planted.h"'
plant room src/model/planted_store.c '#include "store/planted.h"'
plant room src/store/planted_engine.c '#include "engine/planted.h"'
plant room src/store/planted_local.c '#include "store/local/planted.h"'
plant room src/store/local/planted_mongo.c '#include "store/mongo/planted.h"'
plant room src/store/mongo/planted_local.c '#include "store/local/planted.h"'
plant room src/store/local/planted_engine.c '#include "engine/planted.h"'
plant room src/engine/planted_local.c '#include "store/local/planted.h"'
plant room src/engine/planted_ext.c '  #  include "ext/planted.h"'
plant room ext/planted_local.c '#include "store/local/planted.h"'
plant room ext/planted_mongo.c '#include "store/mongo/planted.h"'
plant path src/model/planted_path.c '#include "planted.h"'
plant path src/model/planted_dots.c '#include "../base/planted.h"'
plant sqlite src/engine/planted_sqlite.c '#include <sqlite3.h>'
plant sqlite src/store/mongo/planted_sqlite.c '#include "sqlite3ext.h"'
plant sqlite src/model/planted_call.c 'void f(void) { sqlite3_free(0); }'
plant mongo src/engine/planted_mongoc.c '#include <mongoc/mongoc.h>'
plant mongo src/store/local/planted_bson.c '#include <bson.h>'
plant thread ext/planted_pthread.c '#include <pthread.h>'
plant thread src/base/planted_mutex.c 'void f(void *m) { pthread_mutex_lock(m); }'
plant memory src/base/planted_malloc.c 'void *f(void) { return malloc (1); }'
plant memory ext/planted_free.c 'void f(void *p) { free(p); }'
plant memory src/store/local/planted_strdup.c 'char *f(void) { return strdup("x"); }'
plant output src/engine/planted_printf.c 'void f(void) { printf("x"); }'
plant output ext/planted_stderr.c 'void f(void) { g(stderr); }'
plant output src/base/planted_abort.c 'void f(void) { abort(); }'
plant circle src/engine/planted_one.c 'void msg_planted_one(int n) {' '  msg_planted_two(n);' '}'
plant circle src/engine/planted_two.c 'int *msg_planted_two(int n)' '{' '  msg_planted_three(n);' '}'
plant circle src/engine/planted_three.c 'void msg_planted_three(int n) { msg_planted_one(n); }'
plant header src/model/planted_alone.h '#ifndef A' '#define A' 'size_t planted(void);' '#endif'
plant header src/model/planted_twice.h 'struct planted { int x; };'
plant place src/stray/planted.c 'int x;'
plant test tests/unit/planted.c 'int main(void) { return 0; }'
plant test tests/odd/test_planted.sh 'exit 0'

if report=$("$source"/tests/ci/walls.sh "$copy"); then
  echo "walls.sh passed a tree full of violations" && exit 1
fi
rc=0
for line in "${expected[@]}"; do
  [[ $'\n'$report == *$'\n'"$line"* ]] || { echo "not caught: $line" && rc=1; }
done
others=$(grep '^wall ' <<<"$report" | grep -vF "$(printf '%s\n' "${expected[@]}")" | grep planted) || true
[[ -z $others ]] || { echo "caught, but sound: $others" && rc=1; }

# A test that ctest does not know. The log of a run in the build, which `make test` reads, stays.
rm -rf tests src/stray && mkdir -p tests/unit build/Testing/Temporary && find . -name '*planted*' -delete
echo run >build/Testing/Temporary/LastTest.log
: >tests/unit/test_forgotten.c
printf 'add_test(unit.remembered true)\n' >build/CTestTestfile.cmake
report=$(MSG_BUILD=$copy/build "$source"/tests/ci/walls.sh "$copy") || true
[[ $report == *"wall test: tests/unit/test_forgotten.c: ctest does not know unit.forgotten"* ]] ||
  { echo "not caught: an unregistered test" && rc=1; }
[[ $(cat build/Testing/Temporary/LastTest.log) == run ]] || { echo "the log of the run is gone" && rc=1; }
((rc == 0)) && echo "${#expected[@]} kinds of violation caught"
exit $rc
