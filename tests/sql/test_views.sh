#!/usr/bin/env bash
# The views of msg_views.sql find each trouble they are for, and nothing in a healthy file.
. "$(dirname "$0")/support.sh"
views=$source_dir/sql/msg_views.sql

# expect WHAT SQL WANTED: what a statement prints after the views were read.
expect() {
  local got
  got=$(shell -list -separator ' ' t.db <<<".read '$views'
$2" 2>&1) || true
  [[ $got == "$3" ]] || fail "$1: got '$got', wanted '$3'"
}

# A worker killed with a claim, while listening, with a direct message on its way.
shell t.db <<<"
SELECT msg_open('local', '{\"sender_id\":\"gone\"}');
SELECT msg_listen('other');
SELECT msg_enqueue('work', 'held', '{\"group\":\"g\"}');
SELECT msg_enqueue('work', 'held up', '{\"group\":\"g\"}');
SELECT msg_claim('work', 1, 3600000);
.system kill -9 \$PPID
" >/dev/null 2>&1 || true

expect "healthy" "SELECT trouble FROM msg_check WHERE trouble NOT IN ('participants gone', 'groups held up')" ""
expect "participants" "SELECT node, pid > 0 FROM msg_check_participants" "gone 1"
# The views look back a minute; the messages here are made old by hand.
shell t.db <<<"
SELECT msg_send('private', 1, '{\"recipient\":\"gone\"}');
SELECT msg_send('nobody.listens', 1);
SELECT msg_enqueue('old', 1);
SELECT msg_enqueue('dead', 1);
SELECT msg_reject(id, 'no reason', token) FROM msg_claim('dead');
SELECT msg_enqueue('retried', 1);
SELECT msg_release(id, token) FROM msg_claim('retried');
SELECT msg_release(id, token) FROM msg_claim('retried');
SELECT msg_release(id, token) FROM msg_claim('retried');
SELECT msg_claim('work', 1, 3600000);
UPDATE msg_messages SET deliver_at = 1000 WHERE topic = 'old';
UPDATE msg_store_claim SET since = since - 100000 WHERE seq IN (SELECT lease FROM msg_store_claim JOIN msg_store_message USING (seq) WHERE topic = 'work');
" >/dev/null
expect "lanes" "SELECT owner, depth FROM msg_check_lanes" "gone 1"
expect "deaf" "SELECT topic, messages FROM msg_check_deaf" "nobody.listens 1"
expect "unclaimed" "SELECT topic, age_ms > 60000 FROM msg_check_unclaimed" "old 1"
expect "dead" "SELECT topic, reason, messages FROM msg_check_dead" "dead no reason 1"
expect "retries" "SELECT topic, attempts FROM msg_check_retries" "retried 3"
expect "check" "SELECT trouble, found FROM msg_check WHERE trouble IN ('dead letters', 'nobody listens', 'unclaimed', 'retried', 'orphaned lanes') ORDER BY 1" \
  "dead letters 1
nobody listens 1
orphaned lanes 1
retried 1
unclaimed 1"
expect "dashboard" "SELECT topic, depth, dead FROM msg_dashboard WHERE topic IN ('dead', 'retried')" "retried 1 0
dead 0 1"
expect "ages" "SELECT topic, waiting FROM msg_dashboard_ages WHERE topic = 'retried'" "retried 1"

# Held claims and blocked groups, of a live owner.
shell t.db <<<".read '$views'
SELECT msg_enqueue('fifo', 1, '{\"group\":\"g\"}') IS NULL;
SELECT msg_enqueue('fifo', 2, '{\"group\":\"g\"}') IS NULL;
SELECT msg_claim('fifo', 1, 3600000) IS NULL;
UPDATE msg_store_claim SET since = since - 100000 WHERE seq IN (SELECT lease FROM msg_store_claim JOIN msg_store_message USING (seq) WHERE topic = 'fifo');
SELECT topic, age_ms > 60000, owner_alive FROM msg_check_long_claims WHERE topic = 'fifo';
SELECT topic, \"group\", head_state, waiting FROM msg_check_blocked WHERE topic = 'fifo';" >out
[[ $(tail -2 out) == "fifo|1|1
fifo|g|claimed|1" ]] || fail "long claims and blocked groups: $(cat out)"

# Nothing of it stays in the file.
[[ -z $("$SQLITE3" t.db "SELECT name FROM sqlite_schema WHERE type = 'view'") ]] || fail "views were left in the file"
exit "$failed"
