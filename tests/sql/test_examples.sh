#!/usr/bin/env bash
# Every .sql file of sql/ runs in an empty database and prints what tests/sql/expected holds.
. "$(dirname "$0")/support.sh"

n=0
for script in "$source_dir"/sql/examples/*.sql; do
  name=$(basename "$script" .sql)
  mkdir "$name"
  (cd "$name" && shell -header -list "$name.db" <"$script" >../out 2>&1) || fail "$name ended with an error"
  normalise <out >"$name.out"
  same "$name.out" "$here/expected/$name.out" "$name prints something else"
  n=$((n + 1))
done
((n >= 8)) || fail "only $n examples"

for expected in "$here"/expected/*.out; do
  name=$(basename "$expected" .out)
  [[ -e $source_dir/sql/examples/$name.sql ]] || fail "$name.out belongs to no example"
done

# What is neither an example nor a reference must be a script that can be read twice; those that move take two nodes.
for script in "$source_dir"/sql/*.sql; do
  [[ $(basename "$script") == schema.sql ]] && continue
  shell twice.db <<<"ATTACH 'new.db' AS other;
SELECT msg_open('local:other', '{\"sender_id\": \"new\"}') IS NULL;
SELECT msg_open('local', '{\"sender_id\": \"old\"}') IS NULL;
.read '$script'
.read '$script'" || fail "$script cannot be read twice"
done
exit "$failed"
