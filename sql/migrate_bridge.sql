-- migrate_bridge.sql: moves a queue while both sides are live. One reading is one pass; it is read again and again:
--
--   $ { echo ".load build/msg
--   SELECT msg_open('env:NEW', '{\"sender_id\": \"new\"}');
--   SELECT msg_open('env:OLD', '{\"sender_id\": \"old\"}');"
--       yes ".read sql/migrate_bridge.sql"; } | sqlite3 bridge.db
--
-- `new` and `old` are any two stores, layouts or queues: local, local:SCHEMA, mongodb://..., {"layout": "multi"}. They are the
-- bridge's names in msg_participants; `old` is opened last. Ctrl-C or a crash at any point loses and doubles nothing: start it
-- again, for a minute too where it says that MongoDB does not answer: so long the server keeps what it died over. One at a time.
-- A pass in which something went prints a row. The last step is migrate_big_bang.sql.
--
-- Exclusive messages go from old to new, whoever sent them, and whichever side a worker claims on has it alone. Each is a dead
-- letter of reason 'migrate: in transit' on the old side, then also on the new side with a delivery 6,338 years late, then gone
-- on the old side, then due. Within a group the order holds on the new side; while workers of both sides take from one group
-- there is no order between them. What is delayed, dead or claimed stays until it is ready, or the last step comes.
-- Broadcasts go both ways, directs and answers to where their recipient is, each once, as the same message (id, sender and
-- times): so nobody gets one twice, and what was asked on one side is answered from the other. Who has seen what is told to
-- the other side with every pass: a node that moves under its own name stays away for one pass.
--
-- Not kept: the order between two sides that send to one group, listeners, pauses, and the memory of keys whose message is done.
-- A pass reads the ids of both sides. Layouts that share their messages, as standard and dual in one database do, need no
-- bridge for these: it carries directs and answers alone.
.bail on
.timeout 10000
CREATE TABLE IF NOT EXISTS main.migrate_copied(id TEXT PRIMARY KEY, until INTEGER) WITHOUT ROWID;

-- Do both sides show the same message?
CREATE TEMP TABLE IF NOT EXISTS migrate_probe AS
  SELECT msg_enqueue('migrate.probe', NULL, '{"node": "new", "delay_ms": 60000, "ttl_ms": 1}') AS id;
CREATE TEMP TABLE IF NOT EXISTS migrate_same AS
  SELECT count(*) AS same FROM msg_messages WHERE node = 'old' AND id IN (SELECT id FROM migrate_probe);
BEGIN IMMEDIATE;
DELETE FROM msg_messages WHERE node = 'new' AND topic = 'migrate.probe';
COMMIT;

-- What is ready on the old side is nobody's from here on.
DROP TABLE IF EXISTS temp.migrate_taken;
CREATE TEMP TABLE migrate_taken AS
  SELECT msg_reject(json_group_array(json_object('id', id, 'token', token)), 'migrate: in transit') AS taken
  FROM msg_claim(CASE (SELECT same FROM migrate_same) WHEN 0 THEN '*' ELSE 'migrate.probe' END, 500, 30000, 100, 'old');

-- What each side has.
DROP TABLE IF EXISTS temp.migrate_side;
CREATE TEMP TABLE migrate_side AS
  SELECT node AS side, id, exclusive, state, reason, sender, recipients, processed_by, deliver_at, delete_at,
         delete_after_processing FROM msg_messages WHERE node = 'old'
  UNION ALL
  SELECT node, id, exclusive, state, reason, sender, recipients, processed_by, deliver_at, delete_at,
         delete_after_processing FROM msg_messages WHERE node = 'new';
CREATE UNIQUE INDEX temp.migrate_side_id ON migrate_side(id, side);

-- Who lives on the old side, as its own layout: two layouts of one database share the list.
DROP TABLE IF EXISTS temp.migrate_home;
CREATE TEMP TABLE migrate_home AS
  SELECT p.node FROM msg_participants AS p
  WHERE p.alive AND p.layout IS (SELECT layout FROM msg_participants WHERE node = 'old');

-- What goes where: exclusive messages in transit, and what only one side has.
DROP TABLE IF EXISTS temp.migrate_go;
CREATE TEMP TABLE migrate_go AS
  SELECT id, 'new' AS target, 1 AS moves FROM migrate_side
  WHERE side = 'old' AND state = 'dead' AND reason = 'migrate: in transit'
  UNION ALL
  SELECT m.id, t.target, 0
  FROM migrate_side AS m JOIN (SELECT 'old' AS side, 'new' AS target UNION ALL SELECT 'new', 'old') AS t USING (side)
  WHERE NOT m.exclusive AND m.state IN ('ready', 'delayed')
    AND m.id NOT IN (SELECT id FROM migrate_side WHERE side = t.target)
    AND m.id NOT IN (SELECT id FROM main.migrate_copied)
    AND (m.recipients IS NULL OR (t.target = 'old') = EXISTS
      (SELECT 1 FROM json_each(m.recipients) AS r JOIN temp.migrate_home AS h ON h.node = r.value));
