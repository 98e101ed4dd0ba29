#!/usr/bin/env bash
# run.sh: the main job on real input, through the sqlite3 shell, in a temp directory (`make run`).
# MSG_SO: path of msg.so; SQLITE3: the shell; ISO_CODES: directory of Debian's iso-codes lists.
# Exits non-zero when a count is wrong.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
msg_so=${MSG_SO:-$here/../../build/msg.so}
sqlite3=${SQLITE3:-sqlite3}
iso_codes=${ISO_CODES:-/usr/share/iso-codes/json}
work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$work"' EXIT
db=$work/demo.db
began=$SECONDS
export MONGOC_DISABLE_SHM=1 # else whoever gets the process id of one that was killed prints a warning
batch_size=50

bold='' dim='' plain=''
[[ -t 1 ]] && bold=$'\e[1m' dim=$'\e[2m' plain=$'\e[0m'

title() { printf '\n%s%s%s\n' "$bold" "$*" "$plain"; }
note() { printf '%s\n' "$*"; }
# shell [OPTION...]: sqlite3 on the demo's file with the extension loaded, as `make shell` does.
shell() { "$sqlite3" -batch -bail -cmd ".load '$msg_so'" -cmd '.timeout 10000' "$@" "$db"; }
# show WHO SQL: print the statements as typed.
show() {
  local line
  while IFS= read -r line; do printf '%s%s>%s %s\n' "$dim" "$1" "$plain" "$line"; done <<<"${2#$'\n'}"
}
# run WHO SQL: print the statements, then run them.
run() {
  show "$1" "$2"
  shell -box <<<"$2"
}
# value SQL: one value, silently.
value() { shell <<<"$1"; }
check() { # check WHAT GOT WANTED
  if [[ $2 == "$3" ]]; then
    printf '  ok     %-46s %s\n' "$1" "$2"
  else
    printf '  WRONG  %-46s %s, not %s\n' "$1" "$2" "$3"
    failed=1
  fi
}
failed=0

title "1. Send: every entry of Debian's iso-codes lists, and one message each, in one transaction"
note "Each row of the application remembers the id of its message. Nobody sees either before COMMIT."
run main "
PRAGMA journal_mode = WAL;
CREATE TABLE entry(list TEXT, code TEXT, name TEXT, message TEXT UNIQUE, PRIMARY KEY(list, code));
BEGIN;
INSERT INTO entry(list, code, name, message)
  WITH file AS MATERIALIZED (
    SELECT replace(replace(name, '$iso_codes/iso_', ''), '.json', '') AS list,
           CAST(readfile(name) AS TEXT) AS content
    FROM fsdir('$iso_codes') WHERE name GLOB '*/iso_*.json')
  SELECT list, coalesce(e.value ->> 'code', e.value ->> 'alpha_4', e.value ->> 'alpha_3'),
         e.value ->> 'name', msg_enqueue('iso', e.value)
  FROM file, json_each(content, '\$.\"' || list || '\"') AS e;
SELECT list, count(*) AS entries, min(name) AS first FROM entry GROUP BY list;
COMMIT;
SELECT topic, depth, ready FROM msg_topics;"
total=$(value 'SELECT count(*) FROM entry')
check "messages waiting, one an entry" "$(value "SELECT depth FROM msg_topics WHERE topic = 'iso'")" "$total"

