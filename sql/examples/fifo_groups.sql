-- FIFO groups: within a group one at a time and in order; other groups go on.
SELECT msg_enqueue('account', 'open', '{"group":"A"}') IS NOT NULL AS sent;
SELECT msg_enqueue('account', 'deposit 10', '{"group":"A"}') IS NOT NULL AS sent;
SELECT msg_enqueue('account', 'open', '{"group":"B"}') IS NOT NULL AS sent;

-- A batch holds one message of a group.
CREATE TEMP TABLE first AS SELECT id, token, "group", value FROM msg_claim('account', 10);
SELECT "group", value FROM first;
SELECT "group", value, state FROM msg_messages ORDER BY seq;
SELECT count(*) AS "claimable now" FROM msg_claim('account', 10);

-- Settling the head lets the next one go.
SELECT msg_ack(id, token) AS acknowledged FROM first WHERE "group" = 'A';
SELECT "group", value FROM msg_claim('account', 10);