DROP TABLE IF EXISTS temp.migrate_row;
CREATE TEMP TABLE migrate_row AS
  SELECT *, CASE typeof(value) WHEN 'text' THEN json_quote(value) = value ELSE 0 END AS json, 'new' AS target
  FROM msg_messages WHERE node = 'old' AND id IN (SELECT id FROM migrate_go WHERE target = 'new')
  UNION ALL
  SELECT *, CASE typeof(value) WHEN 'text' THEN json_quote(value) = value ELSE 0 END, 'old'
  FROM msg_messages WHERE node = 'new' AND id IN (SELECT id FROM migrate_go WHERE target = 'old');
CREATE INDEX temp.migrate_row_order ON migrate_row(timestamp, seq); -- for a sorter would forget which values are JSON

BEGIN IMMEDIATE;
INSERT INTO msg_messages(id, topic, value, msg, map, additional, sender, sender_host, recipients, in_answer_to, exclusive,
                         priority, timestamp, ttl, timing_out, delete_after_processing, delete_after_processing_time, key,
                         "group", processed_by, deliver_at, delete_at, attempts, node)
  SELECT id, topic, CASE WHEN json THEN json(value) ELSE value END, msg, map, additional, sender, sender_host, recipients,
         in_answer_to, exclusive, priority, timestamp, ttl, timing_out, delete_after_processing, delete_after_processing_time,
         key, "group", CASE WHEN NOT exclusive THEN processed_by END,
         deliver_at + CASE WHEN exclusive AND deliver_at < 20000000000000 THEN 200000000000000 ELSE 0 END,
         CASE WHEN NOT exclusive THEN delete_at WHEN timing_out AND ttl THEN max(deliver_at, timestamp) + ttl END,
         max(attempts - exclusive, 0), target
  FROM migrate_row INDEXED BY migrate_row_order
  WHERE NOT exclusive OR id NOT IN (SELECT id FROM migrate_side WHERE side = 'new') ORDER BY timestamp, seq;
-- What is removed once taken leaves no trace: remembered here.
INSERT OR IGNORE INTO main.migrate_copied SELECT id, delete_at FROM migrate_row WHERE NOT exclusive AND delete_after_processing;
COMMIT;

-- In transit on both sides: gone on the old one, then due on the new one.
BEGIN IMMEDIATE;
DELETE FROM msg_messages WHERE node = 'old' AND state = 'dead' AND reason = 'migrate: in transit'
  AND id IN (SELECT id FROM migrate_go WHERE moves);
COMMIT;
BEGIN IMMEDIATE;
UPDATE msg_messages SET deliver_at = deliver_at - 200000000000000 WHERE node = 'new' AND deliver_at >= 200000000000000;
COMMIT;

-- Who has seen what on the other side: each told once.
CREATE TEMP TABLE IF NOT EXISTS migrate_told(id TEXT, side TEXT, seen_by TEXT, PRIMARY KEY(id, side, seen_by)) WITHOUT ROWID;
DROP TABLE IF EXISTS temp.migrate_tell;
CREATE TEMP TABLE migrate_tell AS
  SELECT there.id, there.side, n.value AS seen_by
  FROM migrate_side AS here JOIN migrate_side AS there ON there.id = here.id AND there.side <> here.side
       JOIN json_each(here.processed_by) AS n
  WHERE NOT here.exclusive AND NOT (SELECT same FROM migrate_same)
  EXCEPT SELECT there.id, there.side, n.value FROM migrate_side AS there JOIN json_each(there.processed_by) AS n
  EXCEPT SELECT id, side, seen_by FROM migrate_told;
BEGIN IMMEDIATE;
UPDATE msg_messages SET processed_by = (SELECT json_group_array(name) FROM
    (SELECT value AS name FROM json_each(processed_by) UNION SELECT seen_by FROM migrate_tell AS t WHERE t.id = msg_messages.id))
  WHERE node = 'new' AND id IN (SELECT id FROM migrate_tell WHERE side = 'new');
UPDATE msg_messages SET processed_by = (SELECT json_group_array(name) FROM
    (SELECT value AS name FROM json_each(processed_by) UNION SELECT seen_by FROM migrate_tell AS t WHERE t.id = msg_messages.id))
  WHERE node = 'old' AND id IN (SELECT id FROM migrate_tell WHERE side = 'old');
COMMIT;
INSERT INTO migrate_told SELECT id, side, seen_by FROM migrate_tell;
DELETE FROM migrate_told WHERE id NOT IN (SELECT id FROM migrate_side);
DELETE FROM main.migrate_copied WHERE until < (julianday('now') - 2440587.5) * 86400000 - 60000;

SELECT (SELECT count(*) FROM migrate_go WHERE moves) AS moved,
       (SELECT count(*) FROM migrate_row WHERE target = 'new' AND NOT exclusive) AS to_new,
       (SELECT count(*) FROM migrate_row WHERE target = 'old') AS to_old, (SELECT count(*) FROM migrate_tell) AS told,
       (SELECT count(*) FROM migrate_side WHERE side = 'old' AND exclusive AND state NOT IN ('processed', 'expired')
          AND id NOT IN (SELECT id FROM migrate_go)) AS left_on_old
  WHERE EXISTS (SELECT 1 FROM migrate_go) OR EXISTS (SELECT 1 FROM migrate_tell);