title "2. Claim and acknowledge: two other processes at the same time, $batch_size messages a batch"
note "A claim is a lease of 30 s; what is written down and what is acknowledged commit together."
value 'CREATE TABLE got(worker INTEGER, message TEXT, name TEXT)' # note: no UNIQUE, so that a double would show
batch="
CREATE TEMP TABLE batch AS SELECT id, token, value FROM msg_claim('iso', $batch_size);
BEGIN IMMEDIATE;
INSERT INTO got SELECT :worker, id, value ->> 'name' FROM batch;
SELECT msg_ack(json_group_array(json_object('id', id, 'token', token))) FROM batch;
COMMIT;
DROP TABLE batch;"
show "worker 1, 2" "SELECT msg_open('local');"
show "worker 1, 2" "$batch"
rounds=$(((total + batch_size - 1) / batch_size))
worker() { # enough rounds for one worker to do it all: what finds nothing costs next to nothing
  {
    printf ".parameter set :worker %d\nSELECT msg_open('local') IS NULL;\n" "$1"
    for ((i = 0; i < rounds; i++)); do printf '%s\n' "$batch"; done
  } | shell >"$work/worker$1.acks"
}
worker 1 & one=$!
worker 2 & two=$!
wait "$one"
wait "$two"
run main "
SELECT worker, count(*) AS messages, count(DISTINCT message) AS different, min(name) AS first FROM got GROUP BY worker;
SELECT topic, depth FROM msg_topics;"
acks=$(awk '{ n += $1 } END { print n + 0 }' "$work"/worker?.acks)
check "written down by the workers" "$(value 'SELECT count(*) FROM got')" "$total"
check "different messages among them" "$(value 'SELECT count(DISTINCT message) FROM got')" "$total"
check "entries whose message came exactly once" \
  "$(value 'SELECT count(*) FROM entry JOIN (SELECT message, count(*) AS times FROM got GROUP BY message) USING (message)
            WHERE times = 1')" "$total"
check "acknowledged" "$acks" "$total"
check "still waiting" "$(value "SELECT count(*) FROM msg_messages WHERE topic = 'iso'")" 0

title "3. Ask and answer: one process knows the names of countries, another asks"
answer="
CREATE TEMP TABLE asked AS SELECT id, value FROM msg_await('country.name', 10000);
SELECT msg_reply(id, (SELECT name FROM entry WHERE list = '3166-1' AND code = value)) FROM asked;
DROP TABLE asked;"
show atlas "SELECT msg_open('local', '{\"sender_id\":\"atlas\"}');"
show atlas "$answer"
questions=(DEU JPN BRA XXX) # the last one has no name: the answer is NULL
{
  echo "SELECT msg_open('local', '{\"sender_id\":\"atlas\"}');"
  for _ in "${questions[@]}"; do printf '%s\n' "$answer"; done
  echo 'SELECT msg_close();'
} | shell >"$work/atlas.out" & atlas=$!
answers=()
for code in "${questions[@]}"; do
  ask="SELECT msg_request('country.name', '$code', 10000);"
  show main "$ask"
  answers+=("$(shell -nullvalue NULL <<<"$ask")")
  note "${answers[-1]}"
done
wait "$atlas"
check "answers" "${answers[*]}" "Germany Japan Brazil NULL"

title "4. What cannot be done is kept with a reason; what is for later waits"
run main "
SELECT msg_enqueue('iso', 'not an entry') IS NOT NULL AS sent;
SELECT msg_reject(id, 'no such list', token) AS rejected FROM msg_claim('iso');
SELECT msg_enqueue('iso.report', 'tomorrow', '{\"delay_ms\":86400000}') IS NOT NULL AS sent;
SELECT topic, value, state, reason, attempts FROM msg_messages WHERE exclusive;
SELECT name, value FROM msg_stats WHERE value > 0;"
check "dead letters" "$(value 'SELECT sum(dead) FROM msg_topics')" 1

title "5. Look inside"
run main "
SELECT msg_open('local', '{\"sender_id\":\"inspector\"}');
SELECT * FROM msg_queues;
SELECT * FROM msg_topics;
SELECT * FROM msg_participants;
.read '$here/../msg_views.sql'
SELECT * FROM msg_check;"

title "$( ((failed)) && echo "FAILED" || echo "Done"): $total messages, each exactly once, in $((SECONDS - began)) s"
note "Next: make shell FILE=..., and the scripts in sql/examples/, each in a new file."
exit "$failed"
