-- migrate_big_bang.sql: moves everything that waits in one go, while nothing works on the old side.
--
--   $ sqlite3 shop.db                       -- or any file; after a bridge, the bridge's
--   sqlite> .load build/msg
--   sqlite> SELECT msg_open('env:NEW', '{"sender_id": "new", "write_timeout_ms": 60000}');
--   sqlite> SELECT msg_open('local', '{"sender_id": "old"}');
--   sqlite> .read sql/migrate_big_bang.sql
--
-- `new` and `old` are any two stores, layouts or queues: local, local:SCHEMA, mongodb://..., {"layout": "multi"}; `old` is opened
-- last. First stop the programs of the old side; those of the new side may run already. It prints what was moved, and what is
-- left: messages that a worker still holds (read the script again when it is done, or its lease has ended), and what came after the
-- first 20,000. Read it until nothing is left. After a crash at any point, read it again: nothing is lost, nothing is there twice.
--
-- A message stays the same: id, value and its type, msg, map, additional, sender, recipients, in_answer_to, priority, times,
-- life, key, group and its order, attempts; a dead letter with its reason; of a broadcast, who has seen it. An exclusive message
-- is on the new side first with a delivery 6,338 years late, then gone on the old side, then due.
-- Not kept: listeners, pauses, and the memory of keys whose message is done.
.bail on
.timeout 10000
CREATE TABLE IF NOT EXISTS main.migrate_copied(id TEXT PRIMARY KEY, until INTEGER) WITHOUT ROWID;

-- Do both sides show the same message? Then there is nothing to move: start the programs with the new layout.
CREATE TEMP TABLE IF NOT EXISTS migrate_probe AS
  SELECT msg_enqueue('migrate.probe', NULL, '{"node": "new", "delay_ms": 60000, "ttl_ms": 1}') AS id;
CREATE TEMP TABLE IF NOT EXISTS migrate_same AS
  SELECT count(*) AS same FROM msg_messages WHERE node = 'old' AND id IN (SELECT id FROM migrate_probe);
BEGIN IMMEDIATE;
DELETE FROM msg_messages WHERE node = 'new' AND topic = 'migrate.probe';
COMMIT;

-- What is to go, and what is there already.
DROP TABLE IF EXISTS temp.migrate_row;
CREATE TEMP TABLE migrate_row AS
  SELECT *, CASE typeof(value) WHEN 'text' THEN json_quote(value) = value ELSE 0 END AS json,
         state = 'dead' AND reason = 'migrate: in transit' AS in_transit
  FROM msg_messages
  WHERE node = 'old' AND id IN
    (SELECT id FROM msg_messages
     WHERE node = 'old' AND state IN ('ready', 'delayed', 'blocked', 'dead') AND (SELECT same FROM migrate_same) = 0
       AND id NOT IN (SELECT id FROM main.migrate_copied)
     ORDER BY timestamp, seq LIMIT 20000);
CREATE INDEX temp.migrate_row_order ON migrate_row(timestamp, seq); -- for a sorter would forget which values are JSON
DROP TABLE IF EXISTS temp.migrate_there;
CREATE TEMP TABLE migrate_there AS
  SELECT id, processed_by FROM msg_messages WHERE node = 'new' AND id IN (SELECT id FROM migrate_row);

BEGIN IMMEDIATE;
INSERT INTO msg_messages(id, topic, value, msg, map, additional, sender, sender_host, recipients, in_answer_to, exclusive,
                         priority, timestamp, ttl, timing_out, delete_after_processing, delete_after_processing_time, key,
                         "group", processed_by, deliver_at, delete_at, attempts, reason, node)
  SELECT id, topic, CASE WHEN json THEN json(value) ELSE value END, msg, map, additional, sender, sender_host, recipients,
         in_answer_to, exclusive, priority, timestamp, ttl, timing_out, delete_after_processing, delete_after_processing_time,
         key, "group", CASE WHEN NOT exclusive THEN processed_by END,
         deliver_at + CASE WHEN exclusive AND (state <> 'dead' OR in_transit) AND deliver_at < 20000000000000
                      THEN 200000000000000 ELSE 0 END,
         CASE WHEN NOT in_transit THEN delete_at WHEN timing_out AND ttl THEN max(deliver_at, timestamp) + ttl END,
         attempts - in_transit, CASE WHEN state = 'dead' AND NOT in_transit THEN reason END, 'new'
  FROM migrate_row INDEXED BY migrate_row_order WHERE id NOT IN (SELECT id FROM migrate_there) ORDER BY timestamp, seq;
-- What is removed once taken leaves no trace: remembered here.
INSERT OR IGNORE INTO main.migrate_copied SELECT id, delete_at FROM migrate_row WHERE NOT exclusive AND delete_after_processing;
COMMIT;

-- What a bridge brought before may have been seen since.
DROP TABLE IF EXISTS temp.migrate_tell;
CREATE TEMP TABLE migrate_tell AS
  SELECT r.id, n.value AS seen_by FROM migrate_row AS r JOIN migrate_there USING (id) JOIN json_each(r.processed_by) AS n
  WHERE NOT r.exclusive
  EXCEPT SELECT t.id, n.value FROM migrate_there AS t JOIN json_each(t.processed_by) AS n;
BEGIN IMMEDIATE;
UPDATE msg_messages SET processed_by = (SELECT json_group_array(name) FROM
    (SELECT value AS name FROM json_each(processed_by) UNION SELECT seen_by FROM migrate_tell AS t WHERE t.id = msg_messages.id))
  WHERE node = 'new' AND id IN (SELECT id FROM migrate_tell);
COMMIT;

-- There, so it may go here; what a worker took meanwhile is its own, and has no copy.
BEGIN IMMEDIATE;
DELETE FROM msg_messages WHERE node = 'old' AND state <> 'claimed'
  AND id IN (SELECT id FROM migrate_row UNION SELECT id FROM main.migrate_copied);
COMMIT;
DROP TABLE IF EXISTS temp.migrate_left;
CREATE TEMP TABLE migrate_left AS
  SELECT id, state FROM msg_messages
  WHERE node = 'old' AND state IN ('ready', 'delayed', 'blocked', 'dead', 'claimed') AND (SELECT same FROM migrate_same) = 0;
BEGIN IMMEDIATE;
DELETE FROM msg_messages WHERE node = 'new' AND deliver_at >= 200000000000000 AND id IN (SELECT id FROM migrate_left);
UPDATE msg_messages SET deliver_at = deliver_at - 200000000000000 WHERE node = 'new' AND deliver_at >= 200000000000000;
COMMIT;

SELECT (SELECT count(*) FROM migrate_row WHERE id NOT IN (SELECT id FROM migrate_left)) AS moved,
       (SELECT count(*) FROM migrate_left) AS "left",
       (SELECT count(*) FROM migrate_left WHERE state = 'claimed') AS claimed,
       (SELECT same FROM migrate_same) AS same_messages;
