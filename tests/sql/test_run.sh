#!/usr/bin/env bash
# The demonstration of `make run`: it ends well, in under a minute, leaves nothing behind, and notices a wrong count.
. "$(dirname "$0")/support.sh"
run=$source_dir/sql/examples/run.sh
export TMPDIR=$work/tmp
mkdir "$TMPDIR"

if ! bash "$run" >out 2>&1; then
  cat out
  fail "run.sh ended with an error"
fi
grep -q '^Done: [0-9]* messages, each exactly once' out || fail "run.sh does not say that it is done"
grep -q WRONG out && fail "a count is wrong"
seconds=$(sed -nE 's/^Done: .* in ([0-9]+) s$/\1/p' out)
((${seconds:-99} < 60)) || fail "it took $seconds s"
[[ -z $(ls -A "$TMPDIR") ]] || fail "it left files behind"

# A shell in which the workers write down a wrong message: a count must say so.
cat >doubling <<END
#!/usr/bin/env bash
sed 's/SELECT :worker, id,/SELECT :worker, substr(id, 1, 23),/' | exec "$SQLITE3" "\$@"
END
chmod +x doubling
if SQLITE3=$work/doubling bash "$run" >out 2>&1; then
  fail "run.sh did not notice that messages were lost"
fi
if ! grep -q WRONG out; then
  cat out
  fail "run.sh does not say which count is wrong"
fi
exit "$failed"
